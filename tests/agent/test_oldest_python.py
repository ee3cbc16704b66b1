"""What runs on devices works with the oldest Python that gnomon looks for there."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.devices.shell.ssh_client import OLDEST_PYTHON

SOURCE = Path(__file__).resolve().parents[2] / "src" / "gnomon"
DEVICES = SOURCE / "devices"
FILES = sorted(
    [
        *(SOURCE / "agent").rglob("*.py"),
        DEVICES / "fingerprint.py",
    ]
)
OLDEST = tuple(int(part) for part in OLDEST_PYTHON.split("."))
LACKING = """
import importlib, json, sys
for module, name in json.load(sys.stdin):
    try:
        found = importlib.import_module(module)
        if name is not None and not hasattr(found, name):
            importlib.import_module(module + "." + name)
    except ImportError:
        print(module, name)
"""


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path), feature_version=(OLDEST[0], OLDEST[1]))


def used(module: ast.Module) -> Iterator[tuple[str, str | None]]:
    """The modules of the standard library that a file imports when it runs, and what it takes out of them."""
    named: dict[str, str] = {}
    only_checked = {
        inner
        for node in ast.walk(module)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(module):
        if node in only_checked:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                named[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                yield alias.name, None
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in named:
            yield named[node.value.id], node.attr


def oldest_python() -> str:
    """A Python of that version, or a skip."""
    places = [shutil.which(f"python{OLDEST_PYTHON}")]
    places += [str(p) for p in Path.home().glob(f".pyenv/versions/{OLDEST_PYTHON}.*/bin/python{OLDEST_PYTHON}")]
    for place in places:
        if place and not subprocess.run([place, "-c", ""], capture_output=True, check=False).returncode:
            return place
    pytest.skip(f"there is no Python {OLDEST_PYTHON} on this machine")


def test_the_oldest_python_has_whatever_it_imports() -> None:
    wanted = sorted({pair for path in FILES for pair in used(tree(path))}, key=str)
    wanted = [pair for pair in wanted if pair[0].partition(".")[0] in sys.stdlib_module_names]
    assert ("json", "dumps") in wanted
    done = subprocess.run(
        [oldest_python(), "-I", "-c", LACKING], input=json.dumps(wanted), capture_output=True, text=True, check=True
    )
    assert done.stdout == ""


def test_what_runs_on_devices_is_of_its_syntax_and_imports_nothing_of_gnomon() -> None:
    found = {path.name: [name for name, _ in used(tree(path)) if name.partition(".")[0] == "gnomon"] for path in FILES}
    assert {name: names for name, names in found.items() if names} == {}


def test_the_check_sees_what_is_taken_out_of_modules() -> None:
    code = "import os\nimport tomllib\nfrom typing import Self\nif TYPE_CHECKING:\n  import ast\nos.getcwd()\n"
    assert set(used(ast.parse(code))) == {("os", None), ("tomllib", None), ("typing", "Self"), ("os", "getcwd")}
