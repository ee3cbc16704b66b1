"""Blocks that are modules of PyTorch's, or ONNX files: their layers, and what is no block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnomon.errors import ProblemError
from gnomon.models.units import write_net
from gnomon.spaces import UNFUSED, BlockSpace, Choice, Net, from_onnx, from_torch, skip
from gnomon.spaces.unit import Trace

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
pytest.importorskip("onnx", reason="onnx is not installed")
nn = torch.nn

INPUT = (1, 3, 8, 8)


def labels(net: Net) -> list[str]:
    return [node.unit.label for node in net.nodes]


def conv(width: int) -> object:
    return lambda channels: nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())


def test_modules_are_the_layers_that_their_models_have() -> None:
    space = from_torch(
        {
            "width": {"narrow": conv(4), "wide": conv(8)},
            "depth": {"skip": skip, "once": conv(8), "attention": lambda c: Attention(c)},
        },
        input=[INPUT, (1, 3, 16, 16)],
        stem=nn.Conv2d(3, 4, 1),
        head=lambda channels: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)),
    )
    assert [slot.name for slot in space.space.slots] == ["resolution", "width", "depth"]
    assert labels(space.net([0, 1, 0])) == [
        "Conv 1x1 4 @ 1x3x8x8",
        "Conv 3x3 8 @ 1x4x8x8",
        "BatchNormalization @ 1x8x8x8",
        "Relu @ 1x8x8x8",
        "GlobalAveragePool @ 1x8x8x8",
        "Linear 10 @ 1x8x1x1",
    ]
    counted = space.tables(UNFUSED)
    assert counted.nets() == 12
    for assignment in ([0, 0, 2], [1, 1, 1]):
        own = space.net(assignment).counts()
        assert {unit: n for unit, n in zip(counted.units, counted.counts([assignment])[0], strict=True) if n} == own


class Attention(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(channels, num_heads=2, batch_first=True)

    def forward(self, x: Any) -> Any:
        y = x.flatten(2).transpose(1, 2)
        made: Any = x + self.attention(y, y, y, need_weights=False)[0].transpose(1, 2).reshape(x.shape)
        return made


def test_a_module_stands_beside_a_block_of_layers() -> None:
    module = nn.Conv2d(3, 16, 3, padding=1)
    blocks = {"torch": module, "layers": lambda x: x.conv(16, 3, bias=True), "class": Same, "none": nn.Identity()}
    space = BlockSpace(name="both", inputs=(INPUT,), parts=(Choice("a", blocks),))
    assert space.net([0]) == space.net([1])
    assert labels(space.net([2])) == ["Conv 1x1 3 @ 1x3x8x8"]
    assert labels(space.net([3])) == []
    assert module.training, "a module of the user's is not changed"


class Same(nn.Conv2d):  # type: ignore[misc, name-defined]
    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 1)


def test_onnx_files_are_named_by_slot_and_choice(tmp_path: Path) -> None:
    for name, width in (("first.narrow", 4), ("first.wide", 8), ("stem", 3)):
        trace = Trace((INPUT,))
        write_net(trace.net(trace.input().conv(width, 3).relu()), tmp_path / f"{name}.onnx", seed=0)
    space = from_onnx(tmp_path, input=INPUT)
    assert space.space.slots[0].choices == ("narrow", "wide")
    assert labels(space.net([1])) == [
        "Conv 3x3 3 @ 1x3x8x8",
        "Relu @ 1x3x8x8",
        "Conv 3x3 8 @ 1x3x8x8",
        "Relu @ 1x8x8x8",
    ]
    with pytest.raises(ProblemError, match="holds no blocks of a space"):
        from_onnx(tmp_path / "none", input=INPUT)


class Twice(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> tuple[Any, Any]:
        return x, x


class Sorted(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        made: Any = x.gather(1, x.argmax(1, keepdim=True))
        return made


def test_what_no_block_can_be_made_of_is_told(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="a list cannot be a block"):
        from_torch({"a": {"k": [nn.ReLU()]}}, input=INPUT)
    gone = from_torch({"a": {"k": tmp_path / "gone.onnx"}}, input=INPUT)
    with pytest.raises(
        ProblemError, match=r"a=k for the input shape \(1, 3, 8, 8\): there is no file .*gone.onnx"
    ) as told:
        gone.net([0])
    assert "gnomon.spaces.skip" in told.value.hint


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (lambda channels: "none", r"a=k for the input shape \(1, 3, 8, 8\): <lambda> is a str, not a torch.nn.Module"),
        (lambda channels: nn.Conv2d(0, 0, 0, 0), "<lambda> cannot be created for 3 input channels"),
        (nn.Conv2d(5, 5, 1), "PyTorch cannot export Conv2d: RuntimeError: .*expected input"),
        (Sorted(), "Sorted cannot be written as layers: .*ArgMax"),
    ],
    ids=["no-module", "fails", "unfit", "no-layers"],
)
def test_what_is_no_block_is_told_with_its_choice(block: object, said: str) -> None:
    space = from_torch({"a": {"k": block}}, input=INPUT)
    with pytest.raises(ProblemError, match=said):
        space.net([0])
