"""How an estimator is fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from gnomon.errors import UsageError


class Learner(StrEnum):
    """Whether a residual learner is tried: only where it wins in cross-validation, or not at all."""

    AUTO = "auto"
    NEVER = "never"


class Unknown(StrEnum):
    """What a prediction does with a column that no sample and no price says anything of."""

    REFUSE = "refuse"
    WIDEN = "widen"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """How to fit.

    `coverage`: how often an interval shall hold the measured time. `tail`: degrees of freedom of the errors' Student
    distribution; few of them make outliers cheap, infinity makes errors normal. `floor`: errors grow with a net's time
    but not below this share of the median time. `passes`: how often weights and sizes are found in turn.
    """

    coverage: float = 0.9
    tail: float = 3.0
    floor: float = 0.2
    passes: int = 4
    learner: Learner = Learner.AUTO

    def __post_init__(self) -> None:
        if not 0.5 <= self.coverage <= 0.999:
            raise UsageError(f"the coverage {self.coverage} is no share from 0.5 to 0.999", hint="take 0.9")
        if not self.tail >= 1 or math.isnan(self.tail):
            raise UsageError(f"the tail {self.tail} is below 1", hint="take 3; infinity is for normal errors")
        if not 0 < self.floor <= 10:
            raise UsageError(f"the floor {self.floor} is no share from above 0 to 10", hint="take 0.2")
        if not 1 <= self.passes <= 20:
            raise UsageError(f"{self.passes} passes are asked for, and 1 to 20 can be", hint="take 4")
