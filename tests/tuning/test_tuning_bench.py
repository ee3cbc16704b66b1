"""Measuring in a server's session and here: times, outputs, and whatever may happen to a call and to a device."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.agent.drivers.tvm_models import two_ends
from tests.tuning.conftest import TARGET, Kit
from tests.tuning.test_networks import BOOL, FLOAT, INT64, graph
from tests.tuning.tvmkit import (
    Tracked,
    rpc_devices,  # noqa: F401 - a fixture
)

from gnomon.core.overlay.records import TunedDevice, TuningLayer, sound_times
from gnomon.core.sample import Failure
from gnomon.errors import DeviceError
from gnomon.tuning.bench import Bench, LayerCall, Loop, NetworkCall, Timed, once
from gnomon.tuning.networks import Source
from gnomon.tuning.tracker import TrackedDevice

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here (Debian: gcc)"),
]

LOOP = Loop(repeat=3, min_repeat_ms=1, timeout_s=40.0)
VECTOR = ("float64", (4,))

C = """
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <tvm/ffi/c_api.h>
static double* data(const TVMFFIAny* one) {
  DLTensor* t = one->type_index == kTVMFFIDLTensorPtr ? (DLTensor*)one->v_ptr
              : (DLTensor*)((char*)one->v_obj + sizeof(TVMFFIObject));
  return (double*)((char*)t->data + t->byte_offset);
}
int __tvm_ffi_main(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  double* out = data(args + count - 1);
  %s
  return 0;
}
"""


def library(kit: Kit, body: str, path: Path | None = None) -> Path:
    """A function of TVM's form, whose body may write to `out`, the data of its last argument."""
    source, path = kit.path(".c"), path or kit.path(".so")
    source.write_text(C % body)
    found = importlib.util.find_spec("tvm_ffi")
    assert found is not None and found.origin is not None
    headers = Path(found.origin).parent / "include"
    subprocess.run(["gcc", "-shared", "-fPIC", f"-I{headers}", "-o", f"{path}.new", str(source), "-lm"], check=True)
    Path(f"{path}.new").replace(path)
    return path


def vectors(path: Path, **more: Any) -> LayerCall:
    """A call of a library with a vector that it reads and one that it writes."""
    return LayerCall(library=path, arguments=(VECTOR, VECTOR), outputs=(1,), **more)


def outputs(path: Path) -> list[Any]:
    with np.load(path, allow_pickle=False) as stored:
        return [stored[f"out_{i}"] for i in range(len(stored.files)) if f"out_{i}" in stored]


def built(kit: Kit, layer: TuningLayer) -> LayerCall:
    """A real layer, compiled untuned."""
    path = kit.path(".so")
    said = kit.asked(
        do="build",
        layer=layer.layer,
        workload=layer.workload,
        trace=None,
        target=TARGET,
        linker="",
        library=str(path),
    )
    return LayerCall(library=path, arguments=layer.arguments, outputs=tuple(said["outputs"]))


def timed(said: Timed | Failure) -> Timed:
    assert isinstance(said, Timed), said
    assert sound_times(said.times_s)
    return said


def failed(said: Timed | Failure, kind: str, stage: str = "run") -> Failure:
    assert isinstance(said, Failure) and (said.kind, said.stage) == (kind, stage), said
    return said


@pytest.fixture(scope="module")
def here(kit: Kit) -> Iterator[Bench]:
    """This machine, in a process of its own."""
    bench = Bench(kit.pool, TunedDevice(key="local", target=TARGET, threads=2), None)
    yield bench
    bench.fresh()


@pytest.fixture(scope="module")
def away(kit: Kit, rpc_devices: Tracked) -> Iterator[Bench]:  # noqa: F811 - the fixture
    """The server `wide`; its session is in the shared child."""
    device = TunedDevice(key="wide", target=TARGET)
    bench = Bench(kit.pool, device, TrackedDevice(tracker=rpc_devices.tracker, key="wide"), wait_s=20.0)
    bench._worker = kit.worker
    yield bench
    bench.fresh()


@pytest.fixture(params=["here", "away"])
def bench(request: pytest.FixtureRequest) -> Bench:
    made: Bench = request.getfixturevalue(request.param)
    return made


