"""What snpe-dlc-info prints, of both layouts."""

from __future__ import annotations

import pytest

from gnomon.errors import ModelError
from gnomon.formats.snpe.meta import read_dlc_inputs

OLD = """
DLC info for: /tmp/model.dlc
Model Version: N/A
Model Copyright:N/A
-----------------------------------------------------------------------------------------------------------
| Id | Name   | Type          | Inputs | Outputs | Out Dims    | Runtimes | Parameters                     |
-----------------------------------------------------------------------------------------------------------
| 0  | x0     | data          | x0     | x0      | 1x16x16x36  | A D G C  | input_preprocessing: passthrough |
| 1  | x1     | data          | x1     | x1      | 1x16x16x36  | A D G C  | input_type: default            |
| 2  | y      | convolutional | x0     | y       | 1x16x16x192 | A D G C  | padding x: 2                   |
-----------------------------------------------------------------------------------------------------------
"""
NEW = """
------------------------------------------------------------------------------
| Input Name  | Dimensions   | Type      | Encoding Info                     |
------------------------------------------------------------------------------
| input       | 1,480,640,3  | Float_16  | No encoding info for this tensor  |
------------------------------------------------------------------------------
| Output Name  | Dimensions  | Type      | Encoding Info                     |
------------------------------------------------------------------------------
| output       | 100,6       | Float_16  | No encoding info for this tensor  |
------------------------------------------------------------------------------
"""


def test_the_layout_of_1_x_is_read() -> None:
    assert read_dlc_inputs(OLD) == (("x0", (1, 16, 16, 36)), ("x1", (1, 16, 16, 36)))


def test_the_layout_of_2_x_is_read() -> None:
    assert read_dlc_inputs(NEW) == (("input", (1, 480, 640, 3)),)


@pytest.mark.parametrize("text", ["", "ERROR_DL_CONTAINER: no DLC", NEW.partition("| input ")[0]])
def test_no_input_is_an_error(text: str) -> None:
    with pytest.raises(ModelError, match="names no input") as told:
        read_dlc_inputs(text)
    assert told.value.hint


@pytest.mark.parametrize("shape", ["1,-1,3", "", "dynamic", "0x3"])
def test_a_shape_that_is_not_fixed_is_an_error(shape: str) -> None:
    with pytest.raises(ModelError, match=r"names no input|in place of the shape of the input 'input'"):
        read_dlc_inputs(NEW.replace("1,480,640,3", shape))
