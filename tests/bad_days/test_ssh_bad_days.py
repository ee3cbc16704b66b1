"""Bad days of a device behind SSH: no way to it, a way that breaks, a device that lacks something, sudden deaths."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.bad_days.conftest import Disk
from tests.devices.shell.shellkit import FAMILY
from tests.devices.shell.sshkit import (
    SshServer,
    below,
    children,
    free_port,
    guard_of,
    key,
    missing,
    server,
    ssh_server,
)
from tests.processkit import becomes, gone

from gnomon.devices.pushed import Manifest, manifest_of
from gnomon.devices.shell.ssh import SshDevice, SshLink
from gnomon.devices.shell.ssh_client import SshSettings
from gnomon.errors import DeviceError

pytestmark = pytest.mark.devices

__all__ = ["server"]

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and network namespaces are made by root only")
if what := missing():
    pytest.skip(what, allow_module_level=True)


def refusal(settings: SshSettings) -> DeviceError:
    with pytest.raises(DeviceError) as refused, SshDevice(settings):
        pass
    assert refused.value.hint
    return refused.value


def program(path: Path, script: str) -> Path:
    """A program that is a script of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def network(tmp_path: Path) -> Iterator[tuple[str, str, str]]:
    """The name of a network namespace, the address in it, and the interface on this side of the way there."""
    name = f"gnomon{os.getpid()}"
    near, far = f"gn{os.getpid()}", f"gf{os.getpid()}"
    third = os.getpid() % 250
    steps = [
        f"ip netns add {name}",
        f"ip link add {near} type veth peer name {far} netns {name}",
        f"ip addr add 10.213.{third}.1/30 dev {near}",
        f"ip link set {near} up",
        f"ip -n {name} addr add 10.213.{third}.2/30 dev {far}",
        f"ip -n {name} link set {far} up",
    ]
    try:
        for step in steps:
            done = subprocess.run(step.split(), capture_output=True, text=True)
            if done.returncode != 0:
                pytest.skip(f"a network namespace cannot be made here: {done.stderr.strip()}")
        yield name, f"10.213.{third}.2", near
    finally:
        subprocess.run(["ip", "link", "del", near], capture_output=True)
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


# No way to the device


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"host": "no-such-board.invalid"}, "cannot resolve the host name no-such-board.invalid", ""),
        ({"user": "nobody-of-that-name"}, "nobody-of-that-name.*accepts none of the available keys", "ssh-copy-id"),
        ({"ssh_options": ("NoSuchThing=1",)}, "option", "ssh_options"),
        ({"program": "/no/such/ssh"}, "SSH client", ""),
        ({"python": "/absent/python3"}, "/absent/python3", "`python`"),
        ({"python": "absent-python"}, "absent-python", "`python`"),
        ({"python": "-c"}, "-c", "`python`"),
        ({"python": "/etc"}, "/etc", "`python`"),
    ],
)
def test_a_device_that_is_not_as_it_was_named(
    server: SshServer, changes: dict[str, Any], message: str, hint: str
) -> None:
    error = refusal(server.settings(**changes))
    assert re.search(message, error.message)
    assert hint in error.hint
    assert not error.transient


def test_a_port_where_nobody_listens(server: SshServer) -> None:
    error = refusal(server.settings(port=free_port()))
    assert "refuses" in error.message
    assert "port" in error.hint
    assert error.transient


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{other}", "accepts none of the available keys for this user"),
        ('command="echo This account is not for you; exit 1" {own}', "This account is not for you"),
    ],
)
def test_a_login_that_lets_nobody_in(server: SshServer, tmp_path: Path, line: str, message: str) -> None:
    keys = server.root / "authorized_keys"
    own, other = keys.read_text(), key(tmp_path / "other").with_suffix(".pub").read_text()
    try:
        keys.write_text(line.format(own=own, other=other))
        error = refusal(server.settings())
    finally:
        keys.write_text(own)
    assert message in error.message


@ROOT_ONLY
def test_a_host_that_does_not_answer(server: SshServer, network: tuple[str, str, str]) -> None:
    name, address, _ = network
    subprocess.run(["ip", "-n", name, "addr", "flush", "dev", f"gf{os.getpid()}"], check=True)
    error = refusal(server.settings(host=address, connect_timeout_s=1.0))
    assert "cannot be reached" in error.message
    assert error.transient


def test_the_key_that_the_table_names_is_in_the_line_to_try(server: SshServer, tmp_path: Path) -> None:
    client = program(tmp_path / "ssh", 'exec ssh -F /dev/null "$@"')
    options = (
        f"IdentityFile={key(tmp_path / 'other')}",
        "IdentitiesOnly=yes",
        f"UserKnownHostsFile={server.root}/known_hosts",
    )
    error = refusal(server.settings(program=str(client), ssh_options=options))
    assert "accepts none of the available keys for this user" in error.message
    assert f"-i {tmp_path}/other " in error.hint


