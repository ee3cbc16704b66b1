"""Child programs that crash, hang, print what they should not, or cannot be started."""

from __future__ import annotations

import dataclasses
import os
import threading
from pathlib import Path

import pytest
from tests.processkit import gone, runs

from gnomon.errors import RuntimeMissingError
from gnomon.system import children
from gnomon.system.children import Order, Program, run_orders

ROGUE = """
import json, os, signal, subprocess, sys, time

def say(**said):
    print(json.dumps(said), flush=True)

request = json.loads(sys.stdin.readline())
how = request["settings"].get("start", "")
with open(request["settings"]["starts"], "a") as file:
    file.write("x")
if how == "refused":
    say(state="unusable", message="no such package")
    sys.exit(3)
if how == "hang":
    time.sleep(600)
if how == "exit":
    print("a word on the way out", file=sys.stderr)
    sys.exit(7)
say(state="ready", versions={"rogue": "1"})
for line in sys.stdin:
    job = json.loads(line)
    what = job["what"]
    open(job["log"], "a").write("at " + what)
    if what == "crash":
        os.abort()
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "orphan":
        subprocess.Popen(["sleep", "600"])
        os.abort()
    if what == "exit":
        sys.exit(5)
    if what == "hang":
        child = subprocess.Popen(["sleep", "600"])
        open(job["log"], "w").write(str(child.pid))
        time.sleep(600)
    if what == "garbage":
        print("Loading model...", flush=True)
    if what == "list":
        print("[1, 2]", flush=True)
    if what == "nested":
        print("[" * 100000, flush=True)
    if what == "flood":
        sys.stdout.write("x" * (3 << 20)); sys.stdout.flush()
    if what == "out of turn":
        say(state="ready", versions={})
    if what == "memory":
        say(state="failed", kind="memory", message="std::bad_alloc")
    if what == "stop":
        say(state="done", facts={})
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "refuse":
        say(state="failed", kind="whatever", message="no")
    say(state="done", facts={"pid": os.getpid()})
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    folder = tmp_path / "rogue"
    folder.mkdir()
    (folder / "__main__.py").write_text(ROGUE)
    settings = {"starts": str(tmp_path / "starts")}
    return Program(name="any", folder=folder, settings=settings, job_timeout_s=3.0, start_timeout_s=10.0)


def order(root: Path, key: str, what: str) -> Order:
    return Order(key=key, message={"what": what}, stage="quantize", log=root / f"{key}.log")


def starts(root: Path) -> int:
    return len((root / "starts").read_text())


@pytest.mark.parametrize(
    ("what", "kind", "words"),
    [
        ("crash", "crash", "SIGABRT"),
        ("orphan", "crash", "SIGABRT"),
        ("kill", "crash", "SIGKILL"),
        ("exit", "crash", "status 5"),
        ("hang", "hang", "took longer than 3 s"),
        ("garbage", "wrong-output", "not JSON"),
        ("list", "wrong-output", "not a JSON object"),
        ("nested", "wrong-output", "not JSON"),
        ("flood", "wrong-output", "a line of more than 1 MiB"),
        ("out of turn", "wrong-output", "out of turn"),
    ],
)
def test_a_lost_child_costs_the_job_that_it_was_at(
    program: Program, tmp_path: Path, what: str, kind: str, words: str
) -> None:
    jobs = [order(tmp_path, "a", "fine"), order(tmp_path, "b", what), order(tmp_path, "c", "fine")]
    replies = {reply.order.key: reply for reply in run_orders(program, jobs)}
    failure = replies["b"].failure
    assert failure is not None and (failure.kind, failure.stage) == (kind, "quantize")
    assert words in failure.message and failure.log_tail
    assert replies["a"].failure is None and replies["c"].failure is None
    assert replies["a"].facts["pid"] != replies["c"].facts["pid"]
    assert starts(tmp_path) == 2
    if what == "hang":
        assert gone(int((tmp_path / "b.log").read_text())), "what a child started ends with it"


@pytest.mark.parametrize(("what", "kind"), [("memory", "memory"), ("refuse", "refused")])
def test_a_job_that_is_refused_keeps_the_child(program: Program, tmp_path: Path, what: str, kind: str) -> None:
    jobs = [order(tmp_path, "a", "fine"), order(tmp_path, "b", "fine")]
    if what == "refuse":
        jobs.reverse()
    replies = list(run_orders(program, jobs))
    assert replies[0].facts["pid"] == replies[1].facts["pid"]
    failed = list(run_orders(program, [order(tmp_path, "z", what)]))
    assert failed[0].failure is not None and failed[0].failure.kind == kind
    assert starts(tmp_path) == 2


@pytest.mark.parametrize(("how", "kind"), [("refused", "refused"), ("exit", "crash"), ("hang", "hang")])
def test_a_program_that_cannot_start_is_tried_twice_only(program: Program, tmp_path: Path, how: str, kind: str) -> None:
    program = dataclasses.replace(program, settings={**program.settings, "start": how}, start_timeout_s=1.0)
    jobs = [order(tmp_path, key, "fine") for key in "abcdef"]
    replies = list(run_orders(program, jobs))
    assert len(replies) == 6
    assert {(r.failure.stage, r.failure.kind) for r in replies if r.failure} == {("load", kind)}
    assert all(r.failure for r in replies)
    if how == "exit":
        assert replies[0].failure is not None and "on the way out" in replies[0].failure.log_tail
    assert starts(tmp_path) == 2


def test_leaving_early_leaves_nothing(program: Program, tmp_path: Path) -> None:
    jobs = [order(tmp_path, "a", "fine"), order(tmp_path, "b", "hang"), order(tmp_path, "c", "fine")]
    replies = run_orders(program, jobs)
    pid = next(iter(replies)).facts["pid"]
    replies.close()  # type: ignore[attr-defined]
    assert not runs(pid)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("any_")]


def test_a_child_that_ended_by_itself_is_closed_before_the_next_starts(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_children: list[Brief] = []

    class Brief:
        """A child process that ends after its first job."""

        alive, versions = False, dict[str, str]()

        def __init__(self, *_: object) -> None:
            assert not open_children, "its pipes would stay open"
            open_children.append(self)

        def ready(self, timeout_s: float) -> dict[str, str]:
            return {}

        def ask(self, *_: object, **__: object) -> dict[str, str]:
            return {}

        def kill(self) -> None:
            if self in open_children:
                open_children.remove(self)

    monkeypatch.setattr(children, "ChildProcess", Brief)
    replies = list(run_orders(program, [order(tmp_path, key, "fine") for key in "abc"]))
    assert [reply.failure for reply in replies] == [None] * 3 and not open_children


def test_workers_share_the_jobs(program: Program, tmp_path: Path) -> None:
    program = dataclasses.replace(program, workers=3)
    whats = ["fine", "crash", "fine", "garbage"] * 5
    jobs = [order(tmp_path, f"k{number}", what) for number, what in enumerate(whats)]
    replies = {reply.order.key: reply for reply in run_orders(program, jobs)}
    assert len(replies) == 20
    for number, what in enumerate(whats):
        assert (replies[f"k{number}"].failure is None) == (what == "fine")


def test_an_interpreter_that_is_not_there_is_told(program: Program, tmp_path: Path) -> None:
    gone = dataclasses.replace(program, python=str(tmp_path / "python"))
    with pytest.raises(RuntimeMissingError, match="cannot be started"):
        list(run_orders(gone, [order(tmp_path, "a", "fine")]))


def test_children_see_little_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "child"
    folder.mkdir()
    (folder / "__main__.py").write_text(
        "import json, os, sys\nsys.stdin.readline()\n"
        "print(json.dumps({'state': 'ready', 'versions': {}}), flush=True)\n"
        "sys.stdin.readline()\nprint(json.dumps({'state': 'done', 'facts': dict(os.environ)}), flush=True)\n"
    )
    monkeypatch.setenv("SECRET_TOKEN", "s")
    (reply,) = run_orders(Program(name="any", folder=folder, settings={}), [order(tmp_path, "a", "fine")])
    assert "SECRET_TOKEN" not in reply.facts
    assert reply.facts["OMP_NUM_THREADS"] == "1" and reply.facts["ORT_DISABLE_TELEMETRY"] == "1"
    assert reply.facts["HOME"] != os.environ["HOME"] and not Path(reply.facts["HOME"]).exists()


def test_a_child_that_does_not_read_is_ended_in_its_time(program: Program, tmp_path: Path) -> None:
    """A job may be longer than what a pipe holds."""
    stopped = dataclasses.replace(program, job_timeout_s=1.0)
    jobs = [Order(key=k, message={"what": w}, stage="s", log=tmp_path / k) for k, w in (("a", "stop"), ("b", "fine"))]
    jobs.insert(1, Order(key="c", message={"what": "x" * (1 << 20)}, stage="s", log=tmp_path / "c"))
    replies = {reply.order.key: reply for reply in run_orders(stopped, jobs)}
    assert replies["a"].failure is None and replies["b"].failure is None
    assert replies["c"].failure is not None and replies["c"].failure.kind == "hang"
