"""Placement on two sides with real transfers: what is run, what the prices say of it, and what becomes a contender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
ncnn = pytest.importorskip("ncnn")

from tests.models.modelkit import model, node, save, value  # noqa: E402

from gnomon.core.pricing.transfers import AWAY, HOME, PlacedRun, TransferPrices, Wiring, fit_transfers  # noqa: E402
from gnomon.errors import RuntimeMissingError  # noqa: E402
from gnomon.jobs.place import inside as pricing  # noqa: E402
from gnomon.jobs.place.inside import TransferPlacer, TransferResult  # noqa: E402
from gnomon.measure.effort import Effort  # noqa: E402
from gnomon.models.ncnn.convert import find_pnnx  # noqa: E402
from gnomon.runtimes.base import RunSettings  # noqa: E402
from gnomon.session.contender import (  # noqa: E402
    choose_clock,
    profile_singles,
)
from gnomon.session.model_session import open_session  # noqa: E402
from gnomon.session.reference import reference  # noqa: E402
from gnomon.session.request import ModelRequest  # noqa: E402


def what_is_missing() -> str:
    try:
        find_pnnx()
    except RuntimeMissingError:
        return "pnnx is not installed (pip install --no-deps pnnx)"
    return "" if ncnn.get_gpu_count() else "ncnn finds no Vulkan device (mesa-vulkan-drivers has one)"


MISSING = what_is_missing()


def branched(folder: Path) -> Path:
    """A convolution, two branches, and their sum."""
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        node("Sigmoid", ["c"], ["s"], "sigmoid"),
        node("Tanh", ["c"], ["t"], "tanh"),
        node("Add", ["s", "t"], ["y"], "add"),
    ]
    made = model(nodes, [value("x", [1, 3, 8, 8])], [value("y", [1, 4, 8, 8])], {"w": weights})
    return save(made, folder / "branched.onnx")


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "nothing is missing")
def test_prices_cover_every_layer_and_the_plan_follows_them(
    tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing, "DRAWN", 2)
    request = ModelRequest(
        model=branched(tmp_path),
        runtimes=("ncnn", "onnxruntime"),
        settings=RunSettings(backends=("cpu", "vulkan")),
        effort=small,
        record=tmp_path / "record.sqlite",
    )
    with open_session(request, kind="place", question={}) as session:
        reference(session)
        target = next(t for t in session.targets if t.runtime.name == "ncnn")
        placer = TransferPlacer(session, target)
        singles = placer.singles()
        assert [c.label.partition(" ")[0] for c in singles] == ["ncnn:cpu", "ncnn:vulkan"]
        alive = profile_singles(session, singles)
        assert alive == singles, session.missing
        clock = choose_clock(session, (session.runner.known(c.key) for c in alive))
        first = placer.run(alive, clock)
        # As on a device with a real GPU. What is known is not measured again, only the plan that follows.
        monkeypatch.setattr(pricing, "fit_transfers", cheap_away)
        second = placer.run(alive, clock)
        assert not [m for m in session.missing if "pricing" in m.name]
    for result in (first, second):
        check(placer, result)
    assert AWAY in second.solution.assignment


def check(placer: TransferPlacer, result: TransferResult) -> None:
    """What holds whatever the machine measured."""
    names = [op.type for op in placer.graph.operators]
    assert np.isfinite(result.prices_s[:, HOME]).all()
    assert [names[k] for k in np.flatnonzero(np.isinf(result.prices_s[:, AWAY]))] == ["Input"]
    assert result.solution.optimal
    assert result.solution.value == pytest.approx(result.transfers.total_s(result.solution.assignment))
    for contender in result.contenders:
        assert contender.predicted_s == pytest.approx(result.transfers.total_s(placer.assignment(contender)))
    kinds = [c.kind for c in result.contenders]
    assert kinds[:2] == ["single", "single"]
    assert bool(result.why) == (len(kinds) == 2) or result.solution.assignment in {
        placer.assignment(c) for c in result.contenders[:2]
    }


def cheap_away(wiring: Wiring, runs: Sequence[PlacedRun], *, sides: int = 2) -> TransferPrices:
    """Prices by which computing away costs next to nothing, whatever was measured."""
    found = fit_transfers(wiring, runs, sides=sides)
    found.own_s[:, AWAY] *= 1e-6
    found.own_s[:, HOME] += 1e-6  # a fit may hold nothing for what is short
    return replace(found, bring_s=((1e-9, 0.0),), fetch_s=((1e-9, 0.0),))
