"""The session of a job: one model on one device, the runtimes there, and the record of the measurements."""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gnomon
from gnomon import wire
from gnomon.core.graph import Graph, Tensor
from gnomon.core.sample import Context
from gnomon.devices.address import LOCAL
from gnomon.devices.base import Device, DeviceInfo
from gnomon.devices.opening import opened
from gnomon.errors import MeasurementError, UsageError
from gnomon.measure.campaign import CampaignRunner, Question, RecordedRunner
from gnomon.measure.effort import Effort
from gnomon.measure.environment import Caveat
from gnomon.measure.link import AgentLink
from gnomon.measure.progress import Tell, Watch
from gnomon.models.model import PACKAGE, UNREAD, Model, changed, image_sides, is_float64, stamp_of
from gnomon.report import units
from gnomon.report.conditions import ConditionsPart, FedInput
from gnomon.report.plain import listed, many
from gnomon.runtimes.base import Configuration, PlacedModel, Probe, RunSettings, Runtime, Support
from gnomon.runtimes.registry import by_name_only, check_options, chosen_runtimes
from gnomon.runtimes.whole import TOLERANCE
from gnomon.session.kernels import Sources
from gnomon.session.model import ReadModel, check_feeds, models_for, read_model, texts_of
from gnomon.session.request import ModelRequest, device_met, link_to, machine_of
from gnomon.session.targets import NOTE as ENERGY_NOTE
from gnomon.session.targets import (
    FindCopy,
    Missing,
    Target,
    by_precision,
    copies_told,
    equip,
    find_targets,
    nothing_runs,
    protocol_of,
    question_of,
    support_key,
    support_of_file,
    with_counters,
)
from gnomon.system.files import file_digest
from gnomon.system.process import guarded_folder

if TYPE_CHECKING:
    from gnomon.models.check import Finding

TWO_STEPS = 2 / 127
"""Two eight-bit steps, relative to the largest magnitude: outputs may differ by this much, because kernels round halves
in different ways.
"""
_TOLD_BYTES = 100_000_000
"""The size above which reading a file takes seconds, so that a message announces it."""
_QUICK = frozenset({"profile", "run the package"})
"""The stages of a quick answer."""
_FEW_BITS = frozenset({"int8", "uint8", "int4", "uint4", "int2", "uint2"})
_QUANTISES = re.compile(r"quant|integer|nbits|^q(linear|gemm|attention|ordered|embed|moe)", re.IGNORECASE)
"""Types of ONNX and PyTorch operators that round to few bits or compute in few bits; a mask or an image of bytes alone
does not make a model quantised. For TensorFlow's formats, the types of tensors decide.
"""


