"""Layers, units, nets, and leaving out what is dead."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.errors import ProblemError
from gnomon.spaces import Unit, empty, layer, net_of, unit_of
from gnomon.spaces.layers import KINDS, Shape, kind_of, output_shape
from gnomon.spaces.unit import Net, Node, Symbol, Trace

IMAGE = (1, 8, 16, 16)
CONV = layer("Conv", out_channels=4, kernel=3, stride=2, pad=1)


def trace_of(shape: Shape = IMAGE) -> tuple[Trace, Symbol]:
    trace = Trace((shape,))
    return trace, trace.input()


@pytest.mark.parametrize(
    ("kind", "attributes", "made"),
    [
        ("Conv", {"out_channels": 4, "kernel": 3}, (1, 4, 14, 14)),
        ("Conv", {"out_channels": 4, "kernel": (3, 1), "stride": 2, "pad": (1, 0)}, (1, 4, 8, 8)),
        ("Conv", {"out_channels": 8, "kernel": 3, "dilation": 2, "group": 8, "pad": 2}, IMAGE),
        ("AveragePool", {"kernel": 2, "stride": 2}, (1, 8, 8, 8)),
        ("MaxPool", {"kernel": 3, "pad": 1}, IMAGE),
        ("GlobalAveragePool", {}, (1, 8, 1, 1)),
        ("ChannelShuffle", {"groups": 4}, IMAGE),
        ("Relu6", {}, IMAGE),
    ],
)
def test_layers_make_shapes(kind: str, attributes: dict[str, Any], made: Shape) -> None:
    assert output_shape(layer(kind, **attributes), [IMAGE]) == made


def test_layers_of_two_inputs_make_shapes() -> None:
    assert output_shape(layer("Add"), [IMAGE, IMAGE]) == IMAGE
    assert output_shape(layer("Mul"), [IMAGE, (1, 8, 1, 1)]) == IMAGE
    assert output_shape(layer("Concat"), [IMAGE, (1, 3, 16, 16)]) == (1, 11, 16, 16)
    assert output_shape(layer("Linear", out_features=5), [(2, 8)]) == (2, 5)


@pytest.mark.parametrize(
    ("kind", "attributes", "inputs", "said"),
    [
        ("Convolution", {}, [IMAGE], "no kind of layer 'Convolution'"),
        ("Conv", {"kernel": 3}, [IMAGE], "needs the attribute 'out_channels'"),
        ("Conv", {"out_channels": 4, "kernel": 3, "filter": 1}, [IMAGE], "no attribute 'filter'"),
        ("Conv", {"out_channels": 4, "kernel": 0}, [IMAGE], "0 is not a valid value of the attribute 'kernel'"),
        (
            "Conv",
            {"out_channels": 4, "kernel": 3, "bias": 1},
            [IMAGE],
            "1 is not a valid value of the attribute 'bias'",
        ),
        ("Conv", {"out_channels": 4, "kernel": (3, 3, 3)}, [IMAGE], "is not a valid value of the attribute 'kernel'"),
        ("Conv", {"out_channels": 4, "kernel": 17}, [IMAGE], "larger than its input"),
        ("Conv", {"out_channels": 4, "kernel": 3, "group": 3}, [IMAGE], "in 3 groups"),
        ("Conv", {"out_channels": 4, "kernel": 3}, [(1, 8)], "needs an input (N, C, H, W)"),
        ("Conv", {"out_channels": 4, "kernel": 3}, [IMAGE, IMAGE], "1 expected, 2 found"),
        ("Linear", {"out_features": 4}, [IMAGE], "GlobalAveragePool"),
        ("Mul", {}, [IMAGE, (1, 4, 1, 1)], "a Mul cannot multiply"),
        ("Concat", {}, [IMAGE, (1, 8, 8, 8)], "a Concat cannot join"),
        ("ChannelShuffle", {"groups": 3}, [IMAGE], "a ChannelShuffle cannot shuffle"),
    ],
)
def test_layers_that_cannot_be_are_refused(kind: str, attributes: Any, inputs: list[Shape], said: str) -> None:
    with pytest.raises(ProblemError) as refused:
        output_shape(layer(kind, **attributes), inputs)
    assert said in f"{refused.value} {refused.value.hint}"


def test_a_number_stands_for_both_axes_and_order_does_not_matter() -> None:
    assert layer("Conv", pad=(1, 1), kernel=(3, 3), stride=(2, 2), out_channels=4) == CONV
    with pytest.raises(ProblemError, match="no attribute 'groups'"):
        CONV["groups"]


def test_a_units_id_is_stable() -> None:
    """Tables are kept for years: an id that changes would orphan their rows."""
    unit = Unit(layers=(CONV, layer("BatchNormalization"), layer("Relu6")), inputs=(IMAGE,))
    assert unit.canonical() == (
        '{"dtype":"float32","inputs":[[1,8,16,16]],"layers":[{"bias":false,"dilation":[1,1],"group":1,"kernel":[3,3],'
        '"kind":"Conv","out_channels":4,"pad":[1,1],"stride":[2,2]},{"kind":"BatchNormalization"},{"kind":"Relu6"}],'
        '"layout":"NCHW"}'
    )
    assert unit.id == "f7d403c81ffc"
    assert unit.label == "Conv 3x3 s2 4+BatchNormalization+Relu6 @ 1x8x16x16"
    assert (unit.chain, unit.output) == ("Conv+BatchNormalization+Relu6", (1, 4, 8, 8))


def test_a_chain_takes_further_inputs_in_their_order() -> None:
    unit = Unit(layers=(CONV, layer("Add"), layer("Relu")), inputs=(IMAGE, (1, 4, 8, 8)))
    assert unit.output == (1, 4, 8, 8)
    with pytest.raises(ProblemError, match="do not fit the chain"):
        Unit(layers=(CONV, layer("Add")), inputs=(IMAGE,))
    with pytest.raises(ProblemError, match="an Add cannot add inputs"):
        Unit(layers=(CONV, layer("Add")), inputs=(IMAGE, IMAGE))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"dtype": "float8"}, "no data type 'float8'"),
        ({"layers": ()}, "needs a layer"),
        ({"inputs": ((1, 0, 4, 4),)}, "not shapes"),
    ],
)
def test_units_that_cannot_be_are_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        Unit(**{"layers": (layer("Relu"),), "inputs": (IMAGE,), **more})


def test_another_layout_is_refused() -> None:
    with pytest.raises(ProblemError, match="no layout 'NHWC'"):
        unit_of({**Unit(layers=(layer("Relu"),), inputs=(IMAGE,)).document(), "layout": "NHWC"})


def test_the_empty_graph_hands_its_input_on() -> None:
    assert empty(IMAGE).chain == "Identity" and empty(IMAGE).output == IMAGE


def test_every_kind_says_its_inputs() -> None:
    assert {kind.arity for kind in KINDS.values()} == {1, 2, 3}
    assert kind_of("onnx.Where.3").arity == 3 and kind_of("onnx.Relu").arity == 1


def test_nets_check_their_wiring() -> None:
    unit = Unit(layers=(CONV,), inputs=(IMAGE,))
    for nodes, output, said in (
        ((Node(unit, (0,)),), 0, "reads a later node's result"),
        ((Node(unit, (-2,)),), 0, "reads a later node's result"),
        ((Node(unit, (-1,)), Node(unit, (0,))), 1, "shapes"),
        ((Node(unit, (-1,)),), 1, "output"),
    ):
        with pytest.raises(ProblemError, match=said):
            Net(inputs=(IMAGE,), nodes=nodes, output=output)
    assert net_of(unit).counts() == {unit: 1}


def test_values_of_two_nets_do_not_mix() -> None:
    with pytest.raises(ProblemError, match="two nets"):
        trace_of()[1] + trace_of()[1]
