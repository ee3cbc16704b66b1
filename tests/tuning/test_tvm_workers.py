"""The worker to TVM: children that crash, hang, are killed or cannot be started, and nothing left of any."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.processkit import becomes
from tests.tuning.conftest import Kit
from tests.tuning.tvmkit import living

from gnomon.core.sample import Failure
from gnomon.errors import RuntimeMissingError
from gnomon.system.children import Program
from gnomon.tuning.tvm import _VERSIONS, TvmPool, TvmWorker

SEGFAULT = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"


def pid_of(worker: TvmWorker) -> int:
    return worker.start()._program._process.pid


@pytest.fixture
def standin(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """An environment in which the package `tvm` is a text of one's own."""

    def made(text: str) -> dict[str, str]:
        package = tmp_path / "packages" / "tvm"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
        return {"PYTHONPATH": str(package.parent)}

    return made


@pytest.mark.parametrize(
    ("text", "told", "hint"),
    [
        (SEGFAULT, "SIGSEGV.*its two packages are incompatible", _VERSIONS),
        ("import os\nos._exit(9)\n", "status 9", _VERSIONS),
        ("raise ModuleNotFoundError(\"No module named 'tvm'\")", "is not installed", "cloudpickle"),
        ("raise ModuleNotFoundError(\"No module named 'tvm_ffi'\")", "is not installed", "cloudpickle"),
        ("raise ImportError('libtvm.so: undefined symbol: TVMx')", "undefined symbol", _VERSIONS),
        ("print('a word')\n", "tvm", _VERSIONS),
    ],
)
def test_a_tvm_that_cannot_be_used_is_an_error_with_the_command_that_mends_it(
    standin: Callable[[str], dict[str, str]], text: str, told: str, hint: str
) -> None:
    with TvmPool() as pool:
        worker = pool.worker(environment=standin(text))
        for _ in range(2):  # it is the same each time that it is asked
            with pytest.raises(RuntimeMissingError, match=told) as missing:
                worker.ask("x", {"do": "here"})
            line = missing.value.hint or ""
            assert line.startswith(f"{sys.executable} -m pip install") and hint in line
        assert not worker.alive and worker.starts == 0


def test_a_start_that_does_not_end_is_ended(
    standin: Callable[[str], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.tuning.tvm._START_S", 1.0)
    with TvmPool() as pool:
        worker = pool.worker(environment=standin("import time\ntime.sleep(600)\n"))
        with pytest.raises(RuntimeMissingError, match="longer than 1 s"):
            worker.ask("x", {"do": "here"})


def test_a_child_tells_its_versions_and_refuses_what_it_does_not_know(kit: Kit) -> None:
    here = kit.asked(do="here")
    assert here["mcpu"] and here["mtriple"]
    assert set(kit.worker.versions) >= {"apache-tvm", "apache-tvm-ffi"}
    starts = kit.worker.starts
    for job in ({}, {"do": "format"}, {"do": None}, {"do": "ask", "layer": "1"}, {"do": "open"}):
        said = kit.worker.ask("probe", job)
        assert isinstance(said, Failure) and (said.stage, said.kind) == ("probe", "refused"), said
        assert said.message
    assert kit.worker.starts == starts and kit.worker.alive


def test_tvm_may_print_without_being_taken_for_an_answer(kit: Kit) -> None:
    # This error is printed by LLVM itself, to the standard output of the process in other versions.
    said = kit.worker.ask("x", {"do": "layers", "target": {"kind": "llvm", "mtriple": "no-such-machine", "mcpu": "x"}})
    assert isinstance(said, Failure) and said.kind == "refused"
    assert kit.asked(do="here")


ROGUE = """
import json, sys
print("a word that no answer is", file=sys.stderr)
sys.stdin.readline()
print(json.dumps({"state": "ready", "versions": {"tvm": "1"}}), flush=True)
for line in sys.stdin:
    print(json.dumps({"state": "done", "facts": {"asked": json.loads(line).get("n")}}), flush=True)
"""


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doors lead to a child program that is there at once, and knows nothing of TVM."""
    folder = tmp_path / "quick"
    folder.mkdir()
    (folder / "__main__.py").write_text(ROGUE)
    monkeypatch.setattr("gnomon.tuning.tvm.Program", functools.partial(Program, folder=folder))


@pytest.mark.usefixtures("quick")
def test_a_child_that_was_killed_between_questions_costs_none(pool: TvmPool) -> None:
    renewed: list[int] = []
    refusal: list[Failure] = []

    def renew(worker: TvmWorker) -> Failure | None:
        renewed.append(pid_of(worker))
        assert not isinstance(worker.ask("renewing", {"n": 0}), Failure)
        return refusal[0] if refusal else None

    worker = pool.worker(renew=renew)
    assert worker.ask("x", {"n": 1}) == {"asked": 1} == worker.ask("x", {"n": 1})
    first = pid_of(worker)
    os.kill(first, signal.SIGKILL)
    assert becomes(lambda: not worker.alive)
    assert worker.ask("x", {"n": 2}) == {"asked": 2}
    assert renewed == [first, pid_of(worker)] and worker.starts == 2
    worker.close()
    refusal.append(Failure(stage="load", kind="refused", transient=False, message="gone"))
    assert worker.ask("x", {"n": 3}) == refusal[0]
    assert not worker.alive, "a child that does not know what it should is not kept"
    refusal.clear()
    assert worker.ask("x", {"n": 4}) == {"asked": 4}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_child_that_does_not_answer_is_ended_in_its_time(pool: TvmPool, size: int) -> None:
    """Also where it does not even read: a pipe holds less than a message."""
    worker = pool.worker(job_timeout_s=0.5)
    stopped = pid_of(worker)
    os.kill(stopped, signal.SIGSTOP)
    said = worker.ask("x", {"more": "x" * size})
    assert isinstance(said, Failure) and (said.stage, said.kind, said.message) == (
        "x",
        "hang",
        "the program took longer than 0.5 s",
    )
    assert "a word that no answer is" in said.log_tail
    assert not living(stopped)
    assert worker.ask("x", {"n": 1, "more": "x" * size}, timeout_s=20.0) == {"asked": 1}


@pytest.fixture
def pool() -> Iterator[TvmPool]:
    with TvmPool() as made:
        yield made


@pytest.mark.usefixtures("quick")
def test_nothing_is_left_of_a_workshop() -> None:
    with TvmPool() as pool:
        groups = [pid_of(pool.worker()) for _ in range(3)]
        assert all(living(group) for group in groups)
    assert not any(living(group) for group in groups) and not pool.folder.exists()
