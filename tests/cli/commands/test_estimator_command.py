"""`gnomon estimator`: its files, what it prints, its JSON documents, and what it says of mistakes."""

from __future__ import annotations

import copy
import csv
import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.jobs.estimator.estimator_kit import kit, measured, save
from tests.report.picture_kit import needs_drawing
from tests.spaces.catalogue.nasbenchkit import architecture

from gnomon.cli.main import cli
from gnomon.errors import ProblemError, UsageError
from gnomon.formats.nets_csv import NetRow, read_nets, write_nets
from gnomon.jobs.estimator.job import Described
from gnomon.spaces.catalogue.mobilenetv2_cifar10 import module_uids
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.loading import load_space


def run(*words: object) -> Result:
    """A command, whose files may be replaced."""
    return run_plainly(
        *words, *(["--overwrite"] if words[0] in ("fit", "suggest", "export", "count", "predict") else [])
    )


def run_plainly(*words: object) -> Result:
    return CliRunner().invoke(cli, ["estimator", *map(str, words)], catch_exceptions=False)


def told(*words: object) -> str:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def document(*words: object) -> dict[str, Any]:
    found = json.loads(told(*words, "--json"))
    assert isinstance(found, dict)
    return found


class Bench:
    """A space, its table, samples and an estimator in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: Described
        self.found, self.table, self.space = kit(folder)
        rows = measured(self.found, 44)
        self.samples = save(rows[:14], self.found, folder / "measured.csv")
        self.held = save(rows[14:], self.found, folder / "held.csv")
        self.estimator = folder / "e.json"

    def fit(self, *words: object) -> dict[str, Any]:
        return document(
            "fit", "--table", self.table, "--space", self.space, "--samples", self.samples, "-o", self.estimator, *words
        )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A bench whose estimator is fitted, for all tests of the module to copy."""
    shared = Bench(tmp_path_factory.mktemp("bench"))
    shared.fit()
    return shared


@pytest.fixture
def bench(fitted: Bench, tmp_path: Path) -> Bench:
    """A bench with a folder, samples and a fitted estimator of its own."""
    own = copy.copy(fitted)
    own.folder = tmp_path
    own.samples, own.estimator = (Path(shutil.copy(path, tmp_path)) for path in (fitted.samples, fitted.estimator))
    return own


def test_suggest_writes_nets_that_measure_reads(bench: Bench) -> None:
    out = bench.folder / "n.csv"
    words = ("suggest", "--table", bench.table, "--space", bench.space, "--k", 5, "--out", out)
    made = document(*words)
    assert made["file"] == str(out)
    rows = read_nets(out.read_bytes(), bench.found.space.space)
    assert [list(bench.found.space.space.names(row.assignment)) for row in rows] == made["nets"]
    more = document(*words[:-2], "--given", out, "--out", bench.folder / "more.csv")
    assert not {tuple(net) for net in made["nets"]} & {tuple(net) for net in more["nets"]}
    assert made["measure"] == f"gnomon estimator measure {out} --table {bench.table} --space {bench.space}"
    assert made["measure"] in " ".join(told(*words).split())


def test_what_is_chosen_of_a_pool_is_lines_of_it(bench: Bench) -> None:
    """The rows beyond the depth are not in canonical form, and have columns of their own."""
    pool, out = bench.folder / "pool.csv", bench.folder / "n.csv"
    slots = [slot.name for slot in bench.found.space.space.slots]
    net = {"resolution": "16", "s.depth": "0", "s0": "k5", "s1": "k1", "b": "k5"}
    lines = [f"{';'.join([*slots, 'id'])}", ""]
    lines += [f'{";".join([{**net, "a": a}[slot] for slot in slots])};"a {a}"' for a in ("wide", "skip", "narrow")]
    pool.write_text("\r\n".join(lines) + "\r\n")
    made = document("suggest", "--table", bench.table, "--space", bench.space, "--pool", pool, "--k", 2, "--out", out)
    first, *chosen = out.read_text().splitlines()
    assert first == lines[0]
    assert len(chosen) == len(set(chosen) & set(lines[2:])) == 2
    assert made["nets"] == [line.split(";")[:-1] for line in chosen]
    assert len(read_nets(out.read_bytes(), bench.found.space.space)) == 2


def test_suggest_without_a_table(bench: Bench) -> None:
    assert len(document("suggest", "--space", bench.space, "--k", 4, "--out", bench.folder / "n.csv")["nets"]) == 4


