"""A device behind SSH without Python, over a real server whose PATH has none: the contract, and its own ways to end."""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.devices.shell import plainkit, sshkit
from tests.devices.shell.shellkit import FAMILY, ShellOutputs, WithoutPython, killed_in_the_middle, the_second_waits
from tests.devices.shell.sshkit import SshServer, becomes, gone, ssh_server

from gnomon.devices.laid_out import lay_out, parse_files
from gnomon.devices.shell.facts import described
from gnomon.devices.shell.link import Marked
from gnomon.devices.shell.scripts import line, marks, quoted
from gnomon.devices.shell.ssh import SshDevice, SshLink
from gnomon.errors import DeviceError


def serving(root: Path, *, helpful: bool) -> Iterator[SshServer]:
    if what := sshkit.missing() or plainkit.missing():
        pytest.skip(what)
    path = plainkit.programs(root / "bin", helpful=helpful)
    with ssh_server(root / "server", environment={"PATH": str(path)}) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    yield from serving(tmp_path_factory.mktemp("plain"), helpful=True)


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    yield from serving(tmp_path_factory.mktemp("poor"), helpful=False)


@pytest.fixture
def device(server: SshServer) -> Iterator[SshDevice]:
    with SshDevice(server.settings()) as opened:
        yield opened


class TestPlainDevice(WithoutPython, ShellOutputs):
    @pytest.fixture(scope="class")
    @classmethod
    def device(cls, server: SshServer) -> Iterator[SshDevice]:
        with SshDevice(server.settings()) as opened:
            yield opened


class TestPoorDevice(WithoutPython):
    """Without setsid, flock and sha256sum."""

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls, poor: SshServer) -> Iterator[SshDevice]:
        with SshDevice(poor.settings()) as opened:
            yield opened


class TestBusybox(WithoutPython):
    """With busybox's shell and programs alone."""

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshDevice]:
        busybox = os.environ.get("GNOMON_BUSYBOX") or shutil.which("busybox")
        if what := sshkit.missing():
            pytest.skip(what)
        if busybox is None:
            pytest.skip("busybox is not installed (Debian: busybox-static), nor named by GNOMON_BUSYBOX")
        root = tmp_path_factory.mktemp("busybox")
        (root / "bin").mkdir()
        subprocess.run([busybox, "--install", "-s", str(root / "bin")], check=True)
        with (
            ssh_server(root / "server", environment={"PATH": str(root / "bin")}) as running,
            SshDevice(running.settings()) as opened,
        ):
            yield opened


@pytest.fixture(scope="module")
def android(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    if what := sshkit.missing():
        pytest.skip(what)
    root = tmp_path_factory.mktemp("android")
    path = plainkit.android(root / "bin")
    if isinstance(path, str):
        pytest.skip(path)
    with ssh_server(root / "server", environment={"PATH": str(path)}) as running:
        yield running


class TestAndroid(WithoutPython, ShellOutputs):
    """With the shell of Android and its programs alone."""

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls, android: SshServer) -> Iterator[SshDevice]:
        with SshDevice(android.settings()) as opened:
            yield opened


@pytest.fixture(params=["server", "poor"])
def either(request: pytest.FixtureRequest) -> SshServer:
    found: SshServer = request.getfixturevalue(request.param)
    return found


def test_nobody_listens_after_the_time_limit(device: SshDevice) -> None:
    lines: list[str] = []
    script = "trap 'echo late; exit 0' TERM; echo early; while :; do sleep 0.01; done"
    completed = device.run(["sh", "-c", script], env={}, timeout_s=0.5, on_line=lines.append)
    assert completed.timed_out
    assert lines == ["early"]
    assert completed.stdout == "early\nlate\n"


def test_the_configured_environment_is_there_and_gives_way(server: SshServer) -> None:
    config = server.settings(environment={"ONE": "1", "TWO": "it's\n2"})
    with SshDevice(config) as device:
        printed = device.run(["sh", "-c", 'echo "$ONE$TWO"'], env={"ONE": "3"}, timeout_s=60).stdout
    assert printed == "3it's\n2\n"


def test_what_was_pushed_is_not_sent_again(server: SshServer, tmp_path: Path) -> None:
    local = tmp_path / "m"
    local.write_bytes(b"x" * 100_000)
    with SshDevice(server.settings()) as device:
        remote = Path(device.push(local, "m"))
    before = remote.stat().st_ino
    with SshDevice(server.settings()) as device:
        assert Path(device.push(local, "m")).stat().st_ino == before
        other = Path(device.push(local, "another name"))
        assert other.read_bytes() == local.read_bytes()
    assert server.home in remote.parents
    assert not list(remote.parent.parent.glob(".new-*"))


