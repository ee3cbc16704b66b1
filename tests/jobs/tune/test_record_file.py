"""Record files: appended to by one at a time, never damaged by how their writer ended, never mixed with others."""

from __future__ import annotations

import fcntl
import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.tune.tunekit import hand_made

from gnomon.core.overlay.records import UNTUNED, TuningTrial
from gnomon.core.sample import Failure
from gnomon.core.stats import median
from gnomon.errors import ProblemError, RecordError, UsageError
from gnomon.formats.tuning.records import read_tuning_records
from gnomon.jobs.tune.records import RecordFile, best_trial, made_trial, pooled_trials, write_records
from gnomon.system import locks

BROKEN = Failure(stage="build", kind="hang", transient=False, message="took longer than 20 s")
LOST = Failure(stage="run", kind="vanished", transient=True, message="gone")
WRONG = Failure(stage="check", kind="wrong-output", transient=False, message="outputs differ")
RECORDS = hand_made("phone", {"conv": {None: (3.0,), 1: (2.0, 1.0), 2: BROKEN}, "dense": {None: (1.0,), 1: (0.5,)}})
EMPTY = replace(RECORDS, layers=(), trials=())


def filled(path: Path, count: int = 4) -> Path:
    with RecordFile(path, EMPTY) as file:
        file.add_layers(RECORDS.layers)
        for trial in RECORDS.trials[:count]:
            file.add([trial])
    return path


def test_what_is_added_is_read_back_and_gone_on_with(tmp_path: Path) -> None:
    path = filled(tmp_path / "deep" / "er" / "a.json", 2)
    with RecordFile(path, EMPTY) as file:
        assert file.count == 2
        assert file.records.trials == RECORDS.trials[:2]
        file.add_layers(RECORDS.layers)  # not written again
        file.add(RECORDS.trials[2:])
        assert file.count == 5
        content = file.content()
    assert read_tuning_records(path.read_bytes()) == RECORDS
    assert (content.layers, content.device) == (RECORDS.layers, RECORDS.device)
    assert set(map(repr, content.trials)) == set(map(repr, RECORDS.trials))
    assert len(path.read_text().splitlines()) == 1 + 2 + 5


def test_each_trial_is_in_the_file_before_add_returns(tmp_path: Path) -> None:
    with RecordFile(tmp_path / "a.json", EMPTY) as file:
        file.add_layers(RECORDS.layers)
        for number, trial in enumerate(RECORDS.trials, 1):
            file.add([trial])
            assert len(read_tuning_records(file.path.read_bytes()).trials) == number


def test_cut_off_anywhere_it_goes_on(tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole.json").read_bytes()
    path = tmp_path / "a.json"
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        complete = whole[:end].count(b"\n")
        with RecordFile(path, EMPTY) as file:
            # A last line may be whole but for the end of the line.
            assert file.count in (max(0, complete - 3), max(0, complete - 2))
            missing = RECORDS.trials[file.count :]
            file.add_layers(RECORDS.layers)
            file.add(missing)
        assert set(map(repr, read_tuning_records(path.read_bytes()).trials)) == set(map(repr, RECORDS.trials))


def test_damage_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.json")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], "}\n", *lines[3:]]))
    before = path.read_bytes()
    with pytest.raises(ProblemError, match="line 4"):
        RecordFile(path, EMPTY)
    assert path.read_bytes() == before
    with RecordFile(path, EMPTY, fresh=True) as file:
        assert file.count == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"device": replace(RECORDS.device, key="tablet")}, "of the device phone, and not tablet"),
        ({"device": replace(RECORDS.device, target={"kind": "llvm"})}, "for the target"),
        ({"device": replace(RECORDS.device, threads=7)}, "for so many threads: 0, and not 7"),
        ({"found_on": "tablet"}, "found on phone, and not tablet"),
        ({"model": replace(RECORDS.model, sha256="cd" * 32)}, "of the model"),
        ({"model": replace(RECORDS.model, dtype="float16")}, "of the data type float32, and not float16"),
        ({"versions": {"apache-tvm": "9"}}, "of the versions"),
        ({"tuner": "ansor"}, "of the tuner"),
    ],
)
def test_records_of_something_else_are_refused_in_words(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    path = filled(tmp_path / "a.json")
    before = path.read_bytes()
    with pytest.raises(UsageError, match=told) as raised:
        RecordFile(path, replace(EMPTY, **change))
    assert "--fresh" in raised.value.hint
    assert path.read_bytes() == before
    with RecordFile(path, EMPTY) as file:  # the lock is not kept
        assert file.count == 4


def test_afresh_the_old_ones_are_put_aside(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.b.json")
    before = path.read_bytes()
    for number in (1, 2):
        with RecordFile(path, EMPTY, fresh=True) as file:
            assert file.count == 0
            file.add_layers(RECORDS.layers)
        assert (tmp_path / "a.b.json.old1").read_bytes() == before
        assert (tmp_path / f"a.b.json.old{number}").exists()
    with RecordFile(tmp_path / "new.json", EMPTY, fresh=True):
        pass
    assert not list(tmp_path.glob("new*old*"))


def test_two_at_once_are_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.1)
    path = filled(tmp_path / "a.json")
    with RecordFile(path, EMPTY) as first:
        for fresh in (False, True):
            with pytest.raises(RecordError, match="another gnomon writes") as raised:
                RecordFile(path, EMPTY, fresh=fresh)
            assert "goes on" in raised.value.hint
        first.add(RECORDS.trials[4:])
    assert list(tmp_path.iterdir()) == [path]
    with RecordFile(path, EMPTY) as again:
        assert again.count == 5


def test_the_lock_of_another_process_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "a.json")
    script = "import fcntl, sys; f = open(sys.argv[1], 'ab'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        monkeypatch.setattr(locks, "_PATIENCE_S", 0.0)
        with pytest.raises(RecordError, match="another gnomon"):
            RecordFile(path, EMPTY)
        other.kill()
    monkeypatch.setattr(locks, "_PATIENCE_S", 2.0)
    with RecordFile(path, EMPTY) as file:
        assert file.count == 4


