"""The plan of the elimination that computes a front: a bucket for each slot, in an order that sweeps through the graph.

The order of least fill-in gives a tree of cliques. Any clique may come last. The plan takes one at an end of a longest
path, so that nearly all buckets receive one large set of labels, which they extend, and otherwise only small sets. The
widths do not change (Dechter, "Bucket elimination", 1999; Bodlaender and Koster, "Treewidth computations I", 2010).

`minimise_weighted` and `beyond` find the least weighted sums under many weightings at once, along a plan. A pass from
the first bucket to the last gives, for each bucket, the least weighted cost of everything that is decided up to this
bucket, given its ring. A second pass back gives the least cost of everything else, given the ring. Together they give
the least cost of any complete assignment with this ring (Shafer and Shenoy, "Probability propagation", 1990, in the
min-sum algebra).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import CostModel, Floats, Ints, add_pair
from gnomon.core.solver.ordering import Limits, best_order

_LABELS_A_SLOT = 4.0

_Tree = list[set[int]]
Pairs = dict[tuple[int, int], Floats]


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """One slot, or several similar and independent slots, each eliminated given its later neighbours, the ring.

    `states` counts the joint choices of the rings, slot by slot, where the last slot of a ring varies fastest; `size`
    is the number of choices of each slot itself. The rows of `terms` (states * size, objectives) are the costs that are
    decided here, in an order in which the slot's own choice varies fastest; +inf in all objectives forbids a row.
    `children` are earlier buckets whose results are added up here: `states_of[i]` (states * size,) has, for each row,
    the state of child i that belongs to it.
    """

    slots: Ints
    states: int
    size: int
    terms: Floats
    children: tuple[int, ...]
    states_of: tuple[Ints, ...]

    @cached_property
    def closed(self) -> Ints:
        """The indices of the forbidden rows."""
        return np.flatnonzero(np.isinf(self.terms[:, 0]))

    @cached_property
    def finite(self) -> Floats:
        """The terms, with 0 in the forbidden rows."""
        finite = self.terms.copy() if len(self.closed) else self.terms
        finite[self.closed] = 0.0
        return finite

    @cached_property
    def by_state(self) -> tuple[Ints, ...]:
        """For each child, an array with a column for each of its states: the rows with this state."""
        tables: list[Ints] = []
        for states in self.states_of:
            order = np.argsort(states, kind="stable").astype(np.int32)
            each = np.searchsorted(states, states[order[0]], side="right", sorter=order)
            tables.append(np.ascontiguousarray(order.reshape(-1, each).T))
        return tuple(tables)

    @property
    def each(self) -> int:
        """The number of states of one slot's ring."""
        return self.states // len(self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All buckets in order of elimination; the last one has one slot without a ring. `entries` counts the rows of all
    buckets.

    `barred` (slots, choices, regions), if given, is +inf for choices that a region does not have.
    """

    buckets: tuple[Bucket, ...]
    entries: int
    barred: Floats | None = None

    def forbidding(self, choices: Sequence[tuple[int, int]]) -> Plan:
        """The plan without some choices, given as (slot, choice)."""
        places: dict[int, list[int]] = {}
        for slot, choice in choices:
            places.setdefault(slot, []).append(choice)
        buckets = []
        for b in self.buckets:
            terms = b.terms
            for member, slot in enumerate(b.slots.tolist()):
                if slot in places:
                    terms = terms.copy()
                    terms.reshape(len(b.slots), b.each, b.size, -1)[member][:, places[slot]] = np.inf
            buckets.append(replace(b, terms=terms))
        return replace(self, buckets=tuple(buckets))

    def barring(self, kept: NDArray[np.bool_]) -> Plan:
        """The plan for several regions, each with only its kept choices: (regions, slots, choices)."""
        return replace(self, barred=np.ascontiguousarray(np.where(kept, 0.0, np.inf).transpose(1, 2, 0)))

    def weighed(self, bucket: Bucket, weights: Floats) -> Floats:
        """A bucket's terms (rows, W) under weightings (W, objectives), +inf if forbidden.

        Each region has the same number of weightings.
        """
        costs = np.asarray(bucket.finite @ weights.T)
        costs[bucket.closed] = np.inf
        if self.barred is not None:
            barred = self.barred[bucket.slots, : bucket.size]
            slots, size, regions = barred.shape
            shape = (slots, bucket.each, size, regions, len(weights) // regions)
            costs.reshape(shape)[...] += barred[:, None, :, :, None]
        return costs

    def assignments(self, rows: Sequence[Ints], links: Sequence[tuple[Ints, ...]], chosen: Ints) -> Ints:
        """The assignments (N, slots) that the last bucket's labels with the indices `chosen` (N,) stand for.

        `rows` has the row of each label of each bucket, and `links` has the indices of the children's labels.
        """
        taken = np.zeros((len(chosen), sum(len(b.slots) for b in self.buckets)), dtype=np.intp)
        at: dict[int, list[tuple[Ints, Ints]]] = {len(self.buckets) - 1: [(np.arange(len(chosen)), chosen)]}
        for number in range(len(self.buckets) - 1, -1, -1):
            bucket = self.buckets[number]
            for owner, index in at.pop(number, []):
                state, choice = np.divmod(rows[number][index], bucket.size)
                taken[owner, bucket.slots[state // bucket.each]] = choice
                for child, link in zip(bucket.children, links[number], strict=True):
                    at.setdefault(child, []).append((owner, link[index]))
        return taken

    def gathered(self) -> Plan:
        """The same plan with similar slots in one bucket: slots with equal numbers of states and choices, and similar
        children."""
        level: list[int] = []
        groups: dict[tuple[object, ...], list[int]] = {}
        key_of: list[tuple[object, ...]] = []
        for number, b in enumerate(self.buckets):
            level.append(1 + max((level[c] for c in b.children), default=0))
            key = (level[-1], b.states, b.size, tuple(sorted(hash(key_of[c]) for c in b.children)))
            key_of.append(key)
            groups.setdefault(key, []).append(number)
        ordered = sorted(groups.values(), key=lambda group: level[group[0]])
        place = {n: (g, m) for g, group in enumerate(ordered) for m, n in enumerate(group)}
        buckets = []
        for group in ordered:
            members = [self.buckets[number] for number in group]
            columns = list(zip(*(self._children_by(b, place) for b in members), strict=True))
            buckets.append(
                Bucket(
                    slots=np.concatenate([b.slots for b in members]),
                    states=sum(b.states for b in members),
                    size=members[0].size,
                    terms=np.concatenate([b.terms for b in members]),
                    children=tuple(column[0][0] for column in columns),
                    states_of=tuple(np.concatenate([states for _, states in column]) for column in columns),
                )
            )
        return replace(self, buckets=tuple(buckets))

    def _children_by(self, bucket: Bucket, place: Mapping[int, tuple[int, int]]) -> list[tuple[int, Ints]]:
        """The new bucket of each child, in order, and the child's states there."""
        children = []
        for child, states in zip(bucket.children, bucket.states_of, strict=True):
            number, member = place[child]
            children.append((number, states + member * self.buckets[child].states))
        return sorted(children, key=lambda child: child[0])


