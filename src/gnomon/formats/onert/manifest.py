"""The ``metadata/MANIFEST`` of an nnpackage, versions 1.0 to 1.3.

Source: ``nnpackage/spec/10_packaging_and_manifest.md`` of Samsung ONE.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from gnomon.core.codec import OTHERS_TOO, Must, read_json
from gnomon.core.strict_json import Strict
from gnomon.errors import ModelError, ProblemError

MAX_CHARACTERS = 1 << 20
_HINT = "Correct the MANIFEST: see nnpackage/spec/10_packaging_and_manifest.md of Samsung ONE."
_STRICT = Strict(what="nnpackage's MANIFEST", hint=_HINT, most_letters=MAX_CHARACTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The parts of a MANIFEST that are used; its keys have - in place of _. `models` and `configs` are file names."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO | {"alias_generator": lambda name: name.replace("_", "-")}
    major_version: Annotated[Any, Must(be="1 (for versions 1.0 to 1.3)", fits=lambda value: str(value) == "1")]
    models: Annotated[tuple[str, ...], Must(be="at least one model", fits=bool)]
    model_types: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    raw: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.model_types) != len(self.models):
            raise ProblemError(f"it lists {len(self.models)} models but {len(self.model_types)} model-types")


def parse_manifest(text: str) -> Manifest:
    """Read a MANIFEST. Raises ModelError if it is broken or has a major version other than 1."""
    try:
        raw = _STRICT.object(_STRICT.parse(text), "$")
        return read_json(Manifest, {**raw, "raw": raw}, _STRICT)
    except ProblemError as error:
        raise ModelError(error.message, hint=_HINT) from error


def write_manifest(manifest: Manifest) -> str:
    """The JSON text of a manifest, including unknown keys, with the keys in their original order."""
    raw: dict[str, object] = dict(manifest.raw) or {"major-version": "1", "minor-version": "2", "patch-version": "0"}
    for key, names in (
        ("configs", manifest.configs),
        ("models", manifest.models),
        ("model-types", manifest.model_types),
    ):
        if names or key in raw:
            raw[key] = list(names)
    return json.dumps(raw, indent=2) + "\n"
