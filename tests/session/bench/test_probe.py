"""Whether a device is the board that it was, and as fast: what is told of a probe, and probes of this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.cli.main import run
from gnomon.devices.health import Baseline, Health, failed, health_of, health_path, passed, put_into_quarantine
from gnomon.errors import DeviceError, RecordError, RuntimeMissingError
from gnomon.session.bench import probe as probing
from gnomon.session.bench.probe import Probed, check_before_use, judged
from gnomon.session.request import THIS_MACHINE

CALLS = (1.00e-4, 1.01e-4, 0.99e-4, 1.00e-4)
BOARD = {"machine": "aarch64", "cpu_model": "Pi 5", "cores_online": 4, "memory_bytes": 8 << 30}
BASELINE = Baseline(at_s=1.0, fingerprint=BOARD, runtime="r 1", calls_s=CALLS, campaign="c")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    return tmp_path


def seen(times: float = 1.0, slowed: tuple[str, ...] = (), **board: Any) -> Probed:
    calls = tuple(call * times for call in CALLS)
    return Probed(baseline=replace(BASELINE, fingerprint={**BOARD, **board}, calls_s=calls), slowed=slowed)


@pytest.mark.parametrize(
    ("found", "kind", "told"),
    [
        (seen(), None, ""),
        (seen(1.1), None, ""),
        (seen(1.6), "speed", r"takes 1\.\d+ times as long as on 1970-01-01"),
        (seen(0.6), "speed", r"takes 0\.\d+ times"),
        (
            seen(slowed=("the processor throttled 3 times because of heat",)),
            "speed",
            "slowed down: the processor throttled",
        ),
        (seen(cpu_model="Pi 4"), "board", "the processor was Pi 5 and is now Pi 4"),
        (seen(memory_bytes=4 << 30), "board", "memory"),
        (seen(cores_online=2), None, ""),  # cores are switched on and off
        (seen(cpu_model=None), None, ""),  # what could not be read this time
        (seen(memory_bytes=(8 << 30) - (64 << 20)), None, ""),
    ],
)
def test_what_a_probe_tells(found: Probed, kind: str | None, told: str) -> None:
    fault = judged(found, BASELINE)
    assert (fault[0] if fault else None) == kind
    assert fault is None or re.search(told, fault[1])


def test_a_first_probe_and_another_runtime_are_no_fault() -> None:
    assert judged(seen(3.0), None) is None
    assert judged(seen(3.0), replace(BASELINE, runtime="r 2")) is None
    assert judged(seen(slowed=("hot",)), None) is not None


def test_calls_that_scatter_are_not_told_as_slow() -> None:
    noisy = replace(BASELINE, calls_s=(1e-4, 2e-4, 1.2e-4, 0.8e-4))
    assert judged(seen(1.3), noisy) is None


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Probed | Exception]]:
    """What the next probes find, in order."""
    coming: list[Probed | Exception] = []

    def probe(*arguments: object, **options: object) -> Probed:
        found = coming.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(probing, "probe", probe)
    yield coming
    assert not coming


def test_a_device_is_probed_before_use_and_within_the_hour_not_again(stand_in: list[Probed | Exception]) -> None:
    stand_in.append(seen())
    check_before_use(THIS_MACHINE, None)
    check_before_use(THIS_MACHINE, None)
    assert health_of("local").baseline == BASELINE


def test_a_slow_one_is_looked_at_twice_and_a_quarantine_is_looked_at_each_time(
    stand_in: list[Probed | Exception],
) -> None:
    passed("local", BASELINE, 1e-4)
    text = health_path().read_text()
    health_path().write_text(text.replace(str(health_of("local").probed_at_s), "5.0"))
    stand_in += [seen(2.0), seen()]
    check_before_use(THIS_MACHINE, None)  # what had it slowed down was over
    put_into_quarantine("local", "speed", "slow")
    stand_in += [seen(2.0), seen(2.0)]
    with pytest.raises(DeviceError, match="has been in quarantine since"):
        check_before_use(THIS_MACHINE, None)
    stand_in.append(seen())
    check_before_use(THIS_MACHINE, None)
    assert health_of("local").quarantine is None


def test_what_cannot_be_probed_is_used_unless_it_is_in_quarantine(stand_in: list[Probed | Exception]) -> None:
    stand_in.append(RuntimeMissingError("none"))
    check_before_use(THIS_MACHINE, None)
    for _ in range(3):
        failed("local", "gone")
    stand_in.append(RuntimeMissingError("none"))
    with pytest.raises(DeviceError, match="in quarantine"):
        check_before_use(THIS_MACHINE, None)
    stand_in.append(DeviceError("gone again"))
    with pytest.raises(DeviceError, match="gone again"):
        check_before_use(THIS_MACHINE, None)


def test_a_record_that_takes_nothing_is_no_probe_that_passed(stand_in: list[Probed | Exception]) -> None:
    stand_in.append(RecordError("the disk is full"))
    with pytest.raises(RecordError, match="full"):
        check_before_use(THIS_MACHINE, None)
    assert health_of("local").probed_at_s is None


@pytest.mark.usefixtures("few_runtimes")
def test_this_machine_is_probed_told_and_released(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnxruntime]'")
    assert run(["devices", "probe", "local"]) == 0
    assert "is healthy" in capsys.readouterr().out
    known = health_of("local").baseline
    assert known is not None and known.campaign in [row.campaign.id for row in gnomon.runs().campaigns]
    board = {**known.fingerprint, "cpu_model": "another"}
    passed("local", replace(known, fingerprint=board), 1e-4)
    assert run(["devices", "probe", "local"]) == DeviceError.exit_code
    assert "it is another board: the processor was another" in capsys.readouterr().err
    assert run(["devices", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (row,) = document["devices"]
    assert gnomon.read_document(document).devices[0].health.quarantine.kind == "board"
    assert row["health"]["quarantine"]["kind"] == "board"
    assert run(["devices"]) == 0
    assert "in quarantine since" in capsys.readouterr().out
    assert run(["devices", "release", "local", "--json"]) == 0
    released = gnomon.read_document(json.loads(capsys.readouterr().out))
    assert released.was.kind == "board" and released.health == Health()
    put_into_quarantine("local", "speed", "slow")
    assert run(["devices", "release", "local"]) == 0
    assert "The reason was: slow" in capsys.readouterr().out
    assert health_of("local") == Health()
    assert run(["devices", "release", "local"]) == 2
