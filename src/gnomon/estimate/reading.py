"""Reading JSON that may be broken or hostile: each value is asked for by what it must be, and errors have its path."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from gnomon.core.strict_json import Strict, shown
from gnomon.errors import ProblemError
from gnomon.estimate.columns import Floats

HINT = "docs/estimator.md describes the format; an estimator is written by gnomon"
_MOST_TEXT = 20_000


def parse(text: str | bytes, most: int) -> Any:
    """The value of a JSON text without duplicate keys, NaN or infinities. Raises ProblemError for anything else."""
    return Strict(what="estimator", hint=HINT, most_letters=most).parse(text)


class Node:
    """A value of a document and its path."""

    def __init__(self, value: Any, path: str) -> None:
        self._value = value
        self.path = path

    def __getitem__(self, name: str) -> Node:
        found = self._object()
        if name not in found:
            self.fail(f"'{name}' is missing")
        return Node(found[name], f"{self.path}.{name}")

    @property
    def empty(self) -> bool:
        """Whether it is null."""
        return self._value is None

    def only(self, *names: str) -> Node:
        """Itself, if it is an object without other keys than these."""
        strange = sorted(str(k)[:60] for k in set(self._object()) - set(names))
        if strange:
            self.fail(f"the key '{strange[0]}' is not known")
        return self

    def items(self) -> Iterator[tuple[str, Node]]:
        """The pairs of an object."""
        for name, value in self._object().items():
            yield str(name), Node(value, f"{self.path}.{str(name)[:60]}")

    def items_of_list(self, most: int) -> list[Node]:
        """The items of a list of at most so many."""
        if not isinstance(self._value, list):
            self.fail(f"a list expected, {shown(self._value)} found")
        if len(self._value) > most:
            self.fail(f"{len(self._value)} items, and no more than {most} are read")
        return [Node(value, f"{self.path}[{i}]") for i, value in enumerate(self._value)]

    def text(self) -> str:
        """A text."""
        if not isinstance(self._value, str):
            self.fail(f"a text expected, {shown(self._value)} found")
        if len(self._value) > _MOST_TEXT:
            self.fail(f"a text of {len(self._value)} letters, and no more than {_MOST_TEXT} are read")
        return self._value

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self._value, bool):
            self.fail(f"true or false expected, {shown(self._value)} found")
        return self._value

    def number(self, *, least: float = -math.inf) -> float:
        """A finite number."""
        if isinstance(self._value, bool) or not isinstance(self._value, int | float):
            self.fail(f"a number expected, {shown(self._value)} found")
        try:
            found = float(self._value)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found) or found < least:
            self.fail("a finite number expected" if least == -math.inf else f"a finite number from {least:g} expected")
        return found

    def floats(self, count: int | None, *, least: float = -math.inf, most: int = 10_000_000) -> Floats:
        """A list of finite numbers, of this length if one is given."""
        items = self.items_of_list(most)
        if count is not None and len(items) != count:
            self.fail(f"{count} items expected, {len(items)} found")
        return np.array([item.number(least=least) for item in items], dtype=float)

    def matrix(self, width: int, most: int) -> Floats:
        """A list of rows of this width (rows, width)."""
        rows = [row.floats(width) for row in self.items_of_list(most)]
        return np.array(rows, dtype=float).reshape(len(rows), width)

    def fail(self, what: str, hint: str = HINT) -> NoReturn:
        """Raise the ProblemError of what is wrong here."""
        _fail(self.path, what, hint)

    def _object(self) -> Mapping[str, Any]:
        if not isinstance(self._value, Mapping):
            self.fail(f"an object expected, {shown(self._value)} found")
        return self._value


def _fail(path: str, what: str, hint: str = HINT) -> NoReturn:
    raise ProblemError(f"the estimator is malformed: {path}: {what}", hint=hint)