@dataclass(slots=True, kw_only=True)
class ModelSession:
    """An open job with its model, device, targets and campaign; `open_session` opens and closes it.

    `folder` is on this machine and is removed with the session. `read` is the model as it was read; `placed` is its
    file on the device. `push` brings a file or folder to the device. `link` is None if nothing is measured; the runner
    then answers from the record. `counters` are the energy counters, if energy is requested. The job adds to `missing`
    and `doubts` as it proceeds. `open_outputs` means that the shapes of outputs in the file are wrong. `unrepeatable`
    means that outputs are not compared, because they differ from call to call or because outputs of the same runtime
    have nothing in common. Smaller differences are tolerated up to `slack`. `sole_judge` is the runtime that computed
    the reference's outputs, if no other runtime agrees; "" otherwise. `lowered` are targets that compute in a lower
    precision than the model's own although this was not requested.
    """

    request: ModelRequest
    folder: Path
    read: ReadModel
    placed: PlacedModel
    device: DeviceInfo
    push: Callable[[Path, str], str]
    link: AgentLink | None
    runner: CampaignRunner | RecordedRunner
    probes: Mapping[str, Probe]
    targets: tuple[Target, ...]
    missing: list[Missing]
    cut_files: dict[str, Path] = field(default_factory=dict)
    doubts: list[Caveat] = field(default_factory=list)
    counters: Mapping[str, Any] | None = None
    open_outputs: bool = False
    unrepeatable: bool = False
    slack: float = 0.0
    sole_judge: str = ""
    lowered: tuple[Target, ...] = ()

    def tolerance(self, configuration: Configuration) -> float:
        """The tolerated difference between outputs in a configuration: at least the model's own tolerance."""
        own = max(configuration.tolerance, own_tolerance(self.graph), self.slack)
        return math.inf if self.unrepeatable else own

    @property
    def model_changed(self) -> bool:
        """Whether the user's file has changed since it was read; always False if the device has a copy of its own."""
        here = self.link is not None and self.request.device.address.kind == LOCAL
        return here and self.read.stamp is not None and stamp_of(self.request.model) != self.read.stamp

    @property
    def cores(self) -> int | None:
        """The number of cores that may be used; None if the device does not report it."""
        return _usable_cores(self.request, self.device.fingerprint)

    @property
    def graph(self) -> Graph:
        """The graph of the user's own model, with fixed shapes and folded constants."""
        return self.placed.graph

    @property
    def loaded(self) -> str:
        """A description of the file that runtimes load: the user's file, or a copy for its signature."""
        own = self.read.model.path == self.request.model
        return "the model's file, unmodified" if own else "a copy of the model's file for its signature"

    @property
    def outputs(self) -> list[Tensor]:
        """The outputs of the user's own model, as its file declares them."""
        return [self.graph.tensors[index] for index in self.graph.outputs]

    @property
    def inputs(self) -> tuple[FedInput, ...]:
        """The inputs of the user's own model, with their values in words."""
        tensors = (self.graph.tensors[index] for index in self.graph.inputs)
        return tuple(_fed(tensor, self.request, self.read.feeds.get(tensor.name, {})) for tensor in tensors)

    def job(self, segments: list[wire.Segment], inner: Mapping[str, wire.Tensor] | None = None) -> wire.Job:
        """The agent's job for a chain of segments; `inner` are the tensors between them.

        An output whose shape is not known is left open: the runtime that computes it determines the shape.
        """
        graph = self.graph
        tensors: dict[str, wire.Tensor] = {}
        for index in (*graph.inputs, *graph.outputs):
            tensor = graph.tensors[index]
            left_open = tensor.shape is None or (self.open_outputs and index not in graph.inputs)
            tensors[tensor.name] = {"shape": None if left_open else list(tensor.shape or ()), "dtype": tensor.dtype}
        feeds: dict[str, wire.Feed] = {name: self.read.feeds.get(name, {}) for name in self.placed.inputs}
        for name, path in self.request.feeds.items():
            feeds[name] = {"file": self.push(path, path.name)}
        return {
            "tensors": {**tensors, **(inner or {})},
            "feeds": feeds,
            "outputs": list(self.placed.outputs),
            "seed": self.request.seed,
            "segments": segments,
        }


def _fed(tensor: Tensor, request: ModelRequest, feed: wire.Feed) -> FedInput:
    """An input of the job, with a description of its values."""
    floating = tensor.dtype.startswith(("float", "bfloat", "complex"))
    if (path := request.feeds.get(tensor.name)) is not None:
        fed = path.name
    elif "values" in feed:
        fed = ", ".join(f"{value:g}" for value in feed["values"][:8]) + (", .." if len(feed["values"]) > 8 else "")
    elif feed.get("least", 0) == feed.get("most", 1):
        fed = f"all {feed['least']:g}"
    else:
        what = "pixels" if image_sides(tensor.shape or ()) else "numbers" if floating else "whole numbers"
        drawn = "standard normal" if floating else "0 or 1"
        ends = f"{what} from {feed['least']:g} to {feed['most']:g}" if feed else drawn
        fed = f"{ends}, seed {request.seed}"
    sha256 = None if path is None else file_digest(path)
    return FedInput(name=tensor.name, shape=tensor.shape or (), dtype=tensor.dtype, fed=fed, sha256=sha256)