def test_a_layer_is_compared_and_timed(bench: Bench, kit: Kit, rpc_devices: Tracked) -> None:  # noqa: F811
    keep, call = kit.path(".npz"), built(kit, kit.heavy)
    first = timed(bench.call(dataclasses.replace(call, keep=keep), LOOP))
    assert first.error is None and len(first.times_s) == 3 and max(first.times_s) < 1
    assert first.cpu_s == (), "neither two threads nor a server that gnomon did not start tell it"
    again = timed(bench.call(dataclasses.replace(call, reference=keep), once(LOOP)))
    assert again.error == 0 and len(again.times_s) == 1
    (out,) = outputs(keep)
    assert out.shape == kit.heavy.arguments[-1][1] and np.abs(out).max() > 0
    wide = rpc_devices.of("wide")
    assert again.server == ("" if bench.device.key == "local" else wide.address)
    assert bench.threads == (2 if bench.device.key == "local" else wide.threads)
    other = dataclasses.replace(LOOP, seed=1)
    failed(bench.call(dataclasses.replace(call, reference=keep), other), "wrong-output", "check")


def test_one_thread_here_is_timed_by_its_cpu_time(kit: Kit) -> None:
    bench = Bench(kit.pool, TunedDevice(key="local", target=TARGET, threads=1), None)
    # Half of each call is waiting, which is what other processes make of one that is busy.
    body = "struct timespec t = {0, 4000000}; nanosleep(&t, 0); volatile int k = 0; while (k < 2000000) ++k;"
    try:
        said = timed(bench.call(vectors(library(kit, body)), LOOP))
    finally:
        bench.fresh()
    assert len(said.cpu_s) == len(said.times_s) == 3
    assert all(0 < cpu_s < wall_s - 0.003 for cpu_s, wall_s in zip(said.cpu_s, said.times_s, strict=True))


def test_samples_are_long_enough_by_cpu_time(kit: Kit) -> None:
    """A call that mostly waits, as on a busy machine: by the wall's clock three of them are a sample."""
    bench = Bench(kit.pool, TunedDevice(key="local", target=TARGET, threads=1), None)
    calls = kit.path(".txt")
    body = "struct timespec t = {0, 4000000}; nanosleep(&t, 0); volatile int k = 0; while (k < 20000) ++k;"
    body += f'FILE *f = fopen("{calls}", "a"); fputc(120, f); fclose(f);'
    try:
        said = timed(bench.call(vectors(library(kit, body)), dataclasses.replace(LOOP, min_repeat_ms=10)))
    finally:
        bench.fresh()
    assert len(said.cpu_s) == len(said.times_s) == 3
    assert calls.stat().st_size > 35, "ten times as many calls in each sample"


def test_nothing_that_was_uploaded_is_left(bench: Bench, kit: Kit, rpc_devices: Tracked) -> None:  # noqa: F811
    timed(bench.call(built(kit, kit.named("softmax")), LOOP))
    folder = kit.pool.folder if bench.device.key == "local" else rpc_devices.folder
    assert not list(folder.glob("**/*.so"))


def test_a_session_is_another_process(bench: Bench, kit: Kit) -> None:
    path = library(kit, "out[0] = getpid();")

    def pid() -> int:
        keep = kit.path(".npz")
        timed(bench.call(vectors(path, keep=keep), once(LOOP)))
        return int(outputs(keep)[0][0])

    first = pid()
    assert first != os.getpid() and pid() == first
    if bench.device.key == "local":
        # A child that was killed between two calls had the session.
        os.kill(first, signal.SIGKILL)
        while bench._worker.alive:
            time.sleep(0.01)
    else:
        bench.fresh()
    assert pid() != first


def test_only_this_machine_is_watched_and_its_processes_count_as_gnomons_own(bench: Bench, kit: Kit) -> None:
    call = vectors(library(kit, "out[0] = 1;"), keep=kit.path(".npz"))
    seen = len(bench.environments)
    with bench.watched():
        timed(bench.call(call, once(LOOP)))
    if bench.device.key != "local":
        assert not bench.environments
        return
    assert not bench._worker.alive
    (pair,) = bench.environments[seen:]
    before, after = pair["before"], pair["after"]
    assert before["pid"] == after["pid"] == os.getpid()
    # A process that imports TVM takes longer than this on any machine: its time is not taken for that of others.
    assert after["own_cpu_s"] - before["own_cpu_s"] > 0.1


