"""Perfetto's trace processor, as Debian has it: a library of C++ in chromium-shell, made for Chromium's own tests.

Run as a program, it reads the trace that the first argument names, and prints as JSON what each further one, a query in
SQL, answers. It calls three functions of the library by their names, and lays out the two types of the C++ library that
they take: a crash ends this process alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LIBRARY = Path(os.environ.get("GNOMON_TRACE_PROCESSOR", "/usr/lib/chromium/libtest_trace_processor.so"))
needs_perfetto = pytest.mark.skipif(
    not LIBRARY.is_file(), reason="no trace processor of Perfetto here (Debian: chromium-shell)"
)
_CLASS = "N4base4test22TestTraceProcessorImpl"
_STRING = "NSt3__112basic_stringIcNS2_11char_traitsIcEENS2_9allocatorIcEEEE"
_BYTES = "NSt3__16vectorIcNS2_9allocatorIcEEEE"
_PART = 24
"""Bytes of a vector (begin, end, end of its room), and of a string."""


def asked(trace: Path, *queries: str) -> list[list[dict[str, str]]]:
    """What the trace processor answers to each query of a trace: a row an object. A query that fails is an error."""
    done = subprocess.run(
        [sys.executable, __file__, str(trace), *queries], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    tables: list[list[list[str]]] = json.loads(done.stdout)
    return [[dict(zip(names, row, strict=True)) for row in rows] for names, *rows in tables]


def _main(path: str, queries: list[str]) -> None:
    library = ctypes.CDLL(str(LIBRARY))
    construct, parse, query = (
        getattr(library, f"_Z{name}")
        for name in (f"{_CLASS}C1Ev", f"{_CLASS}10ParseTraceERK{_BYTES}", f"NK{_CLASS[1:]}12ExecuteQueryERK{_STRING}")
    )
    processor = ctypes.create_string_buffer(4096)
    _call(construct, processor)
    text = Path(path).read_bytes()
    status = ctypes.create_string_buffer(256)
    held = ctypes.create_string_buffer(text, len(text))
    begin = ctypes.addressof(held)
    _call(parse, status, processor, _part(begin, begin + len(text), begin + len(text)))
    if struct.unpack_from("<Q", status)[0] != 1:  # absl::OkStatus
        sys.exit("the trace was refused")
    tables = []
    for one in queries:
        words = ctypes.create_string_buffer(one.encode())
        # A long string: its room with the mark of one, its length, its letters.
        text_of = _part(len(words) + 16 & ~15 | 1, len(words) - 1, ctypes.addressof(words))
        answer = ctypes.create_string_buffer(4096)
        _call(query, answer, processor, text_of)
        if error := _text(ctypes.addressof(answer) + _PART):
            sys.exit(error)
        tables.append([[_text(cell) for cell in _items(row)] for row in _items(ctypes.addressof(answer))])
    print(json.dumps(tables), flush=True)
    os._exit(0)  # nothing of the library is taken down


def _call(function: Any, *arguments: Any) -> None:
    function.restype = ctypes.c_void_p
    function(*(ctypes.c_void_p(ctypes.addressof(one)) for one in arguments))


def _part(*words: int) -> Any:
    return ctypes.create_string_buffer(struct.pack("<QQQ", *words), _PART)


def _items(vector: int) -> range:
    begin, end, _ = struct.unpack("<QQQ", ctypes.string_at(vector, _PART))
    return range(begin, end, _PART)


def _text(string: int) -> str:
    raw = ctypes.string_at(string, _PART)
    if raw[0] & 1:
        _, length, letters = struct.unpack("<QQQ", raw)
        return ctypes.string_at(letters, length).decode()
    return raw[1 : 1 + (raw[0] >> 1)].decode()


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
