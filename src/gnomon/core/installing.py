"""How what is missing is installed: pip lines that name the packages themselves.

Gnomon is on no package index, so that no line may name it: whoever took the name there would run code on users'
machines.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gnomon.errors import RuntimeMissingError

_ONNX = ("onnx>=1.17",)
_ONNXRUNTIME = ("onnxruntime>=1.23", *_ONNX)
_OPENVINO = ("openvino>=2025.3", *_ONNX)

_SPACE = (
    *_ONNXRUNTIME,
    "torch>=2.4",
    "safetensors>=0.4.3",
    "ruamel.yaml>=0.19.1",
    "scikit-learn>=1.4",
    "pillow>=10",
)

EXTRAS: dict[str, tuple[str, ...]] = {
    "onert": ("onert>=0.1.0",),
    "onnxruntime": _ONNXRUNTIME,
    "openvino": _OPENVINO,
    "litert": ("ai-edge-litert>=2.1.6",),
    "ncnn": ("ncnn>=1.0.20250503", *_ONNX),
    "mnn": ("MNN>=3.6", *_ONNX),
    "executorch": ("executorch==1.5.1", "torch>=2.13,<2.14"),
    "pytorch": ("torch>=2.6",),
    "plot": ("vl-convert-python>=1.9,<2",),
    "search": ("pymoo>=0.6.1",),
    "space": _SPACE,
    "huggingface": (*_SPACE, "datasets>=4"),
    "quantise": (*_ONNXRUNTIME, "openvino>=2025.3", "nncf>=3.4"),
    "http": ("aiohttp>=3.14",),
    "cluster": ("distributed>=2024.8",),
    "postgres": ("psycopg[binary]>=3.2",),
    "labgrid": ("labgrid>=26",),
    "tvm": (
        *_ONNXRUNTIME,
        "apache-tvm==0.27.0.post1",
        "apache-tvm-ffi==0.1.14.post1",
        "cloudpickle>=3",
        "psutil>=5.9",
        "tflite>=2.10",
        "tornado>=6.1",
        'xgboost-cpu>=2.1; sys_platform == "linux" and platform_machine == "x86_64"',
    ),
}
"""The requirements of each extra of pyproject.toml, those of the extras in it among them; a test holds them equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A program, a package or a file that a toolchain needs and that is not here; `hint` says how to get it."""

    what: str
    hint: str


def pip_line(requirements: Sequence[str], python: str = "python", *, options: Sequence[str] = ()) -> str:
    """The shell command that installs requirements for an interpreter, with options of pip's own."""
    return f"{shlex.quote(python)} -m pip install {shlex.join([*options, *requirements])}"


def install_line(*names: str, python: str) -> str:
    """The shell command that installs extras and packages for an interpreter.

    A name is that of an extra or of a package; a package that an extra asks for is in the versions that it asks for.
    Its condition is left out: pip installs a package that is named by itself, or says why it cannot.
    """
    packages = [one.partition(";")[0] for wanted in EXTRAS.values() for one in wanted]
    known = {one.split(">=")[0].split("==")[0]: one for one in packages}
    wanted = [one for name in names for one in EXTRAS.get(name, (known.get(name, name),))]
    return pip_line(list(dict.fromkeys(wanted)), python)


@contextmanager
def needed(sentence: str, name: str, *, python: str, instead: str = "") -> Iterator[None]:
    """Around the import of a package: RuntimeMissingError where it fails, of the sentence and the reason.

    The hint is the line that installs the extra or package `name`, then `instead`.
    """
    try:
        yield
    except (ImportError, OSError) as error:  # OSError: one of its shared libraries is missing
        raise RuntimeMissingError(f"{sentence}: {error}", hint=install_line(name, python=python) + instead) from error
