"""An SNPE SDK of stand-ins (tests/standins/snpe) in a folder of its own, laid out as the real one is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).with_name("snpe")
VERSION = "1.33.1.608"


def sdk(folder: Path) -> Path:
    """The SDK's folder, in the layout of 2.x. Skips where ONNX Runtime is not installed."""
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed")
    root = folder / f"snpe-{VERSION}"
    programs, bench = root / "bin" / "x86_64-linux-clang", root / "benchmarks" / "SNPE"
    for source, made in (
        ("snpe-onnx-to-dlc", programs / "snpe-onnx-to-dlc"),
        ("snpe-bench", bench / "snpe_bench.py"),
        ("common", root / "lib" / "python" / "snpe_standin.py"),
    ):
        made.parent.mkdir(parents=True, exist_ok=True)
        _, _, text = (SOURCES / source).read_text().partition("\n")
        made.write_text(f"#!{sys.executable}\n{text}" if source != "common" else (SOURCES / source).read_text())
        made.chmod(0o755)
    return root
