from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gnomon.errors import UsageError
from gnomon.jobs.space.profiling.folder import LatencyRow, check_context, measuring_context, settings_in
from gnomon.runtimes.base import RunSettings
from gnomon.runtimes.declared import chosen_commands
from gnomon.session.request import MeasureRequest

HERE = MeasureRequest()


def row(context: dict[str, str], toolchain: str = "onnxruntime", call_s: float | None = 1e-3) -> LatencyRow:
    names = ("VGGblock_1",)
    return LatencyRow(key="k", network="VGG_1", primitives=names, toolchain=toolchain, call_s=call_s, context=context)


def test_settings_come_back() -> None:
    context = measuring_context(HERE, {"arch": Path("/a.json"), "workers": 2})
    assert settings_in(context) == {"arch": "/a.json", "workers": "2"}
    assert settings_in({}) == settings_in({"settings": "["}) == settings_in({"settings": "[1]"}) == {}


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (replace(HERE, settings=RunSettings(threads=2)), "threads: 1 before, 2 now"),
        (replace(HERE, settings=RunSettings(precisions=("bfloat16",))), "precisions: default before"),
        (replace(HERE, device=replace(HERE.device, name="board")), "device: local before, board now"),
        (replace(HERE, device=replace(HERE.device, pin=(0,))), "of the device: default before"),
    ],
)
def test_what_was_measured_otherwise_is_told(other: MeasureRequest, word: str) -> None:
    known = row(measuring_context(HERE, {}))
    check_context([known], "onnxruntime", known.context)
    check_context([known], "openvino", measuring_context(other, {}))
    with pytest.raises(UsageError, match=word) as told:
        check_context([known], "onnxruntime", measuring_context(other, {}))
    assert "--profile-dir" in told.value.hint


def test_other_settings_of_a_toolchain_are_another_context() -> None:
    known = row(measuring_context(HERE, {"per_channel": "no"}))
    with pytest.raises(UsageError, match="per_channel"):
        check_context([known], "onnxruntime", measuring_context(HERE, {"per_channel": "yes"}))


def test_a_failed_network_says_nothing_of_the_context() -> None:
    failed = row({"device": "board"}, call_s=None)
    check_context([failed], "onnxruntime", measuring_context(HERE, {}))


def test_another_command_is_another_context() -> None:
    boards = [chosen_commands([f"dpu-server:url=http://{name}/"]) for name in ("one", "two")]
    one, two = (measuring_context(replace(HERE, settings=RunSettings(commands=board)), {}) for board in boards)
    check_context([row(one, "quark-xint8")], "quark-xint8", one)
    with pytest.raises(UsageError, match=r"commands: .*http://one/.* before, .*http://two/.* now"):
        check_context([row(one, "quark-xint8")], "quark-xint8", two)
    (vitis,) = chosen_commands(["vitis:url=http://one/"])
    other = replace(vitis, prepare=(*vitis.prepare, ("strip", "{model}")))
    found = [
        measuring_context(replace(HERE, settings=RunSettings(commands=(command,))), {}) for command in (vitis, other)
    ]
    with pytest.raises(UsageError, match="commands: "):
        check_context([row(found[0], "quark-xint8")], "quark-xint8", found[1])
