"""The input of a fit: columns that describe nets (most often counts of units), times, and options."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.core.codec import Must
from gnomon.errors import ProblemError, UsageError

Floats = NDArray[np.float64]
_LEAST_S, _MOST_S = 1e-15, 1e15
"""The range of a net's time, within which neither squares of times nor squares of their quotients overflow."""

_MOST = 1e30
"""The upper limit on times, on prices, and on the sizes of columns."""
Positive = Annotated[float, Must(be="a number above 0", fits=lambda value: 0 < value < _MOST)]
Least0 = Annotated[float, Must(be="a number from 0", fits=lambda value: 0 <= value < _MOST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns of the matrix that describes nets, with one row for each net.

    `names`: the id of a unit or the name of another feature, each once. `kinds`: the group of each column. The
    coefficients of a kind share a prior, so the columns of a kind should count similar things. `prior_s`: the price of
    one unit of a column according to a table, in seconds (NaN: the table has no price; None: there is no table).
    `scale`: the typical size of a column (None: 1 for all), for columns of one kind that are measured in different
    units. `shared` (columns, k): properties of all columns, such as the work of units (None: no properties). A column's
    coefficient is then the sum of the column's properties, each times a common price, plus a deviation. `bias`: the
    usual size of the time that no column explains, relative to the samples' median; only fitting uses it. Raises
    ProblemError for a name that occurs twice.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    prior_s: Floats | None = None
    scale: Floats | None = None
    shared: Floats | None = None
    bias: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "kinds", tuple(self.kinds))
        if twice := [name for name, count in Counter(self.names).items() if count > 1]:
            raise ProblemError(f"two columns are named '{twice[0]}'", hint="Give each column its own name.")
        for name in ("prior_s", "scale", "shared"):
            if getattr(self, name) is not None:
                values = np.array(getattr(self, name), dtype=float)
                values.setflags(write=False)
                object.__setattr__(self, name, values)

    def __len__(self) -> int:
        return len(self.names)

    def matrix(self, rows: ArrayLike, what: str = "nets") -> Floats:
        """The rows as a matrix (nets, columns). UsageError for a wrong shape or values that are not finite."""
        matrix = np.asarray(rows, dtype=float)
        if matrix.ndim == 1:
            matrix = matrix[None, :]
        if matrix.ndim != 2 or matrix.shape[1] != len(self):
            shape = "x".join(map(str, matrix.shape))
            raise UsageError(
                f"the matrix of the {what} has the shape {shape}, but there are {len(self)} columns",
                hint="Give one row for each net and one value for each column, in the order of the columns.",
            )
        if not np.isfinite(matrix).all():
            row, column = np.argwhere(~np.isfinite(matrix))[0]
            raise UsageError(
                f"net {row} has {matrix[row, column]} in '{self.names[column]}'", hint="Correct the value."
            )
        return matrix


def times(values: ArrayLike, count: int) -> Floats:
    """Measured times in seconds, one for each net. UsageError for a wrong number of times or for impossible times."""
    y = np.asarray(values, dtype=float)
    if y.shape != (count,):
        raise UsageError(f"{y.size} times are given for {count} nets", hint="Give one for each net that did not fail.")
    bad = np.flatnonzero(~((y >= _LEAST_S) & (y < _MOST_S)))
    if bad.size:
        raise UsageError(
            f"the time of net {bad[0]} is {y[bad[0]]}",
            hint="Give times from 1e-15 to 1e15 s; leave out failed nets.",
        )
    return y


class Unknown(StrEnum):
    """The treatment, in a prediction, of a column with neither samples nor a price."""

    REFUSE = "refuse"
    WIDEN = "widen"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """Options of a fit.

    `coverage`: the share of measured times that intervals should contain. `passes`: the number of times that first
    sizes and then weights are estimated.
    """

    coverage: float = 0.9
    passes: int = 4

    def __post_init__(self) -> None:
        if not 0.5 <= self.coverage <= 0.999:
            raise UsageError(f"the coverage {self.coverage} is not a share from 0.5 to 0.999", hint="Use 0.9.")
