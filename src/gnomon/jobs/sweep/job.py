"""The same question for several sizes of a dimension, or several inputs: an answer each, and how the choice moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gnomon.errors import GnomonError
from gnomon.jobs.sweep.document import Kind, label_of, sweep_document
from gnomon.report.answer import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The answer for the `values` of one part: its document, and the result where it was found now; or its error."""

    values: Mapping[str, str]
    document: Mapping[str, Any] | None = None
    result: Any = None
    error: GnomonError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Answer):
    """What `place` or `profile` (`kind`) found for several sizes of a dimension, or several inputs, in `seconds`."""

    kind: Kind
    model: Path
    parts: tuple[Swept, ...]
    seconds: float

    main: ClassVar[str] = "parts"

    __repr__ = Answer.__repr__

    def document(self) -> dict[str, Any]:
        """All of it, in JSON values."""
        ends = [(part.values, part.error or part.document or {}) for part in self.parts]
        return sweep_document(self.kind, str(self.model), ends, self.seconds)

    def headline(self) -> tuple[str, str]:
        """The model, and how the choice depends on the values."""
        from gnomon.jobs.sweep.report import headline

        return self.model.name, headline(self.document())


def sweep(
    kind: Kind,
    model: Path,
    asked: Sequence[tuple[Mapping[str, str], Callable[[], Any]]],
    tell: Callable[[str], None] | None,
) -> Sweep:
    """Ask for each part, by its values, one after the other: for a result, or the document of an earlier answer.

    A GnomonError ends its own part alone; raises the first where all end so.
    """
    began_s = time.monotonic()
    parts = []
    for number, (values, ask) in enumerate(asked, 1):
        if tell is not None:
            tell(f"{label_of(values)}: {number} of {len(asked)}")
        try:
            found = ask()
        except GnomonError as error:
            parts.append(Swept(values=values, error=error))
            continue
        known = isinstance(found, Mapping)
        document = found if known else found.document()
        parts.append(Swept(values=values, document=document, result=None if known else found))
    errors = [part.error for part in parts if part.error is not None]
    if len(errors) == len(parts):
        raise errors[0]
    return Sweep(kind=kind, model=model, parts=tuple(parts), seconds=time.monotonic() - began_s)
