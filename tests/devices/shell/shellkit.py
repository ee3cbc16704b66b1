"""What every device that is served by its shell must do beside the contract of devices: commands, and its visits."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.processkit import becomes, gone

from gnomon.devices.base import Device
from gnomon.devices.shell.device import ShellDevice
from gnomon.errors import DeviceError
from gnomon.system.process import STDERR_TAIL_BYTES, STDOUT_TAIL_BYTES
from gnomon.testing.device import DeviceContract

FAMILY = "sleep 600 & echo $!; (sleep 600 & echo $!; wait) & echo $!; wait"
"""A script that leaves three processes running and tells their numbers, a line each."""


class Commands:
    """How commands end, and what they leave: for devices of any kind."""

    def test_every_status_that_is_no_signal_is_exact(self, device: Device) -> None:
        for status in (0, 1, 127, 128, 193, 255):
            completed = device.run(["sh", "-c", f"exit {status}"], env={}, timeout_s=60)
            assert (completed.returncode, completed.signal) == (status, None)

    def test_the_whole_family_dies_at_the_time_limit(self, device: Device) -> None:
        completed = device.run(["sh", "-c", FAMILY], env={}, timeout_s=0.5)
        assert (completed.timed_out, completed.signal) == (True, signal.SIGTERM)
        pids = [int(p) for p in completed.stdout.split()]
        assert len(pids) == 3
        assert all(gone(p) for p in pids)
        assert device.run(["echo", "still here"], env={}, timeout_s=60).stdout == "still here\n"

    def test_an_interruption_kills_the_family_and_the_device_stays_open(self, device: Device) -> None:
        pids: list[int] = []

        def listen(line: str) -> None:
            pids.append(int(line))
            if len(pids) == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            device.run(["sh", "-c", FAMILY], env={}, timeout_s=60, on_line=listen)
        assert all(gone(p) for p in pids)
        assert device.run(["echo", "still here"], env={}, timeout_s=60).stdout == "still here\n"

    def test_children_that_hold_the_outputs_do_not_block(self, device: Device) -> None:
        completed = device.run(["sh", "-c", "sleep 600 & echo $!"], env={}, timeout_s=60)
        assert completed.ok
        assert gone(int(completed.stdout))

    def test_who_ignores_sigterm_is_killed(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in ("system.process", "devices.shell.device"):
            monkeypatch.setattr(f"gnomon.{module}._GRACE_S", 0.2)
        script = "trap '' TERM; echo $$; while :; do sleep 600; done"
        completed = device.run(["sh", "-c", script], env={}, timeout_s=0.4)
        assert (completed.signal, completed.timed_out) == (signal.SIGKILL, True)
        assert gone(int(completed.stdout))
        assert device.run(["echo", "still here"], env={}, timeout_s=60).stdout == "still here\n"


class WithoutPython(DeviceContract, Commands):
    """For devices without Python."""

    def test_its_python_starts(self, device: Device) -> None:
        """It has none, and says so."""
        assert device.describe().python == ""
        assert device.describe().fingerprint["python"] is None


class Extremes:
    """For one device of a kind: starts, ends and outputs that are out of the ordinary."""

    def test_what_cannot_start_is_one_error(self, device: Device) -> None:
        for argv in ([], ["/no/such"], ["/etc/passwd"], ["a\0b"], ["sh", "a\0b"]):
            with pytest.raises(DeviceError) as refused:
                device.run(argv, env={}, timeout_s=60)
            assert refused.value.hint
        assert device.run(["true"], env={}, timeout_s=60).ok

    def test_every_line_of_a_big_output_comes(self, device: Device) -> None:
        seen: list[str] = []
        device.run(["seq", "0", "100000"], env={}, timeout_s=60, on_line=seen.append)
        assert seen == [str(n) for n in range(100001)]

    def test_endless_output_meets_the_limit_and_is_capped(self, device: Device) -> None:
        for limit_s in (1.5, 6.0, 24.0):  # on a busy machine it takes a while until there is so much of both
            completed = device.run(["sh", "-c", "yes err >&2 & yes $(printf %01000d 0)"], env={}, timeout_s=limit_s)
            assert completed.timed_out
            lengths = len(completed.stdout), len(completed.stderr)
            if lengths == (STDOUT_TAIL_BYTES, STDERR_TAIL_BYTES):
                break
        assert lengths == (STDOUT_TAIL_BYTES, STDERR_TAIL_BYTES)

    def test_stdin_and_stdout_both_big_do_not_deadlock(self, device: Device) -> None:
        data = b"0123456789abcdef" * (1 << 18)
        received: list[int] = []
        assert device.run(["cat"], env={}, stdin=data, timeout_s=60, on_line=lambda s: received.append(len(s))).ok
        assert sum(received) == len(data)


class Reached(Protocol):
    """A device whose inside a test sees."""

    def settings(self, **changes: Any) -> Any:
        """How to reach it."""

    def device(self, *, on_wait: Callable[[str], None] | None = None, **changes: Any) -> ShellDevice[Any]:
        """It as a device."""

    def private_folders(self) -> list[Path]:
        """The private folders that are there now."""

    def processes(self) -> list[int]:
        """What runs there."""


_VICTIM = """
import importlib, sys
device, settings = (importlib.import_module(name) for name in sys.argv[1:3])
with eval(sys.argv[3], vars(device))(eval(sys.argv[4], vars(settings))) as opened:
    opened.run(["sh", "-c", sys.argv[5]], env={}, timeout_s=600, on_line=lambda line: print(line, flush=True))
