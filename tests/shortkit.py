"""Short visits for what measures with gnomon's own effort, where it is not seen how fast anything is."""

from __future__ import annotations

SHORT_VISITS = {"block_s": 0.005, "warm_s": 0.005}
"""Fields of `gnomon.measure.effort.Effort`; the fixture `short_visits` has them hold in the tests' own process."""

SHORTLY = f"""\
from gnomon.measure.effort import Effort
Effort.__init__.__kwdefaults__.update({SHORT_VISITS!r})
"""
"""Python that has them hold in another process: it stands before what is run there."""
