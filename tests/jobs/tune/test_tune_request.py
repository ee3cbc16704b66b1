"""What a tuning request may say, and the device that it means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnomon.devices.address import parse_address
from gnomon.devices.config import DeviceConfig
from gnomon.devices.lease import lease_folder, lease_holder
from gnomon.devices.opening import resolve
from gnomon.errors import DeviceError, UsageError
from gnomon.jobs.tune.request import TOLERANCES, DeviceOptions, TuneEffort, TuneRequest, open_device
from gnomon.tuning.tvm import TvmPool

REQUEST = TuneRequest(model=Path("m.onnx"))


@pytest.mark.parametrize(
    ("address", "name", "key"),
    [
        ("local", "", "local"),
        ("local", "narrow", "narrow"),
        ("ssh://me@board:22", "", "ssh://me@board:22"),
        ("ssh://me@board:22", "board", "board"),
        ("tvm://here:9190/phone", "", "phone"),
        ("tvm:///phone", "", "phone"),
        ("tvm://here:9190/phone", "my-phone", "my-phone"),
    ],
)
def test_what_records_call_a_device(address: str, name: str, key: str) -> None:
    config = DeviceConfig(name=name, address=parse_address(address)) if name else resolve(address)
    assert DeviceOptions(config=config).key == key


def test_a_device_of_a_tracker_is_not_leased() -> None:
    settings = DeviceOptions(config=resolve("tvm://127.0.0.1:1/phone"), target="generic", wait_s=0.1)
    refused = pytest.raises(DeviceError, match=r"no tracker can be reached at 127\.0\.0\.1:1")
    with TvmPool() as pool, refused, open_device(pool, settings):
        pass
    assert lease_holder(lease_folder(), "local") is None  # a tracker sees to that itself


def test_what_can_be_meant() -> None:
    REQUEST.check()
    replace(REQUEST, dtype="float16", plateau=0, budget_s=0.5, trials=1, per_round=1).check()


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "bfloat16"},
        {"strategy": ""},
        {"trials": 0},
        {"per_round": 0},
        {"plateau": -1},
        {"budget_s": 0.0},
        {"budget_s": float("nan")},
        {"effort": TuneEffort(repeat=0)},
        {"effort": TuneEffort(processes=0)},
        {"effort": TuneEffort(seed=-1)},
        {"effort": TuneEffort(timeout_s=0.0)},
        {"effort": TuneEffort(build_timeout_s=float("nan"))},
    ],
)
def test_what_cannot(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as raised:
        replace(REQUEST, **change).check()
    assert raised.value.hint


def test_the_loop_is_as_tolerant_as_the_data_type() -> None:
    effort = TuneEffort(repeat=7, min_repeat_ms=9, seed=4, timeout_s=3.0)
    for dtype, tolerance in TOLERANCES.items():
        loop = effort.loop(dtype)
        assert (loop.tolerance, loop.repeat, loop.min_repeat_ms, loop.seed) == (tolerance, 7, 9, 4)
        assert loop.timeout_s == 3.0
