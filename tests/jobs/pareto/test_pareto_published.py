"""The published examples of pareto_profiler's dumps, both of one model: what is read, and what is found.

The rows are those that ONE's own document shows of a MobileNetV2 on a phone's chip: memory jumps by about 320 MB when
one operator type moves.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnomon.formats.pareto.dump import read_dump, write_dump
from gnomon.jobs.pareto.job import pareto
from gnomon.jobs.pareto.search import ParetoRequest, Plan

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "pareto"
BRUTE, SAMPLER = GOLDEN / "pareto-published-brute-force.json", GOLDEN / "pareto-published-sampler.json"


def test_both_spellings_are_read() -> None:
    brute, sampler = read_dump(BRUTE.read_bytes()), read_dump(SAMPLER.read_bytes())
    assert (brute.spelling, sampler.spelling) == ("brute-force", "sampler")
    assert brute.backends == sampler.backends == ("cpu", "acl_cl")
    assert set(brute.slots) == set(sampler.slots)
    assert not sampler.doubts
    assert len(brute.doubts) == 1  # an excerpt does not tell how many backends there are
    assert write_dump(brute) == BRUTE.read_text()
    assert json.loads(write_dump(sampler)) == json.loads(SAMPLER.read_text())
    # The slots stand in another order, so that the same code means another assignment; all on one backend is the same.
    assert (brute.slots[2], sampler.slots[2]) == ("DepthwiseConv2D", "Reshape")
    every = {dump.spelling: next(r for r in dump.solutions if r.id == 31) for dump in (brute, sampler)}
    assert every["sampler"].memory_kib == pytest.approx(every["brute-force"].memory_kib, rel=0.003)


@pytest.mark.parametrize(
    ("path", "front"), [(BRUTE, [15, 31, 13, 12, 5, 2, 0]), (SAMPLER, [31, 14, 10, 21, 20, 16, 4])]
)
def test_the_front_of_what_was_published(path: Path, front: list[int]) -> None:
    found = pareto(ParetoRequest(source=path, plan=Plan(name="brute")))
    assert [int(p.code) for p in found.front] == front
    assert found.certificate == "heuristic"  # the document shows an excerpt
