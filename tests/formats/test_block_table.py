"""Block tables of the ProxylessNAS and OFA kind: both styles of YAML, hostile files, everything told at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.scans import read_block_table

from gnomon.errors import ProblemError
from gnomon.formats.block_table import scan_block_table

GOLDEN = Path(__file__).parent / "golden"
NAMES = st.from_regex(r"[A-Za-z_]{1,9}-input:[0-9]{1,3}x[0-9]{1,3}-expand:[0-9]", fullmatch=True)
FIELDS = st.dictionaries(st.sampled_from(["std", "count", "min", "max"]), st.floats(0, 1e9), max_size=4)


@pytest.mark.parametrize("style", ["flow", "block"])
def test_both_styles_are_read(style: str) -> None:
    table = read_block_table((GOLDEN / f"block-table-{style}.yaml").read_bytes())
    means = [block.mean_ms for block in table.values()]
    assert means == [8.25, 9.5, 0.35, 2.0]
    first, second, third, last = table.values()
    assert (first.kind, first.attributes) == ("Conv", {"input": "224x224x3", "output": "112x112x32"})
    assert first.numbers == {"count": 12.0, "mean": 8.25, "std": 0.5}
    assert second.kind == "expanded_conv"
    assert second.numbers["max"] == 10.0
    assert second.attributes["expand"] == "1"
    assert len(third.name) > 128
    assert third.attributes["activation"] == "hard_swish"
    assert third.attributes["groups"] == "1"
    assert last.name == "Logits-input:7x7x1280-output:1000"
    assert last.numbers == {"mean": 2.0}


@given(st.dictionaries(NAMES, st.tuples(st.floats(1e-3, 1e9), FIELDS), min_size=1, max_size=5), st.booleans())
def test_what_is_written_is_read(blocks: dict[str, tuple[float, dict[str, float]]], flow: bool) -> None:
    lines = []
    for name, (mean, fields) in blocks.items():
        items = [f"{key}: {value!r}" for key, value in {"mean": mean, **fields}.items()]
        lines += [f"{name}: {{{', '.join(items)}}}"] if flow else [f"{name}:", *(f"  {item}" for item in items)]
    table = read_block_table("\n".join(lines) + "\n")
    assert {name: block.mean_ms for name, block in table.items()} == {n: m for n, (m, _) in blocks.items()}
    assert all(dict(block.numbers) == {"mean": block.mean_ms, **blocks[name][1]} for name, block in table.items())


def test_json_is_read_as_the_same_table() -> None:
    text = (GOLDEN / "block-table-flow.yaml").read_bytes()
    table = read_block_table(text)
    as_json = json.dumps({name: dict(block.numbers) for name, block in table.items()}, indent=1)
    assert read_block_table(as_json) == table
    wrong = {"good": {"mean": 1.5}, "zero": {"mean": 0}, "list": [1, 2], "word": {"mean": "x"}, "/x": {"mean": 1}}
    blocks, complaints = scan_block_table(json.dumps(wrong))
    assert list(blocks) == ["good"]
    assert [told.partition(":")[0] for told in complaints.told] == ["block 2", "block 3", "block 4", "block 5"]
    for broken in ('{"a": {"mean": 1}, "a": {"mean": 2}}', '{"a": {"mean": 1}', "{a: {mean: 1}}"):
        with pytest.raises(ProblemError, match="malformed"):
            read_block_table(broken)


def test_everything_wrong_is_told_at_once_and_the_rest_kept() -> None:
    text = "\n".join(
        [
            "good: {mean: 1.5}",
            "zero: {mean: 0.0}",
            "none: {std: 1.0}",
            "good: {mean: 2.5}",
            "/data/x: {mean: 2.5}",
            "nan: {mean: .nan}",
            "list: [1, 2]",
            "anchor: &a {mean: 1.0}",
            "alias: *a",
            "object: !!python/object/apply:os.system {mean: 1.0}",
            "nested: {mean: {deep: 1.0}}",
            "twice: {mean: 1.0, mean: 2.0}",
            "    stray: 1.0",
            "- mean: 1.0",
            "better:",
            "  mean: 2.5",
            "  count: &b 2",
            "open: {mean: 1.0",
            "comma: {mean: 1,5}",
            """best: {"mean": .75, 'std': .02}""",
        ]
    )
    table, complaints = scan_block_table(text)
    assert {name: block.mean_ms for name, block in table.items()} == {"good": 1.5, "best": 0.75}
    for line in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 17, 18, 19):
        assert any(told.startswith(f"line {line}: ") for told in complaints.told), (line, complaints.told)
    with pytest.raises(ProblemError, match=r"line 2: .*; line 4: "):
        read_block_table(text)


def test_hostile_files_are_refused() -> None:
    with pytest.raises(ProblemError, match="letters"):
        read_block_table(b"x" * ((64 << 20) + 1))
    with pytest.raises(ProblemError, match="UTF-8"):
        read_block_table(b"\xff")
    with pytest.raises(ProblemError, match="no block at all"):
        read_block_table("# nothing\n")
    with pytest.raises(ProblemError, match="the name of a block"):
        read_block_table(f"{'x' * 2000}: {{mean: 1.0}}\n")
    with pytest.raises(ProblemError, match=r"not JSON|nested too deeply"):
        read_block_table("{" * 10_000)
