"""Ferule's sets of files through the command line: what each log is of is right, or an error asks; never is it guessed.

The oracle knows who measured what, since it made the files, and works out the choice by itself.

docs/jobs/tune.md tells of 2,000 sets: 500 each of own logs, pairs, one-sided ones, and three devices x, y and x_y, of
which half are asked about; names with underscores; searches alike, apart, or by chance alike; times of day copied, new
or none. An own log whose configurations and times are wholly a part of another's cannot be told from a collected one,
and is read as a pair; the sets hold none such. Where the own logs of x_y and of y are alike, either name counts as
right.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.cli.main import run

TARGET = "llvm -keys=arm_cpu,cpu -mcpu=cortex-a72 -mtriple=aarch64-linux-android"
LAYERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A file: which device was measured, who found what, and the numbers of the configurations with times of day.

    `other` is what else the device could be called: then it is read as a collected one.
    """

    device: str
    host: str
    trials: Mapping[int, float]
    other: str = ""

    @property
    def own(self) -> bool:
        return self.device == self.host and not self.other

    @property
    def front(self) -> str:
        return self.device if self.device == self.host else f"{self.device}_{self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """A set of files, written by one tuner; `seed` makes the times."""

    logs: tuple[Log, ...]
    tuner: str
    seed: int

    def time_s(self, device: str, layer: int, number: int) -> float:
        return random.Random(f"{self.seed} {device} {layer} {number}").uniform(1e-3, 9e-3)

    def write(self, folder: Path) -> dict[str, Log]:
        """Own logs in one folder, collected ones in another, as Ferule has them: two may have one name."""
        paths = {}
        for log in self.logs:
            place = folder / ("configs" if log.own else "common")
            place.mkdir(exist_ok=True)
            path = place / f"{log.front}.mobilenet_v1.float32.{self.tuner}.json"
            lines = [
                json.dumps(self._line(layer, number, self.time_s(log.device, layer, number), at_s))
                for layer in range(LAYERS)
                for number, at_s in log.trials.items()
            ]
            path.write_text("\n".join(lines) + "\n")
            paths[str(path)] = log
        return paths

    def _line(self, layer: int, number: int, time_s: float, at_s: float) -> dict[str, Any]:
        result = [[time_s], 0, 0.5, at_s]
        if self.tuner == "ansor":
            key = json.dumps([f"{layer:032x}", 1, 56])
            return {"i": [[key, TARGET, [4, 64]], [[], [["SP", number]]]], "r": result, "v": "v0.6"}
        arguments = [["TENSOR", [1, 64, 56, 56 + layer], "float32"]]
        entity = [["tile_ic", "sp", [-1, number]]]
        config = {"index": number, "code_hash": None, "entity": entity}
        return {"input": [TARGET, "conv2d", arguments, {}], "config": config, "result": result, "version": 0.2}

    def choice(self, layer: int) -> tuple[float, dict[str, float], set[str]] | None:
        """M, times and hosts of the configuration that is best for all devices; None where none has all times."""
        devices = {log.device for log in self.logs}
        samples: dict[tuple[int, str], list[float]] = {}
        hosts: dict[int, set[str]] = {}
        for log in sorted(self.logs, key=lambda log: log.own):  # what was collected comes first, and counts
            for number in log.trials:
                if not log.own or (number, log.device) not in samples:
                    time_s = self.time_s(log.other or log.device, layer, number)
                    samples.setdefault((number, log.device), []).append(time_s)
                hosts.setdefault(number, set()).add(log.host)
        times = {place: statistics.median(found) for place, found in samples.items()}
        theta = {d: min(time_s for (_, device), time_s in times.items() if device == d) for d in devices}
        ranked = []
        for number in hosts:
            row = {d: times[number, d] for d in devices if (number, d) in times}
            if row.keys() == devices:
                ranked.append((sum((row[d] - theta[d]) / theta[d] for d in devices), number, row))
        if not ranked:
            return None
        value, number, row = min(ranked, key=lambda one: one[0])
        return value, row, hosts[number]


def told(words: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([*words, "--json", "--quiet"])
    return code, json.loads(out.getvalue())


def right(logs: Logs, code: int, document: Mapping[str, Any]) -> bool:
    """Whether devices, choices and exit code are those of the oracle."""
    wanted = [logs.choice(layer) for layer in range(LAYERS)]
    rows = sorted(document["layers"], key=lambda row: row["layer"])
    if set(document["devices"]) != {log.device for log in logs.logs} or code != (0 if any(wanted) else 4):
        return False
    if len(rows) != sum(one is not None for one in wanted):
        return False
    for row, (value, times, hosts) in zip(rows, [one for one in wanted if one is not None], strict=True):
        if row["M"] != pytest.approx(value) or row["times"] != pytest.approx(times):
            return False
        if not set(row["host"].split(", ")) <= hosts:
            return False
    return True


def alike(logs: Logs) -> Logs:
    """The same files as collected ones, where nothing can tell: an own log x_y that is a part of y's own.

    If x is a device too, only where y_x is among the files, as of any two devices, and times of day say nothing. What
    was found on a device whose own log is read so is read as found by one of those that are left.
    """
    own = {log.device: log for log in logs.logs if log.own}
    fronts = {log.front for log in logs.logs}
    dates = [at_s for log in own.values() for at_s in log.trials.items()]
    dated = len(set(dates)) == len(dates) and any(
        log.trials.items() <= own[log.host].trials.items() for log in logs.logs if not log.own
    )
    made = []
    for log in logs.logs:
        for cut in (place for place, letter in enumerate(log.front) if letter == "_"):
            x, y = log.front[:cut], log.front[cut + 1 :]
            silent = f"{y}_{x}" in fronts and not dated if x in own else True
            if log.own and x and y in own and set(log.trials) <= set(own[y].trials) and silent:
                log = Log(device=x, host=y, trials=log.trials, other=log.device)
        made.append(log)
    left = {log.device for log in made if log.own}
    for place, log in enumerate(made):
        if not log.own and log.host not in left:
            cuts = [cut for cut, letter in enumerate(log.front) if letter == "_" and log.front[cut + 1 :] in left]
            if cuts:
                x, y = log.front[: cuts[-1]], log.front[cuts[-1] + 1 :]
                made[place] = Log(device=x, host=y, trials=log.trials, other=log.other or log.device)
    return Logs(logs=tuple(made), tuner=logs.tuner, seed=logs.seed)


def check(logs: Logs) -> str:
    """Right, or an error that names readings and the way out, which is then right; which of the two."""
    with tempfile.TemporaryDirectory() as name:
        paths = logs.write(Path(name))
        words = ["overlay", "analyze", *paths, "--no-write", "--resamples", "10"]
        code, document = told(words)
        if code != 2:
            assert right(logs, code, document) or right(alike(logs), code, document), document
            return "right"
        error = document["error"]
        assert "is ambiguous" in error["message"] and " on " in error["message"]
        assert "--device" in error["hint"] and "KEY=" in error["hint"]
        code, document = told(
            [*words, *(w for path, log in paths.items() for w in ("--device", f"{log.device}={path}"))]
        )
        assert right(logs, code, document), document
        return "asked"


KEYS = st.one_of(
    st.sampled_from(["phone", "sd888", "lab_pi", "pi", "4", "pi_4", "my_phone", "x86", "a", "b", "a_b", "b_a"]),
    st.from_regex(r"[ab_]{0,2}[ab][ab_-]{0,3}", fullmatch=True),
)
COUNT = 5


def own_trials(draw: st.DrawFn, keys: Sequence[str]) -> dict[str, dict[int, float]]:
    """What each device's search tried: the same grid, apart, or by chance some of the same and one of its own.

    With times of day, or without any.
    """
    how = draw(st.sampled_from(["grid", "apart", "chance"]))
    dated = draw(st.booleans())
    made = {}
    for place, key in enumerate(keys):
        if how == "grid":
            numbers = list(range(COUNT))
        elif how == "apart":
            numbers = list(range(place * COUNT, (place + 1) * COUNT))
        else:
            numbers = [*sorted(draw(st.sets(st.integers(0, 2 * COUNT), max_size=COUNT - 1))), 100 + place]
        made[key] = {number: 1.6e9 + 1000 * place + number if dated else 0.0 for number in numbers}
    return made


@st.composite
def files(draw: st.DrawFn, kind: str) -> Logs:
    """A set of one of the four kinds."""
    if kind == "ambiguous":
        one, other = draw(st.lists(KEYS, min_size=2, max_size=2, unique=True))
        keys = list(dict.fromkeys([one, other, f"{one}_{other}"]))
    else:
        keys = draw(st.lists(KEYS, min_size=2, max_size=3, unique=True))
    tried = own_trials(draw, keys)
    tuned = keys[:1] if kind == "one-sided" else keys
    pairs = list(itertools.permutations(keys, 2)) if kind != "own" else []
    if kind == "ambiguous":
        pairs = draw(st.lists(st.sampled_from(pairs), unique=True))
    copied, best = draw(st.booleans()), draw(st.integers(1, COUNT))
    logs = [Log(device=key, host=key, trials=tried[key]) for key in tuned]
    for device, host in pairs:
        if host in tuned:
            some = sorted(tried[host])[: best if draw(st.booleans()) else COUNT]
            later = {number: tried[host][number] if copied else 1.7e9 + len(logs) * 100 + number for number in some}
            log = Log(device=device, host=host, trials=later)
            # "a" on "a_a" and "a_a" on "a" have one name: the second would be written over the first.
            if log.front not in {one.front for one in logs[len(tuned) :]}:
                logs.append(log)
    order = draw(st.permutations(logs))
    return Logs(logs=tuple(order), tuner=draw(st.sampled_from(["atvm", "ansor"])), seed=draw(st.integers(0, 99)))


@pytest.mark.parametrize("kind", ["own", "pairs", "one-sided", "ambiguous"])
@given(st.data())
def test_a_set_of_files_is_read_right_or_asked_about(kind: str, data: st.DataObject) -> None:
    check(data.draw(files(kind)))


def searched(*keys: str) -> dict[str, dict[int, float]]:
    """Searches that have nothing in common."""
    return {key: {10 * place + n: 1.6e9 + 10 * place + n for n in range(4)} for place, key in enumerate(keys)}


def gridded(*keys: str) -> dict[str, dict[int, float]]:
    """Searches of one grid, at different times."""
    return {key: {n: 1.6e9 + 10 * place + n for n in range(4)} for place, key in enumerate(keys)}


def as_set(tried: Mapping[str, Mapping[int, float]], tuned: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Logs:
    logs = [Log(device=key, host=key, trials=tried[key]) for key in tuned]
    logs += [Log(device=device, host=host, trials=tried[host]) for device, host in pairs]
    return Logs(logs=tuple(logs), tuner="atvm", seed=1)


TWO, THREE = [("a", "b"), ("b", "a")], list(itertools.permutations(["a", "b", "a_b"], 2))


@pytest.mark.parametrize("search", [searched, gridded])
@pytest.mark.parametrize(
    ("keys", "tuned", "pairs"),
    [
        (["phone", "x86"], ["phone", "x86"], []),
        (["my_phone", "lab_pi"], ["my_phone", "lab_pi"], []),
        (["a", "b"], ["a", "b"], TWO),
        (["my_phone", "lab_pi"], ["my_phone", "lab_pi"], [("my_phone", "lab_pi"), ("lab_pi", "my_phone")]),
        (["a", "b"], ["a"], [("b", "a")]),
        (["a", "b"], ["a", "b"], [("b", "a")]),
        (["pi.4", "pi.3"], ["pi.4"], [("pi.3", "pi.4")]),
    ],
)
def test_what_ferule_writes_is_read_without_a_question(
    search: Any, keys: list[str], tuned: list[str], pairs: list[tuple[str, str]]
) -> None:
    assert check(as_set(search(*keys), tuned, pairs)) == "right"


def test_two_files_of_one_name_may_both_be_what_one_device_found() -> None:
    """Three searches of one grid without times of day: all but "a" are read as found by "a"."""
    tried = dict.fromkeys(range(COUNT), 0.0)
    logs = [Log(device=key, host=key, trials=tried) for key in ("a", "__a", "a___a")]
    logs.append(Log(device="a", host="__a", trials={number: 1.7e9 + number for number in range(COUNT)}))
    assert check(Logs(logs=tuple(logs), tuner="atvm", seed=0)) == "right"


def test_a_log_may_be_what_a_device_found_measured_there_once_more() -> None:
    """ "b_b" of the same grid as "b", without times of day."""
    tried = dict.fromkeys(range(COUNT), 0.0)
    logs = [Log(device=key, host=key, trials=tried) for key in ("b", "b_b")]
    assert check(Logs(logs=tuple(logs), tuner="atvm", seed=0)) == "right"


def test_three_devices_are_told_apart_by_what_is_in_their_logs() -> None:
    for pairs in ([], THREE, [pair for pair in THREE if pair != ("a", "b")]):
        assert check(as_set(searched("a", "b", "a_b"), ["a", "b", "a_b"], pairs)) == "right"
        assert check(as_set(gridded("a", "b", "a_b"), ["a", "b", "a_b"], pairs)) == "asked"


@pytest.mark.parametrize(
    ("files", "devices", "answers"),
    [
        (["a", "a_b"], ["a", "a_b"], ["a_b"]),
        (["a", "a_b"], ["a"], ["a", "b"]),
        (["a", "a_b"], ["a"], ["b"]),
        (["a_b", "b_a"], ["a_b", "b_a"], ["a_b", "b_a"]),
        (["a_b", "b_a"], ["a", "b"], ["a", "b"]),
        (["pi.m", "x.m", "pi_x.m"], ["pi", "x"], ["pi", "x"]),
    ],
)
def test_what_names_leave_open_is_answered_by_keys(
    files: list[str], devices: list[str], answers: list[str], tmp_path: Path
) -> None:
    made = Logs(logs=(), tuner="atvm", seed=1)
    paths: list[str] = []
    for place, front in enumerate(files):
        host = Log(device=front, host=front, trials={place if "_" not in front else 1: 0.0})
        paths += Logs(logs=(host,), tuner="atvm", seed=made.seed).write(tmp_path)
    words = ["overlay", "analyze", *paths, "--no-write"]
    code, document = told(words)
    assert code == 2 and "is ambiguous" in document["error"]["message"]
    code, document = told([*words, *(w for key in answers for w in ("--device", key))])
    assert sorted(document["devices"]) == devices


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "c"], "no log belongs to the device 'c'"),
        (["--device", "c=nowhere.json"], "'nowhere.json' is not one of the logs"),
        (["--device", "=a.json"], "has no key"),
        (["--device", "c={a}", "--device", "d={a}"], "has two devices: 'c' and 'd'"),
    ],
)
def test_answers_that_cannot_be_meant(words: list[str], message: str, tmp_path: Path) -> None:
    (path,) = as_set(searched("a"), ["a"], []).write(tmp_path)
    code, document = told(["overlay", "analyze", path, *(word.format(a=path) for word in words), "--no-write"])
    assert code == 2
    assert message in document["error"]["message"]
    assert document["error"]["hint"]


def test_two_devices_with_one_target_are_never_pooled_by_device(tmp_path: Path) -> None:
    """Ferule's target is the same for every phone, so that only names tell whose times a file has."""
    logs = as_set(searched("a", "b"), ["a", "b"], TWO)
    words = ["overlay", "analyze", *logs.write(tmp_path), "--no-write"]
    for more in (["a"], ["b", "a"], ["a", "b", "a"]):
        code, document = told([*words, *(w for key in more for w in ("--device", key))])
        assert right(logs, code, document)


def test_nothing_is_written_where_no_layer_could_be_decided(tmp_path: Path) -> None:
    out = tmp_path / "out"
    paths = as_set(searched("a", "b"), ["a", "b"], []).write(tmp_path)
    code, document = told(["overlay", "analyze", *paths, "--out", str(out)])
    assert (code, document["layers"], len(document["undecided"])) == (4, [], LAYERS)
    assert not out.exists()
    # Nobody can measure it any more, so nobody is sent to.
    assert "gnomon overlay collect" not in json.dumps(document)


@settings(max_examples=20)
@given(files("pairs"))
def test_the_order_of_files_says_nothing(logs: Logs) -> None:
    with tempfile.TemporaryDirectory() as name:
        paths = list(logs.write(Path(name)))
        found = []
        for order in (paths, paths[::-1], sorted(paths)):
            code, document = told(["overlay", "analyze", *order, "--no-write", "--resamples", "10"])
            if code != 2:
                found.append((code, sorted(document["devices"]), [row["M"] for row in document["layers"]]))
        assert len(found) in (0, 3)
        assert all(one[:2] == found[0][:2] for one in found)
