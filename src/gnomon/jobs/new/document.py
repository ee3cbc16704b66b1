"""The JSON document that `gnomon new` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnomon.report.answer import FirstVersion

Kind = Literal["job", "runtime", "device"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NewDocument(FirstVersion):
    """The written package: its folder and files."""

    format: Literal["gnomon-new"] = "gnomon-new"
    kind: Kind
    name: str
    folder: str
    files: tuple[str, ...]

    def headline(self) -> tuple[str, str]:
        """The package, and its folder."""
        return f"{self.kind} {self.name}", f"{len(self.files)} files in {self.folder}."