def conditions_part(session: ModelSession, threads: Iterable[str] = ()) -> ConditionsPart:
    """The conditions under which an open job's answer holds; `threads` are the numbers of threads, if they differ from
    the requested ones.
    """
    settings, facts = session.request.settings, session.device.fingerprint
    threaded = any(
        getattr(target.runtime, "threaded", True) for target in session.targets
    )  # some commands do not take a number of threads
    return ConditionsPart(
        threads=tuple(map(int, threads)) or (settings.thread_counts if threaded else ()),
        defaults=settings.usual and threaded,
        signature=session.request.signature,
        precisions=_precisions(session.graph, settings),
        inputs=session.inputs,
        machine=str(facts.get("cpu_model") or facts.get("machine") or "unknown"),
        cores=session.cores,
        date=units.day(session.runner.campaign.started_at_s),
    )


def measured_facts(session: ModelSession) -> dict[str, Any]:
    """The facts about an open session that the documents of all jobs contain, keyed as in those documents."""
    request = session.request
    return {
        "device": session.device.name,
        "fingerprint": session.device.fingerprint,
        "versions": {name: probe.version for name, probe in session.probes.items()},
        "missing": tuple(dict.fromkeys(session.missing)),
        "campaign": session.runner.campaign.id,
        "record": str(request.database),
        "resumed": session.runner.resumed,
        "seconds": request.used_s,
        "waited_s": request.waited_s,
    }


def _precisions(graph: Graph, settings: RunSettings) -> tuple[str, ...]:
    """The precisions of the computation; empty for a file that only its command understands, or for a package."""
    own = "float64" if is_float64(graph) else "float32"
    return () if graph.format in (UNREAD, PACKAGE) else tuple(dict.fromkeys((own, *settings.precisions)))


def own_tolerance(graph: Graph) -> float:
    """The tolerated difference between outputs that the model's own precision causes in any configuration.

    For half precision it equals the tolerance of a configuration that computes in half precision. A quantised model may
    be off by two eight-bit steps, even if its outputs are floats or only its weights are quantised, because runtimes
    then also round the activations that they multiply by the weights.
    """
    fed = set(graph.inputs)
    computed = {graph.tensors[index].dtype for operator in graph.operators for index in operator.outputs}
    touched = set(graph.outputs)
    for operator in graph.operators:
        if graph.format in ("tflite", "circle") or _QUANTISES.search(operator.type):
            touched.update(operator.inputs, operator.outputs)
        if operator.type == "Cast":  # weights of few bits, which OpenVINO multiplies by activations of eight bits
            touched.update(index for index in operator.inputs if graph.tensors[index].constant)
    precision = max((TOLERANCE.get(dtype, 0.0) for dtype in computed), default=0.0)
    coarse = any(graph.tensors[index].dtype in _FEW_BITS for index in touched - fed if index >= 0)
    # In OpenVINO's files all tensors are floats; if they are rounded, kernels compute in eight bits.
    coarse = coarse or any(operator.type == "FakeQuantize" for operator in graph.operators)
    return max(precision, TWO_STEPS) if coarse else precision


