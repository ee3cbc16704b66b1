"""Measures on a device without Python: the runtimes' own programs take the place of the agent.

Each visit to a candidate is a process of its runtime's program. The agent's own code creates inputs, compares outputs
and takes snapshots on this machine, so that all devices are judged alike.
"""

from __future__ import annotations

import hashlib
import json
import math
import posixpath
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnomon import wire
from gnomon.agent.arrays import Array, InputError, dtype_of, fill, make_buffers, widened
from gnomon.agent.job import Job
from gnomon.agent.rounds import ProcessFailed, Rounds, ended_by
from gnomon.agent.settings import SettingsRefused
from gnomon.agent.snapshot import snapshot
from gnomon.agent.timing import inner_loop
from gnomon.devices.base import Device
from gnomon.devices.laid_out import collect_script, lay_out, parse_files
from gnomon.devices.program import Order, ProgramDriver, ProgramRefused, Taken
from gnomon.errors import AgentError, DeviceError
from gnomon.measure.link import AgentLink
from gnomon.system.process import Completed, guarded_folder

_LOG_TAIL = 2000
# The program's lines go to a file while it runs: sending them to this machine would take time on the device.
_WRAPPER = (
    'o=$1 t=$2; shift 2; [ -z "$t" ] || mkdir -p "$t"; "$@" >"$o" </dev/null; s=$?; cat "$o"; rm -f "$o"; exit "$s"'
)
_MOST_RUNS = 20_000
"""The largest number of runs in one process, because each run prints a line."""
_MOST_TRACED = 300
"""The largest number of traced runs, because each of them writes two events per operator to a file that must be
fetched.
"""
_SHORT_S = 60.0
_STATE = (
    "/proc/loadavg",
    "/proc/stat",
    "/proc/meminfo",
    "/proc/vmstat",
    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_*_freq",
    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq",
    "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count",
    "/sys/class/thermal/thermal_zone*/type",
    "/sys/class/thermal/thermal_zone*/temp",
    "/sys/class/thermal/thermal_zone*/trip_point_*",
    "/sys/class/thermal/cooling_device*/type",
    "/sys/class/thermal/cooling_device*/cur_state",
    "/sys/devices/platform/soc/soc:firmware/get_throttled",
    "/sys/class/hwmon/hwmon*/name",
    "/sys/class/hwmon/hwmon*/in0_lcrit_alarm",
    "/sys/class/power_supply/*/type",
    "/sys/class/power_supply/*/status",
)


class ForeignJob(Job):
    """A job that another program ran. Its outputs are read from raw files `PREFIX.k`, with one prefix for each seed."""

    def __init__(self, spec: wire.Job, prefixes: Mapping[int, Path]) -> None:
        self.spec, self.parts, self._prefixes = spec, [], prefixes

    def outputs(self, seed: int) -> dict[str, Array]:
        """The outputs for a seed. ValueError if the length of a file does not fit the model."""
        arrays = {}
        for number, (_, name) in enumerate(self.spec["segments"][0]["outputs"]):
            tensor = self.spec["tensors"][name]
            raw = np.fromfile(f"{self._prefixes[seed]}.{number}", dtype_of(tensor["dtype"]))
            arrays[name] = widened(raw.reshape(tensor["shape"] or ()))
        return arrays


def write_inputs(job: wire.JobInputs, seed: int, names: Sequence[str], prefix: Path) -> None:
    """Write the inputs of a job for a seed as raw files `PREFIX.k`. InputError for a file that does not fit."""
    buffers = make_buffers({name: {**tensor, "slab": None} for name, tensor in job["tensors"].items()})
    fill(buffers, job["feeds"], seed, varied=seed != job["seed"])
    for number, name in enumerate(names):
        buffers[name].tofile(f"{prefix}.{number}")


@contextmanager
def files_judged() -> Iterator[None]:
    """A context for reading or writing arrays on this machine: an error becomes a failure of the candidate, or
    AgentError if this machine is at fault.
    """
    try:
        yield
    except InputError as error:
        raise ProcessFailed("refused", f"InputError: {error}") from error
    except ValueError as error:
        raise ProcessFailed("refused", f"the outputs' length is not that of the model's outputs: {error}") from error
    except OSError as error:
        message = f"inputs and outputs cannot be stored on this machine: {error.strerror or error}"
        raise AgentError(message, hint="Free space in its folder for temporary files.") from error


def wrapped(argv: Sequence[str], number: int, trace: str | None, pin: Sequence[int]) -> list[str]:
    """The command in a wrapper that holds back the program's output until it has ended."""
    pinned = ["taskset", "-c", ",".join(map(str, pin))] if pin else []
    return ["sh", "-c", _WRAPPER, "sh", f"printed-{number}", trace or "", *pinned, *argv]


