"""A made-up /sys of two cores, a driver that waits to be let go, and a supervisor that is told to set a governor."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.processkit import all_processes, becomes, words_of

from gnomon.measure.link import packed_agent

HERE = Path(__file__).parent
#: A driver whose probe tells what its process sees, once it is let go.
DRIVER = """
import os, time
from pathlib import Path
class Watch:
    def probe(self):
        here = Path(__file__).parent
        (here / "started").touch()
        while not (here / "go").exists():
            time.sleep(0.01)
        cpu = here / "sys/devices/system/cpu"
        return {"cores": sorted(os.sched_getaffinity(0)),
                "governors": {p.parts[-3]: p.read_text().strip() for p in cpu.glob("cpu*/cpufreq/scaling_governor")}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A folder with a made-up /sys of two cores, the agent, and the driver; it is filled on making.

    `python` starts the agent, which finds packages in `paths`.
    """

    folder: Path
    python: str = sys.executable
    paths: str = str(HERE)

    def __post_init__(self) -> None:
        (self.folder / "agent.pyz").write_bytes(packed_agent())
        (self.folder / "watch.py").write_text(DRIVER)
        for core in (0, 1):
            self.governor(core).parent.mkdir(parents=True)
            self.governor(core).write_text("ondemand\n")
            self.governor(core).with_name("scaling_available_governors").write_text("ondemand performance powersave \n")
        (self.cpu / "online").write_text("0-1\n")

    @property
    def cpu(self) -> Path:
        return self.folder / "sys/devices/system/cpu"

    def governor(self, core: int) -> Path:
        return self.cpu / f"cpu{core}/cpufreq/scaling_governor"

    def governors(self) -> list[str]:
        return [self.governor(core).read_text().strip() for core in (0, 1)]

    def go(self) -> None:
        (self.folder / "go").touch()

    def start(self, machine: Any, request: dict[str, Any] | None = None) -> subprocess.Popen[str]:
        """A supervisor of one probe, or of the given request, in a process group of its own."""
        command = {"do": "probe", "runtime": "watch:Watch"}
        asked = request or {"timeout_s": 60, "commands": [{"key": "probe", "command": command}]}
        process = subprocess.Popen(
            [self.python, str(self.folder / "agent.pyz"), "supervise"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "GNOMON_SYSFS": str(self.folder / "sys"), "PYTHONPATH": f"{self.folder}:{self.paths}"},
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({**asked, "machine": machine}) + "\n")
        process.stdin.flush()
        return process

    @contextlib.contextmanager
    def running(self, machine: Any) -> Iterator[subprocess.Popen[str]]:
        """A supervisor whose probe has started."""
        with self.start(machine) as process:
            try:
                assert becomes((self.folder / "started").exists)
                yield process
            finally:
                process.kill()

    def events(self, machine: Any, request: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        self.go()
        with self.start(machine, request) as process:
            return events_of(process)

    def wardens(self) -> list[int]:
        """The processes that watch over a governor of this board."""
        lines = {pid: b" ".join(words_of(pid)) for pid in all_processes()}
        folder = str(self.folder).encode()
        return [pid for pid, line in lines.items() if b"scaling_setspeed" in line and folder in line]


def events_of(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert events[-1] == {"event": "end"}
    return [event for event in events[:-1] if event["event"] != "alive"]
