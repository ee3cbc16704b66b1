"""The job of `gnomon overlay collect`: measure configurations that were found on other devices."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnomon.core.codec import check_fields
from gnomon.core.overlay.records import UNTUNED, TunedDevice, TunedModel, TuningLayer, TuningRecords, TuningTrial
from gnomon.core.overlay.trials import by_layer
from gnomon.core.sample import Failure
from gnomon.errors import UsageError
from gnomon.jobs.overlay.document import CollectDocument, CollectedLayer
from gnomon.jobs.runs.answers import keep_in
from gnomon.jobs.tune.campaign import TrialCampaign
from gnomon.jobs.tune.document import device_part, failures_of, tuned_conditions
from gnomon.jobs.tune.folder import (
    TuneFolder,
    one_model,
    only_layers,
    read_logs,
    replayable,
    tune_folder,
    tuner_versions,
)
from gnomon.jobs.tune.records import best_of, best_trial, check_record, measured_trial, pooled_trials
from gnomon.jobs.tune.request import DeviceOptions, TuneEffort, check_device, open_device
from gnomon.measure.progress import Meter, Watch
from gnomon.tuning.bench import Bench, Builders, LayerCall, Loop, Timed, discard, once, visits
from gnomon.tuning.servers import Tell
from gnomon.tuning.tvm import TvmPool

_AT_ONCE = 128
_AGAIN = 4
"""The number of processes for close configurations, as a multiple of the usual number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRequest:
    """Measure the `best` configurations of each layer (None: all) in these logs on a device.

    `layers` are names or numbers of layers (none: all). `close` has configurations by layer, both given by digest. With
    `close` only these configurations are measured, in four times as many processes as usual, and several logs may come
    from the same host.
    """

    logs: tuple[Path, ...]
    device: DeviceOptions
    best: int | None = None
    close: Mapping[str, Collection[str]] | None = None
    layers: tuple[str, ...] = ()
    effort: TuneEffort = field(default_factory=TuneEffort)
    out: Path | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A configuration of a layer, the requested number of processes, and the campaigns that record its trials."""

    layer: TuningLayer
    configuration: str
    trace: Any
    processes: int
    campaigns: Sequence[TrialCampaign]


def collect(
    request: CollectRequest, *, watch: Watch | None = None, tell: Tell = lambda sentence: None
) -> list[CollectDocument]:
    """Measure configurations on a device, interleaved within each layer; returns a document for each log.

    Each configuration is measured in random order in several fresh processes, whose number depends on the effort. Its
    outputs are compared with those of the untuned layer on the same device. Earlier measurements are not repeated.
    Raises GnomonError.
    """
    began_s = time.monotonic()
    logs, model, recorded = check_collect(request)
    folder = tune_folder(request.out)
    with TvmPool() as pool, ExitStack() as stack:
        device, bench = stack.enter_context(open_device(pool, request.device, recorded, tell))
        versions = tuner_versions()
        campaigns: dict[str, TrialCampaign] = {}
        for log in logs.values():
            bare = TuningRecords(device=device, model=model, layers=(), trials=(), found_on=log.host, versions=versions)
            path = folder.collected(device, log.host, model)
            campaign = TrialCampaign(path, bare, "overlay-collect", fresh=request.fresh)
            campaigns[log.host] = stack.enter_context(campaign)
            campaign.add_layers(log.layers)
        candidates = list(_candidates(request, list(logs.values()), campaigns))
        builders = Builders(pool, device, timeout_s=request.effort.build_timeout_s)
        _Run(pool.folder, bench, builders, request.effort.loop(model.dtype)).measure(candidates, watch)
        seconds = time.monotonic() - began_s
        for host, campaign in campaigns.items():
            campaign.finish(f"{campaign.count} trials on {device.key} of configurations of {host}")
        documents = {
            log.host: _document(request, device, log, path, campaigns[log.host], seconds) for path, log in logs.items()
        }
    for host, document in documents.items():
        keep_in(None, campaigns[host].id, document.document(), tell)
    return list(documents.values())


def check_collect(request: CollectRequest) -> tuple[dict[Path, TuningRecords], TunedModel, TunedDevice | None]:
    """Check everything that can be checked without TVM.

    Returns the records of the requested layers by file, their model, and the device as records describe it (None: no
    record does). Raises GnomonError.
    """
    check_fields(request.effort)
    logs = every = read_logs(request.logs)
    replayable(request.logs, logs)
    model, folder = one_model(logs), tune_folder(request.out)
    paths = list(request.logs)
    if request.close is not None:
        # A host's own log has all configurations that it found; collected records are used only if that log is missing.
        first = {log.host: k for k, log in sorted(enumerate(logs), key=lambda pair: not pair[1].found_on)}
        logs, paths = [logs[k] for k in first.values()], [paths[k] for k in first.values()]
    hosts = [log.host for log in logs]
    if len(set(hosts)) < len(hosts):
        twice = sorted({host for host in hosts if hosts.count(host) > 1})
        raise UsageError(f"several logs have configurations of {', '.join(twice)}", hint="Give one log per device.")
    logs = only_layers(logs, request.layers)
    for host in hosts:
        check_record(folder.collected(TunedDevice(key=request.device.key, target={}), host, model))
    recorded = _recorded_device(request, every, folder, model)
    check_device(request.device, recorded)
    return dict(zip(paths, logs, strict=True)), model, recorded


def _recorded_device(
    request: CollectRequest, logs: Sequence[TuningRecords], folder: TuneFolder, model: TunedModel
) -> TunedDevice | None:
    """The device as a log or a record file of this folder describes it; None if neither does.

    The device's recorded settings are used again, because code is comparable only if it is compiled in the same way.
    """
    key = request.device.key
    device = next((log.device for log in logs if log.device.key == key), None)
    path = folder.record(TunedDevice(key=key, target={}), model)
    if device is None and path.is_file():
        (own,) = read_logs([path])
        replayable([path], [own])
        device = own.device if own.device.key == key else None
    return device


def _candidates(
    request: CollectRequest, logs: Sequence[TuningRecords], campaigns: dict[str, TrialCampaign]
) -> Iterator[_Candidate]:
    """Each layer's untuned code, then its configurations, each once even if several hosts found it."""
    layers = {layer.layer: layer for log in logs for layer in log.layers}
    close, processes = request.close, request.effort.processes
    if close is not None:
        layers = {name: layer for name, layer in layers.items() if name in close}
        processes *= _AGAIN
    by_host = {log.host: by_layer(log.trials) for log in logs}
    for layer in layers.values():
        traces: dict[str, Any] = {UNTUNED: None}
        holders: dict[str, list[TrialCampaign]] = {UNTUNED: []}
        for log in logs:
            if layer.layer in {own.layer for own in log.layers}:
                holders[UNTUNED].append(campaigns[log.host])
                for trial in _meant(request, layer, by_host[log.host]):
                    traces[trial.configuration] = trial.trace
                    holders.setdefault(trial.configuration, []).append(campaigns[log.host])
        for name, trace in traces.items():
            # The untuned layer is always run, because its outputs are the reference; its time may not be needed.
            wanted = processes if close is None or name in close[layer.layer] else 0
            yield _Candidate(layer=layer, configuration=name, trace=trace, processes=wanted, campaigns=holders[name])


