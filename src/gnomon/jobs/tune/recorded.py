"""Tuning in the results database of all jobs: a campaign for each file of tuning records, with a run for each of its
trials, and one for each `gnomon exec` and proof, with a run for each call in each process.

The file is what tuning goes on from and what users hand on; the results database follows it. What has no file goes on
from the results database.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

import gnomon
from gnomon.core.overlay.records import TunedDevice, TunedModel, TuningTrial
from gnomon.core.sample import FINISHED, Context, Failure, Run, Samples
from gnomon.jobs.tune.records import RecordFile
from gnomon.measure.campaign import Question, open_campaign
from gnomon.store.base import RunQuery, note, note_files
from gnomon.store.opening import open_store
from gnomon.tuning.bench import Timed


class _Opened:
    """A campaign of the results database, from now on until it is closed. A context manager.

    Without `finish` it is one that was interrupted.
    """

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
        self._store = open_store(None)
        try:
            campaign, _ = open_campaign(self._store, question, fresh=fresh)
        except BaseException:
            self._store.close()
            raise
        self.campaign = campaign.id

    def finish(self, reason: str, chosen: str) -> None:
        """All is measured, until it goes on."""
        note(self._store, self.campaign, "decision", {"reason": reason, "chosen": chosen})
        note(self._store, self.campaign, FINISHED, {})

    def close(self) -> None:
        """Let go of the campaign."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Recorded(_Opened):
    """The campaign of a record file.

    Trials that the file holds and the results database lacks are added at once, those that come after as they come.
    """

    def __init__(self, file: RecordFile, kind: str, *, seed: int, fresh: bool = False) -> None:
        """Open the campaign again, or the one that the file has already unless all begins again."""
        self._file, records = file, file.records
        super().__init__(
            kind,
            (records.device, records.model),
            records.versions,
            {"records": str(file.path.resolve())},
            seed=seed,
            goes_on=True,
            fresh=fresh,
        )
        try:
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
        """Add trials that the results database lacks; the n-th of a configuration is its n-th process."""
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

    def known(self, name: str, process: int) -> Timed | Failure | None:
        """None: the whole network is compiled again whenever tuning resumes."""
        return None

    def add_call(self, name: str, process: int, said: Timed | Failure) -> None:
        """Add a call of the whole network in the proof of tuning, in a process after those of earlier proofs."""
        candidate = f"network/{name}"
        self._store.append(self.campaign, _call(candidate, self._processes[candidate], said))
        self._processes[candidate] += 1

    def finish(self, reason: str, chosen: str = "") -> None:
        """Tuning is done, until it goes on."""
        note_files(self._store, self.campaign, [self._file.path], whole=True)
        super().finish(reason, chosen or str(self._file.path))

    def close(self) -> None:
        """Let go of the campaign, and of the file."""
        self._file.on_add = None
        super().close()


class RecordedCalls(_Opened):
    """A campaign of calls of compiled networks and layers. One that was interrupted goes on where it stopped.

    `details` tell what is called, and how: all by which one question is another.
    """

    def __init__(
        self,
        kind: str,
        on: tuple[TunedDevice, TunedModel],
        versions: Mapping[str, str],
        details: Mapping[str, Any],
        *,
        seed: int,
    ) -> None:
        super().__init__(kind, on, versions, details, seed=seed)
        self._runs = {
            (run.candidate, run.process): run
            for run in self._store.query(RunQuery(campaign=self.campaign))
            if run.failure is None or not run.failure.transient
        }

    def known(self, name: str, process: int) -> Timed | Failure | None:
        """What a call came to in a process, if that is known; None for what may go otherwise another time."""
        run = self._runs.get((name, process))
        if run is None or run.samples is None:
            return None if run is None else run.failure
        times_s = tuple(ns / run.samples.inner / 1e9 for ns in run.samples.wall_ns)
        return Timed(times_s=times_s, error=run.facts.get("error"), server=str(run.facts.get("server", "")))

    def add_call(self, name: str, process: int, said: Timed | Failure) -> None:
        """Add a call in a process."""
        self._store.append(self.campaign, _call(name, process, said))


def _call(candidate: str, process: int, said: Timed | Failure) -> Run:
    samples, failure, facts = None, None, {}
    if isinstance(said, Failure):
        failure = said
    else:
        samples = Samples(wall_ns=tuple(round(time_s * 1e9) for time_s in said.times_s), cpu_ns=())
        facts = {"server": said.server, "error": said.error}
    now_s = round(time.time(), 3)
    return Run(
        candidate=candidate,
        process=process,
        block=0,
        started_at_s=now_s,
        samples=samples,
        failure=failure,
        facts=facts,
    )


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
