"""`place` with options of a runtime's sessions, and with libraries of operators, which are code: ONNX Runtime's own."""

from __future__ import annotations

import ctypes
import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.bad_days.livekit import matmul_onnx
from tests.models.modelkit import model, node, save, value

import gnomon
from gnomon.agent.driver import Refused, libraries
from gnomon.api.options import Options, model_request
from gnomon.cli.main import run
from gnomon.devices.local import LocalDevice
from gnomon.errors import MeasurementError, UsageError
from gnomon.jobs.place.across import AcrossPlacer
from gnomon.jobs.place.document import PlaceDocument, ProfileDocument
from gnomon.models.onnx.marked import session_told
from gnomon.runtimes.base import portable
from gnomon.session.model_session import open_session
from gnomon.session.package import write_package
from gnomon.session.prove import verify
from gnomon.session.reference import reference

ZEROS = "session.set_denormal_as_zero"
LIBRARY = """
#include <stdio.h>
__attribute__((constructor)) static void loaded(void) {
    FILE *file = fopen("%s", "a");
    if (file) { fputs("loaded\\n", file); fclose(file); }
}
void *RegisterCustomOps(void *options, void *api) { return 0; }
"""
"""Stands in for a library of operators: it registers none, and leaves a mark where it is loaded."""


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(matmul_onnx())
    return path


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "loaded"


@pytest.fixture
def library(tmp_path: Path, mark: Path) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    (tmp_path / "lib.c").write_text(LIBRARY % mark)
    made = tmp_path / "libcustom.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, tmp_path / "lib.c"], check=True, timeout=60)
    return made


def placed(network: Path, *options: dict[str, str], **more: Any) -> PlaceDocument:
    fixed = {"threads": 1, "processes": 1, "budget_s": 1.0, "record": network.parent / "r.sqlite", "picture": False}
    found = gnomon.place(
        network, runtimes=["onnxruntime"], out=network.parent / "out", options=options, **{**fixed, **more}
    )
    assert isinstance(found, PlaceDocument)
    return found


def run_package(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "gnomon-agent.pyz", "run", "plan.json", "--seconds", "0", *more]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)


def changed(folder: Path, change: Any) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    change(plan["job"]["segments"][0]["options"])
    (folder / "plan.json").write_text(json.dumps(plan))


def test_an_option_is_one_more_configuration_and_its_outputs_are_checked(tmp_path: Path) -> None:
    """What it makes of subnormal numbers is another result, by which it is seen to be in effect."""
    nodes = [node("Mul", [read, by], [made]) for read, by, made in ("xca", "acb", "bdh", "hdy")]
    numbers = {"c": np.array([1e-20], np.float32), "d": np.array([1e20], np.float32)}
    tiny = model(nodes, [value("x", (4,))], [value("y", (4,))], numbers)
    found = placed(save(tiny, tmp_path / "m.onnx"), {f"onnxruntime:{ZEROS}": "1"}, {"onnxruntime:session.x": "1"})
    assert {contender.label for contender in found.contenders} == {"onnxruntime", "onnxruntime[session.x=1]"}
    (wrong,) = [missing for missing in found.missing if missing.name == f"onnxruntime[{ZEROS}=1]"]
    assert wrong.reason.startswith("refused: "), wrong.reason


def test_what_openvino_does_not_know_is_that_configurations_failure(network: Path) -> None:
    options = {"openvino:NO_SUCH_KEY": "1"}, {"openvino:INFERENCE_PRECISION_HINT": "f32"}
    found = gnomon.profile(
        network, runtimes=["openvino"], threads=1, processes=1, options=options, record=network.parent / "r.sqlite"
    )
    assert isinstance(found, ProfileDocument)
    assert {column.label for column in found.columns} == {"openvino", "openvino[INFERENCE_PRECISION_HINT=f32]"}
    (failed,) = [missing for missing in found.missing if missing.name == "openvino[NO_SUCH_KEY=1]"]
    assert "NO_SUCH_KEY" in failed.reason


def test_a_package_carries_the_options_and_runs_with_the_users_consent(network: Path) -> None:
    from gnomon.api.options import model_request

    request = model_request(
        network, {"threads": 1, "runtimes": ["onnxruntime"], "options": [{f"onnxruntime:{ZEROS}": "1"}]}
    )
    out = network.parent / "out"
    with open_session(request, kind="test", question={}) as session:
        reference(session)
        _, variant = session.targets
        contender = AcrossPlacer(session, session.targets, session.folder).whole(variant)
        verified, _ = verify(session, write_package(session, contender, out, overwrite=True), contender)
        assert verified.ok, verified
    assert f"run plan.json --allow {ZEROS} --output" in (out / "README.txt").read_text()
    plan = json.loads((out / "plan.json").read_text())
    assert plan["job"]["segments"][0]["options"]["session"] == {ZEROS: "1"}
    refused = run_package(out)
    assert refused.returncode == 9
    assert refused.stderr.strip().endswith(f"if you trust who wrote it, add --allow {ZEROS}")
    assert run_package(out, "--allow", ZEROS).returncode == 0
    changed(out, lambda options: options.update(session=[1]))
    assert "write the package again" in run_package(out, "--allow", ZEROS).stderr


