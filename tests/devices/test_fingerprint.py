"""The fingerprint of made-up machines and of this one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
