"""The file of own primitives that docs/jobs/space.md shows is the one that its commands take."""

from __future__ import annotations

from tests.docs.documents import ROOT, blocks


def test_the_shown_file_is_the_one_that_is_there() -> None:
    shown = [block.text for block in blocks(ROOT / "docs" / "jobs" / "space.md") if block.language == "python"]
    assert (ROOT / "docs" / "examples" / "wide.py").read_text(encoding="utf-8") in shown
