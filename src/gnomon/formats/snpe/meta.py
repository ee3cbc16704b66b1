"""What is known of an SNPE measurement beside its times: the meta file of a table, and the inputs of a model.

The meta file beside a latency table of nnabla-nas has ``key:value`` lines about the phone and the SDK. It is a csv
whose comma is a colon, so that a key or a value with a colon in it stands in quotes:
``"SNPE SDK version:":1.33.1.608``. Lines end in CR LF. Source: create_latency_table.py of sony/nnabla-nas.

Names and shapes of the inputs of a converted model stand in what snpe-dlc-info prints. SDK 1.x prints a row a layer,
``| Id | Name | Type | Inputs | Outputs | Out Dims | ...``, in which inputs have the type ``data`` (nas_snpe_bench.py
of sony/nnabla-nas reads it so). SDK 2.x prints a table of its own for inputs,
``| Input Name | Dimensions | Type | Encoding Info |`` (shown in luxonis/modelconverter, pull request 155).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gnomon.core.strict_json import Complaints, shown
from gnomon.errors import ModelError
from gnomon.formats.snpe.table import csv_rows, line_of, written

META_KEYS = (
    "ro.product.model",
    "ro.product.board",
    "ro.product.cpu.abi",
    "ro.build.version.sdk",
    "ro.product.manufacturer",
    "Date",
    "Architectures",
    "Devices",
    "SNPE SDK version:",
)
"""What the replaced tool takes over of the results of snpe-bench, in its order."""

_HINT = "Give the .meta file that create_latency_table.py of nnabla-nas wrote beside its csv."
_MOST_LINES = 10_000
_MOST_LETTERS = 16 << 20
_SHAPE = re.compile(r"\[?\s*([0-9]{1,9}(?:\s*[x,]\s*[0-9]{1,9}){0,7})\s*\]?", re.ASCII)


def read_snpe_meta(text: str | bytes) -> dict[str, str]:
    """What a meta file says, in its order, also one whose quotes were lost.

    ProblemError with all that is wrong, each with its line.
    """
    complaints = Complaints(what="meta file of a latency table", hint=_HINT)
    values: dict[str, str] = {}
    for line, row in csv_rows(text, complaints, _MOST_LINES, ":"):
        key, value = _pair(row)
        if value is None or not key:
            complaints.tell(line_of(line), f"key:value expected, {shown(':'.join(row))} found")
        elif key in values:
            complaints.tell(line_of(line), f"the key {shown(key)} is there twice")
        else:
            values[key] = value
    complaints.raise_any()
    return values


def write_snpe_meta(meta: Mapping[str, str]) -> str:
    """The meta file, letter for letter as the replaced tool writes it."""
    return written(meta.items(), ":")


def _pair(row: list[str]) -> tuple[str, str | None]:
    if len(row) == 2:
        return row[0], row[1]
    whole = ":".join(row)
    for key in META_KEYS:  # one of them ends in a colon itself
        if whole.startswith(f"{key}:"):
            return key, whole[len(key) + 1 :]
    return row[0], whole[len(row[0]) + 1 :] if len(row) > 1 else None


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
            f"snpe-dlc-info reports {shown(text)} in place of the shape of the input {shown(name)}",
            hint="Give the model fixed input shapes.",
        )
    return shape
