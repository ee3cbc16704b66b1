"""The fingerprint of made-up machines and of this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gnomon.devices import fingerprint as fingerprint_file
from gnomon.devices.fingerprint import fingerprint


def test_an_arm_board_is_read(tmp_path: Path) -> None:
    for name, text in {
        "proc/cpuinfo": "processor : 0\nFeatures : fp asimd\n\nprocessor : 1\nFeatures : fp asimd\n",
        "proc/device-tree/model": "Hardkernel ODROID-N2\0",
        "proc/meminfo": "MemTotal:  2000 kB\n",
        "etc/os-release": 'NAME="x"\nPRETTY_NAME="Tizen 9"\n',
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    seen = fingerprint(str(tmp_path))
    assert (seen["cpu_model"], seen["memory_bytes"], seen["os"]) == ("Hardkernel ODROID-N2", 2000 * 1024, "Tizen 9")
    assert seen["governor"] == "performance,schedutil"
    assert seen["hypervisor"] is False
    flags = seen["cpu_flags_sha256"]
    (tmp_path / "proc/cpuinfo").write_text("Features : asimd fp\n")
    assert fingerprint(str(tmp_path))["cpu_flags_sha256"] == flags
    (tmp_path / "proc/cpuinfo").write_text("Features : asimd fp sve\n")
    assert fingerprint(str(tmp_path))["cpu_flags_sha256"] != flags


def test_an_empty_machine_is_none_not_an_error(tmp_path: Path) -> None:
    seen = fingerprint(str(tmp_path))
    assert seen["cpu_model"] is None
    assert seen["memory_bytes"] is None


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
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert fingerprint(str(tmp_path))["cores"] == cores
