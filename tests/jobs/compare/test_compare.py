"""Runs compared: verdicts on sides made by hand, what is refused, every way of naming a run, and of answering."""

from __future__ import annotations

import copy
import io
import json
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.cli.placement_kit import placement, profiled

import gnomon
from gnomon.cli.main import cli
from gnomon.core.sample import Campaign, Context
from gnomon.core.stats import Side, compare_apart, granted_sessions, sessions_of
from gnomon.errors import GnomonError, ProblemError, RecordError, UsageError
from gnomon.jobs.compare.document import CompareDocument, OperatorsPart
from gnomon.jobs.compare.job import SESSIONS, compare
from gnomon.jobs.compare.report import compare_report, markdown
from gnomon.jobs.compare.sides import _embedded_in, embedded, read_side
from gnomon.jobs.documents import read_document
from gnomon.jobs.html.blocks import Line
from gnomon.jobs.html.views import comparison
from gnomon.jobs.runs.answers import ANSWER, keep, packed
from gnomon.report.page import Page
from gnomon.store.base import note
from gnomon.store.sqlite import SqliteStore


def document(
    rng: np.random.Generator, *, level_us: float = 5000.0, scatter: float = 0.005, processes: int = 12, **more: Any
) -> dict[str, Any]:
    """The document of a profile, of which each configuration has so many processes of one block of 20 samples."""
    made: dict[str, Any] = profiled().document()
    made["clock"] = "cpu"
    for column in made["columns"]:
        runs = column["runs"]
        levels = level_us * np.exp(scatter * rng.standard_normal(processes))
        blocks = [(one * np.exp(0.01 * rng.standard_normal(20))).tolist() for one in levels]
        runs["samples"] = {
            "process": list(range(processes)),
            "block": [0] * processes,
            "started_at_s": [1000.0 + 10 * k for k in range(processes)],
            "inner": [1] * processes,
            "wall_us": blocks,
            "cpu_us": blocks,
        }
    return made | more


def written(folder: Path, name: str, made: dict[str, Any]) -> str:
    path = folder / name
    path.write_text(json.dumps(made), encoding="utf-8")
    return str(path)


def pair(tmp_path: Path, before: dict[str, Any], after: dict[str, Any], **options: Any) -> Any:
    """Two runs compared; unless told otherwise of a machine whose sessions are known not to differ."""
    return compare(
        [written(tmp_path, "a.json", before), written(tmp_path, "b.json", after)], **{"sessions": 0.0, **options}
    )


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, ("same", "unknown")), (1.05, ("slower",)), (0.95, ("faster",)), (3.0, ("slower",))]
)
def test_verdicts(tmp_path: Path, factor: float, verdict: Sequence[str]) -> None:
    rng = np.random.default_rng(3)
    found = pair(tmp_path, document(rng), document(rng, level_us=5000.0 * factor))
    (only,) = found.pairs
    assert only.configurations
    for row in only.configurations:
        assert row.verdict in verdict
        assert row.low is not None
        assert row.high is not None
        assert row.low < row.ratio < row.high
        assert row.ratio == pytest.approx(factor, rel=0.02)


