"""What a user says a net is worth: a Python function of a net, or a table of what each choice adds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gnomon.core.space import Space
from gnomon.core.strict_json import Strict
from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.estimate.columns import Floats
from gnomon.spaces.features import CountTables, Ints, idle
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

    ProblemError for slots and choices that there are not, for choices that are left out, and for what is no number.
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
            raise UsageError(f"{text} is no function", hint="It is given {slot: choice} and returns a number.")
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
        lines = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ProblemError(f"the scores are no csv: {error}", hint=_CSV_HINT) from error
    header = [name.strip() for name in lines[0]] if lines else []
    if any(header.count(name) != 1 for name in ("slot", "choice", "score")):
        raise ProblemError("the scores lack a column: slot, choice or score", hint=_CSV_HINT)
    found: dict[str, dict[str, float]] = {}
    for number, line in enumerate(lines[1:], start=2):
        if line:
            slot, choice, value = _line(header, line, number)
            if choice in found.setdefault(slot, {}):
                raise ProblemError(f"line {number}: {slot}, {choice} is there twice", hint="Give each choice once.")
            found[slot][choice] = value
    return found


def _line(header: Sequence[str], line: Sequence[str], number: int) -> tuple[str, str, float]:
    if len(line) != len(header):
        raise ProblemError(f"line {number}: {len(line)} columns, and the first line has {len(header)}", hint=_CSV_HINT)
    row: dict[str, Any] = {name: text.strip() for name, text in zip(header, line, strict=True)}
    try:
        return row["slot"], row["choice"], float(row["score"])
    except ValueError:
        raise ProblemError(f"line {number}: {row['score'][:40]!r} is no score", hint=_CSV_HINT) from None
