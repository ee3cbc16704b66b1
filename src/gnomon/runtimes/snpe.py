"""SNPE: Qualcomm's SDK converts a model on this machine and measures it on a phone behind adb, by snpe-bench.py.

The same steps as the profiler of nnabla-nas (nas_snpe_bench.py): snpe-onnx-to-dlc with batch normalisation folded,
snpe-dlc-info for the inputs, random inputs, a config, snpe-bench.py -json. What it tells per backend: "Forward
Propagate", "Total Inference Time", and "Layers Time", the sum over the layers but the input. See docs/runtimes/snpe.md.

Where the SNPE SDK lies on this machine, and how its programs are started.

Sources: Qualcomm's public setup guides of the Snapdragon Neural Processing Engine SDK 1.x, of the Neural Processing SDK
2.x, and of the AI Engine Direct SDK (QNN, QAIRT) that holds the latter. The SDK is licensed and was never at hand.

Tools of vendors that convert, run and measure a model by themselves, and report statistics instead of samples.

They are not a `Runtime`: no process of the agent loads anything, operators are not placed, there is no raw time of a
call to be interleaved with another's. What they report is kept as what it is.
"""

from __future__ import annotations

import math
import os
import random
import re
import shutil
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from gnomon.core.sample import Failure
from gnomon.devices.base import Device
from gnomon.devices.local import LocalDevice
from gnomon.devices.shell.bridge import BridgeDevice
from gnomon.errors import ModelError, ProblemError, RuntimeMissingError, UsageError
from gnomon.formats.snpe.bench import (
    PERF_PROFILES,
    PROFILING_LEVELS,
    RUNTIMES,
    BenchResult,
    read_bench_result,
    write_bench_config,
)
from gnomon.formats.snpe.meta import read_dlc_inputs
from gnomon.formats.snpe.table import LOOKUP, Number
from gnomon.runtimes.base import Probe
from gnomon.system.process import Completed
from gnomon.wire import ProbeDetails

ROOTS = ("SNPE_ROOT", "QAIRT_SDK_ROOT", "QNN_SDK_ROOT")
"""The variables that name the SDK's folder, the first that is set wins."""

HINT = (
    "Download the Qualcomm Neural Processing SDK (SNPE) from qpm.qualcomm.com under its licence, and set SNPE_ROOT to "
    "its folder; adb must be on the PATH. docs/runtimes/snpe.md has the steps."
)
_HOSTS = ("x86_64-linux-clang", "x86_64-linux-gnu")
_PROGRAMS = {
    "convert": ("snpe-onnx-to-dlc",),
    "info": ("snpe-dlc-info",),
    "bench": ("snpe-bench.py", "snpe_bench.py"),
}
_PASSED = ("ANDROID_", "ADB_", "SNPE_", "QNN_", "QAIRT_")
_VERSION = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+){0,2}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpeSdk:
    """An SDK: its version as far as its folder tells, its programs, and the environment in which they start."""

    version: str
    convert: str
    info: str
    bench: str
    environment: Mapping[str, str]


def find_sdk(environ: Mapping[str, str] | None = None) -> SnpeSdk:
    """The SDK that the environment names, or whose programs are on its PATH.

    RuntimeMissingError, with what to install, where there is none, or where a part of it is not there.
    """
    known = dict(os.environ if environ is None else environ)
    variable = next((name for name in ROOTS if known.get(name)), None)
    root = Path(known[variable]) if variable else None
    if root is not None and not root.is_dir():
        raise RuntimeMissingError(f"{variable} names {root}, which is not a folder", hint=HINT)
    below = [*(f"bin/{host}" for host in _HOSTS), "bin", "benchmarks/SNPE", "benchmarks"]
    own = [str(root / folder) for folder in below if (root / folder).is_dir()] if root is not None else []
    path = [*own, *known.get("PATH", os.defpath).split(os.pathsep)]
    found = {what: _program(names, path) for what, names in _PROGRAMS.items()}
    missing = [_PROGRAMS[what][0] for what, program in found.items() if not program]
    if len(missing) == len(_PROGRAMS) and root is None:
        raise RuntimeMissingError(f"there is no SNPE SDK: none of {', '.join(ROOTS)} is set", hint=HINT)
    if missing:
        where = f"the SNPE SDK at {root}" if root else "the SNPE SDK on the PATH"
        raise RuntimeMissingError(f"{where} lacks {', '.join(missing)}", hint=HINT)
    return SnpeSdk(version=_version(root, found["convert"]), environment=_environment(root, path, known), **found)


