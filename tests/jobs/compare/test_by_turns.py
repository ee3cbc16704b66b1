"""Models measured by turns and compared: a real runtime, the command line, and what is refused."""

from __future__ import annotations

import copy
import io
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.jobs.compare.test_compare import beside_neighbours, document, pair

import gnomon
from gnomon.cli.main import cli, run
from gnomon.errors import DeviceError, GnomonError, ModelError, RuntimeMissingError, UsageError
from gnomon.jobs.compare.job import levels_of
from gnomon.jobs.compare.report import compare_report
from gnomon.jobs.compare.sides import read_side
from gnomon.report.page import Page


def chain(path: Path, products: int) -> Path:
    """A model of equal matrix products, one after the other, of which a call takes most of its time."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    names = ["x", *(f"t{k}" for k in range(1, products)), "y"]
    weight = numpy_helper.from_array(np.eye(96, dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", [names[k], "w"], [names[k + 1]], name=f"m{k}") for k in range(products)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [32, 96]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.usefixtures("short_visits")
def test_models_are_measured_by_turns_and_each_is_a_run_of_its_own(tmp_path: Path) -> None:
    old, new = chain(tmp_path / "old.onnx", 20), chain(tmp_path / "new.onnx", 400)
    path = tmp_path / "record.sqlite"
    words = ["compare", str(old), str(new), "--runtime", "onnxruntime", "--processes", "4", "--quiet"]
    record = ["--record", str(path), "--fail-slower", "3%"]
    told = CliRunner().invoke(cli, [*words, *record], standalone_mode=False)
    assert told.return_value == 1
    assert "Measured by turns" in told.stdout and "Before: old.onnx" in told.stdout
    words = ["compare", "last~1", "last", *record]
    made = CliRunner().invoke(cli, words, standalone_mode=False)
    assert made.return_value == 1 and made.stdout == told.stdout, "by turns is known from the runs alone"
    found = gnomon.compare("last~1", "last", record=path)
    (row,) = found.pairs[0].configurations
    assert row.verdict == "slower" and row.ratio > 5 and row.processes == (4, 4)
    assert row.sessions is not None and row.sessions.known_by == "turns"
    answers = [gnomon.answer_of_run(side.campaign, record=path) for side in found.sides]
    assert [Path(one["model"]["path"]).name for one in answers if one] == ["old.onnx", "new.onnx"]
    assert all(one and one["turns"] == [side.campaign for side in found.sides] for one in answers)
    sides = [read_side(side.campaign, path) for side in found.sides]
    moments = [levels_of(row.runs.samples, "wall").moments_s for side in sides for row in side.configurations.values()]
    assert [side for _, side in sorted((t, k) for k in (0, 1) for t in moments[k])] == [0, 1, 1, 0, 0, 1, 1, 0]


@pytest.mark.usefixtures("short_visits")
def test_a_model_beside_itself_is_two_runs(tmp_path: Path) -> None:
    model, record = chain(tmp_path / "m.onnx", 20), tmp_path / "record.sqlite"
    found = gnomon.compare(model, model, record=record, runtimes=("onnxruntime",), processes=2)
    assert found.sides[0].campaign != found.sides[1].campaign
    assert found.pairs[0].configurations[0].processes == (2, 2)


@pytest.mark.usefixtures("short_visits")
def test_models_are_measured_until_they_are_decided(tmp_path: Path) -> None:
    old, new = chain(tmp_path / "old.onnx", 20), chain(tmp_path / "new.onnx", 400)
    record = tmp_path / "record.sqlite"
    words = [str(old), str(new), "--fail-slower", "3%", "--budget", "3600", "--runtime", "onnxruntime"]
    done = CliRunner().invoke(cli, ["compare", *words, "--record", str(record)], standalone_mode=False)
    assert done.return_value == 1 and "1 slower" in done.stdout and "would have been detected" in done.stdout
    runs = [gnomon.answer_of_run(named, record=record) for named in ("last~1", "last")]
    assert all(run and 0 < run["look"] < 1 for run in runs), "each look spends a part of the probability of error"
    for limit in (0.03, "3%"):
        again = gnomon.compare("last~1", "last", fail_slower=limit, record=record)  # type: ignore[arg-type]
        assert again.pairs[0].configurations[0].gate == "slower" and again.exit_code == 1


@pytest.mark.usefixtures("short_visits")
def test_a_run_beside_a_model_is_measured_again_where_its_file_is_as_it_was(tmp_path: Path) -> None:
    old, new = chain(tmp_path / "old.onnx", 20), chain(tmp_path / "new.onnx", 20)
    how: dict[str, Any] = {"record": tmp_path / "record.sqlite", "runtimes": ("onnxruntime",), "processes": 2}
    ran = gnomon.profile(old, **how)
    found = gnomon.compare(ran.campaign, new, **how)
    assert [side.model for side in found.sides] == ["old.onnx", "new.onnx"]
    assert found.sides[0].campaign != ran.campaign
    chain(old, 30)
    with pytest.raises(UsageError, match="is missing or has changed"):
        gnomon.compare(ran.campaign, new, **how)


def another_python(folder: Path, begins_with: str) -> Path:
    """This Python, which does something first wherever it starts."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(begins_with)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    made = folder / "python"
    made.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(path)} exec {shlex.quote(sys.executable)} "$@"\n')
    made.chmod(0o755)
    return made


