"""What the reference says of the inputs, and the doubts that follow from it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.bad_days.livekit import deaf_onnx, matmul_onnx, onnx_bytes

from gnomon.core.graph import Graph, Operator, Tensor
from gnomon.core.sample import Failure
from gnomon.errors import MeasurementError, UsageError
from gnomon.measure.effort import Effort
from gnomon.measure.environment import Caveat
from gnomon.session.judges import JudgedReference
from gnomon.session.model_session import open_session, own_tolerance
from gnomon.session.reference import NOT_COMPUTED, checked_by, doubts, reference
from gnomon.session.request import ModelRequest

onnx = pytest.importorskip("onnx", reason="needs onnx")


def quiet_lab(*environments: Any) -> Any:
    return SimpleNamespace(
        runner=SimpleNamespace(environments=environments), doubts=[], targets=(), model_changed=False
    )


def busy(foreign_s: float) -> dict[str, dict[str, float]]:
    before = {"pid": 1, "cpu_total_s": 0.0, "cpu_busy_s": 0.0, "own_cpu_s": 0.0}
    return {"before": before, "after": {"pid": 1, "cpu_total_s": 100.0, "cpu_busy_s": foreign_s, "own_cpu_s": 0.0}}


def test_the_worst_doubt_of_each_kind_is_told() -> None:
    found = doubts(quiet_lab(busy(11.0), busy(85.0), busy(12.0)), NOT_COMPUTED)
    assert [d.message for d in found] == ["other processes used 85% of the machine"]


@pytest.mark.parametrize(
    ("relative", "finite_share", "kinds", "told"),
    [
        (0.1, 1.0, [], ""),
        (0.0, 1.0, ["insensitive"], "hardly depend"),
        (0.1, 0.0, ["no-finite-output"], "holds no finite value"),
        (0.1, 0.875, ["not-finite"], "12 % of an output"),
        (0.1, 1 - 1e-7, ["not-finite"], "1e-05 % of an output"),
        (0.0, 0.0, ["insensitive", "no-finite-output"], "hardly depend"),
    ],
)
def test_what_the_reference_says_becomes_doubts(
    relative: float, finite_share: float, kinds: list[str], told: str
) -> None:
    found = doubts(quiet_lab(), {**NOT_COMPUTED, "relative": relative, "finite": finite_share})
    assert [d.kind for d in found] == kinds
    assert all(d.message and d.hint for d in found)
    assert told in "".join(d.message for d in found)


def failing_lab(*failures: Failure) -> Any:
    left = list(failures)
    runtime = SimpleNamespace(name="r", formats=frozenset({"onnx"}), segment=lambda *_: {"options": {}})
    targets = [
        SimpleNamespace(
            runtime=runtime,
            configuration=SimpleNamespace(environment={}, clean=True, checked=True, name=f"r{k}"),
            placed=None,
        )
        for k in range(len(left))
    ]
    return SimpleNamespace(
        targets=targets,
        placed=None,
        own=Path("m.onnx"),
        source=Path("m.onnx"),
        loaded="the model's file, unmodified",
        graph=SimpleNamespace(format="onnx"),
        outputs=[],
        doubts=[],
        probes={"r": SimpleNamespace(version="1")},
        link=None,
        request=SimpleNamespace(effort=Effort()),
        job=lambda segments: {},
        tolerance=lambda configuration: 1e-3,
        runner=SimpleNamespace(reference=lambda job, timeout_s: (None, left.pop(0))),
    )


def refused(message: str, kind: Any = "refused") -> Failure:
    return Failure(stage="load", kind=kind, transient=False, message=message)


def test_a_file_that_does_not_fit_is_not_blamed_on_the_runtimes() -> None:
    with pytest.raises(UsageError, match=r"^--input: input 'x': x\.npy holds"):
        reference(failing_lab(refused("Refused: no such operator"), refused("InputError: input 'x': x.npy holds no")))
    with pytest.raises(MeasurementError, match=r"r0.*r1"):
        reference(failing_lab(refused("ValueError: input 'x'"), refused("InputError: ", kind="crash")))


def test_who_checked_is_told_where_only_threads_are_undecided() -> None:
    right: JudgedReference = {**NOT_COMPUTED, "checked_by": "mnn"}
    for kind, expected in (("threads-undecided", "mnn"), ("judges-undecided", ""), ("unrepeatable", "")):
        assert checked_by(right, (), [Caveat(kind=kind, message="m", hint="h")]) == expected


def measured(model: bytes, folder: Path, effort: Effort, x: Any) -> tuple[JudgedReference, set[str]]:
    """The sensitivity and the kinds of doubt, from ONNX Runtime itself and an input in a file."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    (folder / "m.onnx").write_bytes(model)
    np.save(folder / "x.npy", x)
    request = ModelRequest(
        model=folder / "m.onnx", runtimes=("onnxruntime",), feeds={"x": folder / "x.npy"}, effort=effort
    )
    with open_session(request, kind="profile", question={}) as session:
        found = reference(session)
        return found, {d.kind for d in doubts(session, found)}


