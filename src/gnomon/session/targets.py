"""The runtimes, configurations and backends that can run a model on a device, and why others were left out.

The module also finds the runtimes that a device already has, and installs those that it lacks.

It handles the energy objective too, from the request to the device's energy counters and their protocol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gnomon.core.graph import Graph
from gnomon.core.sample import UNSTABLE, Failure
from gnomon.devices.address import LOCAL
from gnomon.devices.config import DeviceConfig
from gnomon.errors import AgentError, GnomonError, RuntimeMissingError, UsageError
from gnomon.installing import pip_line
from gnomon.measure.effort import Effort
from gnomon.measure.environment import Caveat
from gnomon.measure.link import AgentLink, conforms
from gnomon.measure.progress import Tell
from gnomon.models.model import Model, is_float64
from gnomon.report.plain import listed
from gnomon.runtimes.base import (
    Configuration,
    PlacedModel,
    Probe,
    RunSettings,
    Runtime,
    Support,
    driver_of,
    loads,
    portable,
)
from gnomon.runtimes.registry import adapter_version
from gnomon.runtimes.whole import TOLERANCE, labelled
from gnomon.session.request import ModelRequest
from gnomon.system.files import user_folder
from gnomon.wire import EnergyMeter, FreshCommand, ProbeAnswer, ProbeCommand

NOT_INSTALLED = "not installed"
"""The reason for a missing runtime that is simply not installed on the device."""

BROKEN = "it is installed, but cannot be imported"
"""How the reason begins if a runtime is missing because its package, or one that it depends on, does not load."""

_NO_PYTHON = "Install Python 3.10 or newer on the device, or onert's own program: see docs/devices/without-python.md."
_DOING = {"probe": "probing", "load": "loading", "run": "running", "profile": "profiling"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A configuration of a runtime that can run the model, and the operators that its backends take.

    `placed` is the model on the device in the format that the runtime loads, and `model` is the same on this machine:
    the user's own file, a copy of it, or a converted model. Operator indices refer to `placed.graph`.
    """

    runtime: Runtime
    configuration: Configuration
    support: Support
    placed: PlacedModel
    model: Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A runtime, configuration or backend that was left out, with the reason and a hint."""

    name: str
    reason: str
    hint: str = ""


class Installable(Missing):
    """A missing runtime whose hint is the shell command that installs it."""

    __slots__ = ()


def pip_names(wheels: Sequence[str]) -> list[str]:
    """The names of the pip packages that a runtime's plan needs: numpy and the runtime's requirements."""
    return ["numpy", *(re.split(r"[^A-Za-z0-9._-]", wheel, maxsplit=1)[0] for wheel in wheels)]


def probe_commands(runtimes: Sequence[Runtime]) -> dict[str, FreshCommand]:
    """The agent's command that probes each runtime, by the runtime's name.

    Runtimes that load the same library are probed one after the other in one process, because loading takes most of a
    probe's time.
    """
    return {r.name: getattr(r, "probing", None) or _probe_command(r) for r in sorted(runtimes, key=loads)}


def _probe_command(runtime: Runtime) -> ProbeCommand:
    packages = pip_names(runtime.wheels)
    return {"do": "probe", "runtime": driver_of(runtime), "packages": packages, "process": loads(runtime)}


def probe_runtimes(link: AgentLink, runtimes: tuple[Runtime, ...]) -> tuple[dict[str, Probe], list[Missing]]:
    """Ask each runtime on the device for its version and backends; runtimes that do not answer count as missing."""
    answers = link.ask(probe_commands(runtimes))
    probes: dict[str, Probe] = {}
    missing: list[Missing] = []
    for runtime in runtimes:
        answer = answers[runtime.name]
        if isinstance(answer, Failure):
            python, reason = link.info.python, reason_of(answer, runtime)
            if not runtime.wheels:
                missing.append(Missing(name=runtime.name, reason=reason, hint=getattr(runtime, "hint", "")))
            elif answer.transient and answer.kind != "refused":
                missing.append(Missing(name=runtime.name, reason=reason, hint="Start the same command again."))
            elif python:
                line = pip_line(["numpy", *runtime.wheels], python)
                missing.append(Installable(name=runtime.name, reason=reason, hint=line))
            else:
                missing.append(Missing(name=runtime.name, reason=reason, hint=_NO_PYTHON))
            continue
        if not conforms(answer, ProbeAnswer):
            raise AgentError(f"the agent's answer for {runtime.name} is invalid: {answer!r:.200}", hint="Report this.")
        probes[runtime.name] = Probe.of(answer)
    return probes, missing


_NO_MODULE = re.compile(r"No module named '([^']+)'")


def reason_of(failure: Failure, runtime: Runtime) -> str:
    """The reason why a runtime is not available, in one line: the failure and the last line of its output.

    A missing module is named if it belongs neither to the runtime nor to its requirements.
    """
    if "ModuleNotFoundError" in failure.message or failure.message.endswith("is not installed"):
        match = _NO_MODULE.search(failure.message)
        own = {_normal(name) for name in (runtime.name, *pip_names(runtime.wheels))}
        if match is None or _normal(match[1].partition(".")[0]) in own:
            return NOT_INSTALLED
        return f"{NOT_INSTALLED}: there is no module {match[1]!r}"
    if "ImportError" in failure.message:
        return f"{BROKEN}: {failure.message[:300]}"
    tail = failure.log_tail.strip().splitlines()
    return failure.message + (f" ({tail[-1].strip()[:160]})" if tail else "")


def _normal(name: str) -> str:
    """Normalise a name so that a package and its module have the same name."""
    return re.sub(r"[-_.]+", "_", name).lower()


#: Finds the operators that the backends of a configuration take.
FindSupport = Callable[[Runtime, PlacedModel, Configuration], Support]
#: Returns the analysed copy of the model's file, or None if none is needed. The argument says whether a runtime refused
#: the file.
FindCopy = Callable[[bool], "tuple[Model, PlacedModel] | None"]

_ONE_BY_ONE = "its operators are placed one by one, by their names and numbers"
_PROGRAM = "the runtime's own program uses the shapes in the file"


def support_of_file(
    ask: FindSupport,
    copy: FindCopy,
    runtime: Runtime,
    placed: PlacedModel,
    configuration: Configuration,
    *,
    python: bool,
) -> Support:
    """The operators that the backends take, and the file that is run; decided only here (docs/models.md).

    A runtime runs the user's own file unless one of three reasons, given in `Support.copy`, requires a copy: it places
    operators of an ONNX model one by one, and only the copy has the graph's operators; the device has no `python`, and
    its drivers need fixed shapes; or the runtime refuses the file but accepts the copy.
    """
    one_by_one = placed.graph.format == "onnx" and len(configuration.backends) > 1
    if (one_by_one or not python) and (copied := copy(False)):
        return replace(ask(runtime, copied[1], configuration), copy=_ONE_BY_ONE if one_by_one else _PROGRAM)
    support = ask(runtime, placed, configuration)
    silent = any(failure.kind == "hang" for failure in support.failures.values())  # a copy would take as long again
    copied = None if silent or any(support.operators.values()) else copy(True)
    other = None if copied is None else ask(runtime, copied[1], configuration)
    if other is None or not any(other.operators.values()):
        return support
    reasons = (reason_of(failure, runtime) for failure in support.failures.values())
    return replace(other, copy=next(reasons, "it runs no operator"))


def copies_told(targets: Sequence[Target]) -> list[Caveat]:
    """A warning for each runtime that runs a copy of the user's file."""
    reasons = {t.runtime.name: t.support.copy for t in targets if t.support.copy}
    copied = "it was measured on a copy with unique names, fixed shapes and folded constants"
    messages = (f"{name} does not run the file as it is ({reason}): {copied}" for name, reason in reasons.items())
    hint = "The package holds that copy. To run the file as it is, export it again."
    return [Caveat(kind="copy", message=message, hint=hint) for message in messages]


