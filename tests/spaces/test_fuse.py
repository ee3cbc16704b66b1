"""Fused groups, and the evidence for them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.spaces import UNFUSED, FusionRules, Net, fuse, rules
from gnomon.spaces.fuse import from_groups, fused, groups, kernel_of, kernels_of, rules_of
from gnomon.spaces.unit import Symbol, Trace

SHAPE = (1, 4, 8, 8)
BN_RELU = rules(["Conv+BatchNormalization+Relu"])


def net(write: object) -> Net:
    trace = Trace((SHAPE,))
    return trace.net(write(trace.input()))  # type: ignore[operator]


def block(x: Symbol) -> Symbol:
    return x + x.conv(4, 3).batch_norm().relu().conv(4, 1).batch_norm()


def chains(of: Net) -> list[str]:
    return [node.unit.chain for node in of.nodes]


def test_chains_are_joined_as_far_as_the_rules_go() -> None:
    whole = net(block)
    assert chains(fuse(whole, UNFUSED)) == ["Conv", "BatchNormalization", "Relu", "Conv", "BatchNormalization", "Add"]
    assert chains(fuse(whole, BN_RELU)) == ["Conv+BatchNormalization+Relu", "Conv+BatchNormalization", "Add"]
    more = rules([*BN_RELU.document(), "Conv+BatchNormalization+Add"])
    fused = fuse(whole, more)
    assert chains(fused) == ["Conv+BatchNormalization+Relu", "Conv+BatchNormalization+Add"]
    assert fused.nodes[1].inputs == (0, -1)


def test_what_two_read_is_not_joined() -> None:
    whole = net(lambda x: (y := x.conv(4, 3)).relu() + y.batch_norm())
    assert chains(fuse(whole, rules(["Conv+Relu", "Conv+BatchNormalization"]))) == [
        "Conv", "Relu", "BatchNormalization", "Add",
    ]  # fmt: skip
    # The output of the net is read from outside.
    trace = Trace((SHAPE,))
    y = trace.input().conv(4, 3)
    y.relu()
    assert chains(fuse(trace.net(y), rules(["Conv+Relu"]))) == ["Conv", "Relu"]


def test_an_add_joins_the_later_of_its_inputs() -> None:
    whole = net(lambda x: x.conv(4, 1) + x.conv(4, 3))
    fused = fuse(whole, rules(["Conv+Add"]))
    assert chains(fused) == ["Conv", "Conv+Add"]
    assert fused.nodes[1].unit.layers[0].pair("kernel") == (3, 3) and fused.nodes[1].inputs == (-1, 0)
    both = fuse(net(lambda x: (y := x.relu()) + y), rules(["Relu+Add"]))
    assert chains(both) == ["Relu", "Add"]


def test_a_scale_is_not_joined_to_its_gate() -> None:
    whole = net(lambda x: x * x.global_average_pool().hard_sigmoid())
    assert chains(fuse(whole, rules(["HardSigmoid+Mul"]))) == ["GlobalAveragePool", "HardSigmoid", "Mul"]


def test_rules_hold_what_begins_their_chains() -> None:
    assert BN_RELU.document() == ["Conv+BatchNormalization", "Conv+BatchNormalization+Relu"]
    assert rules(BN_RELU.document()) == BN_RELU
    assert BN_RELU.go_on(("Conv",)) and not BN_RELU.go_on(("Conv", "BatchNormalization", "Relu"))
    with pytest.raises(ProblemError, match="no kind of layer 'Bn'"):
        rules(["Conv+Bn"])


@st.composite
def nets(make: st.DrawFn) -> Net:
    """Any acyclic net of a few operators that keep the shape, each reading what was made before."""
    trace = Trace((SHAPE,))
    values = [trace.input()]
    for _ in range(make(st.integers(1, 12))):
        x = make(st.sampled_from(values))
        kind = make(st.sampled_from(["Conv", "BatchNormalization", "Relu", "Add"]))
        if kind == "Add":
            values.append(x + make(st.sampled_from(values)))
        else:
            values.append(x.conv(4, 3) if kind == "Conv" else x.layer(kind))
    return trace.net(make(st.sampled_from(values)))


KINDS = st.sampled_from(["Conv", "BatchNormalization", "Relu", "Add"])
RULES = st.frozensets(st.lists(KINDS, min_size=2, max_size=4).map(tuple), max_size=6).map(FusionRules)


@given(nets(), RULES)
def test_fusing_keeps_the_net(whole: Net, in_force: FusionRules) -> None:
    """Every layer once, every group a chain of the rules, and each group reads what the layers read."""
    fused_net, group_of = fused(whole, in_force)
    layers = Counter(one for node in whole.nodes for one in node.unit.layers)
    assert Counter(one for node in fused_net.nodes for one in node.unit.layers) == layers
    assert all(len(node.unit.layers) == 1 or node.unit.kinds in in_force.chains for node in fused_net.nodes)
    reads = sum(len(node.inputs) for node in whole.nodes)
    assert sum(len(node.inputs) + len(node.unit.layers) - 1 for node in fused_net.nodes) == reads
    assert fused_net.shape(fused_net.output) == whole.shape(whole.output)
    assert fuse(fused_net, UNFUSED) == fused_net
    for node, group in zip(whole.nodes, group_of, strict=True):
        assert node.unit.layers[0] in fused_net.nodes[group].unit.layers


@given(nets(), RULES)
def test_a_runtimes_groups_give_its_rules_back(whole: Net, in_force: FusionRules) -> None:
    """The groups of a runtime that fuses by rules lead to the rules that were seen at work, and to the same groups."""
    joined = fuse(whole, in_force)
    evidence = from_groups([(whole, groups_of(whole, in_force))])
    if any(0 < one.fused < one.seen for one in evidence):
        return  # an Add that could have joined two groups: the chain it did not join was seen alone
    assert {node.unit.kinds for node in joined.nodes if len(node.unit.layers) > 1} <= rules_of(evidence).chains
    assert fuse(whole, rules_of(evidence)).counts() == joined.counts()


def groups_of(whole: Net, in_force: FusionRules) -> list[list[int]]:
    kinds = [node.unit.kinds for node in whole.nodes]
    return groups(kinds, [node.inputs for node in whole.nodes], whole.readers(), in_force)


def test_groups_tell_which_chains_run_as_one() -> None:
    whole = net(lambda x: x.conv(4, 3).batch_norm().relu().global_average_pool().linear(2))
    evidence = from_groups([(whole, [[0, 1], [2], [3, 4], [4]])])  # of a layer in several kernels the last counts
    assert {one.document()["chain"]: (one.verdict, one.seen, one.fused) for one in evidence} == {
        "Conv+BatchNormalization": ("fused", 1, 1),
        "Conv+BatchNormalization+Relu": ("not fused", 1, 0),
        "Relu+GlobalAveragePool": ("not fused", 1, 0),
        "GlobalAveragePool+Linear": ("not fused", 1, 0),
    }


def test_a_convolution_whose_normalisation_an_exporter_folded_is_the_same_kernel() -> None:
    own = net(lambda x: x.conv(4, 3).batch_norm().relu())
    exported = net(lambda x: x.conv(4, 3, bias=True).relu())
    in_force = kernels_of(BN_RELU)
    (one,), (other,) = (fuse(whole, in_force).counts() for whole in (own, exported))
    assert kernel_of(one) == kernel_of(other) == other
    (alone,) = fuse(net(lambda x: x.batch_norm()), in_force).counts()
    assert kernel_of(alone) == alone
