"""The shell commands that install missing packages, each by its own name.

No command names gnomon, because gnomon is on no package index: anybody could register the name there and run code on
users' machines.
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
    """The packages that each extra requires on a machine like this one, with their requirements, as the installed
    gnomon lists them.
    """
    # Imported here, because only the hint of an error needs them.
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
    """A program, package or file that a toolchain needs and does not find; `hint` says how to get it."""

    what: str
    hint: str


def pip_line(requirements: Sequence[str], python: str = "python", *, options: Sequence[str] = ()) -> str:
    """The shell command that installs requirements for an interpreter; `options` are pip's."""
    return f"{shlex.quote(python)} -m pip install {shlex.join([*options, *requirements])}"


_PACKAGES = {"labgrid": "labgrid", "postgres": "postgres", "postgresql": "postgres"}
"""The folder of each of gnomon's own packages, by the kind of device or results database that it adds."""


def package_line(kind: str) -> str | None:
    """The instruction to install gnomon's package for a kind of device or results database; None if there is none."""
    folder = _PACKAGES.get(kind)
    return folder and f"In the folder of the project: {pip_line([f'./packages/{folder}'], sys.executable)}"


def install_line(*names: str, python: str = "") -> str:
    """The shell command that installs extras and packages for an interpreter ("": this one).

    Each name is an extra of gnomon or a package. If an extra requires the package, the extra's version requirement
    applies.
    """
    from packaging.utils import canonicalize_name

    usual = {package: text for wanted in extras().values() for package, text in wanted.items()}
    wanted = [
        text for name in names for text in extras().get(name, {name: usual.get(canonicalize_name(name), name)}).values()
    ]
    return pip_line(list(dict.fromkeys(wanted)), python or sys.executable)


@contextmanager
def needed(sentence: str, name: str, *, python: str = "", instead: str = "") -> Iterator[None]:
    """Turn a failed import in the block into RuntimeMissingError, with this sentence and the reason.

    The hint is the shell command that installs the extra or package `name`, then `instead`.
    """
    try:
        yield
    # OSError: a shared library is missing; RuntimeError: the package was built for another version of a dependency.
    except (ImportError, OSError, RuntimeError) as error:
        raise RuntimeMissingError(f"{sentence}: {error}", hint=install_line(name, python=python) + instead) from error
