"""A device behind SSH without Python, over a real server whose PATH has none: the contract, and its own ways to end."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.devices.shell import plainkit, sshkit
from tests.devices.shell.shellkit import Extremes, Visits, WithoutPython
from tests.devices.shell.sshkit import SshServer, ssh_server
from tests.devices.shell.sshkit import server as rich
from tests.processkit import becomes

from gnomon.devices.laid_out import lay_out, parse_files
from gnomon.devices.shell.facts import described
from gnomon.devices.shell.link import Marked
from gnomon.devices.shell.scripts import line, marks, quoted
from gnomon.devices.shell.ssh import SshDevice, SshLink
from gnomon.errors import DeviceError

__all__ = ["rich"]


@contextmanager
def serving(root: Path, programs: str) -> Iterator[SshServer]:
    """A server whose PATH is a folder with these programs alone; skips where one is not installed."""
    path, what = root / "bin", sshkit.missing()
    if programs == "busybox":
        busybox = os.environ.get("GNOMON_BUSYBOX") or shutil.which("busybox")
        if busybox is None:
            what = "busybox is not installed (Debian: busybox-static), nor named by GNOMON_BUSYBOX"
        else:
            path.mkdir(parents=True)
            subprocess.run([busybox, "--install", "-s", str(path)], check=True)
    elif programs == "android":
        made = plainkit.android(path)
        what = what or (made if isinstance(made, str) else None)
    elif not (what := what or plainkit.missing()):
        plainkit.programs(path, helpful=programs == "helpful")
    if what:
        pytest.skip(what)
    with ssh_server(root / "server", environment={"PATH": str(path)}) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with serving(tmp_path_factory.mktemp("plain"), "helpful") as running:
        yield running


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """Without setsid, flock and sha256sum."""
    with serving(tmp_path_factory.mktemp("poor"), "needed") as running:
        yield running


class TestPlainDevice(WithoutPython, Extremes):
    """With small programs alone."""

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls, poor: SshServer) -> Iterator[SshDevice]:
        with poor.device() as opened:
            yield opened


class TestOtherShells(WithoutPython):
    """With the shell and programs of busybox; with those of Android."""

    @pytest.fixture(scope="class", params=["busybox", "android"])
    @classmethod
    def device(cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshDevice]:
        root = tmp_path_factory.mktemp(request.param)
        with serving(root, request.param) as running, running.device() as opened:
            yield opened


@pytest.fixture(params=["server", "poor"])
def either(request: pytest.FixtureRequest) -> SshServer:
    found: SshServer = request.getfixturevalue(request.param)
    return found


class TestVisits(Visits):
    @pytest.fixture
    def reached(self, poor: SshServer) -> SshServer:
        return poor


@pytest.mark.parametrize("mode", [0o720, 0o702, None])
def test_a_folder_where_others_may_write_or_a_link_is_refused(
    either: SshServer, tmp_path: Path, mode: int | None
) -> None:
    """What somebody else may have put there must not be run."""
    (tmp_path / "m").write_text("m")
    kept = tmp_path / "kept" / "pushed"
    if mode is None:
        (tmp_path / "own").mkdir(mode=0o700)
        kept.parent.mkdir()
        kept.symlink_to(tmp_path / "own")
    else:
        kept.mkdir(parents=True)
        kept.chmod(mode)
    with pytest.raises(DeviceError, match="others may write"), either.device(folder=str(kept.parent)) as device:
        device.push(tmp_path / "m", "m")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_told(server: SshServer) -> None:
    with pytest.raises(DeviceError, match="permission"), server.device(folder="/proc/none"):
        pass


def test_silence_ends_the_visit_there(server: SshServer) -> None:
    """The client is stopped, not killed: nothing tells the device but that nobody speaks any more."""
    with server.device(silence_s=2.5) as device:
        assert device.run(["true"], env={}, timeout_s=60).ok
        link = device._open
        assert isinstance(link, SshLink)
        assert link._process is not None
        os.kill(link._process.pid, signal.SIGSTOP)
        try:
            assert becomes(lambda: not server.private_folders())
        finally:
            os.kill(link._process.pid, signal.SIGCONT)


def test_a_private_folder_that_was_removed_is_told_and_worth_another_try(either: SshServer) -> None:
    with (
        pytest.raises(DeviceError, match=r"private folder .* was removed") as gone,
        either.device() as device,
    ):
        shutil.rmtree(device.folder)
        device.run(["true"], env={}, timeout_s=60)
    assert gone.value.transient


def test_the_folder_of_leases_may_be_named_in_the_devices_table(server: SshServer, tmp_path: Path) -> None:
    (shared := tmp_path / "shared").mkdir()
    shared.chmod(0o1777)
    with server.device(environment={"GNOMON_LEASES": str(shared)}):
        assert [path.name for path in shared.iterdir()] == ["lease-local.1.ticket"]
    assert becomes(lambda: not list(shared.iterdir()))


def test_a_dead_owners_lock_is_taken_over(poor: SshServer) -> None:
    held = poor.leases / "lease-local.lock.held"
    held.mkdir()
    ended = subprocess.Popen(["true"])
    ended.wait()
    (held / "pid").write_text(f"{ended.pid}\n")
    with poor.device():
        assert (held / "pid").read_text() != f"{ended.pid}\n"
    assert not held.exists()


@pytest.mark.parametrize("given", ["{}", '~/it\'s a "py" $thon !x\\y'])
def test_a_python_is_found_by_the_path_that_was_given(rich: SshServer, given: str) -> None:
    link = rich.home / 'it\'s a "py" $thon !x\\y'
    if not link.exists():
        link.symlink_to(sys.executable)
    with rich.device(python=given.format(link)) as device:
        assert device.describe().python == str(link)


def test_too_few_sessions_are_told(tmp_path: Path) -> None:
    if what := sshkit.missing():
        pytest.skip(what)
    with ssh_server(tmp_path / "server", lines=("MaxSessions 1",)) as narrow:
        with pytest.raises(DeviceError, match="too few sessions") as refused, narrow.device():
            pass
        assert "MaxSessions" in refused.value.hint
        assert narrow.private_folders() == []


def test_a_device_that_lacks_even_small_programs_is_told(tmp_path: Path) -> None:
    if what := sshkit.missing() or plainkit.missing():
        pytest.skip(what)
    path = plainkit.programs(tmp_path / "bin")
    (path / "mkdir").unlink()
    (path / "wc").unlink()
    with ssh_server(tmp_path / "server", environment={"PATH": str(path)}) as bare:
        with pytest.raises(DeviceError, match="lacks mkdir, wc"), bare.device():
            pass
        assert bare.private_folders() == []


def test_the_fingerprint_is_the_devices_own(server: SshServer, tmp_path: Path) -> None:
    """The server runs on this machine, so that both ways to ask must agree."""
    from gnomon.devices.fingerprint import fingerprint

    own = fingerprint()
    with server.device() as device:
        found = dict(device.describe().fingerprint)
    assert {**found, "python": None} == {**own, "python": None}


@pytest.mark.parametrize("plain", [False, True])
def test_what_chooses_drivers_there_passes_and_is_in_the_fingerprint(tmp_path: Path, *, plain: bool) -> None:
    if what := sshkit.missing() or plainkit.missing():
        pytest.skip(what)
    there = {"GGML_VK_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}
    if plain:
        there["PATH"] = str(plainkit.programs(tmp_path / "bin", helpful=True))
    with (
        ssh_server(tmp_path / "server", environment=there) as running,
        running.device(environment={"CUDA_VISIBLE_DEVICES": ""}) as device,
    ):
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