def find_targets(
    support_of: FindSupport,
    copy: FindCopy,
    runtimes: tuple[Runtime, ...],
    probes: Mapping[str, Probe],
    models: Mapping[str, tuple[Model, PlacedModel]],
    settings: RunSettings,
    missing: list[Missing],
) -> tuple[Target, ...]:
    """The configurations that take every operator of the model; all others go into `missing`.

    `models` holds the model as each runtime loads it, by the runtime's name. `copy` returns the copy that is run if a
    `Support` requires it.
    """
    from gnomon.runtimes.tunings import configurations

    targets: list[Target] = []
    present = [r for r in runtimes if r.name in probes and r.name in models]
    wishes = _wishes(present, probes, settings, missing)
    for runtime in present:
        if runtime.name not in wishes:
            continue
        own = models[runtime.name]
        supports: dict[tuple[str, ...], Support] = {}
        for configuration in configurations(runtime, probes[runtime.name], wishes[runtime.name]):
            support = supports.get(configuration.backends)
            if support is None:  # the operators that backends take do not depend on other settings
                support = supports[configuration.backends] = support_of(runtime, own[1], configuration)
                missing.extend(_lost(runtime, support))
            model, placed = (copy(True) if support.copy else None) or own
            taken = frozenset[int]().union(*support.operators.values())
            lacking = next((op for op in placed.graph.operators if op.index not in taken), None)
            if lacking is None:
                configuration = replace(configuration, options={**configuration.options, **support.options})
                targets.append(
                    Target(runtime=runtime, configuration=configuration, support=support, placed=placed, model=model)
                )
            elif taken:
                reason = f"no backend runs operator {lacking.index} ({lacking.type}, {lacking.name!r})"
                missing.append(Missing(name=configuration.name, reason=reason))
    computed = {t.configuration.precision for t in targets}
    for precision in settings.precisions:
        if precision not in computed:
            reason = "no runtime here computes in this precision: the processor or the runtime does not support it"
            missing.append(Missing(name=precision, reason=reason))
    return tuple(targets)


