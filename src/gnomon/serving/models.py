"""The format of an uploaded file, by its content: an ONNX, TFLite or Circle file, or the archive of an nnpackage.

An nnpackage is a folder, but a form contains files, so it is sent as a ZIP archive of the folder or of its content.
"""

from __future__ import annotations

import stat
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from gnomon.errors import ModelError

_ZIP = b"PK\x03\x04"
_MOST_ENTRIES = 256
_MOST_DEPTH = 8
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The compression methods that `zip` uses. Python's readers of other methods return whole pieces of any size at
once.
"""
_BROKEN = (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, EOFError, RuntimeError, ValueError)
_PACKAGE = "Send the folder of an nnpackage as a ZIP archive: zip -r model.zip nnpackage"
FORMATS = "ONNX, TFLite and Circle files, and nnpackages as ZIP archives"


def sent_model(path: Path, most_bytes: int) -> Path:
    """The model in an uploaded file, with a file name that runtimes recognise, in a new folder next to the upload.

    `most_bytes` is the largest total size of an archive's content. ModelError for a file of any other format, and for
    an archive that is broken, too large, or not a package.
    """
    from gnomon.models.model import FLAT_MAGICS, NCNN_MAGIC, OPENVINO_STARTS

    with path.open("rb") as file:
        head = file.read(8)
    if head.startswith(_ZIP):
        return _unpacked(path, Path(tempfile.mkdtemp(dir=path.parent)) / "package", most_bytes)
    for kind, starts in (("ncnn", NCNN_MAGIC), ("OpenVINO", OPENVINO_STARTS)):
        if head.startswith(starts):
            raise ModelError(f"{kind} models consist of two files", hint=f"This server takes {FORMATS}.")
    named = Path(tempfile.mkdtemp(dir=path.parent)) / f"model.{FLAT_MAGICS.get(head[4:8], 'onnx')}"
    named.hardlink_to(path)
    return named


def _unpacked(path: Path, folder: Path, most_bytes: int) -> Path:
    """The unpacked folder of the package. Names are checked, links are refused, and no entry yields more bytes than it
    declares.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len(entries) > _MOST_ENTRIES:
                raise ModelError(f"the archive has more than {_MOST_ENTRIES} entries", hint=_PACKAGE)
            for entry in entries:
                _check(entry)
            if sum(entry.file_size for entry in entries) > most_bytes:
                raise ModelError(f"the archive holds more than {most_bytes} bytes", hint=_PACKAGE)
            archive.extractall(folder)
    except _BROKEN as error:
        raise ModelError(f"the archive cannot be read: {error}", hint=_PACKAGE) from error
    except OSError as error:  # such as a file where another entry has a folder, or a name that is too long
        raise ModelError(f"the archive cannot be unpacked: {error.strerror or error}", hint=_PACKAGE) from error
    # The folder with metadata/MANIFEST: the archive's root, or the only folder in it.
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    for package in [folder, *(inside if len(inside) == 1 else [])]:
        if (package / "metadata" / "MANIFEST").is_file():
            return package
    raise ModelError("the archive holds no metadata/MANIFEST, so it is not an nnpackage", hint=_PACKAGE)


def _check(entry: zipfile.ZipInfo) -> None:
    """ModelError for a name that leads out of the folder, a link, a device, or an entry packed with another method."""
    if entry.compress_type not in _METHODS:
        raise ModelError("the archive uses a compression method other than store and deflate", hint=_PACKAGE)
    kind = stat.S_IFMT(entry.external_attr >> 16)
    parts = PurePosixPath(entry.filename).parts
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ModelError("the archive holds a link or device file", hint=_PACKAGE)
    bad = any(part in ("..", "/", ".") or "\\" in part or "\0" in part or ":" in part for part in parts)
    if not parts or len(parts) > _MOST_DEPTH or bad or not entry.filename.isprintable():
        raise ModelError("the archive holds an entry with an empty or unsafe name", hint=_PACKAGE)
