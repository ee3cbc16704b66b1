"""Compiling layers: real ones, for other machines, with odd linkers; what is malformed costs its order only."""

from __future__ import annotations

import base64
import dataclasses
import os
import queue
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from tests.tuning.conftest import TARGET, Kit
from tests.tuning.tvmkit import living

from gnomon.core.overlay.records import TunedDevice, TuningLayer
from gnomon.core.sample import Failure
from gnomon.tuning.bench import Builders, LayerCall, discard

AARCH64 = 183

BLOCK = ["GetSBlock", [], ["T_softmax_norm", "main"], ["b0"]]
LOOPS = ["GetLoops", ["b0"], [], ["l1", "l2"]]
TILE = ["SamplePerfectTile", ["l2"], [2, 64], ["v3", "v4"]]
MALFORMED: tuple[Any, ...] = (
    [],
    {},
    "trace",
    7,
    [[], [], []],
    [[1, 2], [3]],
    [[["GetSBlock", [], ["no such block", "main"], ["b0"]]], []],
    [[["NoSuchInstruction", [], [], []]], []],
    [[BLOCK], [[0, None]]],
    [[BLOCK], [[0, [1]]]],
    [[BLOCK], [[1, [1]]]],
    [[BLOCK], [[-1, [1]]]],
    [[BLOCK, LOOPS, TILE], [[2, None]]],
    [[BLOCK, LOOPS, TILE], [[2, "x"]]],
    [[BLOCK, LOOPS, TILE], [[2.0, [1, 5]]]],
    [[["Split", ["l9", 4, 4], [True, False], ["l1", "l2"]]], []],
    [[["GetLoops", ["b7"], [], ["l1"]]], []],
    [[], [[0, [1, 2, 3]]]],
    [[["EnterPostproc", [], [], []]] * 5, [[-1, 9]]],
    [[[[[[[[[[]]]]]]]]], []],
)


def builders(kit: Kit, **device: Any) -> Builders:
    """Builders whose one child is the shared one."""
    made = Builders(kit.pool, TunedDevice(**{"key": "local", "target": TARGET, **device}), timeout_s=60.0)
    made._workers, made.count, made._folder = queue.SimpleQueue(), 1, kit.folder
    made._workers.put(kit.worker)
    return made


def machine(library: Path) -> int:
    """The processor that an ELF file is for."""
    found: int = struct.unpack_from("<H", library.read_bytes(), 18)[0]
    return found


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_all_layers_of_a_network_are_built_in_their_order(kit: Kit) -> None:
    made = builders(kit).build([(layer, None) for layer in kit.layers])
    libraries = {one.library for one in made if isinstance(one, LayerCall) and one.library.stat().st_size > 1000}
    assert len(libraries) == len(kit.layers)
    for one, layer in zip(made, kit.layers, strict=True):
        assert isinstance(one, LayerCall) and one.arguments == layer.arguments
        assert one.outputs == (len(layer.arguments) - 1,), "a layer's output is its last argument"
    discard(*made, Failure(stage="build", kind="hang", transient=False, message=""))
    assert not any(library.exists() for library in libraries)


def test_a_linker_is_given_its_options_as_they_are(kit: Kit, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    linker = script(tmp_path / "my linker", f'printf "%s\\n" "$@" > "{seen}"; exec g++ "$@"')
    (made,) = builders(kit, linker=f"'{linker}' -O1 '-DTEXT=a b;c $(touch {tmp_path}/x)'").build(
        [(kit.named("softmax"), None)]
    )
    assert isinstance(made, LayerCall), made
    words = seen.read_text().splitlines()
    assert "-O1" in words and f"-DTEXT=a b;c $(touch {tmp_path}/x)" in words
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(
    shutil.which("aarch64-linux-gnu-g++") is None,
    reason="no aarch64-linux-gnu-g++ here (Debian: g++-aarch64-linux-gnu)",
)
def test_for_another_processor(kit: Kit) -> None:
    target = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "num-cores": 4}
    (made,) = builders(kit, target=target, linker="aarch64-linux-gnu-g++").build([(kit.heavy, None)])
    assert isinstance(made, LayerCall) and machine(made.library) == AARCH64


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ({"linker": "false"}, "CalledProcessError|ompilation|rror"),
        ({"linker": "no-such-linker"}, "no-such-linker"),
        ({"target": {"kind": "llvm", "mcpu": "znver-9000"}}, "does not know the target's processor 'znver-9000'"),
        ({"target": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a27"}}, "for aarch64-linux-gnu"),
        ({"target": {"kind": "llvm", "mcpu": 3}}, "does not accept this target"),
        ({"target": {"kind": "llvm", "colour": "red"}}, "does not accept this target"),
        ({"target": {}}, "does not accept this target"),
    ],
)
def test_what_cannot_be_compiled_for_is_told(kit: Kit, device: dict[str, Any], told: str) -> None:
    starts, before = kit.worker.starts, {*kit.folder.glob("*.so*")}
    (made,) = builders(kit, **device).build([(kit.named("softmax"), None)])
    assert isinstance(made, Failure) and (made.stage, made.kind) == ("build", "refused"), made
    assert re.search(told, made.message), made.message
    assert {*kit.folder.glob("*.so*")} == before, "nothing is left of it"
    assert kit.worker.starts == starts