@pytest.mark.parametrize("patient", [True, False])
def test_a_server_that_turns_away_for_a_moment_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, patient: bool
) -> None:
    if not patient:
        monkeypatch.setattr("gnomon.devices.shell.ssh._TURNED_AWAY_S", 0.0)
    with (
        ssh_server(tmp_path / "server", lines=("MaxStartups 1:100:1",)) as crowded,
        socket.create_connection((crowded.address, crowded.port)) as other,
    ):
        assert other.recv(4) == b"SSH-"
        if not patient:
            assert refusal(crowded.settings()).transient
            return
        threading.Timer(1.0, other.shutdown, [socket.SHUT_RDWR]).start()
        with crowded.device() as device:
            assert device.run(["true"], env={}, timeout_s=60).ok


def test_an_unknown_host_key(server: SshServer) -> None:
    for strict in ("ask", "yes"):
        options = ("UserKnownHostsFile=/dev/null", f"StrictHostKeyChecking={strict}")
        error = refusal(server.settings(ssh_options=options))
        assert "is not known here" in error.message
        assert f"ssh -p {server.port}" in error.hint


def test_a_changed_host_key(server: SshServer, tmp_path: Path) -> None:
    public = key(tmp_path / "other").with_suffix(".pub").read_text()
    (tmp_path / "known").write_text(f"[{server.address}]:{server.port} {public}")
    error = refusal(server.settings(ssh_options=(f"UserKnownHostsFile={tmp_path}/known",)))
    assert "has changed: it was reinstalled" in error.message
    assert "ssh-keygen -R" in error.hint
    alias = ("HostName=127.0.0.1", f"UserKnownHostsFile={tmp_path}/known")  # known_hosts has the name behind it
    error = refusal(server.settings(host="the-board", ssh_options=alias))
    assert f"ssh-keygen -R '[{server.address}]:{server.port}'" in error.hint


def test_a_login_that_hangs(server: SshServer) -> None:
    (server.home / ".bashrc").write_text("sleep 600\n")
    try:
        error = refusal(server.settings(connect_timeout_s=1.0, silence_s=1.0))
    finally:
        (server.home / ".bashrc").unlink()
        server.kill_sessions()
    assert "does not answer" in error.message
    assert error.transient


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ("printf '\\036base /x\\036'; exit 255", "lost"),
        ("exit 255", "does not say why"),
        ("exit 3", "did not start gnomon's program"),
    ],
)
def test_something_else_answers(tmp_path: Path, says: str, message: str) -> None:
    fake = program(tmp_path / "ssh", says)
    error = refusal(SshSettings(name="board", host="board", program=str(fake), connect_timeout_s=30.0))
    assert message in error.message
    assert error.transient == (message != "did not start gnomon's program")


# A device that lacks something


@pytest.mark.parametrize(("says", "message"), [("echo 3.6.9", "3.6.9"), (":", "does not start")])
def test_a_python_that_is_too_old_or_broken(server: SshServer, tmp_path: Path, says: str, message: str) -> None:
    error = refusal(server.settings(python=str(program(tmp_path / "python3", f"{says}\nexit 1"))))
    assert message in error.message
    assert "3.10" in error.hint


def test_a_broken_python_before_a_good_one_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python3.13", "echo broken shim >&2\nexit 127")
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    environment = {"PATH": f"{tmp_path}/bin:/bin"}
    with ssh_server(tmp_path / "server", environment=environment) as odd, odd.device() as device:
        assert device.run([device.describe().python, "-c", "pass"], env={}, timeout_s=60).ok


@ROOT_ONLY
@pytest.mark.parametrize(
    ("options", "variable", "message"),
    [
        ("nr_inodes=1", "TMPDIR", "disk is full"),
        ("ro", "TMPDIR", "permission"),
        ("size=4k", "TMPDIR", "disk is full"),  # it takes folders, and nothing in them
        ("ro", "GNOMON_LEASES", "lease"),
    ],
)
def test_no_private_folder_and_no_lease(disk: Disk, tmp_path: Path, options: str, variable: str, message: str) -> None:
    folder = disk(options)
    if options == "size=4k":
        (folder / "filler").write_bytes(bytes(4096))
    with ssh_server(tmp_path / "server", environment={variable: str(folder)}) as poor:
        error = refusal(poor.settings())
    assert message in error.message
    assert variable == "GNOMON_LEASES" or str(folder) in error.message
    assert variable in error.hint


