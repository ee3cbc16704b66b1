"""What a user says a net is worth: a Python function of a net, or a table of what each choice adds.

Expected times of relaxed nets of a space: each slot takes its choices with probabilities, and gradients follow.

What a slot's choice adds may depend on the choices before it, such as the resolution or the depth. So the probability
of each state is carried forward, and what is still to come is carried back; both are linear in each slot's
probabilities, and what comes out is the mean over all nets, exactly. Where no state depends on a choice this is
`gnomon.estimate.export`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from gnomon.core.space import Space
from gnomon.core.strict_json import Strict, not_utf8
from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.estimate.columns import Floats
from gnomon.estimate.estimator import Estimator
from gnomon.estimate.export import Expected
from gnomon.formats.nets_csv import has_decimal_commas, read_sheet, with_point
from gnomon.spaces.features import CountTables, Ints, Step, idle
from gnomon.spaces.loading import load_attribute

Function = Callable[[dict[str, str]], float]
"""The score of a net, given as the choice's name by slot; larger is better."""

_STRICT = Strict(what="scores", hint='Give {"slot": {"choice": number, ..}, ..}.', most_letters=64 << 20)
_CSV_HINT = "Give a csv with the columns slot, choice and score, or JSON, or a Python function as FILE.py:function."


class Scores(Protocol):
    """Scores of nets; larger is better. The same net has the same score each time."""

    def of(self, nets: Ints) -> Floats:
        """The scores (nets,) of canonical assignments (nets, slots): finite, or -inf for a net that is refused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionScores:
    """Scores by a user's function. UsageError for one that raises, or returns no number."""

    space: Space
    function: Function

    def of(self, nets: Ints) -> Floats:
        """As `Scores` has it; the function is called once a net."""
        names = [slot.name for slot in self.space.slots]
        return np.array([self._one(dict(zip(names, self.space.names(net), strict=True))) for net in nets.tolist()])

    def _one(self, net: dict[str, str]) -> float:
        try:
            told = self.function(net)
            value = float(told)
        except GnomonError:
            raise
        except Exception as error:  # whatever a user's function does
            raise UsageError(
                f"the score function failed: {type(error).__name__}: {error}",
                hint="It is given {slot: choice} and returns a number, larger for better nets.",
            ) from error
        if math.isnan(value) or value == math.inf:
            raise UsageError(
                f"the score of a net is {value}", hint="Return a finite number, or -inf for a net that must not be."
            )
        return value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdditiveScores:
    """What each choice of each slot adds to the score, one array a slot; slots that make no difference add nothing."""

    tables: CountTables
    parts: tuple[Floats, ...]

    def of(self, nets: Ints) -> Floats:
        """As `Scores` has it."""
        found = np.zeros(len(nets))
        state = np.zeros(len(nets), np.int64)
        radix = [len(slot.choices) for slot in self.tables.space.slots]
        for step in self.tables.steps:
            index = np.zeros(len(nets), np.int64)
            counts = ~idle(step)[state]
            for slot in reversed(step.slots):
                index = index * radix[slot] + nets[:, slot]
                found += np.where(counts, self.parts[slot][nets[:, slot]], 0.0)
            state = step.next_state[state, index]
        return found


