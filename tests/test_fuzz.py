"""The attack on all readers: its inputs are what they are said to be, and what it looks for is found."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzz import run
from fuzz.mutate import MOST_BYTES, mutated
from fuzz.run import Attack
from fuzz.targets import TARGETS, Target

from gnomon.errors import ProblemError, RuntimeMissingError

SEEDS = (b'{"a": [1, "b"], "c": null}', b"x,y\n1,2\n", b"")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
def test_what_is_damaged_is_read_as_it_is(name: str) -> None:
    """Otherwise a reader would be attacked with what it refuses at its first letter."""
    target = TARGETS[name]
    try:
        seeds = target.made()
    except (ImportError, RuntimeMissingError) as error:
        pytest.skip(f"not installed: {error}")
    for seed in seeds:
        target.read(seed)


def test_a_seed_gives_the_same_inputs_again_and_they_differ() -> None:
    made = [[mutated(Random(number), SEEDS) for number in range(500)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 300
    assert max(map(len, made[0])) <= MOST_BYTES


def attacked(
    read: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, count: int | None = 60, seconds: float = 600
) -> run.Tally:
    target = Target(name="made up", seeds=lambda: [b"a", b"b", b"c"], read=read)
    monkeypatch.setitem(TARGETS, "made up", target)
    monkeypatch.setattr(Target, "made", lambda self: tuple(self.seeds()))
    return Attack(seed=0, folder=folder).run(target, seconds=seconds, count=count)


def test_all_seeds_are_read_however_short_the_time_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = attacked(lambda data: None, tmp_path, monkeypatch, count=None, seconds=0)
    assert (tally.accepted, tally.findings) == (3, {})


def test_what_is_accepted_and_refused_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: bytes) -> None:
        if data != b"a":
            raise ProblemError("no", hint="none")

    tally = attacked(read, tmp_path, monkeypatch)
    assert tally.accepted > 0 and tally.accepted + tally.refused == 60 and not tally.findings
    assert list(tmp_path.iterdir()) == []


def raises(data: bytes) -> None:
    json.loads(data)


def asks_for_too_much(data: bytes) -> None:
    try:
        bytes(4 << 30)
    except MemoryError as error:
        raise ProblemError("refused", hint="none") from error


def dies(data: bytes) -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(data: bytes) -> None:
    while True:
        pass


def waits(data: bytes) -> None:
    time.sleep(600)


@pytest.mark.parametrize(
    ("read", "wanted"),
    [
        (raises, "JSONDecodeError"),
        (asks_for_too_much, "MiB were asked for"),
        (dies, "SIGSEGV"),
        (hangs, "more than 1 s"),
        (waits, "hung"),
    ],
)
def test_what_may_not_be_is_found_and_can_be_repeated(
    read: Any, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LIMIT_S", 1)
    if read is waits:
        monkeypatch.setattr(run, "_HANGS_S", 2)
    tally = attacked(read, tmp_path, monkeypatch, count=1)
    found = [(told, how) for told, how in tally.findings.items() if wanted in told]
    assert found
    saved = Path(found[0][1].split(" --input ")[1])
    assert saved.read_bytes() == b"a"
