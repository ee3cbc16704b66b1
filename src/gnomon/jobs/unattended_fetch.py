"""Bringing home what a search on a device has written, at its end or before."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gnomon.devices.guard import guarded_folder
from gnomon.devices.keeper_files import plain
from gnomon.errors import DeviceError, PackageError, UsageError
from gnomon.jobs.packages import check_destination
from gnomon.jobs.unattended_device import Keep, keep_of
from gnomon.jobs.unattended_join import Joined, join_records
from gnomon.jobs.unattended_records import Fetched, Job
from gnomon.store.sqlite import SqliteStore, default_path

DOCUMENT, LOG = "pareto.json", "log.txt"
_MOST_FILES = 10_000
_MOST_DOCUMENT_BYTES = 256 << 20


PathLike = str | os.PathLike[str]


def fetch_unattended(id: str, *, device: str, out: PathLike | None = None, record: PathLike | None = None) -> Fetched:
    """Bring what a job has written so far into a folder (None: ./ID), and its runs into the record (None: the user's).

    Each file comes whole or not at all, and takes the place of an older one of its name; the job goes on. To be done
    again at any time. The device's clock and paths stay in the log, the document gets this machine's paths.
    GnomonError; files that came before it stay.
    """
    with keep_of(device) as keep:
        answer = keep.ask("collect", id=id)
        job = keep.job(answer)
        place = Path(job.id if out is None else out)
        into = default_path() if record is None else Path(record)
        fetcher = _Fetcher(keep=keep, job=job, place=place, out=str(answer.get("out")))
        files = fetcher.files(_checked(answer.get("files"), job))
        joined = Joined(campaigns=0, runs=0)
        with guarded_folder("gnomon-fetch-") as folder:
            if (remote := answer.get("record")) is not None:
                keep.device.pull(str(remote), folder / "record.sqlite")
                joined = _joined(folder / "record.sqlite", into, keep)
        notes = answer["job"]["job"]
        return Fetched(
            job=job,
            folder=place,
            files=tuple(files),
            document=fetcher.document(notes, into),
            picture=place / Path(str(notes.get("picture") or "front")).name,
            record=into,
            campaigns=joined.campaigns,
            runs=joined.runs,
        )


def _joined(copy: Path, record: Path, keep: Keep) -> Joined:
    lab = {"device": keep.config.name, "address": str(keep.config.address), "python": keep.python}
    with SqliteStore.open(copy) as source, SqliteStore.open(record) as target:
        return join_records(source, target, lab)


def _checked(listed: object, job: Job) -> list[PurePosixPath]:
    """The files that a device lists, by paths that lead nowhere else."""
    try:
        assert isinstance(listed, list) and len(listed) <= _MOST_FILES  # noqa: S101 - as any other nonsense
        paths = [PurePosixPath(str(name)) for name, _ in listed]
        if all(path.parts and all(plain(part) for part in path.parts) for path in paths):
            return paths
    except (AssertionError, TypeError, ValueError):
        pass
    raise DeviceError(
        f"{job.device} lists files of the job {job.id} that cannot be meant", hint=f"Look into {job.folder} there."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetcher:
    """Brings the files of one job into a folder here. `out` is where they lie there."""

    keep: Keep
    job: Job
    place: Path
    out: str

    def files(self, paths: Iterable[PurePosixPath]) -> list[str]:
        """Bring them; returns their names here."""
        try:
            self.place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{self.place} cannot be made: {error.strerror or error}", hint="Give another folder by --out DIR."
            ) from error
        found: list[str] = []
        packages: dict[str, list[PurePosixPath]] = {}
        for path in paths:
            kind, *rest = path.parts
            if path == PurePosixPath("document.json"):
                found += self._one(path, DOCUMENT)
            elif kind == "dump" and len(rest) == 1:
                found += self._one(path, self._free(rest[0]))
            elif kind == "package" and len(rest) > 1:
                packages.setdefault(rest[0], []).append(path)
        for name, members in packages.items():
            found += self._package(self._free(name), members)
        if self.job.log:
            self.keep.device.pull(f"{self.job.folder}/log", self.place / LOG)
            found.append(LOG)
        return sorted(found)

    def document(self, notes: Mapping[str, Any], record: Path) -> dict[str, Any] | None:
        """The document with this machine's paths in place of the device's; None where there is none of a search."""
        path = self.place / DOCUMENT
        if not path.is_file() or self.job.alive:
            return None
        try:
            data = path.read_bytes()
            found = json.loads(data) if len(data) <= _MOST_DOCUMENT_BYTES else None
        except (OSError, ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.get("format") != "gnomon-pareto":
            return None
        for key in ("package", "dumpfile"):
            if isinstance(found.get(key), str):
                found[key] = str(self.place / self._free(PurePosixPath(found[key]).name))
        if isinstance(found.get("model"), dict):
            found["model"]["path"] = str(notes.get("source") or self.job.model)
        return found | {"device": self.job.device, "record": str(record), "pictures": []}

    def _free(self, name: str) -> str:
        """A name beside what is always there."""
        return f"own-{name}" if name in (DOCUMENT, LOG) else name

    def _one(self, path: PurePosixPath, name: str) -> list[str]:
        self.keep.device.pull(f"{self.out}/{path}", self.place / name)
        return [name]

    def _package(self, name: str, members: list[PurePosixPath]) -> list[str]:
        """A package as a whole, in place of one of that name."""
        target = self.place / name
        check_destination(target, overwrite=True)
        try:
            self._replace(target, members)
        except OSError as error:
            raise PackageError(
                f"the package {target} cannot be written: {error.strerror}", hint="Make room, or give --out."
            ) from error
        return [f"{name}/{PurePosixPath(*path.parts[2:])}" for path in members]

    def _replace(self, target: Path, members: list[PurePosixPath]) -> None:
        """Bring the files of a package, then put it in the place of an older one, which stays if that fails."""
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name[:64]}-", dir=self.place))
        new, old = staging / "new", staging / "old"
        try:
            for path in members:
                here = new.joinpath(*path.parts[2:])
                here.parent.mkdir(parents=True, exist_ok=True)
                self.keep.device.pull(f"{self.out}/{path}", here)
            if target.exists():
                target.rename(old)
            try:
                new.rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
