"""onert (Samsung ONE): operators are placed one by one on the backends of one process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

_LACKING = re.compile(r"NYI for operation '(\w+)'")


class Onert:
    """The adapter of onert."""

    name = "onert"
    formats = frozenset({"circle", "tflite"})
    requirement = "gnomon[onert]"

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
        """Each backend in a process of its own prepares the model with its operators, type by type."""
        default = configuration.backends[0]
        types: dict[str, list[int]] = {}
        for operator in model.graph.operators:
            types.setdefault(operator.type, []).append(operator.index)
        commands = {
            backend: {
                "do": "supports",
                "segment": {
                    "runtime": self.name,
                    "model": model.path,
                    "options": {**configuration.options, "backend": backend, "default": default, "types": types},
                },
            }
            for backend in configuration.backends
        }
        operators: dict[str, frozenset[int]] = {}
        failures: dict[str, Failure] = {}
        for backend, answer in ask(commands).items():
            if isinstance(answer, Failure):
                failures[backend] = answer
                continue
            operators[backend] = frozenset(answer["operators"])
            if answer["reason"]:
                lacking, failures[backend] = _lacking(model, answer["reason"])
                if lacking:
                    operators[backend] = frozenset(op.index for op in model.graph.operators) - lacking
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


def _lacking(model: PlacedModel, reason: str) -> tuple[frozenset[int], Failure]:
    """The operators that the default backend lacks, by what onert printed, and that told with their names.

    onert stops at the first kernel that a backend lacks and names the kind of operation.
    """
    kind = _LACKING.search(reason)
    found = [op for op in model.graph.operators if kind and ir_opcode(op.type) == kind[1]]
    message = reason
    if found:
        first = found[0]
        message = f"takes no {first.type}, which is operator {first.index} ({first.name!r}): {reason}"
    failure = Failure(stage="probe", kind="refused", transient=False, message=message)
    return frozenset(op.index for op in found), failure


def settings(configuration: Configuration, assignment: Assignment) -> Mapping[str, str]:
    """onert's own keys for an assignment.

    Every operator is named, also those on the default backend: a package may hold a map or per-type keys of its own,
    which an entry for the operator itself overrides.
    """
    default = configuration.backends[0]
    used = (default, *sorted(set(assignment.values()) - {default}))
    made = {"BACKENDS": ";".join(used)}
    if assignment:
        made["OP_BACKEND_MAP"] = "".join(f"{index}={backend};" for index, backend in sorted(assignment.items()))
    return made


if TYPE_CHECKING:
    _: Runtime = Onert()
