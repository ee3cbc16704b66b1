"""Versions of the software that a plan depends on: those it was proved with, and those on the machine where it runs."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.wire import Versions


def installed(names: Iterable[str]) -> dict[str, str]:
    """The versions of the pip packages with these names; packages not installed by pip are left out."""
    versions: dict[str, str] = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def processor() -> str | None:
    """The processor's name; None if the kernel does not report it, as on Arm, where it reports only the
    architecture.
    """
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    match = re.search(r"(?m)^model name\s*:[ \t]*(.*?)\s*$", text)
    return match[1] if match and not re.search(r"(?m)^CPU part\s*:", text) else None


def found_here(proved: Versions) -> Versions:
    """The versions on this machine of the software that a plan was proved with, in the same format."""
    return {
        "python": platform.python_version(),
        "processor": processor(),
        "packages": installed(proved.get("packages", {})),
    }


def difference(proved: Versions, current: Versions) -> str:
    """A sentence about the versions that have changed since the proof; "" if no version known on both sides differs.

    Only the first two numbers of Python's version count.
    """
    pairs: list[tuple[str, str | None, str | None]]
    pairs = [(name, before, current["packages"].get(name)) for name, before in proved.get("packages", {}).items()]
    was, here = (".".join(str(side.get("python") or "").split(".")[:2]) for side in (proved, current))
    pairs += [("Python", was, here), ("the processor", proved.get("processor"), current["processor"])]
    unlike = [(name, before, seen) for name, before, seen in pairs if before and seen and before != seen]
    if not unlike:
        return ""
    versions = " and ".join(f"{name} {version}" for name, version, _ in unlike)
    there = " and ".join(version for _, _, version in unlike)
    return f"the plan was proved with {versions}, but this machine has {there}: times and outputs may differ"
