"""What snpe-dlc-info prints, as far as the inputs of a converted model go: their names and shapes.

SDK 1.x prints a row a layer, ``| Id | Name | Type | Inputs | Outputs | Out Dims | ...``, in which inputs have the type
``data`` (nas_snpe_bench.py of sony/nnabla-nas reads it so). SDK 2.x prints a table of its own for inputs,
``| Input Name | Dimensions | Type | Encoding Info |`` (shown in luxonis/modelconverter, pull request 155).
"""

from __future__ import annotations

import re

from gnomon.core.strict_json import shown
from gnomon.errors import ModelError

_MOST_LETTERS = 16 << 20
_SHAPE = re.compile(r"\[?\s*([0-9]{1,9}(?:\s*[x,]\s*[0-9]{1,9}){0,7})\s*\]?", re.ASCII)


def read_dlc_inputs(printed: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Each input's name and shape, in the order of the model. ModelError if none can be read."""
    found: dict[str, tuple[int, ...]] = {}
    table = ""
    for line in printed[:_MOST_LETTERS].splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) < 4:
            continue
        if fields[1] in ("Id", "Input Name", "Output Name", "Tensor Name"):
            table = fields[1]
        elif table == "Id" and len(fields) > 6 and fields[1].isdigit() and fields[3] == "data":
            found[fields[2]] = _shape(fields[6], fields[2])
        elif table == "Input Name" and fields[1] and fields[2]:
            found[fields[1]] = _shape(fields[2], fields[1])
    if not found:
        last = (printed.strip().splitlines() or ["nothing"])[-1]
        raise ModelError(
            f"snpe-dlc-info names no input of the converted model: it says {shown(last)}",
            hint="Run snpe-dlc-info by hand, and see whether the SDK is complete.",
        )
    return tuple(found.items())


def _shape(text: str, name: str) -> tuple[int, ...]:
    match = _SHAPE.fullmatch(text)
    shape = () if match is None else tuple(int(number) for number in re.split("[x,]", match[1]))
    if not shape or 0 in shape:
        raise ModelError(
            f"snpe-dlc-info tells no shape of the input {shown(name)} but {shown(text)}",
            hint="Give the model fixed input shapes.",
        )
    return shape
