"""A site of what a record holds: models by devices, the history of each model on each device, and a page a run.

It is a folder of files that need no server, no network and no script. Levels of a history are told apart by
`gnomon.core.changes`.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from gnomon.core.changes import LEAST, change_points
from gnomon.core.stats import median
from gnomon.errors import GnomonError, UsageError
from gnomon.jobs.html.blocks import Chart, Mark, timed
from gnomon.jobs.html.page import page, site_page
from gnomon.jobs.html.views import view
from gnomon.jobs.runs.answers import answer_of
from gnomon.jobs.runs.job import open_record
from gnomon.jobs.suite.job import KIND as SUITE
from gnomon.jobs.suite.job import suite_status
from gnomon.report import units
from gnomon.report.charts import Axis, Drawn, Tick, axis
from gnomon.report.plain import clean
from gnomon.store.address import RecordAddress
from gnomon.store.base import CampaignQuery
from gnomon.system.files import staged

MARKER = ".gnomon-site"
"""The file by which a folder is known as such a site, and may be replaced."""

_KINDS = ("place", "profile", "pareto", "stab", "tune", "table")
_WIDTH, _HEIGHT = 940, 300
_FOR_CHANGES = 4 * LEAST
"""A shorter history is not searched for changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """What a run found to be the fastest configuration, and its time: seconds, with the 95 % interval."""

    label: str
    clock: str
    median_s: float
    low_s: float | None
    high_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the site tells of a run; `best` is None where it has no time."""

    campaign: str
    kind: str
    at_s: float
    model: str
    digest: str
    device: str
    processor: str
    answer: str
    best: Best | None

    @property
    def file(self) -> str:
        """The name of its page: an id that is fit to be one, else its digest."""
        fit = re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}", self.campaign)
        return f"{self.campaign if fit else hashlib.sha256(self.campaign.encode()).hexdigest()[:32]}.html"

    @property
    def day(self) -> str:
        """When it began, as people write it."""
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(self.at_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A new level of a history: the first run of it, the level as a multiple of the one before, and whether the file of
    the model was another one from then on.
    """

    first: Told
    ratio: float
    other_file: bool

    @property
    def words(self) -> str:
        """What it is: "12 %, slower"."""
        told = f"{units.percent(self.ratio - 1)}, {'slower' if self.ratio > 1 else 'faster'}"
        return f"{told}, of another file" if self.other_file else told


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The runs of a model on a device that have a time by one clock, the oldest first."""

    model: str
    device: str
    processor: str
    clock: str
    runs: tuple[Told, ...]
    starts: tuple[int, ...] = field(default=())

    @property
    def file(self) -> str:
        """The name of its page."""
        told = "\0".join((self.model, self.device, self.processor, self.clock))
        return f"history-{hashlib.sha256(told.encode()).hexdigest()[:16]}.html"

    @property
    def last(self) -> Best:
        """What its newest run found."""
        found = self.runs[-1].best
        assert found is not None  # noqa: S101 - only such runs are in it
        return found

    @property
    def values_s(self) -> tuple[float, ...]:
        """The medians."""
        return tuple(run.best.median_s for run in self.runs if run.best is not None)

    @property
    def levels_s(self) -> tuple[float, ...]:
        """The medians of its levels."""
        bounds = [0, *self.starts, len(self.runs)]
        return tuple(median(list(self.values_s[a:b])) for a, b in pairwise(bounds))

    @property
    def changes(self) -> tuple[Change, ...]:
        """Where its level moved."""
        ratios = [after / before for before, after in pairwise(self.levels_s)]
        return tuple(
            Change(first=self.runs[k], ratio=ratio, other_file=self.runs[k].digest != self.runs[k - 1].digest)
            for k, ratio in zip(self.starts, ratios, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What was written: the folder, its runs and histories, and the campaigns whose answer is damaged."""

    folder: Path
    runs: int
    histories: int
    damaged: tuple[str, ...]


def publish(record: RecordAddress | None, out: Path) -> Published:
    """Write the site of a record (None: the user's own) into a folder, in the place of one that was written before.

    UsageError where the folder holds anything else or cannot be written, RecordError where the record cannot be read.
    """
    target = out.absolute()
    try:
        if target.exists() and not (target / MARKER).is_file() and (not target.is_dir() or any(target.iterdir())):
            raise UsageError(f"{out} is there already, and is not such a site", hint="Give --out another folder.")
        with staged(target) as made:
            (made / "runs").mkdir(parents=True)
            found = _write(record, made, out)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}", hint="Give --out another folder.") from error
    return found


def _write(record: RecordAddress | None, made: Path, out: Path) -> Published:
    runs: list[Told] = []
    damaged: list[str] = []
    with open_record(record) as store:
        for campaign in store.query(CampaignQuery()):
            if campaign.kind not in (*_KINDS, SUITE):
                continue
            try:
                if campaign.kind == SUITE:
                    document: Mapping[str, Any] | None = suite_status(campaign.id, record=record).document()
                else:
                    document = answer_of(store, campaign)
            except GnomonError:
                damaged.append(campaign.id)
                continue
            if document is not None:
                told = told_of(document, campaign.id, campaign.started_at_s)
                (made / "runs" / told.file).write_text(page([document], [campaign.id], home="../index.html"), "utf-8")
                runs.append(told)
    runs.sort(key=lambda run: -run.at_s)
    histories = histories_of(runs)
    for one in histories:
        drawn = site_page("history.html", one=one, chart=chart_of(one), short=_FOR_CHANGES)
        (made / one.file).write_text(drawn, "utf-8")
    text = site_page("site.html", matrix=matrix_of(histories), runs=runs, damaged=damaged, moved=_moved(histories))
    (made / "index.html").write_text(text, "utf-8")
    (made / MARKER).write_text("A site that gnomon publish wrote, and replaces.\n", "utf-8")
    return Published(folder=out, runs=len(runs), histories=len(histories), damaged=tuple(damaged))