@contextmanager
def open_session(
    request: ModelRequest,
    *,
    kind: str,
    question: Mapping[str, object],
    watch: Watch | None = None,
    tell: Tell | None = None,
    goes_on: bool = False,
    device: Device | None = None,
    beside: str = "",
    check: Callable[[], None] = lambda: None,
) -> Iterator[ModelSession]:
    """Open the model, device, record and runtimes of a job, and close them again.

    A job that `goes_on` continues its newest campaign even if that campaign was finished. A `device` that is already
    open, because several sessions share it, is not opened again; on such a device, the names of this session's files
    begin with `beside`. `check` is called after the request has been checked and before any device is used. Raises
    GnomonError if the model cannot be read, no runtime accepts it, or the device or the record fails.
    """
    _check_environments(request.settings)
    with ExitStack() as stack:
        size = stamp[1] if (stamp := stamp_of(request.model)) else 0
        if tell is not None and size > _TOLD_BYTES:
            tell(f"reading {request.model.name}, {size / 1e6:.0f} MB")
        read = read_model(request, stack)
        request = replace(request, shapes=read.given)  # the question is the same however the shapes were given
        runtimes = _runtimes_of(request, read.model.graph.format)
        if read.model.kind == PACKAGE:
            if kind != "profile":
                message = f"{request.model} is a package, which only gnomon profile and gnomon compare can measure"
                raise UsageError(message, hint="Give the model itself, or use one of these commands.")
            request = replace(request, settings=RunSettings(threads=getattr(runtimes[0], "threads", 1)))
        check_options(request.settings, runtimes)
        check_feeds(request, read.placed(_nowhere))
        check()
        job = _Job(kind=kind, question=question, watch=watch, tell=tell, goes_on=goes_on, device=device, beside=beside)
        session = (_live if request.measure else _kept)(request, read, runtimes, stack, job)
        session.missing += [
            Missing(
                name=name,
                reason="it takes minutes, so it is tried only if requested",
                hint=f"To try it: --runtime {name}",
            )
            for name in (() if request.runtimes else by_name_only(read.model.graph.format))
        ]
        session.doubts += _loaded(request.settings)
        commands = {command.name for command in request.settings.commands}
        session.doubts += [command_failed(missing) for missing in session.missing if missing.name in commands]
        session.doubts += _lower_precision(session)
        session.doubts += copies_told(session.targets)
        session.doubts += read.doubts
        session.doubts += [_drawn_text(name) for name in texts_of(session.graph) if name not in request.feeds]
        session.doubts += _empty(session)
        session.doubts += _drawn_steering(read.steering, {fed.name: fed.fed for fed in session.inputs})
        try:
            with device_met(session.runner):
                yield session
        except MeasurementError as error:
            if session.model_changed:
                raise changed(request.model) from error
            if not session.runner.stopped or _is_quick(request, session.runner.stopped):
                raise
            raise MeasurementError(
                f"--max-time ran out before there was an answer: {error.message}",
                hint="Start the same command again: it continues from the results database. Or raise --max-time.",
            ) from error


def _runtimes_of(request: ModelRequest, model_format: str) -> tuple[Runtime, ...]:
    """The requested runtimes (by default all) and the commands; the commands alone if only they are named or can read
    the model.

    UsageError if a command does not accept the format.
    """
    if model_format == PACKAGE:
        from gnomon.runtimes.packaged import PackageRuntime

        return (PackageRuntime(request.model, PACKAGE if PACKAGE in request.runtimes else ""),)
    if not request.settings.commands:
        return chosen_runtimes(request.runtimes, model_format)
    from gnomon.runtimes.commands import CommandRuntime

    if request.effort.energy is not None:
        raise UsageError("the energy of a command cannot be measured", hint="Leave out the objective energy.")
    commands = tuple(map(CommandRuntime, request.settings.commands))
    for command in commands:
        if model_format not in command.formats:
            raise UsageError(
                f"the command {command.name} does not take {model_format} models",
                hint=f"The command takes {', '.join(sorted(command.formats))}.",
            )
    named = {command.name for command in commands}
    asked = tuple(name for name in request.runtimes if name not in named)
    if not asked and (request.runtimes or model_format == UNREAD):
        return commands
    return (*chosen_runtimes(asked, model_format), *commands)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """The arguments of `open_session` other than the request."""

    kind: str
    question: Mapping[str, object]
    watch: Watch | None
    tell: Tell | None
    goes_on: bool
    device: Device | None
    beside: str


def _looked_at(model: Model, settings: RunSettings) -> tuple[tuple[Finding, ...], RunSettings]:
    """The findings in the file, and the settings to try; if the file has subnormal weights, these include an option
    that treats such weights as 0.
    """
    from gnomon.models.check import CURE, findings_of  # imported late, because the first process starts without it

    findings = findings_of(model)
    given = settings.by_itself == "only" or any(CURE in own for _, own in settings.options)
    if any(finding.kind == "subnormal" for finding in findings) and not given:
        settings = replace(settings, options=(*settings.options, ("onnxruntime", {CURE: "1"})))
    return findings, settings