def plan_of(unary: Sequence[Floats], pairs: Pairs, limits: Limits, *, wide: bool = False) -> Plan | None:
    """The plan for costs (choices, objectives) of slots and (choices, choices, objectives) of pairs, lower slot first.

    None if its tables would exceed the limits.

    A `wide` plan has few large buckets: slots with at most two neighbours are eliminated in rounds, and the slots of a
    round are not neighbours, so that a chain of n slots takes about log2(n) rounds.
    """
    sizes = [len(costs) for costs in unary]
    around: dict[int, set[int]] = {v: set() for v in range(len(sizes))}
    for i, j in pairs:
        around[i].add(j)
        around[j].add(i)
    first, rest = _rounds(around) if wide else ([], around)
    order = best_order(rest, sizes, limits)
    if order is None:
        return None
    if wide:
        return _buckets(unary, pairs, around, first + [slot for slot, _ in order.steps]).gathered()
    return _buckets(unary, pairs, around, _swept(order.steps, sizes))


def _rounds(around: Mapping[int, set[int]]) -> tuple[list[int], dict[int, set[int]]]:
    """The slots eliminated in rounds, and the remaining graph.

    A round has slots with at most two neighbours; no two of these slots are neighbours of each other.
    """
    graph = {slot: set(ring) for slot, ring in around.items()}
    order: list[int] = []
    pending = list(graph)
    while pending:
        taken, near = [], set[int]()
        for slot in pending:
            if len(graph[slot]) <= 2 and slot not in near:
                taken.append(slot)
                near |= graph[slot]
        pending = sorted(near | {slot for slot in pending if slot in near})
        for slot in taken:
            ring = graph.pop(slot)
            for other in ring:
                graph[other] = (graph[other] | ring) - {other, slot}
        order += taken
        pending = [slot for slot in pending if slot in graph and len(graph[slot]) <= 2]
    return order, graph


def is_narrow(count: int, ends: Ints) -> bool:
    """Return True if rounds eliminate the whole graph of `count` slots with pairs between these `ends` (pairs, 2)."""
    around: dict[int, set[int]] = {slot: set() for slot in range(count)}
    for i, j in ends.tolist():
        around[i].add(j)
        around[j].add(i)
    return not _rounds(around)[1]


def joint_pairs(model: CostModel) -> Pairs:
    """The table of each pair of slots, lower slot first; tables of zeros are left out."""
    tables: Pairs = {}
    for group in model.pair_groups:
        for (i, j), table in zip(group.members.tolist(), group.tables, strict=True):
            if table.any():
                add_pair(tables, i, j, table)
    return tables


