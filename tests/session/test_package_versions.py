"""What a package says that it was proved with, and the pip line for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnomon.errors import PackageError
from gnomon.installing import pip_line
from gnomon.runtimes.litert import LiteRt
from gnomon.runtimes.tvm import Tvm
from gnomon.session.package import check_destination, read_plan, requirements_of, run_line
from gnomon.session.targets import pip_names
from gnomon.wire import Options, PlanJob, Segment


def test_requirements_are_of_pip_names_in_the_versions_that_were_measured() -> None:
    assert pip_names(LiteRt.wheels) == ["numpy", "ai-edge-litert"]
    assert requirements_of(LiteRt.wheels, {"numpy": "2.4.6", "ai-edge-litert": "2.3.0"}) == [
        "numpy==2.4.6",
        "ai-edge-litert==2.3.0",
    ]
    assert pip_names(Tvm.wheels) == ["numpy", "apache-tvm", "apache-tvm-ffi", "onnx"]


@pytest.mark.parametrize("versions", [{}, {"numpy": "2.4.6"}])
def test_a_version_that_is_not_known_is_the_one_required(versions: dict[str, str]) -> None:
    found = requirements_of(LiteRt.wheels, versions)
    assert found[1] == LiteRt.wheels[0]
    assert pip_line(found).endswith(f" '{LiteRt.wheels[0]}'")  # a shell takes > for a file


def job_of(environment: dict[str, str], options: Options) -> PlanJob:
    segment: Segment = {"runtime": "r", "model": "m", "options": options, "inputs": [], "outputs": []}
    return {"tensors": {}, "feeds": {}, "outputs": [], "seed": 0, "segments": [segment], "environment": environment}


def test_the_command_allows_what_the_plan_sets_and_names_its_libraries() -> None:
    assert run_line(job_of({}, {})) == "python gnomon-agent.pyz run plan.json"
    options = {"session": {"a.b": "1"}, "libraries": {"/a/it is.so": "0"}}
    assert run_line(job_of({"LD_PRELOAD": "x.so", "A": "1"}, options), "gnomon/") == (
        "python gnomon/gnomon-agent.pyz run gnomon/plan.json --allow LD_PRELOAD --allow A --allow a.b "
        "--library 'it is.so'"
    )


@pytest.mark.parametrize("model", ["/etc/passwd", "../model.onnx", "a/../../b"])
def test_a_package_names_its_own_models_only(tmp_path: Path, model: str) -> None:
    plan = {"format": "gnomon-plan", "version": 1, "job": {"segments": [{"model": model}]}}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(PackageError, match="names a model outside it"):
        read_plan(tmp_path, at="/there")


@pytest.mark.parametrize("plan", ["[" * 200_000, "[]", "{}", '{"format": "another"}', "\xff"])
def test_what_is_no_plan_of_gnomons_is_neither_run_nor_overwritten(tmp_path: Path, plan: str) -> None:
    (tmp_path / "plan.json").write_text(plan, encoding="latin-1")
    (tmp_path / "gnomon-agent.pyz").touch()
    with pytest.raises(PackageError):
        read_plan(tmp_path, at="/there")
    with pytest.raises(PackageError, match="exists already"):
        check_destination(tmp_path, overwrite=True)
