"""The MobileNetV2 search space for CIFAR-10 from the documentation of nnabla-nas's SNPE profiler.

From nnabla_nas/contrib/mobilenet and examples/mobilenet_cifar10_search.json of sony/nnabla-nas (early 2020): 21 choice
blocks, each with six inverted residuals and, if the shape stays the same, a skip. The space has about 10^17 nets, with
126 unique modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gnomon.spaces.blocks import BlockSpace, Choice, skip
from gnomon.spaces.catalogue.inverted_residual import Classifier, ConvBlock, InvertedResidual, layers_of
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.uid import uid
from gnomon.spaces.unit import Unit

NAME = "mobilenetv2-cifar10"
SETTINGS = ((24, 4, 1), (32, 4, 1), (64, 4, 2), (96, 4, 1), (160, 4, 2), (320, 1, 1))
"""For each stage: its channels, its number of blocks, and the stride of its first block."""

CANDIDATES = ((3, 3), (6, 3), (3, 5), (6, 5), (3, 7), (6, 7))
"""The expansion and the kernel of each candidate, in the order of nnabla-nas's own list."""

CLASSES = 10


def mobilenetv2_cifar10() -> BlockSpace:
    """The space, with choices named as nnabla-nas names its candidates."""
    return BlockSpace(
        name=NAME,
        inputs=((1, 3, 32, 32),),
        parts=(
            ConvBlock(channels=32, kernel=3, stride=2),
            InvertedResidual(channels=16, kernel=3, expansion=1),
            *_choices(),
            ConvBlock(channels=1280, kernel=1),
            Classifier(classes=CLASSES),
        ),
    )


def module_uids(units: tuple[Unit, ...]) -> dict[str, Unit]:
    """The units of this space by the UIDs that nnabla-nas gives their modules.

    1x1 convolutions that reduce the channels are outside nnabla-nas's ConvBNReLU and have no padding: `pad=None`. All
    other convolutions are inside it and have padding.
    """
    return {uid(unit, bare_pad=_narrows(unit)): unit for unit in units}


def uids_of(space: str) -> Callable[[Unit], str]:
    """A function that returns the UID of a unit of a space, and raises ProblemError as `uid` does. For the space of
    this module, the UIDs are those of nnabla-nas.
    """
    if space != NAME:
        return uid
    own = {unit: text for text, unit in module_uids(mobilenetv2_cifar10().tables(UNFUSED).units).items()}
    return lambda unit: own.get(unit) or uid(unit)


def _narrows(unit: Unit) -> bool:
    first = unit.layers[0]
    return first.kind == "Conv" and first.pair("kernel") == (1, 1) and first.integer("out_channels") < unit.inputs[0][1]


def _choices() -> Iterator[Choice]:
    before = 16
    for number, (channels, stride) in enumerate(layers_of(SETTINGS)):
        blocks = {
            f"MB{e} {k}x{k}": InvertedResidual(channels=channels, kernel=k, expansion=e, stride=stride)
            for e, k in CANDIDATES
        }
        keeps = stride == 1 and before == channels
        yield Choice(f"block{number}", {**blocks, "skip_connect": skip} if keeps else blocks)
        before = channels
