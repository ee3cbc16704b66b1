"""Tables and csv from elsewhere: the published rule sees them as they are, and what is exported comes back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.space.kits.spacekit import CONFIG
from tests.jobs.space.kits.studykit import made, study, synthetic, timed, trained

from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.formats.aw_nas.tables import read_accuracies, read_latencies, write_flat_table
from gnomon.jobs.space.choosing.believed import open_profile
from gnomon.jobs.space.choosing.select import SelectRequest, select_primitives
from gnomon.jobs.space.choosing.validate import ValidateRequest, validate_selection
from gnomon.jobs.space.exchange import ImportRequest, export_networks, import_networks
from gnomon.jobs.space.profiling.folder import read_accuracy, read_latency
from gnomon.jobs.space.profiling.look import look
from gnomon.jobs.space.profiling.study import Network
from gnomon.spaces.selection.pareto import ParetoOptions

pytest.importorskip("ruamel.yaml", reason="ruamel.yaml is not installed: pip install '.[space]'")

GOOD = {"VGGblock_0": 0.0, "VGGblock_1": 0.10, "VGGblock_2": 0.12, "Mobileblock_0": 0.05, "Mobileblock_1": 0.14}
COSTS = {"VGGblock_0": 1.0, "VGGblock_1": 2.0, "VGGblock_2": 2.5, "Mobileblock_0": 3.0, "Mobileblock_1": 6.0}


def accuracy(network: Network) -> float:
    return 0.5 + sum(GOOD[name] for name in network.primitives)


def latency(network: Network) -> float:
    return 1e-4 + 1e-4 * sum((1 + group) * COSTS[name] for group, name in enumerate(network.primitives))


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exchange") / "p"
    synthetic(path, study(), accuracy, latency)
    return path


def brought(*files: Path, to: Path, **options: Any) -> dict[str, Any]:
    return import_networks(ImportRequest(files=files, profile=to, **options)).document()


def swaps_of(primitives: int, groups: int) -> list[tuple[int, ...]]:
    """The published networks of a family: the second primitive everywhere, and each change of one cell group."""
    default = (1 if primitives > 1 else 0,) * groups
    return [default] + [
        (*default[:g], k, *default[g + 1 :]) for g in range(groups) for k in range(primitives) if k != default[g]
    ]


LISTS = st.lists(st.integers(0, 8), min_size=1, max_size=5, unique=True)
ACCURACIES = st.integers(0, 1000).map(lambda n: n / 1000)
LATENCIES = st.integers(1, 10**7).map(lambda n: n / 1000)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, list[int]], int, dict[str, tuple[float, float]]]:
    """Families with the numbers of their primitives, cell groups, and accuracy and milliseconds by id."""
    families = draw(st.lists(st.sampled_from(["Mobile", "Res", "VGG"]), min_size=1, max_size=3, unique=True))
    lists, groups = {family: draw(LISTS) for family in families}, draw(st.integers(1, 4))
    ids = ["_".join([f, *map(str, one)]) for f, numbers in lists.items() for one in swaps_of(len(numbers), groups)]
    return lists, groups, {name: (draw(ACCURACIES), draw(LATENCIES)) for name in ids}


def by_the_text(
    lists: dict[str, list[int]], table: dict[str, tuple[float, float]], constants: tuple[float, float, float, int]
) -> list[list[str]] | None:
    """The published rule as its text has it, over ids alone."""
    threshold, scale, coefficient, enough = constants
    costs = {}
    for name, (accuracy, milliseconds) in sorted(table.items()):
        costs[name] = math.exp(-(accuracy - threshold) / scale) + coefficient * (-1 / milliseconds)
    bags: dict[str, list[str]] = {}
    for name in sorted(costs, key=costs.__getitem__):
        family = name.split("_")[0]
        bags.setdefault(family, []).append(name)
        if len(bags[family]) >= enough:
            numbers = sorted(lists[family])
            columns = zip(*(one.split("_")[1:] for one in bags[family]), strict=True)
            return [[f"{family}block_{numbers[k]}" for k in sorted({int(c) for c in column})] for column in columns]
    return None


@given(
    found=tables(),
    constants=st.tuples(
        st.sampled_from([0.92, 0.8, 0.5]),
        st.sampled_from([1.0, 0.1, 2.0]),
        st.sampled_from([0.5, 0.01, 10.0]),
        st.integers(1, 6),
    ),
)
def test_the_published_rule_sees_imported_tables_as_they_are(
    found: tuple[dict[str, list[int]], int, dict[str, tuple[float, float]]],
    constants: tuple[float, float, float, int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    lists, groups, table = found
    folder = tmp_path_factory.mktemp("tables")
    files = folder / "accuracy_table.yaml", folder / "latency_table.yaml"
    files[0].write_text(write_flat_table({name: one[0] for name, one in table.items()}))
    files[1].write_text(write_flat_table({name: one[1] for name, one in table.items()}))
    names = [f"{family}block_{number}" for family, numbers in lists.items() for number in numbers]
    config = folder / "config.yaml"
    threshold, scale, coefficient, enough = constants
    config.write_text(
        f"search_space_cfg: {{num_cell_groups: {groups}, cell_layout: {list(range(groups))}, reduce_cell_groups: [], "
        f"shared_primitives: [{', '.join(names)}], cell_shared_primitives: null}}\n"
        "weights_manager_cfg:\n  num_classes: 10\n  cell_group_kwargs: ["
        f"{', '.join(['{C_in: 3, C_out: 3}'] * groups)}]\n"
        f"ss_profiler_cfg: {{accuracy_threshold: {threshold}, accuracy_cost_scale: {scale}, "
        f"latency_cost_coeff: {coefficient}, select_ss_threshold: {enough}}}\n"
    )
    brought(*files, to=folder / "p", config=config)
    told = by_the_text(lists, table, constants)
    asked = SelectRequest(profile=folder / "p", rule="published")
    if told is None:
        with pytest.raises(ProblemError, match="no family has"):
            select_primitives(asked)
        return
    chosen = select_primitives(asked)
    assert [list(names) for names in chosen.groups] == told
    assert chosen.document()["accuracies"] == {"kind": "measured", "trained": len(table), "networks": len(table)}
    assert read_latencies((folder / "p" / "latency_table.yaml").read_text()) == {n: one[1] for n, one in table.items()}
    assert read_accuracies((folder / "p" / "accuracy_table.yaml").read_text()) == {n: t[0] for n, t in table.items()}


def test_tables_alone_tell_families_cell_groups_and_defaults(profile: Path, tmp_path: Path) -> None:
    one = study(CONFIG.replace("gnomon_cfg: {", "gnomon_cfg: {default_primitives: {VGG: VGGblock_2}, "))
    networks = [network for family in one.families.values() for network in family.swaps()]
    (tmp_path / "accuracy_table.yaml").write_text(write_flat_table({n.id: accuracy(n) for n in networks}))
    (tmp_path / "latency_table.yaml").write_text(write_flat_table({n.id: latency(n) * 1e3 for n in networks}))
    told = brought(tmp_path / "latency_table.yaml", tmp_path / "accuracy_table.yaml", to=tmp_path / "p")
    assert {name: family["default"] for name, family in told["families"].items()} == {
        "VGG": "VGGblock_2",
        "Mobile": "Mobileblock_1",
    }
    assert told["groups"] == 2 and told["accuracy"]["imported"] == {"accuracy_table.yaml": len(networks)}
    assert told["latency"][0]["imported"] == {"latency_table.yaml": len(networks)}
    assert told["accuracy"]["without_error"] == len(networks)
    assert any("--config" in note for note in told["notes"])
    for rule in ("published", "pareto"):
        asked = SelectRequest(profile=tmp_path / "p", rule=rule, options=ParetoOptions(most_share=0.5))
        document = select_primitives(asked).document()
        assert document["imported"] == {
            "accuracies": {"accuracy_table.yaml": len(networks)},
            "latencies": {"latency_table.yaml": len(networks)},
        }
    assert "made up" in (tmp_path / "p" / "output.yaml").read_text()
    with pytest.raises(UsageError, match="nothing is known of the images"):
        validate_selection(ValidateRequest(profile=tmp_path / "p", request=None))  # type: ignore[arg-type]


def test_networks_that_the_published_rule_passes_over_are_told(tmp_path: Path) -> None:
    (tmp_path / "latency_table.yaml").write_text("VGG_0_0: 1.0\nVGG_0_1: 2.0\nMobile_1_1: 1.0\nMobile_1_0: 2.0\n")
    (tmp_path / "config.yaml").write_text(CONFIG)
    told = brought(tmp_path / "latency_table.yaml", to=tmp_path / "p", config=tmp_path / "config.yaml")
    assert [note for note in told["notes"] if note.startswith("1 of 4 networks differ") and "VGG_0_0" in note]


def test_what_is_exported_comes_back_as_it_was(profile: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    first = export_networks(profile, tmp_path / "nets.csv")
    brought(tmp_path / "nets.csv", to=tmp_path / "p", config=tmp_path / "config.yaml")
    assert export_networks(tmp_path / "p", tmp_path / "again.csv").rows == first.rows == 8
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "nets.csv").read_text()
    for rule in ("published", "pareto"):
        chosen = [
            select_primitives(
                SelectRequest(
                    profile=path, rule=rule, output=tmp_path / "o.yaml", options=ParetoOptions(most_share=0.5)
                )
            ).groups
            for path in (profile, tmp_path / "p")
        ]
        assert chosen[0] == chosen[1]


def test_the_same_file_again_changes_nothing(profile: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    export_networks(profile, tmp_path / "nets.csv")
    brought(tmp_path / "nets.csv", to=tmp_path / "p", config=tmp_path / "config.yaml")
    before = [(tmp_path / "p" / name).read_bytes() for name in ("accuracy.jsonl", "latency.jsonl", "profile.json")]
    brought(tmp_path / "nets.csv", to=tmp_path / "p")
    assert before == [(tmp_path / "p" / n).read_bytes() for n in ("accuracy.jsonl", "latency.jsonl", "profile.json")]
    assert {row.origin for row in read_accuracy(tmp_path / "p")} == {"nets.csv"}
    assert {row.origin for row in read_latency(tmp_path / "p")} == {"nets.csv"}


def own_profile(path: Path) -> Path:
    """A profile with one training and one measurement of its own."""
    one = study()
    folder = made(path, one)
    network = one.families["VGG"].swaps()[0]
    folder.add(trained(network, 0.7))
    folder.add(timed(network, 1e-3))
    folder.close()
    return path


def test_what_is_imported_stands_beside_ones_own_only_where_that_is_asked_for(profile: Path, tmp_path: Path) -> None:
    export_networks(profile, tmp_path / "nets.csv")
    path = own_profile(tmp_path / "p")
    with pytest.raises(UsageError, match="accuracies of its own by the method fair") as refused:
        brought(tmp_path / "nets.csv", to=path)
    assert "--accuracy fair" in refused.value.hint
    with pytest.raises(UsageError, match="measured by onnxruntime otherwise") as refused:
        brought(tmp_path / "nets.csv", to=path, method="fair")
    assert "--toolchain NAME" in refused.value.hint
    assert len(list(read_accuracy(path))) == 1, "nothing is written of what is refused"
    told = brought(tmp_path / "nets.csv", to=path, method="fair", toolchain="board")
    assert told["accuracy"]["trainings"] == 9 and told["accuracy"]["imported"] == {"nets.csv": 8}
    assert [one["toolchain"] for one in told["latency"]] == ["onnxruntime", "board"]
    default = study().families["VGG"].swaps()[0]
    seen = {one["id"]: one["accuracy"] for one in told["accuracy"]["trained"]}
    assert seen[default.id] == pytest.approx((0.7 + accuracy(default)) / 2), "both trainings of it count"
    told = brought(tmp_path / "nets.csv", to=path, method="imported", toolchain="board")
    assert look(path, "imported").document()["accuracy"]["trainings"] == 8


def test_an_accuracy_without_an_error_is_as_sure_as_a_training(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    text = "cell0,cell1,accuracy,accuracy_error\nVGGblock_0,VGGblock_1,0.5,0.02\nVGGblock_1,VGGblock_1,0.6,\n"
    (tmp_path / "nets.csv").write_text(text)
    told = brought(tmp_path / "nets.csv", to=tmp_path / "p", config=tmp_path / "config.yaml")
    assert [one["error"] for one in told["accuracy"]["trained"]] == [0.02, 0.005]
    assert told["latency"] == []


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("nets.csv", "cell0,cell1,latency_ms\nVGGblock_9,VGGblock_1,1\n", "the file of nets is malformed: line 2"),
        ("nets.csv", "cell0,cell1\nVGGblock_0,VGGblock_1\n", "say nothing about any network"),
        ("nets.csv", "cell0,cell1,accuracy,method\nVGGblock_0,VGGblock_1,1,mine\n", "no method 'mine'"),
        (
            "nets.csv",
            "cell0,cell1,latency_ms,low_ms\nVGGblock_0,VGGblock_1,1,2\n",
            "VGG_0_1 is not within its interval",
        ),
        (
            "nets.csv",
            "cell0,cell1,latency_ms\nVGGblock_0,VGGblock_1,1\nVGGblock_0,VGGblock_1,2\n",
            "VGG_0_1 has several latencies by imported",
        ),
        (
            "nets.csv",
            "cell0,cell1,accuracy\nVGGblock_0,VGGblock_1,0.1\nVGGblock_0,VGGblock_1,0.2\n",
            "VGG_0_1 has several accuracies",
        ),
        (
            "nets.csv",
            "cell0,cell1,latency_ms,device\nVGGblock_0,VGGblock_1,1,a\nVGGblock_1,VGGblock_1,2,b\n",
            "measured by imported otherwise",
        ),
        ("latency_table.yaml", "VGG_0_3: 1.0\nRes_1_1: 1.0\n", "VGG_0_3: the config has 3 primitives of VGG"),
        ("latency_table.yaml", "VGG_0_3: 1.0\nRes_1_1: 1.0\n", "Res_1_1: the config has no family Res"),
        ("latency_table.yaml", "VGG_1: 1.0\n", "not the name of a network of 2 cell groups"),
        ("latency_table.yaml", "VGG_0_1: fast\n", "latency_table.yaml: the latency table is malformed"),
        ("table.yaml", "VGG_0_1: 1.0\n", "does not say what it is by its name"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_made(name: str, text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / name).write_text(text)
    with pytest.raises(GnomonError) as refused:
        brought(tmp_path / name, to=tmp_path / "p", config=tmp_path / "config.yaml")
    assert told in refused.value.message and refused.value.hint
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("text", "default"),
    [
        ("VGG_2_2: 1.0\nVGG_2_0: 1.0\nVGG_1_2: 1.0\n", "VGGblock_2"),
        ("VGG_2_0: 1.0\nVGG_1_2: 1.0\n", "VGGblock_2"),
        ("VGG_0_2: 1.0\nVGG_2_0: 1.0\n", "VGGblock_1"),  # 0 or 2: the published one, then
        ("VGG_0: 1.0\nVGG_2: 1.0\n", "VGGblock_1"),
        ("VGG_0_2_0: 1.0\nVGG_2_1_0: 1.0\n", "VGGblock_1"),
    ],
)
def test_the_default_of_a_table_is_what_all_its_networks_are_made_of(text: str, default: str, tmp_path: Path) -> None:
    (tmp_path / "latency_table.yaml").write_text(text)
    told = brought(tmp_path / "latency_table.yaml", to=tmp_path / "p")
    assert told["families"]["VGG"]["default"] == default


def test_what_cannot_be_of_any_space_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latency_table.yaml").write_text("VGG_999999_1: 1.0\nRes_999999_1: 1.0\n")
    with pytest.raises(ProblemError, match="2000000 primitives"):
        brought(tmp_path / "latency_table.yaml", to=tmp_path / "p")
    with pytest.raises(UsageError, match="up' is not a name"):
        brought(tmp_path / "latency_table.yaml", to=tmp_path / "p", toolchain="../up")
    with pytest.raises(UsageError, match="no method 'mine'"):
        brought(tmp_path / "latency_table.yaml", to=tmp_path / "p", method="mine")


def test_a_csv_needs_the_config_of_its_space(profile: Path, tmp_path: Path) -> None:
    export_networks(profile, tmp_path / "nets.csv")
    with pytest.raises(UsageError, match="the search space is not named") as refused:
        brought(tmp_path / "nets.csv", to=tmp_path / "p")
    assert "--config" in refused.value.hint
    (tmp_path / "other.yaml").write_text(CONFIG + "# another\n")
    with pytest.raises(UsageError, match="made of another config and another numbering"):
        brought(tmp_path / "nets.csv", to=profile, config=tmp_path / "other.yaml", numbering="aw_nas")


def test_what_is_believed_of_a_network_is_near_what_is_true_of_it(profile: Path) -> None:
    found = open_profile(profile)
    assert found.choices == {f"cell{g}": tuple(GOOD) for g in range(2)}
    assert (found.method, found.toolchain, len(found.networks)) == ("fair", "onnxruntime", 8)
    names = ("VGGblock_2", "VGGblock_1")
    told, took = found.accuracy(names), found.latency_s(names)
    assert told.known and took.known and told.low < 0.72 < told.high
    assert took.value == pytest.approx(7.5e-4, rel=0.05)
    assert not found.accuracy(("VGGblock_0", "Mobileblock_0")).known
    with pytest.raises(ProblemError, match="Resblock_0"):
        found.latency_s(("Resblock_0", "VGGblock_1"))
    json.dumps(found.choices)
