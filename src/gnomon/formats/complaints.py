"""What is wrong with a file, gathered while it is read and told all at once, each with its place."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnomon.errors import ProblemError

_MOST_TOLD = 20


@dataclass(slots=True, kw_only=True)
class Complaints:
    """Gathers complaints about one file; `what` says what kind of file it is, `hint` what to do about them.

    `told` are sentences, each with its place in front: "line 3: ...".
    """

    what: str
    hint: str
    told: list[str] = field(default_factory=list)

    def tell(self, place: str, sentence: str) -> None:
        """Add one."""
        self.told.append(f"{place}: {sentence}")

    def raise_any(self) -> None:
        """Raise a ProblemError with all of them, the first twenty in words; nothing where there are none."""
        if self.told:
            raise ProblemError(complaint(self.what, self.told), hint=self.hint)


def complaint(what: str, told: list[str]) -> str:
    """The message of complaints about a file."""
    more = len(told) - _MOST_TOLD
    rest = f"; and {more} more" if more > 0 else ""
    return f"the {what} is malformed: {'; '.join(told[:_MOST_TOLD])}{rest}"
