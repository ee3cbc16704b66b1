"""The same question for several sizes of a dimension, or several inputs: an answer each, and how the choice moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gnomon.errors import GnomonError
from gnomon.jobs.place.document import PlaceDocument, ProfileDocument, SweepDocument, SweepPart, error_part
from gnomon.measure.progress import Tell
from gnomon.system.stopping import ANSWERS

Ask = Callable[[], PlaceDocument | ProfileDocument]
"""Answers the question of a part."""


def sweep(model: Path, asked: Sequence[tuple[Mapping[str, str], Ask]], tell: Tell | None) -> SweepDocument:
    """Ask for the answer of each part, by its values, one after the other.

    A GnomonError ends its own part alone; raises the first where all end so.
    """
    began_s = time.monotonic()
    ANSWERS.set(False)  # Ctrl-C ends all parts, not the one under way
    parts: list[SweepPart] = []
    errors: list[GnomonError] = []
    for number, (values, ask) in enumerate(asked, 1):
        part = SweepPart(values=values, answer=None, error=None)
        if tell is not None:
            tell(f"{part.label}: {number} of {len(asked)}")
        try:
            part = replace(part, answer=ask())
        except GnomonError as error:
            errors.append(error)
            part = replace(part, error=error_part(error))
        parts.append(part)
    if len(errors) == len(parts):
        raise errors[0]
    return SweepDocument(model=str(model), parts=tuple(parts), seconds=time.monotonic() - began_s)