def _file_doubts(findings: Sequence[Finding], shapes: Mapping[str, tuple[int, ...]]) -> list[Caveat]:
    """Warnings about the model's file; their kind is "file" unless the finding changes the answer."""
    decides = {"subnormal", "undelegated"}
    if any(shape[:1] != (finding.batch,) for finding in findings if finding.batch for shape in shapes.values()):
        decides.add("fixed-batch")
    return [Caveat(kind=f.kind if f.kind in decides else "file", message=f.message, hint=f.hint) for f in findings]


def _lower_precision(session: ModelSession) -> list[Caveat]:
    """A warning if a model computes in float64 but nothing measured does, although this was not requested."""
    computed = {t.configuration.precision for t in session.targets}
    if not is_float64(session.graph) or computed & {"float64", *session.request.settings.precisions}:
        return []
    names = listed([t.configuration.name for t in session.targets])
    message = f"the model computes in float64, but was measured only in lower precisions: {names}"
    return [Caveat(kind="lower-precision", message=message, hint="ONNX Runtime and PyTorch compute in float64.")]


def _loaded(settings: RunSettings) -> Iterator[Caveat]:
    """A warning for each operator library, because its code was run."""
    for runtime, path, digest in ((name, *file) for name, own in settings.libraries.items() for file in own.items()):
        message = f"{runtime} ran the code of the library of operators {Path(path).name} (SHA-256 {digest})"
        yield Caveat(kind="library", message=message, hint="The package lacks the library: run it with --library FILE.")


def command_failed(missing: Missing) -> Caveat:
    """A warning that a requested command yielded no time."""
    hint = missing.hint or "To see the whole output of the command: gnomon runs show last -v"
    return Caveat(kind="command-failed", message=f"{missing.name} was not measured: {missing.reason}", hint=hint)


def _drawn_text(name: str) -> Caveat:
    return Caveat(
        kind="drawn-text",
        message=f'the input {name!r} holds text; it was fed "0" and "1", and other texts may take a different time',
        hint=f"Save an array of texts with numpy.save, and give it: {shlex.join(('--input', f'{name}=FILE.npy'))}",
    )


def _empty(session: ModelSession) -> list[Caveat]:
    """A warning if no input or no output has any elements; a single input may be empty, such as a decoder's past."""
    empty = [fed for fed in session.inputs if 0 in fed.shape]
    if not empty or (len(empty) < len(session.inputs) and not all(0 in (t.shape or ()) for t in session.outputs)):
        return []
    names = " and ".join(f"{fed.name!r} ({','.join(map(str, fed.shape))})" for fed in empty)
    words = [word for fed in empty for word in ("--shape", f"{fed.name}=N,..")]
    message = f"there are inputs without elements, {names}: nothing is computed; the times are those of an empty call"
    return [Caveat(kind="empty-input", message=message, hint=f"Give sizes above 0: {shlex.join(words)}")]


def _drawn_steering(steering: Mapping[str, Sequence[str]], fed: Mapping[str, str]) -> list[Caveat]:
    """A single warning about all inputs that decide how much work there is, if there are any."""
    if not steering:
        return []
    names = " and ".join(f"{name!r} ({fed[name]})" for name in steering)
    what = " and ".join(dict.fromkeys(part for decided in steering.values() for part in decided))
    decide = "input {} decides" if len(steering) == 1 else "inputs {} decide"
    files = [word for n in steering for word in ("--input", f"{n}={re.sub(r'[^0-9A-Za-z]+', '_', n)}.npy")]
    message = f"the {decide.format(names)} {what}: with real values, the times and the choice may differ"
    hint = f"Save real values with numpy.save, and give their files: {shlex.join(files)}"
    return [Caveat(kind="drawn-steering", message=message, hint=hint)]


