"""`gnomon estimator`: its files, what it prints, its JSON documents, and what it says of mistakes."""

from __future__ import annotations

import csv
import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.jobs.estimator.estimator_kit import kit, measured, save
from tests.report.picture_kit import needs_drawing
from tests.spaces.catalogue.nasbenchkit import architecture

from gnomon.cli.main import cli
from gnomon.errors import GnomonError, ProblemError, UsageError
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


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_suggest_writes_nets_that_measure_reads(bench: Bench) -> None:
    out = bench.folder / "n.csv"
    words = ("suggest", "--table", bench.table, "--space", bench.space, "--k", 5, "--out", out)
    made = document(*words)
    assert made["file"] == str(out)
    rows = read_nets(out.read_bytes(), bench.found.space.space)
    assert [list(bench.found.space.space.names(row.assignment)) for row in rows] == made["nets"]
    more = document(*words[:-2], "--given", out, "--out", bench.folder / "more.csv")
    assert not {tuple(net) for net in made["nets"]} & {tuple(net) for net in more["nets"]}
    assert f"gnomon estimator measure {out} --table TABLE" in " ".join(told(*words).split())


def test_suggest_without_a_table_and_near_a_bound(bench: Bench) -> None:
    assert len(document("suggest", "--space", bench.space, "--k", 4, "--out", bench.folder / "n.csv")["nets"]) == 4
    bench.fit()
    words = ("suggest", "--table", bench.table, "--space", bench.space, "--out", bench.folder / "n.csv")
    with pytest.raises(UsageError, match="a bound needs an estimator"):
        run(*words, "--bound", "50us")
    assert len(document(*words, "--bound", "50us", "--estimator", bench.estimator)["nets"]) == 10


def test_fit_says_how_good_it_is_on_nets_held_out(bench: Bench) -> None:
    made = bench.fit()
    assert (made["space"], made["samples"], made["units"], made["priced"]) == ("small", 14, 19, 19)
    assert made["evaluation"]["scores"]["within_10"] > 0.9
    assert [spent["samples"] for spent in made["evaluation"]["curve"]] == [0, 2, 4, 6, 8, 10]
    text = told(
        "fit", "--table", bench.table, "--space", bench.space, "--samples", bench.samples, "-o", bench.estimator
    )
    assert "An estimator of small, from 14 nets and 19 of 19 units priced." in text
    assert "How good it is (10 folds of 14 nets, each held out once)" in text
    assert "measurement-noise limit" in text


@pytest.mark.parametrize("command", ["fit", "suggest", "export", "predict"])
def test_no_file_is_replaced_unless_it_may_be(bench: Bench, command: str) -> None:
    bench.fit()
    out = bench.folder / "out"
    out.write_text("mine")
    words: tuple[object, ...] = {
        "predict": (command, bench.estimator, bench.held),
        "export": (command, bench.estimator),
    }.get(command, (command, "--table", bench.table))
    words += ("--space", bench.space, "--out", out)
    with pytest.raises(UsageError, match="out is there already") as refused:
        run_plainly(*words)
    assert "--overwrite" in refused.value.hint
    assert out.read_text() == "mine"
    assert run_plainly(*words, "--overwrite").exit_code == 0
    assert out.read_text() != "mine"


def test_measuring_begins_only_where_its_csv_can_be_written(bench: Bench) -> None:
    words = ("measure", bench.held, "--table", bench.table, "--space", bench.space, "--record", bench.folder / "r")
    before = bench.samples.read_bytes()
    with pytest.raises(UsageError, match=r"measured\.csv is there already"):
        run_plainly(*words, "--out", bench.samples)
    with pytest.raises(UsageError, match="cannot be written"):
        run_plainly(*words, "--out", bench.folder / "none" / "m.csv")
    assert bench.samples.read_bytes() == before and not (bench.folder / "r").exists()


def test_options_that_would_say_nothing_are_refused(bench: Bench) -> None:
    bench.fit()
    with pytest.raises(UsageError, match="--bound, --out: for nets of a csv alone"):
        run_plainly("predict", "model.onnx", "--bound", "2ms", "--out", bench.folder / "o.csv")
    with pytest.raises(UsageError, match="--table, --device: for a MODEL alone"):
        run_plainly("predict", bench.estimator, bench.held, "--device", "phone", "--table", bench.table)


