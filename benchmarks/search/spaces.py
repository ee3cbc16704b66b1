"""Spaces in which every assignment is priced: made up from seeds, or read from files."""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnomon.core.cost import Charge, CostModel, Floats, Objective, PairCost
from gnomon.core.front.dominance import MOST_OBJECTIVES
from gnomon.core.space import Slot, Space
from gnomon.errors import GnomonError
from gnomon.formats.pareto.dump import read_dump

OBJECTIVES = (Objective("latency", "ms"), Objective("memory", "MiB"))
SIZES = ((2,) * 8, (2,) * 10, (2,) * 12, (3,) * 5, (3,) * 6, (3,) * 8, (3, 3, 3, 3, 4, 3, 2))
DRAWS = 2
_NAMES = ("cpu", "gpu", "npu", "dsp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A space with the costs of all of its assignments: `costs` (assignments, objectives) by code, NaN for failures."""

    name: str
    space: Space
    costs: Floats


def made_up() -> Iterator[Priced]:
    """Every family in every size, `DRAWS` times; nothing in them is fitted to a search or to measured data."""
    for (family, model), radices, draw in itertools.product(FAMILIES.items(), SIZES, range(DRAWS)):
        size = "x".join(map(str, radices)) if len(set(radices)) > 1 else f"{radices[0]}^{len(radices)}"
        rng = np.random.default_rng([len(radices), sum(radices), draw, *family.encode()])
        space = Space(tuple(Slot(f"slot{i}", _NAMES[:radix]) for i, radix in enumerate(radices)))
        exact = model(space, rng).evaluate(np.array([space.decode(code) for code in range(space.size)]))
        noise = rng.normal(0, 1, exact.shape) * np.array([0.02, 0.002])
        yield Priced(name=f"{family} {size} #{draw}", space=space, costs=exact * np.exp(noise))


def smooth(space: Space, rng: np.random.Generator) -> CostModel:
    """Times and memory add up over the slots, with transfers along a chain and a charge for each backend."""
    slots = []
    for slot in space.slots:
        count = len(slot.choices)
        time = np.exp(rng.normal(0, 1)) * np.exp(rng.normal(0, 0.7, count))
        slots.append(np.stack([time, np.exp(rng.normal(0, 1, count))], axis=1))
    charges = tuple(Charge(n, np.array([0.2, w])) for n, w in zip(_NAMES[1:], rng.uniform(1, 20, 3), strict=True))
    used = {name for slot in space.slots for name in slot.choices}
    return CostModel(space, OBJECTIVES, tuple(slots), _chain(space, rng), tuple(c for c in charges if c.choice in used))


def rugged(space: Space, rng: np.random.Generator) -> CostModel:
    """Like `smooth`, but about a third of all pairs of slots interact at random in both objectives."""
    base = smooth(space, rng)
    pairs = list(base.pairs)
    for i, j in itertools.combinations(range(len(space.slots)), 2):
        if rng.random() < 1 / 3:
            shape = (len(space.slots[i].choices), len(space.slots[j].choices), 2)
            pairs.append(PairCost(i, j, rng.gamma(1.0, 1.0, shape)))
    return CostModel(space, OBJECTIVES, base.slot_costs, tuple(pairs), base.charges)


def library(space: Space, rng: np.random.Generator) -> CostModel:
    """Costs like those in pareto_profiler's published dump: one slot loads a library of hundreds of MiB, others a few
    MiB.

    Any other choice saves time only together with its neighbours, so the ends of the front are far apart.
    """
    heavy = int(rng.integers(len(space.slots)))
    slots = []
    for index, slot in enumerate(space.slots):
        count = len(slot.choices)
        memory = np.concatenate([[0.0], rng.uniform(1, 12, count - 1)])
        if index == heavy:
            memory[1:] += rng.uniform(250, 350)
        slots.append(np.stack([rng.uniform(1, 10) * np.exp(rng.normal(0, 0.5, count)), memory], axis=1))
    charges = (Charge(_NAMES[0], np.array([0.0, 50.0])),)
    return CostModel(space, OBJECTIVES, tuple(slots), _chain(space, rng, scale=4.0), charges)


def _chain(space: Space, rng: np.random.Generator, scale: float = 0.4) -> tuple[PairCost, ...]:
    pairs = []
    for i, (a, b) in enumerate(itertools.pairwise(space.slots)):
        cost = np.zeros((len(a.choices), len(b.choices), 2))
        cost[..., 0] = rng.exponential(scale) * (1 - np.eye(*cost.shape[:2]))
        pairs.append(PairCost(i, i + 1, cost))
    return tuple(pairs)


FAMILIES: dict[str, Callable[[Space, np.random.Generator], CostModel]] = {
    "smooth": smooth,
    "rugged": rugged,
    "library": library,
}


def read_folder(folder: Path) -> Iterator[Priced]:
    """The exhaustive files of a folder: pareto_profiler's dumps (.json) and tables (.csv); others are named on stderr.

    A table's header has a column ``slot:NAME`` for each slot and ``cost:NAME`` for each objective. A row has the names
    of choices, and costs as numbers, which are all empty if the assignment failed.
    """
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".json", ".csv"):
            continue
        try:
            yield _read_dump(path) if path.suffix == ".json" else _read_table(path)
        except (GnomonError, ValueError) as error:
            print(f"{path.name} is left out: {error}", file=sys.stderr)


def _read_dump(path: Path) -> Priced:
    dump = read_dump(path.read_bytes())
    rows = {row.id: (row.time_ms, row.memory_kib / 1024) for row in dump.solutions}
    return _priced(path.name, dump.space, rows, 2)


def _read_table(path: Path) -> Priced:
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    slots = [i for i, name in enumerate(header) if name.startswith("slot:")]
    costs = [i for i, name in enumerate(header) if name.startswith("cost:")]
    if not slots or not costs or any(len(row) != len(header) for row in rows):
        raise ValueError("the table needs columns slot:NAME and cost:NAME, and full rows")
    choices = [tuple(dict.fromkeys(row[i] for row in rows)) for i in slots]
    space = Space(tuple(Slot(header[i].removeprefix("slot:"), names) for i, names in zip(slots, choices, strict=True)))
    known = {
        space.encode(space.indices([row[i] for i in slots])): tuple(float(row[i] or "nan") for i in costs)
        for row in rows
    }
    return _priced(path.name, space, known, len(costs))


def _priced(name: str, space: Space, known: Mapping[int, tuple[float, ...]], objectives: int) -> Priced:
    if len(known) != space.size:
        raise ValueError(f"it has {len(known)} of {space.size} assignments, so that its true front is unknown")
    costs = np.array([known[code] for code in range(space.size)], dtype=np.float64).reshape(space.size, objectives)
    if not 1 <= objectives <= MOST_OBJECTIVES or np.isnan(costs).any(axis=1).all():
        raise ValueError(f"it needs 1 to {MOST_OBJECTIVES} objectives and an assignment that succeeded")
    return Priced(name=name, space=space, costs=costs)
