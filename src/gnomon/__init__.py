"""gnomon measures neural networks on the hardware they will run on, and decides what should run where.

Its functions are those of `gnomon.api`, which the command line calls too. Each is imported when it is first used.
"""

import builtins
import os
import sys
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """A function of a job, imported only now."""
    from importlib import import_module

    from gnomon.builtin import public_functions

    places = public_functions()
    if name == "__all__":
        return ["__version__", *sorted(places)]
    if name in places:
        function = getattr(import_module(places[name].partition(":")[0]), name)
        looked_at = sys.stderr.isatty() or hasattr(builtins, "__IPYTHON__")  # in a notebook
        if not looked_at or os.environ.get("GNOMON_QUIET"):
            return function
        return import_module("gnomon.cli.output").watched(function)
    raise AttributeError(f"module 'gnomon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
