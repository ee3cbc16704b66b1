"""Selecting: the config with the choice in it, the lookup table that adds up, and what names stand for elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.jobs.space.kits.spacekit import CONFIG
from tests.jobs.space.kits.studykit import LAYERS, accuracy, latency, made, study, synthetic, timed, trained

from gnomon.errors import ProblemError, UsageError
from gnomon.formats.aw_nas.config import read_aw_nas_config
from gnomon.jobs.space.choosing.select import RULES, Rule, select_primitives, unlike_aw_nas
from gnomon.jobs.space.profiling.look import read_selection
from gnomon.jobs.space.profiling.study import Study
from gnomon.spaces.selection.pareto import ParetoOptions

yaml = pytest.importorskip("yaml", reason="PyYAML, the oracle, is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")

LIST = "[VGGblock_0, VGGblock_1, VGGblock_2, Mobileblock_0, Mobileblock_1]"


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("select") / "p"
    synthetic(path, study(LAYERS), accuracy, latency)
    return path


def select(profile: Path, rule: Rule, output: Path, **options: Any) -> Any:
    options.setdefault("options", ParetoOptions(most_share=0.5))  # 25 networks are few
    return select_primitives(profile, rule, output=output, **options)


@pytest.mark.parametrize("rule", RULES)
def test_the_output_is_the_config_with_the_choice_and_reads_again(rule: Rule, profile: Path, tmp_path: Path) -> None:
    found = select(profile, rule, tmp_path / "o.yaml")
    text = (tmp_path / "o.yaml").read_text()
    first, rest = text.split("\n", 1)
    assert first.startswith("#") and f"--rule {rule}" in first and "'ssprofile'" in first
    before, after = yaml.safe_load(LAYERS), yaml.safe_load(text)
    assert after["search_space_cfg"].pop("cell_shared_primitives") == [list(names) for names in found.groups]
    assert after["search_space_cfg"].pop("shared_primitives") is None
    del before["search_space_cfg"]["cell_shared_primitives"], before["search_space_cfg"]["shared_primitives"]
    assert after == before
    with pytest.raises(ProblemError, match="shared_primitives"):
        read_aw_nas_config(text)
    config, _ = read_aw_nas_config(text.replace("shared_primitives: null", f"shared_primitives: {LIST}"))
    assert config.space.shared_primitives == tuple(LIST.strip("[]").split(", "))
    assert config.space.cell_layout == (0, 1, 1)
    assert config.warnings, "that the choice is there already is told"
    assert "# kept as it is" in rest


def numbers(lookup: str | None) -> list[list[float]]:
    """The lookup table as aw_nas reads it."""
    assert lookup is not None
    return [[float(word) for word in line.split()] for line in Path(lookup).read_text().splitlines()]


def test_the_lookup_table_adds_up_to_the_prediction(profile: Path, tmp_path: Path) -> None:
    one = study(LAYERS)
    found = select(profile, "published", tmp_path / "o.yaml")
    groups = yaml.safe_load((tmp_path / "o.yaml").read_text())["search_space_cfg"]["cell_shared_primitives"]
    assert found.lookup == str(tmp_path / "o.lookup.txt")
    layers = one.layout.groups
    table = numbers(found.lookup)
    assert [len(row) for row in table] == [len(groups[g]) for g in layers]
    family = one.families[found.family]
    names = [p.name for p in family.primitives]
    rng = np.random.default_rng(0)
    for _ in range(20):
        picks = [int(rng.integers(len(names))) for names in groups]
        chosen = [groups[g][k] for g, k in enumerate(picks)]
        told_ms = sum(table[layer][picks[g]] for layer, g in enumerate(layers))
        network = family.network([names.index(name) for name in chosen])
        assert told_ms == pytest.approx(latency(network) * 1e3, rel=0.002)  # of measurements known to 1 %


def test_the_lookup_table_of_mixed_families_is_of_each_primitives_own(profile: Path, tmp_path: Path) -> None:
    found = select(profile, "pareto", tmp_path / "o.yaml", options=ParetoOptions(most_share=1))
    assert all({name[:3] for name in names} == {"Mob", "VGG"} for names in found.groups)
    one = study(LAYERS)
    table = numbers(found.lookup)
    for family in one.families.values():
        for network in family.swaps():
            if not all(name in names for name, names in zip(network.primitives, found.groups, strict=True)):
                continue
            told = sum(
                table[layer][found.groups[g].index(network.primitives[g])] for layer, g in enumerate(one.layout.groups)
            )
            assert told == pytest.approx(latency(network) * 1e3, rel=0.03)


def test_names_that_stand_for_something_else_in_aw_nas_are_told() -> None:
    ours, theirs = study(), study(numbering="aw_nas")
    groups = [["VGGblock_0", "Mobileblock_0"], ["Mobileblock_1", "VGGblock_2", "Mobileblock_1"]]
    assert unlike_aw_nas(ours, groups) == ["Mobileblock_1"]
    assert unlike_aw_nas(theirs, groups) == []


def test_the_remark_tells_the_numbering(tmp_path: Path) -> None:
    synthetic(tmp_path / "p", study(numbering="aw_nas"), accuracy, latency)
    found = select(tmp_path / "p", "published", tmp_path / "o.yaml")
    assert (tmp_path / "o.yaml").read_text().splitlines()[0].endswith("in the numbering 'aw_nas'.")
    assert found.document()["numbering"] == "aw_nas" and found.document()["unlike_aw_nas"] == []


@pytest.mark.parametrize("way", ["byte-order mark", "CRLF"])
def test_a_config_with_its_own_ways_keeps_them(way: str, tmp_path: Path) -> None:
    text = "\ufeff" + CONFIG if way == "byte-order mark" else CONFIG.replace("\n", "\r\n")
    synthetic(tmp_path / "p", study(text), accuracy, latency)
    select(tmp_path / "p", "published", tmp_path / "o.yaml")
    written = (tmp_path / "o.yaml").read_bytes().decode()
    if way == "CRLF":
        assert written.count("\r\n") >= CONFIG.count("\n")
        assert "# kept as it is\r\n" in written
    else:
        assert written.startswith("\ufeff#") and written.count("\ufeff") == 1
    assert yaml.safe_load(written)["search_space_cfg"]["shared_primitives"] is None


def test_a_selection_reads_again(profile: Path, tmp_path: Path) -> None:
    found = select(profile, "published", tmp_path / "o.yaml")
    assert read_selection(tmp_path / "o.yaml") == found
    assert read_selection(tmp_path / "p.yaml") is None


def test_a_second_choice_changes_nothing_of_the_first(profile: Path, tmp_path: Path) -> None:
    found = select(profile, "pareto", tmp_path / "mixed.yaml", options=ParetoOptions(most_share=1))
    mine = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert {path.name for path in mine} == {
        f"mixed.{end}" for end in ("yaml", "lookup.txt", "lookup.json", "selection.json")
    }
    other = select(profile, "published", tmp_path / "pub.yaml")
    assert {path: path.read_bytes() for path in mine} == mine
    assert found.lookup != other.lookup and read_selection(tmp_path / "mixed.yaml") == found


def test_what_is_not_there_is_told(profile: Path, tmp_path: Path) -> None:
    for options, word in (
        ({"method": "halving"}, "halving"),
        ({"toolchain": "openvino"}, "openvino"),
        ({"output": tmp_path / "no" / "folder.yaml", "options": ParetoOptions(most_share=1)}, "folder.lookup.txt"),
        ({"options": ParetoOptions(most_share=0.05)}, "1 of 25 networks"),
        ({"rule": "guess"}, "guess"),
    ):
        with pytest.raises(UsageError, match=word) as told:
            select_primitives(profile, **options)
        assert told.value.hint


def test_the_published_rule_takes_the_family_that_is_cheapest(profile: Path, tmp_path: Path) -> None:
    document = select(profile, "published", tmp_path / "o.yaml").document()
    one: Study = study(LAYERS)
    names = {p.name for p in one.families[document["family"]].primitives}
    assert all(set(group) <= names for group in document["groups"])
    assert int(document["networks_before"]) == len(names) ** 2
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_where_all_variants_are_trained_the_rule_sees_what_was_measured(profile: Path, tmp_path: Path) -> None:
    found = select(profile, "published", tmp_path / "o.yaml").document()
    assert found["accuracies"] == {"kind": "measured", "trained": 8, "networks": 8}
    one = study(LAYERS)
    folder = made(tmp_path / "p", one)
    for number, network in enumerate(n for family in one.families.values() for n in family.swaps()):
        folder.add(timed(network, latency(network)))
        if number != 2:
            folder.add(trained(network, accuracy(network)))
    folder.close()
    few = select(tmp_path / "p", "published", tmp_path / "o.yaml").document()
    assert few["accuracies"] == {"kind": "believed", "trained": 7, "networks": 8}
