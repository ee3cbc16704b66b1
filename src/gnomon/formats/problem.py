"""The stable JSON of placement problems: text to CostModel and back (see docs/formats/problem-json.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np

from gnomon.core.codec import Must, read_json, within
from gnomon.core.cost import Charge, CostModel, Floats, Limit, Objective, PairCost, limit_on
from gnomon.core.space import Slot, Space
from gnomon.core.strict_json import Complaints, Strict, is_text, repeated, shown
from gnomon.errors import ProblemError, UsageError

FORMAT = "gnomon-problem"
VERSION = 2
MOST_LETTERS = 64 << 20
"""The largest length of a text: about three million costs. Refusing a hostile text that long takes 0.7 GB of memory."""
_HINT = "Correct the problem: docs/formats/problem-json.md describes the format."

Text = Annotated[str, Must(be="a text without half a surrogate pair", fits=is_text)]
Name = Annotated[str, Must(be="a name that is not empty", fits=lambda text: bool(text) and is_text(text))]
Row = tuple[float | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Objective:
    name: Name
    unit: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slot:
    name: Name
    choices: Annotated[tuple[Name, ...], Must(be="at least one choice", fits=bool)]
    cost: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    slots: tuple[int, int]
    cost: tuple[tuple[Row, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Charge:
    choice: Name
    cost: tuple[Annotated[float, Must(be="a number from 0", fits=lambda cost: cost >= 0)] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    slots: tuple[tuple[float, ...] | None, ...]
    pairs: tuple[tuple[tuple[float, ...], ...] | None, ...] = ()
    charges: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """A limit on an objective, or on an explicit use with its own name; if it has an order of slots, on the peak."""

    at_most: float
    objective: Name | None = None
    choices: tuple[Name, ...] = ()
    name: Name | None = None
    unit: Text = ""
    use: _Use | None = None
    order: Annotated[tuple[int, ...], Must(be="the index of each slot", fits=bool)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    format: Literal["gnomon-problem"]
    version: Annotated[int, within(1, VERSION, f"version 1 or {VERSION}")]
    objectives: Annotated[tuple[_Objective, ...], Must(be="at least one objective", fits=bool)]
    slots: tuple[_Slot, ...]
    pairs: tuple[_Pair, ...] = ()
    charges: tuple[_Charge, ...] = ()
    limits: tuple[_Limit, ...] = ()


def read_problem(document: str | bytes | Mapping[str, object]) -> CostModel:
    """The cost model of a problem, from JSON text (UTF-8 if bytes) or from the parsed object.

    Raises a ProblemError that lists the faults, each with its JSON path, up to a maximum number.
    """
    strict = Strict(what="problem", hint=_HINT, most_letters=MOST_LETTERS)
    read = read_json(_Problem, document if isinstance(document, str | bytes) else dict(document), strict)
    return _model(read, Complaints(what=strict.what, hint=_HINT))


def problem_document(model: CostModel) -> dict[str, object]:
    """The JSON object of a problem, which `read_problem` reads back as an equal model."""
    slots = zip(model.space.slots, model.slot_costs, strict=True)
    document: dict[str, object] = {
        "format": FORMAT,
        "version": VERSION if model.limits else 1,
        "objectives": [{"name": o.name, "unit": o.unit} for o in model.objectives],
        "slots": [{"name": s.name, "choices": list(s.choices), "cost": _rows(cost)} for s, cost in slots],
        "pairs": [{"slots": [p.first, p.second], "cost": _rows(np.asarray(p.cost))} for p in model.pairs],
    }
    document["charges"] = [{"choice": c.choice, "cost": _numbers(np.asarray(c.cost).tolist())} for c in model.charges]
    if model.limits:
        document["limits"] = [_limit_document(limit) for limit in model.limits]
    return document


def _limit_document(limit: Limit) -> dict[str, object]:
    use: dict[str, object] = {"slots": [row.tolist() if row.any() else None for row in limit.slots]}
    if limit.pairs:
        use["pairs"] = [table.tolist() if table.any() else None for table in limit.pairs]
    if limit.charges:
        use["charges"] = list(limit.charges)
    order = {"order": list(limit.order)} if limit.order else {}
    return {"name": limit.name, "unit": limit.unit, "at_most": limit.at_most, "use": use, **order}


def write_problem(model: CostModel) -> str:
    """The JSON text of a problem, on one line; equal models give equal texts."""
    return json.dumps(problem_document(model), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _rows(costs: Floats) -> Any:
    if costs.ndim > 2:
        return [_rows(part) for part in costs]
    return [_numbers(row) if min(row) < math.inf else None for row in costs.tolist()]


def _numbers(row: list[float]) -> list[float | None]:
    return [None if number == math.inf else number for number in row]


def _model(read: _Problem, complaints: Complaints) -> CostModel:
    """The model. ProblemError lists parts that do not fit together."""
    count = len(read.objectives)
    _each_once([objective.name for objective in read.objectives], "$.objectives", ".name", complaints)
    _each_once([slot.name for slot in read.slots], "$.slots", ".name", complaints)
    _each_once([charge.choice for charge in read.charges], "$.charges", ".choice", complaints)
    costs, pairs, charges = [], [], []
    for i, slot in enumerate(read.slots):
        _each_once(slot.choices, f"$.slots[{i}].choices", "", complaints)
        costs.append(_table(slot.cost, f"$.slots[{i}].cost", (len(slot.choices), count), complaints))
    for i, pair in enumerate(read.pairs):
        first, second = pair.slots
        if not (0 <= first < len(costs) and 0 <= second < len(costs)):
            complaints.tell(f"$.pairs[{i}].slots", f"indices from 0 to {len(costs) - 1} expected")
        elif first == second:
            complaints.tell(f"$.pairs[{i}].slots", "two different slots expected")
        else:
            shape = (len(read.slots[first].choices), len(read.slots[second].choices), count)
            pairs.append(PairCost(first, second, _table(pair.cost, f"$.pairs[{i}].cost", shape, complaints)))
    for i, charge in enumerate(read.charges):
        charges.append(Charge(charge.choice, _table(charge.cost, f"$.charges[{i}].cost", (count,), complaints)))
    complaints.raise_any()
    slots = tuple(Slot(slot.name, slot.choices) for slot in read.slots)
    objectives = tuple(Objective(objective.name, objective.unit) for objective in read.objectives)
    model = CostModel(Space(slots), objectives, tuple(costs), tuple(pairs), tuple(charges))
    if read.limits and read.version == 1:
        complaints.tell("$.version", "2 expected, because the problem has limits")
    limits = [_limit(limit, f"$.limits[{i}]", model, complaints) for i, limit in enumerate(read.limits)]
    complaints.raise_any()
    return replace(model, limits=tuple(limits)) if limits else model


def _limit(read: _Limit, path: str, model: CostModel, complaints: Complaints) -> Limit:
    """A limit of the model; a placeholder if a fault is reported. Bytes must be whole numbers, in costs too."""
    limit = Limit(name="", at_most=0.0, slots=())
    if read.use is None and read.objective is not None and read.name is None and not read.unit:
        try:
            limit = limit_on(model, read.objective, read.choices, read.at_most)
            limit = replace(limit, pairs=(), charges=()) if read.order else limit
        except UsageError as error:
            complaints.tell(path, f"{error.message}. {error.hint}")
    elif read.use is not None and read.name is not None and read.objective is None and not read.choices:
        limit = _explicit(read.use, read.name, read.unit, read.at_most, path, model, complaints)
    else:
        complaints.tell(path, "objective (and optionally choices), or name and use (and optionally unit) expected")
    if read.order and limit.slots:
        limit = replace(limit, order=read.order)
        try:
            model.check_limit(limit)
        except ProblemError as error:
            complaints.tell(path, error.message)
    numbers = [*limit.slots, *(table.ravel() for table in limit.pairs), np.array([*limit.charges, limit.at_most])]
    if limit.unit == "B" and not all(bool((row == np.floor(row)).all()) for row in numbers):
        complaints.tell(path, "whole numbers of bytes expected")
    return limit


def _explicit(
    use: _Use, name: str, unit: str, at_most: float, path: str, model: CostModel, complaints: Complaints
) -> Limit:
    def tables(given: Sequence[Any], key: str, shapes: Sequence[tuple[int, ...]]) -> tuple[Floats, ...]:
        if len(given) != len(shapes):
            complaints.tell(f"{path}.use.{key}", f"{len(shapes)} rows expected, {len(given)} found")
            return ()
        return tuple(
            np.zeros(shape) if rows is None else _table(rows, f"{path}.use.{key}[{i}]", shape, complaints)
            for i, (rows, shape) in enumerate(zip(given, shapes, strict=True))
        )

    pairs = [(pair.cost.shape[0], pair.cost.shape[1]) for pair in model.pairs]
    return Limit(
        name=name,
        unit=unit,
        at_most=at_most,
        slots=tables(use.slots, "slots", [(len(cost),) for cost in model.slot_costs]),
        pairs=tables(use.pairs, "pairs", pairs) if use.pairs else (),
        charges=tuple(_table(use.charges, f"{path}.use.charges", (len(model.charges),), complaints).tolist())
        if use.charges
        else (),
    )


def _each_once(names: Sequence[str], path: str, key: str, complaints: Complaints) -> None:
    """Report names that occur more than once."""
    for i, first in repeated(names):
        complaints.tell(f"{path}[{i}]{key}", f"{path}[{first}] has the name {shown(names[i])} already")


def _table(rows: Any, path: str, shape: tuple[int, ...], complaints: Complaints) -> Floats:
    """Nested rows of this shape as an array, with +inf for null; a whole row of the last axis may be null."""
    try:
        table = np.array(rows, dtype=np.float64)
    except (ValueError, TypeError):  # rows of different lengths, or null
        table = np.zeros(0)
    if table.shape != shape:
        numbers = _numbers_in(rows, path, shape, complaints)
        table = np.array(numbers, dtype=np.float64) if len(numbers) == math.prod(shape) else np.zeros(shape)
    return np.where(np.isnan(table), np.inf, table).reshape(shape)


def _numbers_in(rows: Any, path: str, shape: tuple[int, ...], complaints: Complaints) -> list[float | None]:
    """The numbers of all rows. Rows of a wrong length are reported."""
    if rows is None:
        return [None] * shape[0]
    if len(rows) != shape[0]:
        wanted = ("number" if len(shape) == 1 else "row") + ("" if shape[0] == 1 else "s")
        complaints.tell(path, f"{shape[0]} {wanted} expected, {len(rows)} found")
        return []
    if len(shape) == 1:
        return list(rows)
    return [n for i, row in enumerate(rows) for n in _numbers_in(row, f"{path}[{i}]", shape[1:], complaints)]