@pytest.mark.parametrize("command", ["fit", "suggest", "export", "predict"])
def test_no_file_is_replaced_unless_it_may_be(bench: Bench, command: str) -> None:
    out = bench.folder / "out"
    out.write_text("mine")
    words: tuple[object, ...] = {
        "predict": (command, bench.estimator, bench.held),
        "export": (command, bench.estimator),
    }.get(command, (command, "--table", bench.table))
    words += ("--space", bench.space, "--out", out)
    with pytest.raises(UsageError, match="out exists already") as refused:
        run_plainly(*words)
    assert "--overwrite" in refused.value.hint
    assert out.read_text() == "mine"
    assert run_plainly(*words, "--overwrite").exit_code == 0
    assert out.read_text() != "mine"


def test_measuring_begins_only_where_its_csv_can_be_written(bench: Bench) -> None:
    words = ("measure", bench.held, "--table", bench.table, "--space", bench.space, "--record", bench.folder / "r")
    before = bench.samples.read_bytes()
    with pytest.raises(UsageError, match=r"measured\.csv exists already"):
        run_plainly(*words, "--out", bench.samples)
    with pytest.raises(UsageError, match="cannot be written"):
        run_plainly(*words, "--out", bench.folder / "none" / "m.csv")
    assert bench.samples.read_bytes() == before and not (bench.folder / "r").exists()


def test_options_that_would_say_nothing_are_refused(bench: Bench) -> None:
    with pytest.raises(UsageError, match="--bound and --out cannot be used with a MODEL"):
        run_plainly("predict", "model.onnx", "--bound", "2ms", "--out", bench.folder / "o.csv")
    with pytest.raises(UsageError, match="--table and --device cannot be used with a csv of nets"):
        run_plainly("predict", bench.estimator, bench.held, "--device", "phone", "--table", bench.table)


def test_other_devices_of_one_file_name_are_all_counted(bench: Bench) -> None:
    paths = []
    for number, scale in enumerate((2.0, 5.0)):
        (bench.folder / str(number)).mkdir()
        rows = measured(bench.found, 40, scale=scale, seed=number)
        paths.append(save(rows, bench.found, bench.folder / str(number) / "same.csv"))
    words = ("fit", "--space", bench.space, "--samples", bench.samples, "-o", bench.estimator)
    both = document(*words, "--other", paths[0], "--other", paths[1])
    assert both["priced"] == 0
    assert "differences of devices" in bench.estimator.read_text()
    document(*words, "--other", paths[0])
    assert "differences of devices" not in bench.estimator.read_text()


def test_predict_shows_the_first_nets_and_the_chance_of_a_bound(bench: Bench) -> None:
    text = told("predict", bench.estimator, bench.held, "--space", bench.space, "--bound", "60us")
    assert "Predictions for 30 nets of small." in text
    assert "below 60.0 us" in text
    assert "and 10 more" in text


def test_a_unit_that_was_never_seen_is_refused_unless_intervals_may_be_wide(tmp_path: Path) -> None:
    found, table, space = kit(tmp_path, lacking=True)
    nets = save(measured(found, 20), found, tmp_path / "n.csv")
    path = tmp_path / "e.json"
    assert len(document("fit", "--table", table, "--space", space, "-o", path)["unknown"]) == 2
    with pytest.raises(ProblemError, match="there is neither a sample nor a price for"):
        run("predict", path, nets, "--space", space)
    assert len(document("predict", path, nets, "--space", space, "--widen")["nets"]) == 20


def test_explain_names_units_in_words(bench: Bench) -> None:
    text = told("explain", bench.estimator, bench.held, "--space", bench.space)
    assert "of the uncertainty" in text and "Conv" in text


@pytest.mark.parametrize("bound", ["2", "0.002", "2xs", "0", "-1ms", "nan", "ms", "1 m s", ""])
def test_a_bound_that_is_none(bench: Bench, bound: str) -> None:
    result = run("predict", bench.estimator, bench.held, "--bound", bound)
    assert result.exit_code == 2
    assert "is not a latency above 0" in result.output


def test_pictures_are_drawn_where_there_is_something_to_draw(bench: Bench) -> None:
    needs_drawing()
    to = bench.folder / "picture"
    made = bench.fit("--picture", to)
    assert made["pictures"] == [f"{to}.svg", f"{to}.png"]
    assert all(Path(path).stat().st_size > 1000 for path in made["pictures"])
    nowhere = run("eval", bench.estimator, bench.held, "--space", bench.space, "--picture", bench.samples / "p")
    assert nowhere.exit_code == 0
    assert f"the picture {bench.samples} cannot be written" in nowhere.stderr
    with pytest.raises(UsageError, match="no picture can be drawn"):
        run("fit", "--table", bench.table, "--space", bench.space, "-o", bench.estimator, "--picture", to)


