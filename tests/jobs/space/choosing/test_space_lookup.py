"""The lookup table that goes to a searcher is that whose sums are closest, and its error is told beside it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.jobs.space.kits.spacekit import CONFIG
from tests.jobs.space.kits.studykit import COSTS, LAYERS, made, mixed_networks, study, timed, trained

from gnomon.formats.aw_nas.config import read_aw_nas_config
from gnomon.jobs.space.choosing.select import SUMS, Rows, lookup_of, select_primitives
from gnomon.jobs.space.document import LookupPart
from gnomon.jobs.space.profiling.estimates import latest
from gnomon.jobs.space.profiling.folder import read_latency
from gnomon.jobs.space.profiling.study import Network, Study
from gnomon.spaces.selection.pareto import ParetoOptions

yaml = pytest.importorskip("yaml", reason="PyYAML, the oracle, is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")

THREE = (
    CONFIG.replace("num_cell_groups: 2", "num_cell_groups: 3")
    .replace("cell_layout: [0, 1]", "cell_layout: [0, 1, 2]")
    .replace("{C_in: 4, C_out: 8}]", "{C_in: 4, C_out: 8}, {C_in: 8, C_out: 8}]")
)


def uneven(network: Network) -> float:
    """The first cell group takes most of the time, which no one-change variant of a family tells."""
    shares = (1.0, 0.3, 0.1)
    return 1e-4 * sum(share * COSTS[name] for share, name in zip(shares, network.primitives, strict=False))


def profile(
    path: Path, one: Study, latency: Callable[[Network], float], across: int, within: int = 0, exact: bool = False
) -> Path:
    """One-change variants, and so many mixed networks of several families and of each one, known to 1 % or exactly."""
    folder = made(path, one)
    networks = [n for family in one.families.values() for n in family.swaps()]
    names, groups = list(one.primitives), one.layout.group_count
    every = [one.mixed(list(row)) for row in itertools.product(names, repeat=groups)]
    rng = np.random.default_rng(1)
    several = [n for n in every if not n.family]
    networks += [several[k] for k in rng.permutation(len(several))[:across]]
    for family in one.families.values():
        if within:
            networks += [family.network(a) for a in mixed_networks(family.counts, family.defaults, within)]
    for network in networks:
        folder.add(trained(network, 0.5 + 0.1 * sum(COSTS[name] for name in network.primitives) / 20))
        row = timed(network, latency(network))
        folder.add(replace(row, low_s=None, high_s=None) if exact else row)
    folder.close()
    return path


def lookup(path: Path, one: Study, groups: list[list[str]]) -> tuple[LookupPart, Rows]:
    found = lookup_of(one, groups, latest(read_latency(path), "onnxruntime"))
    assert found is not None
    return found


def total(rows: Rows, one: Study, groups: list[list[str]], network: Network) -> float:
    layers = zip(rows, one.layout.groups, strict=True)
    return 1e-3 * sum(row[groups[g].index(network.primitives[g])][0] for row, g in layers)


def test_of_several_families_the_table_is_of_all_networks_and_right_for_those_across(tmp_path: Path) -> None:
    one = study(THREE)
    groups = [list(COSTS)] * 3
    found, rows = lookup(profile(tmp_path / "p", one, uneven, across=12), one, groups)
    assert found.model == SUMS and found.held_out[SUMS].mean < 0.02 and found.held_out[SUMS].networks == 12
    assert all(0 < low <= ms <= high for row in rows for ms, low, high in row)
    off = [
        total(rows, one, groups, network) / uneven(network) - 1
        for network in (one.mixed(list(row)) for row in itertools.product(COSTS, repeat=3))
    ]
    assert np.abs(off).mean() < 0.02
    assert "12 mixed networks" in found.why


@pytest.mark.parametrize(("exact", "most"), [(True, 1e-5), (False, 0.0025)])  # a quarter of the 1 % that is known
def test_of_one_family_that_is_additive_sums_are_right(exact: bool, most: float, tmp_path: Path) -> None:
    one = study(THREE)
    groups = [["VGGblock_0", "VGGblock_2"]] * 3
    found, rows = lookup(profile(tmp_path / "p", one, uneven, across=12, within=8, exact=exact), one, groups)
    assert found.held_out[SUMS].worst < most
    for row in itertools.product(groups[0], repeat=3):
        network = one.mixed(list(row))
        assert total(rows, one, groups, network) == pytest.approx(uneven(network), rel=most)


def test_of_a_group_with_two_layers_the_sum_is_right(tmp_path: Path) -> None:
    one = study(LAYERS)
    groups = [list(COSTS)] * 2
    _, rows = lookup(profile(tmp_path / "p", one, uneven, across=12), one, groups)
    assert len(rows) == 3
    network = one.mixed(["VGGblock_2", "Mobileblock_1"])
    assert total(rows, one, groups, network) == pytest.approx(uneven(network), rel=0.03)


def test_where_too_few_mixed_networks_tell_it_says_so(tmp_path: Path) -> None:
    one = study(THREE)
    path = profile(tmp_path / "p", one, uneven, across=2)
    for groups in ([["VGGblock_0"]] * 3, [["VGGblock_0", "Mobileblock_1"]] * 3):
        found, _ = lookup(path, one, groups)
        assert found.held_out == {} and "too few for a test of the sums" in found.why


def test_a_primitive_without_a_latency_in_some_place_leaves_no_table(tmp_path: Path) -> None:
    one = study(THREE)
    folder = made(tmp_path / "p", one)
    for network in one.families["VGG"].swaps():
        folder.add(timed(network, None if network.primitives[1] == "VGGblock_2" else uneven(network)))
    folder.close()
    rows = latest(read_latency(tmp_path / "p"), "onnxruntime")
    assert lookup_of(one, [["VGGblock_0", "VGGblock_2"]] * 3, rows) is None
    assert lookup_of(one, [["VGGblock_0"], ["VGGblock_1"], ["VGGblock_2"]], rows) is not None


def test_the_config_names_the_table_and_the_file_beside_it_its_error(tmp_path: Path) -> None:
    text = THREE + "objective_cfg:\n  latency_file: './speed of the board.txt'  # ours\n  alpha: 0.2\n"
    one = study(text)
    path = profile(tmp_path / "p", one, uneven, across=12)
    output = tmp_path / "o.yaml"
    found = select_primitives(path, options=ParetoOptions(most_share=0.5), output=output)
    written = output.read_text()
    named = yaml.safe_load(written)["objective_cfg"]
    assert named == {"latency_file": str(found.lookup), "alpha": 0.2} and Path(named["latency_file"]).is_absolute()
    assert "  # ours\n" in written and "% on average" in written.splitlines()[1]
    widths = [len(found.groups[g]) for g in one.layout.groups]
    rows = [[float(word) for word in line.split()] for line in Path(named["latency_file"]).read_text().splitlines()]
    assert [len(row) for row in rows] == widths, "numbers alone, as aw_nas reads them"
    about = json.loads(Path(named["latency_file"]).with_suffix(".json").read_text())
    assert about["model"] == SUMS and about["held_out"][SUMS]["mean"] < 0.02
    document = found.document()
    assert document["latency_file"] is True and document["lookup_model"]["held_out"] == about["held_out"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("latency_file: speed.txt # ours", 'latency_file: "/a b/ü.txt" # ours'),
        ("latency_file: 'it''s'", 'latency_file: "/a b/ü.txt"'),
        ("latency_file:", 'latency_file: "/a b/ü.txt"'),
        ("latency_file: ~", 'latency_file: "/a b/ü.txt"'),
    ],
)
def test_nothing_but_the_named_file_changes(old: str, new: str) -> None:
    text = f"{THREE}objective_cfg:\n  {old}\n  other: [1,  2]\n"
    _, document = read_aw_nas_config(text)
    chosen = [["VGGblock_0"]] * 3
    assert document.names_latency_file
    assert document.output(chosen, latency_file="/a b/ü.txt") == document.output(chosen).replace(old, new)
    flow = f"{THREE}objective_cfg: {{latency_file: speed.txt, other: 1}}\n"
    _, document = read_aw_nas_config(flow)
    assert yaml.safe_load(document.output(chosen, latency_file="x: 1"))["objective_cfg"]["latency_file"] == "x: 1"


@pytest.mark.parametrize("section", ["", "objective_cfg: null\n", "objective_cfg: {a: 1}\n", "objective_cfg: [1]\n"])
def test_a_config_that_names_no_table_stays_as_it_is(section: str) -> None:
    _, document = read_aw_nas_config(THREE + section)
    chosen = [["VGGblock_0"]] * 3
    assert not document.names_latency_file
    assert document.output(chosen, latency_file="/x") == document.output(chosen)
