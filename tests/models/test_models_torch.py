"""ExecuTorch's and PyTorch's programs as graphs, what is refused of them, and what damaged ones come to."""

from __future__ import annotations

import io
import json
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnomon.core.graph import Graph
from gnomon.errors import ModelError, UsageError
from gnomon.models.load import load, plausible_feeds
from gnomon.models.model import Model
from gnomon.models.pytorch.pt2 import read_pt2
from gnomon.models.pytorch.types import macs

GOLDEN = Path(__file__).parent / "golden"


def graph(name: str) -> Graph:
    return load(GOLDEN / name).graph


def test_a_program_and_what_it_was_lowered_to_compute_as_much() -> None:
    exported, portable = graph("small.pt2"), graph("small-portable.pte")
    assert exported.macs == portable.macs == 4 * 4 * 2 * 9 + 2 * 3
    assert [op.type for op in exported.operators][:3] == [
        "aten.conv2d.default",
        "aten.relu.default",
        "aten.erf.default",
    ]
    assert [op.type for op in portable.operators][:3] == ["aten::convolution.out", "aten::relu.out", "aten::erf.out"]
    for found in (exported, portable):
        (x,), (y,) = found.inputs, found.outputs
        assert (found.tensors[x].shape, found.tensors[y].shape) == ((1, 1, 4, 4), (1, 3))
        assert found.tensors[x].dtype == "float32"
        # Each operator but the last is read by one behind it: no value that flows is taken for a weight.
        assert {edge.producer for edge in found.edges()} >= {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("name", ["small.pt2", "small-portable.pte"])
def test_a_large_program_is_read_as_a_small_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = graph(name)
    monkeypatch.setattr(sys.modules["gnomon.models.load"], "_MOST_READ_BYTES", 0)
    assert graph(name) == small


def test_delegates_are_operators_that_tell_no_more_than_their_names() -> None:
    found = graph("small-xnnpack.pte")
    assert [op.type for op in found.operators] == [
        "XnnpackBackend", "aten::erf.out", "aten::mean.out", "aten::mean.out", "XnnpackBackend",
    ]  # fmt: skip
    assert found.macs is None
    assert [(e.producer, e.consumer) for e in found.edges()] == [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4)]


def test_multiply_accumulates() -> None:
    assert macs("conv2d", [(1, 4, 8, 8), (6, 4, 3, 3)], (1, 6, 8, 8)) == 64 * 6 * 36
    assert macs("convolution", [(1, 4, 8, 8), (4, 6, 2, 2)], (1, 6, 16, 16), transposed=True) == 256 * 6 * 4
    assert macs("addmm", [(3,), (2, 5), (5, 3)], (2, 3)) == 30
    assert macs("bmm", [(7, 2, 5), (7, 5, 3)], (7, 2, 3)) == 210
    assert macs("linear", [(2, -1), (3, 5)], (2, 3)) is None
    assert macs("relu", [(2, 5)], (2, 5)) == 0


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickles_are_refused_unread(tmp_path: Path, protocol: int) -> None:
    plain, archive = tmp_path / "model.pt", tmp_path / "archive.pt"
    plain.write_bytes(pickle.dumps(print, protocol))
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", plain.read_bytes())
    for path in (plain, archive):
        with pytest.raises(ModelError, match="a pickle of PyTorch") as refused:
            load(path)
        assert "torch.export.save" in refused.value.hint


def changed(change: Callable[[Any], object]) -> bytes:
    """The golden program with its graph changed."""
    made = io.BytesIO()
    with zipfile.ZipFile(GOLDEN / "small.pt2") as source, zipfile.ZipFile(made, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("models/model.json"):
                program = json.loads(data)
                change(program)
                data = json.dumps(program).encode()
            target.writestr(name, data)
    return made.getvalue()


def test_what_cannot_be_fed_is_refused_in_words() -> None:
    def number_as_input(program: Any) -> None:
        program["graph_module"]["signature"]["input_specs"][-1]["user_input"]["arg"] = {"as_int": {"name": "n"}}

    with pytest.raises(ModelError, match="not a tensor, but gnomon supports only tensors"):
        read_pt2(changed(number_as_input), "m")
    with pytest.raises(ModelError, match="version 99 of its format"):
        read_pt2(changed(lambda p: p["schema_version"].update(major=99)), "m")
    with pytest.raises(ModelError, match="not an exported PyTorch program"):
        read_pt2(_archive("a/b"), "m")


def _archive(name: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr(name, b"")
    return made.getvalue()


def test_shapes_that_are_given_for_a_program_are_refused(tmp_path: Path) -> None:
    from contextlib import ExitStack

    from gnomon.session.model import read_model
    from gnomon.session.request import ModelRequest

    with ExitStack() as stack, pytest.raises(UsageError, match="fixed when it is exported"):
        read_model(ModelRequest(model=GOLDEN / "small.pt2", shapes={"x": (1, 1, 4, 4)}), stack)


def test_what_a_program_leaves_open_is_what_feeds_it(tmp_path: Path) -> None:
    from contextlib import ExitStack

    from gnomon.session.model import read_model
    from gnomon.session.request import ModelRequest

    def open_batch(program: Any) -> None:
        sizes = program["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
        sizes[0] = {"as_expr": {"expr_str": "Symbol('s0', positive=True, integer=True)", "hint": {"as_int": 2}}}

    path = tmp_path / "m.pt2"
    path.write_bytes(changed(open_batch))
    fixed = load(GOLDEN / "small.pt2").graph
    usual = fixed.tensors[fixed.inputs[0]].shape
    assert usual is not None
    with ExitStack() as stack:
        read = read_model(ModelRequest(model=path), stack)
        assert (dict(read.shapes), read.dims) == ({"x": (1, *usual[1:])}, {"s0": 1})
        assert (read.source, read.model.graph.digest) == (path, load(path).graph.digest)
        given = read_model(ModelRequest(model=path, shapes={"x": (3, *usual[1:])}), stack).model.graph
        assert given.tensors[given.inputs[0]].shape == (3, *usual[1:])
        with pytest.raises(UsageError, match="contradicts"):
            read_model(ModelRequest(model=path, shapes={"x": (3, 99)}), stack)


def test_rows_of_a_table_that_is_looked_up_are_fed_as_such() -> None:
    def lookup(program: Any) -> None:
        table = {"name": "weight", "arg": {"as_tensor": {"name": "p_fc_weight"}}, "kind": 1}
        rows = {"name": "indices", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}
        program["graph_module"]["graph"]["nodes"][0].update(
            target="torch.ops.aten.embedding.default", inputs=[table, rows]
        )

    found, _ = read_pt2(changed(lookup), "m")
    model = Model(path=Path("m.pt2"), graph=found, kind="pt2", package=None, size_bytes=1)
    assert plausible_feeds(model) == {"x": {"least": 0, "most": 2}}
