"""Reads the tensors in a torch file with the legacy (not zip) layout, without torch and without unpickling.

The layout is that of ``torch.serialization._legacy_save``: five pickles (magic number, protocol version, system
information, the object, the keys of its storages), then the number of elements (int64) and the elements for each key.
Only the opcodes that a state dictionary of float32 and int64 tensors needs are interpreted, and nothing is ever called:
names of functions are only compared with a list.
"""

from __future__ import annotations

import io
import pickletools
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.wheels import ZooError

MAGIC = 0x1950A86A20F9469CFC6C
_STORAGES: dict[str, np.dtype[Any]] = {
    "torch FloatStorage": np.dtype("<f4"),
    "torch LongStorage": np.dtype("<i8"),
}
_CALLABLES = {*_STORAGES, "collections OrderedDict", "torch._utils _rebuild_tensor_v2"}
_MARK = object()
_MEMO_PUTS = {"BINPUT", "LONG_BINPUT"}
_MEMO_GETS = {"BINGET", "LONG_BINGET"}
_LITERALS = {"BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1"}
_EMPTY: dict[str, Any] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "MARK": lambda: _MARK}
_ATOMS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


class _Tensor:
    """A tensor that refers to its storage: (storage key, element type, offset, shape, strides)."""

    def __init__(self, storage: tuple[Any, ...], offset: int, shape: Any, strides: Any) -> None:
        self.key, self.dtype = storage[2], _STORAGES[storage[1]]
        self.offset, self.shape, self.strides = offset, tuple(shape), tuple(strides)


def read_tensors(data: bytes) -> dict[str, NDArray[Any]]:
    """The named tensors in a legacy torch file. Raises ZooError if the file contains anything else."""
    stream = io.BytesIO(data)
    if _interpret(stream) != MAGIC:
        raise ZooError("not a torch file of the legacy layout")
    _interpret(stream)
    _interpret(stream)
    state, keys = _interpret(stream), _interpret(stream)
    types = {t.key: t.dtype for t in state.values() if isinstance(t, _Tensor)}
    storages: dict[str, NDArray[Any]] = {}
    for key in keys:
        (count,) = struct.unpack("<q", stream.read(8))
        raw = stream.read(count * types[key].itemsize)
        storages[key] = np.frombuffer(raw, types[key], count)
    if stream.read(1):
        raise ZooError("a torch file goes on after its last storage")
    return {name: _view(t, storages[t.key]) for name, t in state.items() if isinstance(t, _Tensor)}


def _view(tensor: _Tensor, storage: NDArray[Any]) -> NDArray[Any]:
    last = tensor.offset + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))
    if tensor.offset < 0 or min(tensor.strides, default=0) < 0 or last >= max(storage.size, 1):
        raise ZooError("a tensor of a torch file reaches out of its storage")
    strides = [s * storage.itemsize for s in tensor.strides]
    return np.lib.stride_tricks.as_strided(storage[tensor.offset :], tensor.shape, strides).copy()


def _interpret(stream: io.BytesIO) -> Any:
    """The value of one pickle, from the stream's position to its STOP."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for opcode, argument, _ in pickletools.genops(stream):
        name = opcode.name
        if name == "STOP":
            return stack.pop()
        if name in _LITERALS:
            stack.append(argument)
        elif name in _MEMO_GETS:
            stack.append(memo[int(argument)])  # type: ignore[arg-type]
        elif name in _MEMO_PUTS:
            memo[int(argument)] = stack[-1]  # type: ignore[arg-type]
        elif name in _ATOMS:
            stack.append(_ATOMS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name != "PROTO":
            _apply(name, argument, stack)
    raise ZooError("a pickle of a torch file does not end")


def _apply(name: str, argument: Any, stack: list[Any]) -> None:
    """Apply an opcode that combines values on the stack."""
    if name == "GLOBAL":
        if argument not in _CALLABLES:
            raise ZooError(f"a torch file asks for {argument!r}, which is not a tensor's part")
        stack.append(argument)
    elif name in {"TUPLE1", "TUPLE2"}:
        count = int(name[-1])
        stack[-count:] = [tuple(stack[-count:])]
    elif name == "TUPLE":
        stack.append(tuple(_to_mark(stack)))
    elif name == "SETITEM":
        value, key = stack.pop(), stack.pop()
        stack[-1][key] = value
    elif name == "SETITEMS":
        items = _to_mark(stack)
        stack[-1].update(zip(items[::2], items[1::2], strict=True))
    elif name == "APPEND":
        item = stack.pop()
        stack[-1].append(item)
    elif name == "APPENDS":
        items = _to_mark(stack)
        stack[-1].extend(items)
    elif name == "REDUCE":
        arguments, function = stack.pop(), stack.pop()
        stack.append(_reduce(function, arguments))
    elif name == "BUILD":
        stack.pop()  # the state dictionary's attributes (its _metadata) carry no tensor
    elif name != "BINPERSID":  # whose tuple (storage, type, key, ..) is kept as it is
        raise ZooError(f"a torch file uses the pickle opcode {name}, which a state dictionary does not need")


def _reduce(function: str, arguments: tuple[Any, ...]) -> Any:
    if function == "collections OrderedDict" and not arguments:
        return {}
    if function == "torch._utils _rebuild_tensor_v2":
        return _Tensor(*arguments[:4])
    raise ZooError(f"a torch file calls {function!r} in an unknown way")


def _to_mark(stack: list[Any]) -> list[Any]:
    items: list[Any] = []
    while (item := stack.pop()) is not _MARK:
        items.append(item)
    return items[::-1]
