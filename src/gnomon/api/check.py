"""`gnomon check` as a function: findings in a model's file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.api.options import Model

if TYPE_CHECKING:
    from gnomon.jobs.check.document import CheckDocument


def check(model: Model) -> CheckDocument:
    """Check MODEL's file for problems such as subnormal weights, a fixed batch or custom operators.

    Nothing is run or measured. Each finding comes with a next step. `gnomon place` also reports the findings that
    affect its answer.

    Raises ModelError if the file cannot be read.
    """
    from gnomon.jobs.check.job import check as look

    return look(Path(model))
