"""The JSON document of a sweep: each answer is the document of its own job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from gnomon.core import codec
from gnomon.errors import GnomonError, exit_code_of
from gnomon.jobs.place.document import ErrorPart, PlaceDocument, ProfileDocument, error_part

Kind = Literal["place", "profile"]
FIELDS: Mapping[Kind, str] = {"place": "placement", "profile": "profile"}
"""The field of a part that holds its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPart:
    """The answer for the `values` of one part, by dimension or input, or the error that ended it."""

    values: Mapping[str, str]
    placement: PlaceDocument | None = None
    profile: ProfileDocument | None = None
    error: ErrorPart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDocument:
    """What `gnomon place` or `profile` (`kind`) answered for each of several sizes or inputs."""

    format: Literal["gnomon-sweep"]
    version: Literal[1]
    kind: Kind
    model: str
    parts: tuple[SweepPart, ...]
    seconds: float


def sweep_document(
    kind: Kind,
    model: str,
    parts: Sequence[tuple[Mapping[str, str], Mapping[str, Any] | GnomonError]],
    seconds: float,
) -> dict[str, Any]:
    """All that was found, in JSON values: of each part its values, and its answer's document or its error."""
    errors = [end if isinstance(end, GnomonError) else None for _, end in parts]
    made = tuple(
        SweepPart(values=values, error=None if error is None else error_part(error))
        for (values, _), error in zip(parts, errors, strict=True)
    )
    document = codec.document(
        SweepDocument(format="gnomon-sweep", version=1, kind=kind, model=model, parts=made, seconds=seconds)
    )
    for part, (_, end), error in zip(document["parts"], parts, errors, strict=True):
        part[FIELDS[kind]] = end if error is None else None
    return document


def answers_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The documents of the answers in a sweep's document; of another document itself."""
    if document["format"] != "gnomon-sweep":
        return [cast("dict[str, Any]", document)]
    return [part[FIELDS[document["kind"]]] for part in document["parts"] if not part["error"]]


def worst_code(document: Mapping[str, Any]) -> int:
    """The exit code of an answer by its doubts; that of a sweep is the highest of its parts."""
    errors: list[int] = [part["error"]["exit_code"] for part in document.get("parts", ()) if part["error"]]
    return max([*errors, *(exit_code_of(d["kind"] for d in one["doubts"]) for one in answers_of(document))])


def label_of(values: Mapping[str, str]) -> str:
    """The values of a part as text: "seq=16, batch=1"."""
    return ", ".join(f"{name}={value}" for name, value in values.items())
