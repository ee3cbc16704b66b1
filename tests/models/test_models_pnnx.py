"""Converting ONNX to ncnn: what the model becomes, how the program may fail, and what ncnn models look like read."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from tests.models.modelkit import model, node, save, value

from gnomon.errors import ModelError, RuntimeMissingError, UsageError
from gnomon.formats.ncnn_param import parse_ncnn_param
from gnomon.models import load
from gnomon.models.ncnn import convert as pnnx
from gnomon.models.ncnn.convert import convert_onnx, find_pnnx
from gnomon.models.ncnn.model import fixed_ncnn, load_ncnn, ncnn_graph, with_input_shapes


def _has_pnnx() -> bool:
    try:
        find_pnnx()
    except RuntimeMissingError:
        return False
    return True


needs_pnnx = pytest.mark.skipif(not _has_pnnx(), reason="pnnx is not installed (pip install --no-deps pnnx)")


def conv_net(folder: Path, shape: Sequence[int | str] = (1, 3, 8, 8), **more: Any) -> Path:
    """clip(conv(x)), and its sum with itself, so that a blob has two readers."""
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        node("Sigmoid", ["c"], ["s"], "sigmoid"),
        node("Add", ["c", "s"], ["y"], "add"),
    ]
    made = [shape[0], 4, *shape[2:]]
    return save(model(nodes, [value("x", shape)], [value("y", made)], {"w": weights}, **more), folder / "net.onnx")


def test_a_number_of_thousands_of_digits_names_no_input() -> None:
    line = 'ex.input("in{}", ncnn.Mat(in0.numpy(), batch_index={}).clone())\n'
    script = line.format(0, 1) + line.format("9" * 5000, 0) + line.format(2, "9" * 5000)
    assert pnnx._batch_axes(script) == {0: 1}


@needs_pnnx
def test_a_converted_model_keeps_its_name_its_work_and_the_users_digest(tmp_path: Path) -> None:
    source = conv_net(tmp_path)
    own = load(source)
    out = tmp_path / "out"
    out.mkdir()
    made = convert_onnx(own, source, out)
    assert sorted(p.name for p in out.iterdir()) == ["net.ncnn.bin", "net.ncnn.param"]
    graph = made.graph
    assert (graph.format, made.kind, graph.digest, graph.name) == ("ncnn", "ncnn", own.graph.digest, own.graph.name)
    assert graph.macs == own.graph.macs
    assert [graph.tensors[t].shape for t in (*graph.inputs, *graph.outputs)] == [(3, 8, 8), (4, 8, 8)]
    assert {op.type for op in graph.operators} >= {"Input", "Convolution", "Split", "BinaryOp"}
    readers = [t for op in graph.operators for t in op.inputs]
    assert len(readers) == len(set(readers)), "ncnn needs a Split where several layers read a blob"
    assert load_ncnn(made.path).graph.operators == graph.operators


@needs_pnnx
@pytest.mark.parametrize("name", ["efficientnet-lite0", "minilm-layer"])
def test_real_models_keep_every_multiplication(name: str, zoo_model: Callable[[str], Path], tmp_path: Path) -> None:
    source = zoo_model(f"{name}.onnx")
    own = load(source)
    made = convert_onnx(own, source, tmp_path)
    wanted = own.graph.macs
    if name == "minilm-layer":  # the products of an attention's pairs are one layer in ncnn
        assert made.graph.macs is not None and wanted is not None
        assert made.graph.macs == pytest.approx(wanted, rel=0.05)
    else:
        assert made.graph.macs == wanted
    assert all(t.shape is not None for t in made.graph.tensors)


@needs_pnnx
def test_a_batch_is_refused_with_what_to_do(tmp_path: Path) -> None:
    source = conv_net(tmp_path, (2, 3, 8, 8))
    with pytest.raises(ModelError, match="'x' has a batch of 2") as refused:
        convert_onnx(load(source), source, tmp_path)
    assert "--shape x=1,3,8,8" in refused.value.hint
    assert [p.name for p in tmp_path.iterdir() if "net" not in p.name] == ["home"] * (tmp_path / "home").exists()


@needs_pnnx
def test_an_open_shape_is_refused_though_pnnx_would_guess(tmp_path: Path) -> None:
    source = conv_net(tmp_path, ("n", 3, 8, 8))
    with pytest.raises(ModelError, match="pnnx needs every size") as refused:
        convert_onnx(load(source), source, tmp_path)
    assert "--shape x=" in refused.value.hint


@needs_pnnx
def test_an_input_that_nothing_reads_is_no_output(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("u", [1, 4]), value("x", [1, 4])], [value("y", [1, 4])])
    source = save(proto, tmp_path / "unused.onnx")
    graph = convert_onnx(load(source), source, tmp_path).graph
    names = [[graph.tensors[t].name for t in group] for group in (graph.inputs, graph.outputs)]
    assert names == [["in0", "in1"], ["out0"]]


def program(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a script in the place of pnnx."""
    path = folder / "stand-in"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setattr(pnnx, "find_pnnx", lambda: path)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("echo so it is >&2; exit 3", "failed with status 3 on the model: so it is"),
        ("kill -SEGV $$", r"crashed \(SIGSEGV\)"),
        ("kill -40 $$", r"crashed \(signal 40\)"),
        ("sleep 60 & wait", "did not convert the model within 0.5 s"),
        ("echo done", "wrote no ncnn model: done"),
        ("echo 7 > model.ncnn.param; : > model.ncnn.bin; : > model_ncnn.py", "does not begin with 7767517"),
        ("mkfifo model.ncnn.param; : > model.ncnn.bin; : > model_ncnn.py", "wrote no ncnn model"),
        (
            "printf '7767517\\n1 1\\nInput i 0 1 in0\\n' > model.ncnn.param; : > model.ncnn.bin; : > model_ncnn.py",
            "does not say which axis|pnnx made in0 of them|has 1 outputs",
        ),
    ],
)
def test_whatever_the_program_does_is_one_clear_error(
    body: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, body, monkeypatch)
    source = conv_net(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(ModelError, match=why) as refused:
        convert_onnx(load(source), source, out, timeout_s=0.5 if "sleep" in body else 30)
    assert refused.value.hint
    assert list(out.iterdir()) == []


def test_no_group_is_killed_by_a_number_that_may_be_anothers_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []

    def kill(group: int, number: int) -> None:
        os.waitid(os.P_PID, group, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # raises where it was reaped before
        killed.append(number)

    monkeypatch.setattr(os, "killpg", kill)
    program(tmp_path, "exit 3", monkeypatch)
    source = conv_net(tmp_path)
    with pytest.raises(ModelError, match="status 3"):
        convert_onnx(load(source), source, tmp_path)
    assert killed


def test_the_program_sees_neither_the_users_environment_nor_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "yes")
    program(tmp_path, '[ "$PWD" = "$HOME" ] && echo "[$SECRET] $(basename "$PWD") $(ulimit -c) $*"', monkeypatch)
    source = conv_net(tmp_path)
    with pytest.raises(ModelError) as refused:
        convert_onnx(load(source), source, tmp_path)
    work = tmp_path / "converting"
    assert "[] converting 0 model.onnx fp16=0 optlevel=2" in refused.value.message
    assert not work.exists()


def test_without_the_program_the_hint_is_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(pnnx, "distribution", nothing)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(RuntimeMissingError) as missing:
        find_pnnx()
    assert missing.value.hint == "/nowhere/python -m pip install --no-deps pnnx"


def test_a_script_is_not_taken_for_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, binary = tmp_path / "pnnx", tmp_path / "bin" / "pnnx"
    binary.parent.mkdir()
    for path, begin in ((script, b"#!/usr/bin/python\n"), (binary, b"\x7fELF")):
        path.write_bytes(begin)
        path.chmod(0o755)
    monkeypatch.setattr(pnnx, "distribution", lambda name: type("D", (), {"files": []}))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), str(binary.parent)]))
    monkeypatch.setattr(shutil, "which", lambda name: str(binary))
    assert find_pnnx() == binary


