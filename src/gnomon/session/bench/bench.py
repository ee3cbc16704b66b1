"""A bench: many small models on one device in one configuration of one runtime, side by side in one campaign.

A `ModelSession` holds a single model. A bench is for jobs whose choices are models themselves: the units of a search
space and its whole nets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import gnomon
from gnomon.core.graph import Graph
from gnomon.core.sample import Context
from gnomon.devices.base import DeviceInfo
from gnomon.devices.opening import opened
from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.measure.campaign import CampaignRunner, Candidate, Question
from gnomon.measure.link import AgentLink
from gnomon.measure.progress import Tell, Watch
from gnomon.models.load import convert, load, reachable
from gnomon.models.model import Model
from gnomon.models.units import write_unit
from gnomon.runtimes.base import Configuration, Probe, Runtime, whole_job
from gnomon.runtimes.declared import Declaration
from gnomon.runtimes.registry import check_options, chosen_runtimes
from gnomon.runtimes.tunings import configurations
from gnomon.session import replay as recall
from gnomon.session.kernels import Sources
from gnomon.session.model import place_model, placed_converted
from gnomon.session.request import MeasureRequest, device_met, link_to, machine_of
from gnomon.session.targets import Missing, equip, hint_of, question_of, reasons_of
from gnomon.spaces.unit import Net, Unit
from gnomon.store.opening import open_store
from gnomon.system.process import guarded_folder
from gnomon.wire import Feed


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A model on the bench: its name, its graph as the runtime loads it, and the candidate that is measured."""

    key: str
    graph: Graph
    candidate: Candidate

    @property
    def sources(self) -> Sources:
        """The lookup of operators by a profiler's names."""
        return Sources(self.graph)


@dataclass(slots=True, kw_only=True)
class Bench:
    """An open bench, which `open_bench` creates and closes.

    `folder` is on this machine and is removed with the bench. `missing` are the runtimes that were left out. `begin`
    creates the runner of another campaign on this bench, from its subject and question. `write` writes a unit as a
    model of its own at a path, to which it adds the suffix, and returns that path; the weights are made up, unless a
    job uses a function of its own.
    """

    request: MeasureRequest
    folder: Path
    device: DeviceInfo
    push: Callable[[Path, str], str]
    link: AgentLink
    runner: CampaignRunner
    runtime: Runtime
    probe: Probe
    configuration: Configuration
    missing: Sequence[Missing]
    begin: Callable[[str, Mapping[str, object]], CampaignRunner]
    write: Callable[[Unit, Path], Path]

    @property
    def bare(self) -> bool:
        """Whether times are those of a model's parts without the call around them, as some commands report them."""
        return bool(self.configuration.options.get("command", {}).get("each") == "part")

    def place(self, key: str, path: Path) -> Placed:
        """Bring a model to the device, converted if the runtime loads another format.

        Raises GnomonError if the model cannot be read or converted.
        """
        return self.put(key, load(path), path)

    def put(self, key: str, model: Model, path: Path, *, feeds: Mapping[str, Feed] | None = None) -> Placed:
        """Like `place`, for a model that has already been read, for example without inner shapes to save time.

        Inputs without `feeds` are random.

        Raises GnomonError if the model cannot be converted.
        """
        placed = place_model(model, path, lambda own, name: self.push(own, f"{key}-{name}"))
        if model.graph.format not in self.runtime.formats:
            wanted = sorted(self.runtime.formats & reachable(model.graph.format))[0]
            folder = self.folder / f"converted-{key}"
            folder.mkdir()
            converted = convert(model, path, wanted, folder)
            where = self.push(folder, f"{key}-converted")
            placed = placed_converted(converted, folder, where, placed)
        segment = self.runtime.segment(placed, self.configuration, {})
        job = whole_job(model.graph, segment, seed=self.request.seed, feeds=feeds)
        # Each model is its own reference, because its outputs cannot be compared with any others. Starting a process
        # takes longer than a visit to a small model, so the models of a session share one.
        candidate = Candidate(
            key=key,
            job=job,
            environment=self.configuration.environment,
            check=False,
            process=self.configuration.name,
            separate="command" in self.configuration.options,
        )
        return Placed(key=key, graph=placed.graph, candidate=candidate)


