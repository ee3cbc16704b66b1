"""A model and devices for tests with several execution providers of ONNX Runtime in one session."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest
from tests.models.modelkit import model, node, save, value

from gnomon.core.sample import Failure
from gnomon.devices.local import LocalDevice
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink
from gnomon.models.load import load
from gnomon.runtimes.base import Configuration, PlacedModel, Probe, RunSettings, Support
from gnomon.runtimes.onnxruntime import OnnxRuntime
from gnomon.wire import MeasuringRequest

PLUGINS = {"qnn": "onnxruntime_qnn", "webgpu": "onnxruntime_ep_webgpu"}
WHEELS = {"qnn": "onnxruntime-qnn", "webgpu": "onnxruntime-ep-webgpu"}
NAMES = ("sigmoid", "swish", "mul", "erf", "same", "relu")
LIMIT_S = 300.0


def net(folder: Path) -> Path:
    """Six nodes: two branches, HardSwish, an Erf that QNN lacks, and an Identity that is folded away."""
    nodes = [
        node("Sigmoid", ["x"], ["a"], "sigmoid"),
        node("HardSwish", ["a"], ["b"], "swish"),
        node("Mul", ["a", "b"], ["c"], "mul"),
        node("Erf", ["c"], ["d"], "erf"),
        node("Identity", ["d"], ["e"], "same"),
        node("Relu", ["e"], ["y"], "relu"),
    ]
    return save(model(nodes, [value("x", [1, 8, 16])], [value("y", [1, 8, 16])], {}), folder / "net.onnx")


def plugins(*backends: str) -> dict[str, str]:
    """What a process needs to find the plugins of these backends; skips where one is missing, with its name."""
    packages = os.environ.get("GNOMON_PROVIDERS", "/nowhere")
    for backend in backends:
        if PathFinder.find_spec(PLUGINS[backend], [packages]) is None:
            pytest.skip(
                f"{WHEELS[backend]} is not in {packages} (pip install --target); GNOMON_PROVIDERS is its folder"
            )
    return {"PYTHONPATH": os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))}


def environment(*backends: str) -> dict[str, str]:
    """What a process needs for these backends on programs that play a device; skips where one is missing."""
    paths = plugins(*backends)
    if "webgpu" not in backends:
        return paths
    folder = Path(os.environ.get("GNOMON_SWIFTSHADER", "/nowhere")).resolve()
    icd = folder / "vk_swiftshader_icd.json"
    if not icd.is_file():
        pytest.skip(f"SwiftShader is not in {folder}; GNOMON_SWIFTSHADER is its folder")
    before = os.environ.get("LD_LIBRARY_PATH")
    return {
        **paths,
        "LD_LIBRARY_PATH": f"{folder}:{before}" if before else str(folder),
        "VK_DRIVER_FILES": str(icd),
        "VK_ICD_FILENAMES": str(icd),
    }


@contextmanager
def linked(own: Mapping[str, str]) -> Iterator[AgentLink]:
    """The agent on this machine in an environment."""
    with LocalDevice(environment=own) as device, AgentLink(device, timeout_s=LIMIT_S) as link:
        yield link


def probed(link: AgentLink) -> Probe:
    """What the agent finds of ONNX Runtime."""
    answer = link.ask({"p": {"do": "probe", "runtime": "onnxruntime"}})["p"]
    assert not isinstance(answer, Failure), answer
    return Probe.of(answer)


_known: dict[tuple[str, ...], Probe] = {}


def known(link: AgentLink, *backends: str) -> Probe:
    """What `probed` found with these backends: what is installed stays as it is, and asking takes a process."""
    if backends not in _known:
        _known[backends] = probed(link)
    return _known[backends]


def placed(path: Path) -> PlacedModel:
    """The model on this machine."""
    return PlacedModel(graph=load(path).graph, path=str(path), inputs=("x",), outputs=("y",))


def configured(probe: Probe, *backends: str) -> Configuration:
    """The configuration with these backends beside the CPU."""
    return OnnxRuntime().configurations(probe, RunSettings(backends=("cpu", *backends)))[0]


def chosen(own: Configuration, **backends: Collection[int]) -> dict[int, str]:
    """The backend of each node of `net`: those that are given lie where they are, the rest at home."""
    return {k: next((b for b, mine in backends.items() if k in mine), own.backends[0]) for k in range(len(NAMES))}


def lies_where_planned(link: AgentLink, found: Probe, backend: str, folder: Path) -> Support:
    """Which nodes of `net` the backend takes, after some placements gave right outputs and lay where planned."""
    model, adapter, configuration = placed(net(folder)), OnnxRuntime(), configured(found, backend)
    support = adapter.support(link.ask, model, configuration)
    configuration = replace(configuration, options={**configuration.options, **support.options})
    run(link, adapter.segment(model, configuration, {}), save=True)
    for away in (range(len(NAMES)), {0}, {1}):
        taken = support.operators[backend] & frozenset(away)
        assignment = chosen(configuration, **{backend: taken | {k for k, v in support.folded.items() if v in taken}})
        seen = run(link, adapter.segment(model, configuration, assignment))
        assert "failure" not in seen, seen["failure"]
        assert seen["opened"]["difference"]["relative"] < 1e-3
        told = {k: row["backend"] for row in seen["opened"]["where"][0] for k in row["operators"]}
        assert {k: configuration.reported[provider] for k, provider in told.items()} == assignment
    return support


def run(link: AgentLink, segment: Any, *, save: bool = False, profiled: bool = False) -> dict[str, Any]:
    """Open a segment of `net` in a fresh process, save or check its outputs, and time or profile a block."""
    tensor = {"shape": [1, 8, 16], "dtype": "float32"}
    ends: dict[str, Any] = {"tensors": {"x": tensor, "y": tensor}, "feeds": {"x": {}}, "outputs": ["y"]}
    job = {**ends, "seed": 0, "segments": [segment]}
    checked = {} if profiled else {"save" if save else "check": "kit.npz", "seeds": [0, 1]}
    candidate: Any = {
        "key": "kit",
        "environment": {},
        "tolerance": 1e9,
        "calls_least": 5,
        "open": {"job": job, "profiled": profiled, **checked},
        "visits": [] if save else [0],
    }
    effort = Effort(rounds=1, block_s=0.01, warm_s=0.0, timeout_s=LIMIT_S)
    seen: dict[str, Any] = {}
    request: MeasuringRequest = {**effort.request(), "seed": 0, "candidates": [candidate]}
    link.request(request, lambda event: seen.__setitem__(event["event"], event), timeout_s=3 * LIMIT_S)
    return seen
