"""The driver of onert_run: what it is called with, and what is read of what it prints, good or bad."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.devices.program import Order, ProgramRefused, Shell, Taken
from gnomon.runtimes.onert import OnertProgram
from gnomon.system.process import Completed
from gnomon.wire import ProbeAnswer, RuntimeModel

RULE = "=" * 35
PRINTED = f"""Model Filename m.circle
... warmup 1 takes 2.5 ms
... run 1 takes 1.25 ms
... run 2 takes 0.75 ms
out.0 is generated.
{RULE}
MODEL_LOAD   takes 0.500 ms
PREPARE      takes 3.250 ms
EXECUTE      takes 1.000 ms
- MEAN     :  1.000 ms
- MAX      :  1.250 ms
- MIN      :  0.750 ms
- GEOMEAN  :  0.968 ms
{RULE}
Used Peak Memory : 900 kb
- HWM after run  : 1000 kb
- HWM before init: 100 kb
"""
FOUND: ProbeAnswer = {
    "program": "/opt/one/bin/onert_run",
    "version": "1.30.0",
    "backends": ["cpu"],
    "tells_memory": True,
}


def shell(stdout: str, returncode: int = 0) -> Shell:
    def run(script: str) -> Completed:
        return Completed(returncode=returncode, signal=None, stdout=stdout, stderr="", timed_out=False, duration_s=0.0)

    return run


def read(printed: str) -> Taken:
    segment: RuntimeModel = {"runtime": "onert", "model": "m.circle", "options": {}}
    return OnertProgram().read(segment, shell(printed)(""), {})


def test_what_it_prints_is_read() -> None:
    taken = read(PRINTED)
    assert taken.load_ns == 3_750_000
    assert taken.warm_ns == (2_500_000,)
    assert taken.calls_ns == (1_250_000, 750_000)
    assert taken.mean_ns == 1_000_000
    assert taken.peak_rss_bytes == 1000 * 1024
    assert taken.operators == ()


def test_without_lines_of_runs_there_is_the_mean() -> None:
    quiet = "\n".join(line for line in PRINTED.splitlines() if not line.startswith("..."))
    taken = read(quiet)
    assert (taken.calls_ns, taken.mean_ns) == ((), 1_000_000)


@given(st.integers(1, 10**9))
def test_a_run_is_whole_microseconds(us: int) -> None:
    """As C++ streams print them: six digits, `us` / 1000 milliseconds."""
    line = f"... run 1 takes {us / 1e3:.6g} ms"
    (taken,) = read(re.sub(r"\.\.\. run [12].*\n", "", PRINTED) + line).calls_ns
    assert taken == pytest.approx(us * 1000, rel=5e-6)


def test_a_command_has_all_in_the_environment() -> None:
    segment: Any = {
        "model": "/there/m.circle",
        "options": {"threads": 2, "settings": {"BACKENDS": "cpu;ruy", "OP_BACKEND_MAP": "0=ruy;"}},
    }
    order = Order(runs=7, warm_runs=3, inputs="/in", outputs="out", trace="t")
    command = OnertProgram().command(FOUND, segment, order)
    assert command.argv[0] == FOUND["program"]
    assert command.argv[-1] == "/there/m.circle"
    words = " ".join(command.argv)
    for part in ("-w 3", "-r 7", "--load:raw /in", "--dump:raw out", "--mem_poll"):
        assert f" {part} " in words
    assert command.environment == {
        "NUM_THREADS": "2",
        "BACKENDS": "cpu;ruy",
        "OP_BACKEND_MAP": "0=ruy;",
        "TRACING_MODE": "1",
        "WORKSPACE_DIR": "t",
    }
    assert command.traces == ("trace.chrome.json",)
    plain = OnertProgram().command(FOUND, {"runtime": "onert", "model": "m", "options": {}}, Order(runs=1, warm_runs=0))
    assert not {"--mem_poll", "--load:raw", "--dump:raw"} & set(plain.argv)
    assert plain.environment == {"NUM_THREADS": "1"}


def test_a_probe_finds_the_backends_beside_the_program() -> None:
    told = (
        "program /opt/one/bin/onert_run\nversion onert_run (nnfw runtime: v1.29.0)\n"
        "help --num_runs --load:raw --mem_poll\n"
        "library /opt/one/bin/../lib/nnfw/backend/libbackend_ruy.so\nlibrary /opt/libbackend_cpu.so\n"
    )
    found = OnertProgram().probe(shell(told))
    assert (found["version"], found["backends"], found["tells_memory"]) == ("1.29.0", ["cpu", "ruy"], True)
    bare = OnertProgram().probe(shell("program /p\nversion onert_run (nnfw runtime: v1.2.0)\n"))
    assert "cpu" in bare["backends"]
    assert not bare["tells_memory"]
    older = "program /p\nversion onert_run (nnfw runtime: v1.2.0)\nhelp  -m [ --mem_poll ] arg (=0)\n"
    assert not OnertProgram().probe(shell(older))["tells_memory"]


@pytest.mark.parametrize(
    ("printed", "status", "told"),
    [
        ("", 3, "no onert_run"),
        ("program /p\nversion /p: cannot open libonert.so\n", 0, "does not start: it says /p: cannot open"),
        ("program /p\nversion onert_run (nnfw runtime: v1.2.0)\nhelp --num_runs\n", 0, "too old"),
    ],
)
def test_a_probe_says_what_is_wrong(printed: str, status: int, told: str) -> None:
    with pytest.raises(ProgramRefused, match=told):
        OnertProgram().probe(shell(printed, status))


@given(
    takes=st.sets(st.integers(0, 9)),
    kinds=st.lists(st.integers(0, 3), min_size=1, max_size=10),
)
def test_what_a_backend_takes_is_found(takes: set[int], kinds: list[int]) -> None:
    """A program that refuses exactly the operators that a backend does not take: they are the ones left out."""
    types: dict[str, list[int]] = {}
    for index, kind in enumerate(kinds):
        types.setdefault(f"T{kind}", []).append(index)

    def attempt(options: Mapping[str, Any]) -> str:
        entries = [e for e in options["settings"].get("OP_BACKEND_MAP", "").split(";") if e]
        placed = {int(e.partition("=")[0]): e.partition("=")[2] for e in entries}
        return "" if all(i in takes for i, b in placed.items() if b == "ruy") else "wrong shape"

    options = {"backend": "ruy", "default": "cpu", "types": types}
    assert OnertProgram().supports(attempt, options)["operators"] == sorted(takes & set(range(len(kinds))))
    default = {"backend": "cpu", "default": "cpu", "types": types}
    assert OnertProgram().supports(attempt, default) == {"operators": list(range(len(kinds))), "reason": ""}
    lacking = OnertProgram().supports(lambda _: "NYI for operation 'X'", default)
    assert lacking == {"operators": [], "reason": "NYI for operation 'X'"}
    assert json.loads(json.dumps(lacking)) == lacking
