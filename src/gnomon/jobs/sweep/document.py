"""The JSON document of a sweep: each answer is the document of its own job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from gnomon.jobs.place.document import ErrorPart


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPart:
    """For the `values` of one part, by dimension or input, its answer (`gnomon-place` or `-profile`) or its error."""

    values: Mapping[str, str]
    answer: Mapping[str, Any] | None
    error: ErrorPart | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDocument:
    """What `gnomon place` or `gnomon profile` answered for each of several sizes or inputs."""

    format: Literal["gnomon-sweep"]
    version: Literal[1]
    model: str
    parts: tuple[SweepPart, ...]
    seconds: float


def answers_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The answers in a sweep's document; of another document itself."""
    if document["format"] != "gnomon-sweep":
        return [cast("dict[str, Any]", document)]
    return [part["answer"] for part in document["parts"] if part["answer"]]


def label_of(values: Mapping[str, str]) -> str:
    """The values of a part as text: "seq=16, batch=1"."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def worst_code(document: Mapping[str, Any]) -> int:
    """The exit code: that of a sweep is the highest of its parts, 0 where each has an answer."""
    return max((part["error"]["exit_code"] for part in document.get("parts", ()) if part["error"]), default=0)
