"""Where the SNPE SDK lies on this machine, and how its programs are started.

Sources: Qualcomm's public setup guides of the Snapdragon Neural Processing Engine SDK 1.x, of the Neural Processing SDK
2.x, and of the AI Engine Direct SDK (QNN, QAIRT) that holds the latter. The SDK is licensed and was never at hand.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gnomon.errors import RuntimeMissingError

ROOTS = ("SNPE_ROOT", "QAIRT_SDK_ROOT", "QNN_SDK_ROOT")
"""The variables that name the SDK's folder, the first that is set wins."""

HINT = (
    "Download the Qualcomm Neural Processing SDK (SNPE) from qpm.qualcomm.com under its licence, and set SNPE_ROOT to "
    "its folder; adb must be on the PATH. docs/snpe.md has the steps."
)
_HOSTS = ("x86_64-linux-clang", "x86_64-linux-gnu")
_PROGRAMS = {
    "convert": ("snpe-onnx-to-dlc",),
    "info": ("snpe-dlc-info",),
    "bench": ("snpe-bench.py", "snpe_bench.py"),
}
_PASSED = ("ANDROID_", "ADB_", "SNPE_", "QNN_", "QAIRT_")
_VERSION = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+){0,2}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpeSdk:
    """An SDK: its version as far as its folder tells, its programs, and the environment in which they start."""

    version: str
    convert: str
    info: str
    bench: str
    environment: Mapping[str, str]


def find_sdk(environ: Mapping[str, str] | None = None) -> SnpeSdk:
    """The SDK that the environment names, or whose programs are on its PATH.

    RuntimeMissingError, with what to install, where there is none, or where a part of it is not there.
    """
    known = dict(os.environ if environ is None else environ)
    variable = next((name for name in ROOTS if known.get(name)), None)
    root = Path(known[variable]) if variable else None
    if root is not None and not root.is_dir():
        raise RuntimeMissingError(f"{variable} names {root}, which is no folder", hint=HINT)
    path = [*_folders(root), *known.get("PATH", os.defpath).split(os.pathsep)]
    found = {what: _program(names, path) for what, names in _PROGRAMS.items()}
    missing = [_PROGRAMS[what][0] for what, program in found.items() if not program]
    if len(missing) == len(_PROGRAMS) and root is None:
        raise RuntimeMissingError(f"there is no SNPE SDK: none of {', '.join(ROOTS)} is set", hint=HINT)
    if missing:
        where = f"the SNPE SDK at {root}" if root else "the SNPE SDK on the PATH"
        raise RuntimeMissingError(f"{where} lacks {', '.join(missing)}", hint=HINT)
    return SnpeSdk(version=_version(root, found["convert"]), environment=_environment(root, path, known), **found)


def _folders(root: Path | None) -> list[str]:
    if root is None:
        return []
    below = [*(f"bin/{host}" for host in _HOSTS), "bin", "benchmarks/SNPE", "benchmarks"]
    return [str(root / folder) for folder in below if (root / folder).is_dir()]


def _program(names: tuple[str, ...], path: list[str]) -> str:
    return next((found for name in names if (found := shutil.which(name, path=os.pathsep.join(path)))), "")


def _environment(root: Path | None, path: list[str], known: Mapping[str, str]) -> dict[str, str]:
    """What the programs see beside what every command does: the SDK's libraries first, and all about adb."""
    made = {name: value for name, value in known.items() if name.startswith(_PASSED)}
    made["PATH"] = os.pathsep.join(path)
    places = (
        {"PYTHONPATH": [], "LD_LIBRARY_PATH": []}
        if root is None
        else {
            "PYTHONPATH": [str(root / "lib" / "python")],
            "LD_LIBRARY_PATH": [str(root / "lib" / host) for host in _HOSTS if (root / "lib" / host).is_dir()],
        }
    )
    if root is not None:
        made.setdefault("SNPE_ROOT", str(root))
    for name, folders in places.items():
        whole = [*folders, *filter(None, known.get(name, "").split(os.pathsep))]
        if whole:
            made[name] = os.pathsep.join(whole)
    return made


def _version(root: Path | None, program: str) -> str:
    """The version in the folder's name ("snpe-1.33.1.608", "qairt/2.39.0.250926"); "unknown" where there is none."""
    for part in reversed((root.resolve() if root else Path(program).resolve()).parts):
        if found := _VERSION.search(part):
            return found[0]
    return "unknown"
