"""onert (Samsung ONE): operators are placed one by one on the backends of one process.

Also here: onert's own program, onert_run of Samsung ONE, with its arguments and its output.

Source: ``runtime/tests/tools/onert_run`` (args.cc, onert_run.cc, rawformatter.cc) and ``runtime/libs/benchmark``
(Result.cpp, Phases.cpp) of Samsung ONE. The program itself has never been available: see
docs/devices/without-python.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gnomon.core.graph import Operator
from gnomon.core.sample import Failure
from gnomon.devices.program import Attempt, Command, Order, ProgramRefused, Shell, Taken
from gnomon.errors import ProblemError
from gnomon.models.model import Model
from gnomon.runtimes.base import (
    Accelerator,
    Ask,
    Assignment,
    Configuration,
    PlacedModel,
    Probe,
    RunSettings,
    Support,
    whole_segment,
)
from gnomon.runtimes.tunings import THREADS, Change, Tuning
from gnomon.runtimes.whole import WholeModelRuntime, environment_configurations, usual_configuration
from gnomon.system.process import Completed
from gnomon.wire import Answer, Options, Packaged, ProbeAnswer, RuntimeModel, Segment, SupportsCommand

_LACKING = re.compile(r"NYI for operation '(\w+)'")


def _set(key: str) -> Change:
    """A change that sets a key of onert's own configuration."""

    def change(options: Options, value: str) -> Options:
        return {**options, "settings": {**options.get("settings", {}), key: value}}

    return change


_BESIDE = {"acl_cl": "a GPU by OpenCL", "gpu_cl": "a GPU by OpenCL", "trix": "an NPU"}
"""Backends that compute on devices other than the processor."""

_PLANNERS = ("WIC", "FirstFit", "Bump")
_EXECUTORS = ("Linear", "Dataflow", "Parallel")


_README = """
nnpackage/ is an nnpackage for onert. Its config.cfg holds the map of operators to backends, but onert 0.1.0 does
not apply a package's map to the first session of a process. Start it as above, or set the variables of
environment.sh in the process that loads it:

    . ./environment.sh

On a device without Python, onert's own program runs it (--load:raw IN reads its inputs from IN.0, IN.1, ..):

    . ./environment.sh && onert_run nnpackage
"""


class Onert(WholeModelRuntime):
    """The adapter of onert."""

    name = "onert"
    formats = frozenset({"circle", "tflite"})
    wheels: tuple[str, ...] = ("onert>=0.1.0",)
    resolution_s = 1e-6
    tunings: tuple[Tuning, ...] = (
        THREADS,
        Tuning(name="planner", values=_PLANNERS, usual=_PLANNERS, change=_set("CPU_MEMORY_PLANNER")),
        Tuning(name="executor", values=_EXECUTORS, usual=_EXECUTORS, change=_set("EXECUTOR"), parallel=True),
    )

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """One configuration for each environment; the default backend is cpu, which takes most operators."""
        wanted = probe.requested(self.name, settings)
        default = "cpu" if "cpu" in wanted else wanted[0]
        backends = (default, *(b for b in wanted if b != default))
        beside = tuple(Accelerator(backend=b, name=_BESIDE[b], software=False) for b in backends if b in _BESIDE)
        return tuple(environment_configurations(self.name, settings, backends, accelerators=beside))

    def usual(self, probe: Probe) -> Configuration:
        """A session that sets nothing: an nnpackage's own config applies from the second session of a process."""
        return usual_configuration(self.name)

    def support(self, ask: Ask, model: PlacedModel, configuration: Configuration) -> Support:
        """For each backend, a separate process prepares the model with operators on that backend, one type after the
        other.

        The operators that the default backend lacks are found first. In all further trials, these are on a backend that
        takes them.
        """
        if configuration.usual:
            return super().support(ask, model, configuration)
        default, *others = configuration.backends
        answer, moved, failure = _settle(ask, model, configuration)
        operators = {default: frozenset[int](answer["operators"] if answer else ())}
        failures = {} if failure is None else {default: failure}
        if answer is None and moved:  # no trial of another backend can succeed then
            return Support(operators=dict.fromkeys(configuration.backends, frozenset[int]()), failures=failures)
        trials = {backend: _trial(model, configuration, backend, moved) for backend in others}
        for backend, taken in (ask(trials) if trials else {}).items():
            if isinstance(taken, Failure):
                failures[backend] = taken
            else:
                operators[backend] = frozenset(taken["operators"])
        return Support(operators=operators, failures=failures)

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> Segment:
        """The model with the map of operators in the environment, where onert applies it to the first session."""
        if configuration.usual:
            return super().segment(model, configuration, assignment)
        options = {**configuration.options, "settings": settings(configuration, assignment)}
        return whole_segment(self.name, model, options)

    def package(self, model: Model, configuration: Configuration, assignment: Assignment, folder: Path) -> Packaged:
        """An nnpackage whose config holds the map of operators and the threads in addition to its previous content."""
        from gnomon.models.nnpackage import write_nnpackage

        if configuration.usual:
            write_nnpackage(model, folder / "nnpackage", {})
            return {"runtime": self.name, "model": "nnpackage", "options": dict(configuration.options)}
        options = {**configuration.options, "settings": settings(configuration, assignment)}
        variables = variables_of(options)
        write_nnpackage(model, folder / "nnpackage", variables)
        written: RuntimeModel = {"runtime": self.name, "model": "nnpackage", "options": options}
        return {**written, "readme": _README, "variables": variables}