def test_an_open_verdict_says_what_would_have_been_seen(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    found = pair(tmp_path, document(rng, scatter=0.02, processes=6), document(rng, scatter=0.02, processes=6))
    text = io.StringIO()
    compare_report(found, Page(text, width=120))
    sees = max(row.sees for row in found.pairs[0].configurations)
    assert f"A slow-down of {100 * sees:.1f} % would have been detected with 95 % probability" in text.getvalue()
    for row in found.pairs[0].configurations:
        assert (row.verdict, row.gate) == ("unknown", None)
        slower = pair(tmp_path, *(document(rng, scatter=0.02, processes=6, level_us=5000 * by) for by in (1, 1.5)))
        assert {one.verdict for one in slower.pairs[0].configurations} == {"slower"}
    assert "with no difference above " in found.headline()[1]


def side(levels: Any) -> Side:
    """Processes of these levels, one after the other."""
    return Side(levels_s=tuple(levels), moments_s=tuple(map(float, range(len(levels)))))


def disturbed(rng: np.random.Generator) -> Side:
    """A side of which one process was disturbed."""
    levels = np.exp(0.01 * rng.standard_normal(8))
    levels[rng.integers(8)] *= 1 + rng.exponential(0.05)
    return side(levels)


def wandering(rng: np.random.Generator, processes: int) -> Side:
    """A side of processes on a machine whose speed wanders by 1 %, and forgets itself in ten processes."""
    speed = [rng.standard_normal()]
    for shock in rng.standard_normal(processes - 1):
        speed.append(0.9 * speed[-1] + (1 - 0.9**2) ** 0.5 * shock)
    return side(np.exp(0.01 * np.asarray(speed) + 0.004 * rng.standard_normal(processes)))


def session(rng: np.random.Generator, spread: float = 0.01, scatter: float = 0.002, processes: int = 6) -> Side:
    """A side of processes whose session is off."""
    return side(np.exp(spread * rng.standard_normal() + scatter * rng.standard_normal(processes)))


@pytest.mark.parametrize(
    ("make", "sessions"),
    [
        (disturbed, 0.0),
        (partial(wandering, processes=4), 0.0),
        (partial(wandering, processes=30), 0.0),
        (partial(session, spread=0.02, scatter=0.005, processes=12), SESSIONS),
    ],
)
def test_false_alarms_are_as_rare_as_promised(make: Callable[[np.random.Generator], Side], sessions: float) -> None:
    """Of equal sides at most 2 % are called different at alpha 1 %; Welch's test alone is wrong in 20 % and more of
    the pairs of a machine that wanders."""
    rng = np.random.default_rng(8)
    granted = granted_sessions(sessions)
    assert sum(compare_apart(make(rng), make(rng), sessions=granted).p < 0.01 for _ in range(500)) <= 10


def test_drift_within_a_side_widens_the_interval() -> None:
    rng = np.random.default_rng(2)
    still = side(np.exp(0.002 * rng.standard_normal(12)))
    found = compare_apart(still, side(np.exp(0.002 * rng.standard_normal(12) + np.linspace(0, 0.04, 12))))
    assert compare_apart(still, still).drift == 0
    assert found.drift > 0.01
    assert found.p > 0.01


def test_a_steady_machine_shows_three_percent() -> None:
    rng = np.random.default_rng(4)
    found = 0
    for _ in range(100):
        a, b = (side(np.exp(0.005 * rng.standard_normal(30) + shift)) for shift in (0.0, 0.03))
        found += compare_apart(a, b).p < 0.01
    assert found >= 95


def test_what_sessions_differ_by_is_learnt_from_earlier_runs() -> None:
    rng = np.random.default_rng(12)
    assert sessions_of([[session(rng) for _ in range(4)]]) is None
    assert sessions_of([[session(rng) for _ in range(5)]]) is not None
    learnt = sessions_of([[session(rng) for _ in range(400)], [session(rng) for _ in range(400)]])
    assert learnt is not None
    assert learnt.variance == pytest.approx(1e-4, rel=0.2)
    wrong = 0
    for _ in range(500):
        earlier = [session(rng) for _ in range(8)]
        wrong += compare_apart(session(rng), session(rng), sessions=sessions_of([earlier])).p < 0.01
    assert wrong <= 12


def conditions() -> dict[str, Any]:
    """What a run was measured under: one input, from a file."""
    fed = {"name": "x", "shape": [1, 256], "dtype": "float32", "fed": "x.npy", "sha256": "a"}
    more = {"precisions": ["float32"], "machine": "x86_64", "cores": 2, "date": "2026-01-02"}
    return {"threads": [1], "defaults": False, "inputs": [fed], **more}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda d: d["fingerprint"].update(cpu_model="another"), "machine"),
        (lambda d: d["fingerprint"].update(governor="powersave"), "governor"),
        (lambda d: d["versions"].update(onert="9.9"), "version"),
        (lambda d: d.update(threads=[4]), "threads"),
        (lambda d: d["conditions"]["inputs"][0].update(shape=[32, 256]), "shapes"),
        (lambda d: d["conditions"]["inputs"][0].update(sha256="b"), "inputs"),
        (lambda d: d["conditions"].update(signature="encode"), "inputs"),
    ],
)
def test_what_is_unlike_is_not_compared_unless_it_is_the_change(tmp_path: Path, change: Any, kind: str) -> None:
    rng = np.random.default_rng(1)
    before, after = (document(rng, threads=[1], conditions=conditions()) for _ in range(2))
    change(after)
    found = pair(tmp_path, before, after)
    assert found.pairs[0].unlike
    assert not found.pairs[0].configurations
    assert found.headline()[1].startswith("These runs cannot be compared")
    allowed = pair(tmp_path, before, after, changed=(kind,))
    assert allowed.pairs[0].configurations
    assert allowed.pairs[0].changed
    told = io.StringIO()
    compare_report(allowed, Page(told, width=200))
    assert "After: hand.circle on local (x86_64, 2 cores): 1 thread, float32, " in told.getvalue()


