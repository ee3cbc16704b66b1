"""`gnomon stab`: its options, what it prints, and its JSON document."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cli.placement_kit import placement
from tests.jobs.stab.stab_kit import trace_for

from gnomon.cli.main import cli, run
from gnomon.core.pricing.stab import exact_decision
from gnomon.core.sample import Trace
from gnomon.errors import GnomonError, ProblemError
from gnomon.jobs.place.report import package_proof
from gnomon.jobs.stab import job
from gnomon.jobs.stab.traces import write_traces
from gnomon.models.load import load
from gnomon.models.model import Model
from gnomon.models.nnpackage import read_nnpackage, write_nnpackage
from gnomon.report.page import Page
from gnomon.session.document import DifferencePart


class Stopped(GnomonError):
    """Raised in place of the job."""


@pytest.fixture
def package(zoo_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A package in the working folder, as a user has it."""
    monkeypatch.chdir(tmp_path)
    write_nnpackage(load(zoo_model("mix.circle")), Path("net"), {})
    return load(Path("net"))


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[job.StabRequest]:
    """The requests that the command makes; nothing is done with them."""
    made: list[job.StabRequest] = []

    def stop(request: job.StabRequest, **others: Any) -> None:
        made.append(request)
        raise Stopped("stopped")

    monkeypatch.setattr(job, "stab", stop)
    return made


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["stab", *arguments])


def slow_start(index: int, opcode: str, backend: str) -> int:
    """Cpu is twice as fast as ruy, but for the first operator."""
    return {"cpu": 1000 if index == 0 else 10, "ruy": 20}[backend]


def keep(model: Model, folder: Path = Path("traces")) -> dict[str, Trace]:
    traces = {backend: trace_for(model, backend, whole=300, time_us=slow_start) for backend in ("cpu", "ruy")}
    write_traces(traces, folder, "net", 1)
    return traces


@pytest.mark.parametrize(
    ("options", "address"),
    [
        (["--ip", "1.1.1.1"], "ssh://1.1.1.1"),
        (["--ip", "1.1.1.1", "--user", "odroid"], "ssh://odroid@1.1.1.1"),
        (["--ip", "board", "-u", "odroid", "--port", "2222"], "ssh://odroid@board:2222"),
        (["--ip", "fe80::1", "--port", "2222"], "ssh://[fe80::1]:2222"),
        (["--device", "ssh://a@b:3"], "ssh://a@b:3"),
        (["--device", "local"], "local"),
        (["--no-profile"], "local"),
        (["--no-profile", "--ip", "1.1.1.1"], "local"),
    ],
)
def test_the_device_is_the_one_that_is_named(
    options: list[str], address: str, package: Model, requests: list[job.StabRequest]
) -> None:
    assert isinstance(call("--nnpackage", "net", *options).exception, Stopped)
    assert str(requests[0].measuring.device.address) == address
    assert requests[0].profile == ("--no-profile" not in options)


def test_all_options_of_the_published_command_are_taken(package: Model, requests: list[job.StabRequest]) -> None:
    call("--nnpackage", "net/", "--ip", "1.1.1.1", "-n", "4", "-u", "odroid", "-v")
    call("--nnpackage", "net", "--ip", "1.1.1.1", "--num_threads", "4", "--user", "odroid", "--verbose")
    first, second = requests
    assert first.measuring.settings.threads == 4
    assert (first.out, first.traces) == (Path("nnpkg_sched/net"), Path("traces"))
    assert replace(first, measuring=second.measuring) == second


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "no device is given"),
        (["--ip", "a", "--device", "b"], "--ip and --device both name the device"),
        (["--device", "local", "--port", "3"], "need --ip"),
        (["--ip", "a", "--port", "0"], "--port"),
        (["--ip", "a", "-n", "0"], "-n"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    options: list[str], told: str, package: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["stab", "--nnpackage", "net", *options]) == 2
    assert told in capsys.readouterr().err


def test_the_report_of_a_decision_from_traces(package: Model) -> None:
    traces = keep(package)
    done = call("--nnpackage", "net", "--no-profile", "-v", "--quiet")
    assert done.exception is None, done.output
    exact = exact_decision(traces)
    gain = (exact.singles[exact.best_single].predicted_us or 0) / (exact.chosen.predicted_us or 1)
    told = f"According to the traces, a mix is {gain:.2f} times as fast as {exact.best_single} alone; nothing was run."
    assert told in " ".join(done.output.split())
    assert "ONE's stab: default backend cpu; equals the exact decision." in done.output
    assert "nnpkg_sched/net" in done.output
    assert "The placement was not run, so it is not proved." in " ".join(done.output.split())
    assert read_nnpackage(Path("nnpkg_sched/net")).config.settings["BACKENDS"] == "cpu;ruy"


def test_the_published_decision_is_printed_with_its_settings(package: Model) -> None:
    keep(package)
    done = call("--nnpackage", "net", "--no-profile", "--compat", "--quiet")
    assert done.exception is None, done.output
    assert "OP_BACKEND_MAP=0=ruy;\n" in done.output
    assert "BACKENDS=cpu;ruy;xnnpack\n" in done.output
    assert Path("nnpkg_sched/net/metadata/config.cfg").read_text().startswith("OP_BACKEND_MAP=0=ruy;\nBACKENDS=")


@pytest.mark.parametrize(
    ("options", "kind", "hint"), [(["--no-profile"], ProblemError, "net_cpu_1"), (["--ip", "a/b"], GnomonError, "")]
)
def test_what_cannot_be_done_is_an_error_with_a_hint(
    options: list[str], kind: type[GnomonError], hint: str, package: Model
) -> None:
    error = call("--nnpackage", "net", *options).exception
    assert isinstance(error, kind)
    assert error.hint and hint in error.hint


@pytest.mark.parametrize(
    ("off", "told"), [(0.0, "equal the reference."), (1e-7, "by at most 1.0e-07, which is 1.0e-07 of the largest.")]
)
def test_equal_outputs_are_said_to_be_equal(off: float, told: str) -> None:
    file = io.StringIO()
    proof = placement()
    difference = DifferencePart(absolute=off, relative=off)
    package_proof(replace(proof, verified=replace(proof.verified, difference=difference)), Page(file, width=100))
    assert [line for line in file.getvalue().splitlines() if line.endswith(told)]
