"""Which device a log is of, without a file: what is said, what names mean, and what is left to the content."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.core.overlay.records import TunedDevice, TunedModel, TuningRecords, TuningTrial
from gnomon.errors import UsageError
from gnomon.formats.tuning.keys import DeviceHints, name_logs
from gnomon.formats.tuning.logs import FOLDER_FILES, read_tuning_log

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "tuning"


def log(*numbers: int, key: str = "", dates: bool = True) -> TuningRecords:
    """A log with trials of these configurations, each at a time of its own; one that says its `key` itself."""
    trials = [
        TuningTrial(layer="l", configuration=str(number), times_s=(1.0,), at_s=float(number) if dates else 0.0)
        for number in numbers
    ]
    model = TunedModel(name="m" if key else "")
    device = TunedDevice(key=key, target={})
    return TuningRecords(device=device, model=model, layers=(), trials=tuple(trials), tuner="autotvm")


def named(logs: dict[str, TuningRecords], *keys: str, **of: str) -> list[tuple[str, str]]:
    """Device and origin of logs by their fronts."""
    paths = {front: f"/x_y/{front}.m.float32.json" for front in logs}
    told = DeviceHints(keys=keys, of={paths[front]: key for front, key in of.items()})
    found = name_logs(list(paths.values()), list(logs.values()), told)
    assert {(one.model.name, one.model.dtype) for one in found} == {("m", "float32")}
    return [(one.device.key, one.found_on) for one in found]


def test_names_and_content_together() -> None:
    assert named({"a": log(1), "b": log(2), "b_a": log(1)}) == [("a", ""), ("b", ""), ("b", "a")]
    assert named({"a": log(1, 2), "b_a": log(1)}) == [("a", ""), ("b", "a")]
    assert named({"a": log(1), "b": log(2), "b_a": log(3)}) == [("a", ""), ("b", ""), ("b_a", "")]
    assert named({"my_pi": log(1)}) == [("my_pi", "")]
    cut = {"b": log(1), "a_b": log(2), "x_a_b": log(2)}
    assert named(cut) == [("b", ""), ("a_b", ""), ("x", "a_b")]
    assert named({**cut, "x_a_b": log(1)}) == [("b", ""), ("a_b", ""), ("x_a", "b")]


@pytest.mark.parametrize(
    "logs",
    [
        {"a": log(1), "a_b": log(2)},  # b has no log
        {"a": log(1, 2), "b": log(3), "b_a": log(2, 3)},  # a part of it only
        {"a": log(1, dates=False), "b": log(1, dates=False), "b_a": log(1, dates=False)},  # alike
        {"a_b": log(1), "b_a": log(2)},  # each half is one of the other's
        {"a": log(1), "b_a": log(1), "b_a_c": log(5)},  # b_a is a key elsewhere, maybe
    ],
)
def test_what_is_open_is_an_error_with_all_readings(logs: dict[str, TuningRecords]) -> None:
    with pytest.raises(UsageError, match="is ambiguous") as caught:
        named(logs)
    assert "--device KEY=" in caught.value.hint


def test_what_is_said_comes_before_names() -> None:
    logs = {"a": log(1), "b": log(1), "b_a": log(1)}
    assert named(logs, "a", "b")[2] == ("b", "a")
    assert named(logs, "b_a")[2] == ("b_a", "")
    assert named(logs, b_a="b")[2] == ("b", "a")
    assert named(logs, b_a="c")[2] == ("c", "")
    assert named({"a": log(1), "a_b": log(2)}, "b")[1] == ("a", "b")
    assert named({"a": log(1), "a_b": log(2)}, "a_b")[1] == ("a_b", "")
    with pytest.raises(UsageError, match="no log belongs to the device 'c'"):
        named(logs, "a", "b", "c")


def test_a_file_that_says_itself_is_believed_and_known_to_the_others() -> None:
    logs = {"whatever": log(1, key="a"), "b_a": log(1)}
    assert named(logs) == [("a", ""), ("b", "a")]
    assert named(logs, whatever="a") == [("a", ""), ("b", "a")]
    with pytest.raises(UsageError, match="itself names its device, 'a', which is not 'b'"):
        named(logs, whatever="b")


def test_a_name_that_says_nothing() -> None:
    found = log(1)
    with pytest.raises(UsageError, match="does not show the device") as caught:
        name_logs(["some.log"], [found])
    assert "--device KEY=some.log" in caught.value.hint
    with pytest.raises(UsageError, match=r"(?m)some\.log.*file\. The same holds for two\.log, three\.log$"):
        name_logs(["some.log", "two.log", "three.log"], [found] * 3)
    (one,) = name_logs(["some.log"], [found], DeviceHints(of={"some.log": "phone"}))
    assert (one.device.key, one.model.name) == ("phone", "unknown")
    one, _ = name_logs(["some.log", "b.net.float16.json"], [found, log(2)], DeviceHints(of={"some.log": "phone"}))
    assert (one.model.name, one.model.dtype) == ("net", "float16")


def test_a_folder_is_named_as_a_file() -> None:
    content = {file: (GOLDEN / "metaschedule" / file).read_bytes() for file in FOLDER_FILES}
    for path in ("/logs/phone.net.float32", "/logs/phone.net.float32/"):
        (one,) = name_logs([path], [read_tuning_log(path, content)])
        assert (one.device.key, one.model.name) == ("phone", "net")
