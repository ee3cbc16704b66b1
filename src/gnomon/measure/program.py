"""A device that has no Python: the runtimes' own programs answer the requests that the agent answers elsewhere.

Each visit of a candidate is a process of its runtime's program. Inputs, comparisons and snapshots are made on this
machine by the agent's own code, so that every device is judged alike.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import posixpath
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from gnomon.devices.base import Device
from gnomon.devices.laid_out import collect_script, lay_out, parse_files
from gnomon.devices.program import Command, Order, ProgramDriver, ProgramRefused, Taken
from gnomon.errors import AgentError, DeviceError
from gnomon.measure.link import AgentLink, Event, packed_agent
from gnomon.system.process import Completed, guarded_folder, own_guard, run_process

_TIMEOUT_S = 600.0
_LOG_TAIL = 2000
# The program's lines go to a file while it runs: handing them on to this machine would take the device's time.
_WRAPPER = (
    'o=$1 t=$2; shift 2; [ -z "$t" ] || mkdir -p "$t"; "$@" >"$o" </dev/null; s=$?; cat "$o"; rm -f "$o"; exit "$s"'
)
_MOST_RUNS = 20_000
"""Runs of one process at most: each prints a line."""
_MOST_TRACED = 300
"""Traced runs at most: each leaves two events an operator in a file that must come here."""
_OPENING = Order(runs=2, warm_runs=1)
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


class OfflineAgent:
    """The agent's own code on this machine, in a process a question. `folder`, the caller's, holds the packed agent."""

    def __init__(self, folder: Path) -> None:
        self._agent = folder / "gnomon-agent.pyz"
        self._agent.write_bytes(packed_agent(compiled=True))

    def inputs(self, job: Mapping[str, Any], seed: int, names: list[str], prefix: Path) -> str:
        """Write a job's inputs for a seed as raw files `PREFIX.k`; "" or why a file of an input cannot be used."""
        told = self._ask("inputs", {"job": job, "seed": seed, "names": names, "prefix": str(prefix)})
        return str(told.get("refused", ""))

    def outputs(
        self, job: Mapping[str, Any], names: list[str], files: Mapping[int, Path], reference: Path, *, save: bool
    ) -> dict[str, Any]:
        """Save raw outputs `PREFIX.k` of each seed as a reference, or compare them with one.

        The answer is that of the agent's worker: the sensitivity or the difference; or `refused`.
        """
        given = {
            "job": job,
            "names": names,
            "files": {str(seed): str(prefix) for seed, prefix in files.items()},
            "seeds": list(files),
            "reference": str(reference),
            "save": save,
        }
        return self._ask("outputs", given)

    def state(self, root: Path) -> dict[str, Any]:
        """The snapshot of the machine whose files lie below `root`, without what only its own process could tell."""
        found = self._ask("state", {"root": str(root)})
        return {k: v for k, v in found.items() if k not in {"monotonic_s", "pid", "own_cpu_s", "cores"}}

    def _ask(self, what: str, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            done = run_process(
                [sys.executable, "-I", str(self._agent), "offline", what],
                env=os.environ,
                stdin=json.dumps(given).encode(),
                timeout_s=_TIMEOUT_S,
                on_line=None,
                cwd=self._agent.parent,
                guard=own_guard(),
            )
        except DeviceError as error:  # of this machine, whichever device is measured
            raise AgentError(f"the agent cannot be run on this machine: {error.message}", hint=error.hint) from error
        if done.timed_out:
            raise AgentError(
                f"the agent on this machine did not end within {_TIMEOUT_S:.0f} s",
                hint="Measure again when this machine is less busy.",
            )
        try:
            if not done.ok:
                raise ValueError(f"status {done.returncode}, signal {done.signal}")
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError as error:
            raise AgentError(
                f"the agent on this machine failed: {done.stderr.strip()[-500:] or error}", hint="Please report this."
            ) from error
        return answer


class ProgramFailed(Exception):
    """A program crashed, hung, or was refused: the fields of a failure."""

    def __init__(self, kind: str, message: str, log_tail: str = "", *, transient: bool = False, **more: str) -> None:
        super().__init__(message)
        self.kind, self.message, self.log_tail, self.transient = kind, message, log_tail[-_LOG_TAIL:], transient
        self.more = more


def wrapped(argv: Sequence[str], number: int, trace: str | None, pin: Sequence[int]) -> list[str]:
    """The command whose output is kept back until the program has ended."""
    pinned = ["taskset", "-c", ",".join(map(str, pin))] if pin else []
    return ["sh", "-c", _WRAPPER, "sh", f"printed-{number}", trace or "", *pinned, *argv]


def how_it_failed(done: Completed, timeout_s: float) -> ProgramFailed | None:
    """What the end of a program means; None if it ended well."""
    number = done.signal
    if number is None and done.returncode is not None and 129 <= done.returncode <= 192:
        number = done.returncode - 128  # as the wrapper's shell tells it
    if done.timed_out:
        return ProgramFailed("hang", f"no end within {timeout_s:.0f} s; the program was killed", done.stderr)
    if number == signal.SIGKILL:
        told = "killed by SIGKILL, most likely for want of memory"
        return ProgramFailed("memory", told, done.stderr, transient=True, signal="SIGKILL")
    if number is not None:
        name = {int(s): s.name for s in signal.Signals}.get(number, f"signal {number}")
        return ProgramFailed("crash", f"ended by {name}", done.stderr, signal=name)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["it printed nothing"]
        return ProgramFailed("refused", f"the program ended with status {done.returncode}: {lines[-1][-300:]}")
    return None


def failed_event(key: str, stage: str, failure: ProgramFailed, block: int = 0) -> dict[str, Any]:
    """A failure as the event that the agent would write."""
    return {
        "event": "failure",
        "candidate": key,
        "stage": stage,
        "block": block,
        "kind": failure.kind,
        "message": failure.message,
        "log_tail": failure.log_tail,
        "transient": failure.transient,
        **failure.more,
    }


@dataclass(slots=True)
class _Known:
    """What is known of an open candidate: its fastest run, its peak memory, and its fastest call of each block."""

    best_ns: float
    peak_rss_bytes: int | None
    inputs: str


class ProgramSession:
    """One request: candidates in fresh processes, measured in interleaved rounds.

    A program cannot stay open between visits as an agent's worker does: each visit is a process of its own, which
    loads the model and warms up again.
    """

    def __init__(self, link: ProgramLink, request: Mapping[str, Any], on_event: Callable[[Event], None]) -> None:
        self._link, self._request, self._say = link, request, on_event
        self._candidates: dict[str, Mapping[str, Any]] = {c["key"]: c for c in request["candidates"]}
        self._known: dict[str, _Known] = {}
        self._times: dict[str, list[float]] = {}
        self._random = random.Random(request["seed"])  # noqa: S311 - an order that can be repeated
        self._timeout_s = float(request["timeout_s"])

    def run(self) -> None:
        """Open all candidates, then visit them in rounds until the request's rounds are done."""
        before = self._link.state()
        for key in self._shuffled():
            self._attempt(key, "load", self._open)
        for index in range(self._request["rounds"]):
            for key in self._shuffled():
                if key in self._known and not self._lags(key):
                    self._attempt(key, "run", partial(self._visit, index=index), index)
        told = self._link.told_settings()
        self._say({"event": "environment", "data": {"before": before, "after": self._link.state(), **told}})

    def _shuffled(self) -> list[str]:
        keys = sorted(self._candidates)
        self._random.shuffle(keys)
        return keys

    def _attempt(self, key: str, stage: str, action: Callable[[str], None], block: int = 0) -> None:
        try:
            action(key)
        except ProgramFailed as failure:
            told = "check" if failure.kind == "wrong-output" else stage
            self._say(failed_event(key, told, failure, block))
            self._known.pop(key, None)

    def _lags(self, key: str) -> bool:
        own, fastest = self._times.get(key, []), min(map(min, self._times.values()), default=0.0)
        limit = self._request["laggard"] if len(own) >= 2 else self._request["hopeless"]
        return bool(own) and min(own) > limit * fastest

    def _open(self, key: str) -> None:
        candidate = self._candidates[key]
        opening = candidate["open"]
        job = opening["job"]
        if len(job["segments"]) != 1:
            raise ProgramFailed("refused", "a chain of models cannot be run by a program on a device without Python")
        checked = bool(opening.get("save") or opening.get("check"))
        seeds = list(opening["seeds"]) if checked else [job.get("seed", 0)]
        taken: list[Taken] = []
        files: dict[int, Path] = {}
        for seed in seeds:
            order = Order(
                runs=_OPENING.runs,
                warm_runs=_OPENING.warm_runs,
                inputs=self._link.inputs(job, seed),
                outputs="outputs" if checked else None,
            )
            taken.append(self._run(key, order))
            if checked:
                files[seed] = self._outputs(job, seed)
        told = self._compared(job, opening, files) if checked else {}
        difference = told.get("difference", {"relative": 0.0})["relative"]
        if not difference <= candidate.get("tolerance", math.inf):
            raise ProgramFailed(
                "wrong-output",
                f"outputs differ from the reference by {difference:.2g} of its largest magnitude, "
                f"where {candidate['tolerance']:.2g} is tolerated",
            )
        first = taken[0]
        self._known[key] = _Known(
            best_ns=max(1000.0, min(min(t.calls_ns, default=t.mean_ns) for t in taken)),
            peak_rss_bytes=max((t.peak_rss_bytes for t in taken if t.peak_rss_bytes), default=None),
            inputs=self._link.inputs(job, job.get("seed", 0)),
        )
        self._say(
            {
                "event": "opened",
                "candidate": key,
                "load_ns": first.load_ns,
                "first_call_ns": first.warm_ns[0] if first.warm_ns else round(first.mean_ns),
                "bare_rss_bytes": None,
                "where": [[]],
                "program": True,
                **told,
            }
        )
        if opening.get("profiled"):
            self._visit(key, 0)
            self._known.pop(key)

    def _outputs(self, job: Mapping[str, Any], seed: int) -> Path:
        """Fetch the raw outputs of the last process."""
        prefix = self._link.scratch / f"outputs-{seed}"
        for number in range(len(job["segments"][0]["outputs"])):
            self._link.device.pull(f"outputs.{number}", prefix.with_name(f"{prefix.name}.{number}"))
        return prefix

    def _compared(
        self, job: Mapping[str, Any], opening: Mapping[str, Any], files: Mapping[int, Path]
    ) -> dict[str, Any]:
        """Save the outputs as the reference, there too, or compare them with it."""
        names = [buffer for _, buffer in job["segments"][0]["outputs"]]
        saving = bool(opening.get("save"))
        remote = str(opening["save"] if saving else opening["check"])
        local = self._link.reference(remote, saving=saving)
        found = self._link.offline.outputs(job, names, files, local, save=saving)
        if "refused" in found:
            raise ProgramFailed("refused", str(found["refused"]))
        return {"sensitivity" if saving else "difference": found}

    def _visit(self, key: str, index: int) -> None:
        candidate, known = self._candidates[key], self._known[key]
        if index not in candidate["visits"]:
            return
        started = time.time()
        if candidate["open"].get("profiled"):
            taken, inner = self._profiled(key, candidate, known), 1
        else:
            taken, inner = self._block(key, known)
        wall_ns = [sum(taken.calls_ns[k : k + inner]) for k in range(0, len(taken.calls_ns) - inner + 1, inner)]
        told: dict[str, Any] = {"wall_ns": wall_ns, "inner": inner}
        if not wall_ns:  # a program that only tells the mean of its runs
            told = {"wall_ns": [round(taken.mean_ns * inner)], "inner": inner}
        self._times.setdefault(key, []).append(min(told["wall_ns"]) / inner)
        self._say(
            {
                "event": "block",
                "candidate": key,
                "block": index,
                "started_at_s": started,
                **told,
                # A program does not tell the CPU time of its runs: zeros, by which `cpu_tells` decides for the wall.
                "cpu_ns": [0] * len(told["wall_ns"]),
                "peak_rss_bytes": known.peak_rss_bytes,
                "waits": None,
                **({"operators": list(taken.operators)} if candidate["open"].get("profiled") else {}),
            }
        )

    def _block(self, key: str, known: _Known) -> tuple[Taken, int]:
        """A process of unprofiled runs, and how many of them make a sample."""
        block, warm = self._request["block"], self._request["warm"]
        inner = _inner(known.best_ns, block["sample_ns"])
        wanted = math.ceil(block["seconds"] * 1e9 / (known.best_ns * inner))
        samples = max(block["least"], min(block["most"], wanted, max(1, _MOST_RUNS // inner)))
        warm_runs = min(_MOST_RUNS, max(warm["warm_count"], math.ceil(warm["warm_s"] * 1e9 / known.best_ns)))
        taken = self._run(key, Order(runs=samples * inner, warm_runs=warm_runs, inputs=known.inputs))
        known.best_ns = max(1000.0, min((known.best_ns, *taken.calls_ns)))
        return taken, inner if taken.calls_ns else samples * inner

    def _profiled(self, key: str, candidate: Mapping[str, Any], known: _Known) -> Taken:
        """A process of traced runs; the rows of its operators without the warm runs."""
        profile = self._request["profile"]
        wanted = math.ceil(profile["seconds"] * 1e9 / known.best_ns)
        runs = max(candidate["calls_least"], min(profile["most"], _MOST_TRACED, wanted))
        warm_runs = max(1, self._request["warm"]["warm_count"])
        taken = self._run(key, Order(runs=runs, warm_runs=warm_runs, inputs=known.inputs, trace="trace"))
        rows = [{**row, "wall_ns": list(row["wall_ns"])[warm_runs:]} for row in taken.operators]
        return Taken(
            load_ns=taken.load_ns,
            warm_ns=taken.warm_ns,
            calls_ns=taken.calls_ns,
            mean_ns=taken.mean_ns,
            operators=tuple(rows),
        )

    def _run(self, key: str, order: Order) -> Taken:
        candidate = self._candidates[key]
        segment = candidate["open"]["job"]["segments"][0]
        environment = candidate.get("environment", {})
        return self._link.run(segment["runtime"], segment, order, environment, self._timeout_s)


def _inner(call_ns: float, sample_ns: int) -> int:
    """How many runs one sample needs to last that long, a round number."""
    wanted = math.ceil(sample_ns / call_ns)
    step: int = 10 ** (len(str(wanted)) - 1)
    return max(1, -(-wanted // step) * step)


class ProgramLink(AgentLink):
    """Measures on a device with no agent: each visit of a candidate is a process of its runtime's program.

    It answers the same requests with the same events as the agent (docs/agent.md), as far as a program can: what that
    leaves out is in docs/devices/without-python.md. Inputs are made, and outputs are compared, by the agent's own
    code on this machine. `programs` are known by their runtimes' names. Cores are pinned by the device's taskset; a
    frequency governor is refused.
    """

    def __init__(
        self,
        device: Device,
        *,
        timeout_s: float = 60.0,
        machine: Mapping[str, Any] | None = None,
        programs: Mapping[str, ProgramDriver],
    ) -> None:
        self._programs = programs
        self._found: dict[str, Mapping[str, Any]] = {}
        self._inputs: dict[str, str] = {}
        self._count = 0
        super().__init__(device, timeout_s=timeout_s, machine=machine)

    def _start_here(self, stack: ExitStack) -> None:
        self.scratch = stack.enter_context(guarded_folder("gnomon-programs-"))
        self.offline = OfflineAgent(self.scratch)

    def request(self, request: Mapping[str, Any], on_event: Callable[[Event], None], *, timeout_s: float) -> None:
        """Serve a request by programs; see `AgentLink.request`. Only DeviceError: a program's fault is an event."""
        each_s = float(request["timeout_s"])
        if "commands" in request:
            for item in request["commands"]:
                on_event(self._answer(item["key"], item["command"], each_s))
            return
        refusal = self._settings_refused()
        if refusal is not None:
            on_event(refusal)
            return
        ProgramSession(self, request, on_event).run()

    def run(
        self, runtime: str, segment: Mapping[str, Any], order: Order, environment: Mapping[str, str], timeout_s: float
    ) -> Taken:
        """One process of a runtime's program. `ProgramFailed` for how it failed."""
        driver, found = self._driver(runtime)
        self._count += 1
        try:
            command = driver.command(found, segment, order)
            done = self._start(command, order, environment, timeout_s)
            failure = how_it_failed(done, timeout_s)
            if failure is not None:
                raise failure
            traces = {name: self._trace(f"{order.trace}/{name}") for name in command.traces}
            return driver.read(done.stdout, traces)
        except ProgramRefused as error:
            raise ProgramFailed("refused", str(error)) from error

    def inputs(self, job: Mapping[str, Any], seed: int) -> str:
        """The prefix, on the device, of a job's raw inputs for a seed. `ProgramFailed` for a file that does not fit."""
        segment = job["segments"][0]
        names = [buffer for _, buffer in segment["inputs"]]
        wanted = {"tensors": {n: job["tensors"][n] for n in names}, "feeds": job["feeds"], "seed": job["seed"]}
        key = hashlib.sha256(json.dumps([wanted, names, seed], sort_keys=True).encode()).hexdigest()[:16]
        if key not in self._inputs:
            folder = self.scratch / f"inputs-{key}"
            folder.mkdir(exist_ok=True)
            refused = self.offline.inputs({**wanted, "feeds": self._fed(job["feeds"])}, seed, names, folder / "in")
            if refused:
                raise ProgramFailed("refused", refused)
            self._inputs[key] = self.device.push(folder, folder.name) + "/in"
        return self._inputs[key]

    def fetched(self, remote: str) -> Path:
        """A file of the device on this machine."""
        local = self.scratch / f"fetched-{hashlib.sha256(remote.encode()).hexdigest()[:16]}"
        self.device.pull(remote, local)
        return local

    def reference(self, remote: str, *, saving: bool) -> Path:
        """Where a reference of this device lies on this machine: it is fetched if it was made elsewhere."""
        local = self.scratch / f"reference-{hashlib.sha256(remote.encode()).hexdigest()[:16]}.npz"
        if not saving and not local.exists():
            self.device.pull(remote, local)
        return local

    def state(self) -> dict[str, Any]:
        """The state of the device's machine at this moment, as far as its files tell it."""
        done = self.device.run(["sh", "-c", collect_script(_STATE)], env={}, timeout_s=_SHORT_S)
        files = parse_files(done.stdout.encode("utf-8", "replace"))
        with guarded_folder("gnomon-state-") as root:
            lay_out(files, root)
            found = self.offline.state(root)
        cores = self.info.fingerprint.get("cores")
        return {"monotonic_s": time.monotonic(), **({"cores": cores} if cores else {}), **found}

    def told_settings(self) -> dict[str, Any]:
        """What of the machine is set while programs run."""
        return {"settings": {"pin": list(self._machine["pin"])}} if self._machine.get("pin") else {}

    def _start(self, command: Command, order: Order, environment: Mapping[str, str], timeout_s: float) -> Completed:
        argv = wrapped(command.argv, self._count, order.trace, self._machine.get("pin") or ())
        return self.device.run(argv, env={**environment, **command.environment}, timeout_s=timeout_s)

    def _trace(self, remote: str) -> bytes:
        try:
            local = self.fetched(remote)
        except DeviceError as error:
            if error.transient:
                raise
            raise ProgramRefused(f"the program left no {posixpath.basename(remote)}") from error
        try:
            return local.read_bytes()
        finally:
            local.unlink()
            self.device.run(["rm", "-rf", posixpath.dirname(remote)], env={}, timeout_s=_SHORT_S)

    def _driver(self, runtime: str) -> tuple[ProgramDriver, Mapping[str, Any]]:
        driver = self._programs.get(runtime)
        if driver is None:
            known = ", ".join(sorted(self._programs))
            told = f"the device has no Python, and gnomon knows no program of its own but for {known}"
            raise ProgramFailed("refused", told)
        if runtime not in self._found:
            try:
                self._found[runtime] = driver.probe(
                    lambda script: self.device.run(["sh", "-c", script], env={}, timeout_s=self._timeout_s)
                )
            except ProgramRefused as error:
                raise ProgramFailed("refused", str(error)) from error
        return driver, self._found[runtime]

    def _answer(self, key: str, command: Mapping[str, Any], timeout_s: float) -> Event:
        """The event that answers a command for a fresh worker."""
        try:
            if command["do"] == "energy":
                raise ProgramFailed("refused", "without Python there, nobody reads its counters around the calls")
            if command["do"] == "probe":
                _, found = self._driver(command["runtime"])
                return {"event": "answer", "key": key, "answer": dict(found)}
            segment = command["segment"]
            driver, _ = self._driver(segment["runtime"])

            def attempt(options: Mapping[str, Any]) -> str:
                order = Order(runs=1, warm_runs=0)
                try:
                    self.run(segment["runtime"], {**segment, "options": options}, order, {}, timeout_s)
                except ProgramFailed as failure:
                    if failure.kind != "refused":
                        raise
                    return failure.message
                return ""

            return {"event": "answer", "key": key, "answer": driver.supports(attempt, segment["options"])}
        except ProgramFailed as failure:
            return failed_event(key, "probe", failure)

    def _settings_refused(self) -> Event | None:
        """The event that says what of the machine's settings cannot be had here."""
        told = hint = ""
        if self._machine.get("governor"):
            told = "a frequency governor is not set on a device without Python, as nothing there would put it back"
            hint = "Leave it out of the device's table, and set it there by hand before measuring."
        elif self._machine.get("pin"):
            script = f"taskset -c {','.join(map(str, self._machine['pin']))} true"
            done = self.device.run(["sh", "-c", script], env={}, timeout_s=_SHORT_S)
            if not done.ok:
                last = (done.stderr.strip().splitlines() or ["it does not say why"])[-1]
                told = f"cores cannot be pinned there: {last[:200]}"
                hint = "Install taskset (util-linux or busybox) there, or name cores that it has."
        if not told:
            return None
        return {**failed_event("", "settings", ProgramFailed("refused", told)), "hint": hint}

    def _fed(self, feeds: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """The feeds with files on this machine."""
        made: dict[str, dict[str, Any]] = {}
        for name, feed in feeds.items():
            made[name] = {"file": str(self.fetched(feed["file"]))} if feed.get("file") else {}
        return made

    def __enter__(self) -> Self:
        return self
