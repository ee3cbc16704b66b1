"""The same question for several sizes of a dimension, or several inputs: an answer each, and how the choice moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gnomon.core import codec
from gnomon.errors import GnomonError
from gnomon.jobs.place.document import SweepDocument, SweepPart, error_part, label_of
from gnomon.jobs.place.report import sweep_headline
from gnomon.report.answer import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Answer):
    """What `place` or `profile` found for several sizes of a dimension, or several inputs, in `seconds`.

    `results` are a `Placement` (or `KeptPlacement`) or a `Profile` a part: None where it failed.
    """

    model: Path
    parts: tuple[SweepPart, ...]
    results: tuple[Any, ...]
    seconds: float

    main: ClassVar[str] = "parts"

    __repr__ = Answer.__repr__

    def document(self) -> dict[str, Any]:
        """All of it, in JSON values."""
        made = SweepDocument(
            format="gnomon-sweep", version=1, model=str(self.model), parts=self.parts, seconds=self.seconds
        )
        return codec.document(made)

    @property
    def exit_code(self) -> int:
        """The highest of its parts' exit codes."""
        codes = [part.error.exit_code for part in self.parts if part.error is not None]
        codes += [result.exit_code for result in self.results if result is not None]
        return max(codes)

    def headline(self) -> tuple[str, str]:
        """The model, and which choice is for which values."""
        return self.model.name, sweep_headline(self.document())


def sweep(
    model: Path, asked: Sequence[tuple[Mapping[str, str], Callable[[], Any]]], tell: Callable[[str], None] | None
) -> Sweep:
    """Ask for the result of each part, by its values, one after the other.

    A GnomonError ends its own part alone; raises the first where all end so.
    """
    began_s, parts, results, errors = time.monotonic(), [], [], []
    for number, (values, ask) in enumerate(asked, 1):
        if tell is not None:
            tell(f"{label_of(values)}: {number} of {len(asked)}")
        result = answer = None
        try:
            result = ask()
            answer = result.document()
        except GnomonError as error:
            errors.append(error)
        parts.append(SweepPart(values=values, answer=answer, error=None if answer else error_part(errors[-1])))
        results.append(result)
    if len(errors) == len(parts):
        raise errors[0]
    return Sweep(model=model, parts=tuple(parts), results=tuple(results), seconds=time.monotonic() - began_s)
