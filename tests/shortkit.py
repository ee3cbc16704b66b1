"""Short visits for what measures with gnomon's own effort, where it is not seen how fast anything is."""

from __future__ import annotations

from typing import Any

SHORT_VISITS = {"block_s": 0.005, "warm_s": 0.005}
"""Fields of `gnomon.measure.effort.Effort`; the fixture `short_visits` has them hold in the tests' own process."""

MOST_BLOCKS = 3
"""Parts in which `gnomon.jobs.place.across` cuts a model."""

SHORTLY = f"""\
from gnomon.measure.effort import Effort
Effort.__init__.__kwdefaults__.update({SHORT_VISITS!r})
"""
"""Python that has them hold in another process: it stands before what is run there."""

FEW_PROCESSES: dict[str, Any] = {"processes_least": 2, "processes_most": 2, "half_width": 1e9}
"""Fields of `gnomon.jobs.space.profiling.latency.NETWORK_EFFORT`: no network is seen in more processes than two."""

SPACES_SHORTLY = f"""\
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from gnomon.jobs.space.profiling import latency, training
from gnomon.training.data import sources
few = replace(latency.NETWORK_EFFORT, **{FEW_PROCESSES!r})
latency.measure_files.__kwdefaults__.update(effort=few)
digits, pool, kept, left = sources._carried, training._pool, {{}}, ExitStack()
def quarter(name):
    found = digits(name)
    return replace(found, parts={{part: replace(i, x=i.x[::4], y=i.y[::4]) for part, i in found.parts.items()}})
@contextmanager
def same(workers):
    if workers not in kept:
        kept[workers] = left.enter_context(pool(workers))
    yield kept[workers]
sources._carried, training._pool = quarter, same
"""
"""Search spaces: few processes, a quarter of the digits, and processes that train stay for the next call."""