def precision_in(graph: Graph, runtime: Runtime) -> str:
    """The default precision of a runtime for a model: float64 if both support it, otherwise float32."""
    return "float64" if is_float64(graph) and getattr(runtime, "float64", True) else "float32"


def by_precision(
    targets: Sequence[Target], graph: Graph, settings: RunSettings
) -> tuple[tuple[Target, ...], tuple[Target, ...]]:
    """The targets that compute in the model's own precision or a requested one, and those with a lower precision.

    Only float64 models have targets of the second kind; the name of a configuration that computes such a model in
    float32 says so. If no target computes in float64 or in a requested precision, all are kept.
    """
    if not is_float64(graph):
        return tuple(targets), ()
    named = tuple(replace(t, configuration=_named(t.configuration, precision_in(graph, t.runtime))) for t in targets)
    kept = tuple(t for t in named if t.configuration.precision in {"float64", *settings.precisions})
    return (kept, tuple(t for t in named if t not in kept)) if kept else (named, ())


def _named(configuration: Configuration, precision: str) -> Configuration:
    if configuration.precision != "float32":
        return configuration
    if precision == "float64":
        return replace(configuration, precision=precision, tolerance=TOLERANCE[precision])
    runtime, _, labels = configuration.name.partition("[")
    return replace(configuration, name=labelled(runtime, precision, labels.removesuffix("]")))


def _wishes(
    runtimes: Sequence[Runtime], probes: Mapping[str, Probe], settings: RunSettings, missing: list[Missing]
) -> dict[str, RunSettings]:
    """The settings to try for each runtime, with the named backends that the runtime has; runtimes with none of these
    backends are left out.

    UsageError if no runtime has a named backend.
    """
    if not settings.backends:
        return {runtime.name: settings for runtime in runtimes}
    has = {r.name: tuple(dict.fromkeys((r.name, *probes[r.name].backends))) for r in runtimes}
    for name in settings.backends:
        if not any(_is_of(name, backends) for backends in has.values()):
            shown = "; ".join(f"{runtime}: {', '.join(backends)}" for runtime, backends in has.items())
            lacking = ((r.name, probes[r.name].details.get("lacking", {}).get(name)) for r in runtimes)
            why = "".join(f" ({runtime}: {reason})" for runtime, reason in lacking if reason)
            raise UsageError(f"no runtime on this device has a backend {name!r}{why}", hint=f"Here: {shown or 'none'}.")
    wishes: dict[str, RunSettings] = {}
    for runtime in runtimes:
        own = tuple(name for name in settings.backends if _is_of(name, has[runtime.name]))
        if own:
            wishes[runtime.name] = replace(settings, backends=own)
        else:
            missing.append(Missing(name=runtime.name, reason="it has none of the requested backends"))
    return wishes


def _is_of(requested: str, backends: Sequence[str]) -> bool:
    """Whether the requested name is a backend's or, like "vulkan:llvmpipe", selects one of a backend's devices."""
    return requested in backends or requested.partition(":")[0] in backends


def _lost(runtime: Runtime, support: Support) -> Iterator[Missing]:
    """The backends that failed, as entries of `Missing`."""
    for backend, failure in support.failures.items():
        label = backend if backend == runtime.name else f"{runtime.name}:{backend}"
        hint = "Give other backends with --backend, or report the crash upstream." if failure.kind == "crash" else ""
        yield Missing(name=label, reason=reason_of(failure, runtime), hint=hint)