def _live(
    request: ModelRequest, read: ReadModel, runtimes: tuple[Runtime, ...], stack: ExitStack, job: _Job
) -> ModelSession:
    """A session on the device itself."""
    from gnomon.session import replay as recall
    from gnomon.store.opening import open_store

    model, source = read.model, read.source
    store = stack.enter_context(open_store(request.record))
    device = job.device or stack.enter_context(open_device(request, job.tell))

    def push(path: Path, name: str) -> str:
        return device.push(path, job.beside + name)

    machine = machine_of(request.device)
    link = stack.enter_context(link_to(device, timeout_s=request.effort.timeout_s, machine=machine))
    if not link.info.python and job.tell is not None:
        job.tell(f"{link.info.name} has no Python: its runtimes' own programs measure there")
    request = replace(request, settings=_usual_threads(request, link.info.fingerprint))
    named = request.settings.libraries.items()
    pushed = {name: {push(Path(path), Path(path).name): digest for path, digest in own.items()} for name, own in named}
    request = replace(request, settings=replace(request.settings, libraries=pushed))
    request = replace(request, effort=_fitting(request.effort, link.info.fingerprint.get("memory_bytes"), model))
    request, counters = with_counters(request, link)
    placed = read.placed(push)
    probes, missing = equip(link, runtimes, request.device, job.tell)
    models = models_for(runtimes, (model, placed, source), push, stack, missing)
    supports: dict[str, Support] = {}
    copy = _copies(read, push, stack)

    def ask(runtime: Runtime, placed: PlacedModel, configuration: Configuration) -> Support:
        return runtime.support(link.ask, placed, configuration)

    def decide(runtime: Runtime, placed: PlacedModel, configuration: Configuration) -> Support:
        own = copy if placed.graph is model.graph else lambda _: None  # a converted model has no copy
        python = bool(link.info.python)
        support = support_of_file(ask, own, runtime, placed, configuration, python=python)
        supports[support_key(configuration)] = support
        return support

    findings, settings = _looked_at(model, request.settings)
    targets = find_targets(decide, copy, runtimes, probes, models, settings, missing)
    if not targets:
        raise nothing_runs(link.info.name, runtimes, missing)
    targets, lowered = by_precision(targets, model.graph, request.settings)
    converted = recall.digests(models, model)
    details = {
        "configurations": [question_of(t.configuration) for t in targets],
        "effort": protocol_of(request.effort),
        "settings": recall.settings_of(request.device),
        "converted": converted,
        **({"drawn": read.feeds} if read.feeds else {}),
    }
    context = _context(request, model, link, probes)
    asked = Question(kind=job.kind, context=context, details={**job.question, **details}, goes_on=job.goes_on)
    sources, stages = Sources(model.graph, read.names), _QUICK if request.quick else None
    runner = CampaignRunner(
        link,
        store,
        asked,
        watch=job.watch,
        fresh=request.fresh,
        sources=sources,
        time_of_job=request.time,
        stages=stages,
    )
    noted = {"converted": converted}
    runner.note(recall.NOTE, recall.noted(request, link.info, probes, supports) | noted)
    if counters is not None:
        runner.note(ENERGY_NOTE, counters)
    return ModelSession(
        request=request,
        folder=stack.enter_context(guarded_folder("gnomon-lab-")),
        read=read,
        placed=placed,
        device=link.info,
        push=push,
        link=link,
        runner=runner,
        probes=probes,
        targets=targets,
        lowered=lowered,
        missing=missing,
        doubts=_too_many_threads(request, link.info) + _file_doubts(findings, read.shapes),
        counters=counters,
    )


@contextmanager
def open_device(request: ModelRequest, tell: Tell | None) -> Iterator[Device]:
    """The open device; the time spent waiting for it does not count as the job's."""
    began_s: list[float] = []

    def on_wait(sentence: str) -> None:
        began_s.append(time.monotonic())
        if tell is not None:
            tell(sentence)

    with opened(request.device, on_wait=on_wait) as device:
        if began_s and request.time is not None:
            request.time.waited_s += time.monotonic() - began_s[0]
        yield device


