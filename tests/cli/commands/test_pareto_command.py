"""`gnomon pareto`: its options, what it prints, its JSON document and its picture."""

from __future__ import annotations

import copy
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.report.picture_kit import needs_drawing, words_in, words_of

from gnomon.api.pareto import bound, tuning
from gnomon.api.pictures import draw
from gnomon.cli.main import cli, run
from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.jobs.documents import read_document
from gnomon.jobs.pareto import job
from gnomon.jobs.pareto.document import ParetoDocument
from gnomon.jobs.pareto.picture import front_charts
from gnomon.jobs.pareto.report import headline, pareto_report
from gnomon.jobs.pareto.search import ParetoRequest
from gnomon.report.page import Page

HOSTILE = "conv\x1b[31m\u202e\n1"
ROWS = [
    {"memory": 51200, "id": 0, "time": 40.125},
    {"memory": 360448, "id": 1, "time": 12.5},
    {"memory": 52224, "id": 2, "time": 41.0},
    {"memory": 361472, "id": 3, "time": 13.75},
]


class Stopped(GnomonError):
    """Raised in place of the job."""


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """The published example of a brute force."""
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"oplist": ["Conv2D", "Pool2D"], "solutions": ROWS}))
    return path


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[ParetoRequest]:
    """The requests that the command makes; nothing is done with them."""
    made: list[ParetoRequest] = []

    def stop(asked: ParetoRequest, **others: Any) -> None:
        made.append(asked)
        raise Stopped("stopped")

    monkeypatch.setattr(job, "pareto", stop)
    return made


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["pareto", *arguments])


def document(dump: Path, *more: str) -> dict[str, Any]:
    done = call("--from", str(dump), "--search", "brute", "--json", "--quiet", *more)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def drawn(found: dict[str, Any]) -> list[str]:
    """The texts of the picture of a front that has a point."""
    charts = front_charts(read_document(found))
    assert charts
    return words_of(charts)


def measured(found: dict[str, Any]) -> dict[str, Any]:
    """The document as if it had been measured on a device, with intervals and a point that is behind."""
    made = copy.deepcopy(found)
    made |= {
        "model": {"path": "m.circle", "format": "circle", "sha256": "00", "operators": 2, "macs": None},
        "device": "local",
        "versions": {"onert": "0.1.0"},
        "clock": "wall",
        "campaign": "0123456789",
        "record": "/r.sqlite",
        "resumed": False,
        "proved": True,
        "left_out": 3,
    }
    for point in made["points"]:
        for estimate in point["estimates"]:
            estimate |= {"low": estimate["value"] * 0.98, "high": estimate["value"] * 1.03}
    behind = copy.deepcopy(made["points"][0]) | {"number": None, "dominated_by": 0, "label": HOSTILE, "code": "2"}
    failed = behind | {"estimates": None, "dominated_by": None, "label": "gone"}
    made["points"] += [behind, failed]
    made["points"][0]["ties"] = [1]
    made["points"][1]["maybe_dominated_by"] = [0]
    return made


def text(found: dict[str, Any], width: int = 120) -> str:
    file = io.StringIO()
    pareto_report(read_document(found), Page(file, width=width))
    return file.getvalue()


def words(found: dict[str, Any]) -> str:
    """The report without its line breaks."""
    return " ".join(text(found).split())


