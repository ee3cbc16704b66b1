"""`pareto` over dumps and for real: what is searched, found, deployed and taken up again."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.bad_days.livekit import add_circle, matmul_onnx

from gnomon.core.front.dominance import dominates
from gnomon.core.space import Slot, Space
from gnomon.errors import MeasurementError, ProblemError, RuntimeMissingError, UsageError
from gnomon.formats.pareto.dump import read_dump
from gnomon.jobs.pareto import search as pareto_search
from gnomon.jobs.pareto.document import ParetoDocument
from gnomon.jobs.pareto.job import pareto
from gnomon.jobs.pareto.search import ParetoRequest, Plan, search, search_parts
from gnomon.jobs.pareto.space import Evaluator
from gnomon.measure.effort import Effort
from gnomon.search.base import Assignment, Cost
from gnomon.session.request import THIS_MACHINE, ModelRequest

TYPES = ("Conv2D", "Pool2D", "Reshape", "Softmax")


def write_dump(path: Path, *, backends: int = 2, slots: int = 4, missing: int = 0, seed: int = 3) -> Path:
    """A brute force's dump of synthetic figures with a real trade-off; `missing` codes are left out."""
    rng = np.random.default_rng(seed)
    speed = rng.integers(1, 40, (slots, backends))
    solutions = []
    space = Space(tuple(Slot(name, tuple(map(str, range(backends)))) for name in TYPES[:slots]))
    for code in range(space.size):
        digits = space.decode(code)
        time = float(sum(speed[k, d] for k, d in enumerate(digits)))
        memory = 40_000 + sum(30_000 * d * d for d in set(digits)) + 500 * int(np.sum(digits))
        solutions.append({"memory": int(memory), "id": code, "time": time})
    kept = solutions[missing:]
    names = ["cpu", "acl_cl", "acl_neon"][:backends]
    path.write_text(json.dumps({"oplist": list(TYPES[:slots]), "solutions": kept, "backends": names}))
    return path


def true_front(path: Path) -> dict[int, tuple[float, float]]:
    """The non-dominated points of a dump, by going through all pairs."""
    rows = [(r["id"], (r["time"] * 1e-3, r["memory"] * 1024.0)) for r in json.loads(path.read_text())["solutions"]]
    return {code: cost for code, cost in rows if not any(dominates(other, cost) for _, other in rows)}


@pytest.mark.parametrize(("name", "backends"), [("exhaustive", 3), ("random", 2)])
def test_a_search_that_went_through_all_finds_the_true_front(tmp_path: Path, name: str, backends: int) -> None:
    path = write_dump(tmp_path / "d.json", backends=backends)
    plan = Plan(name=name, iterations=backends**4 if name == "random" else None)
    found = pareto(ParetoRequest(source=path, plan=plan))
    truth = true_front(path)
    assert {tuple(e.value for e in p.estimates or ()) for p in found.front} == set(truth.values())
    assert {int(p.code) for p in found.front} <= set(truth)
    assert [p.number for p in found.points] == list(range(1, len(found.points) + 1))
    assert {(row["latency_s"], row["peak_memory_B"]) for row in found.brief_rows()} == set(truth.values())
    assert found.certificate == "complete"
    assert not found.proved
    assert len(found.samples) == backends**4
    steps = itertools.pairwise(volume or 0.0 for volume in found.search.volume)
    assert all(after >= before - 1e-12 for before, after in steps)


@pytest.mark.parametrize("name", ["random", "hlps", "nsga2"])
def test_every_search_runs_on_recorded_data_and_is_repeatable(tmp_path: Path, name: str) -> None:
    if name == "nsga2":
        pytest.importorskip("pymoo")
    path = write_dump(tmp_path / "d.json", backends=3)
    asked = ParetoRequest(source=path, plan=Plan(name=name, seed=4, iterations=30))
    first, second = pareto(asked), pareto(asked)
    assert first.samples == second.samples
    assert len(first.samples) == 30
    assert first.certificate == "heuristic"
    # What it calls the front is not dominated by anything that it saw.
    seen = [tuple(c for c in sample.cost if c is not None) for sample in first.samples if sample.cost]
    for point in first.front:
        cost = tuple(e.value for e in point.estimates or ())
        assert cost in seen
        assert not any(dominates(other, cost) for other in seen)