def test_a_file_that_is_put_aside_while_one_waits_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path / "a.json")
    moved: list[Path] = []
    real = fcntl.flock

    def flock(handle: int, kind: int) -> None:
        if not moved:
            moved.append(path.rename(tmp_path / "aside.json"))
        real(handle, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    with RecordFile(path, EMPTY) as file:
        assert file.count == 0
        file.add_layers(RECORDS.layers)
    assert len((tmp_path / "aside.json").read_text().splitlines()) == 7
    assert len(path.read_text().splitlines()) == 3


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "a.json", tmp_path):
        with pytest.raises(RecordError, match="cannot be written") as raised:
            RecordFile(path, EMPTY)
        assert "--out" in raised.value.hint
        with pytest.raises((RecordError, UsageError), match="cannot be written"):
            write_records(path / "b.json" if path.is_file() else path, RECORDS)


@pytest.fixture
def limited() -> Any:
    """Files cannot grow beyond so many bytes: what a full disk does, for anybody."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limit(size: int | None) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, before if size is None else (size, before[1]))

    yield limit
    limit(None)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk(tmp_path: Path, limited: Callable[[int | None], None]) -> None:
    path = filled(tmp_path / "a.json", 3)
    with RecordFile(path, EMPTY) as file:
        limited(path.stat().st_size + 20)
        with pytest.raises(RecordError, match="cannot be written"):
            file.add(RECORDS.trials[3:])
        limited(None)
        assert file.count == 3
        file.add(RECORDS.trials[3:])  # there is room again
    assert read_tuning_records(path.read_bytes()).trials == RECORDS.trials


@pytest.mark.parametrize("room", [0, 1, 40])
def test_a_disk_that_is_full_from_the_start(room: int, tmp_path: Path, limited: Callable[[int | None], None]) -> None:
    path = tmp_path / "a.json"
    limited(room)
    with pytest.raises(RecordError, match="cannot be written"):
        RecordFile(path, EMPTY)
    limited(None)
    with RecordFile(path, EMPTY) as file:
        file.add_layers(RECORDS.layers)
        file.add(RECORDS.trials)
    assert read_tuning_records(path.read_bytes()) == RECORDS


def test_a_set_that_is_written_takes_the_place_of_the_last(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.json"
    for _ in range(3):
        write_records(path, RECORDS)
    assert read_tuning_records(path.read_bytes()) == RECORDS
    assert list(path.parent.iterdir()) == [path]


def test_lines_are_strict_json(tmp_path: Path) -> None:
    bad = made_trial("70", [[9], []], times_s=(float("inf"), 1.0), error=float("nan"))
    with RecordFile(tmp_path / "a.json", EMPTY) as file:
        file.add_layers(RECORDS.layers)
        file.add([bad])
    for line in file.path.read_text().splitlines():
        json.loads(line, parse_constant=lambda text: pytest.fail(text))
    (trial,) = read_tuning_records(file.path.read_bytes()).trials
    assert trial.failure is not None


TRIALS = st.lists(
    st.builds(
        lambda number, facts: made_trial("70", None if number is None else [[number], []], **facts),
        st.none() | st.integers(0, 3),
        st.one_of(
            st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=4).map(lambda times: {"times_s": tuple(times)}),
            st.sampled_from([BROKEN, LOST, WRONG]).map(lambda failure: {"failure": failure}),
        ),
    ),
    max_size=14,
)


@given(TRIALS)
def test_pooling_against_a_plain_reading(trials: list[TuningTrial]) -> None:
    pooled = pooled_trials(trials)
    assert list(pooled) == list(dict.fromkeys(t.configuration for t in trials))
    for name, one in pooled.items():
        own = [t for t in trials if t.configuration == name]
        samples = [time for t in own if t.failure is None for time in t.times_s]
        if any(t.failure == WRONG for t in own):
            assert one.failure == WRONG  # wrong once is wrong
        elif samples:
            assert one.failure is None
            assert sorted(one.times_s) == sorted(samples)
            assert one.time_s == median(samples)
        else:
            assert one.failure is not None
        assert one.trace == own[0].trace


@given(TRIALS)
def test_the_best_against_a_plain_reading(trials: list[TuningTrial]) -> None:
    timed = {n: t.time_s for n, t in pooled_trials(trials).items() if n != UNTUNED and t.time_s is not None}
    best = best_trial(trials)
    assert (best is None) == (not timed)
    if best is not None:
        assert timed[best.configuration] == min(timed.values())


@given(TRIALS)
def test_pooling_twice_changes_nothing(trials: list[TuningTrial]) -> None:
    once = pooled_trials(trials)
    assert pooled_trials(once.values()) == once
