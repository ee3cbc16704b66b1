"""Places of a real labgrid are acquired, switched on, used and released, however the visit ends."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from tests.devices import labgridkit
from tests.devices.labgridkit import Lab, options, service
from tests.devices.shell import adbkit
from tests.devices.shell.sshkit import SshServer, ssh_server
from tests.processkit import all_processes, becomes, words_of

from gnomon.devices.config import DeviceConfig, device_from
from gnomon.devices.lease import lease, lease_folder
from gnomon.devices.opening import opened, resolve
from gnomon.errors import DeviceError, RuntimeMissingError, UsageError
from gnomon.jobs.devices.job import add_and_check
from gnomon.system.stopping import pause
from gnomon_labgrid import device as labgrid
from gnomon_labgrid import program

pytestmark = [pytest.mark.devices]
ME = f"{getpass.getuser()} {socket.gethostname()}"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    if what := labgridkit.missing():
        pytest.skip(what)
    with ssh_server(tmp_path_factory.mktemp("lab") / "board") as server:
        yield server


class Switch(BaseHTTPRequestHandler):
    """Switches the power of a board, in the words of labgrid's model simplerest."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def power() -> Iterator[dict[str, Any]]:
    """The resource of a board whose power can be switched."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Switch) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"http://127.0.0.1:{server.server_address[1]}/{{index}}/{{value}}"
        yield {"NetworkPowerPort": {"model": "simplerest", "host": host, "index": 0}}
        server.shutdown()


@pytest.fixture(scope="module")
def running(board: SshServer, power: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A running labgrid: p1, p2 and p5 are one board; p3 has nothing that gnomon can reach; p4's exporter cannot
    provide its resource.
    """
    places = {
        "p1": service(board),
        "p2": service(board),
        "p3": {"HTTPVideoStream": {"url": "http://camera"}},
        "p4": {"RawSerialPort": {"port": "/dev/none"}},
        "p5": {**service(board), **power},
    }
    tags = {"p1": {"board": "a", "rack": "1"}, "p2": {"board": "b", "rack": "1"}}
    with labgridkit.lab(tmp_path_factory.mktemp("lab") / "lab", places, tags) as lab:
        yield lab


