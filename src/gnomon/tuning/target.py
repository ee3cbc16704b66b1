"""The compiler's target for a device, in the user's form and in TVM's form, and the linker for that target."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.core.strict_json import Strict
from gnomon.errors import ProblemError, RuntimeMissingError, UsageError
from gnomon.formats.tuning.logs import read_target as read_old_target
from gnomon.system.files import read_file

NATIVE = "native"
_GPUS = frozenset({"cuda", "nvptx", "rocm", "opencl", "vulkan", "metal", "webgpu"})
"""TVM's kinds of targets for GPUs."""

_X86 = re.compile(r"x86-64(-v[2-4])?|znver[1-5]|core2|nehalem|sandybridge|haswell|skylake(-avx512)?|icelake-server")
_SYSTEMS = {
    "aarch64-android": "aarch64-linux-android",
    "armv7-android": "armv7a-linux-androideabi",
    "aarch64": "aarch64-linux-gnu",
    "armv7": "armv7l-linux-gnueabihf",
    "riscv64": "riscv64-linux-gnu",
    "x86_64": "x86_64-linux-gnu",
}
_COMMANDS = {"armv7l-linux-gnueabihf": "arm-linux-gnueabihf"}
_ANDROID_API = "24"
_FORMS = (
    "native, x86-64, x86-64-v3, aarch64-cortex-a72, armv7-cortex-a7, aarch64-android, 'llvm -mcpu=..', a JSON object, "
    "or @FILE"
)
_TEXTS = frozenset({"mcpu", "mtriple", "mfloat-abi", "mabi", "model", "device"})
_NUMBERS = frozenset({"num-cores", "opt-level", "vector-width"})
_LISTS = frozenset({"mattr", "keys", "libs", "cl-opt"})
_OF_MODELS = frozenset({"link-params", "runtime", "system-lib", "executor", "interface-api", "unpacked-api"})
"""Keys in old targets that say how to package a model; TVM's current targets do not have them."""
_ANDROID = {"arm64-linux-android": "aarch64-linux-android", "arm-linux-android": "armv7a-linux-androideabi"}
"""Triples that LLVM accepts, and the corresponding prefixes of the NDK's compilers."""
_MOST_BYTES = 100_000
_JSON = Strict(what="target", hint="Give a JSON object with a kind.", most_letters=_MOST_BYTES)
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


def read_target(text: str, *, here: Mapping[str, Any]) -> dict[str, Any]:
    """The target from a user's text; `here` describes the "native" processor: its mcpu and, if it is another machine's,
    its mtriple.

    UsageError, with the possible forms, for a text that is not a target.
    """
    if text.startswith("@") or text.lstrip().startswith("{"):
        return _written(text)
    words = text.split()
    if words == ["llvm"] or (len(words) > 1 and all(word.startswith("-") for word in words[1:])):
        return _old(text)
    if text == NATIVE:
        return _native(here)
    if text in _GPUS:
        _check_kind(text)
    if text == "generic":
        return {"kind": "llvm"}
    if _X86.fullmatch(text):
        other = {} if _host() == "x86_64" else {"mtriple": _SYSTEMS["x86_64"]}
        return {"kind": "llvm", **other, "mcpu": text}
    for family, triple in _SYSTEMS.items():
        if match := re.fullmatch(rf"{family}(-{_NAME})?", text):
            return _foreign(family, triple, (match[1] or "")[1:])
    raise UsageError(f"there is no target {text!r}", hint=f"Give {_FORMS}.")


def _native(here: Mapping[str, Any]) -> dict[str, Any]:
    """The target for a machine's own processor, from LLVM's description of it."""
    triple = str(here.get("mtriple", ""))
    machine = triple.split("-")[0]
    if machine in ("", _host()):
        return {"kind": "llvm", "mcpu": str(here["mcpu"])}
    # LLVM's triple has a vendor, which the names of linkers lack.
    family = "armv7" if machine.startswith("armv7") else machine
    return _foreign(family, _SYSTEMS.get(family, triple), str(here["mcpu"]))


def _foreign(family: str, triple: str, mcpu: str) -> dict[str, Any]:
    """The target for a processor of another kind of machine, or, without `mcpu`, for any processor of the family."""
    neon = {"mattr": ["+neon"]} if family.startswith("armv7") else {}
    return {"kind": "llvm", "mtriple": triple, **neon, **({"mcpu": mcpu} if mcpu else {})}


