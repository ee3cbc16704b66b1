"""Where a job works: one model on one device, the runtimes found there, and the record of what is measured."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import gnomon
from gnomon.core.campaign import Context
from gnomon.core.graph import Graph
from gnomon.devices.guard import guarded_folder
from gnomon.devices.lease import lease, lease_folder
from gnomon.devices.local import LocalDevice
from gnomon.errors import ModelError, UsageError
from gnomon.jobs.kernels import Sources
from gnomon.jobs.targets import Missing, Target, find_targets, nothing_runs, probe_runtimes
from gnomon.measure.campaign import CampaignRunner, Question
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink
from gnomon.measure.progress import Watch
from gnomon.models.load import load
from gnomon.models.model import Model, dynamic_inputs
from gnomon.runtimes.base import PlacedModel, Probe, Wish
from gnomon.runtimes.registry import chosen_runtimes
from gnomon.store.sqlite import SqliteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a job is asked to do: the model, where and with what, and how hard to try.

    `shapes` fix inputs that the file leaves open; `feeds` are .npy files for inputs, others are drawn from `seed`.
    `record` is the database (None: the user's own); `fresh` starts anew where an interrupted campaign could be
    taken up.
    """

    model: Path
    runtimes: tuple[str, ...] = ()
    wish: Wish = field(default_factory=Wish)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    feeds: Mapping[str, Path] = field(default_factory=dict)
    effort: Effort = field(default_factory=Effort)
    seed: int = 0
    record: Path | None = None
    fresh: bool = False


@dataclass(slots=True, kw_only=True)
class Lab:
    """An open job: model, device, targets and campaign. Made by `open_lab`, which also closes it."""

    request: Request
    model: Model
    source: Path
    placed: PlacedModel
    link: AgentLink
    runner: CampaignRunner
    probes: Mapping[str, Probe]
    targets: tuple[Target, ...]
    missing: list[Missing]
    cut_files: dict[str, Path] = field(default_factory=dict)

    @property
    def packaged(self) -> Model:
        """The model as it goes into a package: the user's own, or the copy with its shapes fixed."""
        return self.model

    @property
    def graph(self) -> Graph:
        """The model's graph."""
        return self.placed.graph

    def job(self, segments: list[dict[str, Any]], inner: Mapping[str, dict[str, Any]] | None = None) -> dict[str, Any]:
        """The agent's job for a chain of segments; `inner` are the tensors between them."""
        graph = self.graph
        tensors: dict[str, dict[str, Any]] = {}
        for index in (*graph.inputs, *graph.outputs):
            tensor = graph.tensors[index]
            tensors[tensor.name] = {"shape": list(tensor.shape or ()), "dtype": tensor.dtype}
        feeds: dict[str, dict[str, Any]] = {name: {} for name in self.placed.inputs}
        for name, path in self.request.feeds.items():
            feeds[name] = {"file": self.link.device.push(path, path.name)}
        return {
            "tensors": {**tensors, **(inner or {})},
            "feeds": feeds,
            "outputs": list(self.placed.outputs),
            "seed": self.request.seed,
            "segments": segments,
        }


@contextmanager
def open_lab(
    request: Request,
    *,
    kind: str,
    question: Mapping[str, Any],
    watch: Watch | None = None,
    tell: Callable[[str], None] | None = None,
) -> Iterator[Lab]:
    """Open model, device, record and runtimes for a job, and close them again.

    Raises GnomonError: the model cannot be read, no runtime takes it, the device or the record fails.
    """
    _check_environments(request.wish)
    with ExitStack() as stack:
        model = load(request.model)
        model, source = _with_shapes(model, request, stack)
        runtimes = chosen_runtimes(request.runtimes, model.graph.format)
        stack.enter_context(lease(lease_folder(), "local", on_wait=tell))
        store = stack.enter_context(SqliteStore.open(request.record))
        device = stack.enter_context(LocalDevice())
        link = stack.enter_context(AgentLink(device, timeout_s=request.effort.timeout_s))
        request = replace(request, effort=_fitting(request.effort, link.info.fingerprint.get("memory_bytes"), model))
        placed = PlacedModel(
            graph=model.graph,
            # A package is loaded as a folder, so that whatever else its config holds is in effect.
            path=device.push(model.path, model.path.name) if model.package else device.push(source, source.name),
            inputs=tuple(model.graph.tensors[t].name for t in model.graph.inputs),
            outputs=tuple(model.graph.tensors[t].name for t in model.graph.outputs),
        )
        _check_feeds(request, placed)
        probes, missing = probe_runtimes(link, runtimes)
        targets = find_targets(link, runtimes, probes, placed, request.wish, missing)
        if not targets:
            raise nothing_runs(runtimes, missing)
        asked = {"configurations": [t.configuration.name for t in targets], "effort": _protocol(request.effort)}
        runner = CampaignRunner(
            link,
            store,
            Question(kind=kind, context=_context(request, model, link, probes), details={**question, **asked}),
            watch=watch,
            fresh=request.fresh,
            sources=Sources(model.graph),
        )
        yield Lab(
            request=request,
            model=model,
            source=source,
            placed=placed,
            link=link,
            runner=runner,
            probes=probes,
            targets=targets,
            missing=missing,
        )


