"""The fingerprints of this machine, and of others whose /proc and /sys were written by hand as the kernel says."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gnomon.devices import fingerprint as fingerprint_file
from gnomon.devices.fingerprint import fingerprint

CPU = "sys/devices/system/cpu/cpu"


def arm_core(number: int, part: str, features: str, model_name: str = "") -> str:
    name = f"model name\t: {model_name}\n" if model_name else ""
    return (
        f"processor\t: {number}\n{name}BogoMIPS\t: {100 + number}.00\nFeatures\t: {features}\nCPU implementer\t: 0x41\n"
        f"CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {part}\nCPU revision\t: 3\n\n"
    )


def clocks(cores: range, low: int, high: int, capacity: int | None = None) -> dict[str, str]:
    files = {}
    for core in cores:
        files[f"{CPU}{core}/cpufreq/cpuinfo_min_freq"] = f"{low}\n"
        files[f"{CPU}{core}/cpufreq/cpuinfo_max_freq"] = f"{high}\n"
        files[f"{CPU}{core}/cpufreq/scaling_cur_freq"] = f"{random.randint(low, high)}\n"  # must not matter
        files[f"{CPU}{core}/cpufreq/scaling_governor"] = "ondemand\n"
        if capacity is not None:
            files[f"{CPU}{core}/cpu_capacity"] = f"{capacity}\n"
    return files


RASPBERRY_PI_4 = {
    "proc/cpuinfo": "".join(arm_core(k, "0xd08", "fp asimd evtstrm crc32 cpuid") for k in range(4))
    + "Hardware\t: BCM2835\nRevision\t: c03112\nSerial\t\t: 10000000feedbeef\n"
    "Model\t\t: Raspberry Pi 4 Model B Rev 1.2\n",
    "proc/meminfo": "MemTotal:        3884292 kB\n",
    "proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.2\0",
    "proc/device-tree/compatible": "raspberrypi,4-model-b\0brcm,bcm2711\0",
    **clocks(range(4), 600000, 1500000, 1024),
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "48686\n",
    "sys/class/drm/card0/device/uevent": "DRIVER=vc4-drm\nOF_COMPATIBLE_0=brcm,bcm2711-vc5\n",
    "sys/class/drm/card1/device/uevent": "DRIVER=v3d\nOF_COMPATIBLE_0=brcm,2711-v3d\n",
    "sys/class/drm/renderD128/device/uevent": "DRIVER=v3d\nOF_NAME=v3d\nOF_COMPATIBLE_0=brcm,2711-v3d\n",
}
ODROID_XU4 = {
    "proc/cpuinfo": "".join(
        arm_core(k, "0xc07" if k < 4 else "0xc0f", "half thumb neon vfpv4", "ARMv7 Processor rev 3 (v7l)")
        for k in range(8)
    )
    + "Hardware\t: ODROID-XU4\nRevision\t: 0100\nSerial\t\t: 0000000000000000\n",
    "proc/meminfo": "MemTotal:        2043720 kB\n",
    "proc/device-tree/model": "Hardkernel Odroid XU4\0",
    "proc/device-tree/compatible": "hardkernel,odroid-xu4\0samsung,exynos5800\0samsung,exynos5\0",
    "sys/devices/soc0/family": "Samsung Exynos\n",
    "sys/devices/soc0/machine": "Hardkernel Odroid XU4\n",
    "sys/devices/soc0/soc_id": "EXYNOS5422\n",
    "sys/devices/soc0/serial_number": "feedbeef\n",
    **clocks(range(4), 200000, 1400000, 448),
    **clocks(range(4, 8), 200000, 2000000, 1024),
    **{f"sys/class/thermal/thermal_zone{k}/type": f"cpu{k}-thermal\n" for k in range(4)},
    "sys/class/thermal/thermal_zone4/type": "gpu-thermal\n",
    "sys/class/misc/mali0/device/uevent": "DRIVER=mali\nOF_COMPATIBLE_0=arm,malit628\n",
    "sys/class/misc/mali0/device/gpuinfo": "Mali-T62x 6 cores r0p1 0x0620\n",
}
LAPTOP = {
    "proc/cpuinfo": "".join(
        f"processor\t: {k}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 154\nmodel name\t: 12th Gen Intel "
        f"Core i5\nstepping\t: 3\ncpu MHz\t\t: {random.randint(400, 4400)}.0\nflags\t\t: avx2\n\n"
        for k in range(6)
    ),
    **clocks(range(2), 400000, 4400000),
    **clocks(range(2, 6), 400000, 3300000),
    "sys/class/thermal/thermal_zone0/type": "acpitz\n",
    "sys/class/thermal/thermal_zone1/type": "x86_pkg_temp\n",
    "sys/class/thermal/thermal_zone2/type": "iwlwifi_3\n",
    "sys/class/drm/renderD128/device/uevent": "DRIVER=i915\nPCI_CLASS=30000\nPCI_ID=8086:46A6\n",
}
#: The form that old kernels had on Arm.
OLD_ARM = {
    "proc/cpuinfo": "Processor\t: ARMv7 Processor rev 0 (v7l)\nprocessor\t: 0\nBogoMIPS\t: 1992.29\n\nprocessor\t: 1\n"
    "BogoMIPS\t: 1992.29\n\nFeatures\t: swp half neon\nCPU implementer\t: 0x41\nCPU part\t: 0xc09\n\n"
    "Hardware\t: ODROID-U2\n"
}


def build(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def kind(cores: list[int], part: str | None, low: int | None, high: int | None, capacity: int | None) -> dict[str, Any]:
    named = {"cores": cores, "implementer": "0x41", "part": part}
    return {**named, "min_khz": low, "max_khz": high, "capacity": capacity}


INTEL = {"implementer": "GenuineIntel", "part": "6-154-3", "min_khz": 400000, "capacity": None}


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        (
            RASPBERRY_PI_4,
            {
                "cpu_model": "Raspberry Pi 4 Model B Rev 1.2",
                "soc": {"compatible": ["raspberrypi,4-model-b", "brcm,bcm2711"]},
                "core_kinds": [kind([0, 1, 2, 3], "0xd08", 600000, 1500000, 1024)],
                "gpus": ["v3d brcm,2711-v3d"],  # what only drives a screen is none
                "thermal_zones": ["cpu-thermal"],
            },
        ),
        (
            ODROID_XU4,
            {
                "cpu_model": "Hardkernel Odroid XU4",
                "soc": {
                    "compatible": ["hardkernel,odroid-xu4", "samsung,exynos5800", "samsung,exynos5"],
                    "machine": "Hardkernel Odroid XU4",
                    "family": "Samsung Exynos",
                    "soc_id": "EXYNOS5422",
                },
                "core_kinds": [
                    kind([0, 1, 2, 3], "0xc07", 200000, 1400000, 448),
                    kind([4, 5, 6, 7], "0xc0f", 200000, 2000000, 1024),
                ],
                "gpus": ["mali Mali-T62x 6 cores r0p1 0x0620"],
                "thermal_zones": [*(f"cpu{number}-thermal" for number in range(4)), "gpu-thermal"],
            },
        ),
        (
            LAPTOP,
            {
                "cpu_model": "12th Gen Intel Core i5",
                "soc": None,
                "core_kinds": [
                    {"cores": [0, 1], **INTEL, "max_khz": 4400000},
                    {"cores": [2, 3, 4, 5], **INTEL, "max_khz": 3300000},
                ],
                "gpus": ["i915 8086:46A6"],
                "thermal_zones": ["acpitz", "iwlwifi", "x86_pkg_temp"],
            },
        ),
        (OLD_ARM, {"cpu_model": "ODROID-U2", "core_kinds": [kind([0, 1], "0xc09", None, None, None)]}),
        ({"sys/class/kgsl/kgsl-3d0/gpu_model": "Adreno640v2\n"}, {"gpus": ["kgsl Adreno640v2"]}),
        (
            {"proc/cpuinfo": "processor : 99999999999999999999\n\nprocessor : ٣\n\nprocessor : 2\n"},
            {"core_kinds": [kind([2], None, None, None, None) | {"implementer": None}]},
        ),
        ({}, {"cpu_model": None, "memory_bytes": None}),
    ],
    ids=["Raspberry Pi 4", "Odroid XU4", "laptop", "old kernel", "phone", "hostile numbers of cores", "empty"],
)
def test_a_machine_is_read(tmp_path: Path, files: dict[str, str], facts: dict[str, Any]) -> None:
    seen = fingerprint(build(tmp_path, files))
    assert {name: seen[name] for name in facts} == facts
    assert "feedbeef" not in json.dumps(seen)  # it tells what a board is, not which one


@pytest.mark.parametrize("board", [RASPBERRY_PI_4, ODROID_XU4, LAPTOP])
def test_what_changes_from_minute_to_minute_does_not_matter(tmp_path: Path, board: dict[str, str]) -> None:
    first = fingerprint(build(tmp_path, board))
    for name, text in board.items():
        if name.endswith("cpuinfo"):
            (tmp_path / name).write_text(text.replace("cpu MHz\t\t: ", "cpu MHz\t\t: 1"))
        elif name.endswith(("cur_freq", "/temp")):
            (tmp_path / name).write_text("999")
    assert fingerprint(str(tmp_path)) == first


def test_an_arm_board_is_read(tmp_path: Path) -> None:
    files = {
        "proc/cpuinfo": "processor : 0\nFeatures : fp asimd\n\nprocessor : 1\nFeatures : fp asimd\n",
        "proc/device-tree/model": "Hardkernel ODROID-N2\0",
        "proc/meminfo": "MemTotal:  2000 kB\n",
        "etc/os-release": 'NAME="x"\nPRETTY_NAME="Tizen 9"\n',
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance",
    }
    seen = fingerprint(build(tmp_path, files))
    assert (seen["cpu_model"], seen["memory_bytes"], seen["os"]) == ("Hardkernel ODROID-N2", 2000 * 1024, "Tizen 9")
    assert seen["governor"] == "performance,schedutil"
    assert seen["hypervisor"] is False
    flags = seen["cpu_flags_sha256"]
    (tmp_path / "proc/cpuinfo").write_text("Features : asimd fp\n")
    assert fingerprint(str(tmp_path))["cpu_flags_sha256"] == flags
    (tmp_path / "proc/cpuinfo").write_text("Features : asimd fp sve\n")
    assert fingerprint(str(tmp_path))["cpu_flags_sha256"] != flags


def test_drivers_that_are_chosen_otherwise_are_another_device(tmp_path: Path) -> None:
    plain = fingerprint(str(tmp_path), {"PATH": "/bin"})
    assert plain["driver_variables"] is None
    hidden = fingerprint(str(tmp_path), {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": ""})
    assert hidden == {**plain, "driver_variables": {"CUDA_VISIBLE_DEVICES": ""}}


def test_another_process_sees_the_same() -> None:
    code = Path(fingerprint_file.__file__).read_bytes()
    done = subprocess.run([sys.executable, "-I", "-S", "-"], input=code, capture_output=True, check=True)
    assert json.loads(done.stdout) == fingerprint()


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/jobs/mine\n", "sys/fs/cgroup/jobs/mine/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/jobs/mine\n", "sys/fs/cgroup/jobs/mine/cpu.max": "300000 100000\n"}, 3),
        # What a group above allows holds for all below; a part of a core is one.
        (
            {
                "proc/self/cgroup": "0::/jobs/mine\n",
                "sys/fs/cgroup/jobs/cpu.max": "50000 100000\n",
                "sys/fs/cgroup/jobs/mine/cpu.max": "300000 100000\n",
            },
            1,
        ),
        (
            {
                "proc/self/cgroup": "9:memory:/jobs\n4:cpu,cpuacct:/jobs\n0::/\n",
                "sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/jobs/cpu.cfs_quota_us": "100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/jobs\n",
                "sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
        # In a container the group's own name is that of the host.
        (
            {
                "proc/self/cgroup": "4:cpu:/docker/0123\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
    ],
)
def test_a_quota_of_control_groups_leaves_so_many_cores(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert fingerprint(build(tmp_path, files))["cores"] == cores
