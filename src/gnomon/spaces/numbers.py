"""The space of a csv: nets that are described by numbers, as in published measurements that come without code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from gnomon.core.space import Slot, Space
from gnomon.errors import UsageError
from gnomon.spaces.features import Assignment, CountTables, Floats, Ints
from gnomon.spaces.fuse import FusionRules

FORMAT: Literal["gnomon-numbers"] = "gnomon-numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberSpace:
    """One slot for each column of numbers; its choices are the values of that column, written as in the csv.

    Its nets have no units: the numbers and the products of two numbers describe them. The dataclass is also the JSON
    record of the space.
    """

    format: Literal["gnomon-numbers"] = FORMAT
    version: Literal[1] = 1
    name: str
    columns: Mapping[str, tuple[str, ...]]

    @property
    def space(self) -> Space:
        """The columns as slots."""
        return Space(tuple(Slot(name, values) for name, values in self.columns.items()))

    def net(self, assignment: Assignment) -> NoReturn:
        """Raise UsageError: the operators are unknown."""
        raise UsageError(
            f"the nets of {self.name} are described by numbers, not by operators",
            hint="Use a space whose nets are described by operators.",
        )

    def tables(self, rules: FusionRules) -> CountTables:
        """Tables without units. Each number and each product is an extra, except constant ones."""
        values = [np.array(texts, float) for texts in self.columns.values()]
        spreads: dict[tuple[int, ...], float] = {(k,): float(each.std()) for k, each in enumerate(values)}
        for i, k in combinations_with_replacement(range(len(values)), 2):
            products = values[i] ** 2 if i == k else np.outer(values[i], values[k])
            spreads[(i, k)] = float(products.std())
        terms = tuple(term for term, spread in spreads.items() if spread > 0)
        names = list(self.columns)
        return NumberTables(
            space=self.space,
            units=(),
            steps=(),
            rows=np.zeros((0, len(terms)), np.float32),
            extras=tuple("*".join(names[k] for k in term) for term in terms),
            values=tuple(values),
            terms=terms,
            spreads=np.array([spreads[term] for term in terms]),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumberTables(CountTables):
    """Tables that have the numbers and products of nets, each divided by its spread, in place of counts.

    `values` are the values of each slot's choices, and `terms` are the slots whose values are multiplied.
    """

    values: tuple[Floats, ...]
    terms: tuple[tuple[int, ...], ...]
    spreads: Floats

    @property
    def extra_kinds(self) -> tuple[str, ...]:
        """The groups that share a prior: numbers and products are in different groups, and so are columns whose names
        begin with different words.
        """
        words = [slot.name.partition("_")[0] for slot in self.space.slots]
        return tuple(f"{len(term)} of {', '.join(sorted({words[slot] for slot in term}))}" for term in self.terms)

    def counts(self, assignments: ArrayLike) -> Floats:
        """Each number and product divided by its spread: (nets, terms), for assignments (nets, slots)."""
        chosen = self._chosen(assignments)
        numbers = [values[chosen[:, slot]] for slot, values in enumerate(self.values)]
        columns = [np.prod([numbers[slot] for slot in term], axis=0) for term in self.terms]
        return np.stack(columns, axis=1) / self.spreads

    def sums(self, assignments: ArrayLike, values: ArrayLike) -> Floats:
        """`counts(assignments) @ values`."""
        return np.asarray(self.counts(assignments) @ np.asarray(values, np.float64))

    def canonical(self, assignments: ArrayLike) -> Ints:
        """The assignments themselves."""
        return self._chosen(assignments)

    def nets(self) -> int:
        """The number of assignments."""
        return self.space.size