def test_a_library_that_is_written_anew_is_another(bench: Bench, kit: Kit) -> None:
    path, keep = library(kit, "out[0] = 1;"), kit.path(".npz")
    for number in (1, 2):
        library(kit, f"out[0] = {number};", path)
        call = dataclasses.replace(vectors(path, keep=keep), function="main")
        timed(bench.call(call, once(LOOP)))
        assert outputs(keep)[0][0] == number


def test_wrong_outputs_are_told_and_not_timed(bench: Bench, kit: Kit) -> None:
    keep = kit.path(".npz")
    timed(bench.call(vectors(library(kit, "out[0] = 1; out[1] = 1000;"), keep=keep), once(LOOP)))
    for body, error in [
        ("", "by inf of"),  # what a function leaves as it was is not a result
        ("out[0] = 3; out[1] = 1000;", "by 0.002 of"),
        ("out[0] = NAN; out[1] = 1000;", "by inf of"),
        ("out[0] = INFINITY; out[1] = 1000;", "by inf of"),
    ]:
        call = vectors(library(kit, body), reference=keep)
        assert error in failed(bench.call(call, LOOP), "wrong-output", "check").message
    near = vectors(library(kit, "out[0] = 1.9; out[1] = 1000;"), reference=keep)
    assert timed(bench.call(near, LOOP)).error == pytest.approx(0.0009)
    shorter = dataclasses.replace(near, arguments=(VECTOR, ("float64", (3,))))
    failed(bench.call(shorter, LOOP), "wrong-output", "check")
    both = dataclasses.replace(near, outputs=(0, 1))
    failed(bench.call(both, LOOP), "wrong-output", "check")


def test_what_is_no_number_may_be_so_on_both_sides(bench: Bench, kit: Kit) -> None:
    path, keep = library(kit, "out[0] = NAN; out[1] = 5;"), kit.path(".npz")
    timed(bench.call(vectors(path, keep=keep), once(LOOP)))
    assert timed(bench.call(vectors(path, reference=keep), LOOP)).error == 0


def test_calls_that_cannot_be_made_are_refused_and_cost_no_session(bench: Bench, kit: Kit) -> None:
    path = built(kit, kit.named("softmax"))
    keep = kit.path(".npz")
    process = library(kit, "out[0] = getpid();")
    timed(bench.call(vectors(process, keep=keep), once(LOOP)))
    before = outputs(keep)[0][0]
    calls: list[tuple[LayerCall | NetworkCall, str]] = [
        (dataclasses.replace(path, function="nope"), "no function 'nope'"),
        (dataclasses.replace(path, arguments=(("float32", (3,)),) * 2), "Mismatched|expected"),
        (dataclasses.replace(path, arguments=(("bfloat16", (3,)),) * 2), "type bfloat16"),
        (dataclasses.replace(path, library=kit.path(".so")), "there is no library"),
        (dataclasses.replace(path, reference=kit.path(".npz")), "No such file"),
        (NetworkCall(library=path.library, inputs=kit.path(".npz")), "No such file"),
    ]
    for call, told in calls:
        assert re.search(told, failed(bench.call(call, LOOP), "refused").message)
    timed(bench.call(vectors(process, keep=keep), once(LOOP)))
    assert outputs(keep)[0][0] == before
    garbage = kit.path(".so")
    garbage.write_bytes(b"no library")
    assert "cannot be loaded" in failed(bench.call(dataclasses.replace(path, library=garbage), LOOP), "refused").message
    large = dataclasses.replace(path, arguments=(("float32", (1 << 40,)),) * 2)
    failed(bench.call(large, LOOP), "memory")


def read(kit: Kit, content: bytes) -> Sequence[TuningLayer]:
    path = kit.path(".onnx")
    path.write_bytes(content)
    return kit.network(Source(path=path)).layers(TARGET)