def test_the_options_become_a_request(tmp_path: Path, requests: list[ParetoRequest]) -> None:
    done = call(
        *("m.circle", "--objective", "latency", "--objective", "output-error", "--by", "group", "--tuning", "planner"),
        *("--tuning", "threads=1,2", "--search", "nsga2", "--iterations", "20", "--seed", "7"),
        *("--under", "output-error=0.5", "--runtime", "onert", "--threads", "2", "--processes", "4", "--overwrite"),
        *("--dumpfile", str(tmp_path / "d.json"), "--no-profile", "--option", "onnxruntime:session.x=1"),
    )
    assert isinstance(done.exception, Stopped), done.output
    (asked,) = requests
    assert asked.objectives == ("latency", "output-error")
    assert asked.by == "group"
    assert asked.options == {"planner": (), "threads": ("1", "2")}
    assert (asked.plan.name, asked.plan.seed, asked.plan.iterations) == ("nsga2", 7, 20)
    assert asked.under == {"output-error": 0.5}
    assert asked.overwrite
    assert asked.out == Path("m.gnomon")
    assert asked.dumpfile == tmp_path / "d.json"
    assert asked.source is None
    assert asked.request is not None
    assert asked.request.model == Path("m.circle")
    assert asked.request.settings.options == (("onnxruntime", {"session.x": "1"}),)
    assert asked.request.runtimes == ("onert",)
    assert asked.request.settings.threads == 2
    assert asked.request.effort.processes_most == 4
    assert not asked.request.measure
    call("m.tflite")
    asked = requests[-1]
    assert asked.objectives == ("latency", "peak-memory")
    assert asked.by == "type"
    assert asked.plan.name == "hlps"
    assert asked.plan.iterations is None
    assert asked.pick is None


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "neither a model nor a dump is given"),
        (("m.circle", "--from", "d.json"), "a model cannot be combined with a dump"),
        (("--from", "d.json", "--by", "group"), "by does not apply to a dump"),
        (("--from", "d.json", "--tuning", "threads=1"), "tunings does not apply to a dump"),
        (("m.circle", "--by", "colour"), "colour"),
        (("m.circle", "--under", "peak-memory=lots"), "is not an amount"),
        (("m.circle", "--under", "peak-memory=8ms"), "not in ms"),
        (("m.circle", "--under", "latency=8MB"), "not in MB"),
        (("m.circle", "--under", "energy=8ms"), "not in ms"),
        (("m.circle", "--tuning", "=1"), "is not a setting"),
        (("m.circle", "--tuning", "threads=1,"), "is not a setting"),
        (("m.circle", "--tuning", "planner", "--tuning", "planner=WIC"), "twice"),
        (("m.circle", "--under", "latency=1", "--under", "latency=2"), "twice"),
    ],
)
def test_what_cannot_be_meant(arguments: tuple[str, ...], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pareto", *arguments]) == 2
    assert word in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("peak-memory=80MB", ("peak-memory", 80e6)),
        ("peak-memory=80MiB", ("peak-memory", 80 * 2.0**20)),
        ("peak-memory=1000", ("peak-memory", 1000.0)),
        ("latency=2.5ms", ("latency", 2.5e-3)),
        ("latency=100 us", ("latency", 1e-4)),
        ("energy=2mJ", ("energy", 2e-3)),
        ("output-error=1e-3", ("output-error", 1e-3)),
    ],
)
def test_bounds_with_units(given: str, meant: tuple[str, float]) -> None:
    name, most = bound(given)
    assert name == meant[0] and most == pytest.approx(meant[1])


def test_option_values() -> None:
    assert tuning("planner") == ("planner", ())
    assert tuning("threads=1, 2") == ("threads", ("1", "2"))
    with pytest.raises(ValueError, match="is not a setting"):
        tuning("threads=")


def test_a_dump_is_searched_and_shown(dump: Path) -> None:
    done = call("--from", str(dump), "--search", "brute")
    assert done.exit_code == 0, done.output
    for part in (
        "The front has 2 points",
        "12.5 ms",
        "50.0 MiB",
        "Complete: every assignment of the space is in the dump.",
    ):
        assert part in done.stdout
    found = document(dump)
    assert found["format"] == "gnomon-pareto"
    assert [(p["code"], p["number"]) for p in found["points"]] == [("1", 1), ("0", 2)]
    assert found["points"][0]["choices"] == ["acl_cl", "cpu"]
    assert (found["certificate"], found["space"]["size"], found["model"]) == ("complete", "4", None)
    assert (found["search"]["strategy"], found["search"]["evaluations"]) == ("exhaustive", 4)
    assert {s["code"]: s["cost"] for s in found["samples"]}["2"] == pytest.approx([0.041, 52224 * 1024])


def test_searches_are_compared(dump: Path) -> None:
    done = call("--from", str(dump), "--search", "brute", "--search", "random", "--search", "hlps", "--iterations", "2")
    assert done.exit_code == 0, done.output
    assert "99 % of it after" in done.stdout
    for name in ("brute", "random", "hlps"):
        assert re.search(rf"^ {name} +2 +- +- ", done.stdout, re.MULTILINE)
    found = document(dump, "--search", "hlps")
    assert [s["name"] for s in found["searches"]] == ["brute", "hlps"]
    assert found["search"]["name"] == "brute and hlps"
    assert found["searches"][0]["reference"] == found["searches"][1]["reference"]