def additive(tables: CountTables, given: Mapping[str, Mapping[str, float]]) -> AdditiveScores:
    """Scores from {slot: {choice: score}}. A slot that is not named adds nothing; one that is has all of its choices.

    ProblemError for slots and choices that there are not, for choices that are left out, and for what is not a number.
    """
    slots = {slot.name: slot for slot in tables.space.slots}
    strange = [name for name in given if name not in slots]
    if strange:
        raise ProblemError(
            f"the scores name a slot {strange[0][:80]!r}, which the space does not have",
            hint=f"Its slots: {', '.join(list(slots)[:12])}{', ..' if len(slots) > 12 else ''}.",
        )
    parts = []
    for name, slot in slots.items():
        found = given.get(name)
        if found is None:
            parts.append(np.zeros(len(slot.choices)))
            continue
        for what, names in (("lack", set(slot.choices) - set(found)), ("name", set(found) - set(slot.choices))):
            if names:
                raise ProblemError(
                    f"the scores of slot '{name}' {what} the choice {min(names)[:80]!r}",
                    hint=f"Give one for each of: {', '.join(slot.choices)}.",
                )
        try:
            values = np.array([float(found[choice]) for choice in slot.choices])
        except OverflowError:  # a whole number beyond any float
            values = np.array([math.inf])
        if not np.isfinite(values).all():
            raise ProblemError(f"a score of slot '{name}' is not finite", hint="Give finite numbers.")
        parts.append(values)
    return AdditiveScores(tables=tables, parts=tuple(parts))


def load_scores(text: str, tables: CountTables) -> Scores:
    """The scores that `FILE.py:function`, a csv or a JSON file tells. UsageError and ProblemError for what is none."""
    path, separator, _ = text.rpartition(":")
    if separator and path.endswith(".py"):
        function = load_attribute(text)
        if not callable(function):
            raise UsageError(f"{text} is not a function", hint="It is given {slot: choice} and returns a number.")
        return FunctionScores(space=tables.space, function=function)
    if text.endswith(".py"):
        raise UsageError(f"which function of {text}?", hint=f"Name it too, as in {text}:score.")
    try:
        data = Path(text).read_bytes()
    except OSError as error:
        raise UsageError(f"{text} cannot be read: {error.strerror}", hint=_CSV_HINT) from error
    return additive(tables, _json(data) if data.lstrip()[:1] == b"{" else _csv(data))


def _json(data: bytes) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for slot, choices in _STRICT.object(_STRICT.parse(data), "$").items():
        for choice, value in _STRICT.object(choices, f"$.{slot[:60]}").items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                _STRICT.fail(f"$.{slot[:60]}.{choice[:60]}", "a number expected")
            found.setdefault(slot, {})[choice] = value
    return found


def _csv(data: bytes) -> dict[str, dict[str, float]]:
    try:
        lines, between = read_sheet(data)
    except UnicodeDecodeError as error:
        raise ProblemError(f"the scores are {not_utf8(data, error)}", hint=_CSV_HINT) from error
    except csv.Error as error:
        raise ProblemError(f"the scores are not csv: {error}", hint=_CSV_HINT) from error
    header = [name.strip() for name in lines[0]] if lines else []
    if any(header.count(name) != 1 for name in ("slot", "choice", "score")):
        raise ProblemError("the scores lack a column: slot, choice or score", hint=_CSV_HINT)
    comma = has_decimal_commas(lines[1:], between, [header.index("score")])
    found: dict[str, dict[str, float]] = {}
    for number, line in enumerate(lines[1:], start=2):
        if any(map(str.strip, line)):
            slot, choice, value = _line(header, line, number, comma=comma)
            if choice in found.setdefault(slot, {}):
                raise ProblemError(f"line {number}: {slot}, {choice} is there twice", hint="Give each choice once.")
            found[slot][choice] = value
    return found


