"""The adapter of ncnn: the shipped contract with the real runtime, and what it decides on its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gnomon.core.sample import Failure
from gnomon.errors import UsageError
from gnomon.formats.ncnn_param import parse_ncnn_param
from gnomon.models.model import Model
from gnomon.models.ncnn.model import load_ncnn
from gnomon.runtimes.base import Configuration, PlacedModel, Probe, RunSettings, Runtime
from gnomon.runtimes.ncnn import Ncnn
from gnomon.testing.runtime import RuntimeContract
from gnomon.wire import DeviceFound

PARAM = """7767517
5 6
Input                    in0                      0 1 in0 0=5 1=4 2=3
Split                    splitncnn_0              1 2 in0 1 2
ReLU                     relu_0                   1 1 1 3
UnaryOp                  square_0                 1 1 2 4 0=4 31=32
BinaryOp                 add_0                    2 1 3 4 out0 0=0
"""
CARD: DeviceFound = {"backend": "vulkan", "name": "Card", "software": False, "memory_bytes": 1 << 30}
PROBE = Probe(version="1", backends=("cpu", "vulkan"), details={"devices": [CARD]})
SOFTWARE = Probe(version="1", backends=("cpu", "vulkan"), details={"devices": [{**CARD, "software": True}]})
SEVERAL = Probe(
    version="1",
    backends=("cpu", "vulkan", "vulkan0", "vulkan1"),
    details={
        "devices": [
            {**CARD, "name": "llvmpipe (LLVM)"},
            {**CARD, "backend": "vulkan0", "name": "llvmpipe (LLVM)", "software": True},
            {**CARD, "backend": "vulkan1", "name": "SwiftShader Device", "software": True},
        ]
    },
)


def written(folder: Path) -> Path:
    path = folder / "m.param"
    path.write_text(PARAM)
    path.with_suffix(".bin").write_bytes(b"")
    return path


class TestNcnn(RuntimeContract):
    @pytest.fixture
    def adapter(self) -> Runtime:
        return Ncnn()

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return written(tmp_path)

    @pytest.fixture
    def model(self, path: Path) -> Model:
        return load_ncnn(path)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return load_ncnn(written(tmp_path))


@pytest.fixture
def placed(model: Model) -> PlacedModel:
    return PlacedModel(graph=model.graph, path="/there/m.param", inputs=("image",), outputs=("scores",))


def configuration(*backends: str) -> Configuration:
    return Ncnn().configurations(PROBE, RunSettings(backends=backends))[0]


def test_the_cpu_is_the_default_and_cannot_be_left_out() -> None:
    assert configuration().backends == ("cpu", "vulkan")
    assert configuration("vulkan", "cpu").backends == ("cpu", "vulkan")
    assert configuration("cpu").backends == ("cpu",)
    with pytest.raises(UsageError, match="needs the backend 'cpu'"):
        configuration("vulkan")
    only = Probe(version="1", backends=("cpu",), details={"lacking": {"vulkan": "ncnn finds no Vulkan device"}})
    assert Ncnn().configurations(only, RunSettings())[0].backends == ("cpu",)
    with pytest.raises(UsageError, match="no backend 'vulkan': ncnn finds no Vulkan device"):
        Ncnn().configurations(only, RunSettings(backends=("cpu", "vulkan")))


def test_vulkan_that_is_the_cpu_itself_is_measured_where_it_is_asked_for() -> None:
    assert Ncnn().configurations(SOFTWARE, RunSettings())[0].backends == ("cpu",)
    requested = Ncnn().configurations(SOFTWARE, RunSettings(backends=("cpu", "vulkan")))[0]
    assert requested.backends == ("cpu", "vulkan")
    assert [a.software for a in requested.accelerators] == [True]


def test_one_of_several_devices_is_chosen_by_its_number_or_a_part_of_its_name() -> None:
    def named(*backends: str) -> list[tuple[str, list[object]]]:
        made = Ncnn().configurations(SEVERAL, RunSettings(backends=("cpu", *backends)))
        assert all(c.reported == {"cpu": "cpu", "vulkan": c.backends[1]} for c in made)
        return [(c.name, c.options["device"]) for c in made]

    swiftshader = ("ncnn[vulkan1]", [1, "SwiftShader Device"])
    assert named("vulkan1") == named("vulkan:swift") == [swiftshader]
    assert named("vulkan") == [("ncnn", [-1, "llvmpipe (LLVM)"])]
    assert named("vulkan0", "vulkan1") == [("ncnn[vulkan0]", [0, "llvmpipe (LLVM)"]), swiftshader]
    assert named("vulkan:LLVM")[0][0] == "ncnn[vulkan0]"
    for wrong in ("vulkan:card", "vulkan:", "vulkan2", "metal:swift"):
        with pytest.raises(UsageError, match=f"no backend '{wrong}'") as refused:
            named(wrong)
        assert refused.value.hint.endswith("Vulkan devices: llvmpipe (LLVM), SwiftShader Device.")


def test_a_package_names_the_device_only_where_it_is_not_the_usual_one(model: Model, tmp_path: Path) -> None:
    for backend, kept in (("vulkan", False), ("vulkan1", True)):
        folder = tmp_path / backend
        folder.mkdir()
        chosen = Ncnn().configurations(SEVERAL, RunSettings(backends=("cpu", backend)))[0]
        made = Ncnn().package(model, chosen, {2: backend}, folder)
        assert made["options"]["vulkan"] == [2]
        assert ("device" in made["options"]) == kept


def test_a_segment_binds_blobs_to_the_users_tensors(placed: PlacedModel) -> None:
    segment = Ncnn().segment(placed, configuration(), {0: "cpu", 3: "vulkan", 1: "vulkan"})
    assert segment == {
        "runtime": "ncnn",
        "model": "/there/m.param",
        "options": {"threads": 1, "device": [-1, "Card"], "vulkan": [1, 3], "shapes": [[3, 4, 5]]},
        "inputs": [["in0", "image"]],
        "outputs": [["out0", "scores"]],
    }
    assert Ncnn().segment(placed, configuration(), {})["options"]["vulkan"] == []


@pytest.mark.parametrize("vulkan", [set[int](), {1, 3}])
def test_a_package_holds_the_masks(model: Model, tmp_path: Path, vulkan: set[int]) -> None:
    folder = tmp_path / "package"
    folder.mkdir()
    assignment = {k: "vulkan" if k in vulkan else "cpu" for k in range(5)}
    made = Ncnn().package(model, configuration(), assignment, folder)
    assert sorted(p.name for p in folder.iterdir()) == ["m.bin", "m.param"]
    assert made["model"] == "m.param"
    masks = [layer.integer(31) for layer in parse_ncnn_param((folder / "m.param").read_text()).layers]
    assert masks == ([16, 0, 16, 32, 16] if vulkan else [0, 0, 0, 32, 0])


class Device:
    """Answers trials: `crashing` types end the process when one of them lies on Vulkan."""

    def __init__(self, crashing: set[int], kept: set[int]) -> None:
        self.crashing, self.kept, self.asked = crashing, kept, 0

    def __call__(self, commands: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for key, command in commands.items():
            self.asked += 1
            wanted = set(command["segment"]["options"]["vulkan"])
            there = wanted - self.kept
            if wanted & self.crashing:
                answers[key] = Failure(stage="probe", kind="crash", transient=False, message="SIGSEGV")
            else:
                answers[key] = {"vulkan": sorted(there), "cpu": sorted(set(range(5)) - there)}
        return answers


def test_layers_that_ncnn_keeps_on_the_cpu_are_not_offered_to_vulkan(placed: PlacedModel) -> None:
    found = Ncnn().support(Device(set(), {0, 4}), placed, configuration())
    assert found.operators == {"cpu": frozenset(range(5)), "vulkan": frozenset({1, 2, 3})}
    assert found.failures == {}


def test_one_type_that_crashes_does_not_take_the_others_with_it(placed: PlacedModel) -> None:
    device = Device({3}, {0})
    found = Ncnn().support(device, placed, configuration())
    assert found.operators["vulkan"] == {1, 2, 4}
    assert found.failures["vulkan"].kind == "crash"
    assert device.asked == 2 + 5


def test_without_vulkan_it_is_not_asked_for(placed: PlacedModel) -> None:
    device = Device(set(), set())
    assert Ncnn().support(device, placed, configuration("cpu")).operators == {"cpu": frozenset(range(5))}
    assert device.asked == 1
