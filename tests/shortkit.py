"""Short visits for what measures with gnomon's own effort, where it is not seen how fast anything is."""

from __future__ import annotations

SHORT_VISITS = {"block_s": 0.005, "warm_s": 0.005}
"""Fields of `gnomon.measure.effort.Effort`; the fixture `short_visits` has them hold in the tests' own process."""

MOST_BLOCKS = 3
"""Parts in which `gnomon.jobs.place.across` cuts a model."""

SHORTLY = f"""\
from gnomon.measure.effort import Effort
Effort.__init__.__kwdefaults__.update({SHORT_VISITS!r})
"""
"""Python that has them hold in another process: it stands before what is run there."""

IN_FEW_BLOCKS = f"""\
from gnomon.jobs.place.across import AcrossPlacer
AcrossPlacer.__init__.__kwdefaults__.update(most_blocks={MOST_BLOCKS})
"""
"""The same of the parts."""
