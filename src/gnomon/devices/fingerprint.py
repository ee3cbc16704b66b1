"""What identifies a machine to whoever compares times. Runs on the device: standard library only, Python
3.8 on.

As a program it prints the fingerprint as JSON, so that any device can be asked by feeding this file to its
`python3 -`. Values that change from minute to minute belong in a snapshot instead (gnomon.agent.snapshot).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from pathlib import Path
from typing import Any


def fingerprint(root: str = "/") -> dict[str, Any]:
    """Read the fingerprint of the machine whose /proc and /sys lie below `root`: a map of JSON values.

    Keys: machine, cpu_model, cores (that this process may use), cores_online, cpu_flags_sha256,
    memory_bytes, os, kernel, libc, python, governor (the set over the cores), smt, hypervisor.
    What cannot be known is None.
    """
    base = Path(root)
    info = _fields(_read(base / "proc/cpuinfo"))
    flags = (info.get("flags") or info.get("Features") or "").split()
    governors = {_read(p) for p in base.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")}
    pretty = [line for line in _read(base / "etc/os-release").splitlines() if line.startswith("PRETTY_NAME=")]
    return {
        "machine": platform.machine(),
        "cpu_model": info.get("model name") or info.get("Model") or info.get("Hardware") or _board(base),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cores_online": os.cpu_count(),
        "cpu_flags_sha256": hashlib.sha256(" ".join(sorted(flags)).encode()).hexdigest() if flags else None,
        "memory_bytes": _memory_bytes(base),
        "os": pretty[0].partition("=")[2].strip("\"'") if pretty else platform.system(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "python": platform.python_version(),
        "governor": ",".join(sorted(governors - {""})) or None,
        "smt": _read(base / "sys/devices/system/cpu/smt/active") or None,
        "hypervisor": "hypervisor" in flags if flags else None,
    }


def _read(path: Path) -> str:
    try:
        with path.open(errors="replace") as file:
            return file.read(1 << 20).strip().strip("\0")
    except OSError:
        return ""


def _fields(text: str) -> dict[str, str]:
    """The first value of each "name : value" line."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields


def _board(base: Path) -> str | None:
    """The board's name, where the processor gives none (Arm)."""
    return _read(base / "proc/device-tree/model") or _read(base / "sys/devices/soc0/machine") or None


def _memory_bytes(base: Path) -> int | None:
    total = _fields(_read(base / "proc/meminfo")).get("MemTotal", "").split()
    return int(total[0]) * 1024 if total and total[0].isdigit() else None


if __name__ == "__main__":
    print(json.dumps(fingerprint()))