def told_of(document: Mapping[str, Any], campaign: str, at_s: float) -> Told:
    """What the site tells of a run by its document."""
    model = document.get("model") or {}
    fingerprint = document.get("fingerprint") or {}
    shown = view(document)
    return Told(
        campaign=campaign,
        kind=str(document.get("format", "")).removeprefix("gnomon-"),
        at_s=at_s,
        model=clean(Path(model.get("path") or document.get("source") or document.get("suite") or "unnamed").name),
        digest=str(model.get("sha256") or ""),
        device=clean(str(document.get("device") or "-")),
        processor=str(fingerprint.get("cpu_model") or ""),
        answer=shown.answer,
        best=_best(document),
    )


def _best(document: Mapping[str, Any]) -> Best | None:
    clock = str(document.get("clock") or "")
    if document.get("format") == "gnomon-place":
        rows, label, by = document["contenders"], document["decision"]["chosen"], {"cpu": "cpu"}.get(clock, "measured")
    elif document.get("format") == "gnomon-profile":
        rows, label, by = document["columns"], document["fastest"], {"cpu": "cpu"}.get(clock, "wall")
    else:
        return None
    found = next((row[by] for row in rows if row["label"] == label), None)
    if not found:
        return None
    times = {key: found[key] for key in ("median_s", "low_s", "high_s")}
    return Best(label=label, clock=clock, **times)


def histories_of(runs: Sequence[Told]) -> list[History]:
    """The histories, each model's together, with their changes."""
    lines: dict[tuple[str, str, str, str], list[Told]] = {}
    for run in sorted(runs, key=lambda run: run.at_s):
        if run.best is not None and 0 < run.best.median_s < math.inf:
            lines.setdefault((run.model, run.device, run.processor, run.best.clock), []).append(run)
    made = []
    for (model, device, processor, clock), line in sorted(lines.items()):
        times = [run.best.median_s for run in line if run.best is not None]
        made.append(
            History(
                model=model,
                device=device,
                processor=processor,
                clock=clock,
                runs=tuple(line),
                starts=change_points(times),
            )
        )
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Models by devices; a place has the histories of the one on the other."""

    devices: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[tuple[History, ...], ...]], ...]


def matrix_of(histories: Sequence[History]) -> Matrix:
    """All histories in their places."""
    devices = tuple(sorted({(one.device, one.processor) for one in histories}))
    models = sorted({one.model for one in histories})
    return Matrix(
        devices=devices,
        rows=tuple(
            (
                model,
                tuple(
                    tuple(h for h in histories if h.model == model and (h.device, h.processor) == device)
                    for device in devices
                ),
            )
            for model in models
        ),
    )


def _moved(histories: Sequence[History]) -> list[tuple[History, Change]]:
    """The changes of all histories, the newest first."""
    found = [(one, change) for one in histories for change in one.changes]
    return sorted(found, key=lambda row: -row[1].first.at_s)


def chart_of(one: History) -> Chart:
    """The medians over time with their intervals, and the levels between changes."""
    found = [run.best for run in one.runs if run.best is not None]
    values = [timed(b.median_s, b.low_s, b.high_s) for b in found]
    ends = [run.at_s for run in one.runs]
    bottom = _HEIGHT - 50
    y = axis(values, bottom, 20)
    x = _days(ends, 90, _WIDTH - 30)
    first = {change.first.campaign for change in one.changes}
    marks = tuple(
        Mark(
            label="",
            told=f"{run.day}: {units.time(best.median_s)}, {best.label}",
            x=_at(x.place(run.at_s)),
            y=y.drawn(value),
            kind="chosen" if run.campaign in first else "other",
        )
        for run, best, value in zip(one.runs, found, values, strict=True)
    )
    bounds = [0, *one.starts, len(one.runs)]
    steps = []
    for (a, b), level in zip(pairwise(bounds), one.levels_s, strict=True):
        at = y.place(level * 1e3)
        steps.append(f"M{x.place(ends[a])} {at}H{x.place(ends[b - 1])}")
    return Chart(
        title="The fastest configuration of each run, with its 95 % interval",
        width=_WIDTH,
        height=_HEIGHT,
        x=x,
        x_title="when the run began",
        y=y,
        y_title="median, ms",
        marks=marks,
        ways=(("".join(steps), "level"),),
    )


def _days(seconds: Sequence[float], start: float, end: float) -> Axis:
    """An axis of time, with its ticks at days or times of day."""
    low, high = min(seconds), max(seconds)
    room = 0.03 * (high - low) or 3600.0
    low, high = low - room, high + room
    form = "%Y-%m-%d" if high - low > 3 * 86400 else "%m-%d %H:%M"
    count = 6
    ticks = []
    for k in range(count):
        share = (k + 0.5) / count
        told = time.strftime(form, time.localtime(low + share * (high - low)))
        ticks.append(Tick(at=round(start + share * (end - start), 2), text=told))
    return Axis(start=start, end=end, low=low, high=high, logarithmic=False, ticks=tuple(ticks))


def _at(pixels: float) -> Drawn:
    return Drawn(at=pixels, low=pixels, high=pixels)
