"""Run a suite: its cells run in threads on this machine or on a Dask cluster, and are recorded as soon as they end.

The run of a suite is a campaign of the kind "suite". Its events contain the cells and their outcomes, so that the same
command can continue after any interruption. Each job's campaign records its cell, so that a cell is not measured again
if it ended just before gnomon was killed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import gnomon
from gnomon.core import codec
from gnomon.core.sample import FINISHED, Campaign, Context
from gnomon.devices.config import load_devices
from gnomon.devices.opening import resolve
from gnomon.errors import GnomonError, RecordError, UsageError
from gnomon.jobs.compare.job import SESSIONS, compare
from gnomon.jobs.place.fleet import run_lanes
from gnomon.jobs.runs.answers import packed, unpacked
from gnomon.jobs.runs.job import find_campaign, open_record
from gnomon.jobs.suite.document import CellPart, ComparedCell, ErrorPart, SuiteCompareDocument, SuiteDocument, cell_part
from gnomon.jobs.suite.plan import (
    LIKENESSES,
    REPEATED,
    Cell,
    Suite,
    cells_of,
    identity,
    likeness,
    path_within,
    read_suite,
)
from gnomon.jobs.suite.waiting import Waiting
from gnomon.measure.campaign import Question, open_campaign
from gnomon.measure.progress import TellOf
from gnomon.report.plain import json_text, many
from gnomon.store.address import RecordAddress, default_record
from gnomon.store.base import CampaignQuery, EventQuery, Store, last_note, note
from gnomon.store.opening import open_store
from gnomon.system.cluster import connected, profiled
from gnomon.system.process import guarded_folder

KIND = "suite"
_CELLS, _ENDED = "suite-cells", "suite-cell"

Outcome = tuple[CellPart, Mapping[str, object] | None, bool]
"""The outcome of a cell, the document of its job (None without one), and whether its device failed."""

Measure = Callable[..., Outcome]
"""Measures a cell on a device, possibly from another machine; the parameters are those of
`gnomon.api.suite.measure_cell`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRequest:
    """The suite's file, and the settings of its run.

    `record` is the results database for the run (None: the user's own), and `out` is the folder for files that jobs
    write. `cluster` is the address of a Dask scheduler whose workers have a resource `gnomon-NAME` for each of their
    devices. A device that no worker offers for `wait_s` seconds gets no more cells. `fresh` starts a new run even if an
    interrupted one could continue.
    """

    path: Path
    record: RecordAddress | None = None
    out: Path | None = None
    cluster: str | None = None
    fresh: bool = False
    wait_s: float = 600.0


def run_suite(asked: SuiteRequest, measure: Measure, *, tell: TellOf | None = None) -> SuiteDocument:
    """Measure the cells that earlier calls of the same suite did not finish; `tell` gets a device's name and a
    sentence.

    The failures of cells are in the returned document. UsageError for errors in the file, RecordError if another
    process runs the suite or the results database fails, DeviceError if the cluster does not answer.
    """
    devices = load_devices()
    suite = read_suite(asked.path)
    cells = cells_of(suite, asked.path.absolute().parent, devices)
    for name in {name for cell in cells for name in cell.devices} - devices.keys():
        resolve(name)
    with open_store(asked.record) as store:
        return measure_cells(asked, suite, cells, measure, store, tell=tell)


