"""A look at a model's file: what `gnomon check` does, as a function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.api.options import Model

if TYPE_CHECKING:
    from gnomon.jobs.check.document import CheckDocument


def check(model: Model) -> CheckDocument:
    """Look at MODEL's file for what will matter: subnormal weights, a fixed batch, custom operators and the like.

    Nothing runs, and nothing is measured. Each finding has its next step; `gnomon place` shows those that change its
    answer.

    Raises ModelError where the file cannot be read.
    """
    from gnomon.jobs.check.job import check as look

    return look(Path(model))
