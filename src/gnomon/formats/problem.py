"""The stable JSON of placement problems: text to CostModel and back (see docs/formats/problem-json.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from gnomon.core.cost import Charge, CostModel, Floats, Objective, PairCost
from gnomon.core.space import Slot, Space
from gnomon.core.strict_json import is_text, not_utf8, shown, unique
from gnomon.errors import ProblemError

FORMAT = "gnomon-problem"
VERSION = 1
MOST_LETTERS = 64 << 20
"""The longest text that is read: some three million costs. A hostile one of this length takes 1.7 GB to refuse."""
_REPORTED = 20  # problems listed in one error
_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
_HINT = "docs/formats/problem-json.md describes the format"


def read_problem(document: str | bytes | Mapping[str, Any]) -> CostModel:
    """The cost model of a problem, from JSON text (UTF-8 if bytes) or from the parsed object.

    Raises one ProblemError that lists what is wrong, each with its JSON path, up to a number of them.
    """
    data = _parse(document) if isinstance(document, str | bytes) else document
    reader = _Reader()
    try:
        model = reader.model(data)
    except RecursionError as error:
        raise ProblemError("the problem is nested too deeply", hint=_HINT) from error
    if model is None:
        raise reader.error()
    return model


def problem_document(model: CostModel) -> dict[str, Any]:
    """The JSON object of a problem: what `read_problem` reads back as an equal model."""
    slots = zip(model.space.slots, model.slot_costs, strict=True)
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "objectives": [{"name": o.name, "unit": o.unit} for o in model.objectives],
        "slots": [{"name": s.name, "choices": list(s.choices), "cost": _rows(cost)} for s, cost in slots],
        "pairs": [{"slots": [p.first, p.second], "cost": _rows(np.asarray(p.cost))} for p in model.pairs],
    }
    document["charges"] = [{"choice": c.choice, "cost": _numbers(np.asarray(c.cost).tolist())} for c in model.charges]
    return document


def write_problem(model: CostModel) -> str:
    """The JSON text of a problem, on one line; equal models give equal texts."""
    return json.dumps(problem_document(model), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _rows(costs: Floats) -> Any:
    if costs.ndim > 2:
        return [_rows(part) for part in costs]
    return [_numbers(row) if min(row) < math.inf else None for row in costs.tolist()]


def _numbers(row: list[float]) -> list[float | None]:
    return [None if number == math.inf else number for number in row]


def _parse(text: str | bytes) -> Any:
    if len(text) > MOST_LETTERS:
        raise ProblemError(
            f"the problem has {len(text)} letters, and no more than {MOST_LETTERS} are read",
            hint="Split it into problems that have no slots in common, or build the CostModel in Python.",
        )
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise ProblemError(f"the problem is {not_utf8(text, error)}", hint=_HINT) from error
    except json.JSONDecodeError as error:
        message = f"the problem is not JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        raise ProblemError(message, hint=_HINT) from error
    except RecursionError as error:
        raise ProblemError("the problem is nested too deeply", hint=_HINT) from error
    except ValueError as error:  # an integer of more digits than the interpreter converts
        raise ProblemError("the problem holds a number of too many digits", hint=_HINT) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ProblemError(f"{name} is not a JSON number", hint="write null where a choice is impossible")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    try:
        return unique(pairs)
    except ValueError as error:
        raise ProblemError(str(error), hint=_HINT) from error


class _Reader:
    """Reads one document and gathers what is wrong with it."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.count = 0

    def error(self) -> ProblemError:
        more = self.count - len(self.problems)
        listed = self.problems + ([f"and {more} more"] if more else [])
        return ProblemError("the problem is malformed: " + "; ".join(listed), hint=_HINT)

    def say(self, path: str, message: str) -> None:
        self.count += 1
        if len(self.problems) < _REPORTED:
            self.problems.append(f"{path}: {message}")

    def model(self, data: Any) -> CostModel | None:
        required, optional = ("format", "version", "objectives", "slots"), ("pairs", "charges")
        if not self.keys(data, "$", required, optional):
            return None
        if data.get("format") != FORMAT or not isinstance(data.get("format"), str):
            self.say("$.format", f"'{FORMAT}' expected")
        if type(data.get("version")) is not int or data["version"] != VERSION:
            self.say("$.version", f"{VERSION} expected")
        if self.count:
            return None
        objectives = self.objectives(data["objectives"])
        slots, costs = self.slots(data["slots"], len(objectives))
        pairs = self.pairs(data.get("pairs", []), slots, len(objectives))
        charges = self.charges(data.get("charges", []), len(objectives))
        if self.count:
            return None
        return CostModel(Space(tuple(slots)), tuple(objectives), tuple(costs), tuple(pairs), tuple(charges))

    def keys(self, data: Any, path: str, required: Sequence[str], optional: Sequence[str] = ()) -> bool:
        """Whether data is an object with all the required keys; unknown keys are reported."""
        if not isinstance(data, Mapping):
            self.say(path, f"an object expected, {_kind(data)} found")
            return False
        for key in data:
            if key not in required and key not in optional:
                self.say(f"{path}{_member(key)}", f"unknown key; known are: {', '.join((*required, *optional))}")
        missing = [key for key in required if key not in data]
        for key in missing:
            self.say(f"{path}.{key}", "missing")
        return not missing

    def items(self, data: Any, path: str) -> Sequence[Any]:
        if isinstance(data, list | tuple):
            return data
        self.say(path, f"a list expected, {_kind(data)} found")
        return ()

    def name(self, data: Any, path: str, *, empty: bool = False) -> str:
        if not isinstance(data, str):
            self.say(path, f"a text expected, {_kind(data)} found")
            return ""
        if not data and not empty:
            self.say(path, "a name must not be empty")
        elif not is_text(data):
            self.say(path, "half a surrogate pair is not valid text")
        return str(data)

    def names(self, found: Sequence[str], path: str, key: str = "") -> None:
        """Report names that were seen before."""
        if len(set(found)) == len(found):
            return
        seen: dict[str, int] = {}
        for i, name in enumerate(found):
            if name and name in seen:
                self.say(f"{path}[{i}]{key}", f"{shown(name)} is the name of {path}[{seen[name]}] already")
            seen.setdefault(name, i)

    def objectives(self, data: Any) -> list[Objective]:
        items = self.items(data, "$.objectives")
        if isinstance(data, list | tuple) and not items:
            self.say("$.objectives", "at least one objective expected")
        found: list[Objective] = []
        for i, item in enumerate(items):
            path = f"$.objectives[{i}]"
            if not self.keys(item, path, ("name",), ("unit",)):
                found.append(Objective(""))
                continue
            name = self.name(item["name"], f"{path}.name")
            found.append(Objective(name, self.name(item.get("unit", ""), f"{path}.unit", empty=True)))
        self.names([objective.name for objective in found], "$.objectives", ".name")
        return found

    def slots(self, data: Any, count: int) -> tuple[list[Slot], list[Floats]]:
        before = self.count
        names: list[str] = []
        choices: list[tuple[str, ...]] = []
        costs: list[Floats] = []
        for i, item in enumerate(self.items(data, "$.slots")):
            path = f"$.slots[{i}]"
            if not self.keys(item, path, ("name", "choices", "cost")):
                names.append("")
                choices.append(())
                continue
            names.append(self.name(item["name"], f"{path}.name"))
            listed = self.items(item["choices"], f"{path}.choices")
            if isinstance(item["choices"], list | tuple) and not listed:
                self.say(f"{path}.choices", "at least one choice expected")
            known = tuple(self.name(choice, f"{path}.choices[{c}]") for c, choice in enumerate(listed))
            self.names(known, f"{path}.choices")
            choices.append(known)
            costs.append(self.table(item["cost"], f"{path}.cost", (len(known), count)))
        self.names(names, "$.slots", ".name")
        if self.count > before:  # what follows needs only the numbers of choices
            return [Slot(str(i), tuple(map(str, range(max(1, len(c)))))) for i, c in enumerate(choices)], costs
        return [Slot(name, known) for name, known in zip(names, choices, strict=True)], costs

    def pairs(self, data: Any, slots: Sequence[Slot], count: int) -> list[PairCost]:
        sizes = [len(slot.choices) for slot in slots]
        found: list[PairCost] = []
        for i, item in enumerate(self.items(data, "$.pairs")):
            path = f"$.pairs[{i}]"
            if not self.keys(item, path, ("slots", "cost")):
                continue
            ends = item["slots"]
            if not isinstance(ends, list | tuple) or len(ends) != 2 or {type(e) for e in ends} != {int}:
                self.say(f"{path}.slots", "two indices of slots expected")
                continue
            first, second = ends
            if not (0 <= first < len(sizes) and 0 <= second < len(sizes)):
                self.say(f"{path}.slots", f"indices from 0 to {len(sizes) - 1} expected")
            elif first == second:
                self.say(f"{path}.slots", "two different slots expected")
            else:
                shape = (sizes[first], sizes[second], count)
                found.append(PairCost(first, second, self.table(item["cost"], f"{path}.cost", shape)))
        return found

    def charges(self, data: Any, count: int) -> list[Charge]:
        found: list[Charge] = []
        for i, item in enumerate(self.items(data, "$.charges")):
            path = f"$.charges[{i}]"
            if not self.keys(item, path, ("choice", "cost")):
                continue
            cost = self.table([item["cost"]], f"{path}.cost", (1, count), single=True)[0]
            if (cost < 0).any():
                self.say(f"{path}.cost", "a charge must not be negative")
            found.append(Charge(self.name(item["choice"], f"{path}.choice"), cost))
        self.names([charge.choice for charge in found], "$.charges", ".choice")
        return found

    def table(self, data: Any, path: str, shape: tuple[int, ...], *, single: bool = False) -> Floats:
        """Nested lists of the shape as an array, null as +inf; a row of the last axis may be null as a whole."""
        if not single:
            fast = _fast_table(data, shape)
            if fast is not None:
                return fast
        flat: list[float] = []
        self._walk([data[0]] if single else data, path, shape, flat, single)
        return np.array(flat, dtype=np.float64).reshape(shape) if len(flat) == math.prod(shape) else np.zeros(shape)

    def _walk(self, data: Any, path: str, shape: tuple[int, ...], flat: list[float], single: bool = False) -> None:
        if data is None and len(shape) == 1:
            flat.extend([math.inf] * shape[0])
            return
        wanted = ("number" if len(shape) == 1 else "row") + ("" if shape[0] == 1 else "s")
        if not isinstance(data, list | tuple):
            self.say(path, f"a list of {shape[0]} {wanted} expected, {_kind(data)} found")
            return
        if len(data) != shape[0]:
            self.say(path, f"{shape[0]} {wanted} expected, {len(data)} found")
            return
        for i, item in enumerate(data):
            here = path if single else f"{path}[{i}]"
            if len(shape) > 1:
                self._walk(item, here, shape[1:], flat)
            elif item is None:
                flat.append(math.inf)
            elif type(item) not in (int, float):
                self.say(here, f"a number or null expected, {_kind(item)} found")
            elif not -1.7e308 < item < 1.7e308:
                self.say(here, "the number is beyond double precision")
            else:
                flat.append(float(item))


def _fast_table(data: Any, shape: tuple[int, ...]) -> Floats | None:
    """The table if it is well-formed and has no row that is null as a whole, else None."""
    level: Any = [data]
    for length in shape:
        if set(map(type, level)) != {list} or set(map(len, level)) != {length}:
            return None
        level = list(chain.from_iterable(level))
    if not set(map(type, level)) <= {int, float, type(None)}:
        return None
    try:
        flat = np.array(level, dtype=np.float64)
    except OverflowError:
        return None
    if not (np.abs(flat) < 1.7e308).all():
        if not all(number is None or -1.7e308 < number < 1.7e308 for number in level):
            return None
        flat[np.isnan(flat)] = np.inf
    return flat.reshape(shape)


def _kind(data: Any) -> str:
    return _KINDS.get(type(data), "a number" if isinstance(data, int | float) else "something else")


def _member(key: Any) -> str:
    plain = isinstance(key, str) and key.isascii() and key.isidentifier() and len(key) <= 60
    return f".{key}" if plain else f"[{shown(key)}]"