@contextmanager
def open_bench(
    request: MeasureRequest,
    *,
    kind: str,
    subject: str,
    question: Mapping[str, object],
    goes_on: bool = False,
    watch: Watch | None = None,
    tell: Tell | None = None,
    loads: str = "onnx",
    kept: bool = False,
) -> Iterator[Bench]:
    """Open the device, the runtime and the record for many models, and close them again.

    `subject` is the name under which the record shows the models. A campaign with the same subject and `question` is
    continued if it was interrupted and, with `goes_on`, even if it was finished. The runtime is the named one, the only
    one available, or a command; `loads` is the format of its models. With `kept`, the processes that candidates share
    stay alive from one request to the next, but only on this machine. Raises GnomonError.
    """
    with ExitStack() as stack:
        runtimes = _runtimes(request, loads)
        check_options(request.settings, runtimes)
        if request.settings.libraries:
            raise UsageError("a library of operators is for one model", hint="Leave out --option RUNTIME:library=FILE.")
        store = stack.enter_context(open_store(request.record))
        device = stack.enter_context(opened(request.device, on_wait=tell))
        timeout_s, machine = request.effort.timeout_s, machine_of(request.device)
        link = stack.enter_context(link_to(device, timeout_s=timeout_s, machine=machine, kept=kept))
        probes, missing = equip(link, runtimes, request.device, tell)
        runtime = _only(runtimes, request.settings.commands, probes, missing, loads)
        probe = probes[runtime.name]
        configuration = _configuration(runtime, probe, request)
        request = replace(request, runtimes=(runtime.name,))

        def begin(subject: str, question: Mapping[str, object]) -> CampaignRunner:
            settings = request.settings
            commands = {"commands": [command.spec({}) for command in settings.commands]} if settings.commands else {}
            context = Context(
                device=link.info.fingerprint,
                versions={runtime.name: probe.version},
                model_digest=hashlib.sha256(subject.encode()).hexdigest(),
                model_name=subject,
                options={"threads": settings.threads, "backends": list(settings.backends), **commands},
                seed=request.seed,
                gnomon_version=gnomon.__version__,
            )
            applied = recall.settings_of(request.device)
            details = {**question, "configurations": [question_of(configuration)], "settings": applied}
            asked = Question(kind=kind, context=context, details=details, goes_on=goes_on)
            runner = CampaignRunner(link, store, asked, watch=watch, fresh=request.fresh, time_of_job=request.time)
            runner.note(recall.NOTE, {"device": link.info.name, "address": str(request.device.address)})
            return runner

        runner = begin(subject, question)
        folder = stack.enter_context(guarded_folder("gnomon-bench-"))

        bench = Bench(
            request=request,
            folder=folder,
            device=link.info,
            push=device.push,
            link=link,
            runner=runner,
            runtime=runtime,
            probe=probe,
            configuration=configuration,
            missing=missing,
            begin=begin,
            write=lambda unit, path: write_unit(unit, path.with_suffix(".onnx"), seed=request.seed),
        )
        with device_met(runner):
            yield bench


def measured_net_name(net: Net) -> str:
    """The name of a net: a digest of its content, which never refers to another net even if the search space
    changes.
    """
    nodes = [[node.unit.id, *node.inputs] for node in net.nodes]
    return hashlib.sha256(json.dumps([net.inputs, nodes, net.output]).encode()).hexdigest()[:16]


def _runtimes(request: MeasureRequest, loads: str) -> tuple[Runtime, ...]:
    """The runtimes that may measure: the named ones, all by default, or commands instead. UsageError if both are
    named.
    """
    from gnomon.runtimes.commands import CommandRuntime  # most jobs have no commands

    commands = tuple(map(CommandRuntime, request.settings.commands))
    if commands and request.runtimes:
        names = ", ".join((*request.runtimes, *(each.name for each in commands)))
        message = f"only one runtime or command can measure, not {names}"
        raise UsageError(message, hint="Give either --runtime or --command.")
    return commands or chosen_runtimes(request.runtimes, loads)


def _only(
    runtimes: tuple[Runtime, ...],
    commands: Sequence[Declaration],
    probes: Mapping[str, Probe],
    missing: Sequence[Missing],
    loads: str,
) -> Runtime:
    """The only available runtime; UsageError for several, RuntimeMissingError for none."""
    present = [r for r in runtimes if r.name in probes and r.formats & reachable(loads)]
    if not present:
        reasons = reasons_of(missing) or f"none loads {loads} models"
        own = "".join(command.hint for command in commands)
        raise RuntimeMissingError(f"no runtime is available ({reasons})", hint=hint_of(missing, own or "Install one."))
    if len(present) > 1:
        raise UsageError(
            f"{', '.join(r.name for r in present)} are available, but only one runtime can measure",
            hint=f"Choose one: --runtime {present[0].name}",
        )
    return present[0]


def _configuration(runtime: Runtime, probe: Probe, request: MeasureRequest) -> Configuration:
    """The configuration that fits the request. UsageError if none fits, or if several fit although the request names
    settings.
    """
    fitting = configurations(runtime, probe, request.settings)
    if request.settings.options:
        fitting = tuple(c for c in fitting if "session" in c.options)
    if request.settings.environments:
        fitting = tuple(c for c in fitting if c.environment)
    if request.settings.precisions:
        fitting = tuple(c for c in fitting if c.precision in request.settings.precisions)
    if request.settings.backends:
        fitting = tuple(c for c in fitting if set(c.backends) & set(request.settings.backends))
    if not fitting:
        raise UsageError(
            f"{runtime.name} has no configuration with these settings on this device",
            hint="Leave out --precision, --env, --option or --backend.",
        )
    narrowed = (
        request.settings.environments
        or request.settings.options
        or request.settings.precisions
        or request.settings.backends
    )
    if len(fitting) > 1 and narrowed:
        names = ", ".join(c.name for c in fitting)
        raise UsageError(f"only one configuration can be measured, not {names}", hint="Give one value for each option.")
    return fitting[0]
