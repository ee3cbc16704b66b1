"""The facts that identify a machine when times are compared. This file runs on the device, with only the standard
library of Python 3.8 or later.

As a program, it prints the fingerprint as JSON, so that this file can be piped into `python3 -` on any device. Values
that change from minute to minute belong in a snapshot instead (gnomon.agent.snapshot).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MOST_CORES = 4096

DRIVERS = (
    *("VK_DRIVER_FILES", "VK_ADD_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_LOADER_DEVICE_SELECT"),
    *("VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE", "DRI_PRIME"),
    *("MESA_VK_DEVICE_SELECT", "MESA_LOADER_DRIVER_OVERRIDE", "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER"),
    *("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "POCL_DEVICES", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HSA_OVERRIDE_GFX_VERSION"),
    *("ZE_AFFINITY_MASK", "ZE_ENABLE_ALT_DRIVERS", "ZE_FLAT_DEVICE_HIERARCHY", "ONEAPI_DEVICE_SELECTOR"),
    *("GGML_VK_VISIBLE_DEVICES", "GGML_OPENCL_PLATFORM", "GGML_OPENCL_DEVICE", "ADSP_LIBRARY_PATH"),
)
"""Environment variables that choose a driver or hide accelerators, for Vulkan, Mesa, ONNX Runtime, OpenCL, CUDA, ROCm,
Level Zero, ggml and Qualcomm's DSPs. With other values, a different device may compute.
"""


def fingerprint(root: str = "/", environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Read the fingerprint of the machine whose /proc and /sys are below `root`: a map of JSON values.

    `environment` is the environment of commands on that machine (None: that of this process).

    Keys: machine, cpu_model (for Arm the board's name, because many boards share a processor), cores (those this
    process may use), cores_online, core_kinds, cpu_flags_sha256, soc, gpus, thermal_zones (their types), memory_bytes,
    os, kernel, libc, python, governor (the set of all cores' governors), smt, hypervisor, driver_variables (those of
    `DRIVERS` that are set). Unknown values are None.

    `core_kinds` groups identical cores: ``{"cores": [0, 1], "implementer": "0x41", "part": "0xd03", "min_khz": ..,
    "max_khz": .., "capacity": ..}``, with the numbers of the processor's maker and design, the limits of its clock, and
    the kernel's cpu_capacity (1024 for the fastest cores). On x86, implementer and part are vendor and
    family-model-stepping. `soc` holds, as far as they are known, compatible (the device tree's list, the board first),
    machine, family and soc_id.
    """
    base = Path(root)
    given = os.environ if environment is None else environment
    cpuinfo = _read(base / "proc/cpuinfo")
    info = _fields(cpuinfo)
    flags = (info.get("flags") or info.get("Features") or "").split()
    governors = {_read(p) for p in base.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")}
    pretty = [line for line in _read(base / "etc/os-release").splitlines() if line.startswith("PRETTY_NAME=")]
    return {
        "machine": platform.machine(),
        "cpu_model": _model(base, info),
        "cores": _cores(base),
        "cores_online": os.cpu_count(),
        "core_kinds": _core_kinds(base, cpuinfo) or None,
        "soc": _soc(base) or None,
        "gpus": _gpus(base) or None,
        "thermal_zones": _thermal_zones(base) or None,
        "cpu_flags_sha256": hashlib.sha256(" ".join(sorted(flags)).encode()).hexdigest() if flags else None,
        "memory_bytes": _memory_bytes(base),
        "os": pretty[0].partition("=")[2].strip("\"'") if pretty else platform.system(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "python": platform.python_version(),
        "governor": ",".join(sorted(governors - {""})) or None,
        "smt": _read(base / "sys/devices/system/cpu/smt/active") or None,
        "hypervisor": "hypervisor" in flags if flags else None,
        "driver_variables": {name: given[name] for name in DRIVERS if name in given} or None,
    }


def _cores(base: Path) -> int | None:
    """The number of cores that this process may use: those in its affinity mask, up to its control groups' quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if count is None:
        return None
    for line in _read(base / "proc/self/cgroup").splitlines():
        number, kinds, name = [*line.split(":", 2), "", ""][:3]
        if number != "0" and "cpu" not in kinds.split(","):
            continue
        folder = base / "sys/fs/cgroup" / ("" if number == "0" else "cpu") / name.strip("/")
        for place in (folder, *folder.parents):
            quota, _, period = _read(place / "cpu.max").partition(" ")
            quota, period = quota or _read(place / "cpu.cfs_quota_us"), period or _read(place / "cpu.cfs_period_us")
            if quota.isdigit() and period.isdigit() and int(period):
                count = min(count, max(1, int(quota) // int(period)))
    return count


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


def _model(base: Path, info: dict[str, str]) -> str | None:
    """The processor's name, or the board's if the kernel reports only the processor's architecture (Arm)."""
    board = info.get("Model") or _read(base / "proc/device-tree/model") or info.get("Hardware")
    name = info.get("model name")
    model = board or name if "CPU part" in info else name or board
    return model or _read(base / "sys/devices/soc0/machine") or None


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else None


def _core_kinds(base: Path, cpuinfo: str) -> list[dict[str, object]]:
    """The cores that are online, in groups of identical cores, in the order of each group's first core."""
    kinds: dict[tuple[Any, ...], list[int]] = {}
    shared = _fields(cpuinfo)  # old Arm kernels report the design once, after all cores
    for block in re.split(r"\n\s*\n", cpuinfo):
        info = _fields(block)
        number = info.get("processor", "")
        if not re.fullmatch("[0-9]{1,5}", number) or int(number) >= _MOST_CORES:
            continue
        implementer, part = info.get("CPU implementer"), info.get("CPU part")
        if "vendor_id" in info:
            named = [info.get(key, "?") for key in ("cpu family", "model", "stepping")]
            implementer, part = info["vendor_id"], "-".join(named)
        folder = base / "sys/devices/system/cpu" / ("cpu" + number)
        limits = [_number(folder / "cpufreq" / name) for name in ("cpuinfo_min_freq", "cpuinfo_max_freq")]
        implementer, part = implementer or shared.get("CPU implementer"), part or shared.get("CPU part")
        kind = (implementer, part, *limits, _number(folder / "cpu_capacity"))
        kinds.setdefault(kind, []).append(int(number))
    names = ("implementer", "part", "min_khz", "max_khz", "capacity")
    groups = [{"cores": sorted(cores), **dict(zip(names, kind))} for kind, cores in kinds.items()]  # noqa: B905 - 3.8
    return sorted(groups, key=lambda kind: kind["cores"])


def _soc(base: Path) -> dict[str, object]:
    """The system on a chip, as reported by the device tree or its driver, without its serial number."""
    compatible = [name for name in _read(base / "proc/device-tree/compatible").split("\0") if name]
    facts: dict[str, object] = {"compatible": compatible}
    for name in ("machine", "family", "soc_id"):
        facts[name] = _read(base / "sys/devices/soc0" / name)
    return {key: value for key, value in facts.items() if value}


def _gpus(base: Path) -> list[str]:
    """The devices that render or compute: driver and device, or the model's name if the driver reports it."""
    folders = [*base.glob("sys/class/drm/renderD*/device"), *base.glob("sys/class/misc/mali[0-9]*/device")]
    gpus = []
    for folder in folders:
        uevent = dict(line.partition("=")[::2] for line in _read(folder / "uevent").splitlines())
        device = _read(folder / "gpuinfo") or uevent.get("OF_COMPATIBLE_0") or uevent.get("PCI_ID") or ""
        gpus.append((uevent.get("DRIVER", "") + " " + device).strip())
    for model in base.glob("sys/class/kgsl/kgsl-3d*/gpu_model"):
        gpus.append(("kgsl " + _read(model)).strip())
    return sorted(filter(None, gpus))


def _thermal_zones(base: Path) -> list[str]:
    """The types of the thermal zones, without the numbers that some drivers assign at each start."""
    types = {_read(path) for path in base.glob("sys/class/thermal/thermal_zone*/type")}
    return sorted({re.sub(r"_\d+$", "", kind) for kind in types} - {""})


def _memory_bytes(base: Path) -> int | None:
    total = _fields(_read(base / "proc/meminfo")).get("MemTotal", "").split()
    return int(total[0]) * 1024 if total and re.fullmatch("[0-9]{1,15}", total[0]) else None


if __name__ == "__main__":
    print(json.dumps(fingerprint()))