def test_nothing_stays_where_nothing_may_be_kept(server: SshServer, tmp_path: Path) -> None:
    (tmp_path / "m").write_text("m")
    with SshDevice(server.settings(keep=False)) as device:
        remote = Path(device.push(tmp_path / "m", "m"))
        assert remote.read_text() == "m"
    assert not remote.exists()


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_folder_where_others_may_write_is_refused(either: SshServer, tmp_path: Path, mode: int) -> None:
    """What somebody else may have put there must not be run."""
    (tmp_path / "m").write_text("m")
    kept = tmp_path / "kept" / "pushed"
    kept.mkdir(parents=True)
    kept.chmod(mode)
    with (
        pytest.raises(DeviceError, match="others may write"),
        SshDevice(either.settings(folder=str(kept.parent))) as device,
    ):
        device.push(tmp_path / "m", "m")


def test_a_link_to_a_folder_is_refused(either: SshServer, tmp_path: Path) -> None:
    (tmp_path / "m").write_text("m")
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "pushed").symlink_to(tmp_path / "own")
    with (
        pytest.raises(DeviceError, match="others may write"),
        SshDevice(either.settings(folder=str(tmp_path / "kept"))) as device,
    ):
        device.push(tmp_path / "m", "m")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_told(server: SshServer) -> None:
    with pytest.raises(DeviceError, match="permission"), SshDevice(server.settings(folder="/proc/none")):
        pass


def test_the_device_is_clean_afterwards(either: SshServer) -> None:
    with SshDevice(either.settings()) as device:
        assert len(either.private_folders()) == 1
        assert device.run(["ls", "-a"], env={}, timeout_s=60).stdout.split() == [".", ".."]
    assert becomes(lambda: not either.private_folders())
    assert becomes(lambda: not guards(either))


def guards(server: SshServer) -> list[int]:
    """The processes of the server's sessions that remain, the guard's watcher among them."""
    mark = str(server.tmp).encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


_VICTIM = """
import sys
from gnomon.devices.shell.ssh import SshDevice
from gnomon.devices.shell.ssh_client import SshSettings
with SshDevice(SshSettings(**eval(sys.argv[1]))) as device:
    device.run(["sh", "-c", sys.argv[2]], env={}, timeout_s=600, on_line=lambda line: print(line, flush=True))
"""


def test_kill_9_of_gnomon_leaves_the_device_clean(either: SshServer) -> None:
    shown = repr(dataclasses.asdict(either.settings()))
    killed_in_the_middle(_VICTIM, shown, FAMILY)
    assert becomes(lambda: not either.private_folders())
    assert becomes(lambda: not guards(either))
    with SshDevice(either.settings()):
        pass


def test_the_servers_sessions_killed_are_a_lost_connection_and_the_device_is_clean(either: SshServer) -> None:
    pids: list[int] = []

    def listen(text: str) -> None:
        pids.append(int(text))
        if len(pids) == 3:
            either.kill_sessions()

    with pytest.raises(DeviceError) as lost, SshDevice(either.settings()) as device:
        device.run(["sh", "-c", FAMILY], env={}, timeout_s=60, on_line=listen)
    assert lost.value.transient
    assert all(gone(pid) for pid in pids)
    assert becomes(lambda: not either.private_folders())
    assert becomes(lambda: not guards(either))


def test_silence_ends_the_visit_there(server: SshServer) -> None:
    """The client is stopped, not killed: nothing tells the device but that nobody speaks any more."""
    device = SshDevice(server.settings(silence_s=6.0))
    with device:
        assert device.run(["true"], env={}, timeout_s=60).ok
        link = device._open
        assert isinstance(link, SshLink)
        assert link._process is not None
        os.kill(link._process.pid, signal.SIGSTOP)
        try:
            assert becomes(lambda: not server.private_folders())
        finally:
            os.kill(link._process.pid, signal.SIGCONT)


@pytest.mark.parametrize("kind", ["server", "poor", "android"])
def test_the_second_waits_for_the_first(kind: str, request: pytest.FixtureRequest) -> None:
    found: SshServer = request.getfixturevalue(kind)
    the_second_waits(lambda on_wait: SshDevice(found.settings(), on_wait=on_wait))