def _program(names: tuple[str, ...], path: list[str]) -> str:
    return next((found for name in names if (found := shutil.which(name, path=os.pathsep.join(path)))), "")


def _environment(root: Path | None, path: list[str], known: Mapping[str, str]) -> dict[str, str]:
    """What the programs see beside what every command does: the SDK's libraries first, and all about adb."""
    made = {name: value for name, value in known.items() if name.startswith(_PASSED)}
    made["PATH"] = os.pathsep.join(path)
    places = (
        {"PYTHONPATH": [], "LD_LIBRARY_PATH": []}
        if root is None
        else {
            "PYTHONPATH": [str(root / "lib" / "python")],
            "LD_LIBRARY_PATH": [str(root / "lib" / host) for host in _HOSTS if (root / "lib" / host).is_dir()],
        }
    )
    if root is not None:
        made.setdefault("SNPE_ROOT", str(root))
    for name, folders in places.items():
        whole = [*folders, *filter(None, known.get(name, "").split(os.pathsep))]
        if whole:
            made[name] = os.pathsep.join(whole)
    return made


def _version(root: Path | None, program: str) -> str:
    """The version in the folder's name ("snpe-1.33.1.608", "qairt/2.39.0.250926"); "unknown" where there is none."""
    for part in reversed((root.resolve() if root else Path(program).resolve()).parts):
        if found := _VERSION.search(part):
            return found[0]
    return "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOrder:
    """What a tool is asked: `runs` repetitions over `inputs` random inputs drawn by `seed`, on these backends.

    `settings` are the tool's own, by name. `timeout_s` holds for each program that it starts.
    """

    backends: tuple[str, ...] = ()
    runs: int = 5
    inputs: int = 10
    seed: int = 0
    timeout_s: float = 1800.0
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Benched:
    """What a tool told of one model, times in seconds: by backend, then key, then statistic.

    `failures` say of backends without times why. `layers` are times of the model's parts, likewise by backend.
    `figures` are the times as the tool wrote them, in its own unit; `told` is what it says of the device and of itself.
    """

    times_s: Mapping[str, Mapping[str, Mapping[str, float]]]
    figures: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    layers_s: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    failures: Mapping[str, Failure] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)

    def reported_s(self) -> dict[str, float]:
        """All times by one name, "GPU/Layers Time/Avg_Time"."""
        return {
            f"{backend}/{key}/{statistic}": value
            for backend, keys in self.times_s.items()
            for key, statistics in keys.items()
            for statistic, value in statistics.items()
        }


class BenchTool(Protocol):
    """A tool that measures by itself, on a device that it reaches in its own way.

    Contract: what the tool does wrong with a model is a `Failure`, a device that left is a `DeviceError` with
    `transient`, a tool that is not installed is a `RuntimeMissingError`. Nothing stays on this machine or the device.
    """

    name: str
    #: Graph.format values that the tool converts from.
    formats: frozenset[str]
    #: Key and statistic of what a model takes without the call around it, which adds up over the parts of a net.
    lookup: tuple[str, str]
    #: What its times are rounded to, in seconds.
    resolution_s: float
    #: The backend that is meant where none is named.
    usual: str

    def probe(self) -> Probe:
        """The tool that is installed here: its version, and the backends that may be asked for."""
        ...

    def measure(self, device: Device, model: Path, order: BenchOrder) -> Benched | Failure:
        """Convert a model file and measure it on an open device; UsageError for a device that the tool cannot reach."""
        ...


def bench_tools() -> dict[str, BenchTool]:
    """The tools by name."""
    return {tool.name: tool for tool in (Snpe(),)}


