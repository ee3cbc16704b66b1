"""gnomon measures neural networks on the hardware they will run on, and decides what should run where.

The functions are those of `gnomon.api`, which is imported when one is first used.
"""

from typing import Any

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "add_device",
    "clean_device",
    "devices",
    "pareto",
    "place",
    "place_on",
    "profile",
    "remove_device",
    "runs",
    "solve",
]


def __getattr__(name: str) -> Any:
    """The functions of `gnomon.api`: importing gnomon alone imports nothing heavy."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("gnomon.api"), name)
    raise AttributeError(f"module 'gnomon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