@pytest.mark.usefixtures("short_visits")
def test_two_versions_of_a_runtime_are_compared_by_turns(tmp_path: Path) -> None:
    model = chain(tmp_path / "m.onnx", 20)
    other = another_python(tmp_path / "new", "import onnxruntime\nonnxruntime.__version__ = '1.99.9'\n")
    lacking = another_python(tmp_path / "lacking", "import sys\nsys.modules['onnxruntime'] = None\n")
    how: dict[str, Any] = {"record": tmp_path / "record.sqlite", "runtimes": ("onnxruntime",), "processes": 2}
    found = gnomon.compare(model, beside_python=other, **how)
    assert [side.python for side in found.sides] == [sys.executable, str(other)]
    versions = [side.versions["onnxruntime"] for side in found.sides]
    assert versions[0] != versions[1] == "1.99.9" and found.pairs[0].configurations[0].processes == (2, 2)
    page = io.StringIO()
    compare_report(found, Page(page, width=120))
    assert f"{other}: onnxruntime 1.99.9" in page.getvalue() and str(versions[0]) in page.getvalue()
    assert f"the onnxruntime versions differ: {versions[0]} and 1.99.9" in found.to_markdown()
    with pytest.raises(RuntimeMissingError, match="onnxruntime"):
        gnomon.compare(model, beside_python=lacking, **how)
    with pytest.raises(DeviceError, match="none"):
        gnomon.compare(model, beside_python=tmp_path / "none", **how)
    with pytest.raises(UsageError, match="this machine"):
        gnomon.compare(model, beside_python=other, device="ssh://nobody@localhost", **how)


@pytest.mark.parametrize("words", [["a.onnx"], ["last~1", "last", "--processes", "3"]])
def test_what_nothing_is_measured_for_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *words]) == 2
    assert "gnomon compare old.onnx new.onnx" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["--junit", "--markdown", "--action-benchmark", "--bencher"])