@ROOT_ONLY
@pytest.mark.parametrize("how", ["seen before", "found out in the middle"])
def test_no_room_for_what_is_pushed(server: SshServer, disk: Disk, tmp_path: Path, how: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(60):
        (source / str(number)).write_bytes(os.urandom(1 << (16 if how == "seen before" else 4)))
    folder = disk("size=1m,nr_inodes=40")
    (tmp_path / "small").write_text("fits")
    with server.device(folder=str(folder)) as device:
        with pytest.raises(DeviceError, match="disk is full") as refused:
            device.push(source, "source")
        assert str(folder) in refused.value.message
        assert "`folder` of the device" in refused.value.hint
        assert list((folder / "pushed").iterdir()) == []
        remote = device.push(tmp_path / "small", "small")
        assert device.run(["cat", remote], env={}, timeout_s=60).stdout == "fits"


@ROOT_ONLY
@pytest.mark.parametrize("pushed", [False, True])
def test_a_home_that_cannot_be_written(server: SshServer, disk: Disk, tmp_path: Path, pushed: bool) -> None:
    """Where all was pushed before, nothing but writing tells."""
    folder = disk("size=1m")
    (tmp_path / "m").write_text("x")
    if pushed:
        with server.device(folder=str(folder)) as device:
            device.push(tmp_path / "m", "m")
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    with server.device(folder=str(folder)) as device:
        with pytest.raises(DeviceError, match=r"no permission.*Read-only file system") as refused:
            device.push(tmp_path / "m", "m")
        assert str(folder) in refused.value.message
        assert "keep = false" in refused.value.hint
        assert device.run(["true"], env={}, timeout_s=60).ok
    with server.device(folder=str(folder), keep=False) as device:
        assert device.push(tmp_path / "m", "m")


@ROOT_ONLY
def test_no_room_here_for_what_is_pulled(server: SshServer, disk: Disk) -> None:
    folder = disk("size=1m")
    (folder / "kept").write_text("kept")
    with server.device() as device:
        device.run(["truncate", "-s", "200M", "big"], env={}, timeout_s=60)
        with pytest.raises(DeviceError, match="No space"):
            device.pull("big", folder / "kept")
        assert [(p.name, p.read_text()) for p in folder.iterdir()] == [("kept", "kept")]
        assert device.run(["true"], env={}, timeout_s=60).ok


def test_a_file_that_changes_while_it_is_sent(
    server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(8 << 20)
    with server.device() as device:

        def then_changed(source: Path) -> Manifest:
            manifest = manifest_of(source)
            with big.open("r+b") as file:
                file.write(b"changed")
            return manifest

        monkeypatch.setattr("gnomon.devices.shell.device.manifest_of", then_changed)
        with pytest.raises(DeviceError, match="changed while it was being sent"):
            device.push(big, "big")
        assert not list((server.home / ".cache" / "gnomon" / "pushed").glob(".new-*"))
        assert device.run(["true"], env={}, timeout_s=60).ok


# Ways that break


class Victim:
    """A running command and what belongs to it; `run` returns what happened to it."""

    def __init__(self, device: SshDevice, server: SshServer) -> None:
        self.shell = guard_of(server)
        self.watcher = children(self.shell)[0]
        self.folder = Path(device.folder)
        self.pids: list[int] = []
        self._device = device

    def run(self, harm: Callable[[], object]) -> DeviceError:
        def listen(line: str) -> None:
            self.pids.append(int(line))
            if len(self.pids) == 3:
                threading.Timer(0.05, harm).start()

        with pytest.raises(DeviceError) as broken:
            self._device.run(["sh", "-c", FAMILY], env={}, timeout_s=60, on_line=listen)
        assert broken.value.transient
        assert broken.value.hint
        with pytest.raises(DeviceError, match="was lost earlier") as after:
            self._device.run(["true"], env={}, timeout_s=60)
        assert after.value.transient
        return broken.value

    def assert_gone(self) -> None:
        assert len(self.pids) == 3
        assert all(gone(pid) for pid in (*self.pids, self.shell, self.watcher))
        assert not self.folder.exists()


@pytest.mark.parametrize("who", ["server", "shell", "shell, asked to end", "client"])
def test_a_sudden_death_in_mid_run(server: SshServer, who: str) -> None:
    with server.device() as device:
        victim = Victim(device, server)
        link = device._opened()
        assert isinstance(link, SshLink)
        client = link._process
        assert client is not None
        harm = {
            "server": server.kill_sessions,
            "shell": lambda: os.kill(victim.shell, signal.SIGKILL),
            "shell, asked to end": lambda: os.kill(victim.shell, signal.SIGTERM),
            "client": lambda: os.kill(client.pid, signal.SIGKILL),
        }
        assert "lost" in victim.run(harm[who]).message
    victim.assert_gone()
    with server.device() as device:  # the lease went with the shell
        assert device.run(["true"], env={}, timeout_s=60).ok


@ROOT_ONLY
@pytest.mark.parametrize("client", ["notices", "waits"])
def test_a_cut_network(network: tuple[str, str, str], tmp_path: Path, client: str) -> None:
    name, address, near = network
    alive = ("ServerAliveInterval=1", "ServerAliveCountMax=1") if client == "notices" else ("ServerAliveInterval=60",)
    silence_s = 7.0 if client == "notices" else 2.5
    inside = ("ip", "netns", "exec", name)
    with ssh_server(tmp_path / "server", inside=inside, address=address) as far:
        with far.device(silence_s=silence_s, ssh_options=alive) as device:
            victim = Victim(device, far)
            error = victim.run(lambda: subprocess.run(["ip", "link", "set", near, "down"], check=True))
            assert ("silent" in error.message) == (client == "waits")
        victim.assert_gone()


def test_a_device_that_falls_silent(server: SshServer) -> None:
    with server.device(silence_s=1.5) as device:
        victim = Victim(device, server)
        error = victim.run(lambda: os.kill(victim.shell, signal.SIGSTOP))
        assert "silent for 1.5 s" in error.message
        os.kill(victim.shell, signal.SIGCONT)
    victim.assert_gone()


def test_long_quiet_times_are_no_silence(server: SshServer) -> None:
    with server.device(silence_s=1.5) as device:
        assert device.run(["sleep", "2.2"], env={}, timeout_s=60).ok
        time.sleep(2.2)  # the host has something else to do
        assert device.run(["true"], env={}, timeout_s=60).ok


def test_a_host_that_slept_takes_its_own_absence_for_no_silence(
    server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept_s = 0.0
    clock = types.SimpleNamespace(monotonic=lambda: time.monotonic() + slept_s)
    monkeypatch.setattr("gnomon.devices.shell.ssh.time", clock)
    with server.device(silence_s=6.0) as device:
        assert device.run(["true"], env={}, timeout_s=600).ok
        slept_s = 100.0
        time.sleep(2.2)  # the connection is looked at, and pinged, every second
        assert device.run(["true"], env={}, timeout_s=600).ok


GNOMON = f"""
import sys, pathlib
from gnomon.devices.pushed import Manifest
from gnomon.devices.shell.ssh import SshDevice, SshSettings
settings = SshSettings(name="board", host=sys.argv[1], user=sys.argv[2], port=int(sys.argv[3]), program=sys.argv[4])
with SshDevice(settings) as device:
    print(device.folder, flush=True)
    if len(sys.argv) > 5:
        device.push(pathlib.Path(sys.argv[5]), "big")
    device.run(["sh", "-c", {FAMILY!r}], env={{}}, timeout_s=600, on_line=lambda l: print(l, flush=True))
"""


@contextlib.contextmanager
def gnomon(server: SshServer, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Another gnomon that uses the device, in a session of its own."""
    s = server.settings()
    argv = [sys.executable, "-c", GNOMON, s.host, str(s.user), str(s.port), s.program, *more]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as running:
        try:
            yield running
        finally:
            running.kill()


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGINT", "Ctrl-C"])
def test_when_gnomon_dies_nothing_is_left(server: SshServer, how: str) -> None:
    with gnomon(server) as victim:
        assert victim.stdout is not None
        folder = Path(victim.stdout.readline().strip())
        pids = [int(victim.stdout.readline()) for _ in range(3)]
        there, here = list(below(server.process.pid)), list(below(victim.pid))
        assert set(pids) < set(there)
        assert len(here) >= 2  # the client and the guard
        assert folder.is_dir()
        if how == "Ctrl-C":
            os.killpg(victim.pid, signal.SIGINT)
        else:
            victim.send_signal(signal.Signals[how])
        victim.wait(timeout=30)
    assert all(gone(pid) for pid in (*pids, *there, *here))
    assert becomes(lambda: not folder.exists())
    with server.device() as device:  # the lease ended with its owner
        assert device.run(["true"], env={}, timeout_s=60).ok


@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
def test_a_push_that_is_cut_short_leaves_nothing(server: SshServer, tmp_path: Path, how: str) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(160 << 20)
    cache = server.home / ".cache" / "gnomon" / "pushed"
    before = set(cache.glob("*"))
    with gnomon(server, str(tmp_path / "big")) as victim:
        assert becomes(lambda: any(cache.glob(".new-*/big")))
        victim.send_signal(signal.Signals[how])
        victim.wait(timeout=30)
    assert becomes(lambda: set(cache.glob("*")) == before)
    assert becomes(lambda: server.private_folders() == [])


def test_nothing_looks_at_the_clock() -> None:
    """A clock that jumps, here or there, changes no limit: everything is counted by the monotonic one."""
    from gnomon.devices.shell import ssh

    folder = Path(ssh.__file__).parent
    assert [p.name for p in folder.glob("*.py") if "time.time(" in p.read_text()] == []
