"""The JSON documents: complete, valid, and described key by key."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from tests.cli.placement_kit import HOSTILE, keys_of, measured, placement, profiled

from gnomon.cli.output import write_json
from gnomon.session.contender import level

DOCS = Path(__file__).resolve().parents[2] / "docs"
FREE = {
    "inputs",
    "settings",
    "fingerprint",
    "versions",
    "unattributed_s",
    "solutions",
    "times_s",
    "within",
    "temperatures_c",
    "resolutions_s",
    "shapes",
}
"""Objects whose keys are names of runtimes, contenders or configurations."""


def described(name: str) -> str:
    """A document, whose words in backticks are the keys that it describes."""
    return (DOCS / name).read_text(encoding="utf-8")


def words(text: str) -> set[str]:
    return {part for code in re.findall(r"`([^`\n]+)`", text) for part in re.findall(r"[a-z][a-z0-9_]*", code)}


@pytest.mark.parametrize("name", ["formats/place-json.md", "formats/profile-json.md"])
def test_every_key_is_described(name: str) -> None:
    document = (placement() if name == "formats/place-json.md" else profiled()).document()
    told = words(described(name)) | words(described("formats/documents.md"))
    for path in keys_of(document):
        parts = path.replace("[]", "").split(".")
        inside = next((k for k, part in enumerate(parts[:-1]) if part in FREE), None)
        if inside is None:
            assert parts[-1] in told, f"{path} is described nowhere in docs/{name}"


def test_described_keys_exist() -> None:
    text = described("formats/place-json.md")
    document = placement().document()
    found = {part for path in keys_of(document) for part in path.replace("[]", "").split(".")}
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    for row in rows:
        assert words(row) <= found, row


def test_the_document_says_what_the_records_say() -> None:
    document = placement().document()
    plan = document["contenders"][2]
    assert document["decision"]["kind"] == "plan"
    assert plan["level_s"] == level(measured("plan", 160), "cpu")
    assert plan["prediction_error"] == pytest.approx(plan["predicted_s"] / plan["level_s"] - 1)
    gain, ratio = document["decision"]["speedup_vs_best_single"], plan["against_best"]
    assert gain["ratio"] == pytest.approx(1 / ratio["ratio"])
    assert gain["low"] == pytest.approx(1 / ratio["high"])
    assert gain["high"] == pytest.approx(1 / ratio["low"])
    assert plan["assignment"] == ["cpu", "cpu", "ruy", "ruy"]
    assert plan["operators_s"] == [100e-6, 20e-6, 30e-6, 4e-6]
    assert document["contenders"][3]["failure"]["kind"] == "crash"
    assert document["contenders"][3]["measured"] is None
    assert document["solutions"]["onert"]["code"] == "12"


def test_a_single_choice_has_no_speedup() -> None:
    document = placement(mixed=False).document()
    assert document["decision"]["kind"] == "single"
    assert document["decision"]["speedup_vs_best_single"] is None


def test_the_output_is_ascii_json_without_infinity(capsys: pytest.CaptureFixture[str]) -> None:
    value: dict[str, Any] = {"a": math.inf, "b": [math.nan, (1.5, -math.inf)], HOSTILE: HOSTILE}
    write_json(value)
    text = capsys.readouterr().out
    assert text.isascii()
    assert not set(text) & {"\x1b", "\x07"}
    assert json.loads(text) == {"a": None, "b": [None, [1.5, None]], HOSTILE: HOSTILE}
