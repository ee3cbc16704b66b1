"""The JSON document that `gnomon check` returns; docs/jobs/check.md describes each key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gnomon.core.graph import Tensor
from gnomon.models.check import Finding
from gnomon.models.gguf import Decoder
from gnomon.report.answer import FirstVersion
from gnomon.report.plain import many
from gnomon.session.document import ModelPart


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckDocument(FirstVersion):
    """The findings in a model's file. `size_bytes` includes the files that belong to it; `runtimes` can read its
    format. A GGUF file has a `decoder`, and neither a digest nor inputs, because only its header is read.
    """

    format: Literal["gnomon-check"] = "gnomon-check"
    model: ModelPart
    size_bytes: int
    inputs: tuple[Tensor, ...]
    findings: tuple[Finding, ...]
    runtimes: tuple[str, ...]
    decoder: Decoder | None = None

    main = "findings"

    def headline(self) -> tuple[str, str]:
        """The file, and the number of findings in it."""
        name, count = Path(self.model.path).name, len(self.findings)
        return name, f"{many(count, 'finding') if count else 'no findings'} in {name}"
