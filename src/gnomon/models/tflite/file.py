"""A bounds-checked reader of FlatBuffers, for files that may be hostile.

The layout is described at https://flatbuffers.dev/internals/: a table begins with a signed offset back to its vtable,
which holds the offset of each field. Strings, vectors and tables are found by unsigned forward offsets, so cycles are
impossible, but sharing is not. Every access is checked against the buffer, and a budget for visited bytes prevents a
small file from representing a huge one.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass
from mmap import mmap
from typing import NoReturn

from gnomon.errors import ModelError

MAX_TABLES = 1 << 20
"""The largest number of tables in one vector: no model has a million operators or tensors."""

_INTEGERS = {1: struct.Struct("<b"), 4: struct.Struct("<i"), 8: struct.Struct("<Q")}
_U8, _U16, _U32 = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I")
_ARRAY_I32 = next(code for code in "il" if array(code).itemsize == 4)


class Buffer:
    """The bytes of a file, and the number of bytes that may still be read."""

    def __init__(self, data: bytes | mmap) -> None:
        self.data = data
        # Files from real exporters share little; four visits to every byte are plenty.
        self.budget = 4 * len(data) + (1 << 16)

    def root(self) -> Table:
        """The root table. Like all methods here, raises ModelError if the file is broken."""
        return self.table(self.offset(0))

    def table(self, position: int) -> Table:
        """The table at a position."""
        self.need(position, 4)
        vtable = position - _INTEGERS[4].unpack_from(self.data, position)[0]
        self.need(vtable, 4)
        vtable_size = _U16.unpack_from(self.data, vtable)[0]
        table_size = _U16.unpack_from(self.data, vtable + 2)[0]
        if vtable_size < 4 or vtable_size % 2 or table_size < 4:
            broken("a table has impossible sizes")
        self.need(vtable, vtable_size)
        self.need(position, table_size)
        self.spend(vtable_size + table_size)
        return Table(buffer=self, position=position, size=table_size, vtable=vtable, vtable_size=vtable_size)

    def offset(self, position: int) -> int:
        """Follow the forward offset at a position."""
        self.need(position, 4)
        step = _U32.unpack_from(self.data, position)[0]
        if step == 0:
            broken("an offset leads nowhere")
        self.need(position + step, 4)
        return int(position + step)

    def text(self, position: int) -> str:
        """The string at a position; bytes that are not UTF-8 become replacement characters."""
        start, count = self.vector(position, 1)
        self.spend(count)
        return self.data[start : start + count].decode("utf-8", "replace")

    def vector(self, position: int, item_bytes: int) -> tuple[int, int]:
        """The position of the first item, and the number of items, of the vector at a position."""
        self.need(position, 4)
        count = int(_U32.unpack_from(self.data, position)[0])
        self.need(position + 4, count * item_bytes)
        return position + 4, count

    def need(self, position: int, count: int) -> None:
        """Raise ModelError unless this many bytes exist."""
        if position < 0 or count < 0 or position + count > len(self.data):
            broken("an offset or a length points beyond the end of the file")

    def spend(self, count: int) -> None:
        """Subtract from the budget of visited bytes."""
        self.budget -= count
        if self.budget < 0:
            broken("its parts are shared so often that it represents a far larger file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table; fields are identified by their index in the schema, and have their default if absent."""

    buffer: Buffer
    position: int
    size: int
    vtable: int
    vtable_size: int

    def integer(self, field: int, item_bytes: int, default: int = 0) -> int:
        """A signed integer of one or four bytes, or an unsigned one of eight bytes."""
        at = self.find(field, item_bytes)
        return default if at is None else int(_INTEGERS[item_bytes].unpack_from(self.buffer.data, at)[0])

    def unsigned(self, field: int) -> int:
        """An unsigned integer of four bytes, 0 if absent."""
        at = self.find(field, 4)
        return 0 if at is None else int(_U32.unpack_from(self.buffer.data, at)[0])

    def table(self, field: int) -> Table | None:
        """Another table, or the value of a union; None if absent."""
        at = self.find(field, 4)
        return None if at is None else self.buffer.table(self.buffer.offset(at))

    def text(self, field: int) -> str:
        """A string, empty if absent; bytes that are not UTF-8 become replacement characters."""
        at = self.find(field, 4)
        if at is None:
            return ""
        return self.buffer.text(self.buffer.offset(at))

    def texts(self, field: int) -> list[str]:
        """A vector of strings, empty if absent."""
        return [self.buffer.text(position) for position in self._led_to(field)]

    def integers(self, field: int) -> tuple[int, ...] | None:
        """A vector of signed 32-bit integers, None if absent."""
        at = self.find(field, 4)
        if at is None:
            return None
        start, count = self.buffer.vector(self.buffer.offset(at), 4)
        self.buffer.spend(4 * count)
        values = array(_ARRAY_I32, self.buffer.data[start : start + 4 * count])
        if sys.byteorder == "big":
            values.byteswap()
        return tuple(values)

    def content(self, field: int) -> memoryview:
        """A vector of bytes, which is not copied; empty if absent."""
        at = self.find(field, 4)
        start, count = (0, 0) if at is None else self.buffer.vector(self.buffer.offset(at), 1)
        return memoryview(self.buffer.data)[start : start + count]

    def tables(self, field: int) -> list[Table]:
        """A vector of tables, empty if absent."""
        return [self.buffer.table(position) for position in self._led_to(field)]

    def _led_to(self, field: int) -> list[int]:
        """The targets of the offsets in a vector, none if it is absent."""
        at = self.find(field, 4)
        if at is None:
            return []
        start, count = self.buffer.vector(self.buffer.offset(at), 4)
        if count > MAX_TABLES:
            broken(f"a list has {count} entries, but at most {MAX_TABLES} are read")
        self.buffer.spend(4 * count)
        return [self.buffer.offset(start + 4 * i) for i in range(count)]

    def find(self, field: int, item_bytes: int = 1) -> int | None:
        """The position of a field's inline value of at least this many bytes, None if the field is absent."""
        entry = 4 + 2 * field
        if entry + 2 > self.vtable_size:
            return None
        offset = _U16.unpack_from(self.buffer.data, self.vtable + entry)[0]
        if offset == 0:
            return None
        if offset < 4 or offset + item_bytes > self.size:
            broken("a field lies outside its table")
        return int(self.position + offset)


def broken(why: str) -> NoReturn:
    """Raise the ModelError of a broken FlatBuffers file."""
    raise ModelError(f"the FlatBuffers file is broken: {why}", hint="Export or copy the model again.")
