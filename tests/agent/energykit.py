"""Made-up /sys trees of energy counters, as the kernel's documents describe them, and what drives the counters.

No machine with a counter was at hand: these trees were written by hand, and their counters tell what a test lets them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

RANGE_UJ = 262_143_328_850
"""Where the counters of many processors wrap around."""


def zone(name: str, domain: str, value: int = 0, range_uj: int | None = RANGE_UJ) -> dict[str, str]:
    files = {f"powercap/{name}/name": f"{domain}\n", f"powercap/{name}/energy_uj": f"{value}\n"}
    return files | ({f"powercap/{name}/max_energy_range_uj": f"{range_uj}\n"} if range_uj is not None else {})


def monitor(number: int, chip: str, inputs: Mapping[str, str], value: int = 0) -> dict[str, str]:
    """A hardware monitor with energy inputs: file stem -> label, "" for none."""
    files = {f"hwmon/hwmon{number}/name": f"{chip}\n"}
    for stem, label in inputs.items():
        files[f"hwmon/hwmon{number}/{stem}_input"] = f"{value}\n"
        if label:
            files[f"hwmon/hwmon{number}/{stem}_label"] = f"{label}\n"
    return files


LAPTOP = {
    "powercap/intel-rapl/enabled": "1\n",
    **zone("intel-rapl:0", "package-0"),
    **zone("intel-rapl:0:0", "core"),
    **zone("intel-rapl:0:1", "uncore"),
    **zone("intel-rapl:0:2", "dram", range_uj=65_712_999_613),
    **zone("intel-rapl:1", "psys"),
    **zone("intel-rapl-mmio:0", "package-0"),
    "powercap/dtpm:0/name": "dtpm\n",  # limits power, and counts nothing
}
SERVER = {
    **zone("intel-rapl:0", "package-0"),
    **zone("intel-rapl:0:0", "dram"),
    **zone("intel-rapl:1", "package-1"),
    **zone("intel-rapl:1:0", "dram"),
}
AMD = {**zone("intel-rapl:0", "package-0", range_uj=65_532_610_987), **zone("intel-rapl:0:0", "core")}
OLD_AMD = monitor(3, "amd_energy", {"energy1": "Ecore000", "energy2": "Ecore001", "energy3": "Esocket0"})
BOARD = {
    **monitor(0, "cpu_thermal", {}),
    **monitor(1, "scmi_sensors", {"energy1": "CPU"}),
    **monitor(2, "xe", {"energy1": "card", "energy2": "pkg"}),
}
RAILS = {
    **monitor(9, "ltc2947", {"energy1": ""}),
    **monitor(10, "ltc2947", {"energy1": ""}),
    "hwmon/hwmon11/name": "ina3221\n",
    "hwmon/hwmon11/power1_input": "1200000\n",
}
SAMPLED = {"hwmon/hwmon0/name": "ina226\n", "hwmon/hwmon0/power1_input": "1500000\n"}


def build(root: Path, files: Mapping[str, str]) -> Path:
    """Write a tree below ROOT/class; the root is what GNOMON_SYSFS names."""
    (root / "class").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = root / "class" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def counters(root: Path) -> list[Path]:
    return [*root.glob("class/powercap/*/energy_uj"), *root.glob("class/hwmon/*/energy*_input")]


class MadeTime:
    """Stands for the module `time`: its clock goes on as it is read, and drives the counters of a tree.

    Each counter draws `power_w` and is updated every `period_s`; it began at `start_uj` and wraps where its tree says.
    """

    def __init__(self, root: Path, *, power_w: float = 20.0, period_s: float = 1e-3, start_uj: int = 0) -> None:
        self.now_ns, self.power_w, self.period_s, self.start_uj = 0, power_w, period_s, start_uj
        self.moving = counters(root)
        self._update()

    def perf_counter_ns(self) -> int:
        self.sleep(2e-6)
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        before = int(self.now_ns * 1e-9 / self.period_s)
        self.now_ns += round(seconds * 1e9)
        if int(self.now_ns * 1e-9 / self.period_s) != before:
            self._update()

    def spent_uj(self) -> int:
        """What the last update told, of one counter."""
        return round(int(self.now_ns * 1e-9 / self.period_s) * self.period_s * self.power_w * 1e6)

    def _update(self) -> None:
        for path in self.moving:
            limit = path.with_name("max_energy_range_uj")
            value = self.start_uj + self.spent_uj()
            path.write_text(f"{value % int(limit.read_text()) if limit.exists() else value}\n")


@dataclass
class Draw:
    """The longest that the counters stood still, as their process, or the disk, was late; known after the block."""

    late_s: float = 0.0


_DRIVE = """
import contextlib, os, select, sys, time
power_w, *paths = sys.argv[1:]
with contextlib.suppress(OSError):  # as a counter does: whoever may asks to be run before others
    os.nice(-15)
begin = last = time.monotonic()
late_s, ended = 0.0, False
while not ended:
    ended = bool(select.select([0], [], [], 5e-4)[0])
    now = time.monotonic()
    late_s, last = max(late_s, now - last), now
    for path in paths:
        # At once, as a kernel's file would: nobody reads half a number.
        partial = os.path.join(os.path.dirname(path), "next")
        with open(partial, "w") as file:
            file.write(f"{round((now - begin) * float(power_w) * 1e6)}\\n")
        os.replace(partial, path)
print(max(late_s, time.monotonic() - last))
"""


@contextlib.contextmanager
def constant_draw(root: Path, power_w: float) -> Iterator[Draw]:
    """A stand-in for a machine: a process that lets the counters of a tree rise as if each drew so much, always."""
    draw = Draw()
    argv = [sys.executable, "-I", "-S", "-c", _DRIVE, str(power_w), *map(str, counters(root))]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as drive:
        try:
            yield draw
        finally:
            draw.late_s = float(drive.communicate("ended")[0])
