"""The objectives of `pareto`."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.session.objectives import goal_names, goal_of


def objectives() -> Mapping[str, str]:
    """The objectives of `pareto`, each with its unit. UsageError where one that a package adds cannot be loaded."""
    return {name: goal_of(name).unit for name in goal_names()}


def objective_names() -> tuple[str, ...]:
    """The names of the objectives of `pareto`, those of packages last."""
    return goal_names()


def objective_unit(name: str) -> str | None:
    """The unit of an objective; None where there is none of that name. UsageError where it cannot be loaded."""
    return goal_of(name).unit if name in goal_names() else None
