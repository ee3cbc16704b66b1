"""Record files and the campaigns that they are written from: one writer at a time, whole at any end, never mixed."""

from __future__ import annotations

import fcntl
import json
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.tune.tunekit import hand_made

from gnomon.core.overlay.records import UNTUNED, TuningRecords, TuningTrial
from gnomon.core.sample import Failure
from gnomon.core.stats import median
from gnomon.errors import ProblemError, RecordError, UsageError
from gnomon.formats.tuning.records import read_tuning_records, trial_line
from gnomon.jobs.tune.campaign import TrialCampaign
from gnomon.jobs.tune.records import RecordFile, best_trial, made_trial, pooled_trials, write_records
from gnomon.store.base import RunQuery
from gnomon.store.sqlite import SqliteStore
from gnomon.system import locks

BROKEN = Failure(stage="build", kind="hang", transient=False, message="took longer than 20 s")
LOST = Failure(stage="run", kind="vanished", transient=True, message="gone")
WRONG = Failure(stage="check", kind="wrong-output", transient=False, message="outputs differ")
RECORDS = hand_made("phone", {"conv": {None: (3.0,), 1: (2.0, 1.0), 2: BROKEN}, "dense": {None: (1.0,), 1: (0.5,)}})
EMPTY = replace(RECORDS, layers=(), trials=())
MANY = [
    replace(made_trial("70", [[n % 30], []], times_s=(1 / 3 / n,)), at_s=float(n)) for n in range(1, 41)
]  # ten of them again
KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from gnomon.formats.tuning.records import read_tuning_records
from gnomon.jobs.tune.campaign import TrialCampaign

records, count = read_tuning_records(Path(sys.argv[1]).read_bytes()), int(sys.argv[3])
campaign = TrialCampaign(Path(sys.argv[2]), replace(records, layers=(), trials=()), "tune")
campaign.add_layers(records.layers)
for trial in records.trials[:count]:
    campaign.add(trial)
Path.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
for trial in records.trials[count : int(sys.argv[4])]:
    campaign.add(trial)