def how_it_failed(done: Completed, timeout_s: float) -> ProcessFailed | None:
    """The failure of a program, derived from how it ended; None if it succeeded."""
    log_tail = done.stderr[-_LOG_TAIL:]
    number = done.signal
    if number is None and done.returncode is not None and 129 <= done.returncode <= 192:
        number = done.returncode - 128  # as the wrapper's shell reports it
    if done.timed_out:
        return ProcessFailed("hang", f"the program did not end within {timeout_s:.0f} s and was killed", log_tail)
    if number is not None:
        return ended_by(number, log_tail)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["it printed nothing"]
        return ProcessFailed("refused", f"the program ended with status {done.returncode}: {lines[-1][-300:]}")
    return None


@dataclass(slots=True)
class _OpenCandidate:
    """The state of an open candidate: the time of its fastest run, its peak memory, and the path prefix of its
    inputs.
    """

    best_ns: float
    peak_rss_bytes: int | None
    inputs: str


class ProgramSession(Rounds[_OpenCandidate]):
    """One request: candidates in fresh processes, measured in interleaved rounds.

    Unlike an agent's worker, a program cannot stay open between visits, so each visit is a separate process, which
    loads the model and warms up again.
    """

    def __init__(
        self, link: ProgramLink, request: wire.MeasuringRequest, on_event: Callable[[wire.Event], None]
    ) -> None:
        super().__init__(request, on_event, link.settings())
        self._link = link

    def state(self) -> wire.Snapshot:
        """The current state of the device."""
        return self._link.state()

    def load(self, key: str) -> wire.OpenedFacts:
        """Run a candidate once for each seed, and compare or save its outputs."""
        opening = self.candidates[key]["open"]
        job = opening["job"]
        if len(job["segments"]) != 1:
            raise ProcessFailed("refused", "on a device without Python, a program cannot run a chain of models")
        save, check = opening.get("save"), opening.get("check")
        checked = bool(save or check)
        seeds = list(opening["seeds"]) if checked else [job["seed"]]
        taken: list[Taken] = []
        files: dict[int, Path] = {}
        for seed in seeds:
            inputs, outputs = self._link.inputs(job, seed), "outputs" if checked else None
            taken.append(self._run(key, Order(runs=2, warm_runs=1, inputs=inputs, outputs=outputs)))
            if checked:
                files[seed] = self._link.scratch / f"outputs-{seed}"
                for number in range(len(job["segments"][0]["outputs"])):
                    self._link.device.pull(f"outputs.{number}", self._link.scratch / f"outputs-{seed}.{number}")
        first = taken[0]
        opened: wire.OpenedFacts = {
            "load_ns": first.load_ns,
            "first_call_ns": first.warm_ns[0] if first.warm_ns else round(first.mean_ns),
            "bare_rss_bytes": None,
            "where": [[]],
            "program": True,
        }
        foreign = ForeignJob(job, files)
        if save:
            local = self._link.reference(save, saving=True)
            with files_judged():
                opened["sensitivity"] = foreign.save_outputs(str(local), seeds)
        elif check:
            local = self._link.reference(check, saving=False)
            with files_judged():
                opened["difference"] = foreign.check(str(local), seeds)
        self.processes[key] = _OpenCandidate(
            best_ns=max(1000.0, min(min(t.calls_ns, default=t.mean_ns) for t in taken)),
            peak_rss_bytes=max((t.peak_rss_bytes for t in taken if t.peak_rss_bytes), default=None),
            inputs=self._link.inputs(job, job["seed"]),
        )
        return opened

    def measure(self, key: str) -> wire.BlockFacts:
        """Run one process of an open candidate and return its block."""
        candidate, profiled = self.processes[key], self.candidates[key]["open"].get("profiled")
        taken, inner = (self._profiled(key, candidate), 1) if profiled else self._block(key, candidate)
        wall_ns = [sum(taken.calls_ns[k : k + inner]) for k in range(0, len(taken.calls_ns) - inner + 1, inner)]
        wall_ns = wall_ns or [round(taken.mean_ns * inner)]  # a program that reports only the mean of its runs
        facts: wire.BlockFacts = {
            "wall_ns": wall_ns,
            # A program does not report the CPU time of its runs. Zeros make `cpu_tells` choose wall time.
            "cpu_ns": [0] * len(wall_ns),
            "inner": inner,
            "peak_rss_bytes": candidate.peak_rss_bytes,
            "waits": None,
        }
        if profiled:
            facts["operators"] = list(taken.operators)
        return facts

    def _block(self, key: str, candidate: _OpenCandidate) -> tuple[Taken, int]:
        """Run one process without a trace; return its results and the number of runs per sample."""
        block, warm = self.request["block"], self.request["warm"]
        inner = inner_loop(int(candidate.best_ns), block["sample_ns"])
        wanted = math.ceil(block["seconds"] * 1e9 / (candidate.best_ns * inner))
        samples = max(block["least"], min(block["most"], wanted, max(1, _MOST_RUNS // inner)))
        warm_runs = min(_MOST_RUNS, max(warm["warm_count"], math.ceil(warm["warm_s"] * 1e9 / candidate.best_ns)))
        taken = self._run(key, Order(runs=samples * inner, warm_runs=warm_runs, inputs=candidate.inputs))
        candidate.best_ns = max(1000.0, min((candidate.best_ns, *taken.calls_ns)))
        return taken, inner if taken.calls_ns else samples * inner

    def _profiled(self, key: str, candidate: _OpenCandidate) -> Taken:
        """Run one process with a trace; the times of the operators do not include the warm-up runs."""
        profile = self.request["profile"]
        wanted = math.ceil(profile["seconds"] * 1e9 / candidate.best_ns)
        runs = max(self.candidates[key]["calls_least"], min(profile["most"], _MOST_TRACED, wanted))
        warm_runs = max(1, self.request["warm"]["warm_count"])
        taken = self._run(key, Order(runs=runs, warm_runs=warm_runs, inputs=candidate.inputs, trace="trace"))
        rows: list[wire.KernelTimes] = [{**row, "wall_ns": row["wall_ns"][warm_runs:]} for row in taken.operators]
        return replace(taken, operators=tuple(rows))

    def _run(self, key: str, order: Order) -> Taken:
        candidate = self.candidates[key]
        segment = candidate["open"]["job"]["segments"][0]
        return self._link.run(segment, order, candidate.get("environment", {}), self.timeout_s)


class ProgramLink(AgentLink):
    """Measures on a device with no agent: each visit to a candidate is a process of its runtime's program.

    It answers the same requests with the same events as the agent (docs/agent.md), as far as a program can;
    docs/devices/without-python.md lists what is missing. The agent's own code creates inputs and compares outputs on
    this machine. `programs` maps runtimes' names to their programs' drivers. Cores are pinned with the device's
    taskset; a frequency governor is refused.
    """

    def __init__(
        self,
        device: Device,
        *,
        timeout_s: float = 60.0,
        machine: wire.Machine | None = None,
        programs: Mapping[str, ProgramDriver],
    ) -> None:
        self._programs = programs
        self._probed: dict[str, wire.ProbeAnswer] = {}
        self._inputs: dict[str, str] = {}
        self._count = 0
        super().__init__(device, timeout_s=timeout_s, machine=machine)

    def _start_here(self, stack: ExitStack) -> None:
        self.scratch = stack.enter_context(guarded_folder("gnomon-programs-"))

    def request(self, request: wire.Request, on_event: Callable[[wire.Event], None], *, timeout_s: float) -> None:
        """Serve a request with programs; see `AgentLink.request`. A program's failure is an event, not an exception."""
        if "commands" in request:
            for item in request["commands"]:
                on_event(self._answer(item["key"], item["command"], float(request["timeout_s"])))
            return
        try:
            self._check_settings()
            ProgramSession(self, request, on_event).run()
        except SettingsRefused as refusal:
            on_event(refusal.event())

    def run(self, segment: wire.RuntimeModel, order: Order, environment: Mapping[str, str], timeout_s: float) -> Taken:
        """Run one process of a runtime's program. `ProcessFailed` if it failed."""
        driver, answer = self._driver(segment["runtime"])
        self._count += 1
        try:
            command = driver.command(answer, segment, order)
            argv = wrapped(command.argv, self._count, order.trace, self._machine.get("pin") or ())
            done = self.device.run(argv, env={**environment, **command.environment}, timeout_s=timeout_s)
            failure = how_it_failed(done, timeout_s)
            if failure is not None:
                raise failure
            traces = {name: self._trace(f"{order.trace}/{name}") for name in command.traces}
            return driver.read(segment, done, traces)
        except ProgramRefused as error:
            raise ProcessFailed("refused", str(error)) from error

    def inputs(self, job: wire.Job, seed: int) -> str:
        """The path prefix, on the device, of the raw inputs of a job for a seed. `ProcessFailed` if a file does not
        fit.
        """
        names = [buffer for _, buffer in job["segments"][0]["inputs"]]
        tensors = {name: job["tensors"][name] for name in names}
        wanted: wire.JobInputs = {"tensors": tensors, "feeds": job["feeds"], "seed": job["seed"]}
        key = hashlib.sha256(json.dumps([wanted, names, seed], sort_keys=True).encode()).hexdigest()[:16]
        if key not in self._inputs:
            folder = self.scratch / f"inputs-{key}"
            folder.mkdir(exist_ok=True)
            feeds: dict[str, wire.Feed] = {
                name: {"file": str(self.fetched(feed["file"]))} if feed.get("file") else {}
                for name, feed in job["feeds"].items()
            }
            with files_judged():
                write_inputs({**wanted, "feeds": feeds}, seed, names, folder / "in")
            self._inputs[key] = self.device.push(folder, folder.name) + "/in"
        return self._inputs[key]

    def fetched(self, remote: str) -> Path:
        """Fetch a file from the device; return its path on this machine."""
        local = self.scratch / f"fetched-{hashlib.sha256(remote.encode()).hexdigest()[:16]}"
        self.device.pull(remote, local)
        return local

    def reference(self, remote: str, *, saving: bool) -> Path:
        """The path on this machine of a reference of the device; a missing file is fetched unless `saving` is set."""
        local = self.scratch / f"reference-{hashlib.sha256(remote.encode()).hexdigest()[:16]}.npz"
        if not saving and not local.exists():
            self.device.pull(remote, local)
        return local

    def state(self) -> wire.Snapshot:
        """The current state of the device's machine, as far as its files show it."""
        done = self.device.run(["sh", "-c", collect_script(_STATE)], env={}, timeout_s=_SHORT_S)
        files = parse_files(done.stdout.encode("utf-8", "replace"))
        with guarded_folder("gnomon-state-") as root:
            lay_out(files, root)
            now = snapshot(str(root))
        del now["pid"], now["own_cpu_s"], now["cores"]  # these are about this machine's process
        now["monotonic_s"] = time.monotonic()
        if cores := self.info.fingerprint.get("cores"):
            now["cores"] = cores
        return now

    def settings(self) -> wire.MachineSettings:
        """The settings of the machine that apply while programs run."""
        return {"pin": self._machine["pin"]} if self._machine.get("pin") else {}

    def _trace(self, remote: str) -> bytes:
        try:
            local = self.fetched(remote)
        except DeviceError as error:
            if error.transient:
                raise
            raise ProgramRefused(f"the program wrote no file {posixpath.basename(remote)}") from error
        try:
            return local.read_bytes()
        finally:
            local.unlink()
            self.device.run(["rm", "-rf", posixpath.dirname(remote)], env={}, timeout_s=_SHORT_S)

    def _driver(self, runtime: str) -> tuple[ProgramDriver, wire.ProbeAnswer]:
        driver = self._programs.get(runtime)
        if driver is None:
            names = ", ".join(sorted(self._programs))
            message = f"the device has no Python; without it, gnomon can use only the programs of {names}"
            raise ProcessFailed("refused", message)
        if runtime not in self._probed:
            try:
                self._probed[runtime] = driver.probe(
                    lambda script: self.device.run(["sh", "-c", script], env={}, timeout_s=self._timeout_s)
                )
            except ProgramRefused as error:
                raise ProcessFailed("refused", str(error)) from error
        return driver, self._probed[runtime]

    def _answer(self, key: str, command: wire.FreshCommand, timeout_s: float) -> wire.Event:
        """The event that answers a command that the agent would run in a fresh process."""
        try:
            if command["do"] == "energy":
                raise ProcessFailed("refused", "energy counters cannot be read on a device without Python")
            if command["do"] == "probe":
                return {"event": "answer", "key": key, "answer": self._driver(command["runtime"])[1]}
            segment = command["segment"]
            driver, _ = self._driver(segment["runtime"])

            def attempt(options: wire.Options) -> str:
                try:
                    self.run({**segment, "options": options}, Order(runs=1, warm_runs=0), {}, timeout_s)
                except ProcessFailed as failure:
                    if failure.facts["kind"] != "refused":
                        raise
                    return failure.facts["message"]
                return ""

            return {"event": "answer", "key": key, "answer": driver.supports(attempt, segment["options"])}
        except ProgramRefused as error:
            refused = ProcessFailed("refused", str(error))
            return {"event": "failure", "candidate": key, "stage": "probe", **refused.facts}
        except ProcessFailed as failure:
            return {"event": "failure", "candidate": key, "stage": "probe", **failure.facts}

    def _check_settings(self) -> None:
        """Raise SettingsRefused for a setting of the machine that is not available here."""
        if self._machine.get("governor"):
            raise SettingsRefused(
                "a frequency governor cannot be set on a device without Python, as nothing there would restore it",
                "Leave governor out of the file of devices, and set it on the device by hand before measuring.",
            )
        if self._machine.get("pin"):
            script = f"taskset -c {','.join(map(str, self._machine['pin']))} true"
            done = self.device.run(["sh", "-c", script], env={}, timeout_s=_SHORT_S)
            if not done.ok:
                last = (done.stderr.strip().splitlines() or ["taskset gave no reason"])[-1]
                raise SettingsRefused(
                    f"cores cannot be pinned on the device: {last[:200]}",
                    "Install taskset (util-linux or busybox) there, or pin only cores that the device has.",
                )
