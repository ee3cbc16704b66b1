"""Packs the agent into the one file that is pushed to a device and shipped in deployable packages."""

from __future__ import annotations

import io
import zipfile
from importlib import resources

_MAIN = b"import sys\nfrom gnomon_agent.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def packed_agent() -> bytes:
    """The agent as a zip application for any Python 3.10 or later with numpy; the same bytes every time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _MAIN)
        folder = resources.files("gnomon.agent")
        for entry in sorted(folder.iterdir(), key=lambda e: e.name):
            if entry.name.endswith(".py"):
                archive.writestr(zipfile.ZipInfo(f"gnomon_agent/{entry.name}", _EPOCH), entry.read_bytes())
    return buffer.getvalue()
