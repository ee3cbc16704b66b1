"""snpe-bench: the config that is written, and the results that are read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from gnomon.errors import ProblemError, UsageError
from gnomon.formats.snpe.bench import read_bench_result, write_bench_config
from gnomon.formats.snpe.meta import write_snpe_meta
from gnomon.formats.snpe.table import write_snpe_csv

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "snpe"
RESULT: dict[str, Any] = json.loads((GOLDEN / "snpe-bench-result.json").read_text())
CONFIG: dict[str, Any] = {
    "folder": Path("/here/bench"),
    "dlc": Path("/here/bench/unit.dlc"),
    "inputs": Path("/here/bench/inputs/list.txt"),
    "device": "QV714AE41T",
    "device_path": "/data/local/tmp/snpebm",
}


def test_the_config_has_the_documented_keys() -> None:
    document = json.loads(write_bench_config(**CONFIG, perf_profile="sustained_high_performance"))
    assert list(document) == [
        *("Name", "HostRootPath", "HostResultsDir", "DevicePath", "Devices", "HostName", "Runs", "Model", "Runtimes"),
        *("Measurements", "PerfProfile", "ProfilingLevel", "BufferTypes"),
    ]
    assert document["Model"] == {
        "Name": "unit",
        "Dlc": "/here/bench/unit.dlc",
        "InputList": "/here/bench/inputs/list.txt",
        "Data": ["/here/bench/inputs"],
    }
    assert document["Devices"] == ["QV714AE41T"]
    assert document["Runtimes"] == ["CPU", "GPU", "GPU_FP16", "DSP"]
    assert (document["ProfilingLevel"], document["Measurements"]) == ("detailed", ["timing"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"runtimes": ("CPU", "NPU")}, "no runtime 'NPU'"),
        ({"perf_profile": "fast"}, "no perf profile 'fast'"),
        ({"profiling_level": "all"}, "no profiling level 'all'"),
        ({"runs": 0}, "at least one run"),
        ({"runtimes": ()}, "one runtime"),
    ],
)
def test_what_the_sdk_does_not_know_is_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told) as error:
        write_bench_config(**{**CONFIG, **change})
    assert error.value.hint


def test_a_result_gives_the_published_rows() -> None:
    """Layers Time is the sum over the layers but the input, as floats; the published rows come out of it."""
    result = read_bench_result((GOLDEN / "snpe-bench-result.json").read_bytes())
    assert list(result.times) == ["GPU"]
    assert result.times["GPU"]["Layers Time"] == {"Min_Time": 37.0, "Avg_Time": 37.0, "Max_Time": 38.0}
    assert [name.split()[0] for name in result.layers["GPU"]] == ["layer_001", "layer_002"]
    golden = (GOLDEN / "snpe-table.csv").read_text()
    unit = golden.partition('",')[0].removeprefix('"')
    assert write_snpe_csv({unit: result.times}) == golden.replace("\n", "\r\n")
    meta = write_snpe_meta(result.meta)
    assert meta == (GOLDEN / "snpe-table.meta").read_text().replace("\n", "\r\n")


def test_a_runtime_without_times_is_a_failure_and_no_zero() -> None:
    result = read_bench_result(json.dumps(RESULT))
    assert result.failures.keys() == {"DSP"}
    assert "reported nothing" in result.failures["DSP"]


def changed(path: tuple[str, ...], value: Any) -> str:
    document = copy.deepcopy(RESULT)
    target = document
    for name in path[:-1]:
        target = target[name]
    if value is None:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return json.dumps(document)


GPU = ("Execution_Data", "GPU")
CONV = "layer_001 (Name:conv Type:convolutional)"


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ((*GPU, "Forward Propagate"), None, "'Forward Propagate': missing"),
        ((*GPU, "Total Inference Time", "Avg_Time"), 0, "Avg_Time: a time above 0"),
        ((*GPU, CONV, "Avg_Time"), "fast", "'fast' found"),
        ((*GPU, CONV), [], "an object expected"),
        (GPU, {}, "does not run there"),
        (
            GPU,
            {"Forward Propagate": RESULT["Execution_Data"]["GPU"]["Forward Propagate"]},
            "the profiling level must be detailed",
        ),
    ],
)
def test_a_broken_runtime_is_told(path: tuple[str, ...], value: Any, told: str) -> None:
    result = read_bench_result(changed(path, value))
    assert not result.times
    assert told in result.failures["GPU"]


def test_a_layer_below_a_microsecond_counts_as_what_is_told() -> None:
    result = read_bench_result(changed((*GPU, CONV), {"Min_Time": 0, "Avg_Time": 0, "Max_Time": 1}))
    assert result.times["GPU"]["Layers Time"] == {"Min_Time": 7.0, "Avg_Time": 7.0, "Max_Time": 9.0}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"Execution_Data": []}', '{"Execution_Data": {"a b": {}}}'])
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(ProblemError, match="result of snpe-bench is malformed") as error:
        read_bench_result(text)
    assert error.value.hint