def _is_quick(request: ModelRequest, stopped: str) -> bool:
    """Whether a job stopped because a quick answer does not include the stage, and not because of the time limit."""
    return request.quick and not request.interrupted and stopped not in _QUICK


def stopped_doubts(request: ModelRequest, stopped: str, unmeasured: Sequence[str] = ()) -> list[Caveat]:
    """A warning if the job stopped early; it names the requested measurements that are missing."""
    if not stopped:
        return []
    if _is_quick(request, stopped):
        message = "only whole models were measured: mixes were not searched for, and operators were not timed"
        return [Caveat(kind="quick", message=message, hint="To do both, leave out --quick.")]
    lacking = f": {' and '.join(unmeasured)} not measured" if unmeasured else ""
    by, where = ("Ctrl-C", "") if request.interrupted else ("--max-time", f", in or before the stage {stopped!r}")
    message = f"stopped by {by} after {request.used_s:.0f} s{where}{lacking}"
    hint = "Start the same command again (it continues from the results database). More time gives a surer answer."
    return [Caveat(kind="stopped", message=message, hint=hint)]


def _copies(read: ReadModel, push: Callable[[Path, str], str], stack: ExitStack) -> FindCopy:
    """A function that returns the analysed copy of the model, which is written and pushed on first use."""

    @cache
    def copy(refused: bool) -> tuple[Model, PlacedModel] | None:
        return read.copied(push, stack, refused=refused)

    return lambda refused: copy(refused and read.source == read.own)


def _kept(
    request: ModelRequest, read: ReadModel, runtimes: tuple[Runtime, ...], stack: ExitStack, job: _Job
) -> ModelSession:
    """A session with the measurements of an earlier campaign of the same kind, model, device and options."""
    from gnomon.session import replay as recall
    from gnomon.store.opening import open_store

    model, source = read.model, read.source
    placed = read.placed(_nowhere)
    store = stack.enter_context(open_store(request.record))
    requested = [r.name for r in runtimes]
    recalled = recall.latest(store, request, job.kind, model.graph.digest, options_of(request), requested)
    if job.tell is not None and not request.interrupted:
        taken = time.strftime("%Y-%m-%d %H:%M", time.localtime(recalled.campaign.started_at_s))
        job.tell(f"nothing is measured; the decision uses campaign {recalled.campaign.id[:8]} of {taken}")
    missing: list[Missing] = []
    models = models_for(runtimes, (model, placed, source), _nowhere, stack, missing)
    recall.check_converted(recalled, recall.digests(models, model))

    def remember(runtime: Runtime, placed: PlacedModel, configuration: Configuration) -> Support:
        return recalled.support(support_key(configuration))

    present = tuple(r for r in runtimes if any(key.startswith(f"{r.name}:") for key in recalled.supports))
    why, hint = "it was not measured in that campaign", "Leave out --no-profile to measure it."
    missing += [Missing(name=r.name, reason=why, hint=hint) for r in runtimes if r not in present]
    known_options = recalled.campaign.context.options
    if (request.settings.usual or request.settings.every) and isinstance(known_options["threads"], list):
        request = replace(request, settings=replace(request.settings, more_threads=tuple(known_options["threads"][1:])))
    findings, settings = _looked_at(model, request.settings)
    request = replace(request, settings=settings)
    measured = replace(settings, backends=tuple(known_options["backends"]))
    copy = _copies(read, _nowhere, stack)
    targets = find_targets(remember, copy, present, recalled.probes, models, measured, missing)
    targets = recall.narrowed(targets, recalled.probes, request.settings, missing)
    if not targets:
        raise nothing_runs(recalled.device.name, runtimes, missing)
    targets, lowered = by_precision(targets, model.graph, request.settings)
    runner = RecordedRunner(store, recalled.campaign, stopped="measuring" if request.interrupted else "")
    return ModelSession(
        request=request,
        folder=stack.enter_context(guarded_folder("gnomon-lab-")),
        read=read,
        placed=placed,
        device=recalled.device,
        push=_nowhere,
        link=None,
        runner=runner,
        probes=recalled.probes,
        targets=targets,
        lowered=lowered,
        missing=missing,
        doubts=_too_many_threads(request, recalled.device) + _file_doubts(findings, read.shapes),
        counters=runner.last(ENERGY_NOTE),
    )


