"""The shipped search spaces."""

from __future__ import annotations

import functools
import math
from collections import Counter

import numpy as np
import pytest
from tests.spaces.catalogue.nasbenchkit import architecture

from gnomon.errors import ProblemError
from gnomon.spaces import UNFUSED, SearchSpace, draw, fuse, load_space, rules
from gnomon.spaces.catalogue.fbnet import fbnet
from gnomon.spaces.catalogue.mobilenetv2_cifar10 import mobilenetv2_cifar10, module_uids
from gnomon.spaces.catalogue.nasbench201 import EDGES, OPERATIONS, NasBench201
from gnomon.spaces.catalogue.ofa_mobilenetv3 import assignments_of, ofa_mobilenetv3
from gnomon.spaces.work import families, work
from gnomon.testing.search_space import SearchSpaceContract

GOLDEN = (
    "Conv[in_channels=192,out_channels=192,kernel=[5,5],stride=[1,1],pad=[2,2],dilation=None,base_axis=1,group=192,"
    "with_bias=False,fix_parameters=False,channel_last=False][[1,192,16,16]]"
)


@functools.cache
def loaded(name: str) -> SearchSpace:
    return load_space(name)


SHIPPED = (
    *("fbnet", "hat", "hat-step", "mobilenetv2-cifar10"),
    *("nasbench201", "ofa-mobilenetv3", "operators"),
)


class TestShipped(SearchSpaceContract):
    @pytest.fixture(params=SHIPPED)
    def search_space(self, request: pytest.FixtureRequest) -> SearchSpace:
        return loaded(request.param)


def test_mobilenetv2_is_the_replaced_tools_space() -> None:
    space = mobilenetv2_cifar10()
    choices = [len(slot.choices) for slot in space.space.slots]
    assert len(choices) == 21 and Counter(choices) == {6: 6, 7: 15}
    assert round(math.log10(space.space.size), 1) == 17.3 and space.tables().nets() == space.space.size
    assert space.space.slots[1].choices[-1] == "skip_connect"
    units = space.tables().units
    kinds = Counter(unit.chain for unit in units)
    assert len(units) == 126
    assert kinds == {"Conv": 82, "BatchNormalization": 21, "Relu6": 16, "Add": 5, "GlobalAveragePool": 1, "Linear": 1}
    assert len(space.tables(rules(["Conv+BatchNormalization+Relu6"])).units) == 89


def test_mobilenetv2_has_the_replaced_tools_uids() -> None:
    uids = module_uids(mobilenetv2_cifar10().tables().units)
    assert len(uids) == 126 and max(map(len, uids)) == 181
    assert GOLDEN in uids
    # A projection was made without a padding, an expansion with one.
    assert sum(",pad=None," in uid for uid in uids) > 20
    narrow = [unit for uid, unit in uids.items() if ",pad=None," in uid]
    assert all(unit.output[1] < unit.inputs[0][1] and unit.layers[0].pair("kernel") == (1, 1) for unit in narrow)


def test_mobilenetv2_nets_are_built_block_by_block() -> None:
    space = mobilenetv2_cifar10()
    skips = [slot.choices.index("skip_connect") if "skip_connect" in slot.choices else 0 for slot in space.space.slots]
    net = space.net(skips)
    # Stem 3, first block 5, six blocks of 8 layers that change the shape, last convolution 3, classifier 2.
    assert len(net.nodes) == 3 + 5 + 6 * 8 + 3 + 2
    assert net.shape(net.output) == (1, 10)


def test_nasbench201_has_all_nets_and_reads_their_strings() -> None:
    space = loaded("nasbench201")
    assert space.space.size == 15_625 == space.tables(UNFUSED).nets()
    text = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|"
    read = NasBench201().assignment_of
    assert read(text) == (3, 0, 1, 0, 2, 4)
    for code in range(0, space.space.size, 61):
        assignment = space.space.decode(code)
        assert read(architecture(assignment)) == assignment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "|none~0|+|none~0|none~1|+|none~0|none~1|",
        "|none~1|+|none~0|none~1|+|none~0|none~1|none~2|",
        "|nope~0|+|none~0|none~1|+|none~0|none~1|none~2|",
        "none~0+none~0|none~1+none~0|none~1|none~2",
    ],
)
def test_wrong_architectures_are_refused(text: str) -> None:
    with pytest.raises(ProblemError, match=r"architecture|operation"):
        NasBench201().assignment_of(text)


def test_nasbench201_counts_every_edge_of_a_whole_net() -> None:
    space = NasBench201()
    counts = space.net((2, 2, 2, 2, 2, 2)).counts()
    by_kind = Counter({unit.chain: 0 for unit in counts})
    for unit, count in counts.items():
        by_kind[unit.chain] += count
    # Fifteen cells of six convolutions, the stem's, and in two residual blocks three each.
    assert by_kind["Conv"] == 15 * 6 + 1 + 2 * 3
    assert by_kind["Add"] == 15 * 3 + 2
    assert space.net((0,) * 6).shape(space.net((0,) * 6).output) == (1, 10)


