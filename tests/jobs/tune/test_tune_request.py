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
from gnomon.jobs.tune.request import TOLERANCES, Care, DeviceWish, TuneRequest, open_device
from gnomon.tuning.tvm import Workshop

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
    assert DeviceWish(config=config).key == key


@pytest.mark.parametrize(
    ("environment", "address", "asked"),
    [
        ({}, "tvm://127.0.0.1:1/phone", "127.0.0.1:1"),
        ({"TVM_TRACKER_PORT": "2"}, "tvm://127.0.0.1/phone", "127.0.0.1:2"),
        ({"TVM_TRACKER_HOST": "127.0.0.1", "TVM_TRACKER_PORT": "2"}, "tvm:///phone", "127.0.0.1:2"),
        ({"TVM_TRACKER_HOST": "127.0.0.1", "TVM_TRACKER_PORT": "2"}, "tvm://[::1]:3/phone", "[::1]:3"),
    ],
)
def test_the_tracker_that_an_address_and_the_environment_name(
    environment: dict[str, str], address: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TVM_TRACKER_HOST", "TVM_TRACKER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    wish = DeviceWish(config=resolve(address), target="generic", wait_s=0.1)
    with (
        Workshop() as shop,
        pytest.raises(DeviceError, match=r"no tracker can be reached at") as raised,
        open_device(shop, wish),
    ):
        pass
    assert asked in raised.value.message
    assert lease_holder(lease_folder(), "local") is None  # a tracker sees to that itself


def test_without_a_tracker_in_address_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TVM_TRACKER_HOST", raising=False)
    wish = DeviceWish(config=resolve("tvm:///phone"), target="generic")
    with Workshop() as shop, pytest.raises(UsageError, match="no tracker is named"), open_device(shop, wish):
        pass


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
        {"care": Care(repeat=0)},
        {"care": Care(processes=0)},
        {"care": Care(seed=-1)},
        {"care": Care(timeout_s=0.0)},
        {"care": Care(build_timeout_s=float("nan"))},
    ],
)
def test_what_cannot(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as raised:
        replace(REQUEST, **change).check()
    assert raised.value.hint


def test_the_loop_is_as_tolerant_as_the_data_type() -> None:
    care = Care(repeat=7, min_repeat_ms=9, seed=4, timeout_s=3.0)
    for dtype, tolerance in TOLERANCES.items():
        loop = care.loop(dtype)
        assert (loop.tolerance, loop.repeat, loop.min_repeat_ms, loop.seed) == (tolerance, 7, 9, 4)
        assert loop.timeout_s == 3.0
