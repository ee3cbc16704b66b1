"""onert (Samsung ONE): operators are placed one by one on the backends of one process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.core.graph import Operator
from gnomon.core.sample import Failure
from gnomon.errors import UsageError
from gnomon.formats.onert_ops import ir_opcode
from gnomon.models.model import Model
from gnomon.models.nnpackage_write import write_nnpackage
from gnomon.runtimes.base import (
    Ask,
    Assignment,
    Configuration,
    PlacedModel,
    Probe,
    Runtime,
    Support,
    Wish,
    environment_variants,
    whole_segment,
)
from gnomon.runtimes.tuning import THREADS, Change, Tuning

_LACKING = re.compile(r"NYI for operation '(\w+)'")


def _set(key: str) -> Change:
    """A key of onert's own configuration."""

    def change(options: Mapping[str, Any], value: str) -> Mapping[str, Any]:
        return {**options, "settings": {**options.get("settings", {}), key: value}}

    return change


_PLANNERS = ("WIC", "FirstFit", "Bump")
_EXECUTORS = ("Linear", "Dataflow", "Parallel")


class Onert:
    """The adapter of onert."""

    name = "onert"
    formats = frozenset({"circle", "tflite"})
    wheels: tuple[str, ...] = ("onert>=0.1.0",)
    tunings: tuple[Tuning, ...] = (
        THREADS,
        Tuning(name="planner", values=_PLANNERS, usual=_PLANNERS, change=_set("CPU_MEMORY_PLANNER")),
        Tuning(name="executor", values=_EXECUTORS, usual=_EXECUTORS, change=_set("EXECUTOR"), parallel=True),
    )

    def configurations(self, probe: Probe, wish: Wish) -> tuple[Configuration, ...]:
        """One configuration an environment; cpu, which takes most operators, is the default backend."""
        for name in wish.backends:
            if name not in probe.backends:
                raise UsageError(
                    f"onert {probe.version} on this device has no backend {name!r}",
                    hint=f"It has: {', '.join(probe.backends)}.",
                )
        wanted = tuple(b for b in probe.backends if not wish.backends or b in wish.backends)
        default = "cpu" if "cpu" in wanted else wanted[0]
        backends = (default, *(b for b in wanted if b != default))
        return tuple(
            Configuration(
                runtime=self.name,
                name=f"{self.name}[{label}]" if label else self.name,
                backends=backends,
                options={"threads": wish.threads},
                environment=environment,
            )
            for label, environment in environment_variants(wish)
        )

    def support(self, ask: Ask, model: PlacedModel, configuration: Configuration) -> Support:
        """Each backend in a process of its own prepares the model with its operators, type by type.

        What the default backend lacks is found first, and lies on a backend that takes it in all further trials.
        """
        default, *others = configuration.backends
        answer, moved, failure = _settle(ask, model, configuration)
        operators = {default: frozenset[int](answer["operators"] if answer else ())}
        failures = {} if failure is None else {default: failure}
        if answer is None and moved:  # no trial of another backend can succeed either
            return Support(operators=dict.fromkeys(configuration.backends, frozenset[int]()), failures=failures)
        trials = {backend: _trial(model, configuration, backend, moved) for backend in others}
        for backend, found in (ask(trials) if trials else {}).items():
            if isinstance(found, Failure):
                failures[backend] = found
            else:
                operators[backend] = frozenset(found["operators"])
        return Support(operators=operators, failures=failures)

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> dict[str, Any]:
        """The model with the map in the environment, where onert applies it to the first session."""
        options = {**configuration.options, "settings": settings(configuration, assignment)}
        return whole_segment(self.name, model, options)

    def package(
        self, model: Model, configuration: Configuration, assignment: Assignment, folder: Path
    ) -> dict[str, Any]:
        """An nnpackage whose config holds the map and the threads beside what it held before."""
        made = settings(configuration, assignment)
        threads = str(configuration.options.get("threads", 1))
        destination = folder / "nnpackage"
        write_nnpackage(model, destination, {**made, "NUM_THREADS": threads})
        options = {**configuration.options, "settings": made}
        return {"runtime": self.name, "model": destination.name, "options": options}


def _trial(
    model: PlacedModel, configuration: Configuration, backend: str, moved: Mapping[str, list[int]]
) -> dict[str, Any]:
    """The agent's command that finds what a backend takes; `moved` are the operators that the default lacks."""
    types: dict[str, list[int]] = {}
    for operator in model.graph.operators:
        types.setdefault(operator.type, []).append(operator.index)
    own = {"backend": backend, "default": configuration.backends[0], "types": types, "moved": moved}
    options = {**configuration.options, **own}
    return {"do": "supports", "segment": {"runtime": Onert.name, "model": model.path, "options": options}}


def _settle(
    ask: Ask, model: PlacedModel, configuration: Configuration
) -> tuple[Mapping[str, Any] | None, Mapping[str, list[int]], Failure | None]:
    """What the default backend takes, where what it lacks can lie, and the failure that tells what that is.

    onert stops at the first kernel that a backend lacks, and names the kind of operation but not the backend. So
    each attempt moves the kind that it stopped at on to the next backend, until the model is prepared. A crash, or
    words that name no kind, are the fault of the backend that was given operators last. The answer is None if the
    default failed otherwise, and also, with something moved, if a kind found no backend that takes it.
    """
    default, *others = configuration.backends
    lying: dict[str, int] = {}  # kind of operation -> how many of the other backends turned out not to take it
    told: dict[str, str] = {}
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
            return answer, moved, _refused(_said(model, told)) if told else None
        else:
            named = _LACKING.search(answer["reason"])
            if named and _of_kind(model, named[1]):
                last = named[1]
                told.setdefault(last, answer["reason"])
            elif not last:
                return None, {}, _refused(answer["reason"])
        lying[last] = lying.get(last, -1) + 1
        if lying[last] == len(others):
            also = f", nor does {' or '.join(others)}" if others else ""
            return None, moved, _refused(_said(model, {last: told[last]}, also))


def _of_kind(model: PlacedModel, kind: str) -> list[Operator]:
    return [op for op in model.graph.operators if ir_opcode(op.type) == kind]


def _said(model: PlacedModel, told: Mapping[str, str], also: str = "") -> str:
    """What is lacking, with the first operator of each kind and what onert said of it."""
    firsts = [(_of_kind(model, kind)[0], reason) for kind, reason in told.items()]
    return "; ".join(f"takes no {op.type}, which is operator {op.index} ({op.name!r}){also}: {r}" for op, r in firsts)


def _refused(message: str) -> Failure:
    return Failure(stage="probe", kind="refused", transient=False, message=message)


def settings(configuration: Configuration, assignment: Assignment) -> Mapping[str, str]:
    """onert's own keys for an assignment.

    Every operator is named, also those on the default backend: a package may hold a map or per-type keys of its own,
    which an entry for the operator itself overrides. Settings of the configuration's own stand beside them.
    """
    default = configuration.backends[0]
    used = (default, *sorted(set(assignment.values()) - {default}))
    made = {**configuration.options.get("settings", {}), "BACKENDS": ";".join(used)}
    if assignment:
        made["OP_BACKEND_MAP"] = "".join(f"{index}={backend};" for index, backend in sorted(assignment.items()))
    return made


if TYPE_CHECKING:
    _: Runtime = Onert()
