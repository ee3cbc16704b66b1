"""onert's own program, onert_run of Samsung ONE: what it is called with, and what it prints.

Source: ``runtime/tests/tools/onert_run`` (args.cc, onert_run.cc, rawformatter.cc) and ``runtime/libs/benchmark``
(Result.cpp, Phases.cpp) of Samsung ONE. The program itself was never at hand: see docs/without-python.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gnomon.devices.program import Attempt, Command, Order, ProgramDriver, ProgramRefused, Shell, Taken
from gnomon.errors import ProblemError
from gnomon.formats.onert_chrome import read_chrome_trace

_TRACE = "trace.chrome.json"
_CANDIDATES = ("cpu", "ruy", "xnnpack", "acl_neon", "acl_cl", "gpu_cl")
_NO_KERNEL = re.compile(r"NYI for operation")
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

    It is looked for at the path in ONERT_RUN, in bin/ below ONE_HOME, and on the PATH of the device.
    """

    name = "onert"

    def probe(self, shell: Shell) -> dict[str, Any]:
        """Version of the runtime, and the backends whose libraries lie where the program's runtime looks for them.

        Where none is seen, all that Samsung publishes are named: what is not there refuses the first operator.
        """
        done = shell(_FIND)
        told: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            word, _, rest = line.partition(" ")
            told.setdefault(word, []).append(rest)
        if done.returncode == 3 or "program" not in told:
            raise ProgramRefused(
                "there is no onert_run on the device's PATH, in $ONE_HOME/bin, or where ONERT_RUN points"
            )
        version = re.search(r"runtime: v([0-9.]{1,40})", told.get("version", [""])[0])
        if version is None:
            said = told.get("version", [""])[0][:200] or "nothing"
            raise ProgramRefused(f"{told['program'][0]} does not start: it says {said}")
        usage = "\n".join(told.get("help", []))
        if "--num_runs" in usage and "--load:raw" not in usage:
            raise ProgramRefused(f"{told['program'][0]} is too old: it has no option --load:raw")
        names = [re.search(r"libbackend_([A-Za-z0-9_]{1,40})\.so$", path) for path in told.get("library", [])]
        backends = sorted({match[1] for match in names if match})
        # Older ones want a value behind --mem_poll, which these would take for the model.
        polls = "--mem_poll" in usage and not re.search(r"mem_poll \] arg", usage)
        return {
            "version": version[1],
            "backends": backends or list(_CANDIDATES),
            "program": told["program"][0],
            "tells_memory": polls,
        }

    def supports(self, attempt: Attempt, options: Mapping[str, Any]) -> dict[str, Any]:
        """Which operators one backend prepares: a type whole, then one by one where there is a kernel at all."""
        backend, default = options["backend"], options["default"]
        moved = {index: other for other, indices in options.get("moved", {}).items() for index in indices}

        def refusal(indices: list[int]) -> str:
            placed = {**moved, **dict.fromkeys(indices, backend)}
            settings = {"BACKENDS": ";".join((default, *sorted(set(placed.values()) - {default})))}
            if placed:
                settings["OP_BACKEND_MAP"] = "".join(f"{i}={b};" for i, b in sorted(placed.items()))
            return attempt({"threads": options.get("threads", 1), "settings": settings})

        if backend == default:
            reason = refusal([])
            indices = [i for group in options["types"].values() for i in group if i not in moved]
            return {"operators": [] if reason else sorted(indices), "reason": reason}
        taken: list[int] = []
        for indices in options["types"].values():
            told = refusal(indices)
            if not told:
                taken += indices
            elif len(indices) > 1 and not _NO_KERNEL.search(told):
                taken += [i for i in indices if not refusal([i])]
        return {"operators": sorted(taken), "reason": ""}

    def command(self, found: Mapping[str, Any], segment: Mapping[str, Any], order: Order) -> Command:
        """onert_run with its settings in the environment, where onert applies them to a process's first session."""
        options = segment.get("options", {})
        argv = [found["program"], "-w", str(order.warm_runs), "-r", str(order.runs), "-v", "1"]
        environment = {"NUM_THREADS": str(options.get("threads", 1))}
        environment.update({str(k): str(v) for k, v in options.get("settings", {}).items()})
        if order.inputs is not None:
            argv += ["--load:raw", order.inputs]
        if order.outputs is not None:
            argv += ["--dump:raw", order.outputs]
            if found.get("tells_memory"):
                argv.append("--mem_poll")
        if order.trace is not None:
            environment.update(TRACING_MODE="1", WORKSPACE_DIR=order.trace)
        traces = (_TRACE,) if order.trace is not None else ()
        return Command(argv=(*argv, segment["model"]), environment=environment, traces=traces)

    def read(self, printed: str, traces: Mapping[str, bytes]) -> Taken:
        """The time of each run (whole microseconds), their mean, the loading, and the trace's operators."""
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
            operators=tuple(
                {"name": o.type, "sources": [o.index], "backend": o.backend, "wall_ns": [t * 1000 for t in o.calls_us]}
                for o in operators
            ),
        )


if TYPE_CHECKING:
    _: ProgramDriver = OnertProgram()
