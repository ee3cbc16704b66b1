"""The shipped contract of runtimes, held by LiteRT, and what its adapter makes of a wish."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.drivers.litertkit import tflite
from tests.agent.jobkit import placed_here

from gnomon.core.sample import Failure
from gnomon.errors import PackageError, UsageError
from gnomon.measure.link import AgentLink
from gnomon.models.load import load
from gnomon.models.model import with_shapes
from gnomon.runtimes.base import Probe, RunSettings, Runtime
from gnomon.runtimes.litert import LiteRt
from gnomon.testing.runtime import RuntimeContract
from gnomon.wire import DeviceFound

PROBE = Probe(version="2.3.0", backends=("xnnpack", "builtin", "reference"))


class TestLiteRt(RuntimeContract):
    @pytest.fixture
    def adapter(self) -> Runtime:
        return LiteRt()

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return written(tmp_path, "conv", "conv", "softmax")


def written(folder: Path, *kinds: str, **more: Any) -> Path:
    path = folder / "m.tflite"
    path.write_bytes(tflite(*kinds, **more))
    return path


def test_each_kind_of_kernels_is_a_configuration() -> None:
    made = LiteRt().configurations(PROBE, RunSettings(threads=2, environments=({"A": "1"},)))
    assert [c.name for c in made] == [
        "litert[xnnpack]",
        "litert[xnnpack,A=1]",
        "litert[builtin]",
        "litert[builtin,A=1]",
        "litert[reference]",
        "litert[reference,A=1]",
    ]
    assert [c.backends for c in made[::2]] == [("xnnpack",), ("builtin",), ("reference",)]
    assert made[0].options == {"threads": 2, "kernels": "xnnpack"}


def test_a_wish_limits_the_kinds_of_kernels() -> None:
    def named(*backends: str) -> list[str]:
        return [c.name for c in LiteRt().configurations(PROBE, RunSettings(backends=backends))]

    assert named("builtin") == ["litert[builtin]"]
    assert named("reference", "xnnpack") == ["litert[xnnpack]", "litert[reference]"]
    assert len(named("litert")) == 3
    with pytest.raises(UsageError, match="'ruy'") as refused:
        named("xnnpack", "ruy")
    assert refused.value.hint == "It has: xnnpack, builtin, reference."


CARD: DeviceFound = {"backend": "gpu", "name": "Card", "software": False}
ON_GPU = replace(PROBE, backends=(*PROBE.backends, "gpu"), details={"devices": [CARD]})


def test_a_gpu_is_a_configuration_that_names_its_device() -> None:
    *_, gpu = LiteRt().configurations(ON_GPU, RunSettings())
    assert (gpu.name, gpu.backends) == ("litert[gpu]", ("gpu",))
    assert gpu.options == {"threads": 1, "kernels": "gpu", "precision": "float32", "adapter": "Card"}
    assert [a.name for a in gpu.accelerators] == ["Card"]
    lower = LiteRt().configurations(ON_GPU, RunSettings(backends=("gpu",), precisions=("float16", "bfloat16")))
    assert [(c.name, c.precision, c.tolerance) for c in lower] == [
        ("litert[gpu]", "float32", 1e-3),
        ("litert[gpu,f16]", "float16", 2e-2),
    ]


def test_a_gpu_that_is_a_program_is_used_where_it_is_named_alone() -> None:
    software = replace(ON_GPU, details={"devices": [{**CARD, "software": True}]})

    def named(*backends: str) -> list[str]:
        return [c.name for c in LiteRt().configurations(software, RunSettings(backends=backends))]

    assert "litert[gpu]" not in named() + named("litert")
    assert named("gpu", "xnnpack") == ["litert[xnnpack]", "litert[gpu]"]


def test_a_gpu_that_is_not_there_is_refused_with_the_reason() -> None:
    none = replace(PROBE, details={"lacking": {"gpu": "No adapters found"}})
    with pytest.raises(UsageError, match="no backend 'gpu': No adapters found"):
        LiteRt().configurations(none, RunSettings(backends=("gpu",)))


def supports(link: AgentLink, path: Path) -> dict[str, Any]:
    """What each kind of kernels takes of a model, or its failure."""
    found: dict[str, Any] = {}
    for configuration in LiteRt().configurations(PROBE, RunSettings()):
        support = LiteRt().support(link.ask, placed_here(path), configuration)
        backend = configuration.backends[0]
        found[backend] = support.failures.get(backend) or support.operators[backend]
    return found


def test_xnnpack_that_would_take_nothing_is_no_configuration(link: AgentLink, tmp_path: Path) -> None:
    found = supports(link, written(tmp_path, "floor_mod", "floor_mod"))
    assert isinstance(found["xnnpack"], Failure)
    assert found["xnnpack"].kind == "refused"
    assert "supports no operator" in found["xnnpack"].message
    assert found["builtin"] == found["reference"] == frozenset({0, 1})


def test_an_operator_that_litert_lacks_is_a_failure_with_its_name(link: AgentLink, tmp_path: Path) -> None:
    for failure in supports(link, written(tmp_path, "conv", "custom")).values():
        assert isinstance(failure, Failure)
        assert "NoSuchOperator" in failure.message + failure.log_tail


def test_open_shapes_are_fixed_when_the_file_is_loaded(link: AgentLink, tmp_path: Path) -> None:
    path = written(tmp_path, "conv", signature=(1, -1, 4, 8))
    before = placed_here(path)
    model = replace(before, graph=with_shapes(load(path), {before.inputs[0]: (1, 8, 4, 8)}).graph)
    for configuration in LiteRt().configurations(PROBE, RunSettings()):
        found = LiteRt().support(link.ask, model, configuration)
        assert found.operators == {configuration.backends[0]: frozenset({0})}
        assert found.options == {}, "the C API of compiled models does that too"


def test_a_model_that_cannot_be_copied_is_an_error(tmp_path: Path) -> None:
    model = load(written(tmp_path, "conv"))
    configuration = LiteRt().configurations(PROBE, RunSettings())[0]
    with pytest.raises(PackageError, match=r"m\.tflite"):
        LiteRt().package(model, configuration, {}, tmp_path / "nowhere")
