"""Decide which configurations became slower, from joint bounds at each of several looks.

Measuring until the answer is certain means looking several times, and each look may err. So the looks are fixed in
advance, at shares of the budget that grow by a constant factor. Each look may spend a share of the permitted
probability of error that equals the share of the budget used since the last look (K. Kim and D. L. DeMets, 1987, power
1); over all looks these shares add up to at most the whole. Within a look all configurations have equal shares
(Bonferroni). Holm's procedure would give larger shares to the remaining configurations once one is decided, and would
err up to three times as often: each configuration may be called slower, faster or the same, so even a configuration
with a correct verdict could have got a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gnomon.core.stats import Apart

Change = Literal["faster", "slower", "same", "unknown"]
Gate = Literal["pass", "slower", "undecided"]

SEEN = 0.95
"""The probability of detecting the slow-down that a report calls detectable."""
POWER = 0.8
"""The probability with which a gate across two sessions must find a slow-down equal to its limit before it may pass."""
_GROWTH = 2.0
"""The factor by which the share of the budget grows from one look to the next."""
LAST_SHARE = 1 - 1 / _GROWTH
"""The share of the probability of error that is left for the last look, if it is not the only look."""
FEWEST_TURNS = 6
"""The number of turns before the first look: with fewer, a disturbed process cannot be told from an ordinary one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The rule for the verdict on a configuration.

    `alpha` is the probability that any verdict is wrong. Times that differ by less than `relevant` (0.01: 1 %) count as
    the same. `limit` is the slow-down at which the gate is set; None if there is no gate.
    """

    alpha: float
    relevant: float
    limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The verdict on one configuration: the interval of its ratio and the conclusions from it.

    `gate` is None without a limit. `sees` is the smallest slow-down that would have been found in 95 of 100 such
    measurements; None if no slow-down would have been found so often.
    """

    low: float
    high: float
    change: Change
    gate: Gate | None
    sees: float | None

    @property
    def is_decided(self) -> bool:
        """Return True if the verdict is final, so no more measuring is needed."""
        return self.change != "unknown" if self.gate is None else self.gate != "undecided"


def joint_bounds(sides: Mapping[str, tuple[Apart, bool]], rule: Rule) -> dict[str, Bounds]:
    """Bounds for several configurations, which hold for all of them at once with probability 1 - `rule.alpha`.

    Each configuration comes with a flag that is True if both of its sides were measured in one session. Across two
    sessions a gate passes only if it would find a slow-down as large as its limit in 80 of 100 measurements. Without
    this rule, a slow-down that could not have been seen would pass.
    """
    return {label: _bounds(*side, rule, rule.alpha / len(sides)) for label, side in sides.items()}


def _bounds(apart: Apart, one_session: bool, rule: Rule, alpha: float) -> Bounds:
    low, high = apart.interval(alpha)
    threshold = math.log1p(rule.relevant)
    change: Change = "unknown"
    if not low <= 1 <= high and abs(math.log(apart.ratio)) >= threshold / 2:
        change = "slower" if apart.ratio > 1 else "faster"
    elif low > 0 and math.log(low) >= -threshold and math.log(high) <= threshold:
        change = "same"
    if rule.limit is None:
        sees = apart.seen(alpha, SEEN)
        return Bounds(low=low, high=high, change=change, gate=None, sees=sees and max(sees, rule.relevant))
    gate, least = gate_of(low, high, rule.limit), math.log1p(rule.limit / 2)
    smallest = apart.seen(alpha, POWER, above=least)
    if gate == "pass" and not one_session and (smallest is None or smallest > rule.limit):
        gate = "undecided"
    sees = apart.seen(alpha, SEEN, above=least)
    # A slow-down is also missed if its interval lets the gate pass, so a slow-down that is seen must lie far enough
    # above the limit.
    passes = apart.seen(1.0, SEEN, above=math.log1p(rule.limit) - math.log(high / apart.ratio))
    return Bounds(low=low, high=high, change=change, gate=gate, sees=sees and passes and max(sees, passes))


def gate_of(low: float, high: float, limit: float) -> Gate:
    """The gate's verdict on an interval of ratios.

    It passes if the upper end is below 1 + limit, and fails if the lower end is above 1 + limit / 2.
    """
    if high < 1 + limit:
        return "pass"
    return "slower" if low > 1 + limit / 2 else "undecided"


class Looks:
    """The looks at one measurement in turns; `budget_s` is the longest time that the measurement may take."""

    def __init__(self, budget_s: float) -> None:
        self._budget_s, self._spent = budget_s, 0.0

    def share(self, used_s: float, turns: int) -> float:
        """The share of the probability of error that a look after this many turns may spend; 0: no look is due."""
        passed = min(used_s / self._budget_s, 1.0)
        if turns < FEWEST_TURNS or passed <= 0:
            return 0.0
        look = _GROWTH ** -math.ceil(math.log(1 / passed) / math.log(_GROWTH))
        share, self._spent = look - self._spent, max(look, self._spent)
        return max(share, 0.0)

    @property
    def are_over(self) -> bool:
        """Return True if the last look has been taken."""
        return self._spent >= 1
