"""What every device that is served by its shell must do beside the contract of devices: how commands end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from tests.devices.shell.sshkit import becomes, gone

from gnomon.devices.base import Device
from gnomon.system.process import STDERR_TAIL_BYTES, STDOUT_TAIL_BYTES
from gnomon.testing.device import DeviceContract

FAMILY = "sleep 600 & echo $!; (sleep 600 & echo $!; wait) & echo $!; wait"
"""A script that leaves three processes running and tells their numbers, a line each."""


class ShellContract(DeviceContract):
    """For every kind of shell."""

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

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_an_exception_kills_the_family_and_the_device_stays_open(
        self, device: Device, error: type[BaseException]
    ) -> None:
        pids: list[int] = []

        def listen(line: str) -> None:
            pids.append(int(line))
            if len(pids) == 3:
                raise error

        with pytest.raises(error):
            device.run(["sh", "-c", FAMILY], env={}, timeout_s=60, on_line=listen)
        assert all(gone(p) for p in pids)
        assert device.run(["echo", "still here"], env={}, timeout_s=60).stdout == "still here\n"

    def test_children_that_hold_the_outputs_do_not_block(self, device: Device) -> None:
        completed = device.run(["sh", "-c", "sleep 600 & echo $!"], env={}, timeout_s=60)
        assert completed.ok
        assert gone(int(completed.stdout))


class WithoutPython(ShellContract):
    """For devices without Python."""

    def test_its_python_starts(self, device: Device) -> None:
        """It has none, and says so."""
        assert device.describe().python == ""
        assert device.describe().fingerprint["python"] is None


class ShellOutputs:
    """For one shell of a kind: what takes longer."""

    def test_who_ignores_sigterm_is_killed(self, device: Device) -> None:
        script = "trap '' TERM; echo $$; while :; do sleep 600; done"
        completed = device.run(["sh", "-c", script], env={}, timeout_s=0.2)
        assert (completed.signal, completed.timed_out) == (signal.SIGKILL, True)
        assert gone(int(completed.stdout))
        assert device.run(["echo", "still here"], env={}, timeout_s=60).stdout == "still here\n"

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


def killed_in_the_middle(program: str, *arguments: str) -> None:
    """Run a program of gnomon's that tells the numbers of three processes there, kill it, and see these go too."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as victim:
        assert victim.stdout is not None
        pids = [int(victim.stdout.readline()) for _ in range(3)]
        victim.kill()
        victim.wait()
        assert all(gone(pid) for pid in pids)


def the_second_waits(opening: Callable[[Callable[[str], None] | None], Device]) -> None:
    """Open the same device twice: the second is told once who has it, and comes in when the first has left."""
    told: list[str] = []
    entered = threading.Event()

    def second() -> None:
        with opening(told.append):
            entered.set()

    with opening(None):
        thread = threading.Thread(target=second)
        thread.start()
        assert becomes(lambda: told)
        assert not entered.is_set()
    thread.join(60)
    assert entered.is_set()
    assert len(told) == 1
    assert "another gnomon (process" in told[0]
