"""The fingerprint of a device that has only a shell, derived from its files and the output of its programs."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from gnomon.devices.fingerprint import fingerprint
from gnomon.devices.laid_out import collect_script, lay_out, parse_files

MOST_BYTES = 16 << 20
_FILES = (
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/device-tree/model",
    "/proc/device-tree/compatible",
    "/proc/self/status",
    "/etc/os-release",
    "/sys/devices/soc0/*",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/smt/active",
    "/sys/devices/system/cpu/cpu[0-9]*/cpu_capacity",
    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/*_freq",
    "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
    "/sys/class/drm/renderD*/device/uevent",
    "/sys/class/misc/mali[0-9]*/device/gpuinfo",
    "/sys/class/misc/mali[0-9]*/device/uevent",
    "/sys/class/kgsl/kgsl-3d*/gpu_model",
    "/sys/class/thermal/thermal_zone*/type",
)
_MOST_OF_LDD = 1000
_LIBRARIES = "/lib/ld-musl-* /lib/libc.so.6 /lib/*/libc.so.6 /lib64/libc.so.6 /usr/lib*/libc.so.6"


FINGERPRINT = (
    collect_script(_FILES)
    + "; for o in m r s; do printf '\\036uname-%s\\037' $o; uname -$o; done"
    + f'; for f in {_LIBRARIES}; do [ -e "$f" ] && printf \'\\036libc\\037%s\\n\' "$f" && break; done'
    + "; printf '\\036ldd\\037'; ldd --version 2>&1 </dev/null; true"
)
"""A script that prints the data for a machine's fingerprint."""


def described(printed: bytes, root: Path, environment: str = "") -> dict[str, object]:
    """The fingerprint of the device that printed `printed`; `root` is an empty folder on this machine.

    `environment` is the output of `env` for commands on the device. The result contains nothing from this machine: the
    device's own facts replace those that `fingerprint` takes from the kernel and the Python that run it.
    """
    files = parse_files(printed)
    names = ("uname-m", "uname-r", "uname-s", "libc", "ldd")
    texts = {name: files.pop(name, b"").decode(errors="replace").strip() for name in names}
    lay_out(files, root)
    given = dict(line.partition("=")[::2] for line in environment.splitlines())
    facts = fingerprint(str(root), given)
    status = files.get("/proc/self/status", b"").decode(errors="replace")
    online = _count(files.get("/sys/devices/system/cpu/online", b"").decode(errors="replace"))
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    system = texts["uname-s"] or None
    return {
        **facts,
        "machine": texts["uname-m"] or None,
        "cores": (_count(allowed[1]) if allowed else None) or online,
        "cores_online": online,
        "os": facts["os"] if files.get("/etc/os-release", b"").strip() and facts["os"] != platform.system() else system,
        "kernel": texts["uname-r"] or None,
        "libc": _libc(texts["libc"], texts["ldd"]),
        "python": None,
    }


def _count(ranges: str) -> int | None:
    """The number of elements in one of the kernel's lists, such as "0-3,6"."""
    total = 0
    for part in ranges.strip().split(","):
        first, _, last = part.partition("-")
        if not re.fullmatch("[0-9]{1,5}", first) or not re.fullmatch("[0-9]{0,5}", last):
            return None
        total += int(last or first) - int(first) + 1
    return total


def _libc(path: str, ldd: str) -> str | None:
    """The C library in Python's notation: "glibc 2.36", "musl"."""
    ldd = ldd[:_MOST_OF_LDD]  # a pattern is tried at each character
    version = re.search(r"([0-9]+\.[0-9]+(?:\.[0-9]+)?)", ldd)
    if "musl" in path or ldd.startswith("musl"):
        return f"musl {version[1]}" if version else "musl"
    if "libc.so.6" in path or "GNU" in ldd or "GLIBC" in ldd:
        first = re.search(r"\s([0-9]+\.[0-9]+)\s*$", ldd.splitlines()[0]) if ldd.strip() else None
        return f"glibc {first[1]}" if first else "glibc"
    return None
