"""What a client sent, told by its content; archives are bounded, and nothing of one lies outside of its folder."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from gnomon.errors import ModelError
from gnomon.models.tflite.kernel import product_kernel
from gnomon.serving.models import sent_model

MANIFEST = '{"major-version": "1", "minor-version": "3", "models": ["net.tflite"], "model-types": ["tflite"]}'
PACKAGE: Mapping[str, bytes] = {"metadata/MANIFEST": MANIFEST.encode(), "net.tflite": product_kernel(8)}
MOST = 1 << 16


def archive(files: Mapping[str, bytes], *, under: str = "", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A ZIP archive of these files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as written:
        for name, content in files.items():
            written.writestr(zipfile.ZipInfo(f"{under}{name}"), content, method)
    return made.getvalue()


def sent(folder: Path, content: bytes) -> Path:
    path = folder / "in" / "model"
    path.parent.mkdir()
    path.write_bytes(content)
    return sent_model(path, MOST)


@pytest.mark.parametrize(
    ("content", "name"),
    [(b"\x08\x08\x12", "model.onnx"), (product_kernel(8), "model.tflite"), (b"\x1c\0\0\0CIR0", "model.circle")],
)
def test_files_are_called_by_their_format_and_can_be_asked_for_again(content: bytes, name: str, tmp_path: Path) -> None:
    first = sent(tmp_path, content)
    assert (first.name, first.read_bytes()) == (name, content)
    assert sent_model(tmp_path / "in" / "model", MOST).name == name  # by another device


@pytest.mark.parametrize("under", ["", "nnpackage/"])
def test_a_package_is_the_archives_root_or_the_one_folder_in_it(under: str, tmp_path: Path) -> None:
    found = sent(tmp_path, archive(PACKAGE, under=under))
    assert {str(p.relative_to(found)): p.read_bytes() for p in found.rglob("*") if p.is_file()} == PACKAGE


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_of_other_methods_are_refused_whatever_is_damaged(method: int, tmp_path: Path) -> None:
    """Their decompressors have errors of their own, and no bound of what a few bytes become."""
    good = archive(PACKAGE, method=method)
    path = tmp_path / "model"
    for at in range(len(good) // 8, len(good) // 2, 50):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])
        with pytest.raises(ModelError, match=r"cannot be read|store and deflate"):
            sent_model(path, MOST)
    path.write_bytes(good)
    with pytest.raises(ModelError, match="store and deflate"):
        sent_model(path, MOST)


def link() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as written:
        entry = zipfile.ZipInfo("metadata/MANIFEST")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        written.writestr(entry, "/etc/passwd")
    return made.getvalue()


def understated() -> bytes:
    """An archive that says of its one entry that it is smaller than what it unpacks to."""
    size = (MOST + 1).to_bytes(4, "little")
    return archive({"bomb": bytes(MOST + 1)}).replace(size, (10).to_bytes(4, "little"))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (archive({"../evil": b"x"}), "an empty or unsafe name"),
        (archive({"c:evil": b"x"}), "an empty or unsafe name"),
        (archive({"/".join("abcdefghi"): b"x"}), "an empty or unsafe name"),
        (link(), "a link or device file"),
        (archive({"bomb": bytes(MOST + 1)}), f"more than {MOST} bytes"),
        (understated(), "cannot be read"),
        (archive({str(k): b"" for k in range(300)}), "more than 256 entries"),
        (archive({"a": b"x", "a/b": b"y"}), "cannot be unpacked"),
        (b"PK\x03\x04" + bytes(100), "cannot be read"),
        (archive({"a/metadata/MANIFEST": b"{}", "b/x": b""}), "no metadata/MANIFEST"),
        (b"7767517\n1 1\n", "ncnn models consist of two files"),
        (b"<?xml version=", "OpenVINO models consist of two files"),
    ],
)
def test_what_is_refused(content: bytes, told: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=told) as caught:
        sent(tmp_path, content)
    assert caught.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink() or path.stat().st_size > MOST]