def malformed(layer: TuningLayer) -> list[tuple[TuningLayer, Any]]:
    raw = base64.b64decode(layer.workload)

    def with_workload(text: str) -> TuningLayer:
        return dataclasses.replace(layer, workload=text)

    flipped = bytearray(raw)
    flipped[len(raw) // 2] ^= 0xFF
    return [
        (with_workload(""), None),
        (with_workload("not base64!"), None),
        (with_workload("é"), None),
        (with_workload(base64.b64encode(raw[: len(raw) // 2]).decode()), None),
        (with_workload(base64.b64encode(b"\xff" * 8 + raw[8:]).decode()), None),
        (with_workload(base64.b64encode((4).to_bytes(8, "little") + b"null").decode()), None),
        (with_workload(base64.b64encode(bytes(flipped)).decode()), None),
        *((layer, trace) for trace in MALFORMED),
    ]


def test_malformed_workloads_and_traces_are_refused_and_the_child_goes_on(kit: Kit) -> None:
    layer = kit.named("softmax")
    starts = kit.worker.starts
    wanted = malformed(layer)
    for (one, trace), made in zip(wanted, builders(kit).build(wanted), strict=True):
        case = (one.layer, one.workload[:40], trace)
        assert isinstance(made, Failure) and made.kind == "refused" and made.message, (case, made)
        assert len(made.message) <= 2000
    assert kit.worker.starts == starts, "none of them ended the child"
    good = builders(kit).build([(layer, None), (layer, [[BLOCK, LOOPS, TILE], [[2, [1, 5]]]])])
    assert all(isinstance(one, LayerCall) for one in good), good


def test_a_trace_of_another_layer_is_refused(kit: Kit) -> None:
    trace = [[["GetSBlock", [], ["conv2d_nchw", "main"], ["b0"]], ["GetLoops", ["b0"], [], ["l1"]]], []]
    (made,) = builders(kit).build([(kit.named("softmax"), trace)])
    assert isinstance(made, Failure) and made.kind == "refused"


def test_a_build_that_hangs_or_crashes_costs_its_order_only(
    kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = tmp_path / "groups"
    linker = script(
        tmp_path / "ld",
        f'echo $PPID >> "{groups}"\n'
        f'case $(wc -l < "{groups}") in 2) kill -SEGV $PPID; sleep 600;; 3) sleep 600;; *) exec g++ "$@";; esac',
    )
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    device = TunedDevice(key="local", target=TARGET, linker=linker)
    own = Builders(kit.pool, device, timeout_s=10.0)
    own._folder = tmp_path
    assert own.count == 1
    own._workers.get()
    own._workers.put(kit.worker)  # it is there already; a build that crashes needs no clock
    layer = kit.named("softmax")
    first, crashed = own.build([(layer, None)] * 2)
    assert isinstance(first, LayerCall), first
    assert isinstance(crashed, Failure) and (crashed.stage, crashed.kind) == ("build", "crash")
    assert "SIGSEGV" in crashed.message
    monkeypatch.setattr("gnomon.tuning.bench._WAITS", 1.0)
    own = Builders(kit.pool, device, timeout_s=10.0)
    own._folder = tmp_path
    hung, last = own.build([(layer, None)] * 2)
    assert isinstance(last, LayerCall), last
    assert isinstance(hung, Failure) and (hung.stage, hung.kind) == ("build", "hang")
    pids = [int(line) for line in groups.read_text().split()]
    assert not living(pids[1]) and not living(pids[2])


def test_a_build_ends_by_its_processor_time(kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.tuning.bench._WAITS", 1e5)  # as if by the clock there were hours
    own = Builders(kit.pool, TunedDevice(key="local", target=TARGET), timeout_s=1e-3)
    own._folder = tmp_path
    (said,) = own.build([(kit.named("softmax"), None)])
    assert isinstance(said, Failure) and (said.stage, said.kind) == ("build", "hang")
    assert said.message == "the build took longer than 0.001 s of processor time"