def test_arguments_of_any_kind(here: Bench, kit: Kit) -> None:
    """Scalars, indices, truth values, double precision, several outputs, and roots of what is never below 0."""
    from onnx import TensorProto, helper

    double, half = TensorProto.DOUBLE, TensorProto.FLOAT16
    model = graph(
        [
            helper.make_node("Gather", ["table", "index"], ["rows"]),
            helper.make_node("Sqrt", ["x"], ["roots"]),
            helper.make_node("Not", ["flag"], ["no"]),
            helper.make_node("Exp", ["d"], ["e"]),
            helper.make_node("Exp", ["h"], ["f"]),
            helper.make_node("Exp", ["s"], ["t"]),
        ],
        {
            "index": (INT64, [4]),
            "x": (FLOAT, [4, 3]),
            "flag": (BOOL, [2]),
            "d": (double, [5]),
            "h": (half, [5]),
            "s": (FLOAT, []),
        },
        {
            "rows": (FLOAT, [4, 3]),
            "roots": (FLOAT, [4, 3]),
            "no": (BOOL, [2]),
            "e": (double, [5]),
            "f": (half, [5]),
            "t": (FLOAT, []),
        },
        table=np.arange(30, dtype=np.float32).reshape(10, 3),
    )
    layers = [*read(kit, model.SerializeToString()), *read(kit, two_ends()), kit.named("maximum")]
    kinds = {(dtype, len(shape)) for layer in layers for dtype, shape in layer.arguments}
    assert {("bool", 1), ("int64", 1), ("float64", 1), ("float16", 1), ("float32", 0)} <= kinds
    widths = []
    for layer in layers:
        keep, call = kit.path(".npz"), built(kit, layer)
        widths.append(len(call.outputs))
        timed(here.call(dataclasses.replace(call, keep=keep), once(LOOP)))
        assert timed(here.call(dataclasses.replace(call, reference=keep), once(LOOP))).error == 0
        found = outputs(keep)
        assert [(str(o.dtype), o.shape) for o in found] == [layer.arguments[i] for i in call.outputs]
        assert all(np.isfinite(o.astype("float64")).all() for o in found)
    assert 2 in widths, "a layer that writes two tensors"


def test_a_network_is_compared_and_timed(bench: Bench, kit: Kit) -> None:
    network = kit.network(Source(path=kit.model))
    path, layers, inputs, keep = (kit.path(s) for s in (".so", ".so", ".npz", ".npz"))
    made = network.compile(bench.device, [], path, layers=layers, inputs=inputs)
    assert not isinstance(made, Failure), made
    by = network.reference(inputs, keep)
    assert isinstance(by, str), by
    call = NetworkCall(library=path, inputs=inputs, reference=keep)
    assert (timed(bench.call(call, LOOP)).error or 0) < 1e-5
    own = kit.path(".npz")
    timed(bench.call(NetworkCall(library=path, inputs=inputs, keep=own), LOOP))
    assert outputs(own)[0].shape == (1, 5)
    np.savez(keep, out_0=outputs(own)[0] + 1)
    failed(bench.call(call, LOOP), "wrong-output", "check")
    np.savez(keep, out_0=outputs(own)[0], out_1=outputs(own)[0])
    failed(bench.call(call, LOOP), "wrong-output", "check")
    # A function inside the network, by its name.
    one = kit.named("softmax")
    inner = LayerCall(library=layers, arguments=one.arguments, outputs=(1,), function=one.name)
    timed(bench.call(inner, LOOP))
    timed(bench.call(inner, LOOP))


@pytest.mark.parametrize(
    ("times", "cpu"),
    [([0.0], []), ([-1e-3], []), ([1e-3, float("nan")], []), ([float("inf")], []), ([], []), ([1e-3], [0.0])],
)
def test_times_that_none_can_be_are_a_failure(
    here: Bench, monkeypatch: pytest.MonkeyPatch, times: list[float], cpu: list[float]
) -> None:
    here.connect()
    said = {"times_s": times, "cpu_s": cpu}
    monkeypatch.setattr(here._worker, "ask", lambda *given, **named: {**said, "error": None})
    told = failed(here.call(vectors(Path("x.so")), LOOP), "wrong-output")
    assert "invalid times" in told.message and told.transient


# What happens to a call


def test_a_crash_here_is_data_and_one_that_does_not_come_again_is_none(here: Bench, kit: Kit, tmp_path: Path) -> None:
    # A device that vanished is asked again once: it may have been lost for a reason of its own.
    lost = library(kit, f'if (open("{tmp_path}/once", O_CREAT | O_EXCL, 0600) >= 0) abort();')
    timed(here.call(vectors(lost), LOOP))
    said = failed(here.call(vectors(library(kit, "*(volatile int*)8 = 1;")), LOOP), "crash")
    assert "twice" in said.message and "SIGSEGV" in said.message and not said.transient
    timed(here.call(vectors(library(kit, "")), LOOP))


def test_a_call_here_that_does_not_return_is_ended(here: Bench, kit: Kit) -> None:
    endless = vectors(library(kit, "for (;;) sleep(1);"))
    failed(here.call(endless, dataclasses.replace(LOOP, timeout_s=1.0)), "hang")
    assert not here._worker.alive


