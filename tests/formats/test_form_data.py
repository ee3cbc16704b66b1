"""multipart/form-data: equal to the standard library's reader on what is sound, the same whatever the pieces are."""

from __future__ import annotations

import email.policy
import itertools
from email.message import EmailMessage
from email.parser import BytesParser

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.formats.form_data import MOST_AROUND_BYTES, MOST_HEAD_BYTES, FormReader, Part, boundary_of

BOUNDARY = b"b0undary"
NAMES = st.text(alphabet="abcxyz019-_.", min_size=1, max_size=12)


def body_of(parts: list[tuple[str, str | None, bytes]], before: bytes = b"", after: bytes = b"") -> bytes:
    made = bytearray(before)
    for name, filename, data in parts:
        more = "" if filename is None else f'; filename="{filename}"'
        made += b'--%s\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n' % (
            BOUNDARY,
            name.encode(),
            more.encode(),
        )
        made += data + b"\r\n"
    return bytes(made) + b"--" + BOUNDARY + b"--" + after


def read(body: bytes, cuts: list[int] | None = None) -> list[tuple[str, str | None, bytes]]:
    """The parts, from a body that comes in pieces which are cut at these places."""
    reader = FormReader(BOUNDARY)
    places = sorted({0, len(body), *(cut for cut in cuts or () if cut < len(body))})
    found: list[tuple[str, str | None, bytearray]] = []
    for start, end in itertools.pairwise(places):
        for event in reader.feed(body[start:end]):
            if isinstance(event, Part):
                found.append((event.name, event.filename, bytearray()))
            else:
                found[-1][2].extend(event.data)
    reader.finish()
    return [(name, filename, bytes(data)) for name, filename, data in found]


PARTS = st.lists(st.tuples(NAMES, st.none() | NAMES, st.binary(max_size=300)), max_size=4)


@given(PARTS, st.lists(st.integers(0, 2000), max_size=20), st.sampled_from([b"", b"\r\n", b"hello\r\n"]))
def test_what_was_sent_comes_out_however_it_is_cut(
    parts: list[tuple[str, str | None, bytes]], cuts: list[int], around: bytes
) -> None:
    assume(all(b"--" + BOUNDARY not in data for _, _, data in parts))
    body = body_of(parts, around, around)
    if not parts:
        body = around + b"--" + BOUNDARY + b"--"
    assert read(body, cuts) == parts
    assert read(body, list(range(len(body)))) == parts


@given(PARTS.filter(bool))
def test_the_standard_library_reads_the_same(parts: list[tuple[str, str | None, bytes]]) -> None:
    assume(all(BOUNDARY not in data and b"\r" not in data and b"\n" not in data for _, _, data in parts))
    head = b"Content-Type: multipart/form-data; boundary=" + BOUNDARY + b"\r\n\r\n"
    message = BytesParser(policy=email.policy.HTTP).parsebytes(head + body_of(parts))
    theirs = []
    for part in message.iter_parts():
        assert isinstance(part, EmailMessage)
        name = str(part.get_param("name", header="content-disposition"))
        theirs.append((name, part.get_filename(), part.get_payload(decode=True)))
    assert read(body_of(parts)) == theirs


@given(st.binary(max_size=400), st.integers(1, 50))
def test_no_bytes_do_anything_else_than_a_problem(data: bytes, size: int) -> None:
    body = bytearray(body_of([("file", "m", data), ("kernel_name", None, b"n")]))
    for place in range(0, min(len(data), len(body)), size):
        body[place] = data[place]
    reader = FormReader(BOUNDARY)
    try:
        for start in range(0, len(body), size):
            reader.feed(bytes(body[start : start + size]))
        reader.finish()
    except ProblemError as error:
        assert error.hint


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "ends before its last boundary"),
        (body_of([("a", None, b"x")])[:-2], "ends before"),
        (b"x" * (MOST_AROUND_BYTES + 100), "before its first boundary"),
        (body_of([], after=b"x" * (MOST_AROUND_BYTES + 1)), "behind its last boundary"),
        (b"--b0undary\r\n" + b"a: b\r\n" * MOST_HEAD_BYTES, "headers of a part take"),
        (b"--b0undaryish\r\n\r\n", "goes on"),
        (b"--b0undary\r\n\r\n\r\n", "no Content-Disposition"),
        (b"--b0undary\r\nContent-Disposition: attachment; name=a\r\n\r\n", "no Content-Disposition"),
        (b"--b0undary\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\n", "twice"),
        (b"--b0undary\r\nContent-Disposition: form-data; name=a\r\ncontent-disposition: x\r\n\r\n", "twice"),
        (b"--b0undary\r\nno header\r\n\r\n", "is no header"),
        (
            b"--b0undary\r\nContent-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: base64\r\n\r\n",
            "transfer encoding",
        ),
        (body_of([("a", None, b"")] * 17), "more than 16 parts"),
    ],
)
def test_what_is_wrong_is_told(body: bytes, told: str) -> None:
    with pytest.raises(ProblemError, match=told):
        read(body)


def test_memory_stays_small_however_long_a_part_is() -> None:
    reader = FormReader(BOUNDARY)
    reader.feed(body_of([("file", "m", b"")]).removesuffix(b"\r\n--" + BOUNDARY + b"--"))
    piece = b"\r\n--b0undar" * 6000
    for _ in range(100):
        reader.feed(piece)
        assert len(reader._buffer) < MOST_HEAD_BYTES


@pytest.mark.parametrize(
    "header",
    [
        "",
        "text/plain",
        "multipart/form-data",
        "multipart/mixed; boundary=x",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary="a\x00b"',
        f"multipart/form-data; boundary={'x' * 71}",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; boundary",
    ],
)
def test_headers_without_a_boundary(header: str) -> None:
    with pytest.raises(ProblemError):
        boundary_of(header)


def test_boundaries() -> None:
    assert boundary_of('Multipart/Form-Data; charset=utf-8; boundary="a b"') == b"a b"
    assert boundary_of("multipart/form-data; boundary=----WebKitFormBoundary7MA4") == b"----WebKitFormBoundary7MA4"
