"""The conversation with the program that keeps jobs on a device.

Bringing home what a search on a device has written, at its end or before.

The runs of a job's record into the record of this machine: only how its device is called and reached is told again, as
the job knew it as its own machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from gnomon.core.sample import Event
from gnomon.devices import unattended as unattended_program
from gnomon.devices.base import Device
from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import resolve, visited
from gnomon.errors import DeviceError, PackageError, UsageError
from gnomon.jobs.unattended.command import Fetched, Job, job_of
from gnomon.session import replay as recall
from gnomon.session.package import check_destination
from gnomon.store.address import RecordAddress, RecordLike, record_address
from gnomon.store.join import Joined, join_records
from gnomon.store.opening import default_record, open_store
from gnomon.store.sqlite import SqliteStore
from gnomon.system.files import staged
from gnomon.system.process import guarded_folder

_TIMEOUT_S = 600.0
_FILES = ("unattended",)
_DEFAULT_FOLDER = "~/.local/share/gnomon"

# The program's files import each other as siblings of one package, here and there.
_STARTER = """
import sys, types
package = types.ModuleType("gnomon_jobs")
package.__path__ = []
sys.modules["gnomon_jobs"] = package
for name, source in {sources!r}:
    module = types.ModuleType("gnomon_jobs." + name)
    module.__package__ = "gnomon_jobs"
    sys.modules[module.__name__] = module
    exec(compile(source, name + ".py", "exec"), module.__dict__)
module.main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The jobs on an open device. `python` is the Python there."""

    device: Device
    config: DeviceConfig
    python: str

    def ask(self, op: str, **request: Any) -> dict[str, Any]:
        """The answer to one request.

        UsageError where no single job is meant, or a running one may not be touched; DeviceError for all else.
        """
        root = f"{self.config.folder or _DEFAULT_FOLDER}/unattended"
        whole = json.dumps({"op": op, "root": root, **request})
        argv = [self.python, "-I", "-X", "utf8", "-", whole]
        done = self.device.run(argv, env={}, stdin=_program(), timeout_s=_TIMEOUT_S)
        try:
            answer = json.loads(done.stdout) if done.ok else None
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            last = done.stderr.strip().splitlines()[-1:] or ["it did not answer"]
            raise DeviceError(
                f"the jobs on {self.config.name} cannot be seen to: {last[0][:300]}",
                hint="See what `gnomon devices check` says of the device.",
            )
        if "error" in answer:
            raise _refused(answer, self.config.name, str(request.get("id", "")))
        return answer

    def job(self, answer: dict[str, Any]) -> Job:
        """The job that an answer tells of."""
        return job_of(answer.get("job"), self.config.name, str(self.config.address))


@contextmanager
def keep_of(device: str) -> Iterator[Keep]:
    """The jobs on a device, by its name or address, also while one of them measures there."""
    config = resolve(device)
    with visited(config) as there:
        yield Keep(device=there, config=config, python=there.describe().python)


def jobs_in(answer: dict[str, Any], config: DeviceConfig) -> tuple[Job, ...]:
    """The jobs that a list tells of."""
    found = answer.get("jobs")
    if not isinstance(found, list):
        raise DeviceError(f"{config.name} did not list its jobs", hint="Try again.")
    return tuple(job_of(told, config.name, str(config.address)) for told in found)


@cache
def _program() -> bytes:
    folder = Path(unattended_program.__file__).parent
    sources = [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in _FILES]
    return _STARTER.format(sources=sources).encode()


def _refused(answer: dict[str, Any], device: str, wanted: str) -> DeviceError | UsageError:
    kind, what, reason = (str(answer.get(key, ""))[:500] for key in ("error", "what", "reason"))
    own = f"gnomon unattended --device {device}"
    if kind == "missing":
        told = f"The newest there: {reason}." if reason else "There is none."
        return UsageError(f"there is no job {wanted[:40]!r} on {device}", hint=f"{told} To list them: {own}")
    if kind == "several":
        return UsageError(f"several jobs on {device} begin with {wanted[:40]!r}", hint=f"Give more of: {reason}.")
    if kind == "running":
        return UsageError(f"the job {reason} runs", hint=f"First: gnomon unattended stop {reason} --device {device}")
    other = "or choose another folder for it by `folder` in the file of devices."
    hints = {"full": f"Free space there, {other}", "permission": f"See who may write there, {other}"}
    where = f"{what}: " if what else ""
    return DeviceError(f"on {device}: {where}{reason}", hint=hints.get(kind, "Look at its disk, and try again."))


DOCUMENT, LOG = "pareto.json", "log.txt"
_MOST_FILES = 10_000
_MOST_DOCUMENT_BYTES = 256 << 20


PathLike = str | os.PathLike[str]


def fetch_unattended(id: str, *, device: str, out: PathLike | None = None, record: RecordLike | None = None) -> Fetched:
    """Bring what a job has written so far into a folder (None: ./ID), and its runs into the record (None: the user's).

    Each file comes whole or not at all, and takes the place of an older one of its name; the job goes on. To be done
    again at any time. The device's clock and paths stay in the log, the document gets this machine's paths.
    GnomonError; files that came before it stay.
    """
    with keep_of(device) as keep:
        answer = keep.ask("collect", id=id)
        job = keep.job(answer)
        place = Path(job.id if out is None else out)
        into = default_record() if record is None else record_address(record)
        fetcher = _Fetcher(keep=keep, job=job, place=place, out=str(answer.get("out")))
        files = fetcher.files(_checked(answer.get("files"), job))
        joined = Joined(campaigns=0, runs=0, events=0)
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


def _joined(copy: Path, record: RecordAddress, keep: Keep) -> Joined:
    lab = {"device": keep.config.name, "address": str(keep.config.address), "python": keep.python}
    with SqliteStore.open(copy) as source, open_store(record) as target:
        return join_records(source, target, lambda event: _renamed(event, lab))


def _renamed(event: Event, lab: Mapping[str, Any]) -> Event:
    """The event; the one that notes where its campaign ran with how this machine knows the device."""
    return replace(event, data={**event.data, **lab}) if event.name == recall.NOTE else event


def _checked(listed: object, job: Job) -> list[PurePosixPath]:
    """The files that a device lists, by paths that lead nowhere else."""
    try:
        assert isinstance(listed, list) and len(listed) <= _MOST_FILES  # noqa: S101 - as any other nonsense
        paths = [PurePosixPath(str(name)) for name, _ in listed]
        if all(path.parts and path.root == "" and ".." not in path.parts and "\0" not in str(path) for path in paths):
            return paths
    except (AssertionError, TypeError, ValueError):
        pass
    raise DeviceError(f"{job.device} lists invalid files of the job {job.id}", hint=f"Look into {job.folder} there.")


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

    def document(self, notes: Mapping[str, Any], record: RecordAddress) -> dict[str, Any] | None:
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
            with staged(target) as made:
                for path in members:
                    here = made.joinpath(*path.parts[2:])
                    here.parent.mkdir(parents=True, exist_ok=True)
                    self.keep.device.pull(f"{self.out}/{path}", here)
        except OSError as error:
            raise PackageError(
                f"the package {target} cannot be written: {error.strerror}", hint="Make room, or give --out."
            ) from error
        return [f"{name}/{PurePosixPath(*path.parts[2:])}" for path in members]
