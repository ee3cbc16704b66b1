"""The campaigns of tuning in the results database.

Each file of tuning records has a campaign, with a run for each trial and for each call of a proof. Each `gnomon exec`
and each proof of an overlay has a campaign, with a run for each call in each process.

Interrupted campaigns continue from the results database. The record files, which users can share, are written from it.
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import gnomon
from gnomon.core.overlay.records import TunedDevice, TunedModel, TuningLayer, TuningRecords, TuningTrial
from gnomon.core.overlay.trials import by_layer
from gnomon.core.sample import FINISHED, Context, Failure, Run, Samples
from gnomon.core.stats import blocks_of
from gnomon.errors import RecordError
from gnomon.formats.tuning.records import header_line, layer_line, read_tuning_records, trial_failure, trial_line
from gnomon.jobs.tune.records import RecordFile
from gnomon.measure.campaign import Measured, Question, open_campaign
from gnomon.store.base import EventQuery, RunQuery, note, note_files
from gnomon.store.opening import open_store
from gnomon.tuning.bench import Timed

_LAYER, _TRIAL = "layer", "trial"
"""The name of a layer's event, and the fact that marks a run as a trial; a trial's facts are its line in the file."""

_SHARE = 16
"""The record file is rewritten once more than one in this many trials is missing from it."""

_SAMPLE_S, _SHORTEST_S = 0.01, 1e-8
"""The approximate duration of one of TVM's samples, and the least time assumed for a call, from which the number of
calls in a sample is computed.
"""


class CallCampaign:
    """A campaign that records calls of compiled networks and layers on a device, open until it is closed.

    A context manager. Unless `finish` is called, the campaign counts as interrupted, and the next campaign with the
    same `details` (the calls and their settings) continues it.
    """

    _prefix, _first = "", 0
    """The prefix of candidates' names, and the number of the first process."""

    def __init__(
        self,
        kind: str,
        on: tuple[TunedDevice, TunedModel],
        versions: Mapping[str, str],
        details: Mapping[str, Any],
        *,
        seed: int,
        goes_on: bool = False,
        fresh: bool = False,
    ) -> None:
        device, model = on
        self.dtype = model.dtype
        context = Context(
            device={
                "machine": f"{device.key} ({device.target.get('mcpu') or device.target.get('kind', '')})",
                "target": dict(device.target),
            },
            versions=dict(versions),
            model_digest=model.sha256,
            model_name=model.name,
            options={"threads": device.threads, "dtype": model.dtype},
            seed=seed,
            gnomon_version=gnomon.__version__,
        )
        question = Question(kind=kind, context=context, details=details, goes_on=goes_on)
        with ExitStack() as stack:
            self._store = stack.enter_context(open_store(None))
            campaign, _ = open_campaign(self._store, question, fresh=fresh)
            self.id, self.began_s = campaign.id, campaign.started_at_s
            self._runs = list(self._store.query(RunQuery(campaign=self.id)))
            stack.pop_all()

    def measured(self, name: str) -> Measured:
        """The measurements of a call so far; the failure, if any, is that of its last run."""
        candidate = self._prefix + name
        runs = tuple(run for run in self._runs if run.candidate == candidate and run.process >= self._first)
        return Measured(key=name, runs=runs, failure=runs[-1].failure if runs else None)

    def add_call(self, name: str, said: Timed | Failure, visit: int = 0) -> None:
        """Add the outcome of a call. Visit 0 is in a new process; later visits are in the same process."""
        failure, timed = (said, None) if isinstance(said, Failure) else (None, said)
        processes = [block.process for block in blocks_of(self.measured(name).runs)]
        run = Run(
            candidate=self._prefix + name,
            process=max(processes, default=self._first - 1) + (visit == 0),
            block=visit,
            started_at_s=round(time.time(), 3),
            samples=None if timed is None else _samples(timed),
            failure=failure,
            facts={"server": timed.server, "error": timed.error} if timed else {},
        )
        self._store.append(self.id, run)
        self._runs.append(run)

    def finish(self, reason: str, chosen: str) -> None:
        """Mark the campaign as finished, until it is continued."""
        note(self._store, self.id, "decision", {"reason": reason, "chosen": chosen})
        note(self._store, self.id, FINISHED, {})

    def close(self) -> None:
        """Release the campaign."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        self.close()


class TrialCampaign(CallCampaign):
    """The trials of a model on a device in the results database, and the record file that is written from them.

    While the campaign is open, the file may lack the last few trials: see docs/record.md. The calls are those of the
    whole network in the proof of tuning.
    """

    _prefix = "network/"

    def __init__(self, path: Path, wanted: TuningRecords, kind: str, *, fresh: bool = False) -> None:
        """Continue this file's campaign, and add the trials that the file has but the campaign lacks.

        With `fresh` a new campaign begins, and an existing file is renamed. `wanted` has the context that the records
        must have, such as the device and the model. Raises the errors of `RecordFile`.
        """
        self.path, self._wanted = path, wanted
        with ExitStack() as stack:
            self._file = RecordFile(path, wanted, fresh=fresh)
            stack.callback(self._file.close)
            super().__init__(
                kind,
                (wanted.device, wanted.model),
                wanted.versions,
                {"trials": str(path.resolve()), "host": socket.gethostname()},
                seed=0,
                goes_on=True,
                fresh=fresh,
            )
            stack.callback(self._store.close)
            self._take_up()
            stack.pop_all()

    def _take_up(self) -> None:
        """Read the campaign and the file, and add to each the trials that only the other has."""
        note_files(self._store, self.id, [self.path])
        layers = [event.data for event in self._store.query(EventQuery(campaign=self.id, name=_LAYER))]
        trials = [run for run in self._runs if _TRIAL in run.facts]
        self._runs = [run for run in self._runs if _TRIAL not in run.facts]
        # Each proof compiles the network again, so it has processes of its own and does not continue an earlier proof.
        self._first = max((run.process + 1 for run in self._runs), default=0)
        self._processes = Counter(run.candidate for run in trials)
        self._trial_lines = [json.dumps(run.facts) for run in trials]
        begin = [json.dumps(line) for line in (header_line(self._wanted), *layers)]
        records = read_tuning_records("\n".join([*begin, *self._trial_lines]))
        self._layers = {layer.layer: layer for layer in records.layers}
        self._trials = by_layer(records.trials)
        self._late = 0
        file = self._file.records or self._wanted
        unmatched = Counter(map(_identity, records.trials))
        with self._store.whole():
            self.add_layers(file.layers)
            for trial in file.trials:
                if unmatched[_identity(trial)]:
                    unmatched[_identity(trial)] -= 1
                else:
                    self._append(trial)
        self._late = (self._file.records is None) + unmatched.total() + len(self._layers) - len(file.layers)
        self.export()

    def add_layers(self, layers: Iterable[TuningLayer]) -> None:
        """Add layers that the campaign does not have yet."""
        for layer in layers:
            if layer.layer not in self._layers:
                note(self._store, self.id, _LAYER, layer_line(layer))
                self._layers[layer.layer] = layer
                self._late += 1

    def add(self, trial: TuningTrial) -> None:
        """Add a trial; it is stored before the search receives it."""
        self._append(trial)
        if self._late * _SHARE > self.count:
            self.export()

    def _append(self, trial: TuningTrial) -> None:
        candidate = f"{self._layers[trial.layer].name}/{trial.configuration}"
        process = self._processes[candidate]
        line = trial_line(trial, repeated=process > 0)
        failure = trial_failure(trial)
        run = Run(
            candidate=candidate,
            process=process,
            block=0,
            started_at_s=trial.at_s,
            samples=None if failure else _samples(trial),
            failure=failure,
            facts=line,
        )
        self._store.append(self.id, run)
        self._processes[candidate] += 1
        self._trial_lines.append(json.dumps(line))
        self._trials.setdefault(trial.layer, []).append(trial)
        self._late += 1

    def trials(self, layer: str) -> Sequence[TuningTrial]:
        """All trials of a layer, in the order in which they were made."""
        return self._trials.get(layer, [])

    @property
    def count(self) -> int:
        """The number of trials."""
        return sum(len(trials) for trials in self._trials.values())

    def content(self) -> TuningRecords:
        """All records, including those added since the file was opened."""
        trials = tuple(trial for layer in self._trials.values() for trial in layer)
        return replace(self._wanted, layers=tuple(self._layers.values()), trials=trials)

    def export(self) -> None:
        """Write the record file, if it lacks anything. RecordError if it cannot be written."""
        if self._late:
            begin = [header_line(self._wanted), *map(layer_line, self._layers.values())]
            self._file.write([*map(json.dumps, begin), *self._trial_lines])
            self._late = 0

    def finish(self, reason: str, chosen: str = "") -> None:
        """Mark tuning as finished, until it is continued."""
        self.export()
        note_files(self._store, self.id, [self.path], whole=True)
        super().finish(reason, chosen or str(self.path))

    def close(self) -> None:
        """Release the campaign and the file."""
        super().close()
        self._file.close()

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        try:
            self.export()
        except RecordError:
            if kind is None:  # otherwise the first exception matters more, and the next process writes the file
                raise
        finally:
            self.close()


def _samples(timed: Timed | TuningTrial) -> Samples:
    """The samples of a call, from TVM's averages; each covers several calls, to keep fractions of nanoseconds."""
    inner = math.ceil(_SAMPLE_S / max(_SHORTEST_S, *timed.times_s))
    wall_ns, cpu_ns = (tuple(round(t * inner * 1e9) for t in times_s) for times_s in (timed.times_s, timed.cpu_s))
    return Samples(wall_ns=wall_ns, cpu_ns=cpu_ns, inner=inner)


def _identity(trial: TuningTrial) -> tuple[object, ...]:
    return trial.layer, trial.configuration, trial.at_s, trial.times_s
