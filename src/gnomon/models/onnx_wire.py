"""How much memory a protobuf message takes once parsed, found without parsing it.

The wire format is https://protobuf.dev/programming-guides/encoding/. Two bytes of a hostile file can stand
for an empty message of a hundred bytes, so large files are walked before they are parsed.
"""

from __future__ import annotations

from typing import Any, NoReturn

from gnomon.errors import ModelError

MESSAGE_BYTES = 300
"""What one message is taken to need when parsed, the list that holds it included."""

WORST_FACTOR = MESSAGE_BYTES // 2
MAX_DEPTH = 100
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MESSAGE_TYPE = 11  # FieldDescriptor.TYPE_MESSAGE
_TEXT_TYPES = {9, 12}  # FieldDescriptor.TYPE_STRING, TYPE_BYTES


def check_parsed_size(data: bytes, descriptor: Any, max_memory_bytes: int) -> None:
    """Raises ModelError where parsing `data` as the message `descriptor` could take more memory than allowed.

    Files so small that no content of theirs could are let through unseen.
    """
    if len(data) * WORST_FACTOR <= max_memory_bytes:
        return
    total = 0
    pending = [(0, len(data), descriptor, 0)]
    while pending:
        position, end, kind, depth = pending.pop()
        if depth > MAX_DEPTH:
            _broken(f"it is nested deeper than {MAX_DEPTH} levels")
        while position < end:
            if total > max_memory_bytes:
                raise ModelError(
                    f"the ONNX file would take more than {max_memory_bytes} bytes of memory to parse",
                    hint="raise gnomon.models.Limits.max_memory_bytes if the model is to be trusted",
                )
            tag, position = _varint(data, position, end)
            wire, field = tag & 7, kind.fields_by_number.get(tag >> 3)
            if wire == _VARINT:
                _, position = _varint(data, position, end)
                total += 8
            elif wire in {_FIXED64, _FIXED32}:
                position += 8 if wire == _FIXED64 else 4
                total += 8
            elif wire == _BYTES:
                length, position = _varint(data, position, end)
                if position + length > end:
                    _broken("a length points out of the file")
                if field is not None and field.type == _MESSAGE_TYPE:
                    total += MESSAGE_BYTES
                    pending.append((position, position + length, field.message_type, depth + 1))
                elif field is None or field.type in _TEXT_TYPES:
                    total += length + 32
                else:
                    total += 8 * length
                position += length
            else:
                _broken("it has a field of an unknown kind")
        if position > end:
            _broken("a field runs out of the file")


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return _broken("a number does not end")


def _broken(why: str) -> NoReturn:
    raise ModelError(f"the ONNX file is broken: {why}", hint="export or copy the model again")