def test_several_searches_are_compared_in_one_box(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "d.json", backends=3)
    plans = [
        Plan(name=name, seed=1, iterations=None if name == "brute" else 12) for name in ("random", "hlps", "brute")
    ]
    alone = [pareto(ParetoRequest(source=path, plan=plan)) for plan in plans]
    found = pareto(ParetoRequest(source=path, plan=plans[0], others=tuple(plans[1:])))
    assert [s.evaluations for s in found.searches] == [len(a.samples) for a in alone]
    assert {s.code for s in found.samples} == {s.code for each in alone for s in each.samples}
    assert len({s.reference for s in found.searches}) == 1
    # In the box of all results, what goes through all ends at the most, and no other one beyond it.
    last = [s.volume[-1] or 0.0 for s in found.searches]
    assert last[2] == max(last) == pytest.approx(alone[2].search.volume[-1])
    assert [p.code for p in found.front] == [p.code for p in alone[2].front]
    assert len({s.code for s in found.samples}) == len(found.samples) == 81
    assert found.certificate == "complete"


def test_what_a_dump_lacks_counts_as_failed_and_is_told(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "d.json", missing=3)
    found = pareto(ParetoRequest(source=path, plan=Plan(name="brute")))
    assert sum(sample.cost is None for sample in found.samples) == found.search.failed == 3
    assert found.certificate == "heuristic"
    assert any(d.kind == "lacking" and "3 of the 16" in d.message for d in found.doubts)


def test_backends_that_never_occur_in_a_slot_are_not_searched(tmp_path: Path) -> None:
    rows = [{"memory": 100 + d, "id": d, "time": 9.0 - d} for d in (0, 1)]  # the second slot stays on the first
    path = tmp_path / "d.json"
    path.write_text(json.dumps({"oplist": ["Conv2D", "Add"], "solutions": rows, "backends": ["cpu", "ruy"]}))
    found = pareto(ParetoRequest(source=path, plan=Plan(name="brute")))
    assert (found.space.size, found.space.codes) == ("2", "4")
    assert {p.code for p in found.front} == {"0", "1"}
    assert found.certificate == "complete"


