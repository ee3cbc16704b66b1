"""Copies files from a device that has only a shell to a folder on this machine, in the same structure.

Code that reads /proc and /sys of this machine can then read those of the device by the same rules.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from gnomon.errors import DeviceError, system_errors

MOST_FILES = 1 << 13
"""The most files that are created here; enough for a machine with a thousand cores."""


_MOST_FOLDERS = 64


def collect_script(patterns: tuple[str, ...]) -> str:
    """A script that prints each existing file: 0x1e, its path, 0x1f, its content."""
    return (
        f'for f in {" ".join(patterns)}; do [ -f "$f" ] && [ -r "$f" ] || continue; '
        'printf \'\\036%s\\037\' "$f"; cat "$f" 2>/dev/null; done; true'
    )


def parse_files(printed: bytes) -> dict[str, bytes]:
    """The files in the output of `collect_script`, by path; only the first `MOST_FILES`."""
    files: dict[str, bytes] = {}
    for part in printed.split(b"\x1e")[1:]:
        name, separator, content = part.partition(b"\x1f")
        if separator and len(name) < 4096 and len(files) < MOST_FILES:
            files.setdefault(name.decode(errors="replace"), content)
    return files


def lay_out(files: dict[str, bytes], root: Path) -> None:
    """Write the files below a folder on this machine, except for paths that lead out of it or are too deep."""
    for name, content in files.items():
        root_there, *parts = PurePosixPath(name).parts or ("",)
        if not root_there.startswith("/") or ".." in parts or "\0" in name or len(parts) > _MOST_FOLDERS:
            continue
        to = root.joinpath(*parts)
        with system_errors(
            DeviceError,
            f"the facts that the device reports cannot be stored in {root}",
            hint="Free up space there, or set TMPDIR to another writable folder.",
        ):
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(content)