def measure_cells(
    asked: SuiteRequest,
    suite: Suite,
    cells: tuple[Cell, ...],
    measure: Measure,
    store: Store,
    *,
    tell: TellOf | None = None,
) -> SuiteDocument:
    """Like `run_suite`, but for these cells; `store` is the database `asked.record`, already open."""
    tell = tell or (lambda name, sentence: None)
    before = None if asked.fresh else _interrupted(store, suite.name, cells, tell)
    context = Context(
        device={},
        versions={},
        model_digest=hashlib.sha256("".join(cell.id for cell in cells).encode()).hexdigest(),
        model_name=suite.name,
        options={},
        seed=0,
        gnomon_version=gnomon.__version__,
    )
    question = Question(kind=KIND, context=before or context, details={})
    campaign, resumed = open_campaign(store, question, fresh=asked.fresh)
    cells = _gone_on(store, campaign.id, cells, tell)
    noted = {"cells": [codec.to_json(cell) for cell in cells], "folder": str(asked.path.absolute().parent)}
    if noted != last_note(store, campaign.id, _CELLS):
        note(store, campaign.id, _CELLS, noted)
    ended = _ended(store, campaign.id)
    run = _Run(asked, campaign, measure, tell)
    left = [cell for cell in cells if cell.id not in ended]
    run.waiting = Waiting(left, ((cell, ended[cell.id].device or "") for cell in cells if cell.id in ended))
    run.resumed, run.probed = resumed, suite.probe
    run.until_s = None if suite.max_time_s is None else time.monotonic() + suite.max_time_s
    if left:
        if asked.cluster is None:
            run.here()
        else:
            with connected(asked.cluster) as client:
                run.on(client, store)
    for cell in () if run.over() else run.waiting.rest():
        message = f"all devices for this cell failed: {', '.join(cell.devices[:5])}"
        run.write(store, cell_part(cell, "failed", error=ErrorPart(kind="device", message=message, hint=_LEFT)))
    if _ended(store, campaign.id).keys() >= {cell.id for cell in cells}:
        note(store, campaign.id, FINISHED, {})
    return _shown(store, campaign, asked.record, out=run.waiting.out)


def _interrupted(store: Store, name: str, cells: tuple[Cell, ...], tell: TellOf) -> Context | None:
    """The context of the newest interrupted run of the suite that has any of these cells; None if there is none."""
    wanted = {cell.id for cell in cells}
    others = []
    for run in store.query(CampaignQuery(kind=KIND, finished=False, held=False)):
        if run.context.model_name == name:
            if run.context.gnomon_version == gnomon.__version__ and not wanted.isdisjoint(_noted(store, run.id)):
                return run.context
            others.append(run)
    newest = next((run.id for run in store.query(CampaignQuery(kind=KIND)) if run.context.model_name == name), None)
    if others and others[0].id == newest:
        why = "the file no longer has any of its cells"
        if (version := others[0].context.gnomon_version) != gnomon.__version__:
            why = f"it was made by gnomon {version}"
        tell("suite", f"starting a new run: the interrupted run {others[0].id[:12]} cannot continue, because {why}")
    return None


def _gone_on(store: Store, campaign: str, cells: tuple[Cell, ...], tell: TellOf) -> tuple[Cell, ...]:
    """The cells with their ids in the run; cells that must be measured again get new ids.

    A cell is measured again if it was done on a device that it may no longer use, or if it failed and its devices have
    changed. A cell with another option or limit is a different cell.
    """
    noted, ended = _noted(store, campaign), _ended(store, campaign)

    def gone_on(cell: Cell) -> Cell:
        before = noted.get(cell.id)
        if before is None:
            return cell
        part, were, are = ended.get(before.id), set(before.devices), set(cell.devices)
        if part is None:
            same = were <= are
        else:
            same = part.device in are if part.state == "done" else were == are
        # With the old id, the stored answer from the old device would be used.
        return replace(cell, id=before.id if same else hashlib.sha256(before.id.encode()).hexdigest()[:16])

    current = tuple(gone_on(cell) for cell in cells)
    if noted and (new := len({cell.id for cell in current} - {cell.id for cell in noted.values()})):
        tell("suite", f"continuing the run {campaign[:12]}: {new} of {many(len(current), 'cell')} new or changed")
    return current


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """The cells of a run as recorded; `folder` is the folder of the suite's file (None in older records)."""

    cells: tuple[Cell, ...] = ()
    folder: str | None = None


def _lists(store: Store, campaign: str) -> Iterator[_Cells]:
    """The lists of a run's cells, one for each version of the suite's file."""
    return (codec.from_json(_Cells, e.data) for e in store.query(EventQuery(campaign=campaign, name=_CELLS)))


def _noted(store: Store, campaign: str) -> dict[str, Cell]:
    """All cells that a run has ever had, in their latest form, by identity."""
    return {identity(cell): cell for part in _lists(store, campaign) for cell in part.cells}


_LEFT = "To find the problem: gnomon devices check. To try again: start a new run of the suite."


