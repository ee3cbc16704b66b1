"""PyTorch's compiler, loaded where something is compiled and not before.

Its optimizers, and tensors that are made within a device's context, import it for two functions that do nothing in a
process that compiles nothing. It takes longer to load than all the rest of PyTorch.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAME = "torch._dynamo"


class _Later(ModuleType):
    """Stands where the compiler is looked for, until anything else of it is wanted, which loads it."""

    def disable(self, fn: Any = None, *how: Any, **more: Any) -> Any:
        """The function itself: there is no compiler that it is to be kept from."""
        loaded = fn is None or sys.modules.get(NAME) is not self
        return self._whole().disable(fn, *how, **more) if loaded else fn

    def graph_break(self, *told: Any, **more: Any) -> None:
        """Nothing, as long as no graph is made."""
        if sys.modules.get(NAME) is not self:
            self._whole().graph_break(*told, **more)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # who looks through all modules wants nothing of it
            raise AttributeError(name)
        return getattr(self._whole(), name)

    def _whole(self) -> Any:
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
        return importlib.import_module(NAME)


class _There:
    """Finds parts of the compiler that were loaded with it, while the import system was on its way to one of them."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """That of what is there already."""
        there = name.startswith(f"{NAME}.") and name in sys.modules and target is None
        return ModuleSpec(name, self) if there else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """What is there."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """It has run."""


def load_later() -> None:
    """From now on PyTorch's compiler is loaded when it is needed, once PyTorch is there."""
    if NAME not in sys.modules:
        sys.modules[NAME] = _Later(NAME)
        sys.meta_path.insert(0, _There())
