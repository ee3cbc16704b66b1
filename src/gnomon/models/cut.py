"""Cut a model into segments: models that, run one after the other, compute what the whole model computes.

The nodes are put into an order in which few tensors are alive at once (`gnomon.models.order`). Constants, and tensors
that are computed from constants only, are never passed between segments: each segment that needs them has its own copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from gnomon.core.graph import Graph, Tensor
from gnomon.errors import ModelError, UsageError
from gnomon.models.model import is_known
from gnomon.models.order import moving_operators, narrow_order, static_operators


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a model as a model of its own: the file `path` computes `outputs` from `inputs`.

    `operators` are the indices, in `Graph.operators`, of the nodes that only this segment contains; `repeated` are the
    indices of the nodes that compute its constants, which other segments may contain too.
    """

    path: Path
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operators: tuple[int, ...]
    repeated: tuple[int, ...]


class Cutter(ABC):
    """Cuts one model at places: place k is before the k-th node of `order`.

    `graph` is the model as `gnomon.models.load` returns it. `order` holds the indices, in `graph.operators`, of the
    nodes that depend on the inputs and contribute to an output; every other node is repeated where it is needed, or
    left out. Place 0 is before all nodes, and place `len(order)` after them.
    """

    def __init__(self, graph: Graph) -> None:
        """Raises ModelError if no node depends on the inputs."""
        self.graph = graph
        self.order: tuple[int, ...] = narrow_order(moving_operators(graph))
        if not self.order:
            raise ModelError("the model computes nothing from its inputs", hint="Give another model.")
        self._static = static_operators(graph)
        self._maker = {t: op.index for op in graph.operators for t in op.outputs}
        # For each tensor that depends on the inputs: the place after its writer, and the place after its last reader.
        self._born = dict.fromkeys(graph.inputs, 0)
        self._last = dict.fromkeys(graph.inputs, 0)
        for place, index in enumerate(self.order):
            operator = graph.operators[index]
            self._last.update((t, place + 1) for t in operator.inputs if t in self._born)
            self._born.update(dict.fromkeys(operator.outputs, place + 1))
            self._last.update(dict.fromkeys(operator.outputs, 0))

    @abstractmethod
    def write(self, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int], dest: Path) -> None:
        """Write these operators, in this order, as a model at `dest` with these inputs and outputs; all are indices.

        Raises ModelError if that is impossible.
        """

    def live(self, place: int) -> tuple[Tensor, ...]:
        """The tensors that are passed on at a place: inputs of the model, and results of earlier nodes, that later
        nodes read.

        A model output that no node after the place reads does not count, because its own segment delivers it. At the
        last place, the live tensors are the model's outputs. Raises UsageError for a place out of range.
        """
        self._check(place, place)
        alive = (t for t, born in self._born.items() if born <= place < self._last[t])
        handed = dict.fromkeys(self.graph.outputs if place == len(self.order) else alive)
        return tuple(self.graph.tensors[t] for t in handed)

    def cut_points(self, max_live: int = 1) -> tuple[int, ...]:
        """The places between the first and the last node where at most `max_live` tensors are passed on.

        Places where a tensor of unknown shape is passed on are left out, because tensors are passed on in buffers of
        fixed size.
        """
        end = len(self.order)
        change, hidden = [0] * (end + 2), [0] * (end + 2)
        for t, born in self._born.items():
            if self._last[t] > born:
                change[born] += 1
                change[self._last[t]] -= 1
                if not is_known(self.graph.tensors[t]):
                    hidden[born] += 1
                    hidden[self._last[t]] -= 1
        counts = enumerate(zip(accumulate(change), accumulate(hidden), strict=True))
        return tuple(p for p, (alive, unknown) in counts if 0 < p < end and alive <= max_live and not unknown)

    def unknown(self) -> Tensor | None:
        """The first tensor that no cut may cross because its shape is unknown."""
        handed = (t for t, born in self._born.items() if self._last[t] > born)
        return next((self.graph.tensors[t] for t in handed if not is_known(self.graph.tensors[t])), None)

    def segment(self, first: int, last: int, dest: Path | str) -> Segment:
        """Write the nodes at the places [first, last) as a model at `dest`.

        Its inputs are the tensors, other than constants, that its nodes read but do not write. Its outputs are those of
        its nodes' results that later nodes read or that the model outputs. An output of the model that depends on no
        input belongs to the last segment; one that *is* an input belongs to no segment. Raises UsageError for places
        out of range or an empty segment, ModelError if the format cannot express such a part.
        """
        self._check(first, last)
        if first >= last:
            raise UsageError(f"a segment from {first} to {last} has no node", hint="Choose first < last.")
        return self.part(range(first, last), dest)

    def part(self, places: Iterable[int], dest: Path | str) -> Segment:
        """Write the nodes at these places as a model at `dest`, as `segment` does; other nodes may lie between them.

        Raises UsageError if places are out of range, or if there are none. Raises ModelError if the format cannot
        express such a part, or if a path between two nodes of the part leads through a node outside it.
        """
        chosen = sorted(set(places))
        if not chosen:
            raise UsageError("a part needs at least one node", hint="Give places in the cutter's order.")
        self._check(chosen[0], chosen[-1] + 1)
        self._check_closed(frozenset(chosen))
        operators = [self.graph.operators[self.order[place]] for place in chosen]
        own = set(self.graph.outputs)
        written = [t for op in operators for t in op.outputs]
        inside = {op.index for op in operators}
        read = dict.fromkeys(t for op in operators for t in op.inputs if t in self._born)
        handed = {t for index in self.order if index not in inside for t in self.graph.operators[index].inputs}
        inputs = [t for t in read if t not in set(written)]
        outputs = [t for t in written if t in handed or t in own]
        if chosen[-1] + 1 == len(self.order):
            outputs += [t for t in dict.fromkeys(self.graph.outputs) if t not in self._born]
        # The static nodes from which these tensors follow, in the file's order.
        pending, makers = [*(t for op in operators for t in op.inputs), *outputs], set[int]()
        while pending:
            maker = self._maker.get(pending.pop())
            if maker in self._static and maker not in makers:
                makers.add(maker)
                pending.extend(self.graph.operators[maker].inputs)
        repeated = tuple(sorted(makers))
        dest = Path(dest)
        self.write([*repeated, *(op.index for op in operators)], inputs, outputs, dest)
        return Segment(
            path=dest,
            inputs=tuple(self.graph.tensors[t] for t in inputs),
            outputs=tuple(self.graph.tensors[t] for t in outputs),
            operators=tuple(op.index for op in operators),
            repeated=repeated,
        )

    def _check_closed(self, chosen: frozenset[int]) -> None:
        """Raise ModelError if a path leads out of these places and back into them."""
        own: set[int] = set()
        left: set[int] = set()
        for place in range(min(chosen), max(chosen) + 1):
            operator = self.graph.operators[self.order[place]]
            beyond = not left.isdisjoint(operator.inputs)
            if place in chosen:
                if beyond:
                    raise ModelError(
                        f"{operator.name!r} needs the result of a node outside the part that in turn depends on it",
                        hint="Add the nodes between them to the part.",
                    )
                own.update(operator.outputs)
            elif beyond or not own.isdisjoint(operator.inputs):
                left.update(operator.outputs)

    def _check(self, first: int, last: int) -> None:
        if not 0 <= first <= last <= len(self.order):
            raise UsageError(
                f"the places {first} and {last} are not both within 0 to {len(self.order)}",
                hint="Give places in the cutter's order: 0 is before the first node, the last after the last node.",
            )
