"""Writing a file that the user asked for: whole, or as it was."""

from __future__ import annotations

import os
from pathlib import Path

from gnomon.errors import UsageError


def save_text(text: str, path: Path, *, what: str = "", option: str = "--out") -> None:
    """Write a text as UTF-8, its line ends as they are. What was there stays until all of it is written.

    UsageError, which names `what` it is and the `option` that says where, if it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, encoding="utf-8", newline="")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        told = f"{what} cannot be written to {path}" if what else f"{path} cannot be written"
        raise UsageError(
            f"{told}: {error.strerror or error}",
            hint=f"Give {option} a file in a folder that can be written and has room.",
        ) from error
