"""The JSON documents of `gnomon solve` and `gnomon front`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveDocument:
    """What `gnomon solve` found: choices by slot, their code as a text, the cost in each objective, and a proof."""

    format: Literal["gnomon-solve"]
    version: Literal[1]
    assignment: tuple[str, ...]
    code: str
    cost: tuple[float, ...]
    optimal: bool
    method: str
    bound: float | None
    width: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectivePart:
    """What is minimised, and its unit."""

    name: str
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPointPart:
    """A point: a choice a slot, its code as a text, and its cost in each objective."""

    assignment: tuple[str, ...]
    code: str
    cost: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontDocument:
    """What `gnomon front` found, and what is proved of it."""

    format: Literal["gnomon-front"]
    version: Literal[1]
    certificate: str | Mapping[str, float]
    objectives: tuple[ObjectivePart, ...]
    points: tuple[FrontPointPart, ...]
    seconds: float
