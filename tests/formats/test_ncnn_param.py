"""The .param text of ncnn: round trips, what is refused, and masks."""

from __future__ import annotations

import re

import pytest

from gnomon.errors import ModelError
from gnomon.formats.ncnn_param import ARRAY, parse_ncnn_param, write_ncnn_param

SMALL = """7767517
5 6
Input                    in0                      0 1 in0 0=8 1=8 2=3
Convolution              conv_0                   1 1 in0 1 0=4 1=3 -23310=2,0.0,6.0 6=108 9=3
Split                    splitncnn_0              1 2 1 2 3
ReLU                     relu_0                   1 1 2 4 31=4
BinaryOp                 add_0                    2 1 4 3 out0 0=0
"""


def test_the_text_of_ncnns_own_tools_is_kept_to_the_letter() -> None:
    assert write_ncnn_param(parse_ncnn_param(SMALL)) == SMALL


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("7767517", "7767518", "does not begin"),
        ("5 6", "5", "does not state the numbers of layers"),
        ("5 6", "999999999 6", "claims 999999999 layers"),
        ("5 6", "6 6", "claims 6 layers, but has 5"),
        ("5 6", "5 5", "claims 5 blobs, but has 6"),
        ("1 1 2 4", "1 1 9 4", "reads '9', which no earlier layer writes"),
        ("2 1 4 3", "2 1 4 2", "two layers that read '2'"),
        ("1 1 2 4", "1 1 2 3", "two layers that write '3'"),
        ("1 1 2 4", "1 70 2 4", "fewer blobs"),
        ("1 1 2 4", "1 -1 2 4", "not a layer"),
        ("-23310=2", "-23310=3", "whose length differs from the announced length"),
        ("0=4 1=3", "0=4 0=3", "twice"),
        ("0=4", "0 4", "where key=value is expected"),
    ],
)
def test_what_is_wrong_is_said(old: str, new: str, why: str) -> None:
    assert old in SMALL
    with pytest.raises(ModelError, match=re.escape(why)):
        parse_ncnn_param(SMALL.replace(old, new, 1))


def test_a_text_without_end_is_refused_before_it_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.formats.ncnn_param.MAX_CHARACTERS", 10)
    with pytest.raises(ModelError, match="longer than 10"):
        parse_ncnn_param(SMALL)


def test_masks_keep_other_bits_and_other_layers() -> None:
    param = parse_ncnn_param(SMALL)
    masked = param.masked({1, 3})
    assert [layer.integer(31) for layer in masked.layers] == [0, 16, 0, 20, 0]
    assert [layer for k, layer in enumerate(masked.layers) if k not in {1, 3}] == [
        layer for k, layer in enumerate(param.layers) if k not in {1, 3}
    ]
    assert masked.masked({1, 3}) == masked


def test_parameters_are_read_by_kind() -> None:
    conv = parse_ncnn_param(SMALL).layers[1]
    assert (conv.integer(0), conv.integer(31, 7)) == (4, 7)
    assert conv.text(99) is None
    with pytest.raises(ModelError, match="a value that is not an integer"):
        conv.integers(10)
    with pytest.raises(ModelError, match="not an integer"):
        conv.with_integer(0, 1).integer(ARRAY - 10)