def _usable_cores(request: ModelRequest, fingerprint: Mapping[str, Any]) -> int | None:
    """The number of cores that may be used: those that a device is pinned to, otherwise those in its fingerprint."""
    return len(request.device.pin) or fingerprint.get("cores")


def _usual_threads(request: ModelRequest, fingerprint: Mapping[str, Any]) -> RunSettings:
    """The settings to try; if they leave the numbers of threads to gnomon, more numbers are added, up to the number of
    usable cores.
    """
    cores, settings = _usable_cores(request, fingerprint), request.settings
    if not (settings.usual or settings.every) or not isinstance(cores, int) or cores < 2:
        return settings
    between = (2**k for k in range(1, cores.bit_length()) if 2**k < cores) if settings.every else ()
    return replace(settings, more_threads=(*between, cores))


def _too_many_threads(request: ModelRequest, device: DeviceInfo) -> list[Caveat]:
    """A warning if more threads are requested than the device has usable cores."""
    cores = _usable_cores(request, device.fingerprint)
    most = max(request.settings.thread_counts)
    if not isinstance(cores, int) or most <= cores:
        return []
    message = f"{most} threads were measured on {many(cores, 'core')}, where they wait for each other"
    return [Caveat(kind="threads", message=message, hint="Give at most as many --threads as there are cores.")]


def _nowhere(path: Path, name: str) -> str:
    """A placeholder for the path of a file on the device, for a session without a device."""
    return f"/{name}"


def _context(request: ModelRequest, model: Model, link: AgentLink, probes: Mapping[str, Probe]) -> Context:
    """The context, which must be equal for runs to be comparable."""
    return Context(
        device=link.info.fingerprint,
        versions={name: probe.version for name, probe in probes.items()},
        model_digest=model.graph.digest,
        model_name=model.path.name,
        options=options_of(request),
        seed=request.seed,
        gnomon_version=gnomon.__version__,
    )


def _check_environments(settings: RunSettings) -> None:
    """UsageError for names of variables that a shell does not accept, because the package writes them into a script."""
    for name in (n for e in settings.environments for n in e):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(f"{name[:80]!r} is not a valid name for an environment variable", hint="Give NAME=VALUE.")


def options_of(request: ModelRequest) -> dict[str, object]:
    """The settings that the user chose, as stored in the record."""
    settings = request.settings
    return {
        "threads": list(settings.thread_counts) if settings.more_threads else settings.threads,
        **({"usual": True} if settings.usual else {"every": True} if settings.every else {}),
        **({"signature": request.signature} if request.signature else {}),
        "backends": list(settings.backends),
        "precisions": list(settings.precisions),
        "environments": [dict(e) for e in settings.environments],
        **({"options": [[name, dict(own)] for name, own in settings.options]} if settings.options else {}),
        **(
            {"libraries": {name: [*own.values()] for name, own in settings.libraries.items()}}
            if settings.libraries
            else {}
        ),
        **({"commands": [command.name for command in settings.commands]} if settings.commands else {}),
        "shapes": {name: list(shape) for name, shape in request.shapes.items()},
        "feeds": {name: file_digest(path) for name, path in request.feeds.items()},
    }


def _fitting(effort: Effort, memory_bytes: object, model: Model) -> Effort:
    """The effort, with no more processes alive at once than should fit into half of the device's memory.

    A process is assumed to need 200 MB for its runtime and four times the size of the model's file.
    """
    if not isinstance(memory_bytes, int):
        return effort
    each = 200_000_000 + 4 * model.size_bytes
    return replace(effort, together=max(2, min(effort.together, memory_bytes // 2 // each)))
