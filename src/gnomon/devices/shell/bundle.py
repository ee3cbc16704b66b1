"""Many small files as one: each file that travels by itself costs a session, thousands of them minutes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from gnomon.devices.pushed import Part, contents
from gnomon.devices.shell.scripts import quoted
from gnomon.system.files import file_digest

SUMS = ".gnomon-sums"
_SMALL_BYTES = 1 << 20
_MOST_BYTES = 64 << 20
_FEWEST = 4
_ESCAPED = frozenset("\\\n\r")


def bundled(parts: Sequence[Part]) -> list[list[Part]]:
    """The files that are worth to travel together, bundle by bundle; what is in none travels by itself."""
    bundles: list[list[Part]] = [[]]
    size_bytes = 0
    for part in parts:
        plain = part.path.isprintable() and not _ESCAPED & set(part.path)
        if part.kind == "d" or not part.path or not plain or part.size_bytes >= _SMALL_BYTES:
            continue
        if size_bytes + part.size_bytes > _MOST_BYTES:
            bundles.append([])
            size_bytes = 0
        bundles[-1].append(part)
        size_bytes += part.size_bytes
    return [bundle for bundle in bundles if len(bundle) >= _FEWEST]


def packed(parts: Sequence[Part], file: Path) -> Part:
    """Write the files, and a list of their digests, to a tar archive at `file`: what it is as one part.

    Paths are those of the parts. The format is GNU's, which busybox and toybox read too. DeviceError where a file has
    changed since its digest was made.
    """
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as archive:
        for path, program, content in _members(parts):
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(content), 0o500 if program else 0o400
            archive.addfile(member, io.BytesIO(content))
    return Part(path="", kind="f", size_bytes=file.stat().st_size, digest=file_digest(file), source=file)


def _members(parts: Sequence[Part]) -> Iterator[tuple[str, bool, bytes]]:
    for part in parts:
        yield part.path, part.kind == "x", b"".join(contents(part))
    yield SUMS, False, "".join(f"{part.digest}  {part.path}\n" for part in parts).encode()


def unpack_script(archive: str, folder: str) -> str:
    """Unpacks an archive into a folder that has its folders; status 0 if all files are there as they were sent.

    Any other status leaves no file in that folder. The archive is removed either way. What came is written to the disk
    now, and not beside a measurement.
    """
    return (
        f"umask 077; cd {quoted(folder)} || exit 1\n"
        f"command -v tar >/dev/null && tar -xomf {quoted(archive)} </dev/null; s=$?; rm -f {quoted(archive)}\n"
        f"if [ $s -eq 0 ] && command -v sha256sum >/dev/null; then sha256sum -c {SUMS} >/dev/null; s=$?; fi\n"
        f"rm -f {SUMS}; [ $s -eq 0 ] || {{ find . -type f -exec rm -f {{}} +; exit $s; }}\n"
        "{ sync -f . || sync; } 2>/dev/null; true"
    )
