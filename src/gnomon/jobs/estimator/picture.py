"""The charts of an estimator: predicted against measured, what is left over by unit, and what more samples brought."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gnomon.jobs.estimator.report import percent
from gnomon.report import units
from gnomon.report.chart import (
    BEHIND,
    LOOKS,
    Axis,
    Chart,
    Group,
    Look,
    Mark,
    Row,
    Rule,
    Value,
    in_rows,
    line,
    shares,
    time_words,
    timed,
)
from gnomon.report.plain import finite

Document = Mapping[str, Any]

_OFF = Look(colour="#777777", dash="2 4")


def evaluation_charts(evaluation: Document) -> list[Chart]:
    """The charts of an evaluation: its nets, its units, and its curve where it has one."""
    evaluation = finite(evaluation)
    return [*_nets(evaluation), *_units(evaluation), *_curve(evaluation)]


def _nets(evaluation: Document) -> Iterator[Chart]:
    """Predicted against measured, with intervals, and lines about what is 10 % off."""
    nets = [net for net in evaluation["nets"] if net["measured_s"] and net["mean_s"]]
    if not nets:
        return
    scores, ceiling = evaluation["scores"], evaluation["ceiling"]
    nominal = units.share(scores["nominal"])
    marks: dict[bool, list[Mark]] = {True: [], False: []}
    for number, net in enumerate(nets, 1):
        ends = net["mean_s"], net["low_s"], net["high_s"]
        tip = f"net {number}: measured {units.time(net['measured_s'])}, predicted {time_words(*ends)}"
        marks[_inside(net)].append(Mark(x=timed(net["measured_s"]), y=timed(*ends), tip=tip))
    reach = [1e3 * net["measured_s"] for net in nets]
    about = [
        Group(
            marks=line((x, by * x) for x in (min(reach), max(reach))),
            look=_OFF,
            kind="none",
            line="straight",
            name=name,
        )
        for by, name in ((1.1, "10 % off"), (0.9, ""))
    ]
    noise = f"The noise of measuring alone: {_score(ceiling)}" if ceiling else ""
    told = f"{_score(scores)} ({evaluation['how']})"
    yield Chart(
        title=f"{len(nets)} nets that it was not fitted to: {told}",
        x=Axis(title="measured, ms"),
        y=Axis(title="predicted, ms"),
        groups=(
            *about,
            Group(name=f"in its {nominal} interval: {len(marks[True])}", marks=marks[True]),
            Group(name=f"outside of it: {len(marks[False])}", marks=marks[False], look=LOOKS[1]),
        ),
        equal=True,
        note=noise,
    )


def _score(found: Document) -> str:
    error = "unknown" if found["mean_error"] is None else percent(found["mean_error"])
    return f"mean error {error}, {units.share(found['within_10'])} within 10 %, rank {units.digits(found['spearman'])}"


def _inside(net: Document) -> bool:
    low, high = net["low_s"], net["high_s"]
    return low is not None and high is not None and bool(low <= net["measured_s"] <= high)


def _units(evaluation: Document) -> Iterator[Chart]:
    """By how much nets that hold a unit are predicted too long."""
    rows = [
        Row(
            name=f"{one['unit']} ({one['nets']})",
            value=shares(one["mean"], one["low"], one["high"]),
            text=units.percent(one["mean"]),
            look=BEHIND if (one["low"] or 0.0) <= 0 <= (one["high"] or 0.0) else LOOKS[1],
        )
        for one in evaluation["units"]
    ]
    if rows:
        legend = {LOOKS[1]: "surely off", BEHIND: "within noise"}
        title = "Nets with a unit (how many) are predicted too long by"
        yield replace(
            in_rows(title, "%, 95 % interval", rows, legend=legend, noun="units"), rules=(Rule(along="x", at=0.0),)
        )


def _curve(evaluation: Document) -> Iterator[Chart]:
    """The error on nets held out, against the number of samples that were fitted to."""
    curve, ceiling = evaluation["curve"], evaluation["ceiling"]
    if len(curve) < 2:
        return
    errors = [(one, "mean error", one["mean_error"]) for one in curve]
    beyond = [(one, "off by more than 10 %:", 1 - (one["within_10"] or 0.0)) for one in curve]
    noise = shares(ceiling["mean_error"] if ceiling else None)
    yield Chart(
        title="What more samples brought",
        x=Axis(title="nets fitted to, the first of the samples; all others held out", linear=True),
        y=Axis(title="%", low=0),
        groups=(
            Group(name="mean error", marks=_spent(errors), line="straight"),
            Group(name="nets off by more than 10 %", marks=_spent(beyond), look=LOOKS[1], line="straight"),
        ),
        rules=(Rule(along="y", at=noise.value or 0.0, name="mean error of measuring alone"),) if noise.known else (),
        height=240,
    )


def _spent(rows: Iterable[tuple[Document, str, float | None]]) -> list[Mark]:
    return [
        Mark(
            x=Value(value=one["samples"]),
            y=shares(share),
            tip=f"fitted to {one['samples']} nets: {what} {percent(share or 0.0)} of {one['nets']} others",
        )
        for one, what, share in rows
    ]
