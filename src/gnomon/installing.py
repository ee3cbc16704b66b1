"""How what is missing is installed: pip lines that name the packages themselves.

Gnomon is on no package index, so that no line may name it: whoever took the name there would run code on users'
machines.
"""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gnomon.errors import RuntimeMissingError


@functools.cache
def extras() -> Mapping[str, Mapping[str, str]]:
    """The packages of each extra on a machine like this one, with their requirements, as gnomon was installed."""
    # Here, since only the hint of an error needs them.
    from importlib.metadata import metadata, requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    names = metadata("gnomon").get_all("Provides-Extra") or ()
    by_extra: dict[str, dict[str, str]] = {}
    for text in requires("gnomon") or ():
        wanted = Requirement(text)
        for name in names if "extra ==" in text else ():
            if wanted.marker and wanted.marker.evaluate({"extra": name}):
                by_extra.setdefault(name, {})[canonicalize_name(wanted.name)] = text.partition(";")[0].strip()
    return by_extra


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A program, a package or a file that a toolchain needs and that is not here; `hint` says how to get it."""

    what: str
    hint: str


def pip_line(requirements: Sequence[str], python: str = "python", *, options: Sequence[str] = ()) -> str:
    """The shell command that installs requirements for an interpreter, with options of pip's own."""
    return f"{shlex.quote(python)} -m pip install {shlex.join([*options, *requirements])}"


_PACKAGES = {"labgrid": "labgrid", "postgres": "postgres", "postgresql": "postgres"}
"""The folders of gnomon's packages by the kinds that each adds: of devices, and of results databases."""


def package_line(kind: str) -> str | None:
    """How gnomon's own package that adds a kind of device or results database is installed; None where none does."""
    folder = _PACKAGES.get(kind)
    return folder and f"In the folder of the project: {pip_line([f'./packages/{folder}'], sys.executable)}"


def install_line(*names: str, python: str = "") -> str:
    """The shell command that installs extras and packages for an interpreter ("": this one).

    A name is that of an extra or of a package; a package that an extra asks for is in the versions that it asks for.
    """
    from packaging.utils import canonicalize_name

    usual = {package: text for wanted in extras().values() for package, text in wanted.items()}
    wanted = [
        text for name in names for text in extras().get(name, {name: usual.get(canonicalize_name(name), name)}).values()
    ]
    return pip_line(list(dict.fromkeys(wanted)), python or sys.executable)


@contextmanager
def needed(sentence: str, name: str, *, python: str = "", instead: str = "") -> Iterator[None]:
    """Around the import of a package: RuntimeMissingError where it fails, of the sentence and the reason.

    The hint is the line that installs the extra or package `name`, then `instead`.
    """
    try:
        yield
    # OSError: one of its shared libraries is missing; RuntimeError: it was made for another version of what it uses.
    except (ImportError, OSError, RuntimeError) as error:
        raise RuntimeMissingError(f"{sentence}: {error}", hint=install_line(name, python=python) + instead) from error
