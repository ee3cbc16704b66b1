"""What `gnomon` itself offers: the names agree wherever they are written, and each gives the function."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import gnomon
from gnomon import documents

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


def names_in(stub: Path) -> dict[str, str]:
    """The module that each name comes from."""
    return {
        alias.name: node.module or ""
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }


def test_type_checkers_see_the_same_names() -> None:
    for package, stub in ((gnomon, STUB), (documents, STUB.with_name("documents.pyi"))):
        for name, module in names_in(stub).items():
            assert getattr(import_module(module), name) is getattr(package, name)
    assert sorted({"__version__", *names_in(STUB)}) == gnomon.__all__
    assert sorted(names_in(STUB.with_name("documents.pyi"))) == dir(documents)


def test_an_unknown_name_is_told_as_such() -> None:
    assert not hasattr(gnomon, "no_such_function") and not hasattr(documents, "NoSuchDocument")
