"""The elimination that a front is computed along: a bucket a slot, in an order that sweeps through the graph.

The order of least fill-in gives a tree of cliques. Any of its cliques may be the last one; it is taken at an end of a
longest path, so that nearly all buckets get one large set of labels, which they extend, and small ones beside it. The
widths stay as they were (Dechter, "Bucket elimination", 1999; Bodlaender and Koster, "Treewidth computations I", 2010).

Least weighted sums of many weightings at once, along a plan: from below, and of what lies beyond each bucket.

One pass from the first bucket to the last gives, for each bucket, the least weighted cost of all that is decided up to
it, given its ring; a second pass back gives the least cost of all the rest, given the ring. Their sum is the
least cost of any complete assignment (Shafer and Shenoy, "Probability propagation", 1990, in the min-sum algebra).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from gnomon.core.cost import CostModel, Floats, Ints
from gnomon.core.solver.ordering import Limits, best_order

_LABELS_A_SLOT = 4.0

_Tree = list[set[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A slot, eliminated given its later neighbours, the ring.

    `states` counts the joint choices of the ring, the last slot of it fastest; `size` the slot's own choices. The
    rows of `terms` (states * size, objectives) are the costs that are decided here, the own choice fastest; +inf
    in all objectives of a row forbids it. `children` are earlier buckets whose results are added up here:
    `states_of[i]` (states * size,) is the state of child i that goes with each row.
    """

    slot: int
    ring: tuple[int, ...]
    states: int
    size: int
    terms: Floats
    children: tuple[int, ...]
    states_of: tuple[Ints, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All buckets in order of elimination; the last one has no ring. `entries` are the rows of all."""

    buckets: tuple[Bucket, ...]
    entries: int

    def forbidding(self, choices: Sequence[tuple[int, int]]) -> Plan:
        """The plan without some choices, given as (slot, choice)."""
        places: dict[int, list[int]] = {}
        for slot, choice in choices:
            places.setdefault(slot, []).append(choice)
        buckets = []
        for b in self.buckets:
            if b.slot in places:
                terms = b.terms.copy()
                terms.reshape(b.states, b.size, -1)[:, places[b.slot]] = np.inf
                b = replace(b, terms=terms)
            buckets.append(b)
        return replace(self, buckets=tuple(buckets))

    def assignments(self, choices: Sequence[Ints], links: Sequence[tuple[Ints, ...]], chosen: Ints) -> Ints:
        """The assignments (N, slots) that labels of the last bucket stand for, by number.

        Of each bucket and label there, `choices` are the slot's own and `links` the numbers of the children's labels.
        """
        found = np.zeros((len(chosen), len(self.buckets)), dtype=np.intp)
        at = {len(self.buckets) - 1: chosen}
        for number in range(len(self.buckets) - 1, -1, -1):
            bucket, index = self.buckets[number], at.pop(number)
            found[:, bucket.slot] = choices[number][index]
            at |= {child: link[index] for child, link in zip(bucket.children, links[number], strict=True)}
        return found


def make_plan(model: CostModel, limits: Limits) -> Plan | None:
    """The plan of a model, charges left out, or None where its tables would exceed the limits."""
    sizes = [len(slot.choices) for slot in model.space.slots]
    pairs = _joint_pairs(model)
    around: dict[int, set[int]] = {v: set() for v in range(len(sizes))}
    for i, j in pairs:
        around[i].add(j)
        around[j].add(i)
    found = best_order(around, sizes, limits)
    if found is None:
        return None
    return _buckets(model, pairs, around, _swept(found.steps, sizes))


def _joint_pairs(model: CostModel) -> dict[tuple[int, int], Floats]:
    """The table of each pair of slots, lower slot first; all-zero ones left out."""
    found: dict[tuple[int, int], Floats] = {}
    for group in model.pair_groups:
        for (i, j), table in zip(group.members.tolist(), group.tables, strict=True):
            if table.any():
                key, oriented = ((i, j), table) if i < j else ((j, i), table.swapaxes(0, 1))
                known = found.get(key)
                found[key] = oriented if known is None else known + oriented
    return found


def _swept(steps: Sequence[tuple[int, tuple[int, ...]]], sizes: Sequence[int]) -> list[int]:
    """The order of elimination with the tree of cliques hung up at that end of a longest path that costs less."""
    position = {v: p for p, (v, _) in enumerate(steps)}
    tree: _Tree = [set() for _ in steps]
    tops = []
    for p, (_, ring) in enumerate(steps):
        if ring:
            parent = min(position[u] for u in ring)
            tree[p].add(parent)
            tree[parent].add(p)
        else:
            tops.append(p)
    last: int | None = None
    for top in tops:  # parts that nothing joins are strung together, end to end
        start = _farthest(tree, top)
        end = _farthest(tree, start)
        if last is not None:
            tree[last].add(start)
            tree[start].add(last)
        last = end
    if last is None:
        return []
    cliques = [{v, *ring} for v, ring in steps]
    rows = [math.prod(sizes[u] for u in clique) for clique in cliques]
    roots = (last, _farthest(tree, last))
    root = min(roots, key=lambda r: _effort(_postorder(tree, r), cliques, rows))
    order: list[int] = []
    for node, next_node in _postorder(tree, root):
        above: set[int] = cliques[next_node] if next_node is not None else set()
        order += sorted(cliques[node] - above, key=position.__getitem__)
    return order


def _effort(nodes: list[tuple[int, int | None]], cliques: list[set[int]], rows: list[int]) -> float:
    """An estimate of the sums to be formed: sets have as many labels as slots were eliminated, times a constant."""
    below: dict[int, list[int]] = {}
    total = 0.0
    for node, parent in nodes:
        parts = sorted(below.pop(node, []))
        size = sum(parts) + len(cliques[node] - (cliques[parent] if parent is not None else set()))
        total += rows[node] * (size + sum(a * b for a, b in pairwise(parts)) * _LABELS_A_SLOT)
        if parent is not None:
            below.setdefault(parent, []).append(size)
    return total


def _farthest(tree: _Tree, start: int) -> int:
    """The node most steps away within the part of the start; of several the one reached first."""
    seen, level, found = {start}, [start], start
    while level:
        found = level[0]
        fresh = []
        for node in level:
            for other in sorted(tree[node]):
                if other not in seen:
                    seen.add(other)
                    fresh.append(other)
        level = fresh
    return found


def _postorder(tree: _Tree, root: int) -> list[tuple[int, int | None]]:
    found: list[tuple[int, int | None]] = []
    stack: list[tuple[int, int | None]] = [(root, None)]
    while stack:
        node, parent = stack.pop()
        found.append((node, parent))
        stack.extend((other, node) for other in sorted(tree[node]) if other != parent)
    return found[::-1]


def _buckets(
    model: CostModel, pairs: dict[tuple[int, int], Floats], graph: dict[int, set[int]], order: list[int]
) -> Plan:
    position = {v: p for p, v in enumerate(order)}
    sizes = [len(slot.choices) for slot in model.space.slots]
    scopes: list[set[int]] = [{u for u in graph[v] if position[u] > p} for p, v in enumerate(order)]
    children: list[list[int]] = [[] for _ in order]
    rings: list[tuple[int, ...]] = []
    buckets: list[Bucket] = []
    for p, v in enumerate(order):
        ring = tuple(sorted(scopes[p], key=position.__getitem__, reverse=True))
        rings.append(ring)
        if p + 1 < len(order):
            parent = position[ring[-1]] if ring else p + 1
            children[parent].append(p)
            scopes[parent].update(u for u in ring if u != order[parent])
        scope = (*ring, v)
        shape = tuple(sizes[u] for u in scope)
        terms = _terms(model, pairs, scope, shape, [u for u in graph[v] if position[u] > p])
        numbers = np.indices(shape).reshape(len(shape), -1) if children[p] else None
        states_of = []
        for child in children[p]:
            assert numbers is not None  # noqa: S101 - for the type checker: there are children
            state = np.zeros(numbers.shape[1], dtype=np.intp)
            for u in rings[child]:
                state = state * sizes[u] + numbers[scope.index(u)]
            states_of.append(state)
        states = math.prod(shape[:-1])
        buckets.append(
            Bucket(
                slot=v,
                ring=ring,
                states=states,
                size=shape[-1],
                terms=terms,
                children=tuple(children[p]),
                states_of=tuple(states_of),
            )
        )
    return Plan(buckets=tuple(buckets), entries=sum(b.states * b.size for b in buckets))


def _terms(
    model: CostModel,
    pairs: dict[tuple[int, int], Floats],
    scope: tuple[int, ...],
    shape: tuple[int, ...],
    neighbours: list[int],
) -> Floats:
    """Costs of the scope's last slot, and of its pairs with neighbours in the scope, over the whole scope."""
    v, count = scope[-1], len(model.objectives)
    terms = np.zeros((*shape, count)) + model.slot_costs[v]
    for u in sorted(neighbours):
        table = pairs[u, v] if u < v else pairs[v, u].swapaxes(0, 1)
        place = scope.index(u)
        terms += table.reshape((*[1] * place, shape[place], *[1] * (len(shape) - place - 2), shape[-1], count))
    terms = terms.reshape(-1, count)
    terms[np.isinf(terms).any(axis=1)] = np.inf
    return terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Minima:
    """Of W weightings: `value` (W,), +inf where nothing is allowed, and `up[b]` (states of bucket b, W)."""

    weights: Floats
    value: Floats
    up: tuple[Floats, ...]


def weighed(bucket: Bucket, weights: Floats) -> Floats:
    """The bucket's terms under weightings (W, objectives), shape (rows, W); forbidden rows are +inf."""
    forbidden = np.isinf(bucket.terms[:, 0])
    if not forbidden.any():
        return np.asarray(bucket.terms @ weights.T)
    found: Floats = np.where(forbidden[:, None], 0.0, bucket.terms) @ weights.T
    found[forbidden] = np.inf
    return found


def minimise_weighted(plan: Plan, weights: Floats) -> tuple[Minima, Ints]:
    """The minima under weightings (W, objectives), and an assignment (W, slots) that reaches each."""
    up: list[Floats] = []
    choices: list[Ints] = []
    for bucket in plan.buckets:
        total = weighed(bucket, weights)
        for child, states in zip(bucket.children, bucket.states_of, strict=True):
            total += up[child][states]
        total = total.reshape(bucket.states, bucket.size, -1)
        best: Floats = total[:, 0].copy()
        choice: Ints = np.zeros(best.shape, dtype=np.int32)
        for a in range(1, bucket.size):
            better = total[:, a] < best
            choice[better] = a
            np.minimum(best, total[:, a], out=best)
        up.append(best)
        choices.append(choice)
    count = len(weights)
    assignment = np.zeros((count, len(plan.buckets)), dtype=np.intp)
    sizes = {b.slot: b.size for b in plan.buckets}
    row = np.arange(count)
    for bucket, taken in zip(reversed(plan.buckets), reversed(choices), strict=True):
        state = np.zeros(count, dtype=np.intp)
        for u in bucket.ring:
            state = state * sizes[u] + assignment[:, u]
        assignment[:, bucket.slot] = taken[state, row]
    value = up[-1][0] if up else np.zeros(count)
    return Minima(weights=weights, value=value, up=tuple(up)), assignment


def beyond(plan: Plan, minima: Minima) -> list[Floats]:
    """For each bucket the least weighted cost of all that is not decided up to it, given its ring: (states, W)."""
    found: list[Floats | None] = [None] * len(plan.buckets)
    if plan.buckets:
        found[-1] = np.zeros((1, len(minima.weights)))
    for number in range(len(plan.buckets) - 1, -1, -1):
        bucket, above = plan.buckets[number], found[number]
        if not bucket.children or above is None:
            continue
        rest = weighed(bucket, minima.weights)
        rest += np.repeat(above, bucket.size, axis=0)
        ups = [minima.up[c][s] for c, s in zip(bucket.children, bucket.states_of, strict=True)]
        for i, (child, states) in enumerate(zip(bucket.children, bucket.states_of, strict=True)):
            total = rest
            for j, other in enumerate(ups):
                if j != i:
                    total = total + other
            count = plan.buckets[child].states
            order = np.argsort(states, kind="stable")
            found[child] = total[order].reshape(count, -1, total.shape[1]).min(axis=1)
    return [part for part in found if part is not None]
