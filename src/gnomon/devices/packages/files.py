"""Finds distributions for a device: wheels in a folder, and distributions installed on this machine.

Wheels are not trusted: each name in a wheel is checked before anything is unpacked.
"""

from __future__ import annotations

import csv
import hashlib
import json
import lzma
import os
import platform
import shlex
import shutil
import stat
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import parse_tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from gnomon.devices.packages.target import Target, target_of
from gnomon.errors import RuntimeMissingError, system_errors
from gnomon.system.files import file_digest

MOST_METADATA_BYTES = 8 << 20
_MOST_REQUIREMENTS = 5000
_MOST_OF_A_LINE = 4000  # Python refuses numbers of more than 4,300 digits, but only when versions are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A version of a distribution that a device's Python can import.

    `requires` are its requirements; their markers have not been evaluated yet. `identity` is equal for equal content.
    `lay` writes its files into a folder, in the structure of site-packages; RuntimeMissingError if the distribution is
    broken.
    """

    name: str
    version: Version
    requires: tuple[Requirement, ...]
    identity: str
    origin: str
    lay: Callable[[Path], None]


class Unusable(Exception):
    """The reason why a distribution cannot be installed on a device."""


class WantsOtherPython(Unusable):
    """The distribution is intact but for another Python."""


def read_metadata(text: str, target: Target) -> tuple[str, Version, tuple[Requirement, ...]]:
    """The name, version and requirements in a METADATA file (PEP 566).

    Unusable if it is malformed or requires another Python.
    """
    head = HeaderParser().parsestr(text.partition("\n\n")[0])
    lines = head.get_all("Requires-Dist") or []
    pythons, version = head.get("Requires-Python") or "", head.get("Version") or ""
    try:
        if len(lines) > _MOST_REQUIREMENTS:
            raise Unusable(f"it has more than {_MOST_REQUIREMENTS} requirements")
        if any(len(line) > _MOST_OF_A_LINE for line in (*lines, pythons, version)):
            raise Unusable(f"its metadata has a line of more than {_MOST_OF_A_LINE} characters")
        wanted = SpecifierSet(pythons)
        name, parsed = canonicalize_name(head.get("Name") or ""), Version(version)
        requires = tuple(Requirement(line) for line in lines)
    except (InvalidRequirement, InvalidSpecifier, InvalidVersion, RecursionError) as error:
        raise Unusable(f"its metadata is invalid: {str(error)[:200]}") from error
    if not wanted.contains(target.version, prereleases=True):
        raise WantsOtherPython(f"it requires Python {wanted}")
    return name, parsed, requires


MOST_UNPACKED_BYTES = 4 << 30
_MOST_ENTRIES = 100_000
_BROKEN = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, RuntimeError, ValueError, MemoryError),  # LZMA allocates as much as a wheel requests
)


def wheels_in(folder: Path, target: Target) -> dict[str, list[tuple[Version, Path]]]:
    """The wheels in a folder that fit a target, by name of the distribution, the best ones first.

    Files without the name of a wheel (PEP 427) are ignored.
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
    """The newest wheel of a distribution in a folder that fits the target and satisfies the specifier, or None.

    RuntimeMissingError if that wheel is broken.
    """
    wheels = wheels_in(folder, target).get(name, [])
    good = set(specifier.filter(version for version, _ in wheels))
    for version, path in wheels:
        if version in good:
            with suppress(WantsOtherPython):
                return _candidate(name, version, path, target)
    return None