def _context(request: Request, model: Model, link: AgentLink, probes: Mapping[str, Probe]) -> Context:
    """What must be equal for runs to be compared."""
    return Context(
        device=link.info.fingerprint,
        versions={name: probe.version for name, probe in probes.items()},
        model_digest=model.graph.digest,
        model_name=model.path.name,
        options=_options(request),
        seed=request.seed,
        gnomon_version=gnomon.__version__,
    )


def _check_environments(wish: Wish) -> None:
    """Names of variables go into a shell script of the package: only such as a shell takes for names."""
    for name in (n for e in wish.environments for n in e):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(f"{name[:80]!r} is no name of an environment variable", hint="Give NAME=VALUE.")


def _with_shapes(model: Model, request: Request, stack: ExitStack) -> tuple[Model, Path]:
    """The model with its inputs' shapes fixed, and the file that the runtimes load."""
    names = {model.graph.tensors[t].name for t in model.graph.inputs}
    for name in request.shapes:
        if name not in names:
            raise UsageError(f"--shape: the model has no input {name!r}", hint=f"Its inputs: {', '.join(names)}.")
    source = model.package.models[0] if model.package else model.path
    if model.graph.format == "onnx":
        from gnomon.models.onnx_static import fixed_copy

        model, source = fixed_copy(model, dict(request.shapes), stack.enter_context(guarded_folder("gnomon-model-")))
    still = dynamic_inputs(model.graph)
    if still:
        example = " ".join(f"--shape {t.name}=1,3,224,224" for t in still)
        raise UsageError(
            f"the shape of input {still[0].name!r} is {still[0].shape}, which leaves dimensions open",
            hint=f"Fix every dimension, such as: {example}",
        )
    return model, source


def _options(request: Request) -> dict[str, Any]:
    wish = request.wish
    return {
        "threads": wish.threads,
        "backends": list(wish.backends),
        "precisions": list(wish.precisions),
        "environments": [dict(e) for e in wish.environments],
        "shapes": {name: list(shape) for name, shape in request.shapes.items()},
        "feeds": {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in request.feeds.items()},
    }


def _protocol(effort: Effort) -> dict[str, Any]:
    """What of the effort makes runs of another kind; how long to go on does not."""
    whole = asdict(effort)
    return {
        k: whole[k] for k in sorted(whole) if k not in {"processes_least", "processes_most", "half_width", "budget_s"}
    }


def _fitting(effort: Effort, memory_bytes: object, model: Model) -> Effort:
    """The effort with no more processes alive at once than half of the device's memory should hold.

    A process is taken to need its runtime's 200 MB and four times the model's file.
    """
    if not isinstance(memory_bytes, int):
        return effort
    each = 200_000_000 + 4 * model.size_bytes
    return replace(effort, together=max(2, min(effort.together, memory_bytes // 2 // each)))


def _check_feeds(request: Request, placed: PlacedModel) -> None:
    for name, path in request.feeds.items():
        if name not in placed.inputs:
            raise UsageError(f"--input: the model has no input {name!r}", hint=f"Inputs: {', '.join(placed.inputs)}.")
        if not path.is_file():
            raise UsageError(f"--input {name}: there is no file {path}", hint="Give a .npy file.")
    for index in (*placed.graph.inputs, *placed.graph.outputs):
        tensor = placed.graph.tensors[index]
        if tensor.shape is None or -1 in tensor.shape:
            raise ModelError(f"the shape of output {tensor.name!r} is not known", hint="Fix the inputs with --shape.")