os.kill(os.getpid(), signal.SIGKILL)
"""


def campaign(path: Path, wanted: TuningRecords = EMPTY, *, fresh: bool = False) -> TrialCampaign:
    return TrialCampaign(path, wanted, "tune", fresh=fresh)


def filled(path: Path, count: int = 4) -> Path:
    with campaign(path) as trials:
        trials.add_layers(RECORDS.layers)
        for trial in RECORDS.trials[:count]:
            trials.add(trial)
    return path


def in_any_order(trials: Iterable[TuningTrial]) -> set[str]:
    return set(map(repr, trials))


def test_the_file_has_few_trials_at_once_and_most_of_many(tmp_path: Path) -> None:
    written = []
    with campaign(tmp_path / "a.json") as trials:
        trials.add_layers(RECORDS.layers)
        for number, trial in enumerate(MANY, 1):
            trials.add(trial)
            written.append(len(read_tuning_records(trials.path.read_bytes()).trials))
            assert number - written[-1] <= number / 16
    assert written[:15] == list(range(1, 16)) and len(set(written)) < 32
    assert read_tuning_records((tmp_path / "a.json").read_bytes()).trials == tuple(MANY)


@pytest.mark.parametrize(("count", "more", "there"), [(0, 0, 0), (16, 16, 15), (16, 17, 15), (36, 37, 34)])
def test_kill_9_costs_no_trial_and_no_bit(count: int, more: int, there: int, tmp_path: Path) -> None:
    """Killed behind so many trials, or with more of them as the file is put in its place: so many are `there`."""
    whole, path = tmp_path / "whole.json", tmp_path / "deep" / "er" / "a.json"
    with campaign(whole) as trials:
        trials.add_layers(RECORDS.layers[:1])
        for trial in MANY:
            trials.add(trial)
    command = [sys.executable, "-c", KILLED, str(whole), str(path), str(count), str(more)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    kept = path.read_bytes()
    assert whole.read_bytes().startswith(kept)
    assert len(read_tuning_records(kept).trials) == there
    with campaign(path) as trials:
        assert list(trials.trials("70")) == MANY[:more]
        trials.add_layers(RECORDS.layers[:1])
        for trial in MANY[more:]:
            trials.add(trial)
        content = trials.content()
    assert path.read_bytes() == whole.read_bytes()
    assert content == read_tuning_records(whole.read_bytes())


def test_a_file_that_was_cut_off_or_is_gone_is_written_again(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.json", 5)
    whole = path.read_bytes()
    for end in range(0, len(whole), 70):
        path.write_bytes(whole[:end])
        with campaign(path) as trials:
            assert trials.count == 5
        assert path.read_bytes() == whole
    path.unlink()
    with campaign(path) as trials:
        assert trials.count == 5
    assert path.read_bytes() == whole


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_file_from_elsewhere_cut_off_anywhere_is_gone_on_with(version: int, tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole.json").read_bytes().replace(b'"version": 3', b'"version": %d' % version)
    for end in range(0, len(whole), 70):
        path = tmp_path / f"{end}.json"
        path.write_bytes(whole[:end])
        complete = whole[:end].count(b"\n")
        with campaign(path) as trials:
            # A last line may be whole but for the end of the line.
            assert trials.count in (max(0, complete - 3), max(0, complete - 2))
            missing = RECORDS.trials[trials.count :]
            trials.add_layers(RECORDS.layers)
            for trial in missing:
                trials.add(trial)
        assert b'"version": 3' in path.read_bytes()
        assert in_any_order(read_tuning_records(path.read_bytes()).trials) == in_any_order(RECORDS.trials)


def test_another_host_of_the_same_results_database_takes_up_no_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path / "a.json")
    path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "another")
        with campaign(path) as trials:
            assert trials.count == 0
    with campaign(path) as trials:
        assert trials.count == 4


def test_a_layer_that_comes_later_stands_before_all_trials(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for layer in RECORDS.layers:
        with campaign(path) as trials:
            trials.add_layers([layer])
            for trial in RECORDS.trials:
                if trial.layer == layer.layer:
                    trials.add(trial)
            before = path.read_bytes()
    with campaign(path) as trials:
        trials.add(MANY[0])
    assert path.read_bytes().startswith(before)
    assert read_tuning_records(before) == RECORDS


def test_what_a_file_and_its_campaign_have_more_is_added_to_the_other(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.json", 4)
    lines = path.read_text().splitlines()
    again = replace(RECORDS.trials[1], times_s=(0.1, 1 / 3), at_s=5.0)
    del lines[-1]
    path.write_text("\n".join([*lines, json.dumps(trial_line(again, repeated=True))]))
    with campaign(path) as trials:
        assert trials.count == 5
        assert in_any_order(trials.content().trials) == in_any_order([*RECORDS.trials[:4], again])
    assert read_tuning_records(path.read_bytes()).trials == (*RECORDS.trials[:4], again)
    with campaign(path) as trials:
        assert trials.count == 5


def test_damage_is_told_and_nothing_is_written_until_the_file_is_removed(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.json")
    with campaign(path) as trials:
        count = trials.count
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], "}\n", *lines[3:]]))
    before = path.read_bytes()
    with pytest.raises(ProblemError, match=r"a\.json: .*line 4") as damaged:
        campaign(path)
    assert "remove the file" in damaged.value.hint and path.read_bytes() == before
    path.unlink()
    with campaign(path) as trials:
        assert trials.count == count > 0
    with campaign(path, fresh=True) as trials:
        assert trials.count == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"device": replace(RECORDS.device, key="tablet")}, "the device phone, not tablet"),
        ({"device": replace(RECORDS.device, target={"kind": "llvm"})}, "the target"),
        ({"device": replace(RECORDS.device, threads=7)}, "the number of threads 0, not 7"),
        ({"found_on": "tablet"}, "configurations found on phone, not tablet"),
        ({"model": replace(RECORDS.model, sha256="cd" * 32)}, "the model"),
        ({"model": replace(RECORDS.model, dtype="float16")}, "the data type float32, not float16"),
        ({"versions": {"apache-tvm": "9"}}, "the versions"),
        ({"tuner": "ansor"}, "the tuner"),
    ],
)
def test_records_of_something_else_are_refused_in_words(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    path = filled(tmp_path / "a.json")
    before = path.read_bytes()
    with pytest.raises(UsageError, match=told) as raised:
        RecordFile(path, replace(EMPTY, **change))
    assert "--fresh" in raised.value.hint
    assert path.read_bytes() == before
    with campaign(path) as trials:  # the lock is not kept
        assert trials.count == 4


def test_afresh_the_old_ones_are_put_aside(tmp_path: Path) -> None:
    path = filled(tmp_path / "a.b.json")
    before = path.read_bytes()
    for number in (1, 2):
        with campaign(path, fresh=True) as trials:
            assert trials.count == 0
            trials.add_layers(RECORDS.layers)
        assert (tmp_path / "a.b.json.old1").read_bytes() == before
        assert (tmp_path / f"a.b.json.old{number}").exists()
    with campaign(tmp_path / "new.json", fresh=True):
        pass
    assert not list(tmp_path.glob("new*old*"))


def test_two_at_once_are_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_home: Path) -> None:
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.1)
    path = filled(tmp_path / "a.json")
    with campaign(path) as first:
        for fresh in (False, True):
            with pytest.raises(RecordError, match="another gnomon process is writing") as raised:
                campaign(path, fresh=fresh)
            assert "Wait for the other process" in raised.value.hint
            first.add(RECORDS.trials[4])  # the file is another one now, and as locked
    assert sorted(tmp_path.iterdir()) == [path, own_home]
    with campaign(path) as again:
        assert again.count == 6


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
    before = path.read_bytes()
    file = RecordFile(path, EMPTY)
    assert file.records is None
    file.write(["{}"])
    file.close()
    assert (tmp_path / "aside.json").read_bytes() == before
    assert path.read_text() == "{}\n"


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
    with campaign(path) as trials:
        limited(path.stat().st_size + 20)
        with pytest.raises(RecordError):
            trials.add(RECORDS.trials[3])
        limited(None)
        assert trials.count == 3
        for trial in RECORDS.trials[3:]:
            trials.add(trial)  # there is room again
    assert read_tuning_records(path.read_bytes()).trials == RECORDS.trials


def test_a_link_stays_one_and_afresh_it_is_put_aside_itself(tmp_path: Path) -> None:
    target, path = filled(tmp_path / "target.json"), tmp_path / "a.json"
    path.symlink_to(target)
    with campaign(path) as trials:
        trials.add(RECORDS.trials[4])
    before = target.read_bytes()
    assert path.is_symlink() and len(read_tuning_records(before).trials) == 5
    with campaign(path, fresh=True):
        pass
    assert not path.is_symlink() and target.read_bytes() == before


def test_a_disk_that_is_full_for_the_file_alone(tmp_path: Path, limited: Callable[[int | None], None]) -> None:
    path = filled(tmp_path / "a.json")
    before = path.read_bytes()
    file = RecordFile(path, EMPTY)
    limited(40)
    with pytest.raises(RecordError, match="cannot be written"):
        file.write(["x" * 50])
    limited(None)
    assert path.read_bytes() == before and not list(tmp_path.glob(".*"))
    file.close()


def test_a_set_that_is_written_takes_the_place_of_the_last(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.json"
    for _ in range(3):
        write_records(path, RECORDS)
    assert read_tuning_records(path.read_bytes()) == RECORDS
    assert list(path.parent.iterdir()) == [path]


def test_what_is_no_number_is_a_failure_in_the_file_and_in_the_results_database(tmp_path: Path, own_home: Path) -> None:
    with campaign(tmp_path / "a.json") as trials:
        trials.add_layers(RECORDS.layers)
        trials.add(made_trial("70", [[8], []], times_s=(float("inf"), 1.0), error=float("nan")))
        trials.add(made_trial("70", [[9], []], times_s=(1.0,), error=float("nan")))
    for line in trials.path.read_text().splitlines():
        json.loads(line, parse_constant=lambda text: pytest.fail(text))
    with SqliteStore.open(own_home / "record.sqlite") as store:
        failures = [run.failure for run in store.query(RunQuery(campaign=trials.id))]
    assert failures == [trial.failure for trial in read_tuning_records(trials.path.read_bytes()).trials]
    assert None not in failures and len(failures) == 2


TRIALS = st.lists(
    st.builds(
        lambda number, facts: made_trial("70", None if number is None else [[number], []], **facts),
        st.none() | st.integers(0, 3),
        st.one_of(
            st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=4).map(lambda times: {"times_s": tuple(times)}),
            st.floats(1e-9, 1.0).map(lambda time_s: {"times_s": (2.0,), "cpu_s": (time_s,)}),
            st.sampled_from([BROKEN, LOST, WRONG]).map(lambda failure: {"failure": failure}),
        ),
    ),
    max_size=14,
)


@given(TRIALS)
def test_pooling_against_a_plain_reading(trials: list[TuningTrial]) -> None:
    pooled = pooled_trials(trials)
    by_cpu = all(t.cpu_s for t in trials if t.failure is None)
    assert list(pooled) == list(dict.fromkeys(t.configuration for t in trials))
    for name, one in pooled.items():
        own = [t for t in trials if t.configuration == name]
        samples = [time for t in own if t.failure is None for time in (t.cpu_s if by_cpu else t.times_s)]
        if any(t.failure == WRONG for t in own):
            assert one.failure == WRONG  # wrong once is wrong
        elif samples:
            assert one.failure is None
            assert sorted(one.samples_s) == sorted(samples)
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
