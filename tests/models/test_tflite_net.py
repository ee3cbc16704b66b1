"""TFLite models read as nets of layers: every operator has its place, and what makes it another one is in its unit."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.drivers.litertkit import tflite
from tests.models.test_models_flat_cut import Random, quantised
from zoo.flat import ACTIVATION, FlatWriter, convolution

from gnomon.errors import ModelError
from gnomon.jobs.estimator.models import space_of_models
from gnomon.jobs.table.parts import part_writer
from gnomon.models.load import load
from gnomon.models.order import moving_operators
from gnomon.session.nets import read_net
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.layers import layer
from gnomon.spaces.unit import Unit, empty, single
from gnomon.spaces.work import WORK, families, multiplies, work


def file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def convolved(stride: int, activation: int, *, turned: bool = False, seed: int = 0) -> bytes:
    """One convolution, of which the weights follow the results in the file where it is `turned`."""
    writer, rng = FlatWriter(), np.random.default_rng(seed)
    constants = rng.standard_normal((6, 3, 3, 4)).astype(np.float32), np.zeros(6, np.float32)
    size = -(-8 // stride)

    def values() -> list[int]:
        return [writer.value("x", (1, 8, 8, 4)), writer.value("y", (1, size, size, 6))]

    def weights() -> list[int]:
        return [writer.constant(name, one) for name, one in zip("wb", constants, strict=True)]

    made = [weights(), values()] if turned else [values(), weights()][::-1]
    w, (x, y) = made
    code, kind, options = convolution(stride, activation, depthwise=False)
    writer.operator(code, [x, *w], [y], kind, options)
    return writer.pack([x], [y], b"TFL3")


def unit(path: Path) -> Unit:
    (node,) = read_net(path, {}).net.nodes
    return node.unit


@settings(max_examples=25)
@given(st.data())
def test_every_operator_is_in_a_unit_and_a_unit_is_written_as_it_stands(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("net")
    path = file(folder / "m.tflite", Random(data.draw).data)
    graph = load(path).graph
    moving = moving_operators(graph)
    if not moving:
        return
    read = read_net(path, {})
    assert not read.left_out
    assert set(read.nodes) == {operator.name for operator in moving}
    kinds = {op.name: "Reshape" if op.type == "RESHAPE" else f"tflite.{op.type}" for op in moving}
    for name, node in read.nodes.items():
        assert read.net.nodes[node].unit.kinds[0].startswith(kinds[name])
    done = work([node.unit for node in read.net.nodes]).sum(axis=0)
    assert done[WORK.index("dense")] == sum(operator.macs or 0 for operator in moving)
    with ExitStack() as stack:
        write = part_writer(space_of_models([path], {}), UNFUSED, stack)
        for number, one in enumerate(read.net.counts()):
            written = load(write(one, folder / f"{number}.part")).graph
            assert written.format == "tflite"
            (operator,) = moving_operators(written)
            assert one.kinds[0].startswith(f"tflite.{operator.type}")
            reads = [t for t in operator.inputs if t in written.inputs]
            assert tuple(written.tensors[t].shape for t in reads) == one.inputs
            assert written.tensors[operator.outputs[0]].shape == one.output
            assert operator.macs == one.layers[0].integer("macs")


@given(stride=st.sampled_from([1, 2]), activation=st.sampled_from([ACTIVATION.NONE, ACTIVATION.RELU6]))
@settings(max_examples=4)
def test_settings_make_another_unit_and_weights_and_their_place_in_the_file_do_not(
    tmp_path_factory: pytest.TempPathFactory, stride: int, activation: int
) -> None:
    folder = tmp_path_factory.mktemp("one")

    def named(name: str, data: bytes) -> Unit:
        return unit(file(folder / f"{name}.tflite", data))

    one = named("a", convolved(stride, activation))
    assert one == named("b", convolved(stride, activation, turned=True, seed=1))
    others = [convolved(3 - stride, activation), convolved(stride, ACTIVATION.RELU)]
    assert all(named(str(number), data) != one for number, data in enumerate(others))


def test_whole_numbers_make_another_unit_of_another_family(tmp_path: Path) -> None:
    units = [unit(file(tmp_path / "a.tflite", convolved(1, ACTIVATION.RELU)))]
    units += [node.unit for node in read_net(file(tmp_path / "q.tflite", quantised()), {}).net.nodes]
    assert [multiplies(one) for one in units] == [True] * len(units)
    assert families(units) == ("multiplies:CONV_2D", *["multiplies:CONV_2D of whole numbers"] * (len(units) - 1))


def test_the_no_op_model_is_written_and_a_unit_of_no_file_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path / "m.tflite", tflite("conv", "softmax"))
    space = space_of_models([path], {})
    with ExitStack() as stack:
        write = part_writer(space, UNFUSED, stack)
        assert load(write(empty((1, 1, 1, 1)), tmp_path / "empty")).graph.macs == 1
        with pytest.raises(ModelError, match="none of the models has the unit Relu"):
            write(single(layer("Relu"), ((1, 2),)), tmp_path / "none")