def test_real_inputs_from_files(tmp_path: Path, small: Effort) -> None:
    real = np.linspace(0, 1, 8, dtype=np.float32).reshape(1, 8)
    assert "insensitive" not in measured(matmul_onnx(), tmp_path, small, real)[1]
    assert "insensitive" in measured(deaf_onnx(), tmp_path, small, real)[1]


def test_a_reference_that_is_nowhere_finite(tmp_path: Path, small: Effort) -> None:
    root = onnx_bytes([onnx.helper.make_node("Sqrt", ["x"], ["y"])], {})
    found, kinds = measured(root, tmp_path, small, np.full((1, 8), -1.0, np.float32))
    assert (found["finite"], "no-finite-output" in kinds) == (0.0, True)
    assert math.isfinite(found["relative"])
    found, kinds = measured(root, tmp_path, small, np.arange(-2, 6, dtype=np.float32).reshape(1, 8))
    assert (found["finite"], "not-finite" in kinds) == (0.75, True)
    assert math.isfinite(found["relative"])


def test_a_change_of_speed_between_profile_and_proof_is_told() -> None:
    from gnomon.core.sample import Run, Samples
    from gnomon.measure.campaign import Measured
    from gnomon.session.reference import drift

    def steady(ns: int) -> Measured:
        samples = Samples(wall_ns=(ns,) * 4, cpu_ns=(ns,) * 4)
        run = Run(candidate="c", process=0, block=0, started_at_s=0.0, samples=samples)
        return Measured(key="c", runs=(run,), failure=None)

    assert drift(steady(1000), steady(1040), "cpu") is None
    slower, faster = drift(steady(1000), steady(1100), "cpu"), drift(steady(1100), steady(1000), "wall")
    assert slower is not None
    assert "10% slower" in slower.message
    assert faster is not None
    assert "10% faster" in faster.message
    assert drift(Measured(key="c", runs=(), failure=None), steady(1), "cpu") is None


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (("uint8", "float32", "float32"), 1e-3),  # an image, fed as it is
        (("float32", "int8", "float32"), 2 / 127),  # quantised inside
        (("float32", "float16", "float32"), 2e-2),
        (("float32", "bfloat16", "int8"), 5e-2),
        (("float32", "unknown", "int64"), 0.0),
    ],
)
def test_what_a_model_itself_computes_in_says_how_far_outputs_may_be_off(
    dtypes: tuple[str, str, str], expected: float
) -> None:
    tensors = tuple(Tensor(name=str(k), shape=(1,), dtype=dtype, size_bytes=None) for k, dtype in enumerate(dtypes))
    operators = tuple(
        Operator(index=k, name=str(k), type=kind, inputs=(k,), outputs=(k + 1,), macs=0)
        for k, kind in enumerate(("QuantizeLinear", "DequantizeLinear"))
    )
    graph = Graph(name="g", format="onnx", digest="", tensors=tensors, operators=operators, inputs=(0,), outputs=(2,))
    assert own_tolerance(graph) == expected
    weights = Tensor(name="w", shape=(1,), dtype="uint4", size_bytes=None, constant=True)
    held = replace(
        graph,
        tensors=(*tensors, weights),
        operators=(operators[0], replace(operators[1], type="MatMulNBits", inputs=(1, 3))),
    )
    assert own_tolerance(held) == max(expected, 2 / 127)
    halves = replace(held, tensors=(*tensors, replace(weights, dtype="float16")))
    assert own_tolerance(halves) == expected, "weights that are widened before they are used are exact"


@pytest.mark.parametrize(("format", "expected"), [("onnx", 1e-3), ("pt2", 1e-3), ("tflite", 2 / 127)])
def test_a_mask_of_bytes_is_no_reason_to_be_further_off(format: str, expected: float) -> None:
    tensors = tuple(
        Tensor(name=str(k), shape=(1,), dtype=dtype, size_bytes=None)
        for k, dtype in enumerate(("float32", "uint8", "float32"))
    )
    operators = tuple(
        Operator(index=k, name=str(k), type="Cast", inputs=(k,), outputs=(k + 1,), macs=0) for k in (0, 1)
    )
    graph = Graph(name="g", format=format, digest="", tensors=tensors, operators=operators, inputs=(0,), outputs=(2,))
    assert own_tolerance(graph) == expected
