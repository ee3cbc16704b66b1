"""PyTorch's adapter: the shipped contract with the real runtime, and its two ways to run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.agent.jobkit import bound, job_of

from gnomon.devices.local import LocalDevice
from gnomon.errors import UsageError
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink
from gnomon.models.load import load
from gnomon.runtimes.base import Probe, RunSettings, Runtime
from gnomon.runtimes.pytorch import PyTorch
from gnomon.testing.runtime import RuntimeContract

GOLDEN = Path(__file__).parents[1] / "models" / "golden"
LIMIT_S = 300.0
PROBE = Probe(version="2.13.0", backends=("eager", "inductor"))
_QUICKLY = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0", "TORCHINDUCTOR_VEC_ISA_OK": "1"}
"""Headers compiled ahead take longer than the kernels of a small program; so does trying each vector unit it has."""


class TestPyTorch(RuntimeContract):
    @pytest.fixture
    def adapter(self) -> Runtime:
        return PyTorch()

    @pytest.fixture
    def path(self) -> Path:
        return GOLDEN / "small.pt2"


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed, which Inductor needs")


@needs_compiler
@pytest.mark.timeout(900)
class TestInductor:
    """torch.compile for real, with a compiler and a cache of its own."""

    @staticmethod
    def opened(folder: Path, *modes: tuple[str, Mapping[str, Any]], **environment: str) -> dict[str, Any]:
        """What the agent tells of the golden program when it was opened in the last of these modes.

        One process opens it in all of them, as importing PyTorch takes seconds; its cache of compiled code is below
        the folder.
        """
        pytest.importorskip("torch")
        graph = load(GOLDEN / "small.pt2").graph
        segment = {"runtime": "pytorch", "model": str(GOLDEN / "small.pt2"), **bound(graph)}
        job = job_of(graph)
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), **_QUICKLY, **environment}
        told: dict[str, Any] = {}
        with LocalDevice(environment=variables) as device, AgentLink(device, timeout_s=LIMIT_S, kept=True) as link:
            for mode, how in modes:
                told = {}
                opening = {"job": {**job, "segments": [{**segment, "options": {"threads": 1, "mode": mode}}]}, **how}
                candidate = {"key": mode, "environment": {}, "tolerance": 1e-4, "visits": [], "open": opening}
                request = {"seed": 0, "candidates": [{**candidate, "process": "pytorch"}]}
                effort = Effort(rounds=0, timeout_s=LIMIT_S).request()
                link.request(cast(Any, {**effort, **request}), told.update, timeout_s=2 * LIMIT_S)
        return told

    def test_it_is_compiled_once_and_what_ran_is_seen_by_pytorchs_profiler(self, tmp_path: Path) -> None:
        eager = tmp_path / "eager.npz"
        compared = "inductor", {"check": str(eager), "seeds": [0, 1]}
        first = self.opened(tmp_path, ("eager", {"save": str(eager), "seeds": [0, 1]}), compared)
        assert first["difference"]["relative"] < 1e-4, first
        ((row,),) = first["where"]
        assert row["backend"] == "inductor" and row["graphs"] and not row["from_cache"]
        assert "aten::convolution" in row["extern"]
        # Compiling is in the load; what is timed are calls of what was compiled.
        assert 0 < row["compile_s"] < first["load_ns"] * 1e-9
        assert first["first_call_ns"] * 1e-9 < row["compile_s"]
        again = self.opened(tmp_path, compared)
        assert again["where"][0][0]["from_cache"]
        assert again["where"][0][0]["graphs"] == row["graphs"]

    @pytest.mark.parametrize(
        ("variables", "told"),
        [({"TORCHDYNAMO_DISABLE": "1"}, "eagerly"), ({"CXX": "/nowhere/g++"}, "No working C++ compiler")],
    )
    def test_what_is_not_compiled_is_refused(self, tmp_path: Path, variables: Mapping[str, str], told: str) -> None:
        assert told in self.opened(tmp_path, ("inductor", {}), **variables)["message"]


def names(*backends: str) -> list[str]:
    return [c.name for c in PyTorch().configurations(PROBE, RunSettings(backends=backends))]


def test_it_is_compiled_only_where_that_is_asked_for() -> None:
    assert names() == names("eager") == names("pytorch") == ["pytorch"]
    assert names("inductor") == ["pytorch[inductor]"]
    assert names("inductor", "eager") == ["pytorch", "pytorch[inductor]"]
    with pytest.raises(UsageError, match="cudagraphs") as refused:
        names("cudagraphs")
    assert "inductor" in refused.value.hint


def test_what_was_fixed_beside_the_tensors_is_handed_over() -> None:
    torch = pytest.importorskip("torch")
    from gnomon.agent.drivers.pytorch import _arranged

    spec = torch.utils._pytree.tree_flatten(((0, 3, None), {"scale": 0}))[1]
    program = SimpleNamespace(
        graph_signature=SimpleNamespace(user_inputs=("x", 3, None, "scale")), call_spec=SimpleNamespace(in_spec=spec)
    )
    assert _arranged(torch, program, {"x": "tensor x", "scale": "tensor scale"}) == (
        ("tensor x", 3, None),
        {"scale": "tensor scale"},
    )


def test_an_output_whose_size_depends_on_the_input_is_taken_as_it_is(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    from gnomon.agent.arrays import make_buffers
    from gnomon.agent.drivers.pytorch import PyTorchModel

    class Places(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.nonzero(x > 0), x + 1

    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(Places(), (torch.ones(4),)), str(path))
    buffers = make_buffers(
        {
            "x": {"shape": [4], "dtype": "float32"},
            "places": {"shape": [-1, 1], "dtype": "int64"},
            "more": {"shape": [4], "dtype": "float32"},
        }
    )
    segment: Any = {"model": str(path), "inputs": [["x", "x"]], "outputs": [["nonzero", "places"], ["add", "more"]]}
    loaded = PyTorchModel(segment, buffers, profiled=False)
    for filled in (3, 1, 4):
        buffers["x"][:] = [k < filled for k in range(4)]
        loaded.call()
        assert buffers["places"].tolist() == [[k] for k in range(filled)]
        assert buffers["more"].tolist() == (buffers["x"] + 1).tolist()
