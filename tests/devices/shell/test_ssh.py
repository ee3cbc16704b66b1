"""A device behind SSH, over a real server on this machine: the shipped contract, and what only this way can show."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.devices.shell.shellkit import Commands, Extremes
from tests.devices.shell.sshkit import SshServer, children, guard_of, server
from tests.processkit import becomes

from gnomon.devices.shell.scripts import REMOTE, line
from gnomon.devices.shell.ssh import SshDevice
from gnomon.devices.shell.ssh_client import SshSettings, client_argv
from gnomon.errors import DeviceError, UsageError
from gnomon.testing.device import DeviceContract

__all__ = ["server"]


class TestSshDevice(DeviceContract, Commands, Extremes):
    """One visit of a device that has Python; nothing of these tests opens another."""

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls, server: SshServer) -> Iterator[SshDevice]:
        with server.device() as opened:
            yield opened

    def test_nobody_listens_after_the_time_limit(self, device: SshDevice) -> None:
        lines: list[str] = []
        script = "trap 'echo late; exit 0' TERM; echo early; while :; do sleep 0.01; done"
        completed = device.run(["sh", "-c", script], env={}, timeout_s=0.5, on_line=lines.append)
        assert completed.timed_out
        assert lines == ["early"]
        assert completed.stdout == "early\nlate\n"

    def test_a_slow_listener_holds_the_command_back(self, server: SshServer, device: SshDevice) -> None:
        """Gibibytes that nobody takes fill the memory of neither side."""
        guard = guard_of(server)
        first = True

        def listen(line: str) -> None:
            nonlocal first
            if first:
                first = False
                time.sleep(1.0)
                assert resident_bytes(guard) < 60 << 20
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            device.run(["yes", "x" * 1000], env={}, timeout_s=60, on_line=listen)

    def test_input_that_nobody_reads_does_not_hold_the_time_limit(self, device: SshDevice) -> None:
        completed = device.run(["sleep", "600"], env={}, stdin=b"x" * 10_000_000, timeout_s=0.5)
        assert completed.timed_out

    def test_folders_keep_their_structure(self, device: SshDevice, tmp_path: Path) -> None:
        source = tmp_path / "package"
        (source / "empty").mkdir(parents=True)
        (source / "ünï").mkdir()
        (source / "ünï" / os.fsdecode(b"n\xff'\"\n")).write_text("odd")
        (source / "tool").write_text("#!/bin/sh\necho ran\n")
        (source / "tool").chmod(0o755)
        (source / "nothing").write_text("")
        (tmp_path / "outside").write_text("linked")
        (source / "link").symlink_to(tmp_path / "outside")
        (source / "folder").symlink_to("ünï")
        remote = Path(device.push(source, "other name"))
        assert device.run([str(remote / "tool")], env={}, timeout_s=60).stdout == "ran\n"
        found = {str(p.relative_to(remote)): p.read_text() for p in remote.rglob("*") if p.is_file()}
        wanted = {str(p.relative_to(source)): p.read_text() for p in source.rglob("*") if p.is_file()}
        wanted |= {f"folder/{p.name}": p.read_text() for p in (source / "ünï").iterdir()}
        assert found == wanted
        assert (remote / "empty").is_dir()
        assert not [p for p in remote.rglob("*") if p.is_symlink()]
        assert stat.S_IMODE((remote / "nothing").stat().st_mode) == 0o400

    @pytest.mark.parametrize("make", ["loop", "pipe", "dangling"])
    def test_what_is_no_file_is_not_pushed(self, device: SshDevice, tmp_path: Path, make: str) -> None:
        source = tmp_path / "source"
        source.mkdir()
        if make == "loop":
            (source / "up").symlink_to(source)
        elif make == "pipe":
            os.mkfifo(source / "pipe")
        else:
            (source / "gone").symlink_to(tmp_path / "absent")
        with pytest.raises(DeviceError) as refused:
            device.push(source, "source")
        assert refused.value.hint
        assert device.run(["true"], env={}, timeout_s=60).ok

    @pytest.mark.parametrize("harm", ["cut", "touched", "removed"])
    def test_a_damaged_entry_is_sent_again(self, device: SshDevice, tmp_path: Path, harm: str) -> None:
        content = os.urandom(100_000)
        (tmp_path / "m").write_bytes(content)
        first = Path(device.push(tmp_path / "m", "m"))
        if harm == "cut":
            with first.open("r+b") as file:
                file.truncate(5)
        elif harm == "touched":
            first.chmod(0o600)
            first.write_bytes(b"y" * len(content))
        else:
            first.unlink()
        assert Path(device.push(tmp_path / "m", "m")).read_bytes() == content

    @pytest.mark.parametrize("harm", ["cut", "added", "removed", "compiled"])
    def test_a_damaged_folder_is_sent_again(self, device: SshDevice, tmp_path: Path, harm: str) -> None:
        """What Python compiles beside its sources is not damage."""
        source = tmp_path / "package"
        (source / "below" / "__pycache__").mkdir(parents=True)
        content = os.urandom(1000).hex()
        (source / "below" / "m.py").write_text(content)
        (source / "below" / "__pycache__" / "own.pyc").write_text("own")
        first = Path(device.push(source, "package"))
        inode = first.stat().st_ino
        time.sleep(0.02)
        if harm == "cut":
            (first / "below" / "m.py").chmod(0o600)
            (first / "below" / "m.py").write_text("")
        elif harm == "added":
            (first / "below" / "n.py").write_text("evil")
        elif harm == "removed":
            (first / "below" / "m.py").unlink()
        else:
            (first / "below" / "__pycache__" / "m.pyc").write_text("compiled")
        again = Path(device.push(source, "package"))
        assert [p.name for p in (again / "below").glob("*.py")] == ["m.py"]
        assert (again / "below" / "m.py").read_text() == content
        assert (again.stat().st_ino == inode) == (harm == "compiled")

    @pytest.mark.parametrize("remote", ["absent", ".", "pipe", "a\0b", "/proc/self/nothing"])
    def test_what_is_no_file_is_not_pulled(self, device: SshDevice, tmp_path: Path, remote: str) -> None:
        device.run(["mkfifo", "pipe"], env={}, timeout_s=60)
        with pytest.raises(DeviceError) as refused:
            device.pull(remote, tmp_path / "here")
        assert refused.value.hint
        assert list(tmp_path.glob("*here*")) == []
        with pytest.raises(DeviceError):
            device.pull("absent", tmp_path / "no folder" / "here")
        assert device.run(["true"], env={}, timeout_s=60).ok


def test_the_environment_is_the_devices_and_the_settings(server: SshServer) -> None:
    with server.device(environment={"LD_LIBRARY_PATH": "/opt/o ne/lib", "X": "weak"}) as device:
        lines = device.run(["env"], env={"X": "strong"}, timeout_s=60).stdout.splitlines()
    assert f"HOME={server.home}" in lines
    assert "LD_LIBRARY_PATH=/opt/o ne/lib" in lines
    assert "X=strong" in lines
    names = {line.partition("=")[0] for line in lines}
    assert not names & {"GNOMON_LEASES", "SSH_CONNECTION", "GNOMON_HOME"}


def test_the_private_folder_is_the_working_folder_and_goes_away(server: SshServer) -> None:
    with pytest.raises(ZeroDivisionError), server.device() as device:
        assert server.private_folders() == [Path(device.folder).parent]
        assert device.run(["pwd"], env={}, timeout_s=60).stdout == device.folder + "\n"
        device.run(["sh", "-c", "mkdir -p a/b; echo > a/b/c; chmod 0 a"], env={}, timeout_s=60)
        raise ZeroDivisionError
    assert server.private_folders() == []
    with pytest.raises(DeviceError) as closed:
        device.run(["true"], env={}, timeout_s=60)
    assert "with" in closed.value.hint


def test_the_folder_of_pushed_files_can_be_chosen(server: SshServer, tmp_path: Path) -> None:
    (tmp_path / "m").write_text("x")
    for folder, place in ((f'{tmp_path}/o\'ne "x" $y', tmp_path), ("~/other", server.home)):
        with server.device(folder=folder) as device:
            assert Path(device.push(tmp_path / "m", "m")).is_relative_to(place)


def test_a_talkative_login_does_not_disturb(server: SshServer) -> None:
    rc = server.home / ".bashrc"
    rc.write_text("echo Welcome; echo ' to the board'; echo careful >&2\n")
    try:
        with server.device() as device:
            assert device.run(["echo", "x"], env={}, timeout_s=60).stdout == "x\n"
    finally:
        rc.unlink()


def resident_bytes(pid: int) -> int:
    line = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_big_pushes_and_pulls_fill_no_memory(server: SshServer, tmp_path: Path) -> None:
    size = 100 << 20
    with (tmp_path / "big").open("wb") as file:
        file.truncate(size)
    Path("/proc/self/clear_refs").write_text("5")
    with server.device(keep=False) as device:
        before = resident_bytes(os.getpid())
        remote = device.push(tmp_path / "big", "big")
        device.pull(remote, tmp_path / "back")
        assert (tmp_path / "back").stat().st_size == size
        assert resident_bytes(guard_of(server)) < 60 << 20
        assert resident_bytes(os.getpid()) < before + (40 << 20)


def test_the_lease_is_that_of_a_gnomon_on_the_device(server: SshServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from gnomon.devices.lease import lease, lease_folder

    monkeypatch.setenv("GNOMON_LEASES", str(server.leases))
    with (
        server.device(),
        pytest.raises(DeviceError, match="in use by process"),
        lease(lease_folder(), "local", wait_s=0),
    ):
        pass
    with lease(lease_folder(), "local", wait_s=0):
        pass


def test_neither_files_nor_processes_pile_up(server: SshServer) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def visit(times: int) -> None:
        with server.device() as device:
            guard = guard_of(server)
            device.run(["true"], env={}, timeout_s=60)
            here, there = open_files(), len(list(Path(f"/proc/{guard}/fd").iterdir()))
            for _ in range(times):
                device.run(["sh", "-c", "cat; exit 1"], env={}, stdin=b"x", timeout_s=60, on_line=lambda line: None)
            assert (open_files(), len(list(Path(f"/proc/{guard}/fd").iterdir()))) == (here, there)

    before = open_files()
    visit(20)
    assert open_files() == before
    assert becomes(lambda: children(server.process.pid) == [])


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh", "fish", "csh", "tcsh", "busybox"])
def test_any_login_shell_hands_the_line_on(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"the shell is not installed: {shell} (Debian: {shell})")
    argv = [shell, "sh", "-c", REMOTE] if shell == "busybox" else [shell, "-c", REMOTE]
    started = subprocess.run(argv, input=line("echo $((6 * 7))"), stdout=subprocess.PIPE, check=True)
    assert started.stdout == b"42\n"


def test_nothing_of_this_machine_is_open_to_the_device_unless_it_is_asked_for(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("ForwardAgent yes\nForwardX11 yes\nLocalForward 7777 localhost:7\nExitOnForwardFailure yes\n")

    def effective(*options: str) -> set[str]:
        program, *words = client_argv(SshSettings(name="b", host="b", ssh_options=options))
        command = [program, "-F", str(config), "-G", *words, "b"]
        return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines())

    assert {"forwardagent no", "forwardx11 no", "clearallforwardings yes"} <= effective()
    assert "forwardagent yes" in effective("ForwardAgent=yes")


@pytest.mark.parametrize("bad", [{"host": "-oProxyCommand=x"}, {"host": "a b"}, {"user": "-l"}, {"port": 0}])
def test_settings_that_cannot_be_meant(bad: dict[str, object]) -> None:
    with pytest.raises(UsageError) as refused:
        SshSettings(**{"name": "x", "host": "x", **bad})  # type: ignore[arg-type]
    assert refused.value.hint
