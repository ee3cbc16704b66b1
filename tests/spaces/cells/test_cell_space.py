"""Networks of cell groups: the published counts, parameters and tags."""

from __future__ import annotations

import math

import pytest

from gnomon.errors import ProblemError
from gnomon.spaces.cells.primitives import Primitive, families_of, named, published_primitives
from gnomon.spaces.cells.space import CellLayout, swaps, tagged_net
from gnomon.spaces.unit import Net, Symbol, Trace

KNOWN = published_primitives()
FIVE = CellLayout(
    input_shape=(1, 3, 32, 32),
    groups=(0, 1, 2, 3, 4),
    widths=(16, 32, 64, 128, 256),
    reduces=frozenset(range(5)),
    classes=10,
)
# Groups 0 and 1 own layers that do not follow each other; the widths of a group's layers differ.
SCATTERED = CellLayout(
    input_shape=(1, 1, 13, 17),
    groups=(0, 1, 0, 2, 1, 0),
    widths=(4, 4, 8, 8, 12, 12),
    reduces=frozenset({1}),
    classes=3,
)


def parameters(net: Net) -> int:
    """Weights of convolutions and linear layers, and the scale and bias of batch normalisations."""
    count = 0
    for node in net.nodes:
        (layer,) = node.unit.layers
        attributes = dict(layer.attributes)
        if layer.kind == "Conv":
            height, width = layer.pair("kernel")
            assert attributes["group"] == 1
            count += node.unit.inputs[0][1] * node.unit.output[1] * height * width
        elif layer.kind == "BatchNormalization":
            count += 2 * node.unit.output[1]
        elif layer.kind == "Linear":
            count += math.prod(node.unit.inputs[0][1:]) * node.unit.output[1]
    return count


def block_net(one: Primitive, channels_in: int, channels_out: int, stride: int) -> Net:
    assert one.block is not None
    trace = Trace(((1, channels_in, 8, 8),))
    return trace.net(one.block(trace.input(), channels_out, stride))


@pytest.mark.parametrize(("numbering", "count"), [("ssprofile", 664_960), ("aw_nas", 45_760)])
def test_a_block_has_the_published_number_of_parameters(numbering: str, count: int) -> None:
    assert parameters(block_net(published_primitives(numbering)["Resblock_6"], 64, 64, 1)) == count


def test_swaps_are_the_published_ones() -> None:
    """Five blocks in five groups: 21 networks a family, 63 of three families; 143 of all blocks."""
    found = list(swaps([1] * 5, [5] * 5))
    assert len(found) == len(set(found)) == 21
    assert found[0] == (1,) * 5
    assert all(sum(a != 1 for a in assignment) == 1 for assignment in found[1:])
    assert 3 * len(found) == 63
    assert sum(len(list(swaps([1] * 5, [count] * 5))) for count in (9, 9, 13)) == 143
    assert sum(len(list(swaps([1] * 12, [count] * 12))) for count in (9, 9, 13)) == 339
    assert list(swaps([0, 2], [1, 3])) == [(0, 2), (0, 0), (0, 1)]


def test_a_base_network_is_blocks_a_mean_and_a_linear_layer() -> None:
    tagged = tagged_net(FIVE, named(KNOWN, ["VGGblock_1"] * 5))
    kinds = [node.unit.kinds[0] for node in tagged.net.nodes]
    assert kinds == ["Conv", "BatchNormalization", "Relu", "MaxPool"] * 5 + ["GlobalAveragePool", "Linear"]
    assert [node.unit.output[1:] for node in tagged.net.nodes[3:-2:4]] == [
        (16, 16, 16), (32, 8, 8), (64, 4, 4), (128, 2, 2), (256, 1, 1),
    ]  # fmt: skip
    assert tagged.net.nodes[-1].unit.output == (1, 10)
    assert (
        parameters(tagged.net)
        == sum(9 * i * o + 2 * o for i, o in zip((3, *FIVE.widths), FIVE.widths, strict=False)) + 10 * 256
    )


def test_tags_say_whose_a_node_is() -> None:
    first, second = (
        tagged_net(SCATTERED, named(KNOWN, ["Mobileblock_1", middle, "Mobileblock_1"]))
        for middle in ("Mobileblock_1", "VGGblock_3")
    )
    owners = [tag.rsplit("/", 1)[0] for tag in second.tags]
    names = ["Mobileblock_1", "VGGblock_3", "Mobileblock_1", "Mobileblock_1", "VGGblock_3", "Mobileblock_1"]
    assert list(dict.fromkeys(owners)) == [*(f"l{k}/{name}" for k, name in enumerate(names)), "head"]
    units = [
        {tag: (node.unit.layers, node.unit.inputs[0][1]) for tag, node in zip(one.tags, one.net.nodes, strict=True)}
        for one in (first, second)
    ]
    common = set(first.tags) & set(second.tags)
    assert common and all(units[0][tag] == units[1][tag] for tag in common)
    assert {tag.split("/")[0] for tag in set(second.tags) - common} == {"l1", "l4"}


@pytest.mark.parametrize(
    "block",
    [
        lambda x, channels, stride: x,
        lambda x, channels, stride: x.conv(channels, 3),
        lambda x, channels, stride: x.conv(channels, 3, stride=4),
        lambda x, channels, stride: x.conv(channels + 1, 3, stride=stride),
    ],
)
def test_a_block_that_does_not_fit_its_place_is_refused(block: object) -> None:
    bad = Primitive(family="Bad", number=0, block=block)  # type: ignore[arg-type]

    def call() -> None:
        tagged_net(SCATTERED, [bad] * 3)

    with pytest.raises(ProblemError, match="Badblock_0 turns"):
        call()


def test_families_are_in_order() -> None:
    found = families_of(named(KNOWN, ["Resblock_7", "VGGblock_12", "VGGblock_2", "Resblock_1"]))
    assert {family: [one.number for one in ones] for family, ones in found.items()} == {"Res": [1, 7], "VGG": [2, 12]}


def test_a_symbol_of_another_net_is_refused() -> None:
    kept: list[Symbol] = []

    def steals(x: Symbol, channels: int, stride: int) -> Symbol:
        kept.append(x.conv(channels, 1, stride=stride))
        return kept[0]

    bad = Primitive(family="Thief", number=0, block=steals)
    tagged_net(SCATTERED, named(KNOWN, ["VGGblock_0"] * 3))
    with pytest.raises(ProblemError):
        tagged_net(SCATTERED, [bad] * 3)
