"""What the header of a GGUF file says about a decoder: its architecture, its tensors, and the memory of its context.

Only the header is read, never the weights. Files may be hostile: each count, length and offset is checked against the
file before anything of that size is read. The format is described in docs/gguf.md of ggml-org/ggml; the sizes of the
types' blocks are those of ggml's own Python package, gguf 0.19.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.core.strict_json import shown
from gnomon.errors import ModelError
from gnomon.models.model import GGUF_MAGIC, MOST_BYTES, model_errors, open_regular

_VERSIONS = (2, 3)
_MOST_FILE_BYTES = 1 << 42
_MOST_HEADER_BYTES = 1 << 26
"""The longest header that is read, several times that of the largest vocabularies. It bounds time and memory."""
_LISTED = 1 << 12
"""The most numbers of an array and characters of a name that are kept: those of layers, not of a vocabulary."""
_ALIGNMENT = 32
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_CACHE_BYTES = 2
"""The bytes of a number in the context's memory: llama.cpp keeps keys and values in f16 unless told otherwise."""

_TYPES = {
    int(number): (name, int(block), int(size))
    for number, name, block, size in map(
        str.split,
        (
            *("0 f32 1 4", "1 f16 1 2", "2 q4_0 32 18", "3 q4_1 32 20", "6 q5_0 32 22", "7 q5_1 32 24"),
            *("8 q8_0 32 34", "10 q2_K 256 84", "11 q3_K 256 110", "12 q4_K 256 144", "13 q5_K 256 176"),
            *("14 q6_K 256 210", "16 iq2_xxs 256 66", "17 iq2_xs 256 74", "18 iq3_xxs 256 98", "19 iq1_s 256 50"),
            *("20 iq4_nl 32 18", "21 iq3_s 256 110", "22 iq2_s 256 82", "23 iq4_xs 256 136", "24 i8 1 1"),
            *("25 i16 1 2", "26 i32 1 4", "27 i64 1 8", "28 f64 1 8", "29 iq1_m 256 56", "30 bf16 1 2"),
            *("34 tq1_0 256 54", "35 tq2_0 256 66", "39 mxfp4 32 17", "40 nvfp4 64 36", "41 q1_0 128 18"),
        ),
    )
}
"""By number: the name of a type of tensors, the numbers in a block, and the bytes of a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A decoder, as the header of its file describes it.

    `parameters` counts the numbers in all tensors, and `bytes_by_type` counts their bytes. `heads` and `kv_heads` have
    a number for each layer, and `head_size` has the sizes of a head's key and value. `kv_bytes_per_token` is the memory
    that each token of the context takes in f16: None for architectures that keep something else. With a sliding
    `window`, some layers keep no more tokens than that. `experts_used` of the `experts` compute each token; both are 0
    in a dense model. Counts that the file does not state are None. The file is one of `parts` files.
    """

    architecture: str
    name: str
    layers: int
    width: int | None
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    head_size: tuple[int, int] | None
    context: int | None
    window: int | None
    experts: int
    experts_used: int
    tokenizer: str
    vocabulary: int | None
    parameters: int
    bytes_by_type: Mapping[str, int]
    kv_bytes_per_token: int | None
    parts: int = 1


@dataclass(frozen=True, slots=True)
class _Array:
    """An array of the header: its length, and its numbers if there are few."""

    length: int
    numbers: tuple[float, ...] = ()


