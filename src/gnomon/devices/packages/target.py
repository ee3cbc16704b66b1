"""The wheels that a device's Python can import: the tags and markers that follow from its fingerprint."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from packaging.markers import Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.version import InvalidVersion

from gnomon.errors import DeviceError, RuntimeMissingError

_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64", "armv8l": "armv7l", "i586": "i686", "i486": "i686"}
_LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
_OLD_X86 = ("x86_64", "i686")
_MOST_MINOR = 200


@dataclass(frozen=True)
class Target:
    """A CPython on a Linux device: the architecture, the version (major, minor, micro), and the C library, if known.

    `libc` is ("glibc", 2, 36), ("musl", 1, 2), or None.
    """

    architecture: str
    python: tuple[int, int, int]
    libc: tuple[str, int, int] | None
    kernel: str = ""

    @property
    def minor(self) -> str:
        """ "3.11"."""
        return f"{self.python[0]}.{self.python[1]}"

    @property
    def version(self) -> str:
        """ "3.11.7"."""
        return ".".join(map(str, self.python))

    def __str__(self) -> str:
        libc = f"{self.libc[0]} {self.libc[1]}.{self.libc[2]}" if self.libc else "an unknown C library"
        return f"Python {self.minor} on {self.architecture} with {libc}"

    @cached_property
    def platforms(self) -> tuple[str, ...]:
        """The platform tags in order of preference: PEP 600 and its predecessors for glibc, PEP 656 for musl."""
        return (f"linux_{self.architecture}", *_libc_platforms(self.architecture, self.libc))

    @cached_property
    def tags(self) -> Mapping[Tag, int]:
        """Each wheel tag that fits (PEP 425), and its rank in the order of preference."""
        major_minor = self.python[:2]
        abi = f"cp{major_minor[0]}{major_minor[1]}"
        ordered = [
            *cpython_tags(python_version=major_minor, abis=[abi], platforms=self.platforms),
            *compatible_tags(python_version=major_minor, interpreter=abi, platforms=self.platforms),
        ]
        return {tag: place for place, tag in reversed(list(enumerate(ordered)))}

    def holds(self, marker: Marker | None, extras: frozenset[str]) -> bool:
        """Whether an environment marker (PEP 508) is true on the target for any of the extras."""
        if marker is None:
            return True
        environment = {
            "implementation_name": "cpython",
            "implementation_version": self.version,
            "os_name": "posix",
            "platform_machine": self.architecture,
            "platform_python_implementation": "CPython",
            "platform_release": self.kernel,
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": self.version,
            "python_version": self.minor,
            "sys_platform": "linux",
        }
        try:
            return any(marker.evaluate({**environment, "extra": extra}) for extra in sorted(extras) or [""])
        except (UndefinedComparison, UndefinedEnvironmentName, InvalidVersion) as error:
            raise RuntimeMissingError(
                f"a requirement's condition is invalid: {str(error)[:200]}",
                hint="Report it to the package's maintainer.",
            ) from error


def target_of(fingerprint: Mapping[str, object]) -> Target:
    """The target that a fingerprint (gnomon.devices.fingerprint) describes; DeviceError if facts are missing."""
    machine, python = fingerprint.get("machine"), fingerprint.get("python")
    version = re.match(r"(\d{1,2})\.(\d{1,3})(?:\.(\d{1,3}))?", python, re.ASCII) if isinstance(python, str) else None
    if not isinstance(machine, str) or not re.fullmatch(r"[A-Za-z0-9_]{1,32}", machine, re.ASCII) or version is None:
        raise DeviceError(
            f"the device reports no usable Python version or architecture: {python!a:.40} on {machine!a:.40}",
            hint="Name its Python with `python` in the file of devices.",
        )
    major, minor, micro = (int(part or 0) for part in version.groups())
    kernel = fingerprint.get("kernel")
    return Target(
        architecture=_ARCHITECTURES.get(machine.lower(), machine.lower()),
        python=(major, minor, micro),
        libc=_libc(fingerprint.get("libc")),
        kernel=kernel if isinstance(kernel, str) else "",
    )


def _libc(text: object) -> tuple[str, int, int] | None:
    if not isinstance(text, str):
        return None
    match = re.match(r"(glibc|musl)(?: libc)? (\d{1,2})\.(\d{1,3})", text, re.ASCII)
    return (match[1], int(match[2]), int(match[3])) if match else None


def _libc_platforms(architecture: str, libc: tuple[str, int, int] | None) -> Iterator[str]:
    if libc is None:
        return
    family, major, newest = libc
    newest = min(newest, _MOST_MINOR)
    if family == "musl":
        for minor in range(newest, -1, -1):
            yield f"musllinux_{major}_{minor}_{architecture}"
        return
    # glibc 2.17 is the first version for which wheels of the other architectures exist.
    oldest = 5 if architecture in _OLD_X86 else 17
    for minor in range(newest, oldest - 1, -1):
        yield f"manylinux_{major}_{minor}_{architecture}"
        if (major, minor) in _LEGACY:
            yield f"{_LEGACY[major, minor]}_{architecture}"