def support_key(configuration: Configuration) -> str:
    """The key of configurations that take the same operators: the runtime and its backends."""
    return f"{configuration.runtime}:{','.join(configuration.backends)}"


def question_of(configuration: Configuration) -> dict[str, object]:
    """The part of a configuration that must be equal for runs to be comparable, as JSON values."""
    return {
        "name": configuration.name,
        "options": dict(portable(configuration.options)),
        "environment": dict(configuration.environment),
        "adapter": adapter_version(configuration.runtime),
    }


def nothing_runs(device: str, runtimes: tuple[Runtime, ...], missing: list[Missing]) -> RuntimeMissingError:
    """The error for a model that no runtime on the device can run, with all reasons and installation hints."""
    reasons = reasons_of(missing) or "no runtime was found"
    names = listed([r.name for r in runtimes], len(runtimes))
    if operator := _unknown_operator([m.reason for m in missing if not isinstance(m, Installable)]):
        hint = "Export the model without it, or give a library that has it: --option onnxruntime:library=FILE"
        return RuntimeMissingError(f"no runtime has {operator} (tried: {names})", hint=hint)
    where = "this device" if device == "local" else f"the device {device}"
    hint = hint_of(missing, f"Tried: {names}. Try another model or runtime.")
    return RuntimeMissingError(f"no runtime on {where} runs the model ({reasons})", hint=hint)


_UNKNOWN = re.compile(r"([\w.-]+):(\w+)\(-?\d+\) is not a registered function")
"""ONNX Runtime's message about an operator that it does not know; pnnx contains ONNX Runtime too."""


def _unknown_operator(reasons: Sequence[str]) -> str:
    """The operator that all reasons name as unknown to a runtime; "" if there is none."""
    unknown = next(filter(None, map(_UNKNOWN.search, reasons)), None)
    if not unknown or not all(re.search(rf"\b{unknown[2]}\b", reason) for reason in reasons):
        return ""
    return f"the operator {unknown[2]} of the domain {unknown[1]}"


def merged(missing: Sequence[Missing]) -> list[Missing]:
    """Merge entries with the same reason and hint into one entry with all their names; each reason becomes one line."""
    names: dict[tuple[str, str], dict[str, None]] = {}
    for row in missing:
        names.setdefault((" ".join(row.reason.split()), row.hint), {})[row.name] = None
    return [Missing(name=listed(list(of)), reason=reason, hint=hint) for (reason, hint), of in names.items()]


def reasons_of(missing: Sequence[Missing]) -> str:
    """The reasons why entries were left out, in one sentence: "a and b: not installed; c: it crashed"."""
    return "; ".join(f"{row.name}: {row.reason}" for row in merged(missing))


def hint_of(missing: Sequence[Missing], otherwise: str) -> str:
    """The next steps for everything that is missing; each installation command is on a line of its own, so that it can
    be copied.

    Without such a command, the hint ends with `otherwise`.
    """
    others = [m.hint for m in missing if m.hint and not isinstance(m, Installable)]
    lines = [m.hint for m in missing if isinstance(m, Installable)]
    first = " ".join(dict.fromkeys([*others, "Install one:" if lines else otherwise]))
    return "\n".join([first, *dict.fromkeys(lines)])


def describe(failure: Failure | None) -> str:
    """A measurement's failure, in one line."""
    if failure is None:
        return "unknown"
    if failure.stage == "check":
        return f"refused: {failure.message}"
    if failure.kind == "unmeasured":
        return failure.message
    if failure.kind == UNSTABLE:
        return f"unstable: {failure.message}"
    return f"{failure.kind} while {_DOING.get(failure.stage, failure.stage)}: {failure.message}"


