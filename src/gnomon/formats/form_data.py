"""multipart/form-data as it comes in: a reader that is fed pieces of any size and holds no more than one header.

Sources: RFC 7578 (form data), RFC 2046 section 5.1 (multipart bodies), RFC 2183 (Content-Disposition). It is stricter
than these: no other transfer encoding than the plain ones, no nested multipart, CRLF line ends, little before the
first part and after the last. What real clients send keeps to that; what does not is malformed or hostile.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from gnomon.core.strict_json import shown
from gnomon.errors import ProblemError

MOST_BOUNDARY = 70
MOST_HEAD_BYTES = 8 << 10
MOST_AROUND_BYTES = 4 << 10
"""How much may stand before the first part, and after the last."""

MOST_PARTS = 16

_TYPE = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z/-]+)\s*", re.ASCII)
_PARAMETER = re.compile(r"""\s*;\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:"((?:[^"\\\r\n]|\\.)*)"|([^\s;"]+))\s*""", re.ASCII)
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]*[0-9A-Za-z'()+_,./:=?-]", re.ASCII)
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_PLAIN = frozenset({"7bit", "8bit", "binary"})
_HINT = "Send multipart/form-data, as `curl -F file=@MODEL -F kernel_name=NAME` does."


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part begins: the name of its field, and the name that its sender's file has (None: a plain field)."""

    name: str
    filename: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartData:
    """Some more bytes of the part that began last."""

    data: bytes


Event = Part | PartData


def boundary_of(content_type: str) -> bytes:
    """The boundary that a Content-Type header names. ProblemError if it is not multipart/form-data with one."""
    kind, parameters = _parameters(content_type)
    if kind != "multipart/form-data":
        _fail(f"the content type is {shown(content_type)}, not multipart/form-data")
    boundary = parameters.get("boundary", "")
    if len(boundary) > MOST_BOUNDARY or not _BOUNDARY.fullmatch(boundary):
        _fail(f"{shown(boundary)} is no boundary")
    return boundary.encode("ascii")


class FormReader:
    """Reads one body. `feed` it every piece, then `finish`; ProblemError for whatever is malformed.

    Memory stays below the piece plus `MOST_HEAD_BYTES`, however long the parts are.
    """

    def __init__(self, boundary: bytes) -> None:
        self._delimiter = b"\r\n--" + boundary
        # The first delimiter may stand at the very beginning, without a line end before it.
        self._buffer = bytearray(b"\r\n")
        self._state = self._around
        self._ended = False
        self._seen = self._parts = 0

    def feed(self, piece: bytes) -> list[Event]:
        """What the next piece of the body says. The data of a part may come in any number of events."""
        self._buffer += piece
        found: list[Event] = []
        while self._state(found):
            pass
        return found

    def finish(self) -> None:
        """The body is over. ProblemError if it ends in the middle."""
        if not self._ended:
            _fail("it ends before its last boundary")

    def _around(self, found: list[Event]) -> bool:
        """Before the first part: everything up to the first delimiter is thrown away."""
        at = self._buffer.find(self._delimiter)
        self._seen += self._drop(at if at >= 0 else len(self._buffer) - len(self._delimiter) + 1)
        if self._seen > MOST_AROUND_BYTES:
            _fail(f"more than {MOST_AROUND_BYTES} bytes stand before its first boundary")
        if at >= 0:
            self._drop(len(self._delimiter))
            self._state = self._after_delimiter
        return at >= 0

    def _after_delimiter(self, found: list[Event]) -> bool:
        """A delimiter was read: two dashes end the body, a line end begins a part."""
        if len(self._buffer) < 2:
            return False
        if self._buffer.startswith(b"--"):
            self._drop(2)
            self._ended = True
            self._seen = 0
            self._state = self._after_all
            return True
        end = self._buffer.find(b"\r\n", 0, 80)
        if end < 0 and len(self._buffer) < 80 and not self._buffer.strip(b" \t\r"):
            return False
        if end < 0 or self._buffer[:end].strip(b" \t"):
            _fail("its boundary goes on with other letters")
        self._drop(end)  # the line end stays: it ends an empty head as well
        self._state = self._head
        return True

    def _head(self, found: list[Event]) -> bool:
        """The headers of a part, up to an empty line."""
        end = self._buffer.find(b"\r\n\r\n")
        if (end if end >= 0 else len(self._buffer)) > MOST_HEAD_BYTES:
            _fail(f"the headers of a part take more than {MOST_HEAD_BYTES} bytes")
        if end < 0:
            return False
        self._parts += 1
        if self._parts > MOST_PARTS:
            _fail(f"it has more than {MOST_PARTS} parts")
        found.append(_part_of(bytes(self._buffer[2:end])))
        self._drop(end + 2)  # the last line end stays, as an empty part's delimiter begins with it
        self._first = True
        self._state = self._body
        return True

    _first = False

    def _body(self, found: list[Event]) -> bool:
        """The data of a part, up to the next delimiter."""
        at = self._buffer.find(self._delimiter)
        end = at if at >= 0 else len(self._buffer) - len(self._delimiter) + 1
        start = 2 if self._first else 0  # the line end of the head is no data
        if at < 0 and end < start:
            return False
        if end > start:
            found.append(PartData(data=bytes(self._buffer[start:end])))
        self._drop(end)
        self._first = False
        if at >= 0:
            self._drop(len(self._delimiter))
            self._state = self._after_delimiter
        return at >= 0

    def _after_all(self, found: list[Event]) -> bool:
        self._seen += self._drop(len(self._buffer))
        if self._seen > MOST_AROUND_BYTES:
            _fail(f"more than {MOST_AROUND_BYTES} bytes stand behind its last boundary")
        return False

    def _drop(self, count: int) -> int:
        if count <= 0:
            return 0
        del self._buffer[:count]
        return count


def _part_of(head: bytes) -> Part:
    """The part that these headers describe. ProblemError where they do not say whose field it is."""
    headers: dict[str, str] = {}
    for line in head.split(b"\r\n") if head else []:
        match = _HEADER.fullmatch(line)
        if match is None:
            _fail(f"{shown(line.decode('utf-8', 'replace'))} is no header of a part")
        name = match[1].decode("ascii").lower()
        if name in headers:
            _fail(f"a part has the header {shown(name)} twice")
        headers[name] = match[2].decode("utf-8", "replace").strip()
    encoding = headers.get("content-transfer-encoding", "binary").lower()
    if encoding not in _PLAIN:
        _fail(f"a part has the transfer encoding {shown(encoding)}, and only plain ones are read")
    kind, parameters = _parameters(headers.get("content-disposition", ""))
    if kind != "form-data" or "name" not in parameters:
        _fail("a part has no Content-Disposition: form-data with a name")
    return Part(name=parameters["name"], filename=parameters.get("filename"))


def _parameters(value: str) -> tuple[str, dict[str, str]]:
    """What stands before the first semicolon in small letters, and the parameters behind it."""
    match = _TYPE.match(value)
    if match is None:
        return "", {}
    found: dict[str, str] = {}
    at = match.end()
    while at < len(value):
        parameter = _PARAMETER.match(value, at)
        if parameter is None:
            _fail(f"{shown(value)} cannot be read from letter {at + 1} on")
        name = parameter[1].lower()
        if name in found:
            _fail(f"{shown(value)} gives {shown(name)} twice")
        quoted = parameter[2]
        found[name] = parameter[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = parameter.end()
    return match[1].lower(), found


def _fail(what: str) -> NoReturn:
    raise ProblemError(f"the form is malformed: {what}", hint=_HINT)