"""


class Visits:
    """What one visit leaves for the next, and that it leaves nothing else; each gives a fixture `reached`."""

    silence_s = 30.0
    """After so long without a word the device cleans up by itself."""

    def test_the_configured_environment_is_there_and_gives_way(self, reached: Reached) -> None:
        with reached.device(environment={"ONE": "1", "TWO": "it's\n2"}) as device:
            printed = device.run(["sh", "-c", 'echo "$ONE$TWO"'], env={"ONE": "3"}, timeout_s=60).stdout
        assert printed == "3it's\n2\n"

    def test_the_device_is_clean_afterwards(self, reached: Reached) -> None:
        with reached.device() as device:
            assert len(reached.private_folders()) == 1
            assert device.run(["ls", "-a"], env={}, timeout_s=60).stdout.split() == [".", ".."]
        assert becomes(lambda: not reached.private_folders() and not reached.processes())

    def test_what_was_pushed_is_not_sent_again_by_the_next(self, reached: Reached, tmp_path: Path) -> None:
        (tmp_path / "m").write_bytes(b"x" * 100_000)
        with reached.device() as device:
            first = Path(device.push(tmp_path / "m", "m"))
        before = first.stat().st_ino
        with reached.device() as device:
            assert Path(device.push(tmp_path / "m", "m")).stat().st_ino == before
            # Without ln it is sent once more.
            renamed = Path(device.push(tmp_path / "m", "n"))
            assert (renamed.name, renamed.read_bytes()) == ("n", b"x" * 100_000)
        assert not list(first.parent.parent.glob(".new-*"))

    def test_nothing_stays_where_nothing_may_be_kept(self, reached: Reached, tmp_path: Path) -> None:
        (tmp_path / "m").write_text("of this test alone")
        with reached.device(keep=False) as device:
            remote = Path(device.push(tmp_path / "m", "m"))
            assert remote.read_text() == "of this test alone"
            assert remote.is_relative_to(Path(device.folder).parent)
        assert not remote.exists()

    def test_kill_9_of_gnomon_leaves_the_device_clean(self, reached: Reached) -> None:
        settings = reached.settings(silence_s=self.silence_s)
        kind = type(reached.device())
        modules = (kind.__module__, type(settings).__module__)
        argv = [sys.executable, "-c", _VICTIM, *modules, kind.__name__, repr(settings), FAMILY]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as victim:
            assert victim.stdout is not None
            pids = [int(victim.stdout.readline()) for _ in range(3)]
            victim.kill()
            victim.wait()
            assert all(gone(pid) for pid in pids)
        assert becomes(lambda: not reached.private_folders() and not reached.processes())
        with reached.device():
            pass

    def test_the_second_waits_for_the_first(self, reached: Reached) -> None:
        told: list[str] = []
        entered = threading.Event()

        def second() -> None:
            with reached.device(on_wait=told.append):
                entered.set()

        with reached.device():
            thread = threading.Thread(target=second)
            thread.start()
            assert becomes(lambda: told)
            assert not entered.is_set()
        thread.join(60)
        assert entered.is_set()
        assert len(told) == 1
        assert "another gnomon (process" in told[0]
