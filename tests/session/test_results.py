"""What the functions return can be copied, sent to another process and printed: it is data."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.cli.placement_kit import placement, profiled
from tests.jobs.estimator import estimator_kit
from tests.jobs.overlay.test_overlay_analyze import analysis
from tests.jobs.place.fleet_kit import device
from tests.jobs.place.test_fleet_text import fleet
from tests.jobs.space.kits.studykit import LAYERS, accuracy, latency, study, synthetic

import gnomon
from gnomon.api.estimator import fit_estimator
from gnomon.jobs.table.document import table_document
from gnomon.jobs.table.folder import read_table

MOST_LETTERS = 2000


def sent(result: Any) -> Any:
    """The result as another process gets it."""
    return pickle.loads(pickle.dumps(result))  # noqa: S301 - of this very process


def check(result: Any) -> None:
    """It deep-copies, pickles, becomes a dictionary, and has a short text."""
    for again in (copy.deepcopy(result), sent(result)):
        assert type(again) is type(result)
        assert repr(again) == repr(result)
    assert dataclasses.asdict(result)
    assert len(repr(result)) < MOST_LETTERS


def test_a_placement_and_a_profile() -> None:
    check(placement())
    check(profiled())


@pytest.mark.usefixtures("short_visits", "few_runtimes")
def test_what_a_real_model_came_to(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnxruntime]'")
    model, record = Path(__file__).resolve().parents[2] / "docs" / "examples" / "digits.onnx", tmp_path / "r.sqlite"
    check(gnomon.profile(model, record=record, runtimes=["onnxruntime"], processes=1, budget_s=1.0, threads=1))
    for row in (*gnomon.runs(record=record).campaigns, *gnomon.check_devices("local").devices):
        check(row)


def test_a_solved_problem() -> None:
    slots = [{"name": f"op{k}", "choices": ["a", "b"], "cost": [[1.0], [2.0]]} for k in range(500)]
    problem = {"format": "gnomon-problem", "version": 1, "objectives": [{"name": "time", "unit": "s"}], "slots": slots}
    check(gnomon.solve(problem))


def test_the_front_of_a_dump(tmp_path: Path) -> None:
    rows = [{"id": n, "time": 40.0 - n, "memory": 100 + n} for n in range(27)]
    (tmp_path / "d.json").write_text(json.dumps({"oplist": ["Conv2D", "Pool2D", "Add"], "solutions": rows}))
    check(gnomon.pareto(source=tmp_path / "d.json", search="brute"))


def test_what_describes_a_space_and_an_estimator(tmp_path: Path) -> None:
    check(gnomon.suggest_nets(count=2, space="nasbench201", out=tmp_path / "n.csv"))
    space, table, name = estimator_kit.kit(tmp_path)
    samples = estimator_kit.save(estimator_kit.measured(space, 20), space, tmp_path / "s.csv")
    check(fit_estimator(table=table, space=name, samples=samples, out=tmp_path / "e.json"))
    estimator = gnomon.load_estimator(tmp_path / "e.json", name)
    # A space of one's own is pickled if its blocks are, which are not these: they are closures.
    assert dataclasses.asdict(copy.deepcopy(estimator))
    assert len(repr(estimator)) < MOST_LETTERS


def test_a_fleet() -> None:
    placements = {"board": device("board", {"cpu": 70}), "far": device("far", {"cpu": 80})}
    check(fleet(placements, "phone"))


def test_a_table_that_was_built(tmp_path: Path) -> None:
    _, table, _ = estimator_kit.kit(tmp_path)
    check(
        dataclasses.replace(
            table_document(read_table(table), table, ()), measured=3, doubts=(), campaign="0123", seconds=1.0
        )
    )


def test_a_selection(tmp_path: Path) -> None:
    synthetic(tmp_path / "p", study(LAYERS), accuracy, latency)
    check(gnomon.select_primitives(tmp_path / "p", rule="published", output=tmp_path / "o.yaml"))


def test_an_analysis(tmp_path: Path) -> None:
    check(analysis(tmp_path, {"dense": {None: (3.0, 3.0), 0: (1.0, 2.0), 1: (2.0, 1.0)}}))
