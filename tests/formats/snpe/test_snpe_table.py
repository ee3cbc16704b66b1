"""The replaced tool's csv, json and meta, letter for letter in and out, and hostile ones."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from tests.formats.scans import read_snpe_csv, read_snpe_json

from gnomon.errors import ProblemError
from gnomon.formats.snpe.meta import META_KEYS, read_snpe_meta, write_snpe_meta
from gnomon.formats.snpe.table import (
    scan_nnabla_csv,
    scan_snpe_csv,
    scan_snpe_json,
    write_snpe_csv,
    write_snpe_json,
)

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "snpe"
CONV = (
    "Conv[in_channels=192,out_channels=192,kernel=[5,5],stride=[1,1],pad=[2,2],dilation=None,base_axis=1,group=192,"
    "with_bias=False,fix_parameters=False,channel_last=False][[1,192,16,16]]"
)


def test_the_published_rows_are_written_letter_for_letter() -> None:
    text = (GOLDEN / "snpe-table.csv").read_text()
    table = read_snpe_csv(text)
    assert write_snpe_csv(table) == text.replace("\n", "\r\n")
    assert read_snpe_csv(write_snpe_csv(table).encode()) == table
    times = table[CONV]["GPU"]
    assert repr(times["Layers Time"]["Avg_Time"]) == "37.0"
    assert repr(times["Forward Propagate"]["Min_Time"]) == "595"
    assert times["Total Inference Time"]["Avg_Time"] == 700


def test_the_json_is_that_of_the_replaced_tool() -> None:
    """Its own lines, with the standard library alone."""
    table = read_snpe_csv((GOLDEN / "snpe-table.csv").read_text())
    simple: dict[str, dict[str, dict[str, dict[str, float]]]] = {CONV: {"GPU": {}}}
    for _, _, key, statistic, value in csv.reader((GOLDEN / "snpe-table.csv").read_text().splitlines()):
        number = float(value) if "." in value else int(value)
        simple[CONV]["GPU"].setdefault(key, {})[statistic] = number
    assert write_snpe_json(table) == json.dumps(simple)
    assert write_snpe_json(read_snpe_json(json.dumps(simple))) == json.dumps(simple)


def test_the_meta_file_is_written_letter_for_letter() -> None:
    text = (GOLDEN / "snpe-table.meta").read_text()
    meta = read_snpe_meta(text)
    assert tuple(meta) == META_KEYS
    assert meta["SNPE SDK version:"] == "1.33.1.608"
    assert write_snpe_meta(meta) == text.replace("\n", "\r\n")
    # The same as the replaced tool's writer.
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=":").writerows(meta.items())
    assert write_snpe_meta(meta) == out.getvalue()
    assert read_snpe_meta(out.getvalue()) == meta
    assert read_snpe_meta(text.replace('"', "")) == meta


def row(unit: str = "Conv[1,2]", runtime: str = "GPU", time: str = "37.0") -> str:
    return f'"{unit}",{runtime},Layers Time,Avg_Time,{time}\n'


def test_everything_wrong_with_a_csv_is_told_at_once_and_the_rest_kept() -> None:
    text = (
        row("A[1,2]")
        + row("/data/run/A[1,2]")
        + row("B[1,2]", time="0")
        + row("B[1,2]", time="FAILED")
        + row("C[1,2]")
        + row("C[1,2]")
        + row("C[1,2]", "a b")
        + "A[1],GPU,Layer Time,Avg_Time,5\n"
        + "A[1],GPU,Layers Time,Mean,5\n"
        + "D[1],cpu:float,0.5\n"
        + "short\n"
    )
    table, complaints = scan_snpe_csv(text)
    assert list(table) == ["A[1,2]", "C[1,2]"]
    told = "\n".join(complaints.sentences)
    for line, what in (
        (2, "without a slash"),
        (3, "a failed unit has no time"),
        (4, "those of line 3"),
        (6, "those of line 5"),
        (7, "a runtime such as"),
        (8, "'Forward Propagate', 'Total Inference Time' or 'Layers Time' expected"),
        (9, "'Min_Time', 'Avg_Time' or 'Max_Time' expected"),
        (10, "this is NNabla's table"),
        (11, "5 fields expected, 1 found"),
    ):
        assert any(text.startswith(f"line {line}: ") and what in text for text in complaints.sentences), (line, told)
    assert len(complaints.sentences) == 9
    with pytest.raises(ProblemError, match=r"line 2: .*; line 3: .*; line 11: "):
        read_snpe_csv(text)


def test_a_runtime_that_is_missing_is_told_and_the_rest_kept() -> None:
    text = row("A") + row("A", "DSP") + row("B") + row("C", "DSP")
    table, complaints = scan_snpe_csv(text)
    assert complaints.sentences == [
        "line 3: no times on DSP, although other units have them",
        "line 4: no times on GPU, although other units have them",
    ]
    assert table["C"]["DSP"]["Layers Time"]["Avg_Time"] == 37.0
    assert list(table["B"]) == ["GPU"]
    _, complaints = scan_nnabla_csv("A,cpu:float,1.5\nA,cudnn:float,0.5\nB,cpu:float,2\n")
    assert complaints.sentences == ["line 3: no times on cudnn:float, although other units have them"]
    _, complaints = scan_snpe_json(write_snpe_json(table))
    assert complaints.sentences[0].startswith("$.B: no times on DSP")


def test_a_long_name_is_a_name() -> None:
    name = "Concat[" + ",".join(["[1,32,16,16]"] * 40) + "]"
    assert len(name) > 300
    assert list(read_snpe_csv(row(name))) == [name]
    assert list(read_snpe_json(write_snpe_json(read_snpe_csv(row(name))))) == [name]


@pytest.mark.parametrize(
    "time", ["", "-1", "nan", "inf", "1e999", "0x10", "1_000", " 5", "5 ", "9" * 40, "1,5", "=1+1", "٣"]
)
def test_what_is_no_time_is_refused(time: str) -> None:
    with pytest.raises(ProblemError, match="line 1"):
        read_snpe_csv(row(time=time))


def test_nothing_is_good_of_names_that_are_no_text() -> None:
    table, complaints = scan_snpe_json('{"\\ud800": {"GPU": {"Layers Time": {"Avg_Time": 37.0, "Max_Time": 38.0}}}}')
    assert not table and complaints.sentences


def test_hostile_files_are_refused() -> None:
    with pytest.raises(ProblemError, match="line 2: not csv"):
        read_snpe_csv(row() + '"' + row() * 3)
    with pytest.raises(ProblemError, match="line 1: not csv: field larger"):
        read_snpe_csv(row("x" * 200_000))
    with pytest.raises(ProblemError, match="not UTF-8"):
        read_snpe_csv(b"\xff\xfe")
    with pytest.raises(ProblemError, match="characters"):
        read_snpe_csv(b"x" * ((64 << 20) + 1))
    with pytest.raises(ProblemError, match=r"and 9980 more"):
        read_snpe_csv("short\n" * 10_000)
    with pytest.raises(ProblemError, match="the table has no row"):
        read_snpe_csv("\n\n")
    with pytest.raises(ProblemError, match="given twice"):
        read_snpe_json('{"A": {}, "A": {}}')
    with pytest.raises(ProblemError, match="the table has no unit"):
        read_snpe_json("{}")


def test_everything_wrong_with_a_json_is_told_at_once() -> None:
    with pytest.raises(ProblemError) as told:
        read_snpe_json(
            json.dumps(
                {
                    "a/b": {},
                    "A": {"GPU": {"Layers Time": {"Avg_Time": 0}}, "C P U": {"Layers Time": {"Avg_Time": 5}}},
                    "B": {"GPU": {"Layers Time": {"Avg_Time": True, "Mean": 1}, "Other": {}}},
                    "C": [],
                    "D": {"GPU": 5},
                }
            )
        )
    for what in ("slash", "a failed unit has no time", "'C P U'", "$.B", "'Mean'", "'Other'", "$.C", "$.D"):
        assert what in told.value.message, what


def test_marks_of_byte_order_are_no_part_of_the_first_name() -> None:
    assert read_snpe_meta("\n\ufeffDate:today\n".encode()) == {"Date": "today"}
    meta = read_snpe_meta("\ufeff\ufeffDate:today\nDevices:a\n".encode())
    assert meta == {"Date": "today", "Devices": "a"}
    assert read_snpe_meta(write_snpe_meta(meta).encode()) == meta
