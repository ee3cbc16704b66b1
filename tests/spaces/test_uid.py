"""Module UIDs of the replaced tool."""

from __future__ import annotations

import pytest

from gnomon.errors import ProblemError
from gnomon.spaces import Unit, layer
from gnomon.spaces.catalogue.mobilenetv2_cifar10 import mobilenetv2_cifar10, module_uids
from gnomon.spaces.uid import uid, unit_of_uid
from gnomon.spaces.unit import single

GOLDEN = (
    "Conv[in_channels=192,out_channels=192,kernel=[5,5],stride=[1,1],pad=[2,2],dilation=None,base_axis=1,group=192,"
    "with_bias=False,fix_parameters=False,channel_last=False][[1,192,16,16]]"
)


def test_the_published_uid_is_spelled_letter_for_letter() -> None:
    unit = single(layer("Conv", out_channels=192, kernel=5, pad=2, group=192), ((1, 192, 16, 16),))
    assert uid(unit) == GOLDEN and unit_of_uid(GOLDEN) == unit


@pytest.mark.parametrize(
    ("unit", "spelled"),
    [
        (single(layer("Relu6"), ((1, 32, 16, 16),)), "ReLU6[][[1,32,16,16]]"),
        (single(layer("Relu"), ((1, 32, 16, 16),)), "ReLU[inplace=False][[1,32,16,16]]"),
        (
            single(layer("BatchNormalization"), ((1, 32, 16, 16),)),
            "BatchNormalization[n_features=32,fix_parameters=False,eps=1e-05,decay_rate=0.9][[1,32,16,16]]",
        ),
        (single(layer("Add"), ((1, 24, 8, 8), (1, 24, 8, 8))), "Add2[][[1,24,8,8],[1,24,8,8]]"),
        (single(layer("GlobalAveragePool"), ((1, 1280, 4, 4),)), "GlobalAvgPool[][[1,1280,4,4]]"),
        (
            single(layer("Linear", out_features=10), ((1, 1280, 1, 1),)),
            "Linear[in_features=1280,out_features=10,base_axis=1,bias=True][[1,1280,1,1]]",
        ),
        (
            single(layer("MaxPool", kernel=3, stride=2, pad=1), ((1, 8, 8, 8),)),
            "MaxPool[kernel=[3,3],stride=[2,2],pad=[1,1],channel_last=False][[1,8,8,8]]",
        ),
    ],
)
def test_modules_are_spelled_and_read(unit: Unit, spelled: str) -> None:
    assert uid(unit) == spelled and unit_of_uid(spelled) == unit


def test_every_uid_of_the_space_is_read_back() -> None:
    for text, unit in module_uids(mobilenetv2_cifar10().tables().units).items():
        assert unit_of_uid(text) == unit


def test_a_padding_that_was_not_given_is_none() -> None:
    unit = single(layer("Conv", out_channels=8, kernel=1), ((1, 16, 4, 4),))
    assert "pad=[0,0]" in uid(unit) and "pad=None" in uid(unit, bare_pad=True)
    assert unit_of_uid(uid(unit, bare_pad=True)) == unit == unit_of_uid(uid(unit))
    # A pool without a stride steps by its kernel.
    text = "AvgPool[kernel=[2,2],stride=None,pad=None,channel_last=False][[1,8,8,8]]"
    assert unit_of_uid(text).layers[0].pair("stride") == (2, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a module UID"),
        ("Conv(kernel=(1,1))[(1,3,4,4)]", "not a module UID"),
        ("Swish[][[1,3,4,4]]", "'Swish' of a UID is not known"),
        ("Conv[kernel=[1,1]][[1,3,4,4]]", "lacks the argument 'out_channels'"),
        ("ReLU6[][[1,,4,4]]", "not a list of numbers"),
        ("ReLU6[][[1,0,4,4]]", "not shapes"),
        ("ReLU6[=][[1,3,4,4]]", "arguments"),
        (GOLDEN.replace("kernel=[5,5]", "kernel=[5]"), "must have two numbers"),
        (GOLDEN.replace("channel_last=False", "channel_last=True"), "channels last"),
        ("ReLU6[]" + "[" * 5000, "not a module UID"),
    ],
)
def test_what_is_no_uid_is_refused(text: str, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        unit_of_uid(text)


def test_chains_and_foreign_kinds_have_no_uid() -> None:
    chain = Unit(layers=(layer("Relu"), layer("Relu6")), inputs=((1, 3, 4, 4),))
    for unit in (chain, single(layer("HardSwish"), ((1, 3, 4, 4),))):
        with pytest.raises(ProblemError, match="not a module of nnabla-nas"):
            uid(unit)
