"""ONNX Runtime with several execution providers in one session, with the real ones: probe, support, places, silence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from tests.runtimes.providerskit import (
    NAMES,
    chosen,
    configured,
    environment,
    known,
    lies_where_planned,
    linked,
    net,
    placed,
    probed,
    run,
)

from gnomon.agent.driver import Refused
from gnomon.agent.drivers.onnxruntime.placed import supports
from gnomon.core.sample import Failure
from gnomon.errors import UsageError
from gnomon.models.load import load
from gnomon.runtimes.base import Configuration, Probe, RunSettings
from gnomon.runtimes.onnxruntime import OnnxRuntime

SOFTWARE = {"provider": "qnn", "module": "onnxruntime_qnn", "software": True, "options": {}}
REAL = {"provider": "CUDAExecutionProvider", "software": False, "options": {}}
TAKES = {"qnn": {0, 1, 2, 5}, "webgpu": {0, 1, 2, 3, 5}}
BOTH = pytest.mark.parametrize("backend", ["qnn", "webgpu"])


def probe(version: str = "1.32.0", **accelerators: Mapping[str, Any]) -> Probe:
    details: Any = {"accelerators": accelerators, "lacking": {"ggml": "it shows no device"}}
    return Probe(version=version, backends=("cpu", *accelerators), details=details)


def folded(configuration: Configuration) -> Configuration:
    """The configuration once it is known that the fifth node is folded away."""
    return replace(configuration, options={**configuration.options, "folded": [[4, 3]]})


def test_a_program_on_the_cpu_is_a_backend_only_where_it_is_wished() -> None:
    adapter = OnnxRuntime()
    usual = adapter.configurations(probe(qnn=SOFTWARE), RunSettings())[0]
    assert usual.backends == ("onnxruntime",) and not usual.transfers
    assert usual.options == {"threads": 1, "provider": "CPUExecutionProvider"}
    assert adapter.configurations(probe(qnn=SOFTWARE, cuda=REAL), RunSettings())[0].backends == ("cpu", "cuda")
    requested = adapter.configurations(probe(qnn=SOFTWARE), RunSettings(backends=("qnn", "cpu")))[0]
    assert requested.backends == ("cpu", "qnn") and requested.transfers and requested.steps_within
    assert requested.reported == {"CPUExecutionProvider": "cpu", "qnn": "qnn"}
    assert adapter.configurations(probe(qnn=SOFTWARE), RunSettings(backends=("cpu",)))[0].backends == ("onnxruntime",)


def test_what_cannot_be_placed_is_refused_with_a_next_step() -> None:
    adapter = OnnxRuntime()
    with pytest.raises(UsageError, match="needs the backend 'cpu'"):
        adapter.configurations(probe(qnn=SOFTWARE), RunSettings(backends=("qnn",)))
    with pytest.raises(UsageError, match="no backend 'ggml': it shows no device"):
        adapter.configurations(probe(qnn=SOFTWARE), RunSettings(backends=("cpu", "qnn", "ggml")))
    with pytest.raises(UsageError, match=r"1\.24\.4 cannot place nodes") as refused:
        adapter.configurations(probe("1.24.4", qnn=SOFTWARE), RunSettings(backends=("cpu", "qnn")))
    assert "1.25" in refused.value.hint
    assert adapter.configurations(probe("1.24.4", cuda=REAL), RunSettings())[0].backends == ("onnxruntime",)


def test_a_version_that_ignores_rules_loads_no_plan() -> None:
    old = SimpleNamespace(__version__="1.24.4")
    with pytest.raises(Refused, match=r"1\.24\.4 ignores .*needs 1\.25"):
        supports(
            old,
            lambda: None,
            {"runtime": "onnxruntime", "model": "m.onnx", "options": {"try": "cpu", "accelerators": {}}},
        )


class Loading:
    """Answers trials as a session of the net with QNN would; what crashes is a failure."""

    def __init__(self, *crashing: str) -> None:
        self.crashing = crashing

    def __call__(self, commands: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        crash = Failure(stage="probe", kind="crash", transient=False, message="SIGSEGV")
        takes = {"cpu": [0, 1, 2, 3, 5], "qnn": [0, 1, 2, 5]}
        assert {c["segment"]["options"]["try"] for c in commands.values()} == set(commands)
        return {b: crash if b in self.crashing else {b: takes[b]} for b in commands}


def test_what_onnxruntime_folds_away_goes_with_a_neighbour(tmp_path: Path) -> None:
    model, own = placed(net(tmp_path)), configured(probe(qnn=SOFTWARE), "qnn")
    found = OnnxRuntime().support(Loading(), model, own)
    assert found.operators == {"cpu": frozenset(range(6)), "qnn": frozenset({0, 1, 2, 5})}
    assert found.folded == {4: 3} and found.options == {"folded": [[4, 3]]}
    crashed = OnnxRuntime().support(Loading("qnn"), model, own)
    assert crashed.operators == {"cpu": frozenset(range(6)), "qnn": frozenset()}
    assert crashed.failures["qnn"].kind == "crash"
    nothing = OnnxRuntime().support(Loading("cpu"), model, own)
    assert not any(nothing.operators.values())


def test_a_segment_names_the_nodes_that_lie_elsewhere(tmp_path: Path) -> None:
    model, own = placed(net(tmp_path)), configured(probe(qnn=SOFTWARE), "qnn")
    segment = OnnxRuntime().segment(model, own, {0: "cpu", 2: "qnn", 1: "qnn"})
    assert segment["options"]["places"] == {"qnn": [1, 2]}
    assert OnnxRuntime().segment(model, own, {})["options"]["places"] == {}


def test_the_processor_is_a_backend_where_there_is_nothing_beside_it() -> None:
    with linked({}) as link:
        found = probed(link)
    assert found.backends[0] == "cpu"
    assert OnnxRuntime().configurations(found, RunSettings(backends=("cpu",)))[0].backends == ("onnxruntime",)


@BOTH
def test_probe_support_and_places_with_the_real_provider(tmp_path: Path, backend: str) -> None:
    with linked(environment(backend)) as link:
        found = known(link, backend)
        assert backend in found.backends
        assert found.details["accelerators"][backend]["software"] is True
        assert found.details["accelerators"][backend]["memory"] is (backend == "webgpu")
        support = lies_where_planned(link, found, backend, tmp_path)
    assert support.failures == {}
    assert support.operators == {"cpu": frozenset(range(6)), backend: frozenset(TAKES[backend])}
    assert support.folded == {4: 3}


@pytest.mark.parametrize(
    ("backend", "mine", "steps"),
    [
        # Of a provider with its own memory each node is a step, which holds the wait.
        ("webgpu", {0, 2, 3}, {(0,): "webgpu", (1,): "cpu", (2, 3): "webgpu", (5,): "cpu"}),
        # Of one that compiles, what it compiled together.
        ("qnn", {0, 1, 2, 5}, {(0, 1, 2): "qnn", (3,): "cpu", (5,): "qnn"}),
    ],
)
def test_steps_of_a_profiled_session(tmp_path: Path, backend: str, mine: set[int], steps: dict[Any, str]) -> None:
    model, adapter = placed(net(tmp_path)), OnnxRuntime()
    with linked(environment(backend)) as link:
        configuration = folded(configured(known(link, backend), backend))
        segment = adapter.segment(model, configuration, chosen(configuration, **{backend: mine}))
        seen = run(link, segment, profiled=True)
    assert "failure" not in seen, seen["failure"]
    rows = {tuple(row["sources"]): row for row in seen["block"]["operators"]}
    assert {sources: row["backend"] for sources, row in rows.items()} == steps
    if backend == "webgpu":
        times = [min(row["wall_ns"]) for row in rows.values()]
        assert all(time_ns > 0 for time_ns in times)
        # All of a run is told: its steps are not the few microseconds of launching.
        assert sum(times) > 0.5 * min(seen["block"]["wall_ns"])


def test_three_providers_share_a_session(tmp_path: Path) -> None:
    own = environment("qnn", "webgpu")
    model, adapter = placed(net(tmp_path)), OnnxRuntime()
    with linked(own) as link:
        configuration = configured(known(link, "qnn", "webgpu"), "qnn", "webgpu")
        assert configuration.backends == ("cpu", "qnn", "webgpu")
        run(link, adapter.segment(model, configuration, {}), save=True)
        assignment = chosen(configuration, qnn={0, 5}, webgpu={2, 3})
        seen = run(link, adapter.segment(model, configuration, assignment))
    assert "failure" not in seen, seen["failure"]
    told = {k: row["backend"] for row in seen["opened"]["where"][0] for k in row["operators"]}
    providers = [told[k].removesuffix("ExecutionProvider") for k in (0, 1, 2, 3, 5)]
    assert providers == ["qnn", "CPU", "WebGpu", "WebGpu", "qnn"]
    assert seen["opened"]["difference"]["relative"] < 1e-3


def with_backend_type(kind: str) -> dict[str, Any]:
    own = {"provider": "qnn", "module": "onnxruntime_qnn", "options": {"backend_type": kind}, "memory": False}
    return {"threads": 1, "accelerators": {"qnn": own}, "places": {"qnn": [0, 1, 2]}, "folded": [[4, 3]]}


def segment_of(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    bound = {"inputs": [["x", "x"]], "outputs": [["y", "y"]]}
    return {"runtime": "onnxruntime", "model": str(path), "options": dict(options), **bound}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({**with_backend_type("htp"), "places": {"qnn": [0, 3]}}, "erf"),  # what lies elsewhere than planned is named
        (with_backend_type("ir"), ""),
    ],
)
def test_silence_a_run_that_fails_is_not_repeated_on_the_cpu(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    path, own = net(tmp_path), environment("qnn")
    with linked(own) as link:
        failure = run(link, segment_of(path, options))["failure"]
    assert message in failure["message"]
    assert failure["kind"] == "refused" and "Fallback" not in failure["message"]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_silence_a_backend_that_is_not_there_leaves_nothing_to_the_cpu(tmp_path: Path, kind: str) -> None:
    path, own = net(tmp_path), environment("qnn")
    with linked(own) as link:
        failure = run(link, segment_of(path, with_backend_type(kind)))["failure"]
        trial: Any = {"do": "supports", "segment": segment_of(path, {**with_backend_type(kind), "try": "qnn"})}
        found = link.ask({"t": trial})["t"]
    # What is asked of the provider alone no other takes; a function of ONNX goes to the CPU in silence.
    assert any(part in failure["message"] for part in ("elsewhere", "Could not find an implementation", "not set"))
    assert isinstance(found, Failure) and "supports no node of the model" in found.message


def test_silence_zeros_are_wrong_outputs(tmp_path: Path) -> None:
    path, own = net(tmp_path), environment("qnn")
    with linked(own) as link:
        run(link, segment_of(path, {**with_backend_type("htp"), "places": {}}), save=True)
        seen = run(link, segment_of(path, with_backend_type("saver")))
    assert "failure" not in seen, seen["failure"]
    assert seen["opened"]["difference"]["relative"] > 0.1


def test_silence_a_plugin_without_a_device_is_no_backend(tmp_path: Path) -> None:
    own = {**environment("webgpu"), "VK_DRIVER_FILES": "/nowhere.json", "VK_ICD_FILENAMES": "/nowhere.json"}
    with linked(own) as link:
        found = probed(link)
    assert "webgpu" not in found.backends
    assert found.details["lacking"]["webgpu"]


@pytest.mark.parametrize(
    ("library", "told"),
    [
        ("return '/nowhere.so'", "nowhere.so"),
        ("import os; os.kill(os.getpid(), 11)", "the provider was killed by signal 11"),
    ],
    ids=["missing library", "crash"],
)
def test_silence_a_plugin_that_does_not_load_takes_nothing_with_it(tmp_path: Path, library: str, told: str) -> None:
    (tmp_path / "onnxruntime_ggml.py").write_text(f"def get_library_path():\n    {library}\n")
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with linked({"PYTHONPATH": paths}) as link:
        found = probed(link)
    assert told in found.details["lacking"]["ggml"]
    assert "ggml" not in found.backends


@BOTH
def test_a_package_is_placed_alike_by_a_plain_script(tmp_path: Path, backend: str) -> None:
    own = environment(backend)
    model, adapter = placed(net(tmp_path)), OnnxRuntime()
    folder = tmp_path / "package"
    folder.mkdir()
    with linked(own) as link:
        configuration = folded(configured(known(link, backend), backend))
        assignment = chosen(configuration, **{backend: {0, 2}})
        measured = adapter.segment(model, configuration, assignment)
        run(link, measured, save=True)
        written = adapter.package(load(tmp_path / "net.onnx"), configuration, assignment, folder)
        seen = run(link, {**measured, **written, "model": str(folder / written["model"])})
        assert seen["opened"]["difference"] == {"absolute": 0.0, "relative": 0.0}
        told = {k: row["backend"] for row in seen["opened"]["where"][0] for k in row["operators"]}
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 16), np.float32))
    if "webgpu" in backend:
        own = {**own, "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1"}
    command = [sys.executable, str(folder / "session.py"), f"x={tmp_path / 'x.npy'}"]
    done = subprocess.run(command, env={**os.environ, **own}, check=True, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    places = {name: words[0] for words in lines for name in words[1:]}
    assert {name: places[name] for name in NAMES if name != "same"} == {
        name: told[k] for k, name in enumerate(NAMES) if name != "same"
    }
    genai = json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]["session_options"]
    assert genai["session.layer_assignment_settings"].endswith(f"(gnomon.{backend}/)")