def _swept(steps: Sequence[tuple[int, tuple[int, ...]]], sizes: Sequence[int]) -> list[int]:
    """The order of elimination with the root of the clique tree at the cheaper end of a longest path."""
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
    for top in tops:  # unconnected parts are joined end to end
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
    """An estimate, up to a constant factor, of the number of sums, if sets grow with the slots eliminated."""
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
    """The node farthest from the start within its connected part; among several, the one reached first."""
    seen, level, last = {start}, [start], start
    while level:
        last = level[0]
        fresh = []
        for node in level:
            for other in sorted(tree[node]):
                if other not in seen:
                    seen.add(other)
                    fresh.append(other)
        level = fresh
    return last


def _postorder(tree: _Tree, root: int) -> list[tuple[int, int | None]]:
    nodes: list[tuple[int, int | None]] = []
    stack: list[tuple[int, int | None]] = [(root, None)]
    while stack:
        node, parent = stack.pop()
        nodes.append((node, parent))
        stack.extend((other, node) for other in sorted(tree[node]) if other != parent)
    return nodes[::-1]


def _buckets(unary: Sequence[Floats], pairs: Pairs, graph: dict[int, set[int]], order: list[int]) -> Plan:
    position = {v: p for p, v in enumerate(order)}
    sizes = [len(costs) for costs in unary]
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
        terms = _terms(unary[v], pairs, scope, shape, [u for u in graph[v] if position[u] > p])
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
                slots=np.array([v]),
                states=states,
                size=shape[-1],
                terms=terms,
                children=tuple(children[p]),
                states_of=tuple(states_of),
            )
        )
    return Plan(buckets=tuple(buckets), entries=sum(b.states * b.size for b in buckets))


def _terms(
    costs: Floats, pairs: Pairs, scope: tuple[int, ...], shape: tuple[int, ...], neighbours: list[int]
) -> Floats:
    """The costs of the scope's last slot, and of its pairs with neighbours in the scope, over the whole scope."""
    v, count = scope[-1], costs.shape[-1]
    terms = np.zeros((*shape, count)) + costs
    for u in sorted(neighbours):
        table = pairs[u, v] if u < v else pairs[v, u].swapaxes(0, 1)
        place = scope.index(u)
        terms += table.reshape((*[1] * place, shape[place], *[1] * (len(shape) - place - 2), shape[-1], count))
    terms = terms.reshape(-1, count)
    terms[np.isinf(terms).any(axis=1)] = np.inf
    return terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Minima:
    """The minima of W weightings: `value` (W,), +inf if nothing is allowed, and `up[b]` (states of bucket b, W).

    `up[b]` is the least weighted cost of everything that is decided up to bucket b.
    """

    weights: Floats
    value: Floats
    up: tuple[Floats, ...]


def minimise_weighted(plan: Plan, weights: Floats) -> tuple[Minima, Ints]:
    """The minima under weightings (W, objectives), and an assignment (W, slots) that reaches each."""
    up: list[Floats] = []
    totals: list[Floats] = []
    for bucket in plan.buckets:
        total = plan.weighed(bucket, weights)
        for child, states in zip(bucket.children, bucket.states_of, strict=True):
            total += up[child].take(states, axis=0)  # up to four times as fast as an index
        total = total.reshape(bucket.states, bucket.size, -1)
        best: Floats = total[:, 0].copy()
        for a in range(1, bucket.size):
            np.minimum(best, total[:, a], out=best)
        up.append(best)
        totals.append(total)
    count = len(weights)
    assignment = np.zeros((count, sum(len(b.slots) for b in plan.buckets)), dtype=np.intp)
    states_at = [np.zeros((len(b.slots), count), dtype=np.intp) for b in plan.buckets]
    row = np.arange(count)
    for bucket, total, state in zip(reversed(plan.buckets), reversed(totals), reversed(states_at), strict=True):
        choice = total[state, :, row].argmin(axis=-1)
        assignment[:, bucket.slots] = choice.T
        for child, states in zip(bucket.children, bucket.states_of, strict=True):
            below = states[state * bucket.size + choice]
            states_at[child][below // plan.buckets[child].each, row] = below
    value = up[-1][0] if up else np.zeros(count)
    return Minima(weights=weights, value=value, up=tuple(up)), assignment


def beyond(plan: Plan, minima: Minima) -> list[Floats]:
    """For each bucket, the least weighted cost (states, W) of everything not decided up to it, given its ring."""
    least = [np.full((b.states, len(minima.weights)), np.inf) for b in plan.buckets]
    if plan.buckets:
        least[-1] = np.zeros((1, len(minima.weights)))
    for bucket, above in zip(reversed(plan.buckets), reversed(least), strict=True):
        if not bucket.children:
            continue
        rest = plan.weighed(bucket, minima.weights)
        rest += np.repeat(above, bucket.size, axis=0)
        ups = [minima.up[c].take(s, axis=0) for c, s in zip(bucket.children, bucket.states_of, strict=True)]
        later = list(accumulate(reversed(ups[1:]), np.add))[::-1]
        for i, (child, order) in enumerate(zip(bucket.children, bucket.by_state, strict=True)):
            total = rest + later[i] if i < len(later) else rest
            rest = rest + ups[i]
            least[child][bucket.states_of[i][order[0]]] = total.take(order, axis=0).min(axis=0)
    return least
