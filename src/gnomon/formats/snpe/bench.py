"""The config of snpe-bench.py (SNPE SDK, 1.x and 2.x), written, and the JSON of its results, read.

Sources: Qualcomm's public guide ("Benchmarking" of the Snapdragon Neural Processing Engine SDK) for the config's keys;
``nnabla_nas/utils/profiler/snpe`` of sony/nnabla-nas (nas_snpe_bench.py, create_latency_table.py) for the results:
``Execution_Data.<runtime>.<key>.{Min,Avg,Max}_Time`` in microseconds, one key a layer (``layer_...``), whose input
layers have ``Type:data``. The SDK itself was never at hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.core.strict_json import Complaints, Strict, shown
from gnomon.errors import UsageError
from gnomon.formats.snpe.meta import META_KEYS
from gnomon.formats.snpe.table import STATISTICS, Number, wrong_runtime, wrong_time

RUNTIMES = ("CPU", "GPU", "GPU_FP16", "DSP")
PERF_PROFILES = (
    "default",
    "balanced",
    "high_performance",
    "sustained_high_performance",
    "burst",
    "low_balanced",
    "low_power_saver",
    "power_saver",
    "high_power_saver",
    "extreme_power_saver",
    "system_settings",
)
PROFILING_LEVELS = ("off", "basic", "moderate", "detailed")

_COPIED = ("Forward Propagate", "Total Inference Time")
_RESULT = Strict(
    what="result of snpe-bench",
    hint="Give a JSON file of latest_results, as snpe-bench.py -json writes it.",
    most_letters=64 << 20,
)
_ACCUMULATED = Strict(
    what="accumulation file",
    hint="Give a NNN.json of sample_nnps.py of nnabla-nas: an object of runtimes and microseconds.",
    most_letters=1 << 20,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConfig:
    """What snpe-bench is told. Paths are this machine's, `device_path` the phone's; `data` are folders to be pushed.

    UsageError for a runtime, perf profile or profiling level that the SDK does not know, or runs below 1.
    """

    name: str
    host_root_path: str
    host_results_dir: str
    devices: tuple[str, ...]
    model_name: str
    dlc: str
    input_list: str
    data: tuple[str, ...]
    device_path: str = "/data/local/tmp/snpebm"
    host_name: str = "localhost"
    runs: int = 5
    runtimes: tuple[str, ...] = RUNTIMES
    measurements: tuple[str, ...] = ("timing",)
    perf_profile: str = "default"
    profiling_level: str = "detailed"
    buffer_types: tuple[str, ...] = ("float",)

    def __post_init__(self) -> None:
        for what, value, known in (
            *(("runtime", runtime, RUNTIMES) for runtime in self.runtimes),
            ("perf profile", self.perf_profile, PERF_PROFILES),
            ("profiling level", self.profiling_level, PROFILING_LEVELS),
        ):
            if value not in known:
                raise UsageError(f"SNPE knows no {what} {shown(value)}", hint=f"Known: {', '.join(known)}.")
        if self.runs < 1 or not self.runtimes or not self.devices:
            raise UsageError(
                "snpe-bench wants at least one run, one runtime and one device", hint="Name them, such as CPU or GPU."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """What snpe-bench measured, in microseconds.

    `times` is an entry of a latency table: by runtime, "Forward Propagate", "Total Inference Time" and "Layers Time",
    each with Min_Time, Avg_Time and Max_Time. `layers` has the layers that were summed, by runtime and by the name that
    snpe-bench gives them. `failures` says of runtimes without times why. `meta` is about the phone and the SDK.
    """

    times: Mapping[str, Mapping[str, Mapping[str, Number]]]
    layers: Mapping[str, Mapping[str, Mapping[str, Number]]]
    failures: Mapping[str, str] = field(default_factory=dict)
    meta: Mapping[str, str] = field(default_factory=dict)


def write_bench_config(config: BenchConfig) -> str:
    """The config as JSON, with the keys that snpe-bench documents."""
    document = {
        "Name": config.name,
        "HostRootPath": config.host_root_path,
        "HostResultsDir": config.host_results_dir,
        "DevicePath": config.device_path,
        "Devices": list(config.devices),
        "HostName": config.host_name,
        "Runs": config.runs,
        "Model": {
            "Name": config.model_name,
            "Dlc": config.dlc,
            "InputList": config.input_list,
            "Data": list(config.data),
        },
        "Runtimes": list(config.runtimes),
        "Measurements": list(config.measurements),
        "PerfProfile": config.perf_profile,
        "ProfilingLevel": config.profiling_level,
        "BufferTypes": list(config.buffer_types),
    }
    return json.dumps(document, indent=2) + "\n"


def read_bench_result(text: str | bytes) -> BenchResult:
    """Reads a result. A runtime that failed is in `failures`, its times never 0. ProblemError if it is not a result."""
    document = _RESULT.object(_RESULT.parse(text), "$")
    executed = _RESULT.object(document.get("Execution_Data"), "$.Execution_Data")
    named = document.get("Runtimes", ",".join(executed))
    if not isinstance(named, str):
        _RESULT.fail("$.Runtimes", f"names with commas between expected, {shown(named)} found")
    times: dict[str, dict[str, Mapping[str, Number]]] = {}
    layers: dict[str, dict[str, Mapping[str, Number]]] = {}
    failures: dict[str, str] = {}
    for runtime in dict.fromkeys((*(name.strip() for name in named.split(",") if name.strip()), *executed)):
        wrong = wrong_runtime(runtime)
        if wrong:
            _RESULT.fail("$.Execution_Data", wrong)
        complaints = Complaints(what="result", hint="")
        found, parts = _runtime(executed.get(runtime), complaints)
        if complaints.told:
            failures[runtime] = "; ".join(complaints.told[:3])
        else:
            times[runtime], layers[runtime] = found, parts
    meta = {key: str(document[key]) for key in META_KEYS if isinstance(document.get(key), str | int)}
    return BenchResult(times=times, layers=layers, failures=failures, meta=meta)


def read_accumulation(text: str | bytes) -> dict[str, Number]:
    """Reads ``{runtime: microseconds}`` of a sampled net. ProblemError with everything that is wrong."""
    complaints = Complaints(what=_ACCUMULATED.what, hint=_ACCUMULATED.hint)
    found: dict[str, Number] = {}
    for runtime, value in _ACCUMULATED.object(_ACCUMULATED.parse(text), "$").items():
        wrong = wrong_runtime(runtime) or wrong_time(value, "Avg_Time")
        if wrong:
            complaints.tell(f"$.{shown(runtime)}", wrong)
        else:
            found[runtime] = value
    if not found and not complaints.told:
        complaints.tell("$", "no runtime at all")
    complaints.raise_any()
    return found


def write_accumulation(sums_us: Mapping[str, Number]) -> str:
    """The accumulation file of a sampled net, letter for letter as the replaced tool writes it."""
    return json.dumps(dict(sums_us))


def _runtime(
    data: Any, complaints: Complaints
) -> tuple[dict[str, Mapping[str, Number]], dict[str, Mapping[str, Number]]]:
    """A runtime's times and layers. The tool takes what a layer is from the name that snpe-bench gives it."""
    times: dict[str, Mapping[str, Number]] = {}
    layers: dict[str, Mapping[str, Number]] = {}
    if not isinstance(data, dict) or not data:
        complaints.tell("Execution_Data", "snpe-bench reported nothing for this runtime: it does not run there")
        return times, layers
    for key in _COPIED:
        if key not in data:
            complaints.tell(key, "missing")
        else:
            times[key] = _statistics(data[key], key, complaints)
    for key, value in data.items():
        if "layer_" in key and "Type:data" not in key:
            layers[key] = _statistics(value, key, complaints, least=True)
    if not layers:
        complaints.tell("Layers Time", "no times of layers: the profiling level must be detailed")
        return times, layers
    if complaints.told:
        return times, layers
    # As the tool adds: floats, one layer after the other.
    sums = {name: _sum(layers, name) for name in STATISTICS}
    times["Layers Time"] = sums
    if wrong := wrong_time(sums["Avg_Time"], "Avg_Time"):
        complaints.tell("Layers Time", wrong)
    return times, layers


def _sum(layers: Mapping[str, Mapping[str, Number]], name: str) -> float:
    total = 0.0
    for statistics in layers.values():
        total += statistics[name]
    return total


def _statistics(data: Any, key: str, complaints: Complaints, *, least: bool = False) -> dict[str, Number]:
    """The three statistics of a key; a layer may take less than the microsecond that is told (`least`)."""
    found: dict[str, Number] = {}
    if not isinstance(data, dict):
        complaints.tell(shown(key), f"an object expected, {shown(data)} found")
        return found
    for name in STATISTICS:
        wrong = wrong_time(data.get(name), "Min_Time" if least else name)
        if wrong:
            complaints.tell(f"{shown(key)}.{name}", wrong)
        else:
            found[name] = data[name]
    return found