class _Run:
    """One call of `measure_cells`."""

    waiting: Waiting
    until_s: float | None
    resumed: bool
    probed: bool

    def __init__(self, asked: SuiteRequest, campaign: Campaign, measure: Measure, tell: TellOf) -> None:
        self._asked, self._campaign, self._measure, self._tell = asked, campaign, measure, tell

    def over(self) -> bool:
        """Whether the suite's time is up."""
        return self.until_s is not None and time.monotonic() >= self.until_s

    def write(self, store: Store, part: CellPart, document: Mapping[str, object] | None = None) -> None:
        """Record the outcome of a cell, and the document of its job if another machine produced it."""
        data = {"cell": codec.to_json(part)} | ({} if document is None else packed(document))
        note(store, self._campaign.id, _ENDED, data)

    def _settled(self, cell: Cell, device: str, part: CellPart, of_device: bool) -> bool:
        """Report the outcome of a cell; return False if the device failed and another device may take the cell."""
        self._tell(device, f"{cell.label}: {part.error.message if part.error else part.answer}")
        if of_device:
            return not self.waiting.failed(cell, device)
        self.waiting.done(device)
        return True

    def _task(self, cell: Cell, device: str, record: RecordAddress | None) -> Callable[[], Outcome]:
        return partial(
            self._measure,
            replace(cell, devices=()),  # otherwise, a long list of devices would be sent too
            device,
            suite=self._campaign.id,
            record=None if record is None else str(record),
            only=len(cell.devices) == 1,
            probe=self.probed,
            again=self.resumed or self._asked.cluster is not None,
            out=str(self._asked.out or Path(f"{self._campaign.context.model_name}.suite").absolute()),
        )

    def here(self) -> None:
        """Run on this machine, with a lane (a thread) for each device."""
        record = self._asked.record

        def lane(name: str) -> None:
            while not self.over() and (cell := self.waiting.take(name)) is not None:
                part, _, of_device = self._task(cell, name, record)()
                if self._settled(cell, name, part, of_device):
                    with open_store(record) as store:
                        self.write(store, part)

        # When a device gives a cell back, the lane of another device that can take it may already have ended.
        while not self.over() and (names := self.waiting.wanted()):
            ended = run_lanes({name: resolve(name) for name in names}, lane, tell=self._tell)
            for lane_ended in ended.values():
                if lane_ended is not None:
                    raise lane_ended

    def on(self, client: Any, store: Store) -> None:
        """Run on the workers of a cluster: one cell at a time for each device that a worker has as a resource."""
        answers: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        running: dict[str, tuple[Cell, Any]] = {}
        missing_since_s: dict[str, float] = {}
        idle = set(self.waiting.wanted())
        looked_s = time.monotonic()
        if costs := profiled(client):
            self._tell("cluster", costs)

        def hear(device: str, future: Any) -> None:
            future.add_done_callback(lambda done: answers.put((device, done)))

        def begin(device: str) -> None:
            cell = None if self.over() else self.waiting.take(device)
            if cell is None:
                idle.add(device)
                return
            idle.discard(device)
            future = client.submit(
                self._task(cell, device, None),
                key=f"gnomon-{self._campaign.id}-{cell.id}-{device}",
                resources={f"gnomon-{device}": 1},
                pure=False,
            )
            running[device] = cell, future
            hear(device, future)

        try:
            for device in sorted(idle):
                begin(device)
            while running:
                try:
                    device, done = answers.get(timeout=1.0)
                except Empty:
                    device, done = "", None
                if done is not None and done.status in _AGAIN:
                    hear(device, done)
                elif done is not None and device in running and running[device][1] is done:
                    cell, _ = running.pop(device)
                    part, document, of_device = _outcome(done, cell, device)
                    done.release()
                    if self._settled(cell, device, part, of_device):
                        self.write(store, part, document)
                        begin(device)
                    else:
                        for other in (device, *(d for d in cell.devices if d in idle)):
                            begin(other)
                if time.monotonic() - looked_s > _LOOK_S:
                    looked_s = time.monotonic()
                    for device in _absent(client, running, missing_since_s, self._asked.wait_s):
                        running[device][1].cancel(reason=_ABSENT, msg=_ABSENT)
        finally:
            for _, future in running.values():
                future.cancel()


_LOOK_S = 5.0
_AGAIN = ("pending", "lost")
"""The states of tasks that Dask runs again, because their worker died before the answer was fetched."""

