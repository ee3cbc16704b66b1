"""Which runtimes, configurations and backends can run a model on a device, and what was left out and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gnomon.core.sample import Failure
from gnomon.errors import RuntimeMissingError
from gnomon.measure.link import AgentLink
from gnomon.runtimes.base import Configuration, PlacedModel, Probe, Runtime, Support, Wish

_DOING = {"probe": "probing", "load": "loading", "run": "running", "profile": "profiling"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A configuration of a runtime that can run the model, and which operators its backends take."""

    runtime: Runtime
    configuration: Configuration
    support: Support


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A runtime, configuration or backend that was left out, with the reason and what to do."""

    name: str
    reason: str
    hint: str = ""


def probe_runtimes(link: AgentLink, runtimes: tuple[Runtime, ...]) -> tuple[dict[str, Probe], list[Missing]]:
    """Ask each runtime on the device for its version and backends; those that do not answer are missing."""
    answers = link.ask({r.name: {"do": "probe", "runtime": r.name} for r in runtimes})
    probes: dict[str, Probe] = {}
    missing: list[Missing] = []
    for runtime in runtimes:
        answer = answers[runtime.name]
        if isinstance(answer, Failure):
            hint = f"pip install '{runtime.requirement}'"
            missing.append(Missing(name=runtime.name, reason=reason_of(answer), hint=hint))
            continue
        details = {k: v for k, v in answer.items() if k not in {"version", "backends"}}
        probes[runtime.name] = Probe(version=answer["version"], backends=tuple(answer["backends"]), details=details)
    return probes, missing


def reason_of(failure: Failure) -> str:
    """Why something is not to be had, in one line: the failure, with the last thing that it printed."""
    if "ModuleNotFoundError" in failure.message or "ImportError" in failure.message:
        return "not installed"
    tail = failure.log_tail.strip().splitlines()
    return failure.message + (f" ({tail[-1].strip()[:160]})" if tail else "")


def find_targets(
    link: AgentLink,
    runtimes: tuple[Runtime, ...],
    probes: Mapping[str, Probe],
    placed: PlacedModel,
    wish: Wish,
    missing: list[Missing],
) -> tuple[Target, ...]:
    """The configurations that take every operator of the model; what is left out goes into `missing`."""
    targets: list[Target] = []
    for runtime in runtimes:
        if runtime.name not in probes:
            continue
        found: Support | None = None
        for configuration in runtime.configurations(probes[runtime.name], wish):
            if found is None:  # what a runtime takes does not depend on the environment
                found = runtime.support(link.ask, placed, configuration)
                for backend, failure in found.failures.items():
                    label = backend if backend == runtime.name else f"{runtime.name}:{backend}"
                    hint = "Leave it out with --backend, or report it to its maker." if failure.kind == "crash" else ""
                    missing.append(Missing(name=label, reason=reason_of(failure), hint=hint))
            taken = frozenset[int]().union(*found.operators.values())
            lacking = next((op for op in placed.graph.operators if op.index not in taken), None)
            if lacking is None:
                targets.append(Target(runtime=runtime, configuration=configuration, support=found))
            elif taken:
                reason = f"no backend takes operator {lacking.index} ({lacking.type}, {lacking.name!r})"
                missing.append(Missing(name=configuration.name, reason=reason))
    computed = {t.configuration.precision for t in targets}
    for precision in wish.precisions:
        if precision not in computed:
            reason = "no runtime here computes in it: the processor does not, or the runtime has no such mode"
            missing.append(Missing(name=precision, reason=reason))
    return tuple(targets)


def nothing_runs(runtimes: tuple[Runtime, ...], missing: list[Missing]) -> RuntimeMissingError:
    """The error for a model that nothing on the device runs: every reason, and what to install."""
    reasons = "; ".join(f"{m.name}: {m.reason}" for m in missing) or "none was found"
    install = [m.hint for m in missing if m.hint.startswith("pip ")]
    names = ", ".join(r.name for r in runtimes)
    return RuntimeMissingError(
        f"no runtime on this device runs the model ({reasons})",
        hint=f"Install one: {'; '.join(install)}" if install else f"Tried: {names}. Try another model or runtime.",
    )


def describe(failure: Failure | None) -> str:
    """How something that was measured failed, in one line."""
    if failure is None:
        return "unknown"
    if failure.stage == "check":
        return f"refused: {failure.message}"
    return f"{failure.kind} while {_DOING.get(failure.stage, failure.stage)}: {failure.message}"
