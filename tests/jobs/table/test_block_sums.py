"""`gnomon table blocks`: published tables of blocks, listed and added up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnomon.cli.main import run
from gnomon.errors import ProblemError, UsageError
from gnomon.jobs.table.look import blocks

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "block-table-block.yaml"
STEM = "Conv-input:224x224x3-output:112x112x32"
SECOND = "expanded_conv-input:112x112x32-output:112x112x16-expand:1-kernel:3-stride:1-idskip:0"


def test_blocks_are_listed_and_added_up() -> None:
    found = blocks(GOLDEN, [STEM, SECOND, SECOND])
    assert found.sum is not None and found.sum.blocks == 3
    assert found.sum.mean_s == pytest.approx((8.25 + 2 * 9.5) * 1e-3)
    first = found.blocks[0]
    assert (first.name, first.kind, first.std_s, first.count) == (STEM, "Conv", 0.5e-3, 12)
    assert first.attributes["output"] == "112x112x32"
    assert blocks(GOLDEN).sum is None
    with pytest.raises(UsageError, match="no block") as told:
        blocks(GOLDEN, [STEM.replace("224x224", "192x192")])
    assert STEM in told.value.hint


def test_a_variance_is_shown_as_a_deviation(tmp_path: Path) -> None:
    file = tmp_path / "lookup_table.json"
    file.write_text('{"a": {"mean": 2.0, "var": 0.04}, "b": {"mean": 1.0, "var": 9.0, "std": 0.5}, "c": {"mean": 1}}')
    assert [row.std_s for row in blocks(file).blocks] == [pytest.approx(0.2e-3), 0.5e-3, None]


def test_the_good_part_of_a_file_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("a: {mean: 1.5}\nb: {mean: -2}\n")
    found = blocks(file)
    assert [row.name for row in found.blocks] == ["a"]
    assert "line 2" in found.left_out[0]
    file.write_text("!!python/object:os.system {mean: 1}\n")
    with pytest.raises(ProblemError):
        blocks(file)
    with pytest.raises(UsageError, match="cannot be read"):
        blocks(tmp_path / "none.yaml")


def test_the_command_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["table", "blocks", str(GOLDEN), "--sum", f"{STEM},{SECOND}", "--sum", STEM, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sum"]["blocks"] == 3
    assert run(["table", "blocks", str(GOLDEN), "--sum", STEM]) == 0
    said = capsys.readouterr().out
    assert "1 block: 8.25 ms." in said
    assert SECOND[:30] in said
