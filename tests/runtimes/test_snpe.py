"""SNPE by stand-ins for its SDK, which run models for real, and the real adb speaking to a stand-in for adbd."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.devices.shell.adbkit import Phone, adb_server, phone
from tests.standins import snpekit

from gnomon.core.sample import Failure
from gnomon.devices.local import LocalDevice
from gnomon.devices.shell.bridge import BridgeDevice
from gnomon.errors import DeviceError, RuntimeMissingError, UsageError
from gnomon.formats.snpe.bench import RUNTIMES, read_bench_result
from gnomon.runtimes.snpe import Benched, BenchOrder, Snpe, benched, find_sdk

GOLDEN = Path(__file__).parent.parent / "formats" / "golden" / "snpe" / "snpe-bench-result.json"
QUICK = BenchOrder(backends=("CPU", "GPU"), runs=2, inputs=2, timeout_s=60.0)


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return snpekit.sdk(tmp_path_factory.mktemp("sdk"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two inputs, a convolution, a batch normalisation, a ReLU and an addition."""
    pytest.importorskip("onnx", reason="onnx is not installed")
    import numpy as np
    from tests.models import modelkit

    drawn, shape = np.random.default_rng(0), [1, 8, 16, 16]
    weights = {"w": drawn.standard_normal((8, 8, 3, 3), dtype=np.float32)}
    weights |= {name: np.abs(drawn.standard_normal(8, dtype=np.float32)) + 1 for name in "sbmv"}
    nodes = [
        modelkit.node("Conv", ["x0", "w"], ["c"], pads=[1, 1, 1, 1]),
        modelkit.node("BatchNormalization", ["c", *"sbmv"], ["n"]),
        modelkit.node("Relu", ["n"], ["r"]),
        modelkit.node("Add", ["r", "x1"], ["y"]),
    ]
    inputs = [modelkit.value(name, shape) for name in ("x0", "x1")]
    path = tmp_path_factory.mktemp("model") / "a unit with blanks.onnx"
    return modelkit.save(modelkit.model(nodes, inputs, [modelkit.value("y", shape)], weights), path)


@pytest.fixture(scope="module")
def mobile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phone]:
    with adb_server(), phone(tmp_path_factory.mktemp("mobile") / "phone") as found:
        yield found


@pytest.fixture(scope="module")
def device(mobile: Phone) -> Iterator[BridgeDevice]:
    with BridgeDevice(mobile.settings()) as opened:
        yield opened


def tool(sdk: Path, habits: str = "") -> Snpe:
    return Snpe(find_sdk({**os.environ, "SNPE_ROOT": str(sdk), "SNPE_STANDIN": habits}))


def test_a_unit_gets_its_times_of_every_runtime(sdk: Path, model: Path, device: BridgeDevice, mobile: Phone) -> None:
    found = tool(sdk, "lacks=DSP").measure(device, model, dataclasses.replace(QUICK, backends=()))
    assert isinstance(found, Benched)
    assert list(found.times_s) == ["CPU", "GPU", "GPU_FP16"]
    assert list(found.failures) == ["DSP"]
    for keys in found.times_s.values():
        assert set(keys) == {"Forward Propagate", "Total Inference Time", "Layers Time"}
        for row in keys.values():
            assert 0 < row["Min_Time"] <= row["Avg_Time"] <= row["Max_Time"] < 10
    reported = found.reported_s()
    assert len(reported) == 3 * 3 * 3
    assert reported["GPU/Layers Time/Avg_Time"] == found.times_s["GPU"]["Layers Time"]["Avg_Time"]
    layers = found.layers_s["GPU"]
    assert sum(row["Avg_Time"] for row in layers.values()) == pytest.approx(reported["GPU/Layers Time/Avg_Time"])
    assert not any("Type:data" in name for name in layers)
    assert found.told["Devices"] == mobile.serial
    assert found.told["SNPE SDK version:"] == snpekit.VERSION
    # What was pushed lies in the private folder, which goes with the visit.
    assert (Path(device.folder) / "snpebm" / "model" / "random_inputs").is_dir()


def test_the_layout_of_sdk_2_works_too(tmp_path: Path, model: Path, device: BridgeDevice) -> None:
    newer = snpekit.sdk(tmp_path, old=False)
    found = tool(newer, "sdk=2").measure(device, model, dataclasses.replace(QUICK, backends=("CPU",)))
    assert isinstance(found, Benched)
    assert list(found.times_s) == ["CPU"]
    assert not found.failures


