"""`gnomon serve --command`: any program that prints a time, here a stand-in for xdputil, and what it says wrong."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.formats.test_dpu_profile import published_rule
from tests.models import modelkit
from tests.serving.servekit import Server, form, request, served, waited

from gnomon.cli.main import run
from gnomon.devices.address import LOCAL
from gnomon.devices.lease import lease, lease_folder
from gnomon.store.base import CampaignQuery, RunQuery
from gnomon.store.sqlite import SqliteStore

pytest.importorskip("aiohttp", reason="aiohttp is not installed")

XDPUTIL = Path(__file__).parents[1] / "standins" / "xdputil"
COMMAND = f"{XDPUTIL} benchmark {{model}} 1"
RATE = "FPS= (?P<fps>[0-9.e+]+)"
WHAT = ("--command", COMMAND, "--read", RATE)
ELF = b"\x7fELF\x02\x01\x01" + bytes(200)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("command")
    with served(folder, "--model-name", "model.xmodel", "--job-timeout", "5", what=WHAT) as made:
        yield made
        assert made.end() == 143
        assert made.left() == []


def test_the_median_of_three_processes_with_an_interval(server: Server, tmp_path: Path) -> None:
    reply = server.post(b"us 2500", Accept="application/json")
    found = reply.json()
    assert (reply.status, found["processes"], found["samples"] >= 3) == (200, 3, True)
    assert found["low_s"] <= found["latency_s"] <= found["high_s"]
    assert found["latency_s"] == pytest.approx(2500e-6, rel=0.02)
    assert (found["device"], found["clock"]) == ("local", "wall")
    text = server.post(b"us 2500" + b" " * (5 << 20))  # more than aiohttp takes by itself
    assert published_rule(text.body) == pytest.approx(2.5, rel=0.02)


@pytest.mark.parametrize(
    ("sent", "status", "told"),
    [
        (b"fail", 422, "ended with status 3: WARNING"),
        (b"fail", 422, "fingerprint of the model: isa mismatch"),
        (b"crash", 422, "was killed by SIGSEGV"),
        (b"silent", 422, "wrote no time that"),
        (
            b"hang",
            504,
            "the last message was: WARNING: Logging before InitGoogleLogging() is written to STDERR | I0101 0%",
        ),
        (ELF, 200, "1.0"),
    ],
)
def test_what_a_program_says_comes_back(server: Server, sent: bytes, status: int, told: str) -> None:
    reply = server.post(sent)
    assert (reply.status, told in reply.body or status == 200) == (status, True), reply.body
    assert str(server.folder) not in reply.body


def test_a_program_that_says_nothing_is_told_to_have_said_nothing(tmp_path: Path) -> None:
    what = ("--command", "sh -c 'exec sleep 60' {model}", "--read", RATE)
    with served(tmp_path, "--job-timeout", "1", what=what) as quiet:
        reply = quiet.post(b"any")
        assert reply.status == 504 and "that a job may take here\n" in reply.body


def test_nothing_is_left_and_the_times_are_in_the_record(server: Server) -> None:
    assert server.post(b"leave 70").status == 200
    server.until(lambda health: health["present"] == 0)
    assert [name for name in server.left() if "left" in name or name.startswith("pushed")] == []
    assert list(server.folder.glob("gnomon-serve-*/*")) == []
    with SqliteStore.open(server.folder.parent / "home" / "record.sqlite") as store:
        last = max(store.query(CampaignQuery(kind="serve", finished=True)), key=lambda one: one.started_at_s)
        assert last.context.options["commands"][0]["read"] == RATE
        runs = list(store.query(RunQuery(campaign=last.id)))
    assert len(runs) == 3
    assert all(run.samples is not None and run.samples.wall_ns[0] == pytest.approx(70_000, rel=0.02) for run in runs)


def test_a_client_that_goes_ends_its_program(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(request(form(b"hang", "n")))
        waited(lambda: _programs(server), bool)
    waited(lambda: _programs(server), lambda found: not found)
    assert server.post(b"us 40").status == 200


def test_a_declared_command_gets_the_inputs_of_a_model_that_gnomon_reads(tmp_path: Path) -> None:
    words = [sys.executable, str(XDPUTIL.with_name("measurer")), "npz", "{model}", "{runs}", "{inputs_npz}"]
    config = tmp_path / "more.toml"
    keys = f'run = {json.dumps(words)}\nread = "json:latency[].ms"\nformats = ["onnx"]\noutputs = "out.npz"'
    config.write_text(f"[commands.mine]\n{keys}\n")
    config.chmod(0o600)
    ends = [modelkit.value("x", (2, 3))], [modelkit.value("y", (2, 3))]
    made = modelkit.model([modelkit.node("Relu", ["x"], ["y"])], *ends)
    what = ("--command", "mine", "--config", str(config), "--model-name", "model.onnx", "--runs", "1")
    with served(tmp_path, what=what) as server:
        found = server.post(made.SerializeToString(), Accept="application/json").json()
        assert (found["runtime"], found["processes"], found["low_s"]) == ("mine", 1, None)
        assert found["latency_s"] == pytest.approx(1e-3, rel=0.05)
        assert server.post(b"not ONNX").status == 422


def _programs(server: Server) -> list[bytes]:
    """The commands of the programs that run a model of this server."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append((process / "cmdline").read_bytes())
    return [one for one in found if str(server.folder).encode() in one and one.endswith(b"model.xmodel\x001\0")]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "exactly one of --runtime and --command"),
        (["--runtime", "onnxruntime", *WHAT], "exactly one of --runtime and --command"),
        (["--command", "x {model} {arch}", "--read", RATE], "there is no placeholder {arch}"),
        (["--command", "x y", "--read", RATE], "it has no {model}"),
        (["--command", "xdputil", "--read", RATE], "there is no command 'xdputil'"),
        (["--command", "x '{model}", "--read", RATE], "a command expected (No closing quotation)"),
        (["--command", "x {model}", "--read", "("], "not a regular expression"),
        (["--command", "x {model}", "--read", "took (.*)"], "it names no unit"),
        (["--command", "x", "--config", "no.toml"], "there is no file no.toml"),
        (["--command", "x {model}", "--read", RATE, "--backend", "b"], "--backend cannot be used with --command"),
        (["--command", "x {model}", "--read", RATE, "--model-name", "a/b"], "is not a name for the model's file"),
        (["--command", "x {model}", "--read", RATE, "--device", "nosuch"], "there is no device named"),
        (["--runtime", "onnxruntime", "--read", RATE], "--read and --config need --command"),
        (["--runtime", "onnxruntime", "--device", "ssh://a", "--device", "ssh://b@A:22"], "are one machine"),
    ],
)
@pytest.mark.timeout(60)  # one that starts after all would serve for ever
def test_it_does_not_start(options: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--port", "0", *options]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "hint:" in said


@pytest.mark.timeout(60)
@pytest.mark.parametrize("program", ["no-such-program", "./xdputil"])
def test_a_program_that_is_not_there_is_told_while_another_measures(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GNOMON_LEASES", str(tmp_path / "leases"))
    with lease(lease_folder(), LOCAL):  # who waited for the device would wait for this very test
        assert run(["serve", "--port", "0", "--command", f"{program} {{model}}", "--read", RATE]) == 5
    said = capsys.readouterr().err
    assert f"there is no program '{program}' on local" in said
    assert "full path" in said


@pytest.mark.timeout(60)
def test_without_aiohttp_the_hint_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "gnomon.serving.handlers", raising=False)
    assert run(["serve", "--port", "0", *WHAT]) == 5
    said = capsys.readouterr().err
    assert "the server needs aiohttp" in said
    assert "pip install 'aiohttp>=" in said


def test_a_program_that_goes_is_the_servers_affair(tmp_path: Path) -> None:
    program = Path(shutil.copy(XDPUTIL, tmp_path / "xdputil"))
    what = ("--command", f"{program} benchmark {{model}} 1", "--read", RATE)
    with served(tmp_path / "goes", what=what) as made:
        assert made.post(b"us 1000").status == 200
        program.unlink()
        reply = made.post(b"us 1000")
        assert (reply.status, "there is no program" in reply.body) == (500, True), reply.body