def test_a_dump_of_a_search_holds_what_was_looked_at(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "d.json", backends=3)
    out = tmp_path / "again.json"
    found = pareto(ParetoRequest(source=path, plan=Plan(name="random", iterations=7, seed=2), dumpfile=out))
    again = read_dump(out.read_bytes())
    assert again.spelling == "sampler"
    assert {row.id for row in again.solutions} == {int(sample.code) for sample in found.samples}
    assert again.backends == ("cpu", "acl_cl", "acl_neon")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"plan": Plan(name="magic")}, "magic"),
        ({"objectives": ("latency", "beauty")}, "beauty"),
        ({"objectives": ()}, "no objective"),
        ({"objectives": ("latency", "output-error")}, "does not contain output-error"),
        ({"objectives": ("latency", "energy")}, "does not contain energy"),
        ({"plan": Plan(name="exact")}, "needs operator prices"),
        ({"others": (Plan(name="magic"),)}, "magic"),
        ({"others": (Plan(name="exact"),)}, "its own prices"),
        ({"plan": Plan(name="brute"), "others": (Plan(name="exhaustive"),)}, "twice"),
        ({"objectives": ("memory",)}, "memory"),
        ({"under": {"beauty": 1.0}}, "no objective 'beauty'"),
        ({"pick": 1}, "no model"),
        ({"pick": 0}, "no point 0"),
        ({"under": {"cpu-time": 1.0}}, "not among the objectives"),
        ({"pick": 1, "under": {"latency": 1.0}}, "cannot be combined"),
    ],
)
def test_what_cannot_be_meant_is_told_first(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    asked = replace(ParetoRequest(source=write_dump(tmp_path / "d.json")), **change)
    with pytest.raises(UsageError, match=word) as told:
        pareto(asked)
    assert told.value.hint


def test_a_search_that_lacks_a_package_is_told_before_any_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(name: str) -> None:
        if name == "nsga2":
            raise RuntimeMissingError("no pymoo", hint="pip install it")

    monkeypatch.setattr(pareto_search, "load_strategy", lacking)
    monkeypatch.setattr(pareto_search, "make_strategy", lambda *_, **__: pytest.fail("a search began"))
    asked = ParetoRequest(source=write_dump(tmp_path / "d.json"), others=(Plan(name="nsga2"),))
    with pytest.raises(RuntimeMissingError, match="no pymoo"):
        pareto(asked)


def test_dumps_that_cannot_be_searched(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="cannot be read"):
        pareto(ParetoRequest(source=tmp_path / "none.json"))
    empty = tmp_path / "empty.json"
    empty.write_text('{"oplist": ["Add"], "solutions": [], "backends": ["cpu", "ruy"]}')
    with pytest.raises(ProblemError, match="no solution"):
        pareto(ParetoRequest(source=empty))
    with pytest.raises(UsageError, match="cannot be written"):
        pareto(ParetoRequest(source=empty, dumpfile=tmp_path / "no" / "where.json"))
    data = json.loads(write_dump(tmp_path / "d.json").read_text())
    data["solutions"] = [r for r in data["solutions"] if r["id"] in (3, 12)]
    (tmp_path / "d.json").write_text(json.dumps(data))
    with pytest.raises(MeasurementError, match="has none of the"):
        pareto(ParetoRequest(source=tmp_path / "d.json", plan=Plan(name="brute", iterations=1)))


def test_volume_counts_failures_as_nothing() -> None:
    space = Space((Slot("a", ("0", "1", "2", "3")),))
    costs: dict[tuple[int, ...], Cost | None] = {(0,): (4.0, 1.0), (1,): None, (2,): (1.0, 4.0), (3,): (5.0, 5.0)}
    found = search(space, Plan(name="brute"), costs.__getitem__)
    volume = [share or 0.0 for share in search_parts([Plan(name="brute")], [found])[0].volume]
    assert len(volume) == 4
    assert volume[0] == volume[1] < volume[2] == volume[3]
    assert [t.assignment for t in found.front] == [(2,), (0,)]
    assert found.complete


# For real


def check_package(folder: Path, code: int) -> None:
    """The package holds the assignment of that code, over two backends, and the planner."""
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["job"]["segments"][0]["options"]["settings"]["CPU_MEMORY_PLANNER"] == "Bump"
    assert code == sum((row["backend"] == "ruy") << k for k, row in enumerate(plan["operators"]))
    assert "CPU_MEMORY_PLANNER=Bump" in (folder / "nnpackage" / "metadata" / "config.cfg").read_text()


def test_a_search_that_was_ended_goes_on_and_its_pick_is_deployed(
    tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "add.circle"
    model.write_bytes(add_circle())
    request = ModelRequest(
        model=model,
        runtimes=("onert",),
        effort=replace(small, processes_least=2, processes_most=2),
        record=tmp_path / "record.sqlite",
    )
    asked = ParetoRequest(
        request=request,
        by="operator",
        options={"planner": ("Bump",)},
        plan=Plan(name="brute"),
        under={"peak-memory": 1e12},
        out=tmp_path / "package",
        dumpfile=tmp_path / "dump.json",
    )
    evaluate = Evaluator.__call__
    done: list[Assignment] = []

    def ended(self: Evaluator, assignment: Assignment) -> Cost | None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(assignment)
        return evaluate(self, assignment)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "__call__", ended)
        with pytest.raises(KeyboardInterrupt):
            pareto(asked)
    found = pareto(asked)
    assert found.resumed
    assert found.search.replayed == 2
    # Two convolutions on either backend; ruy does not take the addition.
    assert sorted(sample.code for sample in found.samples) == ["0", "1", "4", "5"]
    assert found.certificate == "complete"
    assert found.proved
    assert {p.code for p in found.points} == {"0", "1", "4", "5"}  # all of them fit
    assert found.front
    for point in found.front:
        assert all(e.value > 0 for e in point.estimates or ())
    assert found.verified is not None
    assert found.verified.ok
    (chosen,) = (point for point in found.front if point.number == found.chosen)
    check_package(tmp_path / "package", int(chosen.code))
    dump = read_dump((tmp_path / "dump.json").read_bytes())
    assert dump.mode == "index"
    assert dump.spelling == "brute-force"
    assert {row.id for row in dump.solutions} == {0, 1, 4, 5}
    offline = pareto(ParetoRequest(source=tmp_path / "dump.json", plan=Plan(name="brute")))
    assert {p.code for p in offline.front} <= {"0", "1", "4", "5"}
    check_known(asked, found)


def check_known(asked: ParetoRequest, found: ParetoDocument) -> None:
    """The same again measures no more than the package, and from the record alone it says the same."""
    again = pareto(replace(asked, overwrite=True))
    assert again.search.replayed == 4
    assert [p.estimates for p in again.front] == [p.estimates for p in found.front]
    assert asked.request is not None
    recorded = pareto(replace(asked, request=replace(asked.request, measure=False), under={}, dumpfile=None))
    assert recorded.proved
    assert recorded.chosen is None
    assert [p.estimates for p in recorded.front] == [p.estimates for p in found.front]


def test_single_backends_are_measured_beside_what_the_prices_say(tmp_path: Path, small: Effort) -> None:
    model = tmp_path / "add.circle"
    model.write_bytes(add_circle())
    effort = replace(small, processes_least=2, processes_most=2)
    request = ModelRequest(model=model, runtimes=("onert",), effort=effort, record=tmp_path / "record.sqlite")
    found = pareto(ParetoRequest(request=request, by="operator", plan=Plan(name="exact")))
    # cpu takes all three operators, ruy two of them.
    singles = {p.choices: p for p in found.points if p.single}
    assert singles.keys() == {("cpu", "cpu", "cpu"), ("ruy", "cpu", "ruy")}
    for point in singles.values():
        assert point.estimates is not None
        assert point.sampled is not None
        assert all((cost or 0.0) > 0 for cost in point.sampled)
    assert found.left_out == 0
    assert {sample.code for sample in found.samples} <= {p.code for p in found.points}


def test_a_point_of_a_runtime_that_takes_a_model_whole_is_deployed(tmp_path: Path, small: Effort) -> None:
    model = tmp_path / "product.onnx"
    model.write_bytes(matmul_onnx())
    request = ModelRequest(model=model, runtimes=("onnxruntime",), effort=small, record=tmp_path / "record.sqlite")
    asked = ParetoRequest(
        request=request,
        options={"threads": ("1", "2")},
        plan=Plan(name="brute"),
        under={"latency": 60.0},
        out=tmp_path / "package",
    )
    found = pareto(asked)
    assert found.verified is not None
    assert found.verified.ok


def test_nothing_is_measured_where_the_wish_cannot_be(tmp_path: Path, small: Effort) -> None:
    model = tmp_path / "add.circle"
    model.write_bytes(add_circle())
    request = ModelRequest(model=model, runtimes=("onert",), effort=small, record=tmp_path / "record.sqlite")
    with pytest.raises(UsageError, match="no setting 'colour'"):
        pareto(ParetoRequest(request=request, options={"colour": ()}))
    with pytest.raises(UsageError, match="not a value of the setting planner"):
        pareto(ParetoRequest(request=request, options={"planner": ("best",)}))
    nowhere = replace(request, model=tmp_path / "none.circle", device=replace(THIS_MACHINE, python="/no/python"))
    for values in ((), ("1", "2")):  # known before a model or a device is looked at
        with pytest.raises(UsageError, match="cannot store threads"):
            pareto(ParetoRequest(request=nowhere, options={"threads": values}, dumpfile=tmp_path / "d.json"))
    with pytest.raises(UsageError, match="needs additive prices"):
        pareto(ParetoRequest(request=request, objectives=("output-error",), plan=Plan(name="exact")))
