"""The objectives of `pareto`."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.session.objectives import goal_names, goal_of


def objectives() -> Mapping[str, str]:
    """The objectives of `pareto`, each with its unit. UsageError where one that a package adds cannot be loaded."""
    return {name: goal_of(name).unit for name in goal_names()}