def test_a_table_of_another_device_is_suspected(bench: Bench) -> None:
    assert 0.8 < bench.fit()["sum_over_measured"] < 1.0
    slow = save(measured(bench.found, 14, scale=7.0), bench.found, bench.folder / "slow.csv")
    text = told("fit", "--table", bench.table, "--space", bench.space, "--samples", slow, "-o", bench.estimator)
    assert "The table is of onnxruntime on made-up: were the nets measured there" in " ".join(text.split())


def test_without_samples_it_is_the_tables_sum(bench: Bench) -> None:
    words = ("fit", "--table", bench.table, "--space", bench.space, "-o", bench.estimator)
    text = told(*words)
    assert "from 0 nets and 19 of 19 units priced" in text
    assert "it is the table's sum" in text
    assert document(*words)["evaluation"] is None


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


def test_eval_compares_with_nets_held_out(bench: Bench) -> None:
    bench.fit()
    words = ("eval", bench.estimator, bench.held, "--space", bench.space)
    made = document(*words)
    assert made["evaluation"]["scores"]["nets"] == 30
    assert len(made["evaluation"]["nets"]) == 30
    text = " ".join(told(*words).split())  # lines break where the path is long
    assert "The estimator" in text
    assert "of small." in text
    assert "(30 nets held out)" in text


def test_eval_with_the_nets_that_were_fitted_to_is_refused(bench: Bench) -> None:
    bench.fit()
    with pytest.raises(UsageError, match="all 14 nets were fitted to"):
        run("eval", bench.estimator, bench.samples, "--space", bench.space)


def test_predict_gives_intervals_and_chances(bench: Bench) -> None:
    bench.fit()
    out = bench.folder / "p.csv"
    words = ("predict", bench.estimator, bench.held, "--space", bench.space)
    made = document(*words, "--bound", "60us", "--out", out)
    assert (made["space"], made["coverage"], made["bound_s"]) == ("small", 0.9, pytest.approx(60e-6))
    assert all(net["low_s"] <= net["latency_s"] <= net["high_s"] for net in made["nets"])
    assert all((net["below"] > 0.5) == (net["latency_s"] < 60e-6) for net in made["nets"])
    rows = read_nets(out.read_bytes(), bench.found.space.space)
    assert [row.latency_s for row in rows] == [net["latency_s"] for net in made["nets"]]
    text = told(*words, "--bound", "60us")
    assert "30 nets of small, as predicted." in text
    assert "below 60.0 us" in text
    assert "and 10 more" in text
    assert {net["below"] for net in document(*words)["nets"]} == {None}


def test_a_unit_that_was_never_seen_is_refused_unless_intervals_may_be_wide(tmp_path: Path) -> None:
    found, table, space = kit(tmp_path, lacking=True)
    rows = [row for row in measured(found, 60) if found.space.space.names(row.assignment)[-1] == "k1"]
    samples = save(rows[:12], found, tmp_path / "m.csv")
    nets = save([replace(row, latency_s=None) for row in measured(found, 20, seed=3)], found, tmp_path / "n.csv")
    path = tmp_path / "e.json"
    words = ("fit", "--table", table, "--space", space, "--samples", samples, "-o", path)
    made = document(*words)
    assert len(made["unknown"]) == 2
    assert "Nothing is known of 2 units, such as Conv 5x5 12" in told(*words)
    with pytest.raises(ProblemError, match="no sample and no price says what") as error:
        run("predict", path, nets, "--space", space)
    assert error.value.hint is not None
    wide = document("predict", path, nets, "--space", space, "--widen")["nets"]
    unknown = [
        name[-1] == "k5" for name in (found.space.space.names(r.assignment) for r in measured(found, 20, seed=3))
    ]
    widths = [(net["high_s"] - net["low_s"]) / net["latency_s"] for net in wide]
    assert min(w for w, u in zip(widths, unknown, strict=True) if u) > 2 * max(
        w for w, u in zip(widths, unknown, strict=True) if not u
    )


