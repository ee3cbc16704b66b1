"""The config of snpe-bench.py (SNPE SDK, 1.x and 2.x), written, and the JSON of its results, read.

Sources: Qualcomm's public guide ("Benchmarking" of the Snapdragon Neural Processing Engine SDK) for the config's keys;
``nnabla_nas/utils/profiler/snpe`` of sony/nnabla-nas (nas_snpe_bench.py, create_latency_table.py) for the results:
``Execution_Data.<runtime>.<key>.{Min,Avg,Max}_Time`` in microseconds, one key a layer (``layer_...``), whose input
layers have ``Type:data``. The SDK itself was never at hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from gnomon.core.codec import OTHERS_TOO, Must, decode, read_json
from gnomon.core.strict_json import Complaints, Strict, shown
from gnomon.errors import UsageError
from gnomon.formats.snpe.meta import META_KEYS
from gnomon.formats.snpe.table import KEYS, STATISTICS, Number, Runtime, Time, TimeOr0

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

_NAMES = re.compile(r"[A-Za-z0-9_.:+, -]*", re.ASCII)
_RESULT = Strict(
    what="result of snpe-bench",
    hint="Give a JSON file of latest_results, as snpe-bench.py -json writes it.",
    most_letters=64 << 20,
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


def write_bench_config(
    *,
    folder: Path,
    dlc: Path,
    inputs: Path,
    device: str,
    device_path: str,
    runs: int = 5,
    runtimes: tuple[str, ...] = RUNTIMES,
    perf_profile: str = "default",
    profiling_level: str = "detailed",
    buffer_type: str = "float",
) -> str:
    """The config as JSON, with the keys that snpe-bench documents.

    `folder` is where it works here, and the folder `results` in it gets the results; `inputs` is the list of the files
    beside it, which are pushed to `device_path` on the phone. UsageError for a runtime, perf profile or profiling level
    that the SDK does not know, or runs below 1.
    """
    for what, value, known in (
        *(("runtime", runtime, RUNTIMES) for runtime in runtimes),
        ("perf profile", perf_profile, PERF_PROFILES),
        ("profiling level", profiling_level, PROFILING_LEVELS),
    ):
        if value not in known:
            raise UsageError(f"SNPE knows no {what} {shown(value)}", hint=f"Known: {', '.join(known)}.")
    if runs < 1 or not runtimes:
        raise UsageError("snpe-bench wants at least one run and one runtime", hint="Name them, such as CPU or GPU.")
    document = {
        "Name": dlc.stem,
        "HostRootPath": str(folder),
        "HostResultsDir": str(folder / "results"),
        "DevicePath": device_path,
        "Devices": [device],
        "HostName": "localhost",
        "Runs": runs,
        "Model": {"Name": dlc.stem, "Dlc": str(dlc), "InputList": str(inputs), "Data": [str(inputs.parent)]},
        "Runtimes": list(runtimes),
        "Measurements": ["timing"],
        "PerfProfile": perf_profile,
        "ProfilingLevel": profiling_level,
        "BufferTypes": [buffer_type],
    }
    return json.dumps(document, indent=2) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What is read of a result."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    Execution_Data: Mapping[Runtime, Any]
    Runtimes: Annotated[str, Must(be="names with commas between", fits=_NAMES.fullmatch)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statistics:
    """Times of a layer, which may take less than a microsecond."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    Min_Time: TimeOr0
    Avg_Time: TimeOr0
    Max_Time: TimeOr0

    @property
    def times(self) -> dict[str, Number]:
        """By their names."""
        return {name: getattr(self, name) for name in STATISTICS}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole(_Statistics):
    """Times of all layers."""

    Avg_Time: Time
    Max_Time: Time


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What is read of a runtime's results. The tool takes what a layer is from the name that snpe-bench gives it."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO | {"alias_generator": lambda name: name.replace("_", " ")}
    Forward_Propagate: _Whole
    Total_Inference_Time: _Whole
    layers: Annotated[
        Mapping[str, _Statistics], Must(be="times of layers (the profiling level must be detailed)", fits=bool)
    ]


def read_bench_result(text: str | bytes) -> BenchResult:
    """Reads a result. A runtime that failed is in `failures`, its times never 0. ProblemError if it is not a result."""
    document = _RESULT.parse(text)
    read = read_json(_Result, document, _RESULT)
    named = [name.strip() for name in read.Runtimes.split(",") if name.strip()]
    times: dict[str, dict[str, Mapping[str, Number]]] = {}
    layers: dict[str, dict[str, Mapping[str, Number]]] = {}
    failures: dict[str, str] = {}
    for runtime in dict.fromkeys((*named, *read.Execution_Data)):
        run = _run(read.Execution_Data.get(runtime))
        if isinstance(run, str):
            failures[runtime] = run
            continue
        layers[runtime] = {name: one.times for name, one in run.layers.items()}
        # As the tool adds: floats, one layer after the other.
        sums: dict[str, Number] = {
            name: sum((one[name] for one in layers[runtime].values()), 0.0) for name in STATISTICS
        }
        if not 0 < sums["Avg_Time"] < 1e15:
            failures[runtime] = f"Layers Time: a time above 0 expected, {shown(sums['Avg_Time'])} found"
            del layers[runtime]
            continue
        wholes = (run.Forward_Propagate.times, run.Total_Inference_Time.times, sums)
        times[runtime] = dict(zip(KEYS, wholes, strict=True))
    meta = {key: str(document[key]) for key in META_KEYS if isinstance(document.get(key), str | int)}
    return BenchResult(times=times, layers=layers, failures=failures, meta=meta)


def _run(data: Any) -> _Run | str:
    """A runtime's results, or what is wrong with them."""
    if not isinstance(data, dict) or not data:
        return "Execution_Data: snpe-bench reported nothing for this runtime: it does not run there"
    complaints = Complaints(what="result", hint="")
    layers = {key: value for key, value in data.items() if "layer_" in key and "Type:data" not in key}
    run: _Run = decode(_Run, {**data, "layers": layers}, complaints, "")
    return "; ".join(told.lstrip(".: ") for told in complaints.told[:3]) or run


def write_accumulation(sums_us: Mapping[str, Number]) -> str:
    """The accumulation file of a sampled net, letter for letter as the replaced tool writes it."""
    return json.dumps(dict(sums_us))
