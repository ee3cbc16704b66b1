"""Hostile files: each gives one ModelError with a hint, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402
from tests.models.modelkit import model, node, save, value  # noqa: E402

from gnomon.errors import ModelError  # noqa: E402
from gnomon.models import Limits, load  # noqa: E402
from gnomon.models.onnx.file import check_parsed_size, read_onnx  # noqa: E402


def refused(path: Path | str, match: str = ".", limits: Limits | None = None) -> None:
    with pytest.raises(ModelError, match=match) as caught:
        load(path, limits)
    assert caught.value.hint


def test_things_that_are_no_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file")
    refused("/dev/zero", "not a regular file")
    refused(tmp_path / "missing", "does not exist")
    refused(tmp_path, "MANIFEST")
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    refused(tmp_path / "ring")
    refused("a\0b")
    refused("x" * 5000)


def test_sizes_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse.circle"
    with sparse.open("wb") as file:
        file.write(b"\x10\x00\x00\x00CIR0")
        file.truncate(10 << 30)
    refused(sparse, "more than the limit")
    with sparse.open("r+b") as file:
        file.truncate(3 << 30)
        file.write(b"\x08\x08ONNX??")
    refused(sparse, "more than the limit")
    refused(sparse, "more than the limit of 1000", Limits(max_bytes=1000))


@pytest.mark.parametrize("head", [b"\x1c\0\0\0TFL3", b"\x08\0\0\0CIR0", b"\x08\0\0\0ET12", b"PK\x03\x04"])
def test_a_large_file_is_not_held_in_memory(head: bytes, tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(head)
        file.truncate(3 << 30)
    tracemalloc.start()
    try:
        refused(tmp_path / "sparse", "broken")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"TFL3", b"\x10\0\0\0TFL3", b"PK\x03\x04" + bytes(64), b"\x08\x07", b"\x7fELF" + bytes(99)]
)
def test_files_of_another_kind(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    refused(path)


def nested(depth: int) -> Any:
    graph = helper.make_graph([node("Relu", "x", "y")], "g", [], [value("y", [2])])
    for _ in range(depth):
        graph = helper.make_graph([node("If", "c", "y", then_branch=graph)], "g", [], [value("y", [2])])
    return graph


def test_deep_nesting(tmp_path: Path) -> None:
    deep = onnx.ModelProto(ir_version=8, graph=nested(20))
    refused(save(deep, tmp_path / "deep.onnx"))
    inner = b""
    for _ in range(5000):  # graph in attribute in node in graph ..
        for tag in (0x3A if not inner else 0x32, 0x2A, 0x0A):
            inner = bytes([tag]) + varint(len(inner)) + inner
    path = tmp_path / "deeper.onnx"
    path.write_bytes(b"\x08\x08\x3a" + varint(len(inner)) + inner)
    refused(path)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def test_a_memory_bomb_is_seen_before_parsing() -> None:
    nodes = b"\x0a\x00" * 200_000
    bomb = b"\x08\x08\x3a" + varint(len(nodes)) + nodes
    descriptor = onnx.ModelProto.DESCRIPTOR
    with pytest.raises(ModelError, match="memory to parse"):
        check_parsed_size(bomb, descriptor, 50_000_000)
    check_parsed_size(bomb, descriptor, 100_000_000)
    weights = onnx.helper.make_tensor("w", 1, [1000], bytes(4000), raw=True)
    honest = model([node("Add", "xw", "y")], [value("x", [1])], [value("y", [1])]).SerializeToString()
    check_parsed_size(honest, descriptor, len(honest) * 100)
    check_parsed_size(weights.SerializeToString(), onnx.TensorProto.DESCRIPTOR, 10_000)
    for broken in (b"\x0a\xff", b"\x0b" * 9, b"\x80" * 99, b"\x3a\x05\x0a", b"\x09\x00"):
        with pytest.raises(ModelError):
            check_parsed_size(broken, descriptor, 100)


def test_long_lists_of_attributes_are_left_out_where_nothing_is_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lists = {
        "trees": rng.integers(0, 1 << 40, 700_000).tolist(),
        "values": rng.standard_normal(400_000).tolist(),
        "modes": ["BRANCH_LEQ", "LEAF"] * 150_000,
        "few": [1, 2, 3],
    }
    proto = model([node("Trees", ["x"], ["y"], domain="own", **lists)], [value("x", [2])], [value("y", [2])])
    path = save(proto, tmp_path / "m.onnx")
    assert path.stat().st_size > 8_000_000
    whole, short = read_onnx(path, Limits()), read_onnx(path, Limits(), whole=False)
    assert whole.model == proto and whole.whole and not short.whole and short.digest == whole.digest
    kept = {a.name: (len(a.ints), len(a.floats), len(a.strings)) for a in short.model.graph.node[0].attribute}
    assert kept == {"trees": (0, 0, 0), "values": (0, 0, 0), "modes": (0, 0, 0), "few": (3, 0, 0)}
    for one in (proto, short.model):
        for attribute in one.graph.node[0].attribute:
            for group in ("ints", "floats", "strings"):
                attribute.ClearField(group)
    assert short.model == proto, "all else is there"


def test_reading_flat_models_loads_no_heavy_package(zoo_model: Callable[[str], Path]) -> None:
    code = (
        "import sys; from gnomon.models import load; load(sys.argv[1]);"
        "print({'onnx', 'numpy', 'flatbuffers', 'onnxruntime', 'circle_schema'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code, str(zoo_model("mix"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_path_that_is_not_text_is_told_by_name(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.onnx"))
    path.write_bytes(b"x")
    with pytest.raises(ModelError, match=r"udcff.*is not UTF-8 text") as told:
        load(path)
    assert "ln -s" in told.value.hint
    str(told.value).encode()