def test_a_library_is_loaded_in_all_configurations_and_named_by_its_digest(
    network: Path, library: Path, mark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    named = {"onnxruntime:library": str(library)}
    found = placed(network, named, threads=None)
    assert {c.label for c in found.contenders} >= {"onnxruntime[default]"}
    assert all(c.failure is None for c in found.contenders)
    assert mark.read_text().count("loaded") >= len(found.contenders)
    assert [doubt.message for doubt in found.doubts if doubt.kind == "library"] == [
        f"onnxruntime ran the code of the library of operators libcustom.so (SHA-256 {digest})"
    ]
    out = network.parent / "out"
    assert found.run.endswith("run plan.json --library libcustom.so")
    readme, plan = (out / "README.txt").read_text(), json.loads((out / "plan.json").read_text())
    assert digest in readme and "--library libcustom.so" in readme
    assert plan["job"]["segments"][0]["options"]["libraries"] == {"libcustom.so": digest}
    assert not list(out.rglob("libcustom.so"))
    assert all(one.settings[one.label]["libraries"] == {"libcustom.so": digest} for one in found.contenders)

    mark.unlink()
    record = str(network.parent / "r.sqlite")
    with pytest.raises(MeasurementError, match="with these options"):
        placed(network, threads=None, measure=False, overwrite=True)
    placed(network, named, threads=None, measure=False, overwrite=True)
    assert run(["runs", "--record", record, "show", "last", "--json"]) == 0
    assert digest in capsys.readouterr().out
    assert not mark.exists()


class Keeping(LocalDevice):
    """This machine, with copies of the files that are brought to it."""

    def push(self, local: Path, name: str) -> str:
        if not name.endswith(".so"):
            return super().push(local, name)
        return str(shutil.copy(local, self.folder / name))


def test_a_device_loads_the_file_that_was_brought_to_it(network: Path, library: Path, mark: Path) -> None:
    options: Options = {"threads": 1, "runtimes": ["onnxruntime"], "options": [{"onnxruntime:library": str(library)}]}
    request = replace(model_request(network, options), record=network.parent / "r.sqlite")
    with Keeping() as device, open_session(request, kind="test", question={}, device=device) as session:
        there = {str(device.folder / library.name): hashlib.sha256(library.read_bytes()).hexdigest()}
        assert [t.configuration.options["libraries"] for t in session.targets] == [there]
        assert reference(session)["runtime"] == "onnxruntime"
        assert mark.exists()


def test_a_session_of_other_programs_has_the_options_too() -> None:
    options = {"accelerators": {}, "places": {}, "session": {ZEROS: "1"}}
    assert session_told("m.onnx", options, {}, {})["options"][ZEROS] == "1"


def test_no_plan_has_a_library_loaded(network: Path, library: Path, mark: Path) -> None:
    out = network.parent / "out"
    placed(network)
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    other = network.parent / "other.so"
    other.write_bytes(b"another library")
    changed(out, lambda options: options.update(libraries={str(library): digest}))
    for more in ((), ("--library", str(other)), ("--library", str(network.parent / "none.so"))):
        refused = run_package(out, *more)
        assert refused.returncode == 9, refused.stderr
        assert digest in refused.stderr and "add --library FILE" in refused.stderr
    for wrong in ([str(library)], {str(library): [digest]}, str(library)):
        changed(out, lambda options, wrong=wrong: options.update(libraries=wrong))
        assert run_package(out, "--library", str(library)).returncode == 9
    assert not mark.exists()
    changed(out, lambda options: options.update(libraries={"anywhere": digest}))
    done = run_package(out, "--library", str(library))
    assert done.returncode == 0, done.stderr
    assert mark.exists()


def test_a_library_that_is_another_than_was_named_is_not_loaded(library: Path, mark: Path) -> None:
    assert list(libraries({"libraries": {str(library): hashlib.sha256(library.read_bytes()).hexdigest()}}))
    with pytest.raises(Refused, match="is not the library of operators that was requested"):
        list(libraries({"libraries": {str(library): "0" * 64}}))
    assert not mark.exists()
    ctypes.CDLL(str(library))
    assert mark.exists()  # a file that is loaded leaves its mark


def test_real_operators_of_a_library_are_computed(tmp_path: Path) -> None:
    extensions = pytest.importorskip("onnxruntime_extensions")
    from onnx import helper

    nodes = [node("NegPos", ["x"], ["n", "p"], domain="ai.onnx.contrib"), node("Add", ["n", "p"], ["y"])]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.contrib", 1)]
    own = save(model(nodes, [value("x", (4, 4))], [value("y", (4, 4))], opset_imports=imports), tmp_path / "m.onnx")
    found = placed(own, {"onnxruntime:library": extensions.get_library_path()})
    assert found.verified.ok and found.contenders[0].failure is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"onnxruntime:library": "."}, "'onnxruntime:library' cannot be '.'"),
        ({"onnxruntime:library": "none.so"}, "cannot be 'none.so'"),
        ({"session.x": "1"}, "'session.x' cannot be '1'"),
        ({"ncnn:x": "1"}, "'ncnn', which takes none"),
        ({"openvino:x": "1"}, "or is not measured"),
    ],
)
def test_what_is_no_option_is_refused(network: Path, options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        placed(network, options)
    assert refused.value.hint


def test_wherever_a_library_lies_it_is_the_same() -> None:
    assert portable({"threads": 1}) == {"threads": 1}
    assert portable({"libraries": {"/a/b.so": "1"}}) == portable({"libraries": {"/c/b.so": "1"}})
