"""The chains of operators that a runtime fuses, according to its traces of whole nets; without traces, the chains that
most runtimes fuse.
"""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.jobs.table.traces import TracedNet, Traces
from gnomon.spaces.fuse import UNFUSED, USUAL, FusionRules, from_groups, rules, rules_of
from gnomon.spaces.latency_table import Table
from gnomon.spaces.loading import draw
from gnomon.spaces.models import ModelSpace
from gnomon.spaces.unit import Net
from gnomon.spaces.work import multiplies

_NETS, _FEW = 2, 16
"""The number of whole nets to trace; together, they show nearly all kinds of neighbouring operators in a space. All
nets are traced if the space has at most `_FEW` of them, or consists of models.
"""


def fused_chains(
    traces: Traces, asked: FusionRules | None, table: Table | None
) -> tuple[FusionRules, list[dict[str, object]]]:
    """The chains to fuse, and the evidence: those from the user or the table, or else those in the runtime's traces."""
    if asked is not None:
        return asked, [{"source": "the user"}]
    if table is not None:
        return rules(table.manifest.rules), [dict(e) for e in table.manifest.evidence]
    single = traces.space.tables(UNFUSED)
    count = single.nets() if single.nets() <= _FEW or isinstance(traces.space, ModelSpace) else _NETS
    placed = traces.place(draw(single, count, seed=traces.bench.request.seed).tolist())
    traced = [net for entry in placed if (net := traces.trace(entry, 1)) is not None]
    grouped = [(net.on_device.net, groups) for net in traced if len(groups := list(_groups(net))) > 1]
    if not grouped:
        return USUAL, [{"source": "no trace", "assumed": USUAL.document()}]
    evidence = from_groups(grouped)
    return rules_of(evidence), [chain.document() for chain in evidence]


def _groups(traced: TracedNet) -> Iterator[list[int]]:
    """The nodes of each kernel, split so that each group has at most one product.

    A runtime may leave a kernel out of a trace and list its operators in the next kernel, which then has two products.
    """
    net: Net = traced.on_device.net
    for kernel in traced.kernels:
        group: list[int] = []
        for node in dict.fromkeys(kernel.nodes):
            if multiplies(net.nodes[node].unit) and any(multiplies(net.nodes[other].unit) for other in group):
                yield group
                group = []
            group.append(node)
        if group:
            yield group
