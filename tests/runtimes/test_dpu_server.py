"""The command `dpu-server`: a real curl, and a server of the published protocol that is busy, or that is none."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.formats.test_dpu_profile import GOLDEN, PUBLISHED, published_rule

import gnomon
from gnomon.agent.drivers.command.reading import Unreadable
from gnomon.agent.drivers.command.report import report_of
from gnomon.errors import MeasurementError
from gnomon.runtimes.declared import declarations

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian: curl)")

ELF = b"\x7fELF\r\n--" + bytes(range(256)) * 1000
Answer = tuple[int, dict[str, str], str]
"""A status, headers, and a body."""


@contextmanager
def station(*answers: Answer) -> Iterator[tuple[str, list[EmailMessage]]]:
    """A server that gives these answers, one a request, the last again and again: its address, and what came."""
    came: list[EmailMessage] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            form = BytesParser(policy=HTTP).parsebytes(
                f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode() + body
            )
            assert isinstance(form, EmailMessage)
            came.append(form)
            status, headers, text = answers[min(len(came), len(answers)) - 1]
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/test_latency/test_latency/", came
        finally:
            server.shutdown()
            thread.join()


def measured(folder: Path, url: str) -> float:
    """Seconds of a compiled model by the server at this address."""
    model = folder / "dpu_Res_0SSPROFILE.elf"
    model.write_bytes(ELF)
    command = f"dpu-server:url={url}"
    document = gnomon.profile(model, commands=[command], processes=1, budget_s=0.1, record=folder / "r")
    (row,) = document.columns
    assert row.wall is not None
    return row.wall.median_s


@needs_curl
def test_a_busy_server_is_asked_again_when_it_says_and_kernels_are_averaged(tmp_path: Path) -> None:
    busy = (503, {"Retry-After": "1"}, "error: no room\n")
    with station(busy, busy, (200, {}, f"{PUBLISHED}\r\n  All 1 2 6.063 4\r\n")) as (url, came):
        assert measured(tmp_path, url) == pytest.approx((13.937e-3 + 6.063e-3) / 2)
    assert len(came) > 2
    for form in came:
        name, file = (part for part in form.iter_parts() if isinstance(part, EmailMessage))
        assert [part.get_param("name", header="content-disposition") for part in (name, file)] == [
            "kernel_name",
            "file",
        ]
        assert name.get_payload(decode=True) == b"Res_0SSPROFILE" and name.get_filename() is None
        assert file.get_payload(decode=True) == ELF and str(file.get_filename()).endswith(".elf")


@needs_curl
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((422, {}, "error: no such model\n"), "curl ended with status 22: error: no such model"),
        ((302, {"Location": "http://127.0.0.1:9/"}, "moved"), "wrote no time that .* last line is 'moved'"),
        ((200, {}, "<html>busy</html>"), "wrote no time that .* last line is '<html>busy</html>'"),
    ],
)
def test_what_no_profile_is_the_reason(answer: Answer, told: str, tmp_path: Path) -> None:
    with station(answer) as (url, came), pytest.raises(MeasurementError, match=told):
        measured(tmp_path, url)
    assert came


@pytest.mark.parametrize("text", [PUBLISHED, GOLDEN.read_text(encoding="utf-8"), "\tAll 1 2 3\nAll: 1 2 5 6\n"])
def test_a_profile_is_read_as_the_published_client_reads_it(text: str) -> None:
    spec = declarations()["dpu-server"][0].spec({})
    told = report_of(spec, text, lambda name: "", profiled=False, wall_ns=1)
    assert told.calls_ns == [round(published_rule(text) * 1e6)]


@pytest.mark.parametrize(
    "text", ["All 1 2 fast", "All 1 2 nan", "All 1 2 -3.5", "All 1 2 1e300", "All 1 2", "All 1 2 0"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    spec = declarations()["dpu-server"][0].spec({})
    with pytest.raises(Unreadable):
        report_of(spec, text, lambda name: "", profiled=False, wall_ns=1)
