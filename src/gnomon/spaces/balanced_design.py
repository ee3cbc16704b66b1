"""Networks that tell the most about each choice: every primitive equally often in each cell group.

In a table of single swaps a network says something of one choice; in a balanced design it says something of as many as
there are cell groups, so that the same trainings tell effects far more closely (Fisher, "The Design of Experiments",
1935; Box, Hunter and Hunter, "Statistics for Experimenters", 2005). Columns are as little correlated as a search over
random balanced ones finds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gnomon.errors import UsageError
from gnomon.spaces.features import Floats, Ints

_TRIES = 200
_RIDGE = 0.1
_ALL = 4096  # a space of no more networks than this is written out
_EXCHANGES = 50  # a network that is there twice is changed so often at most, on average


def balanced_design(counts: Sequence[int], networks: int, *, seed: int = 0) -> Ints:
    """Assignments of shape (networks, slots), choice k of a slot as often as any other of it, give or take one.

    `counts` are the numbers of choices. Of many random balanced tables that one is taken under which the effects are
    known best (the log determinant of the information with a weak prior, Bayesian D-optimality). No network is there
    twice before all are there once. Depends on the arguments alone. UsageError for no network or no choice.
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
    """A random balanced table, all networks of a space before any is there again."""
    size = math.prod(counts)
    if size > _ALL or 2 * networks <= size:
        return _distinct(rng, _columns(rng, counts, networks))
    whole, rest = divmod(networks, size)
    every = np.stack(np.unravel_index(np.arange(size), tuple(counts)), axis=1).astype(np.int64)
    parts = [every] * whole
    if 0 < 2 * rest <= size:
        parts.append(_distinct(rng, _columns(rng, counts, rest)))
    elif rest:
        # Nearly all are drawn by those few that are left out: what is left of a balanced table is balanced too.
        left_out = _distinct(rng, _columns(rng, counts, size - rest))
        parts.append(np.delete(every, np.ravel_multi_index(tuple(left_out.T), tuple(counts)), axis=0))
    return rng.permutation(np.concatenate(parts), axis=0)


def _distinct(rng: np.random.Generator, table: Ints) -> Ints:
    """The table, its networks that are there twice changed by exchanging choices with others: columns keep theirs."""
    for _ in range(_EXCHANGES * len(table)):
        again = np.setdiff1d(np.arange(len(table)), np.unique(table, axis=0, return_index=True)[1])
        if not len(again):
            break
        one, other, slot = rng.choice(again), rng.integers(len(table)), rng.integers(table.shape[1])
        table[[one, other], slot] = table[[other, one], slot]
    return table


def _columns(rng: np.random.Generator, counts: Sequence[int], networks: int) -> Ints:
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
    spare = max(0, len(table) - math.prod(counts))
    return 10.0 * max(0, len(table) - len(np.unique(table, axis=0)) - spare)
