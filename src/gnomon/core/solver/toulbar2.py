"""Minima of wide graphs, found by toulbar2, an optional library for cost function networks.

Where many slots depend on each other, its bounds are better than those of a linear programme (Hurley et al.,
Multi-language evaluation of exact solvers in graphical model discrete optimization, Constraints 21, 2016). It needs
whole numbers, so costs are rounded, and its bound is lowered by the most that rounding may have added.
"""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Sequence

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.solver.elimination import Energy
from gnomon.core.solver.prune import ScalarCharge

_DIGITS = 12  # digits of costs, in units of the difference between the best cost and the least conceivable one
_FOREVER_S = 10**8


def minimise_toulbar2(
    energy: Energy, charges: Sequence[ScalarCharge], most: float, left_s: float | None
) -> tuple[tuple[int, ...] | None, float] | None:
    """The best assignment that costs at most `most` (None if none was found in time) and a proved lower bound.

    `most` must be above the sum of the least costs. The result is None if toulbar2 is not installed. toulbar2 stops
    after `left_s` seconds of CPU time, or at an interrupt, with the best assignment so far.
    """
    try:
        from pytoulbar2 import CFN
    except ImportError:
        return None
    functions: list[tuple[list[int], Floats]] = [([slot], costs) for slot, costs in enumerate(energy.unary)]
    functions += [([first, second], costs) for (first, second), costs in energy.pairwise.items()]
    sizes = energy.sizes
    for charge in charges:  # a slot for each: is the charge paid? If it is not, its choices are forbidden.
        payer = len(sizes)
        sizes.append(2)
        functions.append(([payer], np.array([0.0, charge.cost])))
        for slot in np.unique(charge.slots).tolist():
            costs = np.zeros((energy.sizes[slot], 2))
            costs[charge.choices[charge.slots == slot], 0] = np.inf
            functions.append(([slot, payer], costs))
    floors = [float(costs.min()) for _, costs in functions]
    room = most - math.fsum(floors)
    slack = len(functions) * 10.0**-_DIGITS
    network = CFN(1 + slack, resolution=_DIGITS)
    for slot, size in enumerate(sizes):
        network.AddVariable(f"{slot}", [f"{choice}" for choice in range(size)])
    for (scope, costs), floor in zip(functions, floors, strict=True):
        network.AddFunction(scope, np.minimum((costs - floor) / room, 2.0).ravel().tolist())
    limit_s = _FOREVER_S if left_s is None else max(1, math.floor(left_s))
    try:
        answer = network.Solve(timeLimit=limit_s)
    finally:
        with contextlib.suppress(ValueError):  # toulbar2 keeps catching interrupts, which only the main thread can undo
            signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
    bound = math.fsum(floors) + room * (network.GetDDualBound() - slack)
    return None if answer is None else tuple(answer[0][: len(energy.unary)]), bound