def variables_of(options: Options) -> dict[str, str]:
    """The environment variables of a process whose first session uses these options of a segment."""
    return {"NUM_THREADS": str(options.get("threads", 1)), **options.get("settings", {})}


def _trial(
    model: PlacedModel, configuration: Configuration, backend: str, moved: Mapping[str, list[int]]
) -> SupportsCommand:
    """The agent's command that finds the operators of a backend; `moved` are the operators that the default lacks."""
    own = {"backend": backend, "default": configuration.backends[0], "types": model.graph.of_types(), "moved": moved}
    options = {**configuration.options, **own, "shapes": model.shapes}
    return {"do": "supports", "segment": {"runtime": Onert.name, "model": model.path, "options": options}}


def _settle(
    ask: Ask, model: PlacedModel, configuration: Configuration
) -> tuple[Answer | None, Mapping[str, list[int]], Failure | None]:
    """Find the operators that the default backend takes, places for those that it lacks, and the failure that names the
    latter.

    onert stops at the first kernel that a backend lacks, and names the kind of operation but not the backend. So each
    attempt moves that kind to the next backend, until the model can be prepared. A crash, or a message that names no
    kind, is blamed on the backend that last received operators. The answer is None if the default failed for another
    reason, or if no backend takes some kind of operation; in the latter case, the places of the moved operators are
    returned too.
    """
    default, *others = configuration.backends
    lying: dict[str, int] = {}  # kind of operation -> how many of the other backends have refused it so far
    reasons: dict[str, str] = {}
    last = ""
    while True:
        moved: dict[str, list[int]] = {}
        for kind, place in lying.items():
            moved.setdefault(others[place], []).extend(op.index for op in _of_kind(model, kind))
        answer = ask({default: _trial(model, configuration, default, moved)})[default]
        if isinstance(answer, Failure):
            if not last:
                return None, {}, answer
        elif not answer["reason"]:
            return answer, moved, _refused(_said(model, reasons)) if reasons else None
        else:
            named = _LACKING.search(answer["reason"])
            if named and _of_kind(model, named[1]):
                last = named[1]
                reasons.setdefault(last, answer["reason"])
            elif not last:
                return None, {}, _refused(answer["reason"])
        lying[last] = lying.get(last, -1) + 1
        if lying[last] == len(others):
            also = f", nor does {' or '.join(others)}" if others else ""
            return None, moved, _refused(_said(model, {last: reasons[last]}, also))


def _of_kind(model: PlacedModel, kind: str) -> list[Operator]:
    from gnomon.formats.onert.operators import ir_opcode

    return [op for op in model.graph.operators if ir_opcode(op.type) == kind]


def _said(model: PlacedModel, reasons: Mapping[str, str], also: str = "") -> str:
    """A sentence about the missing kinds of operation: the first operator of each kind, and onert's reason."""
    firsts = [(_of_kind(model, kind)[0], reason) for kind, reason in reasons.items()]
    return "; ".join(f"does not take {op.type}, operator {op.index} ({op.name!r}){also}: {r}" for op, r in firsts)


def _refused(message: str) -> Failure:
    return Failure(stage="probe", kind="refused", transient=False, message=message)


def settings(configuration: Configuration, assignment: Assignment) -> Mapping[str, str]:
    """onert's own keys for an assignment.

    Every operator is named, even on the default backend, because a package may have its own map or per-type keys, and
    an entry for the operator itself overrides them. The configuration's own settings are included.
    """
    from gnomon.agent.drivers.onert import settings_for

    return {**configuration.options.get("settings", {}), **settings_for(configuration.backends[0], assignment)}


_TRACE = "trace.chrome.json"
_CANDIDATES = ("cpu", "ruy", "xnnpack", "acl_neon", "acl_cl", "gpu_cl")
_NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,9})?(?:e[+-]?[0-9]{1,2})?)"
_CALL = re.compile(rf"^\.\.\. (warmup|run) [0-9]+ takes {_NUMBER} ms$", re.MULTILINE)
_PHASE = re.compile(rf"^(MODEL_LOAD|PREPARE|EXECUTE) +takes {_NUMBER} ms$", re.MULTILINE)
_PEAK = re.compile(r"^- HWM after run +: ([0-9]{1,12}) kb$", re.MULTILINE)
_FIND = """
for p in "$ONERT_RUN" "${ONE_HOME:+$ONE_HOME/bin/onert_run}" "$(command -v onert_run)"; do
  [ -n "$p" ] && [ -f "$p" ] && [ -x "$p" ] && break
  p=
done
[ -n "$p" ] || exit 3
echo "program $p"
echo "version $("$p" --version 2>&1 | head -n 1)"
"$p" --help 2>&1 | while IFS= read -r l; do echo "help $l"; done
IFS=:
for d in "${p%/*}/../lib" ${ONE_HOME:+"$ONE_HOME/lib"} $LD_LIBRARY_PATH /usr/lib /usr/local/lib; do
  for f in "$d"/libbackend_*.so "$d"/nnfw/backend/libbackend_*.so; do [ -f "$f" ] && echo "library $f"; done
done
true
"""


