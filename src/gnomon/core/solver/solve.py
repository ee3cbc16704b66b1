"""The exact minimum of a cost model, with its certificate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnomon.core.brief import brief
from gnomon.core.cost import CostModel, Floats, Ints, Limit, OutOfTime, Stop
from gnomon.core.solver.elimination import Energy, Minimum, weigh
from gnomon.core.solver.ordering import degeneracy
from gnomon.core.solver.prune import ScalarCharge, charged_value, infeasible, minimise_charged, surviving, weigh_charges
from gnomon.errors import InfeasibleError, ProblemError, UsageError

if TYPE_CHECKING:
    from gnomon.core.solver.limits import Cap

METHODS = ("auto", "elimination", "milp")
_LOOKED_AT = 0.1  # the share of the time after which a hopeless elimination is abandoned
_FOR_CHARGES = 0.5  # the share of the time for enumerating charges
_FOR_PRUNING = 0.3  # the share of the remaining time for pruning
_CLOSE = 1e-9  # the relative precision of the least use of a peak
_LEAST_S = 1e-3
_ENUMERATED_CHARGES = 12
_AUTO_SOLVES = 256
_STARTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """An assignment with its certificate.

    `cost` is in the units of the objectives and `value` is their weighted sum. `bound` is a proven lower bound on the
    value of every assignment; it equals `value` if `optimal`. `method` is "elimination", "milp" (HiGHS), "toulbar2" or,
    under limits, "branching". `width` is the largest number of neighbours that a slot had when it was eliminated. The
    other methods do not eliminate; for them `width` is the degeneracy of the graph, the least width that any
    elimination order can have. For "branching", `prices` are the amounts by which one more unit of each limit would
    lower the bound, and `free` is the least value without limits; a limit on a peak has the price NaN.
    """

    assignment: tuple[int, ...]
    choices: tuple[str, ...]
    code: int
    cost: tuple[float, ...]
    value: float
    optimal: bool
    method: str
    bound: float
    width: int
    prices: tuple[float, ...] = ()
    free: float | None = None

    __repr__ = brief


def solve(
    model: CostModel,
    weights: Mapping[str, float] | None = None,
    *,
    method: str = "auto",
    time_limit_s: float | None = None,
    clock_s: Callable[[], float] | None = None,
    start: Minimum | None = None,
) -> Solution:
    """An assignment of least weighted cost, with its certificate.

    "elimination" is exact if the problem's graph is narrow, as the graphs of neural networks are; "milp" uses HiGHS.
    "auto" eliminates if the tables fit into memory. Otherwise it uses toulbar2 if that is installed and there are no
    limits, or else HiGHS, beginning with the best assignment that elimination found. If `time_limit_s` ends the search
    early, `optimal` is False and `bound` is the best bound that was proved. The core has no clock: without `clock_s`,
    such as `time.perf_counter`, the limit applies only to HiGHS. The result is the same each time, unless a time limit
    cuts the search short. With "milp", HiGHS begins with `start`, which must keep all limits.

    Raises UsageError for invalid weights, method or limits and for an elimination beyond the limits, InfeasibleError if
    no assignment is allowed, and ProblemError if costs overflow or nothing was found in time.
    """
    check_options(method, time_limit_s)
    if any(limit.order for limit in model.limits):
        return solve_peaks(model, partial(solve, weights=weights, method=method), time_limit_s, clock_s)
    time = Time(time_limit_s, clock_s)
    vector = model.weight_vector(weights)
    energy, charges = weigh_charges(model, vector, weigh(model, vector))
    caps: tuple[Cap, ...] = ()
    if model.limits:
        from gnomon.core.solver.limits import caps_of

        caps = caps_of(model)
    minimum = start
    if method != "milp":
        minimum = _eliminate(energy, charges, time, every_subset=method == "elimination")
        kept = minimum is not None and all(cap.kept(charges, minimum.assignment) for cap in caps)
        if minimum is not None and kept and (minimum.bound is None or method == "elimination"):
            return solution(model, vector, energy, minimum, time)
        if method == "elimination" and minimum is not None:
            raise UsageError("elimination alone cannot keep the limits", hint="Use the method 'auto' or 'milp'.")
        if method == "elimination" and time.over(0.0):
            raise ProblemError("elimination found nothing within the time limit", hint="Raise or omit the time limit.")
        if method == "elimination":
            raise UsageError("the problem is too wide for elimination", hint="Use the method 'auto' or 'milp'.")
    if minimum is not None and caps and not np.isfinite(energy.value(minimum.assignment)):
        raise infeasible(model.space, energy, time.over)
    return _searched(model, vector, energy, charges, caps, time, minimum, toulbar2=method == "auto")


class Time:
    """The time that is left of a limit, measured by a clock if there is one."""

    def __init__(self, limit_s: float | None, clock_s: Callable[[], float] | None) -> None:
        self.limit_s, self._clock_s = limit_s, clock_s
        self._began_s = clock_s() if clock_s is not None else 0.0

    def left_s(self) -> float | None:
        """The seconds that are left; None if there is no limit."""
        if self.limit_s is None or self._clock_s is None:
            return self.limit_s
        return self.limit_s - (self._clock_s() - self._began_s)

    def used(self) -> float:
        """The share of the limit that is used."""
        left = self.left_s()
        return 0.0 if left is None or self.limit_s is None else 1 - left / self.limit_s

    def over(self, done: float) -> bool:
        """Return True if no time is left."""
        return self.used() >= 1

    def hopeless(self, done: float) -> bool:
        """Return True if the work will not finish in time, given the share that is `done`."""
        used = self.used()
        return used >= 1 or (used > _LOOKED_AT and used > done)

    def for_pruning(self) -> Stop:
        """A function that returns True once pruning has used its share of the time that is left now."""
        until = 1 - (1 - self.used()) * (1 - _FOR_PRUNING)
        return lambda _: self.used() >= until

    def for_charges(self, done: float) -> bool:
        """Return True if the time for enumerating charges is over."""
        return self.used() >= _FOR_CHARGES


def check_options(method: str, time_limit_s: float | None) -> None:
    """Raise UsageError for an unknown method or a time limit that is not above 0."""
    if method not in METHODS:
        raise UsageError(f"no method is named '{method}'", hint=f"Use one of: {', '.join(METHODS)}.")
    if time_limit_s is not None and not (math.isfinite(time_limit_s) and time_limit_s > 0):
        raise UsageError(f"the time limit is {time_limit_s} s", hint="Use a number of seconds above 0.")


def _eliminate(energy: Energy, charges: Sequence[ScalarCharge], time: Time, *, every_subset: bool) -> Minimum | None:
    """The minimum, by elimination, of the energy as it is or, if that fails, of the pruned energy.

    The minimum has a bound if it is not proved; the result is None if the limits or the time do not suffice.
    """
    if len(charges) > _ENUMERATED_CHARGES and not every_subset:
        return None
    solves = math.inf if every_subset else _AUTO_SOLVES
    stop = time.over if every_subset else time.for_charges if charges else time.hopeless
    try:
        minimum = minimise_charged(energy, charges, solves, stop)
        if minimum is not None:
            return minimum
        kept = surviving(energy, _charged(energy, charges), stop)
        if kept is None:
            return Minimum(assignment=(0,) * len(energy.unary), width=0)
        small = energy.restrict(kept)
        if small.sizes == energy.sizes:
            return None
        fewer = tuple(part for part in (charge.restricted(kept) for charge in charges) if part is not None)
        minimum = minimise_charged(small, fewer, solves, stop)
    except OutOfTime:
        return None
    if minimum is None:
        return None
    back = tuple(int(k[a]) for k, a in zip(kept, minimum.assignment, strict=True))
    return Minimum(assignment=back, width=minimum.width, bound=minimum.bound)


def _charged(energy: Energy, charges: Sequence[ScalarCharge]) -> list[Ints]:
    numbers = [np.full(size, -1, dtype=np.intp) for size in energy.sizes]
    for number, charge in enumerate(charges):
        for slot, choice in zip(charge.slots.tolist(), charge.choices.tolist(), strict=True):
            numbers[slot][choice] = number
    return numbers


def solution(model: CostModel, vector: Floats, energy: Energy, minimum: Minimum, time: Time) -> Solution:
    """The solution of an elimination; raises InfeasibleError if even its least cost is infinite."""
    cost = model.evaluate([minimum.assignment])[0]
    if np.isinf(cost).any():
        raise infeasible(model.space, energy, time.over)
    value = float(cost @ vector)
    return Solution(
        assignment=minimum.assignment,
        choices=model.space.names(minimum.assignment),
        code=model.space.encode(minimum.assignment),
        cost=tuple(cost.tolist()),
        value=value,
        optimal=minimum.bound is None,
        method="elimination",
        bound=value if minimum.bound is None else min(minimum.bound, value),
        width=minimum.width,
    )


def _searched(
    model: CostModel,
    vector: Floats,
    energy: Energy,
    charges: Sequence[ScalarCharge],
    caps: Sequence[Cap],
    time: Time,
    before: Minimum | None,
    *,
    toulbar2: bool = False,
) -> Solution:
    """The solution by HiGHS or toulbar2, starting from the best assignment found before."""
    from gnomon.core.solver.milp import minimise_milp

    stop = (lambda _: True) if caps else time.for_pruning()  # under limits, a choice that costs more may use less
    kept = surviving(energy, _charged(energy, charges), stop)
    if kept is None:
        raise infeasible(model.space, energy, time.over)
    unary = []
    for costs, choices in zip(energy.unary, kept, strict=True):
        pruned = np.full(len(costs), np.inf)
        pruned[choices] = costs[choices]
        unary.append(pruned)
    pruned_energy = Energy(tuple(unary), energy.pairwise)
    starts = _starts(model, pruned_energy)
    if before is not None:
        starts.insert(0, before.assignment)
    result = minimise_milp(pruned_energy, charges, starts, time.left_s, caps, toulbar2=toulbar2)
    if result.infeasible:
        raise why_not(model, energy, charges, caps, time)
    best = result.assignment
    # Pruning may have replaced a choice of the earlier assignment by one that is as good.
    if before is not None and all(cap.kept(charges, before.assignment) for cap in caps):
        both = [candidate for candidate in (best, before.assignment) if candidate is not None]
        best = min(both, key=lambda candidate: charged_value(energy, charges, candidate))
    if best is None:
        raise ProblemError("no allowed assignment was found in time", hint="Raise the time limit, or leave it out.")
    least_width = degeneracy({slot: {other for other, _ in pairs} for slot, pairs in enumerate(energy.around())})
    answer = solution(model, vector, energy, Minimum(assignment=best, width=least_width), time)
    least = max(result.bound, -np.inf if before is None or before.bound is None else before.bound)
    bound = answer.value if result.optimal else min(least, answer.value)
    return replace(answer, method=result.method, optimal=result.optimal, bound=bound)


def solve_peaks(
    model: CostModel,
    solved: Callable[..., Solution],
    time_limit_s: float | None,
    clock_s: Callable[[], float] | None,
) -> Solution:
    """The solution of a model with peaks by `solved`, which solves models without peaks; peaks have no price.

    If no assignment keeps the limits, the InfeasibleError states the amounts that are needed.
    """
    from gnomon.core.solver.limits import caps_of, conflict
    from gnomon.core.solver.peaks import without_peaks

    check_options("auto", time_limit_s)
    time = Time(time_limit_s, clock_s)

    def within(limits: Sequence[Limit]) -> Solution:
        left_s = time.left_s()
        left_s = None if left_s is None else max(left_s, _LEAST_S)
        wide = solved(without_peaks(replace(model, limits=tuple(limits))), time_limit_s=left_s, clock_s=clock_s)
        chosen = wide.assignment[: len(model.space.slots)]
        return replace(wide, assignment=chosen, choices=model.space.names(chosen), code=model.space.encode(chosen))

    def least(cap: Cap, others: Sequence[Cap]) -> float:
        limit, kept = model.limits[cap.number], [model.limits[other.number] for other in others]
        low = tried = cap.at_most
        try:
            high = model.used(limit, within(kept).assignment)
        except InfeasibleError:
            return np.inf
        margin = _CLOSE * max(abs(low), abs(high))
        while high - low > margin and not time.over(0.0):
            try:
                high = min(tried, model.used(limit, within([*kept, replace(limit, at_most=tried)]).assignment))
            except InfeasibleError:
                low = tried
            except ProblemError:  # no time is left, or HiGHS cannot decide so close to the minimum
                break
            tried = (low + high) / 2
        return high if high - low <= margin else float(np.nextafter(low, np.inf))

    try:
        answer = within(model.limits)
    except InfeasibleError as error:
        within(())  # raises the error if nothing is allowed at all
        raise conflict(model, caps_of(model), least) or error from None
    prices, free = iter(answer.prices), None
    with suppress(ProblemError):  # the answer is valid even if no time is left to find out what the limits cost
        unlimited = within(())
        free = unlimited.value if unlimited.optimal else None
    return replace(
        answer,
        prices=tuple(np.nan if limit.order else next(prices) for limit in model.limits) if answer.prices else (),
        free=free,
    )


def why_not(
    model: CostModel, energy: Energy, charges: Sequence[ScalarCharge], caps: Sequence[Cap], time: Time
) -> InfeasibleError:
    """The error for an energy that allows no assignment, or none that keeps the caps."""
    from gnomon.core.solver.limits import conflict, forbidden_as
    from gnomon.core.solver.milp import minimise_milp

    def least(cap: Cap, others: Sequence[Cap]) -> float:
        use = forbidden_as(energy, cap)
        paid = [replace(charge, cost=charge.uses[cap.number]) for charge in charges]
        minimum = None if others else _eliminate(use, paid, time, every_subset=False)
        if minimum is None:
            return minimise_milp(use, paid, (), time.left_s, others).bound
        return charged_value(use, paid, minimum.assignment) if minimum.bound is None else minimum.bound

    return conflict(model, caps, least) or infeasible(model.space, energy, time.over)


def _starts(model: CostModel, energy: Energy) -> list[tuple[int, ...]]:
    """The assignment of each slot's own best choice; and for each frequent choice, one that takes it where allowed."""
    greedy = tuple(int(costs.argmin()) for costs in energy.unary)
    counts = Counter(choice for slot in model.space.slots for choice in slot.choices)
    starts = [greedy]
    for name, _ in counts.most_common(_STARTS):
        uniform = list(greedy)
        for i, slot in enumerate(model.space.slots):
            if name in slot.choices and energy.unary[i][slot.choices.index(name)] < np.inf:
                uniform[i] = slot.choices.index(name)
        starts.append(tuple(uniform))
    return starts
