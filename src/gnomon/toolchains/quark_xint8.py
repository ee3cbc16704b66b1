"""AMD Quark's XINT8 for DPUs, with scales that are powers of two.

Quark requires a particular version of the package onnx, so Quark is installed in a folder separate from gnomon's
packages (`packages`, or the environment variable GNOMON_QUARK_PACKAGES), or in another interpreter (`python`, or
GNOMON_QUARK_PYTHON).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from gnomon.errors import DeviceError
from gnomon.installing import Missing, pip_line
from gnomon.system.children import Program, child_environment
from gnomon.system.process import guarded_folder, run_process
from gnomon.toolchains.base import ChildSettings, Text, Toolchain, UserPath, read_settings
from gnomon.toolchains.children import ChildToolchain

NAME = "quark-xint8"
PYTHON, PACKAGES = "GNOMON_QUARK_PYTHON", "GNOMON_QUARK_PACKAGES"
_WHEELS = ("amd-quark==0.13", "onnx==1.22.0", "onnxslim")
_PROBE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ChildSettings):
    """The settings of the toolchain."""

    config: Annotated[Literal["XINT8", "VINT8"], "Quark's name of the configuration: XINT8 or VINT8"] = "XINT8"
    in_memory: Annotated[bool, "keep activations in memory, much faster than in files"] = True
    python: Annotated[Text | None, f"the interpreter that runs Quark (also {PYTHON})"] = None
    packages: Annotated[UserPath | None, f"a folder of packages that take precedence (also {PACKAGES})"] = None


def quark_xint8(settings: Mapping[str, object]) -> Toolchain:
    """The toolchain with these settings. UsageError for unknown settings."""
    values = read_settings(NAME, Settings, settings)
    folder = values.packages or (Path(os.environ[PACKAGES]) if os.environ.get(PACKAGES) else None)
    program = replace(
        values.program("quark_child", "images", "config", "in_memory"),
        python=values.python or os.environ.get(PYTHON) or sys.executable,
        packages=folder,
        # Outside the child's temporary home, so that the extension is compiled only once.
        environment={"TORCH_EXTENSIONS_DIR": str(_extensions(folder))},
    )
    return ChildToolchain(name=NAME, runtime="onnxruntime", program=program, check=lambda: _missing(program))


def _extensions(folder: Path | None) -> Path:
    if given := os.environ.get("TORCH_EXTENSIONS_DIR"):
        return Path(given).absolute()
    if folder is not None and os.access(folder, os.W_OK):
        return folder.absolute() / ".torch_extensions"
    return Path.home() / ".cache" / "torch_extensions"


def _install(program: Program) -> str:
    """Instructions for installing Quark in a separate folder, for the interpreter that runs it."""
    line = pip_line(_WHEELS, program.python, options=["--no-deps", "--target", "DIR"])
    return (
        f"{line}, then set packages=DIR or {PACKAGES}=DIR; torch, onnxruntime, joblib, psutil, rich, tqdm and "
        "setuptools come from the interpreter."
    )


def _missing(program: Program) -> tuple[Missing, ...]:
    missing = []
    if program.packages is not None and not program.packages.is_dir():
        missing.append(Missing(what=f"there is no folder {program.packages}", hint=_install(program)))
    python = shutil.which(program.python)
    compiler = f"apt-get install g++; {pip_line(['ninja'], program.python)}: Quark compiles at its first import."
    if python is None:
        missing.append(Missing(what=f"there is no interpreter {program.python}", hint=f"Correct {PYTHON}."))
    else:
        missing += [Missing(what=what, hint=_install(program)) for what in _packages_missing(program)]
    places = child_environment(program, Path("/"))["PATH"]
    missing += [
        Missing(what=f"there is no {name}", hint=compiler)
        for name in ("g++", "ninja")
        if shutil.which(name, path=places) is None
    ]
    return tuple(missing)


def _packages_missing(program: Program) -> list[str]:
    """A sentence for each package that the interpreter does not find; none is loaded."""
    with guarded_folder("gnomon-quark-") as home:
        environment = child_environment(program, home) | {"GNOMON_CHILD_NEEDS": "1"}
        try:
            done = run_process(program.argv, env=environment, timeout_s=_PROBE_S, cwd=home)
            if done.timed_out:
                raise subprocess.TimeoutExpired(program.argv, _PROBE_S)
            names = json.loads(done.stdout)
        except (DeviceError, ValueError, subprocess.TimeoutExpired) as error:
            why = type(error.__cause__ or error).__name__
            return [f"{program.python} cannot run gnomon's child programs ({why})"]
    return [f"the package {str(name)[:60]} is not installed for {program.python}" for name in names]