class OnertProgram:
    """The driver of onert_run.

    The program is searched for at the path in ONERT_RUN, in bin/ below ONE_HOME, and on the PATH of the device.
    """

    name = "onert"

    def probe(self, shell: Shell) -> ProbeAnswer:
        """The version of the runtime, and the backends with a library in a folder that the program's runtime searches.

        If no library is found, all backends that Samsung publishes are named: a backend that is missing then refuses
        its first operator.
        """
        done = shell(_FIND)
        report: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            word, _, rest = line.partition(" ")
            report.setdefault(word, []).append(rest)
        if done.returncode == 3 or "program" not in report:
            raise ProgramRefused(
                "there is no onert_run on the device's PATH, in $ONE_HOME/bin, or where ONERT_RUN points"
            )
        version = re.search(r"runtime: v([0-9.]{1,40})", report.get("version", [""])[0])
        if version is None:
            said = report.get("version", [""])[0][:200] or "nothing"
            raise ProgramRefused(f"{report['program'][0]} does not start: it says {said}")
        usage = "\n".join(report.get("help", []))
        if "--num_runs" in usage and "--load:raw" not in usage:
            raise ProgramRefused(f"{report['program'][0]} is too old: it has no option --load:raw")
        names = [re.search(r"libbackend_([A-Za-z0-9_]{1,40})\.so$", path) for path in report.get("library", [])]
        backends = sorted({match[1] for match in names if match})
        # Older programs expect a value after --mem_poll; newer ones would take that value for the model.
        polls = "--mem_poll" in usage and not re.search(r"mem_poll \] arg", usage)
        return {
            "version": version[1],
            "backends": backends or list(_CANDIDATES),
            "program": report["program"][0],
            "tells_memory": polls,
        }

    def supports(self, attempt: Attempt, options: Options) -> Answer:
        """The operators that one backend can prepare: each type is tried as a whole, then operator by operator if the
        backend has a kernel for the type.
        """
        from gnomon.agent.drivers.onert import operators_taken, settings_for

        def refusal(default: str, placed: dict[int, str]) -> str:
            return attempt({"threads": options.get("threads", 1), "settings": settings_for(default, placed)})

        return operators_taken(options, refusal)

    def command(self, answer: ProbeAnswer, segment: RuntimeModel, order: Order) -> Command:
        """The onert_run command with settings in the environment, where onert applies them to a process's first
        session.
        """
        options = segment.get("options", {})
        argv = [answer["program"], "-w", str(order.warm_runs), "-r", str(order.runs), "-v", "1"]
        environment = variables_of(options)
        if order.inputs is not None:
            argv += ["--load:raw", order.inputs]
        if order.outputs is not None:
            argv += ["--dump:raw", order.outputs]
            if answer.get("tells_memory"):
                argv.append("--mem_poll")
        if order.trace is not None:
            environment.update(TRACING_MODE="1", WORKSPACE_DIR=order.trace)
        traces = (_TRACE,) if order.trace is not None else ()
        return Command(argv=(*argv, segment["model"]), environment=environment, traces=traces)

    def read(self, segment: RuntimeModel, ended: Completed, traces: Mapping[str, bytes]) -> Taken:
        """The time of each run (in whole microseconds), their mean, the loading time, and the trace's operators."""
        from gnomon.formats.onert.trace import read_chrome_trace

        printed = ended.stdout
        phases = {name: round(float(number) * 1e6) for name, number in _PHASE.findall(printed)}
        if not {"MODEL_LOAD", "PREPARE", "EXECUTE"} <= phases.keys():
            last = printed.strip().splitlines()[-1:] or ["nothing"]
            raise ProgramRefused(f"onert_run printed no times of its phases, but {last[0][:200]!r}")
        calls: dict[str, list[int]] = {"warmup": [], "run": []}
        for kind, number in _CALL.findall(printed):
            calls[kind].append(round(float(number) * 1e6))
        peak = _PEAK.search(printed)
        try:
            operators = read_chrome_trace(traces[_TRACE]) if _TRACE in traces else ()
        except ProblemError as error:
            raise ProgramRefused(error.message) from error
        return Taken(
            load_ns=phases["MODEL_LOAD"] + phases["PREPARE"],
            warm_ns=tuple(calls["warmup"]),
            calls_ns=tuple(calls["run"]),
            mean_ns=float(phases["EXECUTE"]),
            peak_rss_bytes=int(peak[1]) * 1024 if peak else None,
            operators=operators,
        )