@pytest.fixture(autouse=True)
def here(running: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LG_COORDINATOR", running.address)
    monkeypatch.setattr(labgrid, "_chosen", {})
    yield
    assert running.held() == []


def config(address: str, board: SshServer) -> DeviceConfig:
    return device_from("board", {"address": address, "ssh_options": list(options(board))})


def no(sentence: str) -> None:
    """Fail, because nothing may wait."""
    raise DeviceError(sentence)


def test_a_place_is_taken_used_and_given_back(board: SshServer, running: Lab) -> None:
    with opened(config("labgrid:p1", board)) as device:
        assert device.run(["echo", "there"], env={}, timeout_s=60).stdout == "there\n"
        assert device.describe().name == "board"
        (held,) = running.held()
        name, host, place = held.split()
        assert (name, place) == (getpass.getuser(), "p1")
        assert host.startswith(f"gnomon-{os.getpid()}-") and host.endswith(f"@{socket.gethostname()}")
    assert running.held() == [] and board.private_folders() == []
    with pytest.raises(ZeroDivisionError), opened(config("labgrid:p1", board)):
        raise ZeroDivisionError


def test_tags_choose_a_place_and_the_process_stays_with_it(board: SshServer, running: Lab) -> None:
    with opened(config("labgrid:@board=b,rack=1", board)):
        assert [line.split()[2] for line in running.held()] == ["p2"]
    either = config("labgrid:@rack=1", board)
    running.client("-p", "p1", "acquire")
    with opened(either):
        assert {line.split()[2] for line in running.held()} == {"p1", "p2"}
    running.client("-p", "p1", "release")
    running.client("-p", "p2", "acquire")
    try:
        with (
            pytest.raises(DeviceError, match="desk/bob has p2 in labgrid"),
            opened(either, on_wait=no),
        ):
            raise AssertionError
    finally:
        running.client("-p", "p2", "release")


def test_who_has_the_place_is_told_and_waited_for_to_an_end(
    board: SshServer, running: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.client("-p", "p1", "acquire")
    with monkeypatch.context() as patch:
        patch.setattr(labgrid, "_WAIT_S", 0.1)
        with (
            pytest.raises(DeviceError, match="labgrid:p1 is not free: desk/bob has p1") as refused,
            opened(config("labgrid:p1", board)),
        ):
            raise AssertionError
    assert refused.value.transient and refused.value.busy and running.client("reservations") == ""
    told: list[str] = []

    def on_wait(sentence: str) -> None:
        told.append(sentence)
        running.client("-p", "p1", "release")

    with opened(config("labgrid:p1", board), on_wait=on_wait):
        assert told == ["desk/bob has p1 in labgrid: waiting for it to end"]


def test_a_place_that_the_user_has_taken_is_used_and_stays_theirs(board: SshServer, running: Lab) -> None:
    me = f"{socket.gethostname()}/{getpass.getuser()}"
    running.client("-p", "p1", "acquire", name=me)
    with opened(config("labgrid:p1", board)) as device:
        assert device.run(["true"], env={}, timeout_s=60).ok
    assert running.held() == [f"{ME} p1"]
    running.client("-p", "p1", "release", name=me)


VISIT = """
import sys
from gnomon.devices.config import device_from
from gnomon.devices.opening import opened
with opened(device_from("board", {"address": "labgrid:p1", "ssh_options": sys.argv[1:]})):
    print("in", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another(board: SshServer) -> Iterator[subprocess.Popen[str]]:
    """Another gnomon that has the place."""
    argv = [sys.executable, "-c", VISIT, *options(board)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "in\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def keepers() -> set[int]:
    """The processes that keep places for a gnomon."""
    words = {pid: words_of(pid) for pid in all_processes()}
    return {pid for pid, line in words.items() if bytes(labgrid._PROGRAM) in line and b"-c" in line}


def test_a_killed_gnomon_leaves_no_place_behind(board: SshServer, running: Lab) -> None:
    with another(board) as process:
        process.send_signal(signal.SIGKILL)
        assert becomes(lambda: running.held() == [])


def test_what_is_left_by_who_dies_while_it_is_waited_for_is_released(
    board: SshServer, running: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labgrid, "_LOOK_AGAIN_S", 0.1)
    before = keepers()
    with another(board) as process:
        (keeper,) = keepers() - before

        def both_die(sentence: str) -> None:
            os.kill(keeper, signal.SIGKILL)
            process.send_signal(signal.SIGKILL)
            process.wait()

        with opened(config("labgrid:p1", board), on_wait=both_die) as device:
            assert device.run(["true"], env={}, timeout_s=60).ok


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What visits ask the coordinator, and the coordinator's answers."""
    monkeypatch.setattr(labgrid, "_LOOK_AGAIN_S", 0.1)
    told: list[tuple[str, Any]] = []
    ask = labgrid._Visit.ask

    def heard(visit: labgrid._Visit, do: str, **job: Any) -> Any:
        told.append((do, answer := ask(visit, do, **job)))
        return answer

    monkeypatch.setattr(labgrid._Visit, "ask", heard)
    return told


def test_a_reservation_is_asked_for_while_the_lease_here_is_waited_for(
    board: SshServer, running: Lab, asked: list[tuple[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = 0
    with ExitStack() as other:
        other.enter_context(lease(lease_folder(), "labgrid-p1"))

        def waits(seconds: float) -> None:
            nonlocal polls
            polls = [do for do, _ in asked].count("poll")
            other.close() if polls == 3 else pause(seconds)

        monkeypatch.setattr("gnomon.devices.lease.pause", waits)
        with opened(config("labgrid:p1", board)) as device:
            assert device.run(["true"], env={}, timeout_s=60).ok
    assert polls >= 3


def test_a_reservation_that_is_lost_while_the_lease_here_is_waited_for_ends_the_visit(
    board: SshServer, running: Lab, asked: list[tuple[str, Any]]
) -> None:
    def lost(sentence: str) -> None:
        (token,) = [answer["token"] for do, answer in asked if do == "reserve"]
        running.client("cancel-reservation", token)

    with (
        lease(lease_folder(), "labgrid-p1"),
        pytest.raises(DeviceError, match=r"refuses \(poll\): Reservation .* does not exist"),
        opened(config("labgrid:p1", board), on_wait=lost),
    ):
        raise AssertionError


def test_what_cannot_be_given_back_keeps_nothing_else() -> None:
    pytest.importorskip("labgrid", reason="labgrid is not installed: pip install ./packages/labgrid")
    asked: list[str] = []

    class Stub:
        async def ReleasePlace(self, request: Any) -> None:
            asked.append(request.placename)
            if request.placename in ("p1", "p2"):
                raise RuntimeError(f"no {request.placename} any more")

        async def GetReservations(self, request: Any) -> Any:
            return SimpleNamespace(reservations=[SimpleNamespace(owner=by, token=f"of {by}") for by in ("me", "you")])

        async def CancelReservation(self, request: Any) -> None:
            asked.append(request.token)
            raise RuntimeError("it is gone")

    class Session:
        stub = Stub()
        places: ClassVar[dict[str, Any]] = {
            name: SimpleNamespace(name=name, acquired=by)
            for name, by in (("p1", "me"), ("p2", "me"), ("p3", "you"), ("p4", "me"))
        }

        async def sync_with_coordinator(self) -> bool:
            return True

    with pytest.raises(RuntimeError) as told:
        asyncio.run(program._Lab(Session(), "here").free("me"))
    assert asked == ["p1", "p2", "p4", "of me"]
    assert str(told.value) == ("place p1: no p1 any more; place p2: no p2 any more; reservation of me: it is gone")


def test_what_is_wrong_is_told_with_what_to_do(board: SshServer, running: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(address: str) -> DeviceError:
        with pytest.raises(DeviceError) as told, opened(config(address, board)):
            raise AssertionError
        return told.value

    assert "has no place 'p9'" in refused("labgrid:p9").message
    assert "Its places: p1, p2, p3, p4, p5." in refused("labgrid:p9").hint
    assert "has no place with board=z" in refused("labgrid:@board=z").message
    assert "has no resource that gnomon can reach; it has HTTPVideoStream" in refused("labgrid:p3").message
    assert "refuses (acquire): Failed to acquire resources for place p4" in refused("labgrid:p4").message
    away = refused("labgrid://127.0.0.1:1/p1")
    assert away.message.startswith("no coordinator of labgrid answers at 127.0.0.1:1") and away.transient
    assert "LG_COORDINATOR" in away.hint
    monkeypatch.setattr(labgrid, "_PROGRAM", Path("/no/such/program.py"))
    assert "ended: " in (message := refused("labgrid:p1").message) and "/no/such/program.py" in message


@pytest.mark.parametrize(
    "address", ["labgrid:", "labgrid:@=a", "labgrid:@board=a@b", "labgrid:-x", "labgrid://host:1", "labgrid://me@host"]
)
def test_what_names_no_place_is_refused_before_anything_is_asked(address: str) -> None:
    with pytest.raises(UsageError, match=r"place of labgrid|not the address"):
        add_and_check(device_from("board", {"address": address}), check=False)


def test_without_labgrid_it_is_told_how_to_install_it(
    board: SshServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "labgrid.py").write_text("raise ImportError('not here')")
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        with pytest.raises(RuntimeMissingError, match="not here") as told, opened(config("labgrid:p1", board)):
            raise AssertionError
    assert "pip install 'labgrid" in told.value.hint


def test_an_address_alone_is_called_by_its_place() -> None:
    found = resolve("labgrid:@board=a")
    resources = [{"cls": "NetworkService", "params": {"address": "fe80::1", "username": "root"}, "extra": {}}]
    way = labgrid._way(found, "p1", resources)
    assert (str(way.config.address), way.config.name, way.port) == (
        "ssh://root@[fe80::1]:22",
        "labgrid:p1",
        ("fe80::1", 22),
    )


def test_a_board_behind_its_exporter_is_reached_through_it() -> None:
    extra = {"proxy": "lab7", "proxy_required": True}
    found = {
        "cls": "NetworkService",
        "params": {"address": "10.0.0.2", "username": "root", "port": 2222},
        "extra": extra,
    }
    way = labgrid._way(resolve("labgrid:p1"), "p1", [found, {"cls": "NetworkPowerPort", "params": {}, "extra": {}}])
    assert way.config.ssh_options == ("ProxyJump=lab7",) and way.port is None and way.power
    with pytest.raises(DeviceError, match="has 2 resources of the kind NetworkService"):
        labgrid._way(resolve("labgrid:p1"), "p1", [found, found])


SSH = {"address": "10.0.0.2", "username": "root", "port": 22}
ADB = {"host": "10.0.0.2", "port": 5037, "serialno": "a"}


@pytest.mark.parametrize(
    ("cls", "params", "proxy"),
    [
        ("NetworkService", {**SSH, "address": "-oProxyCommand=x"}, None),
        ("NetworkService", {**SSH, "address": ""}, None),
        ("NetworkService", {**SSH, "username": "-l"}, None),
        ("NetworkService", {**SSH, "username": ["root"]}, None),
        ("NetworkService", {**SSH, "port": 70000}, None),
        ("NetworkService", {**SSH, "port": float("inf")}, None),
        ("NetworkService", SSH, "lab7;x"),
        ("RemoteADBDevice", {**ADB, "host": "-x"}, None),
        ("NetworkADBDevice", {**ADB, "port": 0}, None),
    ],
)
def test_what_no_address_could_say_an_exporter_cannot_either(cls: str, params: Any, proxy: str | None) -> None:
    found = {"cls": cls, "params": params, "extra": {"proxy": proxy, "proxy_required": proxy is not None}}
    with pytest.raises(DeviceError, match="is not as labgrid describes it"):
        labgrid._way(resolve("labgrid:p1"), "p1", [found])


def test_a_host_that_no_name_server_can_be_asked_for_does_not_answer() -> None:
    assert not labgrid._answers((f"{'a' * 70}.x", 22))


def test_the_lease_of_a_place_is_a_file_of_the_folder_whatever_it_is_called() -> None:
    with lease(lease_folder(), labgrid._lease("rack/../1 é")):
        assert [path.name for path in lease_folder().glob("lease-labgrid-rack*")] == [
            "lease-labgrid-rack%2F..%2F1%20%C3%A9.1.ticket"
        ]
    assert labgrid._lease("bench-3.a+b") == "labgrid-bench-3.a+b"
    long = [labgrid._lease("ü" * count) for count in (40, 41)]
    assert len(set(long)) == 2
    for name in long:
        with lease(lease_folder(), name):
            assert list(lease_folder().glob(f"*{name[-16:]}.1.ticket"))


def test_a_board_that_is_off_is_switched_on_and_off_and_on_where_it_hangs(
    board: SshServer, running: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The board hangs the first time.
    monkeypatch.setattr(labgrid, "_answers", lambda port: Switch.asked.count("/0/1") == 2)
    monkeypatch.setattr(labgrid, "BOOT_S", 1.0)
    with opened(config("labgrid:p5", board)) as device:
        assert device.run(["true"], env={}, timeout_s=60).ok
    assert Switch.asked == ["/0/1", "/0/0", "/0/1"]


def test_a_phone_of_a_place_is_reached_by_adb_though_the_coordinator_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with adbkit.adb_server(), adbkit.phone(tmp_path / "phone") as phone:
        far = {"host": "127.0.0.1", "port": int(os.environ["ANDROID_ADB_SERVER_PORT"]), "serialno": phone.serial}
        near = {"host": "127.0.0.1", "port": phone.port}
        places = {"near": {"RemoteADBDevice": near}, "far": {"NetworkADBDevice": far}}
        with labgridkit.lab(tmp_path / "lab", places) as lab:
            monkeypatch.setenv("LG_COORDINATOR", lab.address)
            with opened(resolve("labgrid:near")) as device:
                assert device.describe().name == "labgrid:near"
            monkeypatch.delenv("ANDROID_ADB_SERVER_PORT")  # the place says where the server is
            with opened(resolve("labgrid:far")) as device:
                assert device.run(["echo", "there"], env={}, timeout_s=60).stdout == "there\n"
            assert lab.held() == []
            monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(far["port"]))
            with opened(resolve("labgrid:near")) as device:
                os.kill(lab.coordinator, signal.SIGKILL)
                assert device.run(["true"], env={}, timeout_s=60).ok, "a coordinator that dies ends no visit"
        assert phone.private_folders() == []
