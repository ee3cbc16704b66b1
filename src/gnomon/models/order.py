"""The nodes of a graph that depend on its inputs, in an order in which few tensors are alive at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

from gnomon.core.graph import Graph, Operator

RANDOM_TYPES = frozenset(
    {
        "Bernoulli",
        "Dropout",  # in training, which an input turns on
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Operators of ONNX whose results may differ from run to run: they are never constant, not even with constant inputs.
"""


def static_operators(graph: Graph) -> frozenset[int]:
    """Indices of the operators that compute the same results for any inputs, because they read only constants."""
    constant = {i for i, tensor in enumerate(graph.tensors) if tensor.constant}
    static = set()
    for operator in graph.operators:
        if operator.type not in RANDOM_TYPES and constant.issuperset(operator.inputs):
            static.add(operator.index)
            constant.update(operator.outputs)
    return frozenset(static)


def moving_operators(graph: Graph) -> tuple[Operator, ...]:
    """The operators that depend on the inputs and contribute to an output, in the file's order."""
    static = static_operators(graph)
    needed = set(graph.outputs)
    moving = []
    for operator in reversed(graph.operators):
        if operator.index not in static and needed.intersection(operator.outputs):
            needed.update(operator.inputs)
            moving.append(operator)
    return tuple(reversed(moving))


def narrow_order(operators: Sequence[Operator]) -> tuple[int, ...]:
    """The operators' indices in a topological order in which few tensors are alive at once.

    This is the better of two orders: the given one, which is topological, and a greedy one, which always takes next the
    operator after which the fewest tensors are alive (among equal ones, the earliest). The better order has the smaller
    number of tensors alive, summed over all places; the given order wins a tie.
    """
    given = tuple(operator.index for operator in operators)
    by_index = {operator.index: operator for operator in operators}
    greedy = _greedy(operators)
    width = [sum(live_counts([by_index[i] for i in order])) for order in (given, greedy)]
    return greedy if width[1] < width[0] else given


def live_counts(operators: Sequence[Operator]) -> list[int]:
    """The number of tensors written by these operators that are read later, after each operator in turn."""
    last = {t: place for place, operator in enumerate(operators) for t in operator.inputs}
    change = [0] * (len(operators) + 1)
    for place, operator in enumerate(operators):
        for t in operator.outputs:
            if last.get(t, -1) > place:
                change[place] += 1
                change[last[t]] -= 1
    return list(accumulate(change[:-1]))


def _greedy(operators: Sequence[Operator]) -> tuple[int, ...]:
    written = {t for operator in operators for t in operator.outputs}
    readers = Counter(t for operator in operators for t in _own_inputs(operator, written))
    waiting = {operator.index: len(_own_inputs(operator, written)) for operator in operators}
    consumers: dict[int, list[Operator]] = {}
    for operator in operators:
        for t in _own_inputs(operator, written):
            consumers.setdefault(t, []).append(operator)
    ready = {operator.index: operator for operator in operators if not waiting[operator.index]}

    def growth(operator: Operator) -> int:
        """The number of an operator's results that are read, minus the number of tensors it is the last to read."""
        freed = sum(1 for t in _own_inputs(operator, written) if readers[t] == 1)
        return sum(1 for t in operator.outputs if readers[t]) - freed

    order: list[int] = []
    while ready:
        index = min(ready, key=lambda i: (growth(ready[i]), i))
        operator = ready.pop(index)
        order.append(index)
        for t in _own_inputs(operator, written):
            readers[t] -= 1
        for t in operator.outputs:
            for consumer in consumers.get(t, ()):
                waiting[consumer.index] -= 1
                if not waiting[consumer.index]:
                    ready[consumer.index] = consumer
    return tuple(order)


def _own_inputs(operator: Operator, written: Iterable[int]) -> set[int]:
    return set(operator.inputs).intersection(written)
