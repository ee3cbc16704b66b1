"""Lowers an exported PyTorch program for ExecuTorch, with exactly the requested operators tagged for XNNPACK.

    python -m gnomon.agent.drivers.executorch.lower PACKAGE/plan.json model.pte

writes the program of a placement that gnomon packed, for devices without PyTorch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from typing import Any, NamedTuple

from ...driver import Refused, refusing
from ...kept import made_of
from ..pt2 import load_program, operators_of

PORTABLE, XNNPACK = "portable", "XnnpackBackend"
_KEPT = "lowered"


class Lowered(NamedTuple):
    """A lowered program: its bytes and, for each instruction, the .pt2's operators that it computes, with their
    backend.

    `operators` is the number of operators of the .pt2, and `taken` are those assigned to XNNPACK.
    """

    buffer: bytes
    operators: int
    taken: list[int]
    instructions: dict[int, tuple[list[int], str]]


def lower(path: str, wanted: Collection[int] | None) -> Lowered:
    """The program with the `wanted` operators on XNNPACK (None: all that XNNPACK takes). Refused if that fails."""
    program = load_program(path)
    names = operators_of(program.graph)
    with refusing(f"ExecuTorch cannot lower {os.path.basename(path)}: ", most=300):
        lowered, tagger = _lowered(program, names, wanted)
        executable = lowered.to_executorch()
    if wanted is not None and tagger.taken != set(wanted):
        unlike = tagger.taken ^ set(wanted)
        operators = ", ".join(name for name, index in names.items() if index in unlike)
        raise Refused(f"ExecuTorch's partitioner did not give XNNPACK the requested operators; different: {operators}")
    delegates = executable.delegate_map.get("forward", {})
    instructions = {}
    for number, handles in executable.debug_handle_map.get("forward", {}).items():
        own = [handles] if isinstance(handles, int) else handles
        sources = sorted({index for handle in own for index in tagger.sources.get(handle, ())})
        instructions[number] = sources, delegates[number]["name"] if number in delegates else PORTABLE
    return Lowered(executable.buffer, len(names), sorted(tagger.taken), instructions)


def lower_once(path: str, wanted: Collection[int] | None) -> Lowered:
    """The result of `lower`, kept for later processes."""

    def make(folder: str) -> None:
        lowered = lower(path, wanted)
        head = [lowered.operators, lowered.taken, [[number, *row] for number, row in lowered.instructions.items()]]
        with open(os.path.join(folder, _KEPT), "wb") as target:
            target.write(json.dumps(head).encode() + b"\n" + lowered.buffer)

    said = ["executorch", None if wanted is None else sorted(wanted)]
    with made_of(path, said, make) as folder, open(os.path.join(folder, _KEPT), "rb") as file:
        count, taken, rows = json.loads(file.readline())
        instructions = {number: (sources, backend) for number, sources, backend in rows}
        return Lowered(file.read(), count, taken, instructions)


def _lowered(program: Any, names: dict[str, int], wanted: Collection[int] | None) -> tuple[Any, Any]:
    """The edge program, and the partitioner that tagged it."""
    from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    def requested(node: Any) -> bool:
        return wanted is None or node.op != "call_function" or _sources(node, names) <= set(wanted)

    def within(config: Any) -> Any:
        class Within(config):  # type: ignore[misc]
            """XNNPACK's own rule for a kind of operator, applied only to the requested operators, not to an activation
            that follows one of them.
            """

            def check_constraints(self, node: Any, ep: Any) -> bool:
                return requested(node) and bool(super().check_constraints(node, ep))

            def get_partition(self, node: Any, ep: Any) -> list[Any]:
                return [partition for partition in super().get_partition(node, ep) if requested(partition)]

        return Within

    class Tagger(XnnpackPartitioner):  # type: ignore[misc]
        """XNNPACK's partitioner; it also records the tagged operators, and which operators of the file each node comes
        from.
        """

        def __init__(self) -> None:
            super().__init__(configs=[within(config) for config in ALL_PARTITIONER_CONFIGS])
            self.sources: dict[int, set[int]] = {}
            self.taken: set[int] = set()

        def partition(self, exported_program: Any) -> Any:
            result = super().partition(exported_program)
            for node in result.tagged_exported_program.graph.nodes:
                if node.op == "call_function":
                    own = _sources(node, names)
                    self.sources.setdefault(node.meta.get("debug_handle"), set()).update(own)
                    self.taken |= own if "delegation_tag" in node.meta else set()
            return result

    tagger = Tagger()
    return to_edge_transform_and_lower(program, partitioner=[tagger]), tagger


def _sources(node: Any, names: dict[str, int]) -> set[int]:
    """The operators of the file that a node of the lowered graph comes from."""
    operators: set[int] = set()
    pending = list(node.meta.get("from_node", ()))
    while pending:
        source = pending.pop()
        pending += source.from_node or ()
        if not source.from_node and source.name in names:
            operators.add(names[source.name])
    return operators


def main(plan: str, target: str) -> int:
    """Write the program that a package's plan runs; return 0."""
    with open(plan, encoding="utf-8") as file:
        segment = json.load(file)["job"]["segments"][0]
    lowered = lower(os.path.join(os.path.dirname(plan), segment["model"]), segment["options"]["xnnpack"])
    with open(target, "wb") as file_:
        file_.write(lowered.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
