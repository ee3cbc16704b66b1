"""Models of the zoo for the tests of this folder; tests skip where a wheel cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import zoo


@pytest.fixture(scope="session")
def zoo_model() -> Callable[[str], Path]:
    """A function from a model's name to its path."""

    def build(name: str) -> Path:
        try:
            return zoo.build(name)
        except zoo.ZooError as error:
            pytest.skip(f"zoo: {error}")

    return build
