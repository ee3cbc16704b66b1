"""The geometry of the picture: operators in a row, merged where they are too small to be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_VISIBLE = 0.004
"""What is narrower than this share of the picture is drawn with its neighbour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Neighbouring operators on one backend: when they start and how long they take together, in seconds.

    `operators` are the indices drawn here; `borders_s` are where one operator ends and the next begins, as far as
    both are wide enough to be seen.
    """

    backend: str
    start_s: float
    time_s: float
    operators: tuple[int, ...]
    borders_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender: its stretches, and what was measured of it as a whole, with the interval where it is known.

    After its operators come `own_s`, the kernels of no operator, and `rest_s`, the unattributed time; together they are
    the whole. `scaled` says that its operators took longer under the profiler than the whole without it, and are drawn
    in proportion. `totals` are, for each backend, how many operators it has and their seconds together, as drawn.
    """

    label: str
    chosen: bool
    stretches: tuple[Stretch, ...]
    own_s: float
    rest_s: float
    measured_s: float
    low_s: float | None
    high_s: float | None
    scaled: bool
    totals: Mapping[str, tuple[int, float]]

    @property
    def drawn_s(self) -> float:
        """Where the last operator ends."""
        return sum(stretch.time_s for stretch in self.stretches)

    @property
    def whole_s(self) -> float:
        """Where the row ends."""
        return self.drawn_s + self.own_s + self.rest_s


def rows_of(document: dict[str, Any], *, most: int = 12) -> list[Row]:
    """The measured contenders of a place document: the best single, the others by their time, then the mixes."""
    sample = "cpu" if document["clock"] == "cpu" else "measured"
    alive = [c for c in document["contenders"] if c["failure"] is None and c[sample] is not None]
    best, chosen = document["decision"]["best_single"], document["decision"]["chosen"]
    order = {"single": 1, "greedy": 2, "plan": 3}
    alive.sort(key=lambda c: (c["label"] != best, order[c["kind"]], c[sample]["median_s"]))
    kept = alive[:most]
    for contender in alive[most:]:
        if contender["label"] == chosen:
            kept[-1] = contender
    longest_s = max((c[sample]["median_s"] for c in kept), default=0.0)
    return [_row(c, c[sample], longest_s * _VISIBLE, chosen=c["label"] == chosen) for c in kept]


def _row(contender: dict[str, Any], measured: dict[str, Any], visible_s: float, *, chosen: bool) -> Row:
    assignment, times_s = contender["assignment"], [t or 0.0 for t in contender["operators_s"]]
    own_s = sum(kernel["time_s"] for kernel in contender["kernels"] if not kernel["operators"])
    rest_s = contender["unattributed_s"]
    totals = _totals(assignment, times_s)
    if not assignment or any(kernel["operators"] for kernel in contender["kernels"]):
        # One piece: a runtime that does not tell the model's operators apart, or a converted model, whose operators
        # the document does not list.
        backend, drawn_s = (assignment or contender["configurations"])[0], contender["level_s"] - own_s - rest_s
        totals = {backend: (len(assignment), drawn_s)}
        assignment, times_s = [backend], [drawn_s]
    return Row(
        label=contender["label"],
        chosen=chosen,
        stretches=tuple(stretches(assignment, times_s, visible_s)),
        own_s=own_s,
        rest_s=rest_s,
        measured_s=measured["median_s"],
        low_s=measured["low_s"],
        high_s=measured["high_s"],
        # A part of a percent is noise of the two measurements and needs no remark.
        scaled=contender["profiler_overhead_s"] > 0.01 * measured["median_s"],
        totals=totals,
    )


def stretches(assignment: Sequence[str | None], times_s: Sequence[float], visible_s: float) -> list[Stretch]:
    """Runs of equal backend. Neighbours that are each shorter than `visible_s` are drawn as one, of the backend that
    most of their time is on, so that the colours still tell how much time each backend has.
    """
    groups: list[list[int]] = []
    for index, backend in enumerate(assignment):
        if index and backend == assignment[index - 1]:
            groups[-1].append(index)
        else:
            groups.append([index])
    merged: list[list[int]] = []
    width_s = 0.0
    for group in groups:
        time_s = _sum(group, times_s)
        last = group is groups[-1] and time_s < visible_s
        if merged and (width_s < visible_s or last):
            merged[-1] += group
            width_s += time_s
        else:
            merged.append(list(group))
            width_s = time_s
    made: list[Stretch] = []
    start_s = 0.0
    for members in merged:
        time_s, backend = _sum(members, times_s), _most(members, assignment, times_s)
        if made and made[-1].backend == backend:
            members, start_s = [*made[-1].operators, *members], made[-1].start_s
            time_s = _sum(members, times_s)
            made.pop()
        borders = _borders(members, times_s, start_s, visible_s)
        made.append(
            Stretch(backend=backend, start_s=start_s, time_s=time_s, operators=tuple(members), borders_s=borders)
        )
        start_s += time_s
    return made


def _sum(members: Sequence[int], times_s: Sequence[float]) -> float:
    return sum(times_s[index] for index in members)


def _most(members: Sequence[int], assignment: Sequence[str | None], times_s: Sequence[float]) -> str:
    """The backend that most of the members' time is on."""
    sums: dict[str, float] = {}
    for index in members:
        name = assignment[index] or "?"
        sums[name] = sums.get(name, 0.0) + times_s[index]
    return max(sums, key=lambda name: sums[name])


def _borders(members: Sequence[int], times_s: Sequence[float], start_s: float, visible_s: float) -> tuple[float, ...]:
    borders, at_s, last_s = [], start_s, start_s
    for index in members[:-1]:
        at_s += times_s[index]
        if at_s - last_s >= visible_s:
            borders.append(at_s)
            last_s = at_s
    return tuple(borders)


def _totals(assignment: Sequence[str | None], times_s: Sequence[float]) -> dict[str, tuple[int, float]]:
    totals: dict[str, tuple[int, float]] = {}
    for backend, time_s in zip(assignment, times_s, strict=True):
        number, sum_s = totals.get(backend or "?", (0, 0.0))
        totals[backend or "?"] = (number + 1, sum_s + time_s)
    return totals
