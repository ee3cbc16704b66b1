"""TVM's adapter: the shipped contract with the real runtime, and tuning records that go with the job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.drivers.tvm_models import layer_norm_net, needs_tvm, small_net, write_records
from tests.agent.jobkit import placed_here

from gnomon.core.overlay.records import (
    TunedDevice,
    TunedModel,
    TuningRecords,
    TuningTrial,
)
from gnomon.core.sample import Failure
from gnomon.devices.local import LocalDevice
from gnomon.errors import ProblemError, UsageError
from gnomon.measure.link import AgentLink
from gnomon.runtimes.base import Probe, RunSettings, Runtime
from gnomon.runtimes.registry import all_runtimes, chosen_runtimes, usual
from gnomon.runtimes.tvm import RECORDS, Tvm, best_traces
from gnomon.testing.runtime import RuntimeContract

PROBE = Probe(version="0.27.0.post1", backends=("llvm",))
NO_RECORDS = TuningRecords(device=TunedDevice(key="a", target={}), model=TunedModel(name="m"), layers=(), trials=())


@needs_tvm
class TestTvm(RuntimeContract):
    @pytest.fixture
    def adapter(self) -> Runtime:
        return Tvm()

    @pytest.fixture(scope="class")
    @classmethod
    def path(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        path = tmp_path_factory.mktemp("tvm") / "m.onnx"
        path.write_bytes(layer_norm_net())  # one file for all tests of the contract: it is compiled once in a visit
        return path


def test_tvm_is_tried_only_where_it_is_named() -> None:
    assert "tvm" in {runtime.name for runtime in all_runtimes()[0]}
    assert "tvm" not in {runtime.name for runtime in chosen_runtimes((), "onnx")}
    assert [runtime.name for runtime in chosen_runtimes(("tvm", "onnxruntime"), "onnx")] == ["tvm", "onnxruntime"]
    assert [runtime.name for runtime in all_runtimes()[0] if not usual(runtime)] == ["tvm"]


def test_its_one_backend() -> None:
    for settings in (RunSettings(), RunSettings(backends=("llvm",)), RunSettings(backends=("tvm",))):
        (made,) = Tvm().configurations(PROBE, settings)
        assert (made.name, made.backends, made.options) == ("tvm", ("llvm",), {"threads": 1})


def trial(configuration: str, *times_s: float, layer: str = "1", **more: object) -> TuningTrial:
    trace = None if configuration == "untuned" else [configuration]
    made = TuningTrial(layer=layer, configuration=configuration, trace=trace, times_s=times_s)
    return replace(made, **more)  # type: ignore[arg-type]


def test_the_best_trace_of_a_layer_is_by_the_median_of_all_its_samples() -> None:
    trials = (
        trial("a", 1.0, 9.0, 9.0),  # a lucky sample
        trial("b", 5.0, 5.0),
        trial("b", 6.0),
        trial("c", 1.0, error=0.5),  # wrong outputs
        trial("d", failure=Failure(stage="build", kind="hang", transient=False, message="20 s")),
        trial("untuned", 7.0),
        trial("e", 3.0, layer="2"),
        trial("untuned", 2.0, layer="2"),  # best left alone
        trial("f", 3.0, layer="3"),  # of one clock with the next
        trial("g", 4.0, cpu_s=(2.0,), layer="3"),
    )
    assert best_traces(replace(NO_RECORDS, trials=trials)) == {"1": ["b"], "3": ["f"]}


def test_records_that_cannot_be_used_are_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    settings = RunSettings(environments=({RECORDS: str(path)},))
    with pytest.raises(UsageError, match=r"r\.json does not exist") as refused:
        Tvm().configurations(PROBE, settings)
    assert RECORDS in refused.value.hint
    path.write_text("nothing of the kind\n")
    with pytest.raises(ProblemError):
        Tvm().configurations(PROBE, settings)
    header: dict[str, Any] = {
        "gnomon": "tuning records",
        "version": 1,
        "tuner": "metaschedule",
        "device": {"key": "local", "target": {"kind": "llvm"}, "linker": "", "threads": 0},
        "found_on": "",
        "model": {"name": "m", "sha256": "", "dtype": "float32"},
        "versions": {},
    }
    path.write_text(json.dumps({**header, "tuner": "ansor"}) + "\n")
    with pytest.raises(UsageError, match="records of ansor"):
        Tvm().configurations(PROBE, settings)
    path.write_text(json.dumps({**header, "device": {**header["device"], "target": {"kind": "cuda"}}}) + "\n")
    with pytest.raises(UsageError, match="its target has the kind 'cuda', but gnomon compiles only for processors"):
        Tvm().configurations(PROBE, settings)
    path.write_text(json.dumps(header) + "\n")
    with pytest.raises(UsageError, match="no layer that a record makes faster"):
        Tvm().configurations(PROBE, settings)


@needs_tvm
def test_records_are_applied_and_those_of_another_model_are_refused(tmp_path: Path) -> None:
    model, other, path = tmp_path / "m.onnx", tmp_path / "other.onnx", tmp_path / "box.m.float32.json"
    model.write_bytes(small_net())
    other.write_bytes(layer_norm_net())
    assert write_records(model, path, layers=3) == 3
    made = Tvm().configurations(PROBE, RunSettings(environments=({RECORDS: str(path), "A": "1"},)))
    clean, tuned = made
    assert tuned.name.startswith("tvm[records=box.m.float32#")
    assert tuned.name.endswith(",A=1]")
    # The file itself goes nowhere: what it says travels in the options, and so into a package.
    assert tuned.environment == {"A": "1"}
    assert (clean.name, clean.environment) == ("tvm", {})
    with LocalDevice() as device, AgentLink(device) as link:
        answers = {
            name: link.ask({name: {"do": "supports", "segment": Tvm().segment(placed_here(one), tuned, {})}})[name]
            for name, one in (("own", model), ("other", other))
        }
    assert answers["own"] == {"whole": True, "functions": 7, "scheduled": 3}
    refused = answers["other"]
    assert isinstance(refused, Failure)
    assert "no tuning record (of 3) matches a layer of this model" in refused.message


@needs_tvm
@pytest.mark.usefixtures("short_visits")
def test_tuned_outputs_are_those_of_onnx_runtime(tmp_path: Path) -> None:
    from gnomon.api.place import profile

    model, records = tmp_path / "m.onnx", tmp_path / "box.m.float32.json"
    model.write_bytes(small_net())
    write_records(model, records)
    found = profile(
        model,
        runtimes=("onnxruntime", "tvm"),
        environments=({RECORDS: str(records)},),
        threads=1,
        record=tmp_path / "record.sqlite",
        processes=1,
        budget_s=1.0,
    )
    columns = {column.label: column for column in found.columns}
    tuned = next(column for label, column in columns.items() if label.startswith("tvm[records=box"))
    # The variable is meant for TVM alone; the reference is ONNX Runtime's.
    assert set(columns) == {"onnxruntime", "tvm", tuned.label}
    assert tuned.difference and tuned.difference.relative == pytest.approx(0, abs=1e-4)
    # Each operator of the model is in one of its kernels, and those take what a call takes.
    assert sorted(index for kernel in tuned.kernels for index in kernel.operators) == list(range(11))