def test_one_net_measured_often_is_as_one_net(bench: Bench) -> None:
    lines = bench.samples.read_text().splitlines()
    for count in (1, 9):
        bench.samples.write_text("\n".join([lines[0], *lines[1:2] * count]) + "\n")
        assert bench.fit()["evaluation"] is None


def test_without_samples_the_next_step_can_be_pasted(bench: Bench) -> None:
    words = ("fit", "--table", bench.table, "--space", bench.space, "-o", bench.estimator)
    step = document(*words)["suggest"]
    assert step == f"gnomon estimator suggest --table {bench.table} --space {bench.space}"


def test_samples_that_are_malformed_leave_no_estimator_behind(bench: Bench) -> None:
    bench.samples.write_text(bench.samples.read_text(encoding="utf-8").replace("s.depth", "depth"), encoding="utf-8")
    bench.estimator.unlink()
    with pytest.raises(ProblemError, match=r"lacks the columns of slots: s\.depth"):
        bench.fit()
    assert not bench.estimator.exists()


def test_count_says_what_each_net_consists_of(bench: Bench) -> None:
    out = bench.folder / "counts.csv"
    found = document("count", bench.held, "--estimator", bench.estimator, "--space", bench.space, "--out", out)
    assert found["file"] == str(out)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [{**row, "net": int(row["net"]), "count": float(row["count"])} for row in rows] == found["counts"]
    told("export", bench.estimator, "--space", bench.space, "-o", bench.folder / "alone.py")
    alone: dict[str, Any] = runpy.run_path(str(bench.folder / "alone.py"))
    nets = read_nets(bench.held.read_bytes(), bench.found.space.space)
    slots = [slot.name for slot in bench.found.space.space.slots]
    for number in range(1, len(nets) + 1):
        parts = [row for row in found["counts"] if row["net"] == number]
        names = bench.found.space.space.names(nets[number - 1].assignment)
        assert alone["count"](dict(zip(slots, names, strict=True))) == {row["unit"]: row["count"] for row in parts}
    assert "counts.csv" in told("count", bench.held, "--table", bench.table, "--space", bench.space, "--out", out)


def test_count_knows_the_modules_of_a_space_by_their_uids(tmp_path: Path) -> None:
    space = load_space("mobilenetv2-cifar10")
    net = tuple(0 for _ in space.space.slots)
    (tmp_path / "nets.csv").write_text(write_nets([NetRow(assignment=net)], space.space, measured=False))
    out = tmp_path / "counts.csv"
    words = ("count", tmp_path / "nets.csv", "--out", out)
    rows = document(*words, "--space", "mobilenetv2-cifar10")["counts"]
    assert (rows[0]["unit"], rows[0]["uid"], rows[0]["count"]) == ("overhead", "", 1)
    names = {unit: text for text, unit in module_uids(space.tables(UNFUSED).units).items()}
    assert {row["uid"]: row["count"] for row in rows[1:]} == {
        names[unit]: count for unit, count in space.net(net).counts().items()
    }
    with pytest.raises(UsageError, match="exists already"):
        run_plainly(*words, "--space", "mobilenetv2-cifar10")
    with pytest.raises(UsageError, match="neither a table nor a space"):
        run(*words)
    with pytest.raises(UsageError, match="both define the units"):
        run(*words, "--table", "t", "--estimator", "e.json")


def test_nets_may_be_architecture_strings(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nets = rng.integers(0, 5, (12, 6)).tolist()
    lines = [f"{architecture(net)},{1 + sum(net)}" for net in nets]
    (tmp_path / "nets.csv").write_text("\n".join(["arch,latency_ms", *lines]) + "\n")
    made = document("fit", "--space", "nasbench201", "--samples", tmp_path / "nets.csv", "-o", tmp_path / "e.json")
    assert made["samples"] == 12
    out = tmp_path / "p.csv"
    document("predict", tmp_path / "e.json", tmp_path / "nets.csv", "--widen", "--out", out)
    rows = read_nets(out.read_bytes(), load_space("nasbench201").space)
    assert [list(row.assignment) for row in rows] == nets
