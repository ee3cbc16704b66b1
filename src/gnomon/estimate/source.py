"""Other devices as sources of a prior: what they say a unit costs relative to their own level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gnomon.errors import UsageError
from gnomon.estimate.columns import Columns, Floats, times


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A device's coefficients by column name, bias first, each over the device's level (the median of its times)."""

    name: str
    columns: tuple[str, ...]
    coefficients: Floats

    def on(self, columns: Columns) -> Floats:
        """The coefficients (1 + columns) in the order of these columns; those it does not know are 0."""
        own = {name: i for i, name in enumerate(self.columns)}
        if not any(name in own for name in columns.names):
            raise UsageError(
                f"the other device '{self.name}' has no column in common with these nets",
                hint="describe both with the same columns",
            )
        found = np.zeros(1 + len(columns))
        found[0] = self.coefficients[0]
        for j, name in enumerate(columns.names):
            if name in own:
                found[1 + j] = self.coefficients[1 + own[name]]
        return found


def source(name: str, columns: Columns, rows: ArrayLike, times_s: ArrayLike) -> Source:
    """A source from a device's own samples, in seconds: one Bayesian fit without intervals.

    Raises UsageError for what does not fit together, and for fewer than two samples.
    """
    from gnomon.estimate.fit import fit  # a fit takes sources, so that one module must wait for the other
    from gnomon.estimate.options import FitOptions, Learner

    x = columns.matrix(rows, "samples")
    y = times(times_s, len(x))
    if len(x) < 2:
        raise UsageError(f"the other device '{name}' has {len(x)} samples", hint="give two or more, or leave it out")
    unpriced = Columns(names=columns.names, kinds=columns.kinds, scale=columns.scale)
    found = fit(unpriced, x, y, options=FitOptions(learner=Learner.NEVER, passes=2))
    return Source(name=name, columns=columns.names, coefficients=found.coefficients.mean / found.level_s)


def source_of_table(name: str, columns: Columns, rows: ArrayLike) -> Source:
    """A source from another device's table: the prices in `columns` over the median sum of these nets, bias 0.

    Raises UsageError without prices, and for nets whose sums are not above zero.
    """
    if columns.prior_s is None:
        raise UsageError(f"the other device '{name}' has no table", hint="give columns with prices")
    prices = np.nan_to_num(columns.prior_s)
    x = columns.matrix(rows)
    level = float(np.median(x @ prices)) if len(x) else 0.0
    if not level > 0:
        raise UsageError(f"the table of '{name}' prices these nets at nothing", hint="give nets of the space")
    return Source(name=name, columns=columns.names, coefficients=np.concatenate([[0.0], prices]) / level)
