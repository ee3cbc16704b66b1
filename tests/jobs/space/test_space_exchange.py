"""Tables and csv from elsewhere: the published rule sees them as they are, and what is exported comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.space.kits.spacekit import CONFIG
from tests.jobs.space.kits.studykit import GOOD, accuracy, latency, made, study, synthetic, timed, trained
from tests.report.tuning_kit import words_of

from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.formats.aw_nas.tables import read_accuracies, read_latencies, write_flat_table
from gnomon.jobs.space.choosing.believed import open_profile
from gnomon.jobs.space.choosing.front import find_front
from gnomon.jobs.space.choosing.select import RULES, select_primitives
from gnomon.jobs.space.exchange import export_networks, import_networks
from gnomon.jobs.space.profiling.folder import read_accuracy, read_latency
from gnomon.jobs.space.profiling.look import look
from gnomon.jobs.space.profiling.training import TrainRequest
from gnomon.jobs.space.report import profile_report
from gnomon.session.request import MeasureRequest
from gnomon.spaces.selection.pareto import ParetoOptions
from gnomon.spaces.unit import NetSize

pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exchange") / "p"
    synthetic(path, study(), accuracy, latency)
    return path


def brought(*files: Path, to: Path, **options: Any) -> dict[str, Any]:
    return import_networks(files, to, **options).document()


def test_the_published_rule_sees_imported_tables_as_they_are(profile: Path, tmp_path: Path) -> None:
    networks = [network for family in study().families.values() for network in family.swaps()]
    shares = {n.id: accuracy(n) for n in networks}
    times_ms = {n.id: latency(n) * 1e3 for n in networks}
    files = tmp_path / "accuracy_table.yaml", tmp_path / "latency_table.yaml"
    for file, table in zip(files, (shares, times_ms), strict=True):
        file.write_text(write_flat_table(table))
    (tmp_path / "config.yaml").write_text(CONFIG)
    brought(*files, to=tmp_path / "p", config=tmp_path / "config.yaml")
    chosen = select_primitives(tmp_path / "p", "published")
    own = select_primitives(profile, "published", output=tmp_path / "o.yaml")
    assert chosen.groups == own.groups
    assert chosen.document()["accuracies"] == {"kind": "measured", "trained": 8, "networks": 8}
    assert read_latencies((tmp_path / "p" / "latency_table.yaml").read_text()) == pytest.approx(times_ms)
    assert read_accuracies((tmp_path / "p" / "accuracy_table.yaml").read_text()) == pytest.approx(shares)


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
    for rule in RULES:
        document = select_primitives(tmp_path / "p", rule, options=ParetoOptions(most_share=0.5)).document()
        assert document["imported"] == {
            "accuracies": {"accuracy_table.yaml": len(networks)},
            "latencies": {"latency_table.yaml": len(networks)},
        }
    assert "made up" in (tmp_path / "p" / "output.yaml").read_text()
    with pytest.raises(UsageError, match="so its images are unknown"):
        find_front(tmp_path / "p", TrainRequest(request=MeasureRequest()))


def test_of_fewer_accuracies_than_primitives_no_network_is_said_to_be_best(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "accuracy_table.yaml").write_text("VGG_1_1: 0.9\nVGG_0_1: 0.8\n")
    document = import_networks([tmp_path / "accuracy_table.yaml"], tmp_path / "p", config=tmp_path / "config.yaml")
    report = words_of(profile_report, document.document())
    assert "There are too few accuracies" in report and "most accurate" not in report
    (tmp_path / "accuracy_table.yaml").write_text("VGG_1_1: 90.5\n")
    with pytest.raises(ProblemError, match="divide percentages by 100"):
        import_networks([tmp_path / "accuracy_table.yaml"], tmp_path / "q", config=tmp_path / "config.yaml")


def test_networks_that_the_published_rule_passes_over_are_told(tmp_path: Path) -> None:
    (tmp_path / "latency_table.yaml").write_text("VGG_0_0: 1.0\nVGG_0_1: 2.0\nMobile_1_1: 1.0\nMobile_1_0: 2.0\n")
    (tmp_path / "config.yaml").write_text(CONFIG)
    told = brought(tmp_path / "latency_table.yaml", to=tmp_path / "p", config=tmp_path / "config.yaml")
    assert [note for note in told["notes"] if note.startswith("1 of 4 networks differ") and "VGG_0_0" in note]


def test_what_is_exported_comes_back_as_it_was_and_once(profile: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    first = export_networks(profile, tmp_path / "nets.csv")
    brought(tmp_path / "nets.csv", to=tmp_path / "p", config=tmp_path / "config.yaml")
    assert export_networks(tmp_path / "p", tmp_path / "again.csv").rows == first.rows == 8
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "nets.csv").read_text()
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


def test_what_networks_need_is_told_of_profiles_whose_lines_lack_it(tmp_path: Path) -> None:
    own_profile(tmp_path / "p")
    assert [row.size for row in read_latency(tmp_path / "p")] == [NetSize()], "as an older gnomon wrote them"
    export_networks(tmp_path / "p", tmp_path / "nets.csv")
    head, row = (tmp_path / "nets.csv").read_text().splitlines()
    (network,) = look(tmp_path / "p").latency[0].networks
    assert network.size.macs and head.endswith(",parameters,macs,peak_bytes")
    assert row.endswith(f",{network.size.parameters},{network.size.macs},{network.size.peak_bytes}")


def test_what_is_imported_stands_beside_ones_own_only_where_that_is_asked_for(profile: Path, tmp_path: Path) -> None:
    export_networks(profile, tmp_path / "nets.csv")
    path = own_profile(tmp_path / "p")
    with pytest.raises(UsageError, match="already has accuracies by the method fair") as refused:
        brought(tmp_path / "nets.csv", to=path)
    assert "--accuracy fair" in refused.value.hint
    with pytest.raises(
        UsageError, match="onnxruntime measured the networks of this profile under other conditions"
    ) as refused:
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
        ("nets.csv", "cell0,cell1\nVGGblock_0,VGGblock_1\n", "no network has an accuracy or a latency"),
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
            "imported measured the networks of this profile under other conditions",
        ),
        ("latency_table.yaml", "VGG_0_3: 1.0\nRes_1_1: 1.0\n", "Res_1_1: the config has no family Res"),
        ("latency_table.yaml", "VGG_1: 1.0\n", "not the name of a network of 2 cell groups"),
        ("latency_table.yaml", "VGG_0_1: fast\n", "latency_table.yaml: the latency table is malformed"),
        ("table.yaml", "VGG_0_1: 1.0\n", "does not show what the file contains"),
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
        ("VGG_2_0: 1.0\nVGG_1_2: 1.0\n", "VGGblock_2"),
        ("VGG_0_2: 1.0\nVGG_2_0: 1.0\n", "VGGblock_1"),  # 0 or 2: the published one, then
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
    with pytest.raises(UsageError, match="up' is not a valid name"):
        brought(tmp_path / "latency_table.yaml", to=tmp_path / "p", toolchain="../up")
    with pytest.raises(UsageError, match="no method 'mine'"):
        brought(tmp_path / "latency_table.yaml", to=tmp_path / "p", method="mine")


def test_a_csv_needs_the_config_of_its_space(profile: Path, tmp_path: Path) -> None:
    export_networks(profile, tmp_path / "nets.csv")
    with pytest.raises(UsageError, match="the search space is unknown") as refused:
        brought(tmp_path / "nets.csv", to=tmp_path / "p")
    assert "--config" in refused.value.hint
    (tmp_path / "other.yaml").write_text(CONFIG + "# another\n")
    with pytest.raises(UsageError, match="made with another config and another numbering"):
        brought(tmp_path / "nets.csv", to=profile, config=tmp_path / "other.yaml", numbering="aw_nas")


def test_what_is_believed_of_a_network_is_near_what_is_true_of_it(profile: Path) -> None:
    found = open_profile(profile)
    assert found.choices == {f"cell{g}": tuple(GOOD) for g in range(2)}
    assert (found.method, found.toolchain, len(found.networks)) == ("fair", "onnxruntime", 8)
    names = ("VGGblock_2", "VGGblock_1")
    told, took = found.accuracy(names), found.latency_s(names)
    assert told.known and took.known and told.low < 0.72 < told.high
    assert took.value == pytest.approx(7.5e-4, rel=1e-9), "what was measured is its measurement"
    other = found.latency_s(("VGGblock_0", "Mobileblock_0"))
    assert not other.known and 0 < other.low < other.value < other.high
    assert not found.accuracy(("VGGblock_0", "Mobileblock_0")).known
    with pytest.raises(ProblemError, match="Resblock_0"):
        found.latency_s(("Resblock_0", "VGGblock_1"))
    json.dumps(found.choices)
    size = found.size(names)
    assert size.parameters and size.macs and size.peak_bytes == 4 * 2 * (4 * 8 * 8)
