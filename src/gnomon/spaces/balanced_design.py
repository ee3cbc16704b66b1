"""Networks that tell the most about each choice: every primitive equally often in each cell group.

In a table of single swaps a network says something of one choice; in a balanced design it says something of as many as
there are cell groups, so that the same trainings tell effects far more closely (Fisher, "The Design of Experiments",
1935; Box, Hunter and Hunter, "Statistics for Experimenters", 2005). Columns are as little correlated as a search over
random balanced ones finds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnomon.errors import UsageError
from gnomon.spaces.features import Floats, Ints

_TRIES = 200
_RIDGE = 0.1


def balanced_design(counts: Sequence[int], networks: int, *, seed: int = 0) -> Ints:
    """Assignments of shape (networks, slots), choice k of a slot as often as any other of it, give or take one.

    `counts` are the numbers of choices. Of many random balanced tables that one is taken under which the effects are
    known best (the log determinant of the information with a weak prior, Bayesian D-optimality). No network twice, as
    long as there are enough. Depends on the arguments alone. UsageError for no network or no choice.
    """
    if networks < 1 or not counts or min(counts) < 1:
        raise UsageError(f"{networks} networks of {list(counts)} choices cannot be drawn", hint="Give at least one.")
    rng = np.random.default_rng([seed, networks, *counts])
    best, most = _drawn(rng, counts, networks), -np.inf
    for _ in range(_TRIES):
        table = _drawn(rng, counts, networks)
        told = _information(table, counts) - _repeated(table, counts)
        if told > most:
            best, most = table, told
    return best


def indicators(assignments: Sequence[Sequence[int]] | Ints, counts: Sequence[int]) -> Floats:
    """A column a choice, 1 where a network has it: shape (networks, sum of counts)."""
    chosen = np.asarray(assignments, np.int64).reshape(-1, len(counts))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    made = np.zeros((len(chosen), int(np.sum(counts))))
    for slot, start in enumerate(starts):
        made[np.arange(len(chosen)), start + chosen[:, slot]] = 1
    return made


def _drawn(rng: np.random.Generator, counts: Sequence[int], networks: int) -> Ints:
    columns = []
    for count in counts:
        levels = np.concatenate([rng.permutation(count) for _ in range(-(-networks // count))])[:networks]
        columns.append(rng.permutation(levels))
    return np.stack(columns, axis=1).astype(np.int64)


def _information(table: Ints, counts: Sequence[int]) -> float:
    x = np.concatenate([np.ones((len(table), 1)), indicators(table, counts)], axis=1)
    return float(np.linalg.slogdet(x.T @ x + _RIDGE * np.eye(x.shape[1]))[1])


def _repeated(table: Ints, counts: Sequence[int]) -> float:
    """A fine for networks that are there twice, beyond what cannot be helped."""
    spare = max(0, len(table) - int(np.prod([float(c) for c in counts])))
    return 10.0 * max(0, len(table) - len(np.unique(table, axis=0)) - spare)