def test_inputs_are_drawn_by_the_seed(sdk: Path, model: Path, device: BridgeDevice) -> None:
    drawn: list[dict[str, bytes]] = []
    for seed in (1, 1, 2):
        order = dataclasses.replace(QUICK, backends=("CPU",), runs=1, seed=seed)
        assert isinstance(tool(sdk).measure(device, model, order), Benched)
        folder = Path(device.folder) / "snpebm" / "model" / "random_inputs"
        drawn.append({path.name: path.read_bytes() for path in folder.glob("*.raw")})
    assert len(drawn[0]) == 4
    assert all(len(content) == 4 * 8 * 16 * 16 for content in drawn[0].values())
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("habits", "stage", "kind", "told"),
    [
        ("convert=dies", "load", "crash", "snpe-onnx-to-dlc crashed with signal 11"),
        ("convert=forgets", "load", "refused", "ended well and wrote no model.dlc"),
        ("bench=dies", "run", "crash", "snpe_bench.py crashed with signal 6"),
        ("bench=forgets", "run", "refused", "left no result"),
        ("bench=nonsense", "run", "refused", "result of snpe-bench is malformed"),
    ],
)
def test_what_goes_wrong_with_a_model_is_data(
    sdk: Path, model: Path, device: BridgeDevice, habits: str, stage: str, kind: str, told: str
) -> None:
    found = tool(sdk, habits).measure(device, model, QUICK)
    assert isinstance(found, Failure)
    assert (found.stage, found.kind) == (stage, kind)
    assert told in found.message
    assert device.run(["true"], env={}, timeout_s=60).ok


def test_a_model_that_the_converter_refuses_is_data(sdk: Path, tmp_path: Path, device: BridgeDevice) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no ONNX")
    found = tool(sdk).measure(device, tmp_path / "broken.onnx", QUICK)
    assert isinstance(found, Failure)
    assert found.kind == "refused"
    assert "Encountered Error" in found.message


def test_without_layers_the_failure_says_what_to_set(sdk: Path, model: Path, device: BridgeDevice) -> None:
    found = tool(sdk, "level=basic").measure(device, model, QUICK)
    assert isinstance(found, Benched)
    assert not found.times_s
    assert "the profiling level must be detailed" in found.failures["GPU"].message


def test_a_phone_that_left_is_no_failure_of_the_model(sdk: Path, model: Path, mobile: Phone, tmp_path: Path) -> None:
    with phone(tmp_path / "leaving") as leaving:
        with pytest.raises(DeviceError) as lost, BridgeDevice(leaving.settings(silence_s=2.0)) as opened:
            leaving.leave()
            tool(sdk).measure(opened, model, QUICK)
        assert lost.value.transient
        leaving.start()
        with BridgeDevice(leaving.settings(silence_s=2.0)) as opened:
            assert isinstance(tool(sdk).measure(opened, model, QUICK), Benched)


def test_settings_that_snpe_does_not_know_are_refused(sdk: Path, model: Path, device: BridgeDevice) -> None:
    for settings, told in (({"perf_profile": "fast"}, "perf_profile 'fast'"), ({"speed": "1"}, "no setting 'speed'")):
        with pytest.raises(UsageError, match=told) as error:
            tool(sdk).measure(device, model, dataclasses.replace(QUICK, settings=settings))
        assert "Known" in error.value.hint or "It has" in error.value.hint
    with pytest.raises(UsageError, match="no runtime 'NPU'"):
        tool(sdk).measure(device, model, dataclasses.replace(QUICK, backends=("NPU",)))
    with LocalDevice() as here, pytest.raises(UsageError, match="phones that adb reaches"):
        tool(sdk).measure(here, model, QUICK)


def test_an_sdk_is_found_and_a_missing_one_told(sdk: Path, tmp_path: Path) -> None:
    for variable in ("SNPE_ROOT", "QNN_SDK_ROOT", "QAIRT_SDK_ROOT"):
        found = find_sdk({variable: str(sdk), "PATH": "/usr/bin", "ANDROID_ADB_SERVER_PORT": "5"})
        assert found.version == snpekit.VERSION
        assert found.bench.endswith("benchmarks/snpe_bench.py")
        assert found.environment["PYTHONPATH"] == str(sdk / "lib" / "python")
        assert found.environment["ANDROID_ADB_SERVER_PORT"] == "5"
        assert found.environment["PATH"].endswith("/usr/bin")
    probe = Snpe(found).probe()
    assert (probe.version, probe.backends) == (snpekit.VERSION, RUNTIMES)
    folders = [str(Path(program).parent) for program in (found.convert, found.bench)]
    assert find_sdk({"PATH": os.pathsep.join(folders)}).convert == found.convert
    for environ, told in (
        ({"PATH": "/nowhere"}, "there is no SNPE SDK"),
        ({"SNPE_ROOT": str(tmp_path / "gone"), "PATH": ""}, "not a folder"),
        ({"SNPE_ROOT": str(tmp_path), "PATH": ""}, "lacks snpe-onnx-to-dlc, snpe-dlc-info, snpe-bench.py"),
        ({"PATH": folders[0]}, "the SNPE SDK on the PATH lacks snpe-bench.py"),
    ):
        with pytest.raises(RuntimeMissingError, match=told) as error:
            find_sdk(environ)
        assert "SNPE_ROOT" in error.value.hint


def test_a_result_in_seconds_knows_what_was_asked_for() -> None:
    document: dict[str, Any] = json.loads(GOLDEN.read_text())
    document["Execution_Data"]["GPU_ub_float"] = document["Execution_Data"].pop("GPU")
    document["Runtimes"] = "GPU_ub_float"
    found = benched(read_bench_result(json.dumps(document)), ("GPU", "GPU_FP16"))
    assert found.times_s["GPU_ub_float"]["Layers Time"]["Avg_Time"] == pytest.approx(37e-6)
    assert list(found.failures) == ["GPU_FP16"]
