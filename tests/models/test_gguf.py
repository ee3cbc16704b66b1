"""Headers of GGUF files: what they say, and what is refused."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.ggufkit import LLAMA, TENSORS, gguf, text

from gnomon.errors import ModelError
from gnomon.models.gguf import Decoder, read_gguf


def read(folder: Path, data: bytes) -> Decoder:
    path = folder / "m.gguf"
    path.write_bytes(data)
    return read_gguf(path)


def test_a_header_says_what_the_decoder_is(tmp_path: Path) -> None:
    decoder = read(tmp_path, gguf())
    assert (decoder.architecture, decoder.name, decoder.layers, decoder.width) == ("llama", "tiny", 2, 64)
    assert (decoder.heads, decoder.kv_heads, decoder.head_size) == ((2, 2), (1, 1), (32, 32))
    assert (decoder.context, decoder.tokenizer, decoder.vocabulary) == (128, "llama", 3)
    assert decoder.bytes_by_type == {"f16": 384, "q4_K": 288, "f32": 256}
    assert decoder.parameters == 192 + 512 + 64
    assert decoder.kv_bytes_per_token == 2 * (32 + 32) * 2  # 2 layers with one head of keys and values, 2 bytes each
    assert (decoder.experts, decoder.experts_used, decoder.window, decoder.parts) == (0, 0, None, 1)


def test_each_layer_may_have_its_own_heads(tmp_path: Path) -> None:
    values = {**LLAMA, "llama.attention.head_count_kv": [0, 2], "llama.attention.key_length": 48}
    decoder = read(tmp_path, gguf(values))
    assert decoder.kv_heads == (0, 2)
    assert decoder.kv_bytes_per_token == 2 * (48 + 32) * 2


@pytest.mark.parametrize("more", [{"llama.attention.kv_lora_rank": 512}, {"llama.ssm.state_size": 16}])
def test_the_memory_of_other_states_is_unknown(tmp_path: Path, more: dict[str, Any]) -> None:
    assert read(tmp_path, gguf({**LLAMA, **more})).kv_bytes_per_token is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GGU", "does not begin with GGUF"),
        (gguf(version=1), "its version is 1, not 2 or 3"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (gguf()[:60], "it ends within"),
        (gguf()[:-32], "it ends before its tensors do"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "it ends within the name of a tensor"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 63), "it ends within a key"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 9, 1), "unknown type 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 4, 1 << 40), "it ends within 'a'"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IIQ", 9, 8, 1 << 60), "it ends within 'a'"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<I", 77), "unknown type 77"),
        (gguf({}), "does not name its architecture"),
        (gguf({"general.architecture": 3}), "is not text"),
        (gguf({"general.architecture": "a" * 5000}), "is not text of at most 4096 characters"),
        (gguf({**LLAMA, "llama.block_count": 1 << 31}), "it has 2147483648 layers"),
        (gguf({**LLAMA, "llama.context_length": "long"}), "'llama.context_length' is not a whole number"),
        (gguf({**LLAMA, "llama.attention.head_count": [2]}), "a whole number for each of 2 layers"),
        (gguf({**LLAMA, "general.alignment": 3}), "its alignment is 3"),
        (gguf(tensors=[("a", (64,), 99)]), "the unknown type 99"),
        (gguf(tensors=[("a", (64,), 12)]), r"the shape \[64\], which q4_K cannot have"),
        (gguf(tensors=[("a", (1,) * 5, 0)]), "5 dimensions"),
        (gguf(tensors=[("a", (64,), 0)] * 2), "the tensor 'a' twice"),
        (
            gguf(tensors=TENSORS[2:]).replace(struct.pack("<QIQ", 64, 0, 0), struct.pack("<QIQ", 64, 0, 8)),
            "multiple of 32",
        ),
    ],
)
def test_what_is_broken_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(tmp_path, data)


def test_a_header_without_an_end_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    path = tmp_path / "sparse.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<IQ", 8, 1 << 33))
    os.truncate(path, 1 << 34)
    with pytest.raises(ModelError, match="its header is longer than 64 MiB"):
        read_gguf(path)


def test_tensors_may_not_overlap(tmp_path: Path) -> None:
    data = gguf(tensors=[("a", (64,), 0), ("b", (64,), 0)]).replace(
        struct.pack("<QIQ", 64, 0, 256), struct.pack("<QIQ", 64, 0, 0)
    )
    with pytest.raises(ModelError, match="two of its tensors overlap"):
        read(tmp_path, data)


@given(st.integers(0, len(gguf()) - 1), st.binary(min_size=1, max_size=9), st.booleans())
def test_damaged_headers_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, place: int, piece: bytes, cut: bool
) -> None:
    data = gguf()
    damaged = data[:place] + piece + (b"" if cut else data[place + len(piece) :])
    try:
        read(tmp_path_factory.getbasetemp(), damaged)
    except ModelError as error:
        assert error.hint
