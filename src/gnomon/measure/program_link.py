"""The way to a device that has no Python: the runtimes' own programs answer what the agent is asked elsewhere."""

from __future__ import annotations

import hashlib
import json
import posixpath
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from gnomon.devices.base import Completed, Device
from gnomon.devices.guard import guarded_folder
from gnomon.devices.program import Command, Order, ProgramDriver, ProgramRefused, Taken
from gnomon.devices.ssh_plain_facts import collect_script, lay_out, parse_files
from gnomon.errors import DeviceError
from gnomon.measure.here import Here
from gnomon.measure.link import AgentLink, Event
from gnomon.measure.program_run import ProgramFailed, failed_event, how_it_failed, wrapped
from gnomon.measure.program_session import ProgramSession

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


class ProgramLink(AgentLink):
    """Measures on a device with no agent: each visit of a candidate is a process of its runtime's program.

    It answers the same requests with the same events as the agent (docs/agent.md), as far as a program can: what that
    leaves out is in docs/without-python.md. Inputs are made, and outputs are compared, by the agent's own code on this
    machine. `programs` are known by their runtimes' names. Cores are pinned by the device's taskset; a frequency
    governor is refused.
    """

    def __init__(
        self,
        device: Device,
        *,
        timeout_s: float = 60.0,
        machine: Mapping[str, Any] | None = None,
        programs: Mapping[str, ProgramDriver],
    ) -> None:
        self.device = device
        self.info = device.describe()
        self.paths: list[str] = []
        self._timeout_s = timeout_s
        self._machine = dict(machine or {})
        self._programs = programs
        self._found: dict[str, Mapping[str, Any]] = {}
        self._inputs: dict[str, str] = {}
        self._count = 0
        with ExitStack() as stack:
            self.scratch = stack.enter_context(guarded_folder("gnomon-programs-"))
            self.here = Here(self.scratch)
            self._open = stack.pop_all()

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
            refused = self.here.inputs({**wanted, "feeds": self._fed(job["feeds"])}, seed, names, folder / "in")
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
            found = self.here.state(root)
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
            told = f"the device has no Python, and {runtime} no program of its own that gnomon knows (known: {known})"
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