def test_explain_adds_up(bench: Bench) -> None:
    bench.fit()
    made = document("explain", bench.estimator, bench.held, "--space", bench.space)
    assert sum(part["share"] for part in made["parts"]) == pytest.approx(1.0)
    assert sum(part["time_s"] for part in made["parts"]) == pytest.approx(made["latency_s"])
    assert any("Conv" in part["unit"] for part in made["parts"])
    assert "of the uncertainty" in told("explain", bench.estimator, bench.held, "--space", bench.space)


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
    assert f"no picture: {bench.samples} cannot be written" in nowhere.stderr
    with pytest.raises(UsageError, match="nothing to draw"):
        run("fit", "--table", bench.table, "--space", bench.space, "-o", bench.estimator, "--picture", to)


LONG = "x" * 300


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [lines[0].replace("s.depth", "depth"), *lines[1:]], "lack columns of slots: s.depth"),
        (lambda lines: [lines[0], lines[1].replace("k1,", "k7,", 1).replace("k5,", "k7,", 1), *lines[2:]], "line 2"),
        (
            lambda lines: [lines[0], *(f"{line.rsplit(',', 3)[0]},0,," for line in lines[1:])],
            "a latency of 0 is not valid",
        ),
        (
            lambda lines: [lines[0], *(f"{line.rsplit(',', 3)[0]},-1,," for line in lines[1:])],
            "a latency of -1 is not valid",
        ),
        (lambda lines: [lines[0], *(f"{line.rsplit(',', 3)[0]},inf,," for line in lines[1:])], "a latency of inf"),
        (lambda lines: [lines[0], *(f"{line.rsplit(',', 3)[0]},,," for line in lines[1:])], "no net with a latency"),
        (lambda lines: [lines[0], f"{LONG},{lines[1]}"], "10 columns, and the first line has 9"),
        (
            lambda lines: [lines[0], lines[1].replace(lines[1].split(",")[0], LONG, 1)],
            "slot 'resolution' has no choice",
        ),
        (lambda lines: [], "is empty"),
    ],
)
def test_samples_that_are_malformed_leave_no_estimator_behind(bench: Bench, change: Any, said: str) -> None:
    lines = bench.samples.read_text(encoding="utf-8").splitlines()
    bench.samples.write_text("\n".join(change(lines)), encoding="utf-8")
    with pytest.raises(ProblemError, match=said) as error:
        bench.fit()
    assert error.value.hint
    assert len(error.value.message) < 2000
    assert not bench.estimator.exists()


def test_files_given_in_the_wrong_place(bench: Bench) -> None:
    bench.fit()
    for words in (
        ("fit", "--table", bench.samples, "-o", bench.folder / "x.json"),
        ("eval", bench.samples, bench.samples),
        ("predict", bench.estimator, bench.estimator, "--space", bench.space),
        ("predict", bench.folder / "none.json", bench.samples),
        ("eval", bench.estimator, bench.folder, "--space", bench.space),
    ):
        with pytest.raises(GnomonError) as error:
            run(*words)
        assert error.value.hint, words


def test_a_net_of_another_space_is_told(bench: Bench) -> None:
    bench.fit()
    (bench.folder / "n.csv").write_text("block0,block1\nMB3 3x3,MB6 5x5\n", encoding="utf-8")
    with pytest.raises(ProblemError, match=r"lack columns of slots: resolution, a, s\.depth, s0, s1 and 1 more"):
        run("predict", bench.estimator, bench.folder / "n.csv", "--space", bench.space)


def test_count_says_what_each_net_consists_of(bench: Bench) -> None:
    bench.fit()
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
        true = alone["get_estimation"](dict(zip(slots, names, strict=True)))
        assert alone["count"](dict(zip(slots, names, strict=True))) == {row["unit"]: row["count"] for row in parts}
        for key in ("unit", "label", "uid"):
            modules = {row[key] or row["unit"]: row["count"] for row in parts}
            assert alone["get_estimation"](modules) == pytest.approx(true, rel=1e-12)
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
    with pytest.raises(UsageError, match="is there already"):
        run_plainly(*words, "--space", "mobilenetv2-cifar10")
    with pytest.raises(UsageError, match="nothing says what units are"):
        run(*words)
    with pytest.raises(UsageError, match="of a table or of an estimator"):
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