def test_runs_of_other_batches_are_not_compared_and_those_after_another_kernel_are(tmp_path: Path) -> None:
    """The documents are of before inputs were noted: the graph has the shapes."""
    rng = np.random.default_rng(1)
    one, batch, other_kernel = (document(rng, conditions=None) for _ in range(3))
    for made in (one, batch, other_kernel):
        made["fingerprint"]["memory_bytes"] = 25_276_502_016
    graph = batch["graph"]
    graph["tensors"]["shape"][graph["inputs"][0]] = [32, 256]
    other_kernel["fingerprint"]["memory_bytes"] -= 4096
    assert gate(tmp_path, one, batch)[0] == 7
    assert [told.split(":")[0] for told in pair(tmp_path, one, batch).pairs[0].unlike] == ["the shapes differ"]
    assert gate(tmp_path, one, other_kernel, "--sessions", "0%", "--fail-slower", "10%")[0] == 0
    assert pair(tmp_path, one, other_kernel).pairs[0].configurations
    other_kernel["fingerprint"]["memory_bytes"] //= 2
    assert gate(tmp_path, one, other_kernel)[0] == 7


@pytest.mark.parametrize(
    ("setting", "kind"), [({"precision": "bfloat16"}, "precision"), ({"threads": 2}, "threads"), ({"h": 1}, "options")]
)
def test_a_name_with_other_settings_is_another_configuration(tmp_path: Path, setting: Any, kind: str) -> None:
    rng = np.random.default_rng(1)
    # The settings of each tell its threads, so that those that the whole run took need not be equal.
    before, after = document(rng, threads=[1]), document(rng, threads=[1, 2])
    for made in (before, after):
        for column in made["columns"]:
            column["settings"] = {column["label"]: {"precision": "float32", "threads": 1}}
    label = after["columns"][0]["label"]
    after["columns"][0]["settings"][label] |= setting
    (only,) = pair(tmp_path, before, after).pairs
    assert [row.label for row in only.configurations] == [after["columns"][1]["label"]]
    assert only.lost == only.only_before == only.only_after == (label,)
    (told,) = only.unlike
    assert told.startswith(f"{label} differs in {next(iter(setting))}: ")
    assert len(pair(tmp_path, before, after, changed=(kind,)).pairs[0].configurations) == 2


def beside_neighbours(made: dict[str, Any], share: float) -> dict[str, Any]:
    """The document, with so much of the machine taken by others while it was measured."""
    assert made["environments"]
    for part in made["environments"]:
        part["others_share"], part["steal_share"] = share, 0.0
    return made


