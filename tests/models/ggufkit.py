"""Small GGUF files, written as docs/gguf.md of ggml describes them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

LLAMA: Mapping[str, Any] = {
    "general.architecture": "llama",
    "general.name": "tiny",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.context_length": 128,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<s>", "</s>", "a"],
    "tokenizer.ggml.scores": [0.0, 0.0, -1.0],
}
TENSORS = (("token_embd.weight", (64, 3), 1), ("blk.0.ffn_up.weight", (256, 2), 12), ("norm", (64,), 0))
"""Names, shapes and types: 384 bytes in f16, 288 in q4_K, 256 in f32."""
_BYTES = {0: (1, 4), 1: (1, 2), 8: (32, 34), 12: (256, 144)}


def text(words: str) -> bytes:
    """A string with its length."""
    data = words.encode()
    return struct.pack("<Q", len(data)) + data


def value(content: Any) -> bytes:
    """A value with its type; lists have values of one type."""
    if isinstance(content, list):
        first = value(content[0])
        return (
            struct.pack("<I", 9) + first[:4] + struct.pack("<Q", len(content)) + b"".join(value(c)[4:] for c in content)
        )
    if isinstance(content, str):
        return struct.pack("<I", 8) + text(content)
    if isinstance(content, bool):
        return struct.pack("<I?", 7, content)
    return struct.pack("<If", 6, content) if isinstance(content, float) else struct.pack("<II", 4, content)


def gguf(
    values: Mapping[str, Any] = LLAMA, tensors: Sequence[tuple[str, tuple[int, ...], int]] = TENSORS, version: int = 3
) -> bytes:
    """A file with these values and with tensors of zeros."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    head += b"".join(text(key) + value(content) for key, content in values.items())
    offset = 0
    for name, shape, kind in tensors:
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        count = 1
        for size in shape:
            count *= size
        block, size = _BYTES.get(kind, (1, 4))
        offset += -(-(count // block * size) // 32) * 32
    return head + bytes(-len(head) % 32) + bytes(offset)
