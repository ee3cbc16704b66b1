"""Which runtimes, configurations and backends can run a model on a device, and what was left out and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gnomon.core.installing import pip_line
from gnomon.core.sample import Failure
from gnomon.errors import AgentError, RuntimeMissingError, UsageError
from gnomon.measure.link import AgentLink
from gnomon.models.model import Model
from gnomon.runtimes.base import Configuration, PlacedModel, Probe, Runtime, Support, Wish
from gnomon.runtimes.tuning import configurations

NOT_INSTALLED = "not installed"
"""Why a runtime is missing that its device simply has not."""

BROKEN = "it is there, but cannot be imported"
"""How the reason begins why a runtime is missing whose package, or what that needs, does not load."""

_NO_PYTHON = "Install the runtime's own program there and put it on the PATH; see docs/without-python.md."
_DOING = {"probe": "probing", "load": "loading", "run": "running", "profile": "profiling"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A configuration of a runtime that can run the model, and which operators its backends take.

    `placed` is the model on the device in the format that the runtime loads, and `model` the same on this machine: the
    user's own, or what it was converted to. Operators are counted in `placed.graph`.
    """

    runtime: Runtime
    configuration: Configuration
    support: Support
    placed: PlacedModel
    model: Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A runtime, configuration or backend that was left out, with the reason and what to do."""

    name: str
    reason: str
    hint: str = ""


def pip_names(wheels: Sequence[str]) -> list[str]:
    """The names of the pip packages that a plan of a runtime needs: numpy, and those of its requirements."""
    return ["numpy", *(re.split(r"[^A-Za-z0-9._-]", wheel, maxsplit=1)[0] for wheel in wheels)]


def pip_requirements_line(wheels: Sequence[str], python: str) -> str:
    """The shell command that installs what runs a runtime's plans: numpy and its requirements."""
    return pip_line(["numpy", *wheels], python)


def probe_runtimes(link: AgentLink, runtimes: tuple[Runtime, ...]) -> tuple[dict[str, Probe], list[Missing]]:
    """Ask each runtime on the device for its version and backends; those that do not answer are missing."""
    commands = {r.name: {"do": "probe", "runtime": r.name, "packages": pip_names(r.wheels)} for r in runtimes}
    answers = link.ask(commands)
    probes: dict[str, Probe] = {}
    missing: list[Missing] = []
    for runtime in runtimes:
        answer = answers[runtime.name]
        if isinstance(answer, Failure):
            python = link.info.python
            hint = pip_requirements_line(runtime.wheels, python) if python else _NO_PYTHON
            missing.append(Missing(name=runtime.name, reason=reason_of(answer), hint=hint))
            continue
        if not isinstance(answer.get("version"), str) or not _are_texts(answer.get("backends")):
            raise AgentError(f"the agent's answer for {runtime.name} is none: {answer!r:.200}", hint="Report this.")
        details = {k: v for k, v in answer.items() if k not in {"version", "backends"}}
        probes[runtime.name] = Probe(version=answer["version"], backends=tuple(answer["backends"]), details=details)
    return probes, missing


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def reason_of(failure: Failure) -> str:
    """Why something is not to be had, in one line: the failure, with the last thing that it printed."""
    if "ModuleNotFoundError" in failure.message or failure.message.endswith("is not installed"):
        return NOT_INSTALLED
    if "ImportError" in failure.message:
        return f"{BROKEN}: {failure.message[:300]}"
    tail = failure.log_tail.strip().splitlines()
    return failure.message + (f" ({tail[-1].strip()[:160]})" if tail else "")


#: Finds which operators the backends of a configuration take.
FindSupport = Callable[[Runtime, PlacedModel, Configuration], Support]


