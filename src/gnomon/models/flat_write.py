"""Writes FlatBuffers, parents before children, and copies tables and vectors out of other ones.

The layout is https://flatbuffers.dev/internals/. Scalars are copied byte for byte, so that a table of scalars
needs no schema but the number of its fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

from gnomon.errors import ModelError
from gnomon.models.flatbuffer import Buffer, Table

#: Writes what an offset of the source at a position leads to; returns its place in the new file.
Child = Callable[[Buffer, int], int]

_U16, _I32, _U32 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")


def slot(table: Table, field: int) -> int | None:
    """The position of a field's inline value, None where the field is absent."""
    entry = 4 + 2 * field
    if entry + 2 > table.vtable_size:
        return None
    offset = int(_U16.unpack_from(table.buffer.data, table.vtable + entry)[0])
    return table.position + offset if offset else None


class FlatWriter:
    """A FlatBuffers file in the making. `limit_bytes` is how large it may become; ModelError beyond it."""

    def __init__(self, identifier: bytes, limit_bytes: int) -> None:
        self.data = bytearray(4) + identifier
        self._limit = limit_bytes

    def root(self, position: int) -> None:
        """Let the file's root be the table at a position."""
        self.point(0, position)

    def point(self, at: int, target: int) -> None:
        """Let the offset at a position lead to what was written at another behind it."""
        _U32.pack_into(self.data, at, target - at)

    def table(self, values: Mapping[int, tuple[int, int]]) -> tuple[int, dict[int, int]]:
        """A table of fields, each ``(bytes, value)``; an offset is four bytes and is pointed later.

        Returns its position and that of each field.
        """
        offsets, size = {}, 4
        for field, (width, _) in sorted(values.items(), key=lambda item: -item[1][0]):
            size += -size % width
            offsets[field] = size
            size += width
        fields = max(values, default=-1) + 1
        vtable = struct.pack(f"<HH{fields}H", 4 + 2 * fields, size, *(offsets.get(f, 0) for f in range(fields)))
        body = bytearray(size)
        for field, (width, value) in values.items():
            body[offsets[field] : offsets[field] + width] = value.to_bytes(width, "little", signed=value < 0)
        position = self._with_vtable(vtable, body, 0)
        return position, {field: position + offset for field, offset in offsets.items()}

    def copied_table(self, table: Table, known: int, children: Mapping[int, Child]) -> int:
        """A copy of a table that has `known` fields, of which `children` are offsets and all others scalars.

        ModelError where it has a field beyond them, which may be an offset to anything.
        """
        fields = (table.vtable_size - 4) // 2
        if any(slot(table, field) is not None for field in range(known, fields)):
            raise ModelError("the model has settings that gnomon does not know", hint="use a newer gnomon")
        data = table.buffer.data
        vtable = data[table.vtable : table.vtable + table.vtable_size]
        body = bytearray(data[table.position : table.position + table.size])
        position = self._with_vtable(vtable, body, table.position % 8)
        for field, child in children.items():
            at = slot(table, field)
            if at is not None:
                target = child(table.buffer, table.buffer.offset(at))
                self.point(position + at - table.position, target)
        return position

    def vector(self, count: int, payload: bytes, alignment: int) -> int:
        """A vector of scalars, given as its bytes."""
        alignment = max(4, alignment)
        self._reserve(len(payload) + alignment + 4)
        self.data += bytes(-(len(self.data) + 4) % alignment)
        position = len(self.data)
        self.data += _U32.pack(count)
        self.data += payload
        return position

    def text(self, value: str) -> int:
        """A string."""
        raw = value.encode()
        return self.vector(len(raw), raw + b"\0", 4)

    def integers(self, values: Sequence[int]) -> int:
        """A vector of signed 32-bit integers."""
        return self.vector(len(values), struct.pack(f"<{len(values)}i", *values), 4)

    def offsets(self, count: int) -> tuple[int, list[int]]:
        """A vector of offsets that are pointed later; returns its position and that of each."""
        position = self.vector(count, bytes(4 * count), 4)
        return position, [position + 4 + 4 * k for k in range(count)]

    def copy_vector(self, item_bytes: int, *, alignment: int = 0, terminated: bool = False) -> Child:
        """What copies a vector of scalars (of a string, with the zero behind it)."""

        def copy(buffer: Buffer, position: int) -> int:
            start, count = buffer.vector(position, item_bytes)
            payload = buffer.data[start : start + count * item_bytes] + (b"\0" if terminated else b"")
            return self.vector(count, payload, alignment or item_bytes)

        return copy

    def _with_vtable(self, vtable: bytes, body: bytearray, residue: int) -> int:
        """A table behind its vtable, at a position of this residue modulo 8, which keeps its fields aligned."""
        self._reserve(len(vtable) + len(body) + 16)
        self.data += bytes(len(self.data) % 2)
        before = len(self.data)
        self.data += vtable
        self.data += bytes((residue - len(self.data)) % 8)
        position = len(self.data)
        _I32.pack_into(body, 0, position - before)
        self.data += body
        return position

    def _reserve(self, count: int) -> None:
        if len(self.data) + count > self._limit:
            raise ModelError(
                f"the part of the model would have more than {self._limit} bytes",
                hint="cut somewhere else, or give a model whose parts are not shared so often",
            )