SETTINGS: Mapping[str, tuple[str, ...]] = {
    "perf_profile": PERF_PROFILES,
    "profiling_level": PROFILING_LEVELS,
    "buffer_type": ("float", "ub_float", "ub_tf8", "ub_tf16"),
}
"""The settings of an order, and their values; the first two default to "default" and "detailed"."""

_NAME = "model"
_INPUTS = "random_inputs"
_MOST_INPUT_BYTES = 1 << 30
_LOG_TAIL = 2000


class Snpe:
    """The tool of the SNPE SDK that the environment names, or of the one given."""

    name = "snpe"
    formats = frozenset({"onnx"})
    lookup = LOOKUP
    resolution_s = 1e-6
    usual = "GPU"

    def __init__(self, sdk: SnpeSdk | None = None) -> None:
        self._given = sdk

    def probe(self) -> Probe:
        """The SDK's version and programs. Whether a phone has all the backends is told by measuring."""
        sdk = self._sdk()
        programs = {"convert": sdk.convert, "info": sdk.info, "bench": sdk.bench}
        return Probe(version=sdk.version, backends=RUNTIMES, details=cast(ProbeDetails, programs))

    def measure(self, device: Device, model: Path, order: BenchOrder) -> Benched | Failure:
        """Convert an ONNX file and measure it on a phone; see `BenchTool.measure`."""
        sdk = self._sdk()
        phone = _phone(device)
        checked = _settings(order)
        with LocalDevice("SNPE's host", environment=sdk.environment) as host:
            return _Measuring(host=host, sdk=sdk, phone=phone, order=order, settings=checked).run(model.absolute())

    def _sdk(self) -> SnpeSdk:
        return find_sdk() if self._given is None else self._given


class _Measuring:
    """One model's way through the SDK, in a folder of this machine that goes afterwards."""

    def __init__(
        self, *, host: LocalDevice, sdk: SnpeSdk, phone: BridgeDevice, order: BenchOrder, settings: Mapping[str, str]
    ) -> None:
        self._host, self._sdk, self._phone, self._order, self._settings = host, sdk, phone, order, settings
        self._folder = Path(host.folder)

    def run(self, model: Path) -> Benched | Failure:
        """Convert, draw inputs, measure, read."""
        dlc = self._folder / f"{_NAME}.dlc"
        words = ["--input_network", str(model), "--output_path", str(dlc)]
        if failure := self._program("load", [self._sdk.convert, *words], dlc):
            return failure
        done = self._host.run([self._sdk.info, "-i", str(dlc)], env={}, timeout_s=self._order.timeout_s)
        if failure := self._failure("load", self._sdk.info, done):
            return failure
        try:
            inputs = self._inputs(read_dlc_inputs(done.stdout))
        except ModelError as error:
            return _refused("load", error.message)
        config = self._folder / "config.json"
        config.write_text(
            write_bench_config(
                folder=self._folder,
                dlc=dlc,
                inputs=inputs,
                device=self._phone.serial,
                device_path=f"{self._phone.folder}/snpebm",
                runs=self._order.runs,
                runtimes=self._order.backends or RUNTIMES,
                **self._settings,
            )
        )
        found = self._program("run", [self._sdk.bench, "-c", str(config), "-json"], None)
        if found is not None:
            self._phone.check()  # a phone that left is not a failure of the model
            return found
        return self._result()

    def _inputs(self, inputs: tuple[tuple[str, tuple[int, ...]], ...]) -> Path:
        """The list of random inputs from -1 to 1, raw float32 files beside it, as the phone is told of them."""
        folder = self._folder / _INPUTS
        folder.mkdir()
        counts = {name: math.prod(shape) for name, shape in inputs}
        if 4 * sum(counts.values()) * self._order.inputs > _MOST_INPUT_BYTES:
            raise ModelError(
                f"{self._order.inputs} random inputs of this model take more than {_MOST_INPUT_BYTES >> 20} MiB",
                hint="Ask for fewer.",
            )
        drawn = random.Random(self._order.seed)  # noqa: S311 - inputs that can be drawn again
        rows = []
        for index in range(self._order.inputs):
            words = []
            for number, (name, count) in enumerate(counts.items()):
                file = folder / f"input_{number}_{index}.raw"
                file.write_bytes(array("f", (drawn.uniform(-1.0, 1.0) for _ in range(count))).tobytes())
                words.append(f"{name}:={_INPUTS}/{file.name}")
            rows.append(" ".join(words))
        listed = folder / "list.txt"
        listed.write_text("\n".join(rows) + "\n")
        return listed

    def _program(self, stage: str, argv: list[str], made: Path | None) -> Failure | None:
        """Run a program of the SDK that must succeed and, where that is said, leave a file."""
        done = self._host.run(argv, env={}, timeout_s=self._order.timeout_s)
        failure = self._failure(stage, argv[0], done)
        if failure is None and made is not None and not made.is_file():
            return _refused(stage, f"{Path(argv[0]).name} ended well and wrote no {made.name}", done)
        return failure

    def _failure(self, stage: str, program: str, done: Completed) -> Failure | None:
        name = Path(program).name
        log = (done.stderr or done.stdout)[-_LOG_TAIL:]
        if done.timed_out:
            told = f"{name} did not end within {self._order.timeout_s:g} s"
            return Failure(stage=stage, kind="hang", transient=False, message=told, log_tail=log)
        if done.signal is not None:
            told = f"{name} crashed with signal {done.signal}"
            return Failure(stage=stage, kind="crash", transient=done.signal == 9, message=told, log_tail=log)
        if done.returncode:
            said = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "it says nothing")
            return _refused(stage, f"{name} ended with status {done.returncode}: {said[-300:]}", done)
        return None

    def _result(self) -> Benched | Failure:
        """The newest result, whose folder snpe-bench links as latest_results."""
        files = sorted((self._folder / "results").glob("latest_results/*.json"))
        if not files:
            return _refused("run", "snpe-bench ended well and left no result")
        try:
            result = read_bench_result(files[-1].read_bytes())
        except ProblemError as error:
            return _refused("run", error.message)
        return benched(result, self._order.backends or RUNTIMES)


