"""This machine's own installed distributions, as far as they fit a device."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.tags import parse_tag

from gnomon.devices.wheel_candidate import MOST_METADATA_BYTES, Candidate, Unusable, read_metadata
from gnomon.devices.wheel_target import Target, target_of
from gnomon.errors import RuntimeMissingError

_LEFT_OUT = ("__pycache__",)


def find_installed(name: str, specifier: SpecifierSet, target: Target) -> Candidate:
    """The installed distribution of that name. Unusable, with the reason, if it is not there or does not fit.

    Only what was installed from a wheel with its files recorded can be taken; nothing is imported.
    """
    try:
        found = distribution(name)
    except PackageNotFoundError as error:
        raise Unusable("not installed on this machine") from error
    text = found.read_text("METADATA")
    if text is None or len(text) > MOST_METADATA_BYTES:
        raise Unusable("installed on this machine without metadata")
    metadata = read_metadata(text, target)
    if metadata.name != name or not specifier.contains(metadata.version):
        raise Unusable(f"installed on this machine in version {metadata.version}")
    if _is_editable(found):
        raise Unusable("installed on this machine in editable mode, which has no files to bring")
    _check_fits(found, target)
    files = sorted(_files(found))
    return Candidate(
        name=name,
        version=metadata.version,
        requires=metadata.requires,
        identity=f"installed {_identity(files)}",
        origin="installed on this machine",
        lay=lambda folder: _lay(name, files, folder),
    )


def host_target() -> Target:
    """This machine and the Python of this process as a target."""
    return target_of(
        {
            "machine": platform.machine(),
            "python": platform.python_version(),
            "libc": " ".join(platform.libc_ver()),
            "kernel": platform.release(),
        }
    )


def _check_fits(found: Distribution, target: Target) -> None:
    """The wheel that it came from must fit; one that was built here fits where the C library is no older."""
    wheel = found.read_text("WHEEL")
    lines = (wheel or "").splitlines()
    tags = [tag for line in lines if line.startswith("Tag:") for tag in parse_tag(line[4:].strip())]
    if not tags:
        raise Unusable("not installed from a wheel on this machine")
    fitting = [tag for tag in tags if tag in target.tags]
    if not fitting:
        raise Unusable(f"installed on this machine for {min(map(str, tags))}")
    if all(tag.platform == f"linux_{target.architecture}" for tag in fitting):
        here = host_target().libc
        if here is None or target.libc is None or here[:2] != target.libc[:2] or here[2] > target.libc[2]:
            raise Unusable("built on this machine, for a newer or another C library")


def _is_editable(found: Distribution) -> bool:
    text = found.read_text("direct_url.json")
    if text is None:
        return False
    try:
        return bool(json.loads(text).get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError, RecursionError):
        return True  # what cannot be read is not trusted


def _files(found: Distribution) -> Iterator[tuple[str, Path]]:
    """Each file's path in site-packages, and where it lies. Entry scripts and shared data are left out."""
    if found.files is None:
        raise Unusable("installed on this machine without a record of its files")
    prefix = Path(sys.prefix).resolve()
    for entry in found.files:
        parts = entry.parts
        source = Path(str(found.locate_file(entry)))
        if entry.is_absolute() or ".." in parts:
            outside = Path(os.path.normpath(source))
            if entry.is_absolute() or not outside.is_relative_to(prefix):
                raise Unusable(f"its record names a file outside of its folder: {str(entry)[:80]!a}")
            continue
        if any(part in _LEFT_OUT for part in parts) or entry.suffix in (".pyc", ".pth"):
            continue
        if parts[0].endswith(".dist-info") and entry.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
            continue  # of this installation rather than of the distribution
        if not source.is_file():
            raise Unusable(f"installed on this machine with a file missing: {str(entry)[:80]!a}")
        yield entry.as_posix(), source


def _identity(files: list[tuple[str, Path]]) -> str:
    """A digest of the paths, sizes and times of the files: an installer that changes one changes its time."""
    digest = hashlib.sha256()
    for name, source in files:
        status = source.stat()
        digest.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _lay(name: str, files: list[tuple[str, Path]], folder: Path) -> None:
    try:
        for place, source in files:
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            real = source.resolve()
            try:
                os.link(real, target)
            except OSError:  # another disk, or a file of another user
                shutil.copy2(real, target)
    except OSError as error:
        raise RuntimeMissingError(
            f"the installed files of {name} cannot be brought together in {folder}: {error.strerror or error}",
            hint="Free space there, or set GNOMON_HOME to another folder.",
        ) from error
