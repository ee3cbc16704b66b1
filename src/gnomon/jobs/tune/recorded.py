"""Tuning in the record of all jobs: a campaign for each file of tuning records, with a run for each of its trials.

The file is what tuning goes on from and what users hand on; the record follows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import gnomon
from gnomon.core.overlay.records import TuningTrial
from gnomon.core.sample import FINISHED, Context, Run, Samples
from gnomon.jobs.tune.records import RecordFile
from gnomon.measure.campaign import Question, open_campaign
from gnomon.store.base import RunQuery, note, note_files
from gnomon.store.opening import open_store


class Recorded:
    """The campaign of a record file, from now on until it is closed. A context manager.

    Trials that the file holds and the record lacks are added at once, those that come after as they come. Without
    `finish` the campaign is one that was interrupted.
    """

    def __init__(self, file: RecordFile, *, seed: int, fresh: bool = False) -> None:
        """Open the campaign again, or the one that the file has already unless all begins again."""
        self._file, records = file, file.records
        device = records.device
        context = Context(
            device={
                "machine": f"{device.key} ({device.target.get('mcpu') or device.target.get('kind', '')})",
                "target": dict(device.target),
            },
            versions=dict(records.versions),
            model_digest=records.model.sha256,
            model_name=records.model.name,
            options={"threads": device.threads, "dtype": records.model.dtype},
            seed=seed,
            gnomon_version=gnomon.__version__,
        )
        question = Question(kind="tune", context=context, details={"records": str(file.path.resolve())}, goes_on=True)
        self._store = open_store(None)
        try:
            campaign, _ = open_campaign(self._store, question, fresh=fresh)
            self.campaign = campaign.id
            self._known = Counter[Any]()
            self._processes = Counter[str]()
            for run in self._store.query(RunQuery(campaign=self.campaign)):
                self._known[_identity(run)] += 1
                self._processes[run.candidate] += 1
            note_files(self._store, self.campaign, [file.path])
            self.add(file.content().trials)
        except BaseException:
            self._store.close()
            raise
        file.on_add = self.add

    def add(self, trials: Sequence[TuningTrial]) -> None:
        """Add trials that the record lacks; the n-th of a configuration is its n-th process."""
        names = {layer.layer: layer.name for layer in self._file.content().layers}
        for trial in trials:
            run = _run(trial, names.get(trial.layer, trial.layer), self._processes)
            if run is None:
                continue
            if self._known[_identity(run)]:
                self._known[_identity(run)] -= 1
                continue
            self._store.append(self.campaign, run)
            self._processes[run.candidate] += 1

    def finish(self, reason: str) -> None:
        """Tuning is done, until it goes on."""
        note_files(self._store, self.campaign, [self._file.path], whole=True)
        note(self._store, self.campaign, "decision", {"reason": reason, "chosen": str(self._file.path)})
        note(self._store, self.campaign, FINISHED, {})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.on_add = None
        self._store.close()


def _run(trial: TuningTrial, layer: str, processes: Counter[str]) -> Run | None:
    """A trial as a run; None where it has neither times nor a failure."""
    if trial.failure is None and not trial.times_s:
        return None
    candidate = f"{layer}/{trial.configuration}"
    wall_ns = tuple(round(time_s * 1e9) for time_s in trial.times_s)
    return Run(
        candidate=candidate,
        process=processes[candidate],
        block=0,
        started_at_s=trial.at_s,
        samples=Samples(wall_ns=wall_ns, cpu_ns=()) if trial.failure is None else None,
        failure=trial.failure,
        facts={"layer": trial.layer, "server": trial.server, "error": trial.error},
    )


def _identity(run: Run) -> tuple[Any, ...]:
    return run.candidate, run.started_at_s, run.samples and run.samples.wall_ns
