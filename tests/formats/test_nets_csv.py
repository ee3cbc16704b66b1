"""Nets as csv: what is written is read, in any order of columns and unit of time; complaints have their line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spaces.catalogue.nasbenchkit import architecture

from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError
from gnomon.formats.nets_csv import NetRow, UnitCount, read_nets, write_counts, write_nets, write_profiled
from gnomon.spaces.loading import load_space, text_reader

SPACE = Space((Slot(name="first", choices=("a", "b,c", 'd"e')), Slot(name="second", choices=("1x1", "skip"))))
SECONDS = st.floats(1e-9, 1e3)
ENDS = st.tuples(st.none() | st.just(0.0) | SECONDS, st.none() | SECONDS).map(
    lambda ends: ends if None in ends else (min(*ends), max(*ends))  # type: ignore[type-var]
)


@st.composite
def nets(draw: st.DrawFn) -> NetRow:
    assignment = (draw(st.integers(0, 2)), draw(st.integers(0, 1)))
    latency_s, reference_s = (draw(st.none() | SECONDS) for _ in range(2))
    low_s, high_s = draw(ENDS)
    return NetRow(assignment=assignment, latency_s=latency_s, low_s=low_s, high_s=high_s, reference_s=reference_s)


@given(rows=st.lists(nets(), max_size=5))
def test_what_is_written_is_read(rows: list[NetRow]) -> None:
    assert read_nets(write_nets(rows, SPACE, measured=True).encode(), SPACE) == tuple(rows)
    bare = tuple(NetRow(assignment=row.assignment) for row in rows)
    assert read_nets(write_nets(rows, SPACE, measured=False).encode(), SPACE) == bare


NAMES = st.text("abXYZ019_+-", max_size=12)
SHARES = st.none() | st.floats(0, 1)


@st.composite
def profiled_nets(draw: st.DrawFn) -> NetRow:
    words = st.text(max_size=20).map(str.strip)
    low_s, high_s = draw(ENDS)
    return NetRow(
        assignment=(draw(st.integers(0, 2)), draw(st.integers(0, 1))),
        latency_s=draw(st.none() | st.floats(5e-324, 1e300)),
        low_s=low_s,
        high_s=high_s,
        accuracy=draw(SHARES),
        accuracy_error=draw(SHARES),
        method=draw(NAMES),
        processes=draw(st.integers(0, 10**15 - 1)),
        toolchain=draw(NAMES),
        device=draw(words.filter(str.isprintable)),
        macs=draw(st.none() | st.integers(1, 10**15 - 1)),
    )


@given(rows=st.lists(profiled_nets(), max_size=5))
def test_nets_of_a_profile_are_read_to_the_last_digit(rows: list[NetRow]) -> None:
    text = write_profiled(rows, SPACE)
    assert read_nets(text.encode(), SPACE, profiled=True) == tuple(rows)
    bare = [(row.assignment, row.latency_s, row.low_s, row.high_s) for row in rows]
    passed = read_nets(text.encode(), SPACE)
    assert [(row.assignment, row.latency_s, row.low_s, row.high_s) for row in passed] == bare
    assert all(row.accuracy is None and not row.toolchain for row in passed), "unasked they are passed over"


@pytest.mark.parametrize(
    ("column", "text", "told"),
    [
        ("accuracy", "93", "a share from 0 to 1 (divide percentages by 100) expected for accuracy, '93' found"),
        ("accuracy", "nan", "a share from 0 to 1"),
        ("accuracy_error", "-0.1", "a share from 0 to 1 expected for accuracy_error"),
        ("processes", "2.5", "a whole number expected for processes"),
        ("toolchain", "../up", "letters, digits, _, + or - expected for toolchain"),
        ("device", "x" * 201, "at most 200 characters expected for device"),
    ],
)
def test_what_is_wrong_with_nets_of_a_profile_is_told(column: str, text: str, told: str) -> None:
    data = f"first,second,{column}\na,skip,{text}\n".encode()
    with pytest.raises(ProblemError) as refused:
        read_nets(data, SPACE, profiled=True)
    assert "line 2: " in refused.value.message and told in refused.value.message
    assert read_nets(data, SPACE) == (NetRow(assignment=(0, 1)),)


@pytest.mark.parametrize(("unit", "seconds"), [("s", 2.5), ("ms", 2.5e-3), ("us", 2.5e-6), ("ns", 2.5e-9)])
def test_times_are_in_the_unit_that_their_column_names(unit: str, seconds: float) -> None:
    text = f'accuracy,second, first ,latency_{unit}\n0.9,skip,a,2.5\n\n0.8,1x1,"b,c",\n'
    assert read_nets(text.encode(), SPACE) == (
        NetRow(assignment=(0, 1), latency_s=seconds),
        NetRow(assignment=(1, 0)),
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("between", [";", "\t"])
@pytest.mark.parametrize("point", [".", ","])
def test_files_of_spreadsheets_of_other_countries_are_read(encoding: str, between: str, point: str) -> None:
    rows = [
        ("first", "second", "latency_ms", "accuracy", "device"),
        ("a", "1x1", f"1{point}5", f"0{point}9", "Pi 4.1, board 2"),
        ("b,c", "skip", "2", "1", ""),
        ("",) * 5,
    ]
    text = "".join(f"{between.join(row)}\r\n" for row in rows)
    assert read_nets(text.encode(encoding), SPACE, profiled=True) == (
        NetRow(assignment=(0, 0), latency_s=1.5e-3, accuracy=0.9, device="Pi 4.1, board 2"),
        NetRow(assignment=(1, 1), latency_s=2e-3, accuracy=1.0),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("first;second;latency_ms\na;skip;1,5\na;skip;1.500\n", "line 3: '1.500' is not a valid number for latency"),
        ("first;second;latency_ms\na;skip;1.500,5\n", "line 2"),
        ('first,second,latency_ms\na,skip,"1,5"\n', "line 2: '1,5' is not a valid number for latency"),
        ("first,second,latency_ms\na,skip,1_5\n", "line 2: '1_5' is not a valid number for latency"),
    ],
)
def test_what_may_be_another_number_is_refused(text: str, told: str) -> None:
    with pytest.raises(ProblemError) as refused:
        read_nets(text.encode(), SPACE)
    assert told in refused.value.message


def test_a_slot_may_be_called_as_a_time_is() -> None:
    space = Space((Slot(name="low_s", choices=("a", "b")), Slot(name="latency_ms", choices=("1", "2"))))
    rows = (NetRow(assignment=(1, 0), latency_s=2.5e-3, high_s=1.0),)
    assert read_nets(b"low_s,latency_ms,latency_us,high_s\nb,1,2500,1\n", space) == rows


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("first\na\n", "lacks the columns of slots: second"),
        ("first,second,first\n", "the file of nets has the column 'first' twice"),
        ("first,second,latency_s,latency_ms\n", "two columns for latency"),
        ("first,second\na\n", "line 2: 2 fields expected"),
        ("first,second\nz,skip\n", "line 2"),
        ("first,second,latency_s\na,skip,fast\n", "line 2: 'fast' is not a valid number for latency"),
        ("first,second,latency_s\na,skip,0\n", "leave the field empty if the net failed"),
        ("first,second,low_ms\na,skip,nan\n", "nan is not a valid time for low"),
        ("first,second,high_ms\na,skip,0\n", "0 is not a valid time for high"),
        ("first,second,high_s\na,skip,1e999\n", "1e999 is not a valid time for high"),
        ("first,second,low_s,high_s\na,skip,2,1\n", "line 2: low is above high"),
        ('first,second\n"a,skip\n', "not csv"),
        ("\x1f\x8b\x08", "not UTF-8 text (byte 1); it is compressed with gzip: decompress it first"),
    ],
)
def test_what_is_wrong_is_told(text: str, told: str) -> None:
    with pytest.raises(ProblemError) as refused:
        read_nets(text.encode("latin-1"), SPACE)
    assert told in refused.value.message
    assert "slot of the space" in refused.value.hint


def test_all_complaints_come_at_once_but_no_thousand() -> None:
    text = "first,second\n" + "z,skip\n" * 1000
    with pytest.raises(ProblemError) as refused:
        read_nets(text.encode(), SPACE)
    assert "line 2:" in refused.value.message
    assert "line 11:" in refused.value.message
    assert "and 980 more" in refused.value.message
    assert len(refused.value.message) < 2000


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("Latency_ms", 3e-3),
        ("latency [s]", 3.0),
        ("latency (ms)", 3e-3),
        ("Latency [µs]", 3e-6),
        ("Latency (\u03bcs)", 3e-6),
        ("LATENCY NS", 3e-9),
    ],
)
def test_a_latency_is_known_as_people_write_it(name: str, seconds: float) -> None:
    found = read_nets(f"a,{name}\nx,3\n".encode(), Space((Slot("a", ("x",)),)))
    assert found == (NetRow(assignment=(0,), latency_s=seconds),)


@pytest.mark.parametrize(
    "name", ["latency_std_ms", "predicted_latency", "latency ms 2", "lowest_ms", "lows", "highlight", "low"]
)
def test_other_columns_are_passed_over(name: str) -> None:
    assert read_nets(f"a,{name}\nx,3\n".encode(), Space((Slot("a", ("x",)),))) == (NetRow(assignment=(0,)),)


def test_an_unknown_choice_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ProblemError) as refused:
        read_nets(b"first,second\na,skip\na,skop\n", SPACE)
    assert refused.value.hint.startswith("Line 3: Choose one of: 1x1, skip. ")
    wide = Space((Slot("width", tuple(f"w{k}" for k in range(300))),))
    with pytest.raises(ProblemError) as refused:
        read_nets(b"width\nw2999\n", wide)
    assert "w299" in refused.value.hint and len(refused.value.hint) < 300


@pytest.mark.parametrize("name", ["latency", "Latency", "latency_msec", "latency_", "latency [sec]"])
def test_a_latency_without_a_known_unit_is_named(name: str) -> None:
    with pytest.raises(ProblemError, match=f"'{re.escape(name)}' of the file of nets has no unit in its name"):
        read_nets(f"a,{name}\nx,3\n".encode(), Space((Slot("a", ("x",)),)))


CELL = load_space("nasbench201")
ARCH = "|nor_conv_3x3~0|+|skip_connect~0|avg_pool_3x3~1|+|none~0|nor_conv_1x1~1|none~2|"


@given(assignment=st.tuples(*[st.integers(0, 4)] * 6), latency=SECONDS)
def test_nets_that_are_one_text_are_read(assignment: tuple[int, ...], latency: float) -> None:
    text = f"accuracy,latency_s, arch \n0.9,{latency!r},{architecture(assignment)}\n"
    found = read_nets(text.encode(), CELL.space, text_reader(CELL))
    assert found == (NetRow(assignment=assignment, latency_s=latency),)


def test_columns_of_slots_count_more_than_one_text() -> None:
    rows = (NetRow(assignment=(1, 2, 3, 4, 0, 1)),)
    head, line = write_nets(rows, CELL.space, measured=False).splitlines()
    text = f"{head},arch\n{line},{ARCH}\n"
    assert read_nets(text.encode(), CELL.space, text_reader(CELL)) == rows


def test_what_is_wrong_with_one_text_is_told_with_its_line() -> None:
    text = f"arch,latency_ms\n{ARCH},1\n{ARCH.replace('none', 'nothing')},1\nx,1\n{ARCH},0\n"
    with pytest.raises(ProblemError) as refused:
        read_nets(text.encode(), CELL.space, text_reader(CELL))
    for told in ("line 3: 'nothing~0'", "line 4: 'x' is not an architecture", "5: 0 is not a valid time for latency"):
        assert told in refused.value.message
    with pytest.raises(ProblemError, match=r"lacks the columns of slots: edge 0->2, edge 1->2"):
        read_nets(b"arch,edge 0->1\n", CELL.space, text_reader(CELL))


def test_one_text_is_of_no_use_where_nobody_writes_nets_so() -> None:
    fbnet = load_space("fbnet")
    assert text_reader(fbnet) is None
    with pytest.raises(ProblemError, match="column arch cannot replace them"):
        read_nets(b"arch\nx\n", fbnet.space, text_reader(fbnet))


def test_a_reader_of_ones_own_may_not_leave_the_space() -> None:
    with pytest.raises(ProblemError, match="line 2: choice 2 of slot 'second' is out of range"):
        read_nets(b"arch\nx\n", SPACE, lambda text: (0, 2))


def test_counts_are_a_row_a_net_and_unit() -> None:
    rows = (
        UnitCount(net=1, unit="overhead", label="overhead", uid="", count=1.0),
        UnitCount(net=2, unit="ab12", label="Conv, 3x3", uid="Conv[pad=[1,1]]", count=1234567.0),
    )
    assert write_counts(rows) == (
        'net,unit,label,uid,count\n1,overhead,overhead,,1\n2,ab12,"Conv, 3x3","Conv[pad=[1,1]]",1234567\n'
    )
