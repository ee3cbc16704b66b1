"""Fused groups, and the evidence for them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.spaces import UNFUSED, FusionRules, Net, fuse, rules
from gnomon.spaces.fuse import Timed, candidates, from_groups, from_times, groups, rules_of
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
    fused = fuse(whole, in_force)
    layers = Counter(one for node in whole.nodes for one in node.unit.layers)
    assert Counter(one for node in fused.nodes for one in node.unit.layers) == layers
    assert all(len(node.unit.layers) == 1 or node.unit.kinds in in_force.chains for node in fused.nodes)
    reads = sum(len(node.inputs) for node in whole.nodes)
    assert sum(len(node.inputs) + len(node.unit.layers) - 1 for node in fused.nodes) == reads
    assert fused.shape(fused.output) == whole.shape(whole.output)
    assert fuse(fused, UNFUSED) == fused


@given(nets(), RULES)
def test_a_runtimes_groups_give_its_rules_back(whole: Net, in_force: FusionRules) -> None:
    """The groups of a runtime that fuses by rules lead to the rules that were seen at work, and to the same groups."""
    fused = fuse(whole, in_force)
    names = {(node, 0): name for name, node, _ in whole.layer_names()}
    members = groups_of(whole, in_force)
    evidence = from_groups([(whole, [[names[node, 0] for node in group] for group in members])])
    if any(0 < one.fused < one.seen for one in evidence):
        return  # an Add that could have joined two groups: the chain it did not join was seen alone
    assert {node.unit.kinds for node in fused.nodes if len(node.unit.layers) > 1} <= rules_of(evidence).chains
    assert fuse(whole, rules_of(evidence)).counts() == fused.counts()


def groups_of(whole: Net, in_force: FusionRules) -> list[list[int]]:
    kinds = [node.unit.kinds for node in whole.nodes]
    return groups(kinds, [node.inputs for node in whole.nodes], whole.readers(), in_force)


def test_groups_name_operators_of_a_written_model() -> None:
    whole = net(lambda x: x.conv(4, 3).batch_norm().relu().global_average_pool().linear(2))
    groups = [
        ["n0.0.Conv", "n1.0.BatchNormalization"],
        ["n2.0.Relu"],
        ["n4.0.Linear.flatten", "n4.0.Linear"],
        ["added"],
    ]
    verdicts = {one.document()["chain"]: (one.verdict, one.seen, one.fused) for one in from_groups([(whole, groups)])}
    assert verdicts == {
        "Conv+BatchNormalization": ("fused", 1, 1),
        "Conv+BatchNormalization+Relu": ("not fused", 1, 0),
        "Relu+GlobalAveragePool": ("not fused", 1, 0),
        "GlobalAveragePool+Linear": ("not fused", 1, 0),
    }
    with pytest.raises(ProblemError, match="in two groups"):
        from_groups([(whole, [["n0.0.Conv"], ["n0.0.Conv", "n2.0.Relu"]])])


def timed(mid: float, width: float = 0.02) -> Timed:
    return Timed(low_s=mid * (1 - width), mid_s=mid, high_s=mid * (1 + width))


@pytest.mark.parametrize(
    ("a", "b", "ab", "verdict"),
    [
        (10.0, 4.0, 10.2, "fused"),
        (10.0, 4.0, 13.9, "not fused"),
        (4.0, 10.0, 10.2, "fused"),
        (10.0, 4.0, 12.0, "cannot tell"),
        (10.0, 0.1, 10.0, "cannot tell"),
    ],
)
def test_times_tell_what_is_fused(a: float, b: float, ab: float, verdict: str) -> None:
    evidence = from_times(("Conv", "Relu"), timed(a), timed(b), timed(ab))
    assert evidence.verdict == verdict
    assert evidence.low is not None and evidence.saved is not None and evidence.high is not None
    assert evidence.low <= evidence.saved <= evidence.high
    assert evidence.document()["source"] == "times"
    assert (("Conv", "Relu") in rules_of([evidence]).chains) == (verdict == "fused")


def test_times_that_cannot_be_told_from_nothing_tell_nothing() -> None:
    nothing = Timed(low_s=0.0, mid_s=1e-7, high_s=2e-7)
    assert from_times(("Conv", "Relu"), timed(1e-3), nothing, timed(1e-3)).verdict == "cannot tell"


def test_candidates_grow_by_a_layer_a_round() -> None:
    whole = net(block)
    in_force = UNFUSED
    rounds = []
    for _ in range(4):
        found = candidates([fuse(whole, in_force)])
        rounds.append(sorted("+".join(chain) for chain in found))
        for chain, units in found.items():
            for a, b, ab in units:
                assert a.kinds + b.kinds == ab.kinds == chain and a.layers + b.layers == ab.layers
        more = frozenset(chain for chain in found if chain[0] == "Conv" and "Add" not in chain)
        in_force = FusionRules(in_force.chains | more)
    assert rounds[0] == ["BatchNormalization+Add", "BatchNormalization+Relu", "Conv+BatchNormalization", "Relu+Conv"]
    assert "Conv+BatchNormalization+Relu" in rounds[1] and "Conv+BatchNormalization+Add" in rounds[1]