_ABSENT = "no worker offers the device"


def _outcome(done: Any, cell: Cell, device: str) -> Outcome:
    """The outcome of a task that has ended; an error part if the task was cancelled or lost its workers."""
    if done.status == "finished":
        outcome: Outcome = done.result()
        return outcome
    if done.status == "cancelled":
        hint = f"Start a worker for it: dask worker .. --resources gnomon-{device}=1"
        error = ErrorPart(kind="device", message=f"no worker offers {device}", hint=hint)
    elif type(defect := done.exception()).__name__ == "KilledWorker":
        message = f"the workers of this cell crashed repeatedly: {defect}"
        error = ErrorPart(kind="crash", message=message[:500], hint="See the worker's log.")
    else:
        raise defect
    return cell_part(cell, "failed", device=device, error=error), None, True


def _absent(client: Any, running: Iterable[str], since_s: dict[str, float], wait_s: float) -> Iterator[str]:
    """The devices of running cells that no worker has offered for `wait_s` seconds."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    offered = {name for worker in workers for name in worker["resources"]}
    now_s = time.monotonic()
    for device in running:
        if f"gnomon-{device}" in offered:
            since_s.pop(device, None)
        elif now_s - since_s.setdefault(device, now_s) >= wait_s:
            yield device


def _ended(store: Store, campaign: str) -> dict[str, CellPart]:
    """The cells that have ended, by id."""
    parts = (codec.from_json(CellPart, e.data["cell"]) for e in store.query(EventQuery(campaign=campaign, name=_ENDED)))
    return {part.id: part for part in parts}


def _shown(store: Store, campaign: Campaign, record: RecordAddress | None, *, out: Iterable[str] = ()) -> SuiteDocument:
    ended = _ended(store, campaign.id)
    *_, last = _Cells(), *_lists(store, campaign.id)
    parts = tuple(ended.get(cell.id) or cell_part(cell, "waiting") for cell in last.cells)
    states = [part.state for part in parts]
    return SuiteDocument(
        suite=campaign.context.model_name,
        run=campaign.id,
        record=str(record or default_record()),
        finished=next(store.query(CampaignQuery(id=campaign.id, finished=True)), None) is not None,
        done=states.count("done"),
        failed=states.count("failed"),
        waiting=states.count("waiting"),
        out=tuple(sorted(out)),
        cells=parts,
    )


def suite_status(named: str = "last", *, record: RecordAddress | None = None) -> SuiteDocument:
    """The recorded progress of a run, which may still be going on. RecordError if there is no such run."""
    with open_record(record) as store:
        return _shown(store, find_campaign(store, named, kind=KIND), record)


def compare_suites(
    before: str = "last~1",
    after: str = "last",
    *,
    record: RecordAddress | None = None,
    alpha: float = 0.01,
    relevant: float = 0.01,
    changed: tuple[str, ...] = (),
    sessions: float = SESSIONS,
    fail_slower: float | None = None,
) -> SuiteCompareDocument:
    """Compare the cells that two runs have in common, using `gnomon.jobs.compare`.

    The verdicts on all cells hold together with probability 1 - `alpha`; `sessions` and `fail_slower` have the same
    meaning as in `gnomon.jobs.compare`. RecordError if there are no such runs.
    """
    with open_record(record) as store:
        runs = [find_campaign(store, named, kind=KIND) for named in (before, after)]
        old, new = (_repeated(store, run, record) for run in runs)
        both, unsure = _matched(old, new)
        if not both and not unsure:
            raise UsageError("the runs have no place or profile cell in common", hint="See: gnomon suite status RUN")
        labels = Counter(side.label for side in new.values())
        cells: list[ComparedCell] = []
        with guarded_folder("gnomon-suite-") as folder:
            for id, side in new.items():
                if id not in both and id not in unsure:
                    continue
                comparison, why, lost = None, None, False
                try:
                    if id in unsure:
                        raise RecordError(f"cells of {before} and {after} are too similar to tell apart")
                    parts = old[both[id]].part, side.part
                    absent = [run for run, part in zip((before, after), parts, strict=True) if part.state != "done"]
                    lost = absent == [after]
                    if absent:
                        raise RecordError(f"the cell is not done in {' and '.join(absent)}")
                    names = [_side(store, r.id, p, folder) for r, p in zip(runs, parts, strict=True)]
                    comparison = compare(
                        names,
                        record=record,
                        alpha=alpha / len(both),
                        relevant=relevant,
                        changed=changed,
                        sessions=sessions,
                        fail_slower=fail_slower,
                    )
                except GnomonError as error:
                    why = error.message
                label = side.label if labels[side.label] == 1 else f"{side.label}, {side.settings}"
                if id in both and not (was := old[both[id]].path).endswith(side.path):
                    label += f"; before: {was}"
                cells.append(ComparedCell(cell=id, label=label, comparison=comparison, why=why, lost=lost))
        gone = [side for id, side in old.items() if id not in both.values() and not _is_open(side, unsure, new)]
        only = f"only {before} has this cell"
        cells += [ComparedCell(cell=side.part.id, label=side.label, comparison=None, why=only) for side in gone]
    return SuiteCompareDocument(
        suite=runs[1].context.model_name,
        before=runs[0].id,
        after=runs[1].id,
        alpha=alpha,
        cells=tuple(cells),
        fail_slower=fail_slower,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """A cell of a compared run: its outcome, its label for people, and the keys for matching it (`likeness`)."""

    part: CellPart
    path: str
    label: str
    settings: str
    likeness: tuple[Hashable, ...]


def _repeated(store: Store, run: Campaign, record: RecordAddress | None) -> dict[str, _Side]:
    """The cells of a run that are measured again in each run, by id."""
    *_, last = _Cells(), *_lists(store, run.id)
    parts = {part.id: part for part in _shown(store, run, record).cells}

    def side(cell: Cell) -> _Side:
        path = path_within(cell, last.folder)
        return _Side(
            part=parts[cell.id],
            path=path,
            label=f"{cell.job} {path} on {cell.selector}, device {cell.slot}, repeat {cell.repeat}",
            settings=json.dumps({"max_time_s": cell.max_time_s, **cell.options}, ensure_ascii=False),
            likeness=likeness(cell, last.folder),
        )

    return {cell.id: side(cell) for cell in last.cells if cell.job in REPEATED}


def _matched(old: Mapping[str, _Side], new: Mapping[str, _Side]) -> tuple[dict[str, str], set[str]]:
    """The counterparts of a new run's cells in an old run, by id, and the cells whose counterpart is uncertain.

    Keys are used from the surest to the least sure. Two cells are paired if each is the only unpaired cell of its run
    with their common key.
    """
    pairs: dict[str, str] = {}
    unsure: set[str] = set()
    for level in range(LIKENESSES):
        before, after = _by_likeness(old, level, set(pairs.values())), _by_likeness(new, level, pairs.keys())
        alike = [(before[key], ids) for key, ids in after.items() if key in before]
        pairs |= {ids[0]: ours[0] for ours, ids in alike if len(ours) == len(ids) == 1}
        unsure = {id for ours, ids in alike for id in ids if id not in pairs}
    return pairs, unsure


def _is_open(side: _Side, unsure: Set[str], new: Mapping[str, _Side]) -> bool:
    """Whether a cell of an old run may be one of the indistinguishable cells of a new run."""
    return any(own == other for id in unsure for own, other in zip(side.likeness, new[id].likeness, strict=True))


def _by_likeness(sides: Mapping[str, _Side], level: int, without: Set[str]) -> dict[Hashable, list[str]]:
    groups: dict[Hashable, list[str]] = {}
    for id, side in sides.items():
        if id not in without:
            groups.setdefault(side.likeness[level], []).append(id)
    return groups


def _side(store: Store, run: str, part: CellPart, folder: Path) -> str:
    """The name of a cell's answer for `compare`: its campaign, or a file with another machine's answer."""
    for event in store.query(EventQuery(campaign=run, name=_ENDED)):
        if event.data["cell"]["id"] == part.id and "zlib" in event.data:
            path = folder / f"{run[:12]}-{part.id}.json"
            path.write_text(json_text(unpacked(event.data, run)), encoding="utf-8")
            return str(path)
    if part.campaign is None:
        raise RecordError("the cell's job has not stored an answer")
    return part.campaign