def test_what_cannot_be_written_is_refused_before_models_are_read(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", "none.onnx", "none.onnx", form, str(tmp_path / "none" / "file")]) == 2
    assert "is not a folder that can be written to" in capsys.readouterr().err


def test_documents_by_turns_show_what_sessions_would_hide(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    before, after = document(rng), document(rng, level_us=5150.0)
    assert {row.verdict for row in pair(tmp_path, before, after, sessions=0.02).pairs[0].configurations} == {"unknown"}
    rows = pair(tmp_path, *beside(before, after), sessions=0.02).pairs[0].configurations
    assert {row.verdict for row in rows} == {"slower"}


def beside(before: dict[str, Any], after: dict[str, Any], *, apart_s: float = 5.0) -> list[dict[str, Any]]:
    """Two runs of one session: the second's processes began so much after the first's."""
    sides = copy.deepcopy([before, after])
    for side, campaign in zip(sides, ("a" * 32, "b" * 32), strict=True):
        side |= {"campaign": campaign, "turns": ["a" * 32, "b" * 32]}
    for column in sides[1]["columns"]:
        samples = column["runs"]["samples"]
        samples["started_at_s"] = [t + apart_s for t in samples["started_at_s"]]
    return sides


def before_it_was_noted(sides: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sides as gnomon wrote them before documents told of turns, each first as often as last."""
    sides = copy.deepcopy(sides)
    for side in sides:
        del side["turns"]
    for columns in zip(*(side["columns"] for side in sides), strict=True):
        starts = [column["runs"]["samples"]["started_at_s"] for column in columns]
        for turn in range(1, len(starts[0]), 2):
            starts[0][turn], starts[1][turn] = starts[1][turn], starts[0][turn]
    return sides


def known_by(tmp_path: Path, sides: list[dict[str, Any]], **options: Any) -> set[str]:
    return {row.sessions.known_by for row in pair(tmp_path, *sides, sessions=0.02, **options).pairs[0].configurations}


def test_runs_that_only_meet_in_time_are_not_by_turns(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    sides = beside(document(rng), document(rng, level_us=5150.0))
    assert known_by(tmp_path, sides) == {"turns"}
    for alone in ([], ["a" * 32], None):
        assert known_by(tmp_path, [sides[0], {**sides[1], "turns": alone}]) == {"assumed"}
    assert known_by(tmp_path, [{**side, "turns": []} for side in sides]) == {"assumed"}
    assert known_by(tmp_path, beside(document(rng), document(rng), apart_s=5000.0)) == {"assumed"}


def test_documents_of_before_are_by_turns_where_nothing_else_looks_like_that(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    sides = before_it_was_noted(beside(document(rng), document(rng, level_us=5150.0)))
    assert known_by(tmp_path, sides) == {"turns"}
    another = copy.deepcopy(sides[1])
    another["fingerprint"]["cpu_model"] = "another"
    assert known_by(tmp_path, [sides[0], another], changed=("machine",)) == {"assumed"}
    assert known_by(tmp_path, [sides[0], {**sides[1], "device": "another"}]) == {"assumed"}
    few = before_it_was_noted(beside(document(rng, processes=5), document(rng, processes=5)))
    assert known_by(tmp_path, few) == {"assumed"}
    steady = beside(document(rng), document(rng))
    assert known_by(tmp_path, [{k: v for k, v in side.items() if k != "turns"} for side in steady]) == {"assumed"}


def test_a_neighbour_is_beside_both_where_they_ran_by_turns(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    before, after = beside_neighbours(document(rng), 0.1), beside_neighbours(document(rng, level_us=5400.0), 0.2)
    for row in pair(tmp_path, *beside(before, after)).pairs[0].configurations:
        assert (row.verdict, row.differs) == ("slower", ()), "no interval is said to be wider that is not"


@pytest.mark.usefixtures("short_visits")
def test_packages_are_measured_by_turns_and_beside_a_model_as_it_is_run(tmp_path: Path) -> None:
    how: dict[str, Any] = {"record": tmp_path / "record.sqlite", "runtimes": ("onnxruntime",)}
    old, new = (chain(tmp_path / f"{name}.onnx", products) for name, products in (("old", 20), ("new", 400)))
    packages = [tmp_path / "old", tmp_path / "new"]
    for model, package, threads in zip((old, new), packages, (1, 2), strict=True):
        gnomon.place(model, out=package, quick=True, threads=threads, processes=1, **how)
    how["processes"] = 4
    both = gnomon.compare(*packages, **how)
    (row,) = both.pairs[0].configurations
    assert (row.label, row.verdict, row.processes) == ("package", "slower", (4, 4)) and row.ratio > 5
    assert [side.model for side in both.sides] == ["old", "new"] and both.pairs[0].operators
    assert [told for told in both.pairs[0].changed if "threads" in told], "a package is compared with what it has"
    again = gnomon.compare("last~1", "last", record=how["record"])
    assert again.pairs[0].configurations[0].label == "package", "what they are is known from the runs alone"
    beside = gnomon.compare(packages[1], old, record=how["record"], processes=4)
    (row,) = beside.pairs[0].configurations
    assert (row.label, row.verdict, row.processes) == ("onnxruntime", "faster", (4, 4))
    assert not beside.pairs[0].unlike and not beside.pairs[0].changed


@pytest.mark.usefixtures("short_visits")
def test_a_package_is_run_as_it_was_written_or_not_at_all(tmp_path: Path) -> None:
    model, package = chain(tmp_path / "m.onnx", 20), tmp_path / "package"
    gnomon.place(model, out=package, quick=True, threads=1, processes=1, runtimes=("onnxruntime",))
    with pytest.raises(UsageError, match="which only gnomon profile and gnomon compare can measure"):
        gnomon.place(package)
    plan = package / "plan.json"
    known = json.loads(plan.read_text())
    starts = {**known, "job": {**known["job"], "environment": {"LD_PRELOAD": "x"}}}
    without = {**known, "job": {**known["job"], "tensors": {}}}
    two = {**known, "job": {**known["job"], "segments": known["job"]["segments"] * 2}}
    broken = {**known, "operators": 1}
    for told, why in (
        (two, "mixes runtimes"),
        (starts, "LD_PRELOAD"),
        (without, "has no valid plan"),
        (broken, "has no valid plan"),
    ):
        plan.write_text(json.dumps(told))
        with pytest.raises(GnomonError, match=why):
            gnomon.compare(package, model)
    plan.write_text(json.dumps(known))
    (package / "m.onnx").write_bytes(b"another")
    with pytest.raises(ModelError, match="is not the file"):
        gnomon.profile(package)
