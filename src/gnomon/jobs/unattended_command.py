"""The command line that does on a device what was asked here: a request as the words that `gnomon` takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from gnomon.errors import UsageError
from gnomon.jobs.pareto_records import ParetoRequest
from gnomon.jobs.request import Request
from gnomon.measure.effort import Effort

_CARRIED = frozenset(
    {
        *("request", "objectives", "by", "options", "plan", "others", "counters"),
        *("pick", "under", "out", "overwrite", "dumpfile"),
    }
)
#: `device` becomes the settings of the job's own machine, which does not vanish for a while; its record is its own.
_CARRIED_OF_REQUEST = frozenset(
    {
        *("model", "device", "runtimes", "wish", "shapes", "feeds", "effort", "seed"),
        *("fresh", "wait_s", "max_time_s"),
    }
)
_CARRIED_OF_EFFORT = frozenset({"processes_least", "processes_most", "budget_s", "timeout_s"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where on the device things of this machine lie: the model, the files of inputs, what is written."""

    model: str
    feeds: Mapping[str, str] = field(default_factory=dict)
    out: str | None = None
    dumpfile: str | None = None


def command_of(asked: ParetoRequest, places: Places) -> tuple[str, ...]:
    """The words after `gnomon`, as its command line would read them back to the same request.

    UsageError for what these words have no form for, rather than doing something else there.
    """
    request = asked.request
    if request is None or asked.source is not None:
        raise UsageError("a search over a dump needs no device", hint="Leave out --unattended.")
    if not request.measure:
        raise UsageError(
            "nothing is measured with --no-profile", hint="Leave out one of --unattended and --no-profile."
        )
    if request.record is not None:
        raise UsageError(
            "an unattended search has a record of its own there", hint="Give --record to gnomon unattended fetch."
        )
    _check_nothing_else(asked, ParetoRequest(), _CARRIED)
    _check_nothing_else(request, Request(model=request.model), _CARRIED_OF_REQUEST)
    _check_nothing_else(request.effort, Effort(), _CARRIED_OF_EFFORT)
    words = ["pareto", "--json", *_measuring(request, places), *_searching(asked)]
    if places.out is not None:
        words += ["--out", places.out, "--overwrite"]
    if places.dumpfile is not None:
        words += ["--dumpfile", places.dumpfile]
    return (*words, "--", places.model)


def _measuring(request: Request, places: Places) -> Iterator[str]:
    wish, effort = request.wish, request.effort
    for name in request.runtimes:
        yield from ("--runtime", name)
    for name in wish.backends:
        yield from ("--backend", name)
    yield from ("--threads", ",".join(map(str, wish.thread_counts)))
    for name in wish.precisions:
        yield from ("--precision", name)
    for variables in wish.environments:
        if not variables or any(re.search(r",[A-Za-z_][A-Za-z0-9_]*=", value) for value in variables.values()):
            raise UsageError("an environment has no form on the command line", hint="Give one without commas.")
        yield from ("--env", ",".join(f"{name}={value}" for name, value in variables.items()))
    for name, shape in request.shapes.items():
        yield from ("--shape", f"{name}={','.join(map(str, shape))}")
    for name, place in places.feeds.items():
        if "=" in name:
            raise UsageError(f"the input {name!r} has no form on the command line", hint="Leave out its file.")
        yield from ("--input", f"{name}={place}")
    if (effort.processes_least, effort.processes_most) != (Effort().processes_least, Effort().processes_most):
        if effort.processes_least != effort.processes_most:
            raise UsageError("a range of processes has no form on the command line", hint="Give one number.")
        yield from ("--processes", str(effort.processes_least))
    if request.max_time_s is not None:
        yield from ("--max-time", repr(request.max_time_s))
    yield from ("--budget", repr(effort.budget_s), "--timeout", repr(effort.timeout_s), "--seed", str(request.seed))


def _searching(asked: ParetoRequest) -> Iterator[str]:
    for name in asked.objectives:
        yield from ("--objective", name)
    for name in asked.counters:
        yield from ("--energy-counter", name)
    yield from ("--by", asked.by)
    for name, values in asked.options.items():
        yield from ("--option", f"{name}={','.join(values)}" if values else name)
    if len({(plan.seed, plan.iterations) for plan in asked.plans}) > 1:
        raise UsageError("searches of different lengths have no form on the command line", hint="Search one by one.")
    for plan in asked.plans:
        yield from ("--search", plan.name)
    if asked.plan.iterations is not None:
        yield from ("--iterations", str(asked.plan.iterations))
    if asked.pick is not None:
        yield from ("--pick", str(asked.pick))
    for name, bound in asked.under.items():
        yield from ("--under", f"{name}={float(bound)!r}")


def _check_nothing_else(record: Any, plain: Any, carried: frozenset[str]) -> None:
    """UsageError where something is asked that the command would not say."""
    for one in fields(record):
        if one.name not in carried and getattr(record, one.name) != getattr(plain, one.name):
            raise UsageError(
                f"{one.name.replace('_', ' ')} cannot be given to an unattended search", hint="Leave it as it is."
            )
