"""Wheels in a folder: which one fits a device, and how it is unpacked without trusting it."""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from gnomon.devices.wheel_candidate import MOST_METADATA_BYTES, Candidate, Unusable, WantsOtherPython, read_metadata
from gnomon.devices.wheel_target import Target
from gnomon.errors import RuntimeMissingError

MOST_UNPACKED_BYTES = 4 << 30
_MOST_ENTRIES = 100_000
_BROKEN = (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError)


def wheels_in(folder: Path, target: Target) -> dict[str, list[tuple[Version, Path]]]:
    """The wheels in a folder that fit a target, by the name of the distribution, the best first.

    What is no wheel by its name (PEP 427) is passed over.
    """
    ranked: dict[str, list[tuple[Version, int, tuple[object, ...], str, Path]]] = {}
    for path in sorted(folder.glob("*.whl")) if folder.is_dir() else ():
        try:
            name, version, build, tags = parse_wheel_filename(path.name)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        places = [target.tags[tag] for tag in tags if tag in target.tags]
        if places:
            ranked.setdefault(name, []).append((version, -min(places), build, path.name, path))
    return {
        name: [(row[0], row[-1]) for row in sorted(rows, key=lambda r: r[:4], reverse=True)]
        for name, rows in ranked.items()
    }


def find_wheel(folder: Path, name: str, specifier: SpecifierSet, target: Target) -> Candidate | None:
    """The newest wheel of a distribution in a folder that fits and satisfies, or None.

    RuntimeMissingError if that wheel is broken.
    """
    found = wheels_in(folder, target).get(name, [])
    good = set(specifier.filter(version for version, _ in found))
    for version, path in found:
        if version in good:
            with suppress(WantsOtherPython):
                return _candidate(name, version, path, target)
    return None


def _candidate(name: str, version: Version, path: Path, target: Target) -> Candidate:
    try:
        with zipfile.ZipFile(path) as archive:
            metadata = read_metadata(_metadata_text(archive, name, version), target)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except WantsOtherPython:
        raise
    except (Unusable, OSError, *_BROKEN) as error:
        raise _broken(path, str(error)) from error
    if (metadata.name, metadata.version) != (name, version):
        raise _broken(path, f"inside it is {metadata.name} {metadata.version}")
    return Candidate(
        name=name,
        version=version,
        requires=metadata.requires,
        identity=f"wheel {digest}",
        origin=str(path),
        lay=lambda folder: unpack_wheel(path, folder),
    )


def _metadata_text(archive: zipfile.ZipFile, name: str, version: Version) -> str:
    for entry in archive.infolist():
        folder, _, file = entry.filename.partition("/")
        stem, _, kind = folder.rpartition(".")
        if kind == "dist-info" and file == "METADATA" and canonicalize_name(stem.partition("-")[0]) == name:
            if entry.file_size > MOST_METADATA_BYTES:
                raise Unusable("its metadata are too large")
            return archive.read(entry).decode("utf-8", "replace")
    raise Unusable(f"it holds no metadata of {name} {version}")


def unpack_wheel(path: Path, folder: Path) -> None:
    """Unpack what of a wheel lies in site-packages (PEP 427): its root, and the purelib and platlib of its data.

    Scripts, headers and data are left out, and no link is made. RuntimeMissingError if the wheel is broken, would
    write outside of the folder, or would take more than 4 GiB or the free space of the disk.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            if len(entries) > _MOST_ENTRIES or size > MOST_UNPACKED_BYTES:
                raise Unusable(f"it would unpack to {len(entries)} files of {size >> 20} MiB in all")
            free = shutil.disk_usage(folder).free
            if size > free:
                raise Unusable(f"it unpacks to {size >> 20} MiB, and {free >> 20} MiB are free in {folder}")
            for entry, place in _places(entries):
                _write(archive, entry, folder.joinpath(*place))
    except (Unusable, OSError, *_BROKEN) as error:
        raise _broken(path, str(error)) from error


def _places(entries: list[zipfile.ZipInfo]) -> Iterator[tuple[zipfile.ZipInfo, tuple[str, ...]]]:
    """Each file and where it goes. Every name is looked at before the first file is written."""
    found = []
    for entry in entries:
        name = entry.filename
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or "\\" in name or "\0" in name or ".." in parts or ":" in parts[0]:
            raise Unusable(f"it would write outside of its folder: {name[:80]!a}")
        if entry.flag_bits & 1:
            raise Unusable("it is encrypted")
        if parts[0].endswith(".data"):
            if len(parts) < 3 or parts[1] not in ("purelib", "platlib"):
                continue
            parts = parts[2:]
        if not entry.is_dir():
            found.append((entry, parts))
    yield from found


def _write(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    executable = (entry.external_attr >> 16) & stat.S_IXUSR
    # zipfile reads no more than the size that the entry declares, so the sum that was looked at holds.
    with archive.open(entry) as source, target.open("xb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
        os.fchmod(sink.fileno(), 0o755 if executable else 0o644)


def _broken(path: Path, why: str) -> RuntimeMissingError:
    return RuntimeMissingError(f"the wheel {path} cannot be used: {why[:300]}", hint=f"Remove it: rm {path}")
