"""LiteRT on the device: outputs, bindings, where operators ran, and what its profiler tells."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.drivers.litertkit import SHAPE, tflite

from gnomon.agent.arrays import make_buffers
from gnomon.agent.driver import Refused
from gnomon.agent.drivers.litert import c_api
from gnomon.agent.drivers.litert.driver import NOTHING_TAKEN, LiteRtDriver
from gnomon.agent.drivers.litert.kernels import DELEGATE_KERNEL, OPERATOR, Event, match, rows
from gnomon.wire import KernelTimes

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")

X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


def expected(kinds: tuple[str, ...], x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the models of the kit compute, by numpy."""
    for number, kind in enumerate(kinds):
        if kind == "conv":
            w = np.random.default_rng(number).standard_normal((8, 1, 1, 8)).astype(np.float32)
            x = np.maximum(x @ w[:, 0, 0, :].T + np.float32(0.1), 0)
        elif kind == "softmax":
            e = np.exp(x - x.max(axis=-1, keepdims=True))
            x = e / e.sum(axis=-1, keepdims=True)
        else:
            x = np.mod(x, np.float32(0.7))
    return x


def segment(path: Path, kernels: str, threads: int = 1) -> Any:
    options = {"kernels": kernels, "threads": threads}
    return {
        "runtime": "litert",
        "model": str(path),
        "options": options,
        "inputs": [["i", "x"]],
        "outputs": [["o", "y"]],
    }


def written(folder: Path, *kinds: str) -> Path:
    path = folder / "m.tflite"
    path.write_bytes(tflite(*kinds))
    return path


