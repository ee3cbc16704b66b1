"""Which choices to keep so that at most a share of the networks is left: what is given up for how many networks.

The loss of a choice is judged along weightings of the prices (scalarisations, as the R2 indicator of Hansen and
Jaszkiewicz, "Evaluating the quality of approximations to the non-dominated set", 1998, does): under one weighting the
best network is the sum of each group's best choices, so that a group's loss depends on its own choices alone. What a
loss counts is the hypervolume that it is worth under that weighting (`selection_weights`). Choices go one by one where
least is lost; how many each group keeps is then decided exactly.

Measurements that disagree by their noise leave many selections nearly equally good, among which a search would fall
now here, now there. So there is a layout to stay with, and leaving it has a price: inertia.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.dominance import nondominated
from gnomon.core.space import Space
from gnomon.spaces.primitives import parse_name
from gnomon.spaces.selection_front import Resamples, front_of_sums
from gnomon.spaces.selection_weights import hypervolume_weights

_WEIGHTINGS = 16
_ROUNDING = 1 + 1e-9

Masks = tuple[NDArray[np.bool_], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeighedCosts:
    """Costs (samples, choices) a group: each resample under each weighting, in the ranges of the expected front.

    Each is multiplied by what the weighting counts for the hypervolume. `doubt` is by how much an entry before that is
    uncertain: the mean standard deviation over the resamples.
    """

    tables: tuple[Floats, ...]
    doubt: float


def weighed_costs(resamples: Resamples) -> WeighedCosts:
    """The costs of each choice, by resample and weighting."""
    front = front_of_sums(
        [
            np.column_stack([a.mean(axis=0), -b.mean(axis=0)])
            for a, b in zip(resamples.latencies, resamples.logits, strict=True)
        ]
    )
    reach = np.ptp(front.costs, axis=0)
    scale = np.where(reach > 0, reach, 1.0)
    angles = (np.arange(_WEIGHTINGS) + 0.5) / _WEIGHTINGS * np.pi / 2
    counts = hypervolume_weights(resamples, scale, angles)[:, None, None]
    tables, spreads = [], []
    for latency, logit in zip(resamples.latencies, resamples.logits, strict=True):
        cost = (
            np.cos(angles)[:, None, None] * (latency / scale[0])[None]
            - np.sin(angles)[:, None, None] * (logit / scale[1])[None]
        )
        spreads.append((cost - cost.mean(axis=2, keepdims=True)).std(axis=1).ravel())
        tables.append((cost * counts).reshape(-1, cost.shape[2]))
    return WeighedCosts(tables=tuple(tables), doubt=float(np.concatenate(spreads).mean()))


def layout(space: Space, share: float) -> Masks:
    """The choices that nothing measured speaks for or against: of each family evenly many, evenly spread by number.

    As many as fit into the share if all groups and families keep equally many; the first and the last are among them.
    Families are listed from small to large, so that these stand for its range.
    """
    found = []
    for slot in space.slots:
        families: dict[str, list[tuple[int, int]]] = {}
        for place, name in enumerate(slot.choices):
            family, number = parse_name(name)
            families.setdefault(family, []).append((number, place))
        marks = np.zeros(len(slot.choices), dtype=bool)
        for members in families.values():
            count = max(1, int(len(members) * share ** (1 / len(space.slots)) * _ROUNDING))
            places = [place for _, place in sorted(members)]
            # Evenly spread in whole numbers, halves rounded up; a single one is the middle.
            steps = max(count - 1, 1)
            for i in range(count):
                at = (2 * i * (len(places) - 1) + steps) // (2 * steps) if count > 1 else (len(places) - 1) // 2
                marks[places[at]] = True
        found.append(marks)
    return tuple(found)


def reduce_choices(costs: WeighedCosts, stay: Masks, *, inertia: float, most: float) -> tuple[Ints, ...]:
    """The choices that each group keeps, so that at most `most` (from 1) networks are left; indices in order.

    `stay` is the layout, and `inertia` how much a departure from it has to save, in the costs' doubt: nothing is paid
    where everything is known.
    """
    price = inertia * costs.doubt
    chains = [_chain(table, marks, price) for table, marks in zip(costs.tables, stay, strict=True)]
    return tuple(
        np.array(sorted(chain[size][1]), dtype=np.intp)
        for chain, size in zip(chains, _sizes(chains, most), strict=True)
    )


_Chain = dict[int, tuple[float, tuple[int, ...]]]


def _chain(costs: Floats, stay: NDArray[np.bool_], price: float) -> _Chain:
    """What is kept of each size and what that loses, from all choices down to one, the cheapest dropped each time."""
    kept = list(range(costs.shape[1]))
    lost = price * float((~stay).sum())
    found: _Chain = {len(kept): (lost, tuple(kept))}
    while len(kept) > 1:
        table = costs[:, kept]
        best = table.argmin(axis=1)
        two = np.partition(table, 1, axis=1)
        gaps = np.bincount(best, weights=two[:, 1] - two[:, 0], minlength=len(kept)) / len(costs)
        gaps += np.where(stay[kept], price, -price)
        place = int(gaps.argmin())
        lost += float(gaps[place])
        kept.pop(place)
        found[len(kept)] = (lost, tuple(kept))
    return found


def _sizes(chains: Sequence[_Chain], most: float) -> list[int]:
    """How many choices each group keeps so that the least is lost: exact, over (networks, loss) undominated so far."""
    states = np.array([[1.0, 0.0]])
    steps: list[tuple[Ints, Ints]] = []
    for chain in chains:
        sizes = np.array(sorted(chain))
        losses = np.array([chain[int(size)][0] for size in sizes])
        networks = (states[:, :1] * sizes).ravel()
        lost = (states[:, 1:] + losses).ravel()
        rows = np.column_stack([np.where(networks <= most * _ROUNDING, networks, np.inf), lost])
        kept = nondominated(rows)
        steps.append((kept // len(sizes), sizes[kept % len(sizes)].astype(np.intp)))
        states = rows[kept]
    place = len(states) - 1  # by rising networks, hence falling loss
    found = []
    for before, taken in reversed(steps):
        found.append(int(taken[place]))
        place = int(before[place])
    return found[::-1]