def test_a_call_away_that_does_not_return_keeps_its_server_for_a_moment_only(
    away: Bench, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.tuning.bench._MARGIN_S", 2.0)
    monkeypatch.setattr(away, "_wait_s", 0.5)
    away.fresh()
    short = dataclasses.replace(LOOP, timeout_s=2.0)
    # A server that ended at once would be as well; what counts is that it is there again for the next call.
    failed(away.call(vectors(library(kit, "for (;;) sleep(1);")), short), "hang")
    monkeypatch.setattr("gnomon.tuning.bench._MARGIN_S", 15.0)
    timed(away.call(vectors(library(kit, "")), LOOP))


def test_a_session_that_might_end_during_a_call_is_begun_anew(away: Bench, kit: Kit) -> None:
    path, keep = library(kit, "out[0] = getpid();"), kit.path(".npz")
    found = []
    for _ in range(2):
        timed(away.call(vectors(path, keep=keep), once(LOOP)))
        found.append(outputs(keep)[0][0])
        away._ends_s = time.monotonic() + LOOP.timeout_s - 1
    assert found[0] != found[1]


def test_a_server_that_crashed_is_waited_for_and_else_named(
    away: Bench,
    kit: Kit,
    tmp_path: Path,
    rpc_devices: Tracked,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gnomon.tuning.tracker._APPEAR_S", 0.5)
    lost = library(kit, f'if (open("{tmp_path}/once", O_CREAT | O_EXCL, 0600) >= 0) abort();')
    # Nobody starts it again: the culprit is named first, so that it is written down, and the next call is told.
    assert "did not come back" in failed(away.call(vectors(lost), LOOP), "crash").message
    with pytest.raises(DeviceError, match="wide") as gone:
        away.call(vectors(lost), LOOP)
    assert gone.value.hint
    monkeypatch.setattr("gnomon.tuning.tracker._APPEAR_S", 30.0)
    rpc_devices.revive()
    timed(away.call(vectors(lost), LOOP))


def test_a_server_that_stands_still_is_left_by_the_clock(
    away: Bench,
    kit: Kit,
    rpc_devices: Tracked,  # noqa: F811
) -> None:
    away.fresh()  # the shared child has one session at a time
    servers = TrackedDevice(tracker=rpc_devices.tracker, key="narrow")
    narrow = Bench(kit.pool, TunedDevice(key="narrow", target=TARGET), servers, wait_s=1.0)
    narrow._worker = kit.worker
    path, short = library(kit, ""), dataclasses.replace(LOOP, timeout_s=2.0)
    timed(narrow.call(vectors(path), LOOP))
    group = rpc_devices.of("narrow").group
    os.killpg(group, signal.SIGSTOP)
    try:
        failed(narrow.call(vectors(library(kit, "out[0] = 1;")), short), "hang")
        narrow._ends_s = 0.0
        with pytest.raises(DeviceError, match="narrow") as busy:
            narrow.call(vectors(path), short)
        assert busy.value.hint
    finally:
        os.killpg(group, signal.SIGCONT)
    narrow._wait_s = 30.0
    timed(narrow.call(vectors(path), LOOP))
    narrow.fresh()


def test_a_device_that_is_left_is_free_for_others(away: Bench, here: Bench, kit: Kit) -> None:
    path = library(kit, "")
    timed(away.call(vectors(path), LOOP))
    other = Bench(kit.pool, away.device, away._servers, wait_s=1.0)
    other._worker = here._worker
    here.fresh()
    with pytest.raises(DeviceError, match="became free"):
        other.call(vectors(path), LOOP)
    # Errors keep what they met: the session must end all the same.
    failed(away.call(dataclasses.replace(vectors(path), function="nope"), LOOP), "refused")
    away.fresh()
    other._wait_s = 5.0
    timed(other.call(vectors(path), LOOP))
    other.fresh()
    here.fresh()


def test_a_server_that_answers_no_more_is_told_with_the_next_step(
    away: Bench, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    away.fresh()
    free = type("Free", (), {"host": "127.0.0.1", "port": 1, "matchkey": "wide:0.1"})()
    monkeypatch.setattr(away, "_free", lambda: free)
    with pytest.raises(DeviceError, match="server on 'wide' does not answer") as gone:
        away.connect()
    assert "Check whether it runs" in gone.value.hint
    away._lost_in_turn = 0
