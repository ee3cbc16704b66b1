"""What `gnomon` itself offers: the names agree wherever they are written, and each gives the function."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import gnomon

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "src" / "gnomon" / "__init__.pyi"


def test_no_public_name_is_a_part_of_the_package() -> None:
    """Importing a submodule sets the name of it in the package, in place of a function of that name."""
    parts = {module.name for module in pkgutil.iter_modules(gnomon.__path__)}
    assert parts & set(gnomon.__all__) == set()


def test_every_public_name_stays_what_it_is() -> None:
    """In an interpreter of its own, where nothing was imported before."""
    code = "import gnomon\nfor _ in 'ab':\n  assert all(callable(getattr(gnomon, n)) for n in gnomon.__all__[1:])"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_type_checkers_see_the_same_names() -> None:
    imported = {
        alias.asname: (node.module, alias.name)
        for node in ast.parse(STUB.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert sorted({"__version__", *imported}) == gnomon.__all__
    for name, (module, original) in imported.items():
        assert original == name
        assert getattr(import_module(module or ""), name) is getattr(gnomon, name)


def test_an_unknown_name_is_told_as_such() -> None:
    assert not hasattr(gnomon, "no_such_function")