def test_fbnet_has_22_layers_of_nine_kinds() -> None:
    space = fbnet()
    assert [len(slot.choices) for slot in space.space.slots] == [9] * 22
    assert space.space.slots[0].choices == (
        "k3_e1", "k3_e1_g2", "k3_e3", "k3_e6", "k5_e1", "k5_e1_g2", "k5_e3", "k5_e6", "skip"
    )  # fmt: skip
    skips = space.net([8] * 22)
    # Where the shape changes, skip is a convolution, batch normalisation and an activation.
    assert sum(node.unit.kinds == ("Conv",) for node in skips.nodes) == 6 + 2
    assert fbnet(resolution=32, classes=100).name == "fbnet-32-100"


def test_ofa_counts_nets_without_layers_beyond_the_depth() -> None:
    space = loaded("ofa-mobilenetv3")
    assert space.space.size == 25 * 3**5 * 9**20
    assert space.tables(UNFUSED).nets() == 25 * (9**2 + 9**3 + 9**4) ** 5


def test_ofa_reads_nets_that_are_given_as_values() -> None:
    rng = np.random.default_rng(0)
    kernels, expansions = rng.choice([3, 5, 7], (4, 20)), rng.choice([3, 4, 6], (4, 20))
    depths, sizes = rng.choice([2, 3, 4], (4, 5)), rng.choice(np.arange(128, 225, 4), 4)
    space = ofa_mobilenetv3()
    for row, assignment in enumerate(assignments_of(kernels, expansions, depths, sizes)):
        names = dict(zip([slot.name for slot in space.space.slots], space.space.names(assignment), strict=True))
        assert names["resolution"] == str(sizes[row]) and names["stage2.depth"] == str(depths[row][2])
        assert names["stage4.layer3"] == f"k{kernels[row][19]}_e{expansions[row][19]}"
        net = space.net(assignment)
        assert net.inputs[0] == (1, 3, sizes[row], sizes[row])
        depthwise = [n for n in net.nodes if n.unit.kinds == ("Conv",) and n.unit.layers[0]["group"] != 1]
        assert len(depthwise) == 1 + depths[row].sum()
    with pytest.raises(ProblemError, match=r"kernel [468] is not in this space"):
        assignments_of(kernels + 1, expansions, depths, sizes)


def test_what_a_net_needs_is_counted_beside_its_units() -> None:
    space = loaded("nasbench201")
    tables = space.tables(UNFUSED)
    nets = np.random.default_rng(5).integers(0, len(OPERATIONS), (200, len(EDGES)))
    told = tables.counts(nets)[:, len(tables.units) :]
    assert tables.extras[0] == "needed" and len(tables.extras) == len(OPERATIONS)
    for net, row in zip(nets.tolist(), told.tolist(), strict=True):
        leads = {3}
        for _ in EDGES:  # until nothing more leads to the output
            leads |= {a for (a, b), choice in zip(EDGES, net, strict=True) if b in leads and choice}
        assert row[0] == float(0 in leads)
        for operation in range(1, len(OPERATIONS)):
            here = [b in leads and choice == operation for (_, b), choice in zip(EDGES, net, strict=True)]
            assert row[operation] == (sum(here) if 0 in leads else 0)


def test_operators_have_what_common_networks_have() -> None:
    space = loaded("operators")
    units = space.tables(UNFUSED).units
    assert set(families(units)) >= {
        *(f"multiplies:{kind}" for kind in ("dense", "pointwise", "depthwise", "grouped", "Linear", "MatMul")),
        *(f"moves:{kind}" for kind in ("Add", "Mul", "Concat", "MaxPool", "Softmax", "LayerNormalization", "Gelu")),
    }
    sizes = [max(unit.output) for unit in units]
    assert min(sizes) < 20 and max(sizes) > 8000
    assert space.tables(UNFUSED).nets() == 19


@pytest.mark.parametrize("name", ["hat", "hat-step"])
def test_transformers_are_counted_as_they_run(name: str) -> None:
    in_force = rules(
        ["Linear+Add+LayerNormalization", "Linear+Swish+Mul", "Linear+Relu", "Embedding+LayerNormalization"]
    )
    space = loaded(name)
    tables = space.tables(in_force)
    for assignment in draw(space.tables(UNFUSED), 5, seed=9):
        counts = dict(zip(tables.units, tables.counts(assignment[None])[0].astype(int).tolist(), strict=True))
        assert {unit: n for unit, n in counts.items() if n} == fuse(space.net(assignment), in_force).counts()


def test_a_step_works_far_less_than_its_prompt() -> None:
    def macs(name: str, *first: int) -> float:
        space = loaded(name)
        net = space.net([*first, *[1] * (len(space.space.slots) - len(first))])
        return sum(n * float(work((unit,))[0, :3].sum()) for unit, n in net.counts().items())

    step = macs("hat-step", 1)
    assert 10 < macs("hat", 1) / step < 128
    assert 1 < macs("hat-step", 2) / step < 1.5  # the cache alone has grown


def test_hat_is_the_published_space() -> None:
    space = loaded("hat").space
    assert [len(slot.choices) for slot in space.slots[:4]] == [3, 2, 2, 6]
    own = math.prod(len(slot.choices) for slot in space.slots[1:])
    assert 10**13 < own < 10**17  # about 10^15 (section 4.1)
