"""The objectives of `pareto`."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.session.objectives import goal_names, goal_of


def objectives() -> Mapping[str, str]:
    """The units of the objectives of `pareto`, by name. UsageError if an objective from a package cannot be loaded."""
    return {name: goal_of(name).unit for name in goal_names()}