def test_a_private_folder_that_was_removed_is_told_and_worth_another_try(either: SshServer) -> None:
    with (
        pytest.raises(DeviceError, match=r"private folder .* was removed") as gone,
        SshDevice(either.settings()) as device,
    ):
        shutil.rmtree(device.folder)
        device.run(["true"], env={}, timeout_s=60)
    assert gone.value.transient


def test_the_folder_of_leases_may_be_named_in_the_devices_table(android: SshServer, tmp_path: Path) -> None:
    (shared := tmp_path / "shared").mkdir()
    shared.chmod(0o1777)
    with SshDevice(android.settings(environment={"GNOMON_LEASES": str(shared)})):
        assert [path.name for path in shared.iterdir()] == ["lease-local.1.ticket"]
    assert becomes(lambda: not list(shared.iterdir()))


def test_a_dead_owners_lock_is_taken_over(poor: SshServer) -> None:
    held = poor.leases / "lease-local.lock.held"
    held.mkdir()
    ended = subprocess.Popen(["true"])
    ended.wait()
    (held / "pid").write_text(f"{ended.pid}\n")
    with SshDevice(poor.settings()):
        assert (held / "pid").read_text() != f"{ended.pid}\n"
    assert not held.exists()


def test_a_device_without_python_is_served_by_its_shell(server: SshServer) -> None:
    with SshDevice(server.settings()) as device:
        assert device.describe().python == ""
        assert device.run(["echo", "here"], env={}, timeout_s=60).stdout == "here\n"


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A server whose device has Python."""
    if what := sshkit.missing():
        pytest.skip(what)
    with ssh_server(tmp_path_factory.mktemp("rich") / "server") as running:
        yield running


def test_the_devices_own_python_is_found(rich: SshServer) -> None:
    with SshDevice(rich.settings()) as device:
        python = device.describe().python
        done = device.run([python, "-c", "import sys; print(sys.version_info >= (3, 10))"], env={}, timeout_s=60)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("given", ["{}", "~/own python"])
def test_a_python_is_found_by_the_path_that_was_given(rich: SshServer, given: str) -> None:
    link = rich.root / "it's home" / "own python"
    if not link.exists():
        link.symlink_to(sys.executable)
    with SshDevice(rich.settings(python=given.format(link))) as device:
        assert device.describe().python == str(link)


def test_a_python_that_is_too_old_is_an_error(rich: SshServer, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 3.8.1\nexit 1\n")
    old.chmod(0o755)
    with (
        pytest.raises(DeviceError, match=r"is too old: .*old is 3\.8\.1"),
        SshDevice(rich.settings(python=str(old))),
    ):
        pass
    assert rich.private_folders() == []


def test_a_visit_without_the_lease_neither_waits_nor_pushes(rich: SshServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    with SshDevice(rich.settings()), SshDevice(rich.settings(lease=False)) as visit:
        leases = visit.run(["printenv", "GNOMON_LEASES"], env={}, timeout_s=60).stdout
        assert leases == f"{rich.leases}\n"  # what is started there takes the lease by itself
        with pytest.raises(DeviceError, match="not held"):
            visit.push(tmp_path / "file", "file")
        visit.pull(str(tmp_path / "file"), tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "content"


def test_too_few_sessions_are_told(tmp_path: Path) -> None:
    if what := sshkit.missing():
        pytest.skip(what)
    with ssh_server(tmp_path / "server", lines=("MaxSessions 1",)) as narrow:
        with pytest.raises(DeviceError, match="too few sessions") as refused, SshDevice(narrow.settings()):
            pass
        assert "MaxSessions" in refused.value.hint
        assert narrow.private_folders() == []


def test_a_python_that_was_named_and_is_not_there_stays_an_error(server: SshServer) -> None:
    with (
        pytest.raises(DeviceError, match="there is no /no/python"),
        SshDevice(server.settings(python="/no/python")),
    ):
        pass


def test_a_device_that_lacks_even_small_programs_is_told(tmp_path: Path) -> None:
    if what := sshkit.missing() or plainkit.missing():
        pytest.skip(what)
    path = plainkit.programs(tmp_path / "bin")
    (path / "mkdir").unlink()
    (path / "wc").unlink()
    with ssh_server(tmp_path / "server", environment={"PATH": str(path)}) as bare:
        with pytest.raises(DeviceError, match="lacks mkdir, wc"), SshDevice(bare.settings()):
            pass
        assert bare.private_folders() == []


def test_no_way_to_the_device_is_told_as_ever(server: SshServer) -> None:
    with (
        pytest.raises(DeviceError, match="refuses the connection"),
        SshDevice(server.settings(port=sshkit.free_port())),
    ):
        pass


def test_the_fingerprint_is_the_devices_own(server: SshServer, tmp_path: Path) -> None:
    """The server runs on this machine, so that both ways to ask must agree."""
    from gnomon.devices.fingerprint import fingerprint

    own = fingerprint()
    with SshDevice(server.settings()) as device:
        found = dict(device.describe().fingerprint)
    assert {**found, "python": None} == {**own, "python": None}


@pytest.mark.parametrize("plain", [False, True])
def test_what_chooses_drivers_there_passes_and_is_in_the_fingerprint(tmp_path: Path, *, plain: bool) -> None:
    if what := sshkit.missing() or plainkit.missing():
        pytest.skip(what)
    there = {"GGML_VK_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}
    if plain:
        there["PATH"] = str(plainkit.programs(tmp_path / "bin", helpful=True))
    with ssh_server(tmp_path / "server", environment=there) as running:
        settings = running.settings(environment={"CUDA_VISIBLE_DEVICES": ""})
        with SshDevice(settings) as device:
            lines = device.run(["env"], env={}, timeout_s=60).stdout.splitlines()
            info = device.describe()
    assert {"GGML_VK_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES="} <= set(lines)
    assert bool(info.python) is not plain
    assert info.fingerprint["driver_variables"] == {"GGML_VK_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": ""}


def test_nothing_of_this_machine_is_in_a_foreign_fingerprint(tmp_path: Path) -> None:
    printed = (
        b"\x1euname-m\x1farmv7l\n\x1euname-r\x1f4.9.1-board\n\x1euname-s\x1fLinux\n"
        b"\x1e/proc/self/status\x1fName:\tcat\nCpus_allowed_list:\t0-2\n"
        b"\x1e/sys/devices/system/cpu/online\x1f0-3,6\n\x1elibc\x1f/lib/ld-musl-armhf.so.1\n"
        b"\x1eldd\x1fmusl libc (armhf)\nVersion 1.2.3\n"
    )
    found = described(printed, tmp_path / "root")
    mine = {platform.release(), platform.machine(), platform.python_version(), " ".join(platform.libc_ver())}
    assert not mine & {value for value in found.values() if isinstance(value, str)}
    wanted = {"machine": "armv7l", "kernel": "4.9.1-board", "os": "Linux", "cores": 3, "cores_online": 5}
    assert {key: found[key] for key in wanted} == wanted
    assert found["libc"] == "musl 1.2.3"
    assert described(b"", tmp_path / "nothing")["machine"] is None


def test_files_that_would_lie_outside_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    deep = b"\x1e" + b"/a" * 2000 + b"\x1fbad"
    lay_out(parse_files(b"\x1e/../../x\x1fbad\x1erelative\x1fbad\x1e/proc/a\x1fgood\x1e\x1fbad" + deep), root)
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()] == ["root/proc/a"]
    lay_out({"//proc/b": b"good"}, root)  # POSIX lets two slashes be another root
    assert (root / "proc" / "b").is_file()


@given(st.binary(max_size=4096))
def test_whatever_a_device_prints_is_a_fingerprint(printed: bytes) -> None:
    files = parse_files(printed)
    assert all(isinstance(content, bytes) for content in files.values())


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60))
def test_any_text_is_one_word_of_the_shell(text: str) -> None:
    script = 'IFS= read -r given && eval "$given"'
    done = subprocess.run(
        ["sh", "-c", script], input=line(f"printf '%s|' {quoted(text)} end"), capture_output=True, check=True
    )
    assert done.stdout == text.encode() + b"|end|"


@given(st.binary(max_size=300), st.integers(0, 255), st.lists(st.integers(1, 50)))
def test_a_marked_stream_is_what_lies_between_its_marks(content: bytes, status: int, cuts: list[int]) -> None:
    """However it is cut into chunks, and whatever lies around it."""
    first, last = marks("token")
    whole = b"noise" + first + content + last + str(status).encode() + b"\x1e" + b"late"
    got = bytearray()
    marked = Marked("token", got.extend)
    if last in content:
        return
    at = 0
    for cut in (*cuts, len(whole)):
        marked.add(whole[at : at + cut])
        at += cut
    assert bytes(got) == content
    assert marked.status == str(status)
