"""A placement that was found before: what `place` gives where the same question was asked and answered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.core import codec
from gnomon.jobs.documents import read_document
from gnomon.jobs.place.document import PlaceDocument
from gnomon.jobs.place.job import Placement
from gnomon.jobs.runs import answers
from gnomon.models.load import load
from gnomon.report.answer import Answer
from gnomon.session.request import ModelRequest

_NAMES = {"verdict": "decision", "rows": "operators"}
"""Attributes of `Placement` that the document has under another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlacement(Answer):
    """The answer of before, as its document has it: the fields of `kept` are its attributes.

    `verdict` and `rows` are the document's decision and operators.
    """

    kept: PlaceDocument

    charts_by = Placement.charts_by
    main = Placement.main
    columns_shown = Placement.columns_shown

    __repr__ = Answer.__repr__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.kept, _NAMES.get(name, name))

    @property
    def package(self) -> Path | None:
        """The folder of the package."""
        return None if self.kept.package is None else Path(self.kept.package)

    def document(self) -> dict[str, Any]:
        """The document that was kept."""
        return codec.document(self.kept)

    def headline(self) -> tuple[str, str]:
        """The model and the device, and the verdict."""
        return f"{Path(self.kept.model.path).name} on {self.kept.device}", self.kept.decision.reason


def kept_placement(request: ModelRequest, package: Path) -> KeptPlacement | None:
    """The answer to the same request, which wrote that package; None without one. GnomonError for a bad model."""
    digest, question = load(request.model).graph.digest, answers.question_of(request, package)
    document = answers.asked_before(request.record, "place", question, digest, package=package)
    return None if document is None else KeptPlacement(kept=read_document(document))
