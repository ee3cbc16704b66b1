"""A measuring request served by programs: candidates in fresh processes, visited in random order, an event each."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.devices.program import Order, Taken
from gnomon.measure.link import Event
from gnomon.measure.program_run import ProgramFailed, failed_event

if TYPE_CHECKING:
    from gnomon.measure.program_link import ProgramLink

_MOST_RUNS = 20_000
"""Runs of one process at most: each prints a line."""
_MOST_TRACED = 300
"""Traced runs at most: each leaves two events an operator in a file that must come here."""
_OPENING = Order(runs=2, warm_runs=1)


@dataclass(slots=True)
class _Known:
    """What is known of an open candidate: its fastest run, its peak memory, and its fastest call of each block."""

    best_ns: float
    peak_rss_bytes: int | None
    inputs: str


class ProgramSession:
    """One request: candidates in fresh processes, measured in interleaved rounds.

    A program cannot stay open between visits as an agent's worker does: each visit is a process of its own, which
    loads the model and warms up anew.
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
        found = self._link.here.outputs(job, names, files, local, save=saving)
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
