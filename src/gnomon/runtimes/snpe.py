"""SNPE: Qualcomm's SDK converts a model on this machine and measures it on a phone behind adb, by snpe-bench.py.

The same steps as the profiler of nnabla-nas (nas_snpe_bench.py): snpe-onnx-to-dlc with batch normalisation folded,
snpe-dlc-info for the inputs, random inputs, a config, snpe-bench.py -json. What it tells per backend: "Forward
Propagate", "Total Inference Time", and "Layers Time", the sum over the layers but the input. See docs/snpe.md.
"""

from __future__ import annotations

import random
import re
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.core.sample import Failure
from gnomon.devices.base import Completed, Device
from gnomon.devices.bridge import BridgeDevice
from gnomon.devices.local import LocalDevice
from gnomon.errors import ModelError, ProblemError, UsageError
from gnomon.formats.snpe_bench import (
    PERF_PROFILES,
    PROFILING_LEVELS,
    RUNTIMES,
    BenchConfig,
    BenchResult,
    read_bench_result,
    write_bench_config,
)
from gnomon.formats.snpe_dlc_info import read_dlc_inputs
from gnomon.formats.snpe_table import LOOKUP, Number
from gnomon.runtimes.base import Probe
from gnomon.runtimes.bench_tool import Benched, BenchOrder
from gnomon.runtimes.snpe_sdk import SnpeSdk, find_sdk

if TYPE_CHECKING:
    from gnomon.runtimes.bench_tool import BenchTool

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
        return Probe(version=sdk.version, backends=RUNTIMES, details=programs)

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
            data, listed = self._inputs(read_dlc_inputs(done.stdout))
        except ModelError as error:
            return Failure(stage="load", kind="refused", transient=False, message=error.message)
        config = self._folder / "config.json"
        config.write_text(write_bench_config(self._config(dlc, data, listed)))
        found = self._program("run", [self._sdk.bench, "-c", str(config), "-json"], None)
        if found is not None:
            self._phone.check()  # a phone that left is no failure of the model
            return found
        return self._result()

    def _config(self, dlc: Path, data: Path, listed: Path) -> BenchConfig:
        return BenchConfig(
            name=_NAME,
            host_root_path=str(self._folder),
            host_results_dir=str(self._folder / "results"),
            device_path=f"{self._phone.folder}/snpebm",
            devices=(self._phone.serial,),
            runs=self._order.runs,
            model_name=_NAME,
            dlc=str(dlc),
            input_list=str(listed),
            data=(str(data),),
            runtimes=self._order.backends or RUNTIMES,
            perf_profile=self._settings["perf_profile"],
            profiling_level=self._settings["profiling_level"],
            buffer_types=(self._settings["buffer_type"],),
        )

    def _inputs(self, inputs: tuple[tuple[str, tuple[int, ...]], ...]) -> tuple[Path, Path]:
        """Random inputs from -1 to 1 as raw float32 files, and the list that names them for the phone."""
        folder = self._folder / _INPUTS
        folder.mkdir()
        counts = {name: _count(shape) for name, shape in inputs}
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
        return folder, listed

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
            return Failure(
                stage="run", kind="refused", transient=False, message="snpe-bench ended well and left no result"
            )
        try:
            result = read_bench_result(files[-1].read_bytes())
        except ProblemError as error:
            return Failure(stage="run", kind="refused", transient=False, message=error.message)
        return benched(result, self._order.backends or RUNTIMES)


def benched(result: BenchResult, backends: tuple[str, ...]) -> Benched:
    """A result in seconds; what was asked for and is not in it has failed."""
    failures = dict(result.failures)
    for backend in backends:
        if not any(_is_of(name, backend) for name in (*result.times, *failures)):
            failures[backend] = "snpe-bench told nothing of this runtime"
    return Benched(
        times_s=_seconds(result.times),
        figures=result.times,
        layers_s=_seconds(result.layers),
        failures={
            name: Failure(stage="run", kind="refused", transient=False, message=why) for name, why in failures.items()
        },
        told=result.meta,
    )


def _is_of(name: str, backend: str) -> bool:
    """Whether a runtime in a result is this backend, whose buffer type may stand behind it ("GPU_ub_float")."""
    return re.fullmatch(rf"{re.escape(backend)}(_(float|ub_.*|s))?", name) is not None


def _seconds(
    times: Mapping[str, Mapping[str, Mapping[str, Number]]],
) -> dict[str, dict[str, dict[str, float]]]:
    return {
        runtime: {key: {name: value / 1e6 for name, value in row.items()} for key, row in keys.items()}
        for runtime, keys in times.items()
    }


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _refused(stage: str, told: str, done: Completed) -> Failure:
    log = (done.stderr or done.stdout)[-_LOG_TAIL:]
    return Failure(stage=stage, kind="refused", transient=False, message=told, log_tail=log)


def _phone(device: Device) -> BridgeDevice:
    if isinstance(device, BridgeDevice) and device.kind == "adb":
        return device
    raise UsageError(
        "snpe-bench measures phones that adb reaches, and this device is none",
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