PARAM = """7767517
4 5
Input in0 0 1 in0
Convolution c 1 1 in0 a 0=8 1=3 3=2 4=1 6=216
Slice s 1 2 a p q -23300=2,3,-233
Concat k 2 1 q p out0
"""


def test_shapes_follow_from_the_inputs() -> None:
    param = with_input_shapes(parse_ncnn_param(PARAM), {"in0": (3, 9, 8)})
    graph = ncnn_graph(param, name="m", digest="")
    shapes = {t.name: t.shape for t in graph.tensors}
    assert shapes == {"in0": (3, 9, 8), "a": (8, 5, 4), "p": (3, 5, 4), "q": (5, 5, 4), "out0": (8, 5, 4)}
    assert graph.operators[1].macs == 216 * 20
    assert graph.tensors[1].size_bytes == 4 * 8 * 20
    recurrent = PARAM.splitlines()[0] + "\n2 2\nInput in0 0 1 in0\nLSTM l 1 1 in0 out0 0=3 1=60 2=0\n"
    both = ncnn_graph(with_input_shapes(parse_ncnn_param(recurrent), {"in0": (7, 5)}), name="m", digest="")
    assert both.operators[1].macs == 7 * 12 * (5 + 3)
    unknown = ncnn_graph(parse_ncnn_param(PARAM), name="m", digest="")
    assert {t.shape for t in unknown.tensors} == {None}
    assert unknown.operators[1].macs is None


