"""Writes a package from the templates, with the names changed."""

from __future__ import annotations

import keyword
import re
from importlib.util import find_spec
from pathlib import Path

from gnomon import builtin
from gnomon.errors import UsageError, system_errors
from gnomon.jobs.new.document import Kind, NewDocument
from gnomon.plugins import named
from gnomon.system.files import staged

_TEMPLATES = Path(__file__).parents[2] / "templates"
_ENTRIES = {
    "job": ("gnomon.jobs", "{name}:{constant}"),
    "runtime": ("gnomon.runtimes", "{name}.adapter:{type}"),
    "device": ("gnomon.devices", "{name}.device:{name}_device"),
}
"""The group and the value of the entry point for each kind of package."""
_MODULE = re.compile(r"[a-z][a-z0-9_]*")
_NAMES = {"job": _MODULE, "runtime": _MODULE, "device": re.compile(r"[a-z][a-z0-9]{0,31}")}
"""The patterns of names. A device's name is the scheme of its addresses and therefore has no underscore."""
_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1"
dependencies = ["gnomon"]

[project.optional-dependencies]
test = ["onnx", "pytest"]

[project.entry-points."{group}"]
{name} = "{place}"
"""


def new_package(kind: Kind, name: str, folder: Path) -> NewDocument:
    """Write a package that adds a job, a runtime or a kind of device, with its contract test.

    UsageError for an invalid or taken name, or if the folder cannot be written.
    """
    if not _NAMES[kind].fullmatch(name) or keyword.iskeyword(name):
        letters = "lowercase letters and digits" if kind == "device" else "lowercase letters, digits and _"
        raise UsageError(f"{name!r} cannot be the name of a {kind}", hint=f"Use {letters}, such as my{kind}.")
    group, place = _ENTRIES[kind]
    commands = {command for job in builtin.JOBS.values() for command in job.commands}
    if name in named(group) or name in commands or find_spec(name) is not None:
        raise UsageError(f"the name {name} is taken", hint="Give a name that no command or installed module has.")
    if folder.exists():
        raise UsageError(f"{folder} exists already", hint="Name a new folder: --out DIR.")
    names = {"yours": name, "Yours": name.title().replace("_", ""), "YOURS": name.upper()}
    place = place.format(name=name, type=names["Yours"], constant=names["YOURS"])
    texts = {"pyproject.toml": _PROJECT.format(name=name, group=group, place=place)}
    for template in sorted((_TEMPLATES / kind).glob("*.py")):
        text = re.sub(r"yours|Yours|YOURS", lambda match: names[match.group()], template.read_text(encoding="utf-8"))
        inside = "tests" if template.name.startswith("test_") else name
        path = f"{inside}/{template.name.replace('yours', name)}"
        texts[path] = re.sub(r"^from \.", f"from {name}.", text, flags=re.MULTILINE)
    with (
        system_errors(UsageError, f"{folder} cannot be written", hint="Name another folder: --out DIR."),
        staged(folder) as package,
    ):
        for path, text in texts.items():
            (package / path).parent.mkdir(parents=True, exist_ok=True)
            (package / path).write_text(text, encoding="utf-8")
    return NewDocument(kind=kind, name=name, folder=str(folder), files=tuple(texts))
