"""NAS-Bench-201's architecture strings, which gnomon reads."""

from __future__ import annotations

from gnomon.spaces.catalogue.nasbench201 import EDGES, OPERATIONS
from gnomon.spaces.features import Assignment


def architecture(assignment: Assignment) -> str:
    """The architecture string of an assignment."""
    nodes = []
    for target in (1, 2, 3):
        words = [
            f"{OPERATIONS[int(choice)]}~{source}"
            for (source, end), choice in zip(EDGES, assignment, strict=True)
            if end == target
        ]
        nodes.append("|" + "|".join(words) + "|")
    return "+".join(nodes)