class _Header:
    """The bytes of a file, read from the start; each read first checks that the file is long enough."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.place = data, 0

    def skip(self, count: int, what: str) -> int:
        """Skip `count` bytes and return where they begin."""
        begin = self.place
        if count > len(self.data) - begin:
            raise _broken(f"it ends within {what}")
        if begin + count > _MOST_HEADER_BYTES:
            raise _broken(f"its header is longer than {_MOST_HEADER_BYTES >> 20} MiB")
        self.place += count
        return begin

    def number(self, form: str, what: str) -> Any:
        """The next number, of a type of `struct`."""
        return struct.unpack_from(f"<{form}", self.data, self.skip(struct.calcsize(f"<{form}"), what))[0]

    def text(self, what: str) -> str:
        """The next string. UnicodeError if it is not UTF-8."""
        length = self.number("Q", what)
        begin = self.skip(length, what)
        return self.data[begin : begin + length].decode("utf-8")

    def value(self, key: str) -> Any:
        """The next value. UnicodeError as for `text`."""
        kind = self.number("I", key)
        if kind == _STRING:
            return self.text(key)
        if kind != _ARRAY:
            return self.number(self._form(kind, key), key)
        inner = self.number("I", key)
        if inner == _STRING:
            length = self.number("Q", key)
            for _ in range(length):
                self.skip(self.number("Q", key), key)
            return _Array(length)
        form = self._form(inner, key)
        length = self.number("Q", key)
        begin = self.skip(length * struct.calcsize(f"<{form}"), key)
        return _Array(length, struct.unpack_from(f"<{length}{form}", self.data, begin) if length <= _LISTED else ())

    @staticmethod
    def _form(kind: int, key: str) -> str:
        if kind not in _SCALARS:
            raise _broken(f"{key} has a value of the unknown type {kind}")
        return _SCALARS[kind]


def is_gguf(path: Path) -> bool:
    """Return True if a file begins as GGUF files do. Raises ModelError if it cannot be read."""
    with model_errors(path), open_regular(path, _MOST_FILE_BYTES) as file:
        return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC


def read_gguf(path: Path) -> Decoder:
    """The decoder that a GGUF file of version 2 or 3 describes. Raises ModelError for anything else."""
    with model_errors(path), open_regular(path, _MOST_FILE_BYTES) as file:
        if file.read(len(GGUF_MAGIC)) != GGUF_MAGIC:
            raise _broken("it does not begin with GGUF")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _decoder(_Header(data))


def _decoder(header: _Header) -> Decoder:
    header.place = len(GGUF_MAGIC)
    version = header.number("I", "its version")
    if version not in _VERSIONS:
        big = struct.unpack(">I", struct.pack("<I", version))[0] in _VERSIONS
        raise _broken("it is for big-endian machines" if big else f"its version is {version}, not 2 or 3")
    tensors = header.number("Q", "the number of tensors")
    values: dict[str, Any] = {}
    for _ in range(header.number("Q", "the number of values")):
        key = header.text("a key")
        if key in values:
            raise _broken(f"it has the key {shown(key)} twice")
        values[key] = header.value(shown(key))
    parameters, sizes = _tensors(header, tensors, _whole(values, "general.alignment") or _ALIGNMENT)
    return _described(values, parameters, sizes)


def _tensors(header: _Header, count: int, alignment: int) -> tuple[int, dict[str, int]]:
    """The numbers in all tensors, and the bytes by type, the type with the most bytes first."""
    if alignment & (alignment - 1):
        raise _broken(f"its alignment is {alignment}, not a power of 2")
    names: set[str] = set()
    pieces: list[tuple[int, int]] = []
    parameters, sizes = 0, Counter[str]()
    for _ in range(count):
        name = header.text("the name of a tensor")
        if name in names:
            raise _broken(f"it has the tensor {shown(name)} twice")
        names.add(name)
        label = f"the tensor {shown(name)}"
        rank = header.number("I", label)
        if not 1 <= rank <= 4:
            raise _broken(f"{label} has {rank} dimensions, not 1 to 4")
        shape = [header.number("Q", label) for _ in range(rank)]
        number, offset = header.number("I", label), header.number("Q", label)
        if number not in _TYPES:
            raise _broken(f"{label} has the unknown type {number}")
        kind, block, block_bytes = _TYPES[number]
        amount = math.prod(shape)
        if not amount or shape[0] % block or amount > MOST_BYTES:
            raise _broken(f"{label} has the shape {shape}, which {kind} cannot have")
        if offset % alignment:
            raise _broken(f"{label} does not begin at a multiple of {alignment} bytes")
        parameters += amount
        sizes[kind] += amount // block * block_bytes
        pieces.append((offset, offset + amount // block * block_bytes))
    begin = -(-header.place // alignment) * alignment
    end = 0
    for first, last in sorted(pieces):
        if first < end:
            raise _broken("two of its tensors overlap")
        end = last
    if begin + end > len(header.data):
        raise _broken(f"it ends before its tensors do: {begin + end} bytes expected, {len(header.data)} found")
    return parameters, dict(sizes.most_common())


def _described(values: Mapping[str, Any], parameters: int, bytes_by_type: Mapping[str, int]) -> Decoder:
    architecture = _text(values, "general.architecture")
    if not architecture:
        raise _broken("it does not name its architecture")

    def whole(key: str) -> int | None:
        return _whole(values, f"{architecture}.{key}")

    layers, width = whole("block_count"), whole("embedding_length")
    if layers is None or not 0 < layers <= _LISTED:
        raise _broken(f"it has {layers or 'no'} layers", "Give the file of a language model.")
    heads = _by_layer(values, f"{architecture}.attention.head_count", layers)
    kv_heads = _by_layer(values, f"{architecture}.attention.head_count_kv", layers) or heads
    size = width // max(heads) if width and any(heads) else None
    key_size, value_size = whole("attention.key_length") or size, whole("attention.value_length") or size
    head_size = (key_size, value_size) if key_size and value_size else None
    # Latent attention and recurrent layers keep a state of another kind.
    other = any(key.startswith((f"{architecture}.ssm.", f"{architecture}.wkv.")) for key in values)
    plain = head_size is not None and kv_heads and not other and whole("attention.kv_lora_rank") is None
    tokens = values.get("tokenizer.ggml.tokens")
    return Decoder(
        architecture=architecture,
        name=_text(values, "general.name"),
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        context=whole("context_length"),
        window=whole("attention.sliding_window") or None,
        experts=whole("expert_count") or 0,
        experts_used=whole("expert_used_count") or 0,
        tokenizer=_text(values, "tokenizer.ggml.model"),
        vocabulary=tokens.length if isinstance(tokens, _Array) else whole("vocab_size"),
        parameters=parameters,
        bytes_by_type=bytes_by_type,
        kv_bytes_per_token=sum(kv_heads) * sum(head_size) * _CACHE_BYTES if plain and head_size else None,
        parts=_whole(values, "split.count") or 1,
    )


def _whole(values: Mapping[str, Any], key: str) -> int | None:
    """A whole number that is not negative; None if the file does not state it."""
    value = values.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _broken(f"{shown(key)} is not a whole number")
    return value


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key, "")
    if not isinstance(value, str) or len(value) > _LISTED:
        raise _broken(f"{shown(key)} is not text of at most {_LISTED} characters")
    return value


def _by_layer(values: Mapping[str, Any], key: str, layers: int) -> tuple[int, ...]:
    """A whole number for each layer; none if the file does not state any. The file may state a single number for all
    layers.
    """
    value = values.get(key)
    if not isinstance(value, _Array):
        number = _whole(values, key)
        return () if number is None else (number,) * layers
    numbers = value.numbers
    if len(numbers) != layers or not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise _broken(f"{shown(key)} does not have a whole number for each of {layers} layers")
    return tuple(map(int, numbers))


def _broken(
    reason: str, hint: str = "Download or convert the model again, and check that you can trust it."
) -> ModelError:
    return ModelError(f"this GGUF file cannot be read: {reason}", hint=hint)
