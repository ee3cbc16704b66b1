"""`make demo` installs less than `make test`: what it runs must do with that."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def spelled(line: str) -> str:
    """The name of the distribution that a requirement begins with, as PyPI compares names."""
    name = _NAME.match(line)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def extras(project: dict[str, list[str]], names: set[str]) -> set[str]:
    """The distributions of extras, those of the extras that they name too."""
    found: set[str] = set()
    for name in names:
        for line in project[name]:
            inner = re.match(r"gnomon\[([^\]]*)\]", line)
            found |= extras(project, set(inner[1].split(","))) if inner else {spelled(line)}
    return found


def imported(module: str, seen: set[str]) -> set[str]:
    """The packages of others that a module of the zoo needs, and those that it imports from the zoo."""
    if module in seen:
        return set()
    seen.add(module)
    found: set[str] = set()
    path = ROOT / "zoo" / f"{module}.py"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in names:
            if name.startswith("zoo."):
                found |= imported(name.split(".")[1], seen)
            elif name.split(".")[0] not in {*sys.stdlib_module_names, "zoo", "gnomon"}:
                found.add(name.split(".")[0])
    return found


def test_what_writes_the_demo_s_models_is_installed_for_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").split("$(VENV)/stamp-all: ")[1].split("@touch")[0]
    there = extras(project["optional-dependencies"], {"all"}) | {spelled(d) for d in project["dependencies"]}
    there |= {spelled(name) for name in re.findall(r"'([A-Za-z0-9._-]+)>=", recipe)}
    known = packages_distributions()
    needed = imported("mix", set()) | imported("published", set())
    assert {"numpy", "circle_schema"} <= needed
    assert [name for name in sorted(needed) if not there & {spelled(one) for one in known[name]}] == []
