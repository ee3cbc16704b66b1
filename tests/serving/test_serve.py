"""`gnomon serve` as a process: real models measured, every refusal, its queue, and its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.formats.test_dpu_profile import published_rule
from tests.serving.servekit import BOUNDARY, PATH, Reply, Server, exchange, form, reply_of, request, served, waited

from gnomon.cli.main import run
from gnomon.devices.lease import lease
from gnomon.models.units import write_unit
from gnomon.spaces.layers import layer
from gnomon.spaces.unit import single

pytest.importorskip("aiohttp", reason="aiohttp is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

TOKEN = "a-token-of-the-tests-0123456789"  # noqa: S105 - of the tests


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def model(folder: Path) -> bytes:
    """A convolution."""
    unit = single(layer("Conv", out_channels=8, kernel=3, pad=1), ((1, 8, 16, 16),))
    return write_unit(unit, folder / "conv.onnx").read_bytes()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """One server for all that leave it as it is."""
    with served(folder / "one", "--most-mb", "1", "--idle-timeout", "2", "--memory-mb", "3000") as made:
        yield made
        assert made.end() == 143
        assert made.left() == []
        assert "Traceback" not in made.errors.read_text(encoding="utf-8")


def test_a_real_model_as_text_by_the_published_rule(server: Server, model: bytes) -> None:
    reply = server.post(model, "Res_0_0_1SSPROFILE")
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.headers["server"].startswith("gnomon/")
    found = published_rule(reply.body)
    assert 1e-4 < found < 1000
    workload = float(next(line for line in reply.body.splitlines() if line.strip().startswith("All")).split()[1])
    assert workload == pytest.approx(2 * 8 * 8 * 9 * 16 * 16 * 1e-6, abs=1e-3)


def test_a_real_model_as_json_without_the_slash(server: Server, model: bytes) -> None:
    raw = request(form(model, "Grüße_☃"), {"Accept": "application/json"}, path=PATH.rstrip("/"))
    reply = server.ask(raw)
    found = reply.json()
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert (found["kernel_name"], found["runtime"], found["processes"]) == ("Grüße_☃", "onnxruntime", 1)
    assert found["latency_s"] > 0
    assert found["clock"] in {"cpu", "wall"}
    assert found["samples"] > 3
    wanted = {"low_s", "high_s", "version", "configuration", "doubts", "device", "drift"}
    assert wanted <= found.keys()
    assert "reference_s" not in found
    health = server.health()
    assert (health["runtime"], health["measuring"], health["present"]) == ("onnxruntime", False, 0)
    assert "/" not in str(health)


def _parts(disposition: str, count: int = 1) -> bytes:
    head = f"--{BOUNDARY}\r\nContent-Disposition: form-data{disposition}\r\n\r\nx\r\n"
    return f"{head * count}--{BOUNDARY}--\r\n".encode()


@pytest.mark.parametrize(
    ("sent", "status", "told"),
    [
        (request(path="/test_latency/"), 404, "there is nothing at"),
        (request(method="GET"), 405, "only POST"),
        (request(form(b"m", "n"), {"Origin": "http://evil.example"}), 403, "web page"),
        (request(form(b"m", "n"), {"Content-Encoding": "gzip"}), 415, "compressed"),
        (request(form(b"m", "n"), {"Content-Type": "application/json"}), 400, "not multipart/form-data"),
        (request(form(None, None)), 400, "kernel_name is missing; parts: file is missing"),
        (request(form(b"m", "")), 400, "not a name"),
        (request(form(b"m", "x" * 600)), 400, "more than 512 bytes"),
        (request(form(b"m", "n", more=form(b"m", None)[:-14])), 400, "file is given twice"),
        (request(form(b"m", "n")[:-20] + b"x" * 20), 400, "ends before"),
        (request(_parts("; name=a\r\nContent-Transfer-Encoding: base64")), 400, "transfer encoding 'base64'"),
        (request(_parts("")), 400, "no Content-Disposition"),
        (request(_parts("; name=a", count=17)), 400, "more than 16 parts"),
        (request(form(b"m" * (2 << 20), "n")), 413, "but a model may have at most 1048576"),
        (request(b"", {"Content-Length": "99999999999"}), 413, "has 99999999999 bytes"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else str(value),
)
def test_what_is_refused_at_once(server: Server, sent: bytes, status: int, told: str) -> None:
    reply = server.ask(sent)
    assert (reply.status, told in reply.body) == (status, True), reply
    assert reply.headers["connection"] == "close"


def test_a_long_body_without_a_length_is_cut_off(server: Server) -> None:
    head = request(b"", {"Transfer-Encoding": "chunked"}).replace(b"Content-Length: 0\r\n", b"")
    body = form(b"m" * (3 << 20), "n")
    reply = server.ask(head + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")
    assert reply.status == 413
    assert "larger than 1048576" in reply.body


def test_a_form_in_chunks_and_a_client_that_waits_to_be_told(server: Server, model: bytes) -> None:
    head = request(b"", {"Transfer-Encoding": "chunked"}).replace(b"Content-Length: 0\r\n", b"")
    body = form(model, "n")
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[k : k + 99]), body[k : k + 99]) for k in range(0, len(body), 99))
    assert server.ask(head + chunks + b"0\r\n\r\n").status == 200
    raw = exchange(server.port, request(form(b"x", None), {"Expect": "100-continue"}))
    assert raw.startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert reply_of(raw).status == 400


@pytest.mark.parametrize("data", [b"no model", b"\x1c\x00\x00\x00TFL3" + bytes(100), bytes(1000)])
def test_what_is_no_model_is_told_without_the_servers_paths(server: Server, data: bytes) -> None:
    reply = server.post(data, Accept="application/json")
    assert reply.status == 422
    error = reply.json()["error"]
    assert error["message"]
    assert str(server.folder) not in reply.body


def test_names_are_texts_and_never_paths(server: Server, model: bytes, folder: Path) -> None:
    for name in (f"../../../../tmp/evil;$(touch {folder / 'evil'})", "All 1 2 0.5 4"):
        reply = server.post(model, name)
        assert reply.status == 200
        assert len([line for line in reply.body.splitlines() if line.strip().startswith("All")]) == 1
    assert not list(folder.rglob("evil"))
    assert all(line.isprintable() for line in server.lines())


def test_a_slow_client_is_sent_away(server: Server) -> None:
    sent = request(form(b"m", "n"))
    reply = server.ask(sent[:-10])
    assert (reply.status, "slowly" in reply.body) == (408, True)
    assert exchange(server.port, sent[:30]) == b""  # the head never came


def test_what_a_runtime_does_not_run_is_told(server: Server, folder: Path) -> None:
    import onnx

    node = onnx.helper.make_node("NoSuchOperator", ["x"], ["y"], domain="nowhere")
    ends = [onnx.helper.make_tensor_value_info(name, 1, [1, 4]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("nowhere", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "odd.onnx")
    reply = server.post((folder / "odd.onnx").read_bytes())
    assert reply.status == 422
    assert "NoSuchOperator" in reply.body


def test_what_takes_more_memory_than_a_job_may_is_refused(server: Server, folder: Path) -> None:
    unit = single(layer("Conv", out_channels=64, kernel=1), ((1, 64, 4096, 4096),))
    reply = server.post(write_unit(unit, folder / "huge.onnx").read_bytes())
    assert reply.status == 422, reply.body


def test_a_token_is_wanted_the_queue_has_an_end_and_so_has_the_server(folder: Path, model: bytes) -> None:
    (folder / "token").write_text(f"{TOKEN}\n")
    with served(folder / "queue", "--token-file", str(folder / "token"), "--queue", "4") as made:
        assert made.document["token"] is True
        for wrong in (None, "Bearer x", f"Basic {TOKEN}", TOKEN):
            reply = made.post(model, **({} if wrong is None else {"Authorization": wrong}))
            assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
        known = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"}
        links = []
        for name in ("first", "gone", "third", "fourth"):
            link = socket.create_connection(("127.0.0.1", made.port), timeout=60)
            link.sendall(request(form(model, name), known))
            links.append(link)
            made.until(lambda health: health["present"] == len(links))
        reply = made.post(model, "fifth", **known)
        assert (reply.status, int(reply.headers["retry-after"]) >= 1) == (503, True)
        assert "the server is full (4 requests)" in reply.body
        links[1].close()
        made.until(lambda health: health["requests"]["gone"] == 1)
        assert [reply_of(read_all(link)).status for link in (links[0], links[2])] == [200, 200]
        made.until(lambda health: bool(health["measuring"]) and health["present"] == 1)
        assert made.end() == 143
        ended = reply_of(read_all(links[3]))
        assert (ended.status, ended.json()["error"]["message"]) == (
            503,
            "the server stopped before the model was measured",
        )
        order = [line.split()[2].rstrip(":") for line in made.lines() if " 200 " in line and "ms" in line]
        assert order == ["first", "third"]
        assert any(line.split()[2:4] == ["gone:", "gone"] for line in made.lines())
        assert made.left() == []
        assert any("ended: everything is cleaned up" in line for line in made.lines())
        assert TOKEN not in made.errors.read_text(encoding="utf-8")


def test_each_model_bears_what_befalls_it_alone(folder: Path, model: bytes) -> None:
    with served(folder / "alone") as made:
        replies: list[Reply] = []
        threads = [threading.Thread(target=lambda: replies.append(made.post(model))) for _ in range(3)]
        threads[0].start()
        made.until(lambda health: bool(health["measuring"]))
        for thread in threads[1:]:
            thread.start()
        made.until(lambda health: health["present"] == 3)
        os.kill(made.processes("gnomon.serving.worker")[0], signal.SIGKILL)
        for thread in threads:
            thread.join()
        assert sorted(reply.status for reply in replies) == [200, 200, 500]
        assert [reply.body for reply in replies if "was ended by signal 9" in reply.body]
        # What is kept holds the device, and another gnomon has its turn between models.
        told: list[str] = []
        with lease(folder / "alone" / "leases", "local", on_wait=told.append):
            asking = threading.Thread(target=lambda: replies.append(made.post(model)))
            asking.start()
            waited(made.lines, lambda lines: any("another gnomon" in line for line in lines))
        asking.join()
        assert replies[-1].status == 200
        # The running job of a client that goes is ended.
        link = socket.create_connection(("127.0.0.1", made.port), timeout=60)
        link.sendall(request(form(model, "n")))
        made.until(lambda health: bool(health["measuring"]))
        link.close()
        made.until(lambda health: health["requests"]["gone"] == 1 and not health["measuring"])
        waited(lambda: [one for one in made.left() if "serving.worker" in one or "agent" in one], lambda left: not left)
        assert made.post(model).status == 200
        # The next is being measured when the server itself is killed: nothing of that is left either.
        with socket.create_connection(("127.0.0.1", made.port), timeout=60) as link:
            link.sendall(request(form(model, "n")))
            made.until(lambda health: bool(health["measuring"]))
            assert made.end(signal.SIGKILL) == -signal.SIGKILL
        waited(made.left, lambda left: not left)


def read_all(link: socket.socket) -> bytes:
    found = b""
    with link:
        while piece := link.recv(1 << 16):
            found += piece
    return found


def test_the_time_limit_of_a_job(folder: Path, model: bytes) -> None:
    with served(folder / "limit", "--job-timeout", "0.2") as made:
        reply = made.post(model)
        assert reply.status == 504
        assert "within the 0.2 s that a job may take here" in reply.body
        assert made.health()["requests"]["timed_out"] == 1
        assert made.end(signal.SIGINT) == 130
        assert made.left() == []


def test_ended_before_it_listens_nothing_is_left(tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    known = {**os.environ, "GNOMON_HOME": str(tmp_path), "TMPDIR": str(scratch)}
    command = [sys.executable, "-c", "from gnomon.cli.main import main; main()", "serve", "--runtime", "onnxruntime"]
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen([*command, "--port", "0"], env=known, stderr=errors)
    made = Server(process=process, folder=scratch, errors=tmp_path / "errors")
    waited(made.left, lambda left: any("serving.worker" in one for one in left))
    assert made.end() == 143
    assert made.left() == []


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--host", "0.0.0.0"], 2, "there is no token"),  # noqa: S104 - refused
        (["--host", "no.such.host.invalid"], 2, "has no address"),
        (["--path", "/../x"], 2, "is not a valid path, such as"),
        ([], 2, "fewer than 16"),
        (["--token-file", "/no/such/file"], 2, "cannot be read"),
        (["--runtime", "nosuch"], 2, "nosuch"),
        (["--backend", "nosuch"], 2, "nosuch"),
    ],
)
@pytest.mark.timeout(60)  # one that starts after all would serve for ever
def test_it_does_not_start(
    options: list[str], code: int, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not options:
        monkeypatch.setenv("GNOMON_SERVE_TOKEN", "short")
    assert run(["serve", "--runtime", "onnxruntime", "--port", "0", *options]) == code
    said = capsys.readouterr().err
    assert told in said
    assert "hint:" in said and "short" not in said


def test_a_port_that_is_anothers(server: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from gnomon.cli.main import main; main()", "serve", "--runtime", "onnxruntime"]
    known = {**os.environ, "GNOMON_HOME": str(tmp_path), "GNOMON_LEASES": str(tmp_path / "leases")}
    done = subprocess.run(
        [*command, "--port", str(server.port)], env=known, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "cannot listen on" in done.stderr) == (2, True)