def _line(header: Sequence[str], line: Sequence[str], number: int, *, comma: bool) -> tuple[str, str, float]:
    if len(line) != len(header):
        raise ProblemError(f"line {number}: {len(line)} columns, and the first line has {len(header)}", hint=_CSV_HINT)
    row: dict[str, Any] = {name: text.strip() for name, text in zip(header, line, strict=True)}
    try:
        return row["slot"], row["choice"], float(with_point(row["score"], comma=comma))
    except ValueError:
        raise ProblemError(f"line {number}: {row['score'][:40]!r} is not a score", hint=_CSV_HINT) from None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RelaxedSpace:
    """A space and an estimator of it whose first column is the overhead of a call, and whose others are the units.

    Raises UsageError for an estimator with a residual learner, which is not linear.
    """

    tables: CountTables
    estimator: Estimator
    _costs: tuple[Floats, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.estimator.residual is not None:
            raise UsageError(
                "the estimator has a residual learner, and its expected time is not linear in probabilities",
                hint="Fit it without one (learner='never').",
            )
        by_row = self.tables.rows.astype(np.float64) @ self.estimator.coefficients.mean[2:]
        object.__setattr__(self, "_costs", tuple(by_row[step.row] for step in self.tables.steps))

    @property
    def base_s(self) -> float:
        """What every net takes beside its units, in seconds."""
        return float(self.estimator.coefficients.mean[:2].sum())

    def expected(self, probabilities: Sequence[ArrayLike]) -> Expected:
        """The expected time of one relaxed net, and its derivative by each probability: one array of them a slot.

        Probabilities need not add up to 1, so that gradients can be checked; a slot's gradient is then that of this
        very sum, and any constant may be added to it while they do. UsageError for a wrong number of slots or choices.
        """
        given = self._checked(probabilities)
        steps, costs = self.tables.steps, self._costs
        joint = [_joint([given[slot] for slot in step.slots]) for step in steps]
        behind = _behind(steps, costs, joint)
        reached = np.ones(1)
        gradients = [np.zeros(len(p)) for p in given]
        for number, step in enumerate(steps):
            along = reached @ (costs[number] + behind[number + 1][step.next_state])
            for slot, gradient in zip(step.slots, _apart(along, [given[s] for s in step.slots]), strict=True):
                gradients[slot] += gradient
            after = np.zeros(len(behind[number + 1]))
            np.add.at(after, step.next_state.ravel(), np.outer(reached, joint[number]).ravel())
            reached = after
        return Expected(time_s=self.base_s + float(behind[0][0]), gradient_s=tuple(gradients))

    def _checked(self, probabilities: Sequence[ArrayLike]) -> list[Floats]:
        slots = self.tables.space.slots
        if len(probabilities) != len(slots):
            raise UsageError(
                f"probabilities of {len(probabilities)} slots are given for {len(slots)}",
                hint="Give one array a slot.",
            )
        given = [np.asarray(p, dtype=float) for p in probabilities]
        for slot, p in zip(slots, given, strict=True):
            if p.shape != (len(slot.choices),) or not np.isfinite(p).all():
                raise UsageError(
                    f"slot '{slot.name}' has {len(slot.choices)} choices, and {p.size} probabilities are given",
                    hint="Give one finite probability a choice.",
                )
        return given


def _behind(steps: Sequence[Step], costs: Sequence[Floats], joint: Sequence[Floats]) -> list[Floats]:
    """What is still to come from each state on, before each step and after the last."""
    last = 1 + max((int(step.next_state.max()) for step in steps[-1:]), default=0)
    found = [np.zeros(last)]
    for step, cost, p in zip(reversed(steps), reversed(costs), reversed(joint), strict=True):
        found.append((cost + found[-1][step.next_state]) @ p)
    return found[::-1]


def _joint(parts: Sequence[Floats]) -> Floats:
    """The probability of each joint choice of some slots, the first least significant."""
    found = np.ones(1)
    for p in parts:
        found = np.multiply.outer(p, found).ravel()
    return found


def _apart(along: Floats, parts: Sequence[Floats]) -> list[Floats]:
    """The derivatives by each slot's probabilities, of what joint choices add."""
    # The first slot is the last axis.
    table = along.reshape([len(p) for p in reversed(parts)])
    found = []
    for slot in range(len(parts)):
        reduced = table
        for other in reversed(range(len(parts))):
            axis = len(parts) - 1 - other
            shape = [1] * table.ndim
            if other != slot:
                shape[axis] = len(parts[other])
                reduced = (reduced * parts[other].reshape(shape)).sum(axis=axis, keepdims=True)
        found.append(reduced.ravel())
    return found