def equip(
    link: AgentLink, runtimes: tuple[Runtime, ...], config: DeviceConfig, tell: Tell | None
) -> tuple[dict[str, Probe], list[Missing]]:
    """Ask the device for the runtimes, and install missing ones as packages for its own Python and processor.

    Nothing is installed for this machine's own Python, which is its owner's responsibility. Runtimes that cannot be
    installed are returned as missing, with the reason. If one of the device's own runtimes no longer starts next to the
    installed ones, the device's own take precedence and the installed ones are returned as missing.
    """
    probes, missing = probe_runtimes(link, runtimes)
    # A package that is broken on the device may be intact in the installed folder, which is searched first.
    absent = {m.name for m in missing if m.reason.startswith((NOT_INSTALLED, BROKEN))}
    lacking = tuple(r for r in runtimes if r.name in absent)
    if not lacking or (config.address.kind == LOCAL and config.python is None):
        return probes, missing
    failed: dict[str, GnomonError] = {}

    def provide(runtimes: tuple[Runtime, ...]) -> Path:
        """A folder with these runtimes."""
        from gnomon.devices.packages import provide as packages

        wanted = ["numpy", *(requirement for runtime in runtimes for requirement in runtime.wheels)]
        say = tell or (lambda _: None)
        return packages.provide(wanted, link.info.fingerprint, home=user_folder(), fetch=config.fetch, tell=say)

    folder = _provided(provide, lacking, failed)
    if folder is not None:
        # The folders in the device's own PYTHONPATH come after it.
        own = [path for path in config.environment.get("PYTHONPATH", "").split(":") if path]
        link.paths[:] = [link.device.push(folder, "site"), *own]
        together, missing_then = probe_runtimes(link, runtimes)
        lost = [name for name in probes if name not in together]
        if not lost:
            probes, missing = together, missing_then
        else:
            link.paths.clear()
            stops = f"with its requirements installed, the device's own {' and '.join(lost)} would not start"
            for name in (runtime.name for runtime in lacking if runtime.name not in failed):
                failed[name] = RuntimeMissingError(stops, hint=f"Measure it separately: --runtime {name}")
    return probes, [_unprovided(m, failed.get(m.name)) for m in missing]


def _provided(
    provide: Callable[[tuple[Runtime, ...]], Path], lacking: tuple[Runtime, ...], failed: dict[str, GnomonError]
) -> Path | None:
    """A folder with all runtimes that can be installed together; the others go into `failed`."""
    try:
        return provide(lacking)
    except GnomonError as error:
        if len(lacking) == 1:
            failed[lacking[0].name] = error
            return None
    folder, together = None, tuple[Runtime, ...]()
    for runtime in lacking:  # each one's requirements must also fit those of the runtimes before it
        try:
            folder, together = provide((*together, runtime)), (*together, runtime)
        except GnomonError as error:
            failed[runtime.name] = error
    return folder


def _unprovided(missing: Missing, error: GnomonError | None) -> Missing:
    """A missing runtime with the reason why it could not be installed."""
    if error is None:
        return missing
    reason = f"{missing.reason}, and cannot be installed: {error.message}"
    return Missing(name=missing.name, reason=reason, hint=error.hint)


NOTE = "energy"
"""The event of a campaign that holds its energy counters (`gnomon.measure.energy.Counters`)."""


def check_counters(objectives: Sequence[str], counters: Sequence[str]) -> None:
    """UsageError if counters are named although energy is not an objective."""
    from gnomon.measure.energy import ENERGY

    if counters and ENERGY not in objectives:
        raise UsageError(f"the counter {counters[0]!r} needs the objective energy", hint="Add --objective energy.")


def asking_energy(request: ModelRequest, objectives: Sequence[str], counters: Sequence[str]) -> ModelRequest:
    """The request, with energy counters (by default the device's usual ones) if energy is an objective."""
    from gnomon.measure.energy import ENERGY

    if ENERGY not in objectives:
        return request
    meter: EnergyMeter = {"counters": tuple(counters), "period_ns": 0, "step_uj": 0}
    return replace(request, effort=replace(request.effort, energy=meter))


def with_counters(request: ModelRequest, link: AgentLink) -> tuple[ModelRequest, dict[str, object] | None]:
    """The request with blocks long enough for the device's counters, and the counters (None if energy is not
    requested).

    DeviceError before anything is measured if the device has no usable counter.
    """
    if request.effort.energy is None:
        return request, None
    from gnomon.measure.energy import find_counters, metered

    counters = find_counters(link, tuple(request.effort.energy["counters"]))
    return replace(request, effort=metered(request.effort, counters)), asdict(counters)


def protocol_of(effort: Effort) -> dict[str, object]:
    """The part of the effort that must be equal for runs to be comparable, which excludes the stop rule and a counter's
    measured speed.
    """
    # The last two are used only by a separate stage, which sets them itself.
    free = {"processes_least", "processes_most", "half_width", "budget_s", "every_s", "watched"}
    protocol = {name: value for name, value in sorted(asdict(effort).items()) if name not in free}
    if effort.energy is None:
        del protocol["energy"]
    else:
        protocol["energy"] = list(effort.energy["counters"])
    return protocol
