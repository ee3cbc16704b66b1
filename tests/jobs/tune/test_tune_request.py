from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnomon.devices.lease import lease_folder, lease_holder
from gnomon.errors import UsageError
from gnomon.jobs.tune.request import TOLERANCES, Care, DeviceWish, TuneRequest, held_device
from gnomon.tuning.tracker import Tracker

TRACKER = Tracker(host="127.0.0.1", port=1)
REQUEST = TuneRequest(model=Path("m.onnx"))


@pytest.mark.parametrize(
    ("wish", "here"),
    [
        (DeviceWish(), True),
        (DeviceWish(key="local"), True),
        (DeviceWish(key="local", tracker=TRACKER), True),
        (DeviceWish(tracker=TRACKER), False),
        (DeviceWish(key="phone", tracker=TRACKER), False),
    ],
)
def test_which_machine_is_meant_and_only_this_one_is_held(wish: DeviceWish, here: bool) -> None:
    assert wish.here is here
    with held_device(wish):
        assert (lease_holder(lease_folder(), "local") is not None) is here
    assert lease_holder(lease_folder(), "local") is None


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