def _meant(
    request: CollectRequest, layer: TuningLayer, trials: Mapping[str, Sequence[TuningTrial]]
) -> list[TuningTrial]:
    """The requested configurations of a layer, from a log's trials by layer."""
    timed = best_of(trials.get(layer.layer, ()), request.best)
    if request.close is None:
        return timed
    return [trial for trial in timed if trial.configuration in request.close.get(layer.layer, ())]


class _Run:
    """The measurement of candidates, a few layers at a time."""

    def __init__(self, folder: Path, bench: Bench, builders: Builders, loop: Loop) -> None:
        self._folder, self._bench, self._builders, self._loop = folder, bench, builders, loop

    def measure(self, candidates: list[_Candidate], watch: Watch | None) -> None:
        """Measure the candidates in the processes that they still need, and record each result at once."""
        left = sum(self._missing(candidate) for candidate in candidates)
        meter = Meter("configurations", left, watch)
        for part in _parts(candidates):
            if any(self._missing(candidate) for candidate in part):
                self._part(part, meter)
        meter.finish()

    def _missing(self, candidate: _Candidate) -> int:
        """The number of processes that a candidate still needs; failed candidates are not tried again."""
        counts = [0]
        for campaign in candidate.campaigns:
            trials = [t for t in campaign.trials(candidate.layer.layer) if t.configuration == candidate.configuration]
            # A candidate that crashed its server is not tried again either, because it would crash every run.
            failures = [t.failure for t in trials if t.failure is not None]
            failed = any(not failure.transient or failure.kind == "crash" for failure in failures)
            counts.append(0 if failed else candidate.processes - len(trials) + len(failures))
        return max(counts)

    def _part(self, part: list[_Candidate], meter: Meter) -> None:
        """Measure the candidates of some layers.

        Candidates of a layer whose untuned code fails here are skipped, because their outputs cannot be checked.
        """
        wanted = [candidate for candidate in part if self._missing(candidate) or candidate.trace is None]
        built = self._builders.build([(candidate.layer, candidate.trace) for candidate in wanted])
        calls: dict[int, LayerCall] = {}
        compared = set()
        for number, (candidate, call) in enumerate(zip(wanted, built, strict=True)):
            outputs = self._folder / f"outputs-{candidate.layer.layer}.npz"
            said: LayerCall | Timed | Failure = call
            if candidate.trace is None and isinstance(call, LayerCall):
                said = self._bench.call(replace(call, keep=outputs), once(self._loop))
                if isinstance(said, Timed):
                    compared.add(candidate.layer.layer)
            if isinstance(said, Failure):
                if missing := self._missing(candidate):
                    self._write(candidate, said)
                    meter.step(missing)
            elif isinstance(call, LayerCall) and candidate.layer.layer in compared:
                calls[number] = replace(call, reference=None if candidate.trace is None else outputs)
        processes, seed = max((candidate.processes for candidate in wanted), default=0), self._loop.seed
        for number, _ in visits(self._bench, calls, processes, seed, lambda k, _: self._missing(wanted[k])):
            self._write(wanted[number], self._bench.call(calls[number], self._loop))
            meter.step()
        discard(*built)

    @staticmethod
    def _write(candidate: _Candidate, said: Timed | Failure) -> None:
        trial = measured_trial(candidate.layer, candidate.trace, said)
        for campaign in candidate.campaigns:
            campaign.add(trial)