def find_targets(
    support_of: FindSupport,
    runtimes: tuple[Runtime, ...],
    probes: Mapping[str, Probe],
    models: Mapping[str, tuple[Model, PlacedModel]],
    wish: Wish,
    missing: list[Missing],
) -> tuple[Target, ...]:
    """The configurations that take every operator of the model; what is left out goes into `missing`.

    `models` holds the model as each runtime loads it, by the runtime's name.
    """
    targets: list[Target] = []
    present = [r for r in runtimes if r.name in probes and r.name in models]
    wishes = _wishes(present, probes, wish, missing)
    for runtime in present:
        if runtime.name not in wishes:
            continue
        model, placed = models[runtime.name]
        supports: dict[tuple[str, ...], Support] = {}
        for configuration in configurations(runtime, probes[runtime.name], wishes[runtime.name]):
            found = supports.get(configuration.backends)
            if found is None:  # what backends take does not depend on the environment
                found = supports[configuration.backends] = support_of(runtime, placed, configuration)
                missing.extend(_lost(runtime, found))
            taken = frozenset[int]().union(*found.operators.values())
            lacking = next((op for op in placed.graph.operators if op.index not in taken), None)
            if lacking is None:
                configuration = replace(configuration, options={**configuration.options, **found.options})
                targets.append(
                    Target(runtime=runtime, configuration=configuration, support=found, placed=placed, model=model)
                )
            elif taken:
                reason = f"no backend takes operator {lacking.index} ({lacking.type}, {lacking.name!r})"
                missing.append(Missing(name=configuration.name, reason=reason))
    computed = {t.configuration.precision for t in targets}
    for precision in wish.precisions:
        if precision not in computed:
            reason = "no runtime here computes in it: the processor does not, or the runtime has no such mode"
            missing.append(Missing(name=precision, reason=reason))
    return tuple(targets)


def _wishes(
    runtimes: Sequence[Runtime], probes: Mapping[str, Probe], wish: Wish, missing: list[Missing]
) -> dict[str, Wish]:
    """What is wished of each runtime: of the named backends those that it has; without any it is left out.

    UsageError where a named backend is no runtime's.
    """
    if not wish.backends:
        return {runtime.name: wish for runtime in runtimes}
    has = {r.name: tuple(dict.fromkeys((r.name, *probes[r.name].backends))) for r in runtimes}
    for name in wish.backends:
        if not any(name in backends for backends in has.values()):
            told = "; ".join(f"{runtime}: {', '.join(backends)}" for runtime, backends in has.items())
            raise UsageError(f"no runtime on this device has a backend {name!r}", hint=f"There are: {told or 'none'}.")
    made: dict[str, Wish] = {}
    for runtime in runtimes:
        own = tuple(name for name in wish.backends if name in has[runtime.name])
        if own:
            made[runtime.name] = replace(wish, backends=own)
        else:
            missing.append(Missing(name=runtime.name, reason="it has none of the backends that were asked for"))
    return made


def _lost(runtime: Runtime, found: Support) -> Iterator[Missing]:
    """The backends that failed."""
    for backend, failure in found.failures.items():
        label = backend if backend == runtime.name else f"{runtime.name}:{backend}"
        hint = "Leave it out with --backend, or report it to its maker." if failure.kind == "crash" else ""
        yield Missing(name=label, reason=reason_of(failure), hint=hint)


def support_key(configuration: Configuration) -> str:
    """What configurations have in common that take the same operators: the runtime and its backends."""
    return f"{configuration.runtime}:{','.join(configuration.backends)}"


def nothing_runs(device: str, runtimes: tuple[Runtime, ...], missing: list[Missing]) -> RuntimeMissingError:
    """The error for a model that nothing on the device runs: every reason, and what to install."""
    reasons = "; ".join(f"{m.name}: {m.reason}" for m in missing) or "none was found"
    install = [m.hint for m in missing if m.hint.startswith("pip ")]
    others = [m.hint for m in missing if m.hint and m.hint not in install]
    names = ", ".join(r.name for r in runtimes)
    where = "this device" if device == "local" else f"the device {device}"
    hint = f"Install one: {'; '.join(install)}" if install else f"Tried: {names}. Try another model or runtime."
    return RuntimeMissingError(
        f"no runtime on {where} runs the model ({reasons})", hint=" ".join(dict.fromkeys([*others, hint]))
    )


def describe(failure: Failure | None) -> str:
    """How something that was measured failed, in one line."""
    if failure is None:
        return "unknown"
    if failure.stage == "check":
        return f"refused: {failure.message}"
    if failure.kind == "unmeasured":
        return failure.message
    return f"{failure.kind} while {_DOING.get(failure.stage, failure.stage)}: {failure.message}"