def test_a_neighbour_of_one_side_alone_is_no_slow_down(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    before, after = beside_neighbours(document(rng), 0.0), beside_neighbours(document(rng, level_us=5400.0), 0.4)
    found = pair(tmp_path, before, after)
    for row in found.pairs[0].configurations:
        assert row.verdict == "unknown"
        assert row.differs


def test_kernels_that_changed_are_named_in_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    before, after = document(rng), document(rng)
    wild = [5.0, 900.0, 6.0, 800.0, 7.0, 700.0]  # it may be slower, and nobody can tell
    for made, factor, last in ((before, 1.0, [10.0] * 6), (after, 1.3, wild)):
        for column in made["columns"]:
            column["runs"]["profile"] = {
                "process": list(range(6)),
                "call_us": [100.0] * 6,
                "name": ["first", "second", "second", "wild"],
                "backend": ["cpu"] * 4,
                "operators": [[0], [1], [2], [3]],
                "wall_us": [
                    (10 * np.exp(0.002 * rng.standard_normal(6))).tolist(),
                    (20 * np.exp(0.002 * rng.standard_normal(6))).tolist(),
                    (30 * factor * np.exp(0.002 * rng.standard_normal(6))).tolist(),
                    last,
                ],
            }
    found = pair(tmp_path, before, after)
    for part in found.pairs[0].operators:
        assert part.compared == 4
        assert [row.label for row in part.changed] == ["second #2"]
        assert all(row.low is not None and row.low > 1 for row in part.changed)
    text = io.StringIO()
    compare_report(found, Page(text, width=100))
    assert "second #2" in text.getvalue()


def test_a_run_is_named_in_every_way(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    record = tmp_path / "record.sqlite"
    context = Context(
        device={}, versions={}, model_digest="0" * 64, model_name="m", options={}, seed=0, gnomon_version="0"
    )
    made = []
    for number in range(2):
        campaign = Campaign(id=f"{number}" * 32, kind="profile", key="k", context=context, started_at_s=float(number))
        with SqliteStore.open(record) as store:
            store.open_campaign(campaign)
        made.append(document(rng, campaign=campaign.id, record=str(record)))
        keep(made[-1], None)
    page = tmp_path / "report.html"
    page.write_text(f"<html><body>{embedded(made[1])}</body></html>", encoding="utf-8")
    named = {
        "last": made[1],
        "last~1": made[0],
        "000": made[0],
        str(page): made[1],
        str(record): made[1],
        written(tmp_path, "run.json", made[0]): made[0],
    }
    for name, expected in named.items():
        assert read_side(name, record).document.document() == expected
    runs = gnomon.compare("last~1", "last", record=record)
    assert runs.pairs == gnomon.compare(tmp_path / "run.json", page).pairs
    assert isinstance(read_document(runs.document()), CompareDocument)
    with pytest.raises(RecordError):
        read_side("last~2", record)
    damaged = Campaign(id="2" * 32, kind="profile", key="k", context=context, started_at_s=2.0)
    with SqliteStore.open(record) as store:
        store.open_campaign(damaged)
        note(store, damaged.id, ANSWER, {"zlib": "!"})
    assert read_side("last~1", record).document.document() == made[0]  # it is passed over, and told where it is named
    with pytest.raises(RecordError, match="damaged"):
        read_side(damaged.id, record)


def earlier(record: Path, made: dict[str, Any], number: int) -> None:
    """Keep a document as what an earlier run found."""
    context = Context(
        device={}, versions={}, model_digest=made["model"]["sha256"], model_name="m", options={}, seed=0,
        gnomon_version="0",
    )  # fmt: skip
    campaign = Campaign(id=f"{number}" * 32, kind="profile", key="k", context=context, started_at_s=float(number))
    with SqliteStore.open(record) as store:
        store.open_campaign(campaign)
    keep({**made, "campaign": campaign.id, "record": str(record)}, None)


def test_damaged_answers_of_the_record_are_passed_over(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    record = tmp_path / "record.sqlite"
    sides = [document(rng, level_us=level, scatter=0.001) for level in (5000.0, 5100.0)]
    told = {"format": "gnomon-profile", "version": 2}
    sound = document(rng, scatter=0.001)
    for number, damaged in enumerate(
        [
            told,
            {**told, "format": ["gnomon-profile"]},
            {**sound, "version": [2]},
            {**sound, "model": None},
            {**sound, "columns": [{"label": "one", "runs": 3}]},
            {**sound, "fingerprint": "none", "package": 3},
            {**sound, "versions": {"onnxruntime": 1}},
        ]
    ):
        digest = sound["model"]["sha256"]
        context = Context(
            device={}, versions={}, model_digest=digest, model_name="m", options={}, seed=0, gnomon_version="0"
        )
        campaign = Campaign(id=f"{number}" * 32, kind="place", key="k", context=context, started_at_s=float(number))
        with SqliteStore.open(record) as store:
            store.open_campaign(campaign)
            note(store, campaign.id, ANSWER, packed(damaged))
    for row in pair(tmp_path, *sides, record=record).pairs[0].configurations:
        assert row.sessions.known_by == "assumed"
    with pytest.raises(RecordError, match="damaged"):
        read_side("last", record)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "plan.json").write_text("{}")
    with pytest.raises(RecordError, match="no run that wrote"):
        read_side(str(tmp_path / "package"), record)
    for named in ("0000", "4444"):
        with pytest.raises(RecordError):
            read_side(named, record)


def test_earlier_runs_of_one_process_tell_nothing_and_count_for_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    record = tmp_path / "record.sqlite"
    sides = [document(rng, level_us=level, scatter=0.001) for level in (5000.0, 5100.0)]
    for number in range(6):
        earlier(record, document(rng, scatter=0.001, processes=1), number)
    found = pair(tmp_path, *sides, record=record, sessions=0.02)
    for row in found.pairs[0].configurations:
        assert (row.verdict, row.sessions.known_by) == ("unknown", "assumed")
        assert (row.sessions.runs, row.sessions.needed) == (0, 5)
    lines = [part for part in comparison(found).parts if isinstance(part, Line)]
    assert any("2.0 % is assumed" in one.text and "Measure it 5 more times" in one.advice for one in lines)


def test_earlier_runs_of_the_record_widen_the_interval(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    record = tmp_path / "record.sqlite"
    sides = [document(rng, level_us=level, scatter=0.001) for level in (5000.0, 5100.0)]
    assert {row.verdict for row in pair(tmp_path, *sides, record=None).pairs[0].configurations} == {"slower"}
    for number, level in enumerate((5000.0, 5150.0, 4850.0, 5080.0, 4930.0)):
        earlier(record, document(rng, level_us=level, scatter=0.001), number)
    for row in pair(tmp_path, *sides, record=record).pairs[0].configurations:
        assert row.verdict == "unknown"
        assert row.moved > 0.01
        assert row.sessions.known_by == "model"
        assert row.sessions.runs == 5
        assert row.sessions.spread == pytest.approx(0.022, rel=0.2)
    # Another model of which nothing else is known there is judged by these.
    for side in sides:
        side["model"]["sha256"] = "ef" * 32
    for row in pair(tmp_path, *sides, record=record).pairs[0].configurations:
        assert (row.verdict, row.sessions.known_by) == ("unknown", "machine")
    sides[1]["fingerprint"]["governor"] = sides[0]["fingerprint"]["governor"] = "another"
    for row in pair(tmp_path, *sides, record=record).pairs[0].configurations:
        assert (row.verdict, row.sessions.known_by) == ("slower", "assumed")


def test_without_earlier_runs_sessions_are_taken_to_differ(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    empty = tmp_path / "record.sqlite"
    empty.touch()
    for factor, verdict in ((1.03, "unknown"), (1.15, "slower"), (0.85, "faster")):
        sides = [document(rng, level_us=5000.0 * by, scatter=0.001) for by in (1.0, factor)]
        found = pair(tmp_path, *sides, record=empty, sessions=0.02)
        for row in found.pairs[0].configurations:
            assert row.verdict == verdict
            assert (row.sessions.known_by, row.sessions.needed) == ("assumed", 5)
            assert row.moved == 0
        text = io.StringIO()
        compare_report(found, Page(text, width=100))
        told = " ".join(text.getvalue().split())
        assert "would decide" not in told, "more runs may show that sessions differ"
        assert ("2.0 % is assumed" in told) == (verdict == "unknown")
    assert pair(tmp_path, *sides, record=empty, sessions=0.0).pairs[0].configurations[0].verdict == "faster"


def crashed(made: dict[str, Any], *labels: str) -> dict[str, Any]:
    """The document, in which configurations have no samples."""
    made = copy.deepcopy(made)
    for column in made["columns"]:
        if column["label"] in labels:
            column["runs"]["samples"] = {name: [] for name in column["runs"]["samples"]} | {"cpu_us": None}
    return made


def gate(tmp_path: Path, before: dict[str, Any], after: dict[str, Any], *more: str) -> tuple[int, ElementTree.Element]:
    """What a gate of 3 % answers, and its JUnit."""
    names = [written(tmp_path, "a.json", before), written(tmp_path, "b.json", after)]
    words = ["compare", *names, "--fail-slower", "3%", "--junit", str(tmp_path / "junit.xml"), *more]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    suite = ElementTree.fromstring((tmp_path / "junit.xml").read_text(encoding="utf-8"))  # noqa: S314 - our own
    kinds = {"tests": "testcase", "failures": ".//failure", "errors": ".//error", "skipped": ".//skipped"}
    for count, kind in kinds.items():
        assert int(suite.get(count, -1)) == len(suite.findall(kind))
    return done.return_value, suite


@pytest.mark.parametrize("labels", [("onert:cpu",), ("onert:ruy", "onert:cpu")])
def test_what_was_measured_before_and_not_after_is_no_passed_gate(tmp_path: Path, labels: tuple[str, ...]) -> None:
    made = document(np.random.default_rng(6))
    code, suite = gate(tmp_path, made, crashed(made, *labels), "--markdown", str(tmp_path / "comment.md"))
    assert code == 1
    assert [case.get("name") for case in suite.findall("testcase") if case.find("failure") is not None] == list(labels)
    comment = (tmp_path / "comment.md").read_text(encoding="utf-8")
    assert all(f"- measured only before: {label}\n" in comment for label in labels)
    assert "Not measured after: " in comment.splitlines()[0]
    code, suite = gate(
        tmp_path, crashed(made, *labels), made | {"campaign": "b" * 32}, "--sessions", "0%", "--fail-slower", "50%"
    )
    assert code == (7 if len(labels) == 2 else 0) and len(suite.findall(".//skipped")) >= len(labels)


@pytest.mark.parametrize("factor", [1.0, 1.05, 1.2, 1000.0])
def test_a_gate_without_power_is_not_green(tmp_path: Path, factor: float) -> None:
    """Of one process a side, and of sessions of which nothing is known, nothing passes."""
    for processes, more in ((1, ("--sessions", "0%")), (10, ())):
        rng = np.random.default_rng(6)
        before, after = (document(rng, level_us=5000.0 * by, processes=processes) for by in (1.0, factor))
        code, suite = gate(tmp_path, before, after, *more)
        assert code == (1 if processes > 1 and factor > 1.1 else 10)
        assert len(suite.findall(".//error" if code == 10 else ".//failure")) == len(suite.findall("testcase")) > 0
        told = CliRunner().invoke(cli, ["compare", *(str(tmp_path / f"{x}.json") for x in "ab"), "--fail-slower", "3%"])
        assert ("gnomon compare OLD NEW --fail-slower 3%" in " ".join(told.stdout.split())) == (code == 10)
    if code == 10:
        assert gate(tmp_path, before, after, "--undecided", "warn")[0] == 0


def test_a_plan_that_is_not_made_again_is_no_loss(tmp_path: Path) -> None:
    found = pair(tmp_path, *(placed(labels) for labels in (("onert:cpu", "plan"), ("onert:cpu",))))
    assert (found.pairs[0].only_before, found.missing()) == (("plan",), ())


def placed(labels: Sequence[str]) -> dict[str, Any]:
    """The document of a placement with contenders of these names, of which "plan" is one."""
    made: dict[str, Any] = placement().document()
    row = next(one for one in made["contenders"] if one["kind"] == "single" and one["runs"]["samples"]["process"])
    made["contenders"] = [
        {**copy.deepcopy(row), "label": label, "kind": "plan" if label == "plan" else "single"} for label in labels
    ]
    return made


def test_a_gate_that_compared_nothing_does_not_pass(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    before, after = document(rng), document(rng)
    after["fingerprint"]["cpu_model"] = "another"
    code, suite = gate(tmp_path, before, after)
    assert code == 7 and len(suite.findall(".//skipped")) == len(suite.findall(".//failure")) == 1
    assert CliRunner().invoke(cli, ["compare", *(str(tmp_path / f"{x}.json") for x in "ab")]).exit_code == 0


def test_where_cpu_time_counts_in_ticks_that_saw_nothing_wall_time_compares(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    before, after = document(rng), document(rng, level_us=6500.0)
    for column in after["columns"]:
        samples = column["runs"]["samples"]
        samples["cpu_us"] = [[0.0] * 20, *samples["wall_us"][1:]]
    found = pair(tmp_path, before, after)
    assert found.pairs[0].clock == "wall"
    assert {(row.verdict, row.processes) for row in found.pairs[0].configurations} == {("slower", (12, 12))}


def test_what_has_no_time_at_all_is_told_as_not_measured(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    before, after = document(rng), document(rng)
    samples = after["columns"][0]["runs"]["samples"]
    samples["cpu_us"] = samples["wall_us"] = [[0.0] * 20] * 12
    found = pair(tmp_path, before, after)
    assert found.missing() == found.pairs[0].only_before == (after["columns"][0]["label"],)


Damage = Callable[[dict[str, Any], dict[str, Any]], object]
DAMAGES: dict[str, Damage] = {
    "12 blocks in one column and 13": lambda samples, profile: samples["process"].append(12),
    "0 blocks in one column and 12": lambda samples, profile: samples["started_at_s"].clear(),
    "without samples": lambda samples, profile: samples["wall_us"][0].clear(),
    "times of calls": lambda samples, profile: samples["wall_us"][0].insert(0, -1.0),
    "number of a process": lambda samples, profile: samples["process"].__setitem__(0, 10**400),
    "moments": lambda samples, profile: samples["started_at_s"].__setitem__(0, 1e308),
    "kernels in one column": lambda samples, profile: profile["name"].pop(),
    "processes in one column": lambda samples, profile: profile["process"].pop(),
    "times of kernels": lambda samples, profile: profile["wall_us"][0].__setitem__(0, -1.0),
}


@pytest.mark.parametrize("told", DAMAGES)
def test_columns_that_do_not_fit_are_told(tmp_path: Path, told: str) -> None:
    made = document(np.random.default_rng(1))
    profile = {"process": [0, 1], "call_us": [9.0, None], "name": ["k"], "backend": ["cpu"], "operators": [[0]]}
    runs = made["columns"][0]["runs"]
    runs["profile"] = {**profile, "wall_us": [[9.0, None]]}
    pair(tmp_path, made, made | {"campaign": "b" * 32})
    DAMAGES[told](runs["samples"], runs["profile"])
    with pytest.raises(RecordError, match=told):
        pair(tmp_path, document(np.random.default_rng(1)), made)


def test_markdown_shows_foreign_names_as_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    before, after = document(rng), document(rng, level_us=6500.0)
    for made in (before, after):
        made["columns"][0]["label"] = "![x](http://e/x.png) `a` *b* \ud800"
    comment = pair(tmp_path, before, after).to_markdown()
    assert r"!\[x\](http://e/x.png) \`a\` \*b\* \\ud800" in comment and "![x]" not in comment
    after["fingerprint"]["cpu_model"] = "<img src=http://e/x.png>\n# hi"
    comment = pair(tmp_path, before, after).to_markdown()
    assert "<" not in comment and r"&lt;img src=http://e/x.png>\\n# hi" in comment.splitlines()[0]


def test_a_kernels_name_stays_in_its_line(tmp_path: Path) -> None:
    found = pair(tmp_path, *(document(np.random.default_rng(seed)) for seed in range(2)))
    row = replace(found.pairs[0].configurations[0], label="`\n# hi\ud800")
    part = OperatorsPart(label="# c", compared=1, changed=(row,))
    text = markdown(replace(found, pairs=(replace(found.pairs[0], operators=(part,)),)))
    assert text.splitlines()[-1].startswith(r"In # c, 1 of 1 kernels changed, the first: `\n# hi\ud800` (")
    assert text.encode()


@pytest.mark.parametrize(
    "options",
    [{"alpha": 0.0}, {"alpha": math.nan}, {"relevant": -2.0}, {"relevant": math.nan}, {"sessions": -0.1}],
)
def test_what_no_probability_or_share_can_be_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        pair(tmp_path, *(document(np.random.default_rng(1)) for _ in range(2)), **options)


def test_a_word_that_no_file_can_be_named_by_is_sought_in_the_record(tmp_path: Path) -> None:
    record = tmp_path / "record.sqlite"
    SqliteStore.open(record).close()
    for word in ("a" * 300, "a" * 300 + "#2", "a\0b"):
        with pytest.raises(RecordError, match="the results database is empty"):
            read_side(word, record)
    with pytest.raises(RecordError, match="name too long"):
        read_side("last", Path("a" * 300))


def test_elements_that_do_not_end_are_read_once() -> None:
    """Each step goes on from the last one: what is searched is no more than the page, whatever it repeats."""
    made = document(np.random.default_rng(1))
    page = f"<SCRIPT>if (a<b) {{}}</SCRIPT>{embedded(made)}{embedded({**made, 'run': 2}, 2)}{embedded(made, 2)}"
    found = _embedded_in(page)
    assert list(found) == [1, 2] and json.loads(page[found[1]]) == made and json.loads(page[found[2]])["run"] == 2
    for repeated in ("<script", '<script id="gnomon-document">', "<script id=", '<script id="gnomon-document-2" '):
        assert _embedded_in(repeated * 200_000) == {}


@pytest.mark.parametrize("content", ["", "[]", '{"format": "gnomon-profile"}', "<html></html>"])
def test_what_is_no_run_is_told(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(GnomonError) as told:
        read_side(str(path), None)
    assert isinstance(told.value, (UsageError, ProblemError, RecordError))


def test_a_run_is_not_compared_with_itself(tmp_path: Path) -> None:
    made = document(np.random.default_rng(6), campaign="198f6d3a" * 4)
    with pytest.raises(UsageError, match="both sides are the run 198f6d3a") as told:
        pair(tmp_path, made, made)
    assert told.value.hint


def test_two_configurations_of_one_label_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    before, after = document(rng), document(rng)
    after["columns"] = [*after["columns"], after["columns"][0]]
    with pytest.raises(UsageError, match=r"b\.json has .* more than once"):
        pair(tmp_path, before, after)


def test_the_command_fails_a_build_and_writes_every_form(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    before = written(tmp_path, "a.json", document(rng))
    after = written(tmp_path, "b.json", document(rng, level_us=6500.0))
    files = {name: tmp_path / name for name in ("junit", "markdown", "action-benchmark", "bencher")}
    words = ["compare", before, after, *(word for name, path in files.items() for word in (f"--{name}", str(path)))]
    done = CliRunner().invoke(cli, [*words, "--fail-slower", "3%"], standalone_mode=False)
    assert done.return_value == 1, done.output
    assert "slower" in done.stdout
    suite = ElementTree.fromstring(files["junit"].read_text(encoding="utf-8"))  # noqa: S314 - our own
    assert int(suite.get("failures", 0)) == len(suite.findall("testcase/failure")) > 0
    forms = [one.get("message", "") for one in suite.findall("testcase/failure")]
    assert all("would have been detected" in form for form in (*forms, files["markdown"].read_text(encoding="utf-8")))
    assert "| slower |" in files["markdown"].read_text(encoding="utf-8")
    rows = json.loads(files["action-benchmark"].read_text(encoding="utf-8"))
    assert all(row["unit"] == "us" and row["value"] == pytest.approx(6500, rel=0.02) for row in rows)
    metrics = json.loads(files["bencher"].read_text(encoding="utf-8"))
    assert all(one["latency"]["value"] == pytest.approx(6.5e6, rel=0.02) for one in metrics.values())
    for limit, code in (("40%", 1), ("60%", 0)):
        assert CliRunner().invoke(cli, [*words, "--fail-slower", limit], standalone_mode=False).return_value == code
    assert CliRunner().invoke(cli, ["compare", before]).exit_code != 0
    assert CliRunner().invoke(cli, ["compare", before, after, "--fail-slower", "0.03"]).exit_code == 2