def test_a_single_objective_has_one_point(dump: Path) -> None:
    found = document(dump, "--objective", "latency")
    assert [p["code"] for p in found["points"]] == ["1"]
    assert headline(read_document(found)).startswith("One point is best in latency")
    proved = measured(found)
    assert headline(read_document(proved)).startswith("One point is best in latency: ")
    sampled = read_document(proved | {"proved": False})
    assert headline(sampled).startswith("By one sample each, one point is best in latency: ")


def test_the_digits_of_a_dump_can_be_named(dump: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document(dump, "--codes", "cpu,npu")["points"][0]["choices"] == ["npu", "cpu"]
    assert run(["pareto", "m.circle", "--codes", "cpu,npu"]) == 2
    assert "--codes needs a dump" in capsys.readouterr().err


def test_errors_of_the_job_pass_through(tmp_path: Path, dump: Path) -> None:
    done = call("--from", str(tmp_path / "none.json"))
    assert isinstance(done.exception, ProblemError)
    done = call("--from", str(dump), "--search", "magic")
    assert isinstance(done.exception, UsageError)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_report_of_what_was_measured(dump: Path, width: int) -> None:
    found = measured(document(dump))
    shown = text(found, width)
    flat = " ".join(shown.split())
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    for part in ("measured again side by side", "and dominated", "gone failed", "3 more points on the front"):
        assert part in flat


def test_the_report_says_what_the_noise_allows(dump: Path) -> None:
    found = measured(document(dump))
    flat = words(found)
    for part in ("indistinguishable from 2", "possibly dominated by 1", "--pick N"):
        assert part in flat
    flat = words(found | {"enough": 1})
    assert (
        f"better than point 1, the single backend {found['points'][0]['label']}, by more than 1 % in any objective"
        in flat
    )
    assert "--pick 1" in flat
    found["search"] |= {"name": "exact", "predicted": True}
    found["points"][0]["sampled"][0] *= 2
    flat = words(found)
    assert "as recorded in the dump. Measured: 0.50 to 1.00 times the price." in flat
    assert "Measured with the front and dominated" in flat


def test_what_is_dominated_is_explained_and_what_was_not_measured_again_is_named(dump: Path) -> None:
    found = measured(document(dump)) | {
        "noise": {"cpu": [2.0, 0.004], "wall": [2.5, 0.004]},
        "left_out": 1,
        "behind": 1,
    }
    flat = words(found)
    assert (
        "dominated by N: N is surely better by more than 1 % in an objective (95 % for all points together), surely"
        in flat
    )
    assert "Not measured again: 1 more point on the front or within noise of it; there was room for 4." in flat
    assert (
        "Not measured again: 1 more point, because another point is ahead in every objective by more than the noise"
        in flat
    )
    assert "latency by CPU time up to 200 %, latency by wall time up to 250 % and peak memory up to 0.400 %" in flat
    rest = [s["label"] for s in found["samples"] if s["code"] not in {p["code"] for p in found["points"]}]
    assert rest
    assert f"Not measured again: '{rest[0]}'" in flat
    nothing = text(found | {"left_out": 0, "behind": 0})
    assert "Not measured again" not in nothing


def test_points_by_different_clocks_are_shown_by_both(dump: Path) -> None:
    found = measured(document(dump)) | {"clock": "mixed", "sample_clock": "wall", "sessions": 2}
    for point, clock in zip(found["points"], ("wall", "cpu", "wall", None), strict=True):
        latency = None if clock is None else point["estimates"][0]
        slower = {"value": 53.4e-3, "low": 50e-3, "high": 60.5e-3}
        point |= {"clock": clock, "wall": slower if clock == "cpu" else latency}
    flat = words(found)
    assert "by CPU time for single-threaded points, wall time for all others (the fastest 20 % of calls)" in flat
    assert re.search(r"2 +cpu +40\.1 ms +\[39\.3, 41\.3\] +CPU +53\.4 ms ", text(found, 160))
    assert re.search(r"12\.5 ms +\[12\.2, 12\.9\] +wall +12\.5 ms", text(found, 160))
    assert "all other pairs by wall time" in flat
    assert "Measured in 2 sessions" in flat
    assert "latency by wall time, ms" in drawn(found)


@pytest.mark.parametrize(
    ("verified", "word"),
    [
        ({"ok": True}, "packaged and verified"),
        ({"skipped": True}, "was not run"),
        ({"moved": [1, 2]}, "2 operators ran elsewhere"),
    ],
)
def test_the_report_of_a_pick(dump: Path, verified: dict[str, Any], word: str) -> None:
    proof = {"ok": False, "skipped": False, "moved": [], "difference": None, "failure": None} | verified
    found = measured(document(dump)) | {"chosen": 2, "verified": proof, "package": "/p"}
    flat = words(found)
    assert word in flat
    assert "> 2" in flat


ONCE = "every assignment was run once; "


@pytest.mark.parametrize(
    ("certificate", "name", "change", "word"),
    [
        ("complete", "brute", {}, f"Complete: {ONCE}all near the front were measured again."),
        ("complete", "brute", {"left_out": 0, "behind": 0}, f"{ONCE}all were measured again."),
        ("complete", "brute", {"proved": False}, f"{ONCE}none was measured again."),
        ("exact", "exact", {}, "by the prices, no assignment is better"),
        ({"epsilon": 0.05}, "exact", {}, "within 5.00%"),
        ("heuristic", "exact", {}, "not finished in time"),
        ("heuristic", "hlps", {}, "that were not tried"),
    ],
)
def test_the_certificate_in_words(dump: Path, certificate: Any, name: str, change: dict[str, Any], word: str) -> None:
    found = measured(document(dump)) | {"certificate": certificate, "source": None} | change
    found["search"] |= {"name": name, "predicted": name == "exact"}
    flat = words(found)
    assert word in flat
    assert name == "exact" or "Exact" not in flat  # never said of samples


def test_the_picture_has_each_search_and_says_what_it_leaves_out(dump: Path) -> None:
    found = document(dump, "--search", "random", "--search", "hlps")
    found["samples"].append({"code": "9", "label": "far", "cost": [1e3, 1e6]})
    texts = "\n".join(drawn(found))
    for name in ("brute", "random", "hlps"):
        assert re.search(rf"^{name}, \d", texts, re.MULTILINE)
    assert "(1 off chart)" in texts
    found = measured(document(dump))
    cut = "the front, with 95 % intervals (drawn up to 3 times the value)"
    assert cut not in drawn(found)
    estimate = found["points"][0]["estimates"][0]
    estimate["high"] = 1000 * estimate["value"]
    assert cut in drawn(found)


@pytest.mark.parametrize("objectives", [1, 2])
def test_the_picture_is_the_same_every_time(dump: Path, tmp_path: Path, objectives: int) -> None:
    needs_drawing()
    names = ("latency", "peak-memory")[:objectives]
    found = document(dump, *(word for name in names for word in ("--objective", name)))
    if objectives == 2:
        found = measured(found) | {"chosen": 2}
        found["points"][0]["label"] = HOSTILE
    record = read_document(found)
    first, second = (draw(ParetoDocument.charts_by, record, tmp_path / name, pytest.fail) for name in "ab")
    assert [Path(path).read_bytes() for path in first] == [Path(path).read_bytes() for path in second]
    assert Path(first[1]).read_bytes().startswith(b"\x89PNG")
    texts = " ".join(words_in(first[0]))
    assert "dump" in texts or "m.circle" in texts
    assert "hypervolume" in texts
    if objectives == 2:
        assert "the choice" in texts
        assert "and dominated" in texts
        assert "\x1b" not in texts


def test_the_command_draws_only_where_it_is_told(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_drawing()
    found = document(dump, "--picture", str(tmp_path / "front.v1"))
    assert found["pictures"] == [str(tmp_path / "front.v1.svg"), str(tmp_path / "front.v1.png")]
    assert all(Path(path).is_file() for path in found["pictures"])
    (tmp_path / "no").touch()
    done = call("--from", str(dump), "--picture", str(tmp_path / "no" / "where"))
    assert done.exit_code == 0
    assert "the picture" in done.stderr
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert document(dump)["pictures"] == []
    assert sorted(tmp_path.iterdir()) == before