def _old(text: str) -> dict[str, Any]:
    """A target of an old version of TVM, ``llvm -mcpu=cortex-a72 -mattr=+neon``, in the form that TVM accepts today."""
    options = read_old_target(text)
    _check_kind(options["kind"])
    target: dict[str, Any] = {"kind": options.pop("kind")}
    for given, value in options.items():
        name = "mtriple" if given == "target" else given  # the option's name before TVM 0.7
        if name in _OF_MODELS:
            continue
        if name in _LISTS and isinstance(value, str):
            target[name] = value.split(",")
        elif name in _NUMBERS and str(value).isdecimal():
            target[name] = int(value)
        elif name in _TEXTS and isinstance(value, str) and value:
            target[name] = value
        else:
            option = f"-{given}" if value is True else f"-{given}={value}"
            raise UsageError(
                f"current versions of TVM do not accept {option} in a target",
                hint=f"Leave out {option}, or give {_FORMS}.",
            )
    return target


def _check_kind(kind: str) -> None:
    """Raise UsageError for every kind of target except llvm, such as a GPU."""
    if kind != "llvm":
        raise UsageError(
            f"gnomon tunes only for processors (kind llvm), not for targets of the kind {kind!r}",
            hint=f"Give {_FORMS}.",
        )


def _written(text: str) -> dict[str, Any]:
    """The target from a JSON object, or from a file with a JSON object ("@FILE"). UsageError for anything else."""
    content: str | bytes = text
    if text.startswith("@"):
        content = read_file(Path(text[1:]), hint=f"Give {_FORMS}.", most_bytes=_MOST_BYTES)
    try:
        value = _JSON.parse(content)
    except ProblemError as error:
        raise UsageError(str(error), hint=f"Give {_FORMS}.") from error
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise UsageError("a target must be JSON with a kind", hint='Give, say, {"kind": "llvm", "mcpu": "apple-m1"}.')
    _check_kind(value["kind"])
    return value


def with_cores(target: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """The target with the number of cores that a function may use; a target that already states it is unchanged."""
    return dict(target) if "num-cores" in target else {**target, "num-cores": threads}


def read_linker(target: Mapping[str, Any], given: str | None) -> str:
    """The command that links for a target: the given command, or else a command that fits the target's triple.

    "" means the host's own linker. UsageError for a given command that does not exist, RuntimeMissingError if no
    command is found.
    """
    if given is not None:
        return _given(given)
    triple = str(target.get("mtriple", ""))
    if not triple or (triple.split("-")[0] == _host() and "linux" in triple and "android" not in triple):
        return ""
    if "android" in triple:
        return _android(triple)
    prefix = _COMMANDS.get(triple, triple)
    for name in (f"{prefix}-g++", f"{prefix}-gcc"):
        if shutil.which(name):
            return name
    if shutil.which("clang++") and shutil.which("ld.lld"):
        return f"clang++ --target={prefix} -fuse-ld=lld"
    raise RuntimeMissingError(
        f"this machine has no linker for {triple}",
        hint=f"Give --linker COMMAND. On Debian, you can also run: apt install g++-{prefix.replace('_', '-')}",
    )


def _given(text: str) -> str:
    """The linker that the user gave, with an absolute path if it is a path. UsageError if it does not exist."""
    if not text:
        return ""
    try:
        name, *options = shlex.split(text)
        path = shutil.which(name)
    except ValueError:  # only blanks, an open quote, or a character that no name can have
        path = None
    if path is None:
        raise UsageError(f"there is no linker {text!r}", hint="Give the name or path of a compiler, with its options.")
    # The child that links works in its own folder.
    return shlex.join([str(Path(path).absolute()), *options]) if os.sep in name else text


def _android(triple: str) -> str:
    if compiler := os.environ.get("TVM_NDK_CC"):
        if shutil.which(compiler) is None:
            raise RuntimeMissingError(
                f"there is no compiler {compiler!r}, which TVM_NDK_CC names",
                hint="Set TVM_NDK_CC to the clang++ of an Android NDK.",
            )
        return shlex.quote(compiler)
    triple = _ANDROID.get(triple, triple)
    homes = [os.environ[name] for name in ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT") if os.environ.get(name)]
    for home in homes:
        for path in sorted(Path(home).glob(f"toolchains/llvm/prebuilt/*/bin/{triple}{_ANDROID_API}-clang++")):
            return shlex.quote(str(path))
    raise RuntimeMissingError(
        "no Android NDK was found", hint="Set ANDROID_NDK_HOME, or TVM_NDK_CC to its clang++, or give --linker COMMAND."
    )


def _host() -> str:
    return platform.machine()
