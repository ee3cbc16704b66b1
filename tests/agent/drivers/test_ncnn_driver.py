"""ncnn's driver with the real runtime: values, places, steps, masks, and clear refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

ncnn = pytest.importorskip("ncnn")

from gnomon.agent.driver import Refused  # noqa: E402
from gnomon.agent.drivers.ncnn import NcnnDriver, masked  # noqa: E402
from gnomon.formats.ncnn_param import parse_ncnn_param  # noqa: E402

HAS_VULKAN = ncnn.get_gpu_count() > 0
needs_vulkan = pytest.mark.skipif(not HAS_VULKAN, reason="ncnn finds no Vulkan device (Debian: mesa-vulkan-drivers)")

PARAM = """7767517
5 6
Input                    in0                      0 1 in0 0=5 1=4 2=3
Split                    splitncnn_0              1 2 in0 1 2
ReLU                     relu_0                   1 1 1 3
UnaryOp                  square_0                 1 1 2 4 0=4
BinaryOp                 add_0                    2 1 3 4 out0 0=0
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """relu(x) + x * x; odd sizes, so that ncnn's channels are not laid out as numpy's."""
    path = tmp_path / "m.param"
    path.write_text(PARAM)
    path.with_suffix(".bin").write_bytes(b"")
    return path


def job(path: Path, vulkan: list[int]) -> tuple[Any, dict[str, Any]]:
    x = np.random.default_rng(3).standard_normal((1, 3, 4, 5)).astype(np.float32)
    options = {"threads": 1, "vulkan": vulkan, "shapes": [[3, 4, 5]]}
    segment = {"model": str(path), "options": options, "inputs": [["in0", "x"]], "outputs": [["out0", "y"]]}
    return segment, {"x": x, "y": np.zeros_like(x)}


def expected(x: Any) -> Any:
    return np.maximum(x, 0) + x * x


PLACES = [pytest.param([], id="cpu"), *(pytest.param(v, marks=needs_vulkan) for v in ([1, 2, 3, 4], [2, 4], [3]))]


@pytest.mark.parametrize("vulkan", PLACES)
@pytest.mark.parametrize("profiled", [False, True])
def test_values_places_and_steps_are_right_wherever_layers_lie(path: Path, vulkan: list[int], profiled: bool) -> None:
    segment, buffers = job(path, vulkan)
    model = NcnnDriver().load(segment, buffers, profiled=profiled)
    for seed in range(3):
        before = np.random.default_rng(seed).standard_normal(buffers["x"].shape).astype(np.float32)
        buffers["x"][:] = before
        buffers["y"][:] = np.nan
        model.call()
        np.testing.assert_allclose(buffers["y"], expected(before), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(buffers["x"], before)
    told = {row["backend"]: row["operators"] for row in model.where()}
    assert told.get("vulkan", []) == vulkan
    assert told["cpu"] == [k for k in range(5) if k not in vulkan]
    assert NcnnDriver().supports(segment) == {"cpu": told["cpu"], "vulkan": vulkan}
    if profiled:
        rows = model.operators(1)
        assert [row["sources"] for row in rows] == [[k] for k in range(5)]
        assert [len(row["wall_ns"]) for row in rows] == [2] * 5
        assert all(t > 0 for row in rows[1:] for t in row["wall_ns"])
        assert [row["backend"] == "vulkan" for row in rows] == [k in vulkan for k in range(5)]
    model.close()
    model.close()


@needs_vulkan
def test_an_input_stays_on_the_cpu_whatever_is_asked(path: Path) -> None:
    segment, _ = job(path, [0, 1, 2, 3, 4])
    assert NcnnDriver().supports(segment) == {"cpu": [0], "vulkan": [1, 2, 3, 4]}


def test_masks_of_the_driver_are_those_of_the_host() -> None:
    given = parse_ncnn_param(PARAM).masked({1})
    for vulkan in ([], [2], [1, 2, 3, 4]):
        own = parse_ncnn_param(masked(PARAM.replace("1 2 in0 1 2", "1 2 in0 1 2 31=16"), vulkan))
        assert own == given.masked(set(range(5)) - set(vulkan))


def test_what_is_refused(path: Path) -> None:
    driver = NcnnDriver()
    segment, buffers = job(path, [])
    with pytest.raises(Refused, match=r"\(1, 3, 4, 5\) does not fill an input blob of shape \(3, 4, 6\)"):
        driver.load(segment | {"options": {"shapes": [[3, 4, 6]]}}, buffers, profiled=False)
    with pytest.raises(Refused, match=r"has no 'in7'; it has in0, out0"):
        driver.load(segment | {"inputs": [["in7", "x"]]}, buffers, profiled=False)
    model = driver.load(segment, {**buffers, "y": np.zeros((1, 4, 5), np.float32)}, profiled=False)
    with pytest.raises(Refused, match=r"output 'out0' has the shape \(3, 4, 5\) instead of \(1, 4, 5\)"):
        model.call()
    path.with_suffix(".bin").unlink()
    with pytest.raises(Refused, match=r"cannot load m\.bin"):
        driver.load(segment, buffers, profiled=False)
    path.write_text(PARAM.replace("ReLU ", "Nope "))
    with pytest.raises(Refused, match=r"cannot load m\.param"):
        driver.load(segment, buffers, profiled=False)


def test_the_probe_names_no_device_that_cannot_be_used(path: Path) -> None:
    found = NcnnDriver().probe()
    assert found["version"] == ncnn.__version__
    assert found["backends"][:2] == (["cpu", "vulkan"] if HAS_VULKAN else ["cpu"])
    assert ("devices" in found) == HAS_VULKAN == ("lacking" not in found)
    for device in found.get("devices", ()):
        assert device["software"] or not any(word in device["name"] for word in ("llvmpipe", "SwiftShader"))
        assert (device["memory_bytes"] or 0) > 0
        segment, buffers = job(path, [2])
        segment["options"]["device"] = [0, device["name"]]
        told = NcnnDriver().load(segment, buffers, profiled=False).where()
        assert [row.get("device") for row in told] == [None, device["name"]]


@needs_vulkan
def test_a_device_that_is_not_there_is_no_other(path: Path) -> None:
    segment, buffers = job(path, [2])
    segment["options"]["device"] = [0, "Warp Drive 3000"]
    with pytest.raises(Refused, match="no Vulkan device 'Warp Drive 3000' here; there are "):
        NcnnDriver().load(segment, buffers, profiled=False)