def bound(like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of a job with the same shape, dtype and values."""
    (array,) = make_buffers({"a": {"shape": like.shape, "dtype": like.dtype.name}}).values()
    array[...] = like
    return array


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernels", ["xnnpack", "builtin", "reference"])
@pytest.mark.parametrize("kinds", [("conv", "softmax"), ("conv", "floor_mod", "conv")])
def test_outputs_are_right_and_follow_the_bound_arrays(
    tmp_path: Path, kernels: str, threads: int, kinds: tuple[str, ...]
) -> None:
    path = written(tmp_path, *kinds)
    buffers = {"x": bound(X), "y": bound(X)}
    loaded = LiteRtDriver().load(segment(path, kernels, threads), buffers, profiled=False)
    for scale in (1, 2):
        buffers["x"][...] = scale * X
        loaded.call()
        np.testing.assert_allclose(buffers["y"], expected(kinds, scale * X), rtol=1e-5, atol=1e-5)
    loaded.close()
    loaded.close()
    with pytest.raises(RuntimeError):
        loaded.call()


def test_memory_that_is_used_in_place_stays_until_the_model_is_closed(tmp_path: Path) -> None:
    model = c_api.CompiledModel(str(written(tmp_path, "conv")), kernels="xnnpack", threads=1, profiled=False)
    arrays = [bound(np.zeros(SHAPE, np.float32)) for _ in range(2)]
    held = [weakref.ref(array) for array in arrays]
    run = model.bind(arrays[:1], arrays[1:])
    del arrays
    gc.collect()
    assert all(one() is not None for one in held), "LiteRT computes on memory that is somebody else's by now"
    run()
    model.close()
    gc.collect()
    assert all(one() is None for one in held)


@pytest.mark.parametrize("kernels", ["xnnpack", "builtin", "reference"])
def test_what_does_not_fit_the_model_is_refused(tmp_path: Path, kernels: str) -> None:
    path = written(tmp_path, "conv")
    good = bound(np.zeros(SHAPE, np.float32))
    for x, y in ((np.zeros((1, 4, 4, 4), np.float32), good), (good, np.zeros(SHAPE, np.int32)), (good[0], good)):
        with pytest.raises(Refused, match="bound to"):
            LiteRtDriver().load(segment(path, kernels), {"x": x, "y": y}, profiled=False)
    two: Any = {**segment(path, kernels), "inputs": [["i", "x"], ["j", "x"]]}
    with pytest.raises(Refused, match="inputs in the model: 1, in the job: 2"):
        LiteRtDriver().load(two, {"x": good, "y": good}, profiled=False)


@pytest.mark.parametrize("kernels", ["reference", "builtin", "xnnpack"])
def test_an_open_shape_is_what_is_fed_and_its_output_is_made(tmp_path: Path, kernels: str) -> None:
    """The interpreter runs it, as whoever has two lines of Python would."""
    path = tmp_path / "m.tflite"
    path.write_bytes(tflite("conv", signature=(1, -1, 4, 8)))
    x = np.ascontiguousarray(np.concatenate([X, X], axis=1))
    buffers = {"x": x}
    asked = segment(path, kernels)
    asked["options"]["interpreted"] = True
    assert LiteRtDriver().supports(asked) == {"whole": True, "options": {"interpreted": True}}
    loaded = LiteRtDriver().load(asked, buffers, profiled=False)
    try:
        loaded.call()
        made = buffers["y"]
        backends = [row["backend"] for row in loaded.where()]
    finally:
        loaded.close()
    assert made.shape == x.shape
    np.testing.assert_allclose(made[:, : X.shape[1]][:, 1:-1], made[:, X.shape[1] :][:, 1:-1], rtol=1e-5)
    assert backends == [kernels]


def test_a_version_that_would_misread_its_settings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for old in ("2.1.5", "1.4.0"):
        monkeypatch.setattr(c_api, "version", lambda old=old: old)
        with pytest.raises(Refused, match=r"2\.1\.6 or later"):
            c_api.load_library()
    for new in ("2.1.6", "3.0", "unknown"):
        monkeypatch.setattr(c_api, "version", lambda new=new: new)
        c_api.load_library()


def test_unknown_kernels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="xnnpack, builtin, reference"):
        LiteRtDriver().supports(segment(written(tmp_path, "conv"), "warp"))


PLACES = [
    (("conv", "conv"), "xnnpack", [([0, 1], "xnnpack")], []),
    (("conv", "floor_mod", "conv", "floor_mod"), "xnnpack", [([0, 2], "xnnpack"), ([1, 3], "builtin")], [1, 3]),
    (("floor_mod",), "xnnpack", [([0], NOTHING_TAKEN)], [0]),
    (("conv", "floor_mod"), "builtin", [([0, 1], "builtin")], []),
    (("conv", "floor_mod"), "reference", [([0, 1], "reference")], []),
]


@pytest.mark.parametrize(("kinds", "kernels", "places", "left"), PLACES)
def test_where_operators_run_and_what_xnnpack_leaves_is_told(
    tmp_path: Path, kinds: tuple[str, ...], kernels: str, places: list[Any], left: list[int]
) -> None:
    asked, buffers = segment(written(tmp_path, *kinds), kernels), {"x": bound(X), "y": bound(X)}
    loaded = LiteRtDriver().load(asked, buffers, profiled=False)
    assert [(row["operators"], row["backend"]) for row in loaded.where()] == places
    loaded.close()
    if len(left) < len(kinds):
        assert LiteRtDriver().supports(asked) == {"whole": True, **({"builtin": left} if kernels == "xnnpack" else {})}


def profile(path: Path, kernels: str, threads: int = 1, calls: int = 5, skip: int = 2) -> list[KernelTimes]:
    buffers = {"x": bound(X), "y": bound(X)}
    loaded = LiteRtDriver().load(segment(path, kernels, threads), buffers, profiled=True)
    for _ in range(calls):
        loaded.call()
    told = loaded.operators(skip)
    assert all(len(row["wall_ns"]) == calls - skip for row in told)
    assert all(isinstance(ns, int) and ns >= 0 for row in told for ns in row["wall_ns"])
    return told


def test_the_profiler_tells_each_operator_and_where_it_ran(tmp_path: Path) -> None:
    path = written(tmp_path, "conv", "floor_mod", "conv", "softmax")
    told = profile(path, "xnnpack")
    assert [(r["sources"], r["backend"]) for r in told] == [
        ([0], "xnnpack"),
        ([1], "builtin"),
        ([2], "xnnpack"),
        ([3], "xnnpack"),
    ]
    assert [(r["sources"], r["backend"]) for r in profile(path, "builtin")] == [([i], "builtin") for i in range(4)]


@pytest.mark.parametrize(("kernels", "threads"), [("reference", 1), ("builtin", 2)])
def test_without_a_profiler_there_is_one_row_of_the_whole_graph(tmp_path: Path, kernels: str, threads: int) -> None:
    (row,) = profile(written(tmp_path, "conv", "softmax"), kernels, threads)
    assert (row["name"], row["sources"], row["backend"]) == ("whole graph", [0, 1], kernels)
    assert all(row["wall_ns"])


def test_a_real_model_is_profiled_operator_by_operator(zoo_model: Any) -> None:
    path = zoo_model("efficientnet-lite0.tflite")
    x, y = bound(np.zeros((1, 224, 224, 3), np.float32)), bound(np.zeros((1, 1000), np.float32))
    for kernels in ("xnnpack", "builtin"):
        loaded = LiteRtDriver().load(segment(path, kernels), {"x": x, "y": y}, profiled=True)
        for _ in range(3):
            loaded.call()
        told = loaded.operators(1)
        assert sorted(i for row in told for i in row["sources"]) == list(range(62))
        assert {row["backend"] for row in told} == {kernels}
        assert sum(min(row["wall_ns"]) for row in told) > 1_000_000


CONV, DENSE, ADD, RESHAPE, PAD = 3, 9, 0, 22, 34


def test_kernels_find_their_operators() -> None:
    kernels = ["Convolution (NHWC, F32) IGEMM", "Add (ND)", "Static Reshape (NC)", "Fully Connected (NC, F32) GEMM"]
    assert match(kernels, {4: PAD, 5: CONV, 7: ADD, 8: DENSE}) == [(5,), (7,), (), (8,)]
    assert match(kernels, {4: CONV, 5: RESHAPE, 7: ADD, 8: DENSE}) == [(4,), (7,), (), (8,)]
    assert match(kernels[:1], {4: CONV, 5: CONV}) is None
    assert match(kernels, {4: DENSE, 5: CONV}) is None


@given(
    st.lists(st.sampled_from([("Convolution (X) Y", CONV), ("Add (ND)", ADD), ("Fully Connected", DENSE), ("", PAD)])),
    st.data(),
)
def test_kernels_of_any_chain_find_their_operators(chain: list[tuple[str, int]], data: st.DataObject) -> None:
    indices = sorted(data.draw(st.sets(st.integers(0, 200), min_size=len(chain), max_size=len(chain))))
    operators = dict(zip(indices, (code for _, code in chain), strict=True))
    kernels: list[str] = []
    truth: list[tuple[int, ...]] = []
    for index, (name, _) in zip(indices, chain, strict=True):
        if name:
            kernels.append(name)
            truth.append((index,))
        if data.draw(st.booleans()):
            kernels.append("Convert (NC, F32, QS8)")  # added by XNNPACK itself
            truth.append(())
    assert match(kernels, operators) == truth


def test_events_that_cannot_be_told_apart_make_one_row_of_the_delegate() -> None:
    events = [
        Event(name="Something new", type=DELEGATE_KERNEL, index=0, subgraph=0),
        Event(name="FLOOR_MOD", type=OPERATOR, index=1, subgraph=0),
        Event(name="Something new", type=DELEGATE_KERNEL, index=0, subgraph=0),
    ]
    times, codes = np.array([[1, 10, 100, 1000], [2, 20, 200, 2000]]), (CONV, 95, CONV)
    assert rows(events, codes, times) == [
        {"name": "FLOOR_MOD 1", "sources": [1], "backend": "builtin", "wall_ns": [10_000, 20_000]},
        {"name": "xnnpack", "sources": [0, 2], "backend": "xnnpack", "wall_ns": [101_000, 202_000]},
    ]
    assert rows(events[1:2], codes, times) is None  # the delegate ran, and told nothing
    inner = Event(name="ADD", type=OPERATOR, index=0, subgraph=1)
    assert rows([*events, inner], codes, times) is None


def test_threads_are_started(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(tflite("conv", "conv", shape=(1, 64, 64, 64)))
    script = (
        "import json, os, sys\n"
        "from gnomon.agent.arrays import make_buffers\n"
        "from gnomon.agent.drivers.litert.driver import LiteRtDriver\n"
        "buffers = make_buffers({name: {'shape': (1, 64, 64, 64), 'dtype': 'float32'} for name in 'xy'})\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "m = LiteRtDriver().load(json.loads(sys.argv[1]), buffers, profiled=False)\n"
        "m.call()\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    for kernels in ("xnnpack", "builtin"):
        started = []
        for threads in (1, 3):
            asked = json.dumps(segment(path, kernels, threads))
            done = subprocess.run([sys.executable, "-c", script, asked], capture_output=True, text=True, check=True)
            started.append(int(done.stdout))
        assert started[0] == 0
        assert started[1] >= 2
