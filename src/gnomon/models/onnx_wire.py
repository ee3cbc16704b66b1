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
MAX_MESSAGES = 1 << 22
_UNSEEN_BYTES = 1 << 30
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}  # wire type of a fixed-size value: its bytes
_MESSAGE_TYPE = 11  # FieldDescriptor.TYPE_MESSAGE
_TEXT_TYPES = {9, 12}  # FieldDescriptor.TYPE_STRING, TYPE_BYTES


def check_parsed_size(data: bytes, descriptor: Any, max_memory_bytes: int) -> None:
    """Raises ModelError where parsing `data` as the message `descriptor` could take more memory than allowed.

    Files so small that no content of theirs could are let through unseen. A walk holds one frame a level and
    ends at the limit, or at `MAX_MESSAGES`.
    """
    if len(data) * WORST_FACTOR <= min(max_memory_bytes, _UNSEEN_BYTES):
        return
    total, messages, position = 0, 0, 0
    frames = [(len(data), descriptor)]
    while frames:
        end, kind = frames[-1]
        if position == end:
            frames.pop()
            continue
        if total > max_memory_bytes or messages > MAX_MESSAGES:
            raise ModelError(
                f"the ONNX file would take more memory to parse than {max_memory_bytes} bytes,"
                f" or has more than {MAX_MESSAGES} parts",
                hint="raise gnomon.models.Limits.max_memory_bytes if the model is to be trusted",
            )
        tag, position = _varint(data, position, end)
        field = kind.fields_by_number.get(tag >> 3)
        size, position = _value_size(data, position, end, tag & 7)
        if tag & 7 != _BYTES:
            total += 8
        elif field is not None and field.type == _MESSAGE_TYPE:
            total, messages = total + MESSAGE_BYTES, messages + 1
            frames.append((position + size, field.message_type))
            if len(frames) > MAX_DEPTH:
                _broken(f"it is nested deeper than {MAX_DEPTH} levels")
            continue
        elif field is None or field.type in _TEXT_TYPES:
            total += size + 32
        else:
            total += 8 * size
        position += size


def _value_size(data: bytes, position: int, end: int, wire: int) -> tuple[int, int]:
    """Bytes of a field's value, and where it begins."""
    if wire == _VARINT:
        return 0, _varint(data, position, end)[1]
    if wire == _BYTES:
        size, position = _varint(data, position, end)
    elif wire in _FIXED:
        size = _FIXED[wire]
    else:
        _broken("it has a field of an unknown kind")
    if position + size > end:
        _broken("a length points out of the file")
    return size, position


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
