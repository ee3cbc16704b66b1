"""The best portfolio: of all configurations those p that serve N devices best, each device by the best of them.

The p-median problem: choose a set S of p rows that minimises the sum over devices of weight times the least regret in
S. A first set comes from greedy choice and from swapping one configuration for another while that helps (Teitz and
Bart, 1968), from several starts; branch and bound (`gnomon.core.portfolio_search`) then improves or proves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.portfolio_search import search
from gnomon.errors import InfeasibleError, UsageError

_STARTS = 24  # random sets that swapping begins from, beside the greedy one
_WHOLE = 2**28  # integers up to here differ by more than what counts as equal
_IMPROVES = 1 - 1e-12  # a swap that gains less than rounding could go round in circles


@dataclass(frozen=True, slots=True, kw_only=True)
class Portfolio:
    """Configurations chosen for several devices, and what is proved about them.

    `chosen` are indices of configurations in order, at most as many as were asked for: those that serve a device.
    `serves` is the index of the configuration that serves each device, `value` the sum of weight times regret. No
    portfolio's value is below `bound`; `proven` says that none is better than this one by more than a part of 1e-9.
    Where time ended before any portfolio was found, `chosen` is empty and `value` infinite. `nodes` counts branches.
    """

    chosen: tuple[int, ...]
    serves: tuple[int, ...]
    value: float
    bound: float
    proven: bool
    nodes: int


def best_portfolio(
    regrets: Floats,
    size: int,
    *,
    weights: Sequence[float] | None = None,
    devices: Sequence[str] = (),
    out_of_time: Callable[[], bool] | None = None,
) -> Portfolio:
    """The at most `size` configurations of least sum over devices of weight times the least regret among them.

    `regrets` (configurations, devices) are at least 0; infinite or NaN where a configuration cannot serve a device.
    `weights` (devices,) are at least 0, 1 each unless given; a device of weight 0 must be served as well. `devices`
    names them in messages. The search ends early where `out_of_time` says so, and after 200 configurations of one
    branch. The same arguments give the same answer.

    Raises UsageError for what cannot be meant, and InfeasibleError where no `size` configurations serve all devices.
    """
    costs = _checked(regrets, size, weights)
    count, columns = costs.shape
    _check_served(costs, devices)
    stop = out_of_time or _never
    floor = float(costs.min(axis=0).sum())
    if size >= min(count, columns):
        return _portfolio(costs, tuple(costs.argmin(axis=0).tolist()), floor, True, 0)
    tamed = _tamed(costs)
    rows = _swapped_from_all(tamed, size, stop)
    nodes = 0
    if not np.isfinite(_value(costs, rows)):
        cover = search(np.where(np.isfinite(costs), 0.0, 1.0), size, 1.0, whole=True, out_of_time=stop)
        if cover.rows is None and cover.done:
            raise InfeasibleError(
                f"no {size} configurations serve all {columns} devices",
                hint="Ask for more configurations, or measure more of them on all devices.",
            )
        if cover.rows is None:
            return Portfolio(chosen=(), serves=(), value=np.inf, bound=floor, proven=False, nodes=cover.nodes)
        rows, nodes = _swapped(tamed, list(cover.rows)), cover.nodes
    value = _value(costs, rows)
    if value <= floor:
        return _portfolio(costs, rows, floor, True, nodes)
    finite = costs[np.isfinite(costs)]
    whole = bool((finite == np.floor(finite)).all()) and value < _WHOLE
    # Of equal configurations one is enough.
    single = np.sort(np.unique(costs, axis=0, return_index=True)[1])
    found = search(costs[single], min(size, len(single)), value, whole=whole, out_of_time=stop)
    better = [] if found.rows is None else single[list(found.rows)].tolist()
    if better and _value(costs, better) < value:
        rows = tuple(better) if found.done else _swapped(tamed, better)
    bound = _value(costs, rows) if whole and found.done else max(found.bound, floor)
    return _portfolio(costs, rows, bound, found.done, nodes + found.nodes)


def _never() -> bool:
    return False


def _checked(regrets: Floats, size: int, weights: Sequence[float] | None) -> Floats:
    """Weight times regret, infinite where a configuration cannot serve."""
    table = np.asarray(regrets, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise UsageError(f"regrets of shape {table.shape} are no table", hint="Give (configurations, devices).")
    if size < 1:
        raise UsageError(f"a portfolio of {size}", hint="Ask for at least one configuration.")
    factors = np.ones(table.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    if factors.shape != table.shape[1:] or not (np.isfinite(factors) & (factors >= 0)).all():
        raise UsageError(
            f"weights of shape {factors.shape} for {table.shape[1]} devices, or one below 0 or not finite",
            hint="Give a finite weight of at least 0 for each device.",
        )
    if (table < 0).any():
        raise UsageError("a regret is below 0", hint="Regret is counted from the least time on the device.")
    serves = np.isfinite(table)
    with np.errstate(over="ignore"):
        costs = np.where(serves, np.where(serves, table, 0.0) * factors, np.inf)
        largest = float(np.where(serves, costs, 0.0).max(axis=0).sum())
    if not np.isfinite(largest):
        raise UsageError("weights times regrets are too large to add", hint="Scale the weights down.")
    return np.ascontiguousarray(costs)


def _check_served(costs: Floats, devices: Sequence[str]) -> None:
    """InfeasibleError that names the devices that no configuration serves."""
    alone = np.flatnonzero(~np.isfinite(costs).any(axis=0)).tolist()
    if alone:
        names = ", ".join(devices[i] if i < len(devices) else f"number {i}" for i in alone[:20])
        raise InfeasibleError(
            f"no configuration serves device {names}", hint="Measure configurations there, or leave the device out."
        )


def _value(costs: Floats, rows: Sequence[int]) -> float:
    return float(costs[list(rows)].min(axis=0).sum())


def _portfolio(costs: Floats, rows: Sequence[int], bound: float, proven: bool, nodes: int) -> Portfolio:
    """The portfolio of these rows without those that serve nothing; each device is served by the first of its best."""
    members = np.unique(np.asarray(rows, dtype=np.intp))
    serves = members[costs[members].argmin(axis=0)]
    value = float(costs[serves, np.arange(costs.shape[1])].sum())
    return Portfolio(
        chosen=tuple(np.unique(serves).tolist()),
        serves=tuple(serves.tolist()),
        value=value,
        bound=min(bound, value),
        proven=proven,
        nodes=nodes,
    )


def _tamed(costs: Floats) -> Floats:
    """The same with finite entries from 0 to 1, and infinite ones dearer than all of those together."""
    finite = np.where(np.isfinite(costs), costs, 0.0)
    return np.where(np.isfinite(costs), finite / (float(finite.max()) or 1.0), 2.0 * costs.shape[1])


def _swapped_from_all(costs: Floats, size: int, out_of_time: Callable[[], bool]) -> tuple[int, ...]:
    """The best set of rows that swapping reaches from the greedy one and, while there is time, from random ones."""
    generator = np.random.default_rng(0)
    found = [_swapped(costs, _greedy(costs, size))]
    for _ in range(_STARTS):
        if out_of_time():
            break
        found.append(_swapped(costs, generator.choice(len(costs), size, replace=False).tolist()))
    return min(found, key=lambda rows: _value(costs, rows))


def _greedy(costs: Floats, size: int) -> list[int]:
    """Rows taken one by one, each where it helps most."""
    rows: list[int] = []
    settled = np.full(costs.shape[1], np.inf)
    for _ in range(size):
        rows.append(int(np.minimum(costs, settled).sum(axis=1).argmin()))
        settled = np.minimum(settled, costs[rows[-1]])
    return rows


def _swapped(costs: Floats, rows: list[int]) -> tuple[int, ...]:
    """The rows after swaps of one of them for another, the best swap each time, until none helps. `costs` are finite.

    All swaps are valued at once: a row that comes helps each device by itself, and where the row that goes was the
    best of a device, the next best takes its place (Whitaker, 1983).
    """
    value, columns = _value(costs, rows), np.arange(costs.shape[1])
    while True:
        mine = costs[rows]
        place = mine.argmin(axis=0)
        nearest = mine[place, columns]
        mine[place, columns] = np.inf
        kept = np.minimum(costs, nearest)
        lost = np.minimum(costs, mine.min(axis=0))
        lost -= kept
        served = np.zeros((len(columns), len(rows)))
        served[columns, place] = 1.0
        values = lost @ served
        values += kept.sum(axis=1)[:, None]
        row, gone = (int(k) for k in np.unravel_index(values.argmin(), values.shape))
        tried = [*rows[:gone], row, *rows[gone + 1 :]]
        reached = _value(costs, tried)
        if reached >= value * _IMPROVES:
            return tuple(rows)
        value, rows = reached, tried