def benched(result: BenchResult, backends: tuple[str, ...]) -> Benched:
    """A result in seconds; what was asked for and is not in it has failed."""
    failures = dict(result.failures)
    for backend in backends:
        # Its buffer type may stand behind it ("GPU_ub_float").
        own = re.compile(rf"{re.escape(backend)}(_(float|ub_.*|s))?")
        if not any(map(own.fullmatch, (*result.times, *failures))):
            failures[backend] = "snpe-bench reported nothing for this runtime"
    return Benched(
        times_s=_seconds(result.times),
        figures=result.times,
        layers_s=_seconds(result.layers),
        failures={name: _refused("run", why) for name, why in failures.items()},
        told=result.meta,
    )


def _seconds(
    times: Mapping[str, Mapping[str, Mapping[str, Number]]],
) -> dict[str, dict[str, dict[str, float]]]:
    return {
        runtime: {key: {name: value / 1e6 for name, value in row.items()} for key, row in keys.items()}
        for runtime, keys in times.items()
    }


def _refused(stage: str, told: str, done: Completed | None = None) -> Failure:
    log = (done.stderr or done.stdout)[-_LOG_TAIL:] if done is not None else ""
    return Failure(stage=stage, kind="refused", transient=False, message=told, log_tail=log)


def _phone(device: Device) -> BridgeDevice:
    if isinstance(device, BridgeDevice) and device.kind == "adb":
        return device
    raise UsageError(
        "snpe-bench measures phones that adb reaches, and this device is not one",
        hint="Name one: --device adb://SERIAL, as adb devices lists it.",
    )


def _settings(order: BenchOrder) -> dict[str, str]:
    chosen = {"perf_profile": "default", "profiling_level": "detailed", "buffer_type": "float", **order.settings}
    for name, value in chosen.items():
        if name not in SETTINGS:
            raise UsageError(f"snpe has no setting {name[:60]!r}", hint=f"It has: {', '.join(SETTINGS)}.")
        if value not in SETTINGS[name]:
            raise UsageError(f"snpe knows no {name} {value[:60]!r}", hint=f"Known: {', '.join(SETTINGS[name])}.")
    return chosen


if TYPE_CHECKING:
    _: BenchTool = Snpe()
