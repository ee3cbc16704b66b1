"""The record that the job returns, which is also its JSON document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnomon.report.answer import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitPart:
    """How long a configuration takes to load the model and to answer once."""

    configuration: str
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class YoursDocument(Answer):
    """The result of the job. `campaign` and `record` name the run, and the results database that holds it."""

    format: Literal["gnomon-yours"] = "gnomon-yours"
    version: Literal[1] = 1
    model: str
    campaign: str
    record: str
    configurations: tuple[WaitPart, ...]

    def headline(self) -> tuple[str, str]:
        """The model, and the subject of the report."""
        return self.model, "How long a user waits for the first answer."