def test_a_file_is_read_with_its_weights_and_shapes_can_be_fixed(tmp_path: Path) -> None:
    path = tmp_path / "m.param"
    path.write_text(PARAM)
    with pytest.raises(ModelError, match=r"m\.bin does not exist"):
        load_ncnn(path)
    path.with_suffix(".bin").write_bytes(b"12345678")
    first = load_ncnn(path)
    path.with_suffix(".bin").write_bytes(b"12345679")
    second = load_ncnn(path)
    assert first.graph.digest != second.graph.digest
    assert second.size_bytes == len(PARAM) + 8
    assert fixed_ncnn(second, {}) is second
    fixed = fixed_ncnn(second, {"in0": (3, 9, 8)})
    assert (fixed.path, fixed.graph.digest) == (second.path, second.graph.digest)
    assert fixed.graph.tensors[0].shape == (3, 9, 8)
    for shapes in ({"in1": (3, 9, 8)}, {"in0": (1, 1, 3, 9, 8)}, {"in0": (0,)}):
        with pytest.raises(UsageError):
            fixed_ncnn(second, shapes)


@pytest.mark.parametrize(
    ("layer", "given", "taken"),
    [
        ("Convolution c 1 1 in0 out0 0=8 1=3 6=216", (1, 3, 9, 8), (3, 9, 8)),
        ("Convolution c 1 1 in0 out0 0=8 1=3 6=72", (1, 9, 8), (1, 9, 8)),
        ("Convolution c 1 1 in0 out0 0=8 1=3 6=216", (5, 9, 8), "'c' (Convolution), which need 3 channels"),
        ("Convolution c 1 1 in0 out0 0=8 1=3 6=216", (1, 9, 8), "'c' (Convolution), which need 3 channels"),
        ("ConvolutionDepthWise c 1 1 in0 out0 0=6 1=3 6=54 7=6", (6, 9, 8), (6, 9, 8)),
        ("ConvolutionDepthWise c 1 1 in0 out0 0=6 1=3 6=54 7=6", (3, 9, 8), "need 6 channels"),
        ("InnerProduct c 1 1 in0 out0 0=4 1=0 2=40", (10,), (10,)),
        ("InnerProduct c 1 1 in0 out0 0=4 1=0 2=40", (7, 10), (7, 10)),
        ("InnerProduct c 1 1 in0 out0 0=4 1=0 2=40", (11,), "need 10 numbers"),
    ],
)
def test_channels_are_compared_with_the_weights(layer: str, given: Any, taken: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.param"
    path.write_text(f"7767517\n3 3\nInput in 0 1 data\nReLU r 1 1 data in0\n{layer}\n")
    path.with_suffix(".bin").write_bytes(b"")
    model = load_ncnn(path)
    if isinstance(taken, str):
        with pytest.raises(UsageError) as refused:
            fixed_ncnn(model, {"data": given})
        assert taken in refused.value.message
    else:
        fixed = fixed_ncnn(model, {"data": given})
        assert fixed.graph.tensors[fixed.graph.inputs[0]].shape == taken
        (shape,) = (model.graph.tensors[index].shape for index in model.graph.inputs)
        assert shape is not None and -1 in (*shape, -1) and len(shape) in (1, 3), "the hint has the channels"


def test_numbered_outputs_are_in_the_order_of_their_numbers() -> None:
    text = "7767517\n4 6\nInput a 0 1 in1\nInput b 0 1 in0\nSplit s 1 2 in0 out10 out2\nReLU r 1 1 in1 out1\n"
    graph = ncnn_graph(parse_ncnn_param(text), name="m", digest="")
    names = [[graph.tensors[t].name for t in group] for group in (graph.inputs, graph.outputs)]
    assert names == [["in0", "in1"], ["out1", "out2", "out10"]]