def _candidate(name: str, version: Version, path: Path, target: Target) -> Candidate:
    try:
        with zipfile.ZipFile(path) as archive:
            *inside, requires = read_metadata(_metadata_text(archive, name, version), target)
        digest = file_digest(path)
    except WantsOtherPython:
        raise
    except (Unusable, OSError, *_BROKEN) as error:
        raise _broken(path, error) from error
    if inside != [name, version]:
        raise _broken(path, Unusable(f"its metadata is that of {inside[0]} {inside[1]}"))
    return Candidate(
        name=name,
        version=version,
        requires=requires,
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
                raise Unusable("its metadata is too large")
            return archive.read(entry).decode("utf-8", "replace")
    raise Unusable(f"it has no metadata for {name} {version}")


def unpack_wheel(path: Path, folder: Path) -> None:
    """Unpack the part of a wheel that belongs in site-packages (PEP 427): its root, and its data's purelib and platlib.

    Scripts, headers and data are left out, and links are not created. RuntimeMissingError if the wheel is broken, would
    write outside the folder, or would take more than 4 GiB or more than the free space of the disk.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            if len(entries) > _MOST_ENTRIES or size > MOST_UNPACKED_BYTES:
                raise Unusable(f"it is too large: it would unpack to {len(entries)} files of {size >> 20} MiB in total")
            free = shutil.disk_usage(folder).free
            if size > free:
                raise Unusable(f"it unpacks to {size >> 20} MiB, but only {free >> 20} MiB are free in {folder}")
            for entry, place in _places(entries):
                _write(archive, entry, folder.joinpath(*place))
    except (Unusable, OSError, *_BROKEN) as error:
        raise _broken(path, error) from error


def _places(entries: list[zipfile.ZipInfo]) -> Iterator[tuple[zipfile.ZipInfo, tuple[str, ...]]]:
    """Each file and its destination. Every name is checked before the first file is written."""
    places = []
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
            places.append((entry, parts))
    yield from places


def _write(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    executable = (entry.external_attr >> 16) & stat.S_IXUSR
    # zipfile reads no more than the declared size of the entry, so the total checked above holds.
    with archive.open(entry) as source, target.open("xb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
        os.fchmod(sink.fileno(), 0o755 if executable else 0o644)


def _broken(path: Path, error: Exception) -> RuntimeMissingError:
    why = str(error) or type(error).__name__
    hint = f"Remove it, then start again: rm {shlex.quote(str(path))}"
    return RuntimeMissingError(f"the wheel {path} cannot be used: {why[:300]}", hint=hint)


def find_installed(name: str, specifier: SpecifierSet, target: Target) -> Candidate:
    """The installed distribution with this name. Unusable, with the reason, if it does not exist or does not fit.

    Only a distribution that was installed from a wheel with a record of its files can be used; nothing is imported.
    """
    try:
        installed = distribution(name)
    except PackageNotFoundError as error:
        raise Unusable("not installed on this machine") from error
    text = installed.read_text("METADATA")
    if text is None or len(text) > MOST_METADATA_BYTES:
        raise Unusable("installed on this machine without metadata")
    own_name, version, requires = read_metadata(text, target)
    if own_name != name or not specifier.contains(version):
        raise Unusable(f"installed on this machine in version {version}")
    if _is_editable(installed):
        raise Unusable("installed on this machine in editable mode, without files to copy")
    _check_fits(installed, target)
    files = sorted(_files(installed))
    return Candidate(
        name=name,
        version=version,
        requires=requires,
        identity=f"installed {_identity(files)}",
        origin="installed on this machine",
        lay=lambda folder: _lay(name, files, folder),
    )


def host_target() -> Target:
    """The target for this machine and the Python of this process."""
    libc = " ".join(platform.libc_ver())
    facts = {"machine": platform.machine(), "python": platform.python_version(), "kernel": platform.release()}
    return target_of({**facts, "libc": libc})


def _check_fits(installed: Distribution, target: Target) -> None:
    """Unusable unless the distribution's original wheel fits; a wheel built here fits if the target's C library is not
    older.
    """
    lines = (installed.read_text("WHEEL") or "").splitlines()
    tags = [tag for line in lines if line.startswith("Tag:") for tag in parse_tag(line[4:].strip())]
    if not tags:
        raise Unusable("not installed from a wheel on this machine")
    fitting = [tag for tag in tags if tag in target.tags]
    if not fitting:
        raise Unusable(f"installed on this machine for {min(map(str, tags))}")
    if all(tag.platform == f"linux_{target.architecture}" for tag in fitting):
        here = host_target().libc
        if here is None or target.libc is None or here[:2] != target.libc[:2] or here[2] > target.libc[2]:
            raise Unusable("built on this machine for a newer or a different C library")


def _is_editable(installed: Distribution) -> bool:
    text = installed.read_text("direct_url.json")
    if text is None:
        return False
    try:
        return bool(json.loads(text).get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError, RecursionError):
        return True  # unreadable data is not trusted


def _files(installed: Distribution) -> Iterator[tuple[str, Path]]:
    """Each file's path in site-packages, and its location here. Entry scripts and shared data are left out."""
    record = installed.read_text("RECORD")
    if record is None:
        raise Unusable("installed on this machine without a record of its files")
    prefix = Path(sys.prefix).resolve()
    # The rows are not those of `installed.files`: newer versions of importlib.metadata omit missing files, which must
    # be noticed here.
    try:
        rows = [row[0] for row in csv.reader(record.splitlines()) if row and row[0]]
    except csv.Error as error:
        raise Unusable(f"installed on this machine with a broken record of its files: {error}") from error
    for entry in map(PurePosixPath, rows):
        parts = entry.parts
        source = Path(str(installed.locate_file(entry)))
        if entry.is_absolute() or ".." in parts:
            outside = Path(os.path.normpath(source))
            if entry.is_absolute() or not outside.is_relative_to(prefix):
                raise Unusable(f"its record names a file outside of its folder: {str(entry)[:80]!a}")
            continue
        if "__pycache__" in parts or entry.suffix in (".pyc", ".pth"):
            continue
        if parts[0].endswith(".dist-info") and entry.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
            continue  # these belong to the installation rather than to the distribution
        if not source.is_file():
            raise Unusable(f"installed on this machine with a file missing: {str(entry)[:80]!a}")
        yield entry.as_posix(), source


def _identity(files: list[tuple[str, Path]]) -> str:
    """A digest of the paths, sizes and times of the files; an installer that changes a file changes its time."""
    digest = hashlib.sha256()
    for name, source in files:
        status = source.stat()
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _lay(name: str, files: list[tuple[str, Path]], folder: Path) -> None:
    with system_errors(
        RuntimeMissingError,
        f"the installed files of {name} cannot be collected in {folder}",
        hint="Free up space there, or set GNOMON_HOME to another folder.",
    ):
        for place, source in files:
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            real = source.resolve()
            try:
                os.link(real, target)
            except OSError:  # another disk, or a file of another user
                shutil.copy2(real, target)