def _parts(candidates: list[_Candidate]) -> Iterator[list[_Candidate]]:
    """Groups of whole layers with a limited number of candidates, so that a layer's candidates are interleaved."""
    part: list[_Candidate] = []
    for candidate in candidates:
        if len(part) >= _AT_ONCE and candidate.trace is None:
            yield part
            part = []
        part.append(candidate)
    if part:
        yield part


def _document(
    request: CollectRequest,
    device: TunedDevice,
    log: TuningRecords,
    source: Path,
    campaign: TrialCampaign,
    seconds: float,
) -> CollectDocument:
    trials = by_layer(log.trials)
    return CollectDocument(
        model=log.model,
        device=device_part(device),
        host=log.host,
        records=str(campaign.path),
        source=str(source),
        layers=tuple(_layer(request, layer, trials, campaign.trials(layer.layer)) for layer in log.layers),
        failures=failures_of(t.failure for layer in log.layers for t in campaign.trials(layer.layer)),
        seconds=seconds,
        notes=(),
        conditions=tuned_conditions(device, log.model, campaign.began_s),
    )


def _layer(
    request: CollectRequest,
    layer: TuningLayer,
    logged: Mapping[str, Sequence[TuningTrial]],
    collected: Sequence[TuningTrial],
) -> CollectedLayer:
    """A layer of the document: the numbers of measured and failed configurations, and their least time."""
    pooled = {name: trial for name, trial in pooled_trials(collected).items() if name != UNTUNED}
    times = {name: trial.time_s for name, trial in pooled.items() if trial.time_s is not None}
    meant = {trial.configuration for trial in _meant(request, layer, logged)}
    counted = pooled.keys() if request.close is None else meant
    first = best_trial(logged.get(layer.layer, ()))
    return CollectedLayer(
        name=layer.name,
        layer=layer.layer,
        configurations=len(meant),
        measured=len(times.keys() & counted),
        failed=sum(trial.failure is not None for name, trial in pooled.items() if name in counted),
        best_s=min(times.values(), default=None),
        host_best_here_s=times.get(first.configuration) if first else None,
    )
