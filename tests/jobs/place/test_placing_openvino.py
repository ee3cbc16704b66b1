"""Operators placed by the real OpenVINO on the CPU and on its plugin registered once more. No times are judged."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from tests.runtimes.openvinokit import net

from gnomon.core.pricing.transfers import AWAY, HOME
from gnomon.jobs.place import inside as pricing
from gnomon.jobs.place.inside import TransferPlacer
from gnomon.measure.effort import Effort
from gnomon.runtimes.base import RunSettings
from gnomon.session.contender import choose_clock, profile_singles
from gnomon.session.model_session import open_session
from gnomon.session.package import write_package
from gnomon.session.prove import verify
from gnomon.session.reference import reference
from gnomon.session.request import ModelRequest


@pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="openvino is not installed")
def test_devices_of_openvino_are_priced_solved_and_proved(
    tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing, "DRAWN", 2)
    request = ModelRequest(
        model=net(tmp_path / "net.onnx"),
        runtimes=("openvino",),
        settings=RunSettings(backends=("cpu", "cpu-f32")),
        effort=small,
        record=tmp_path / "record.sqlite",
    )
    with open_session(request, kind="place", question={}) as session:
        reference(session)
        (target,) = session.targets
        placer = TransferPlacer(session, target)
        alive = profile_singles(session, placer.singles())
        assert [c.label for c in alive] == ["openvino[devices]:cpu", "openvino[devices]:cpu-f32"], session.missing
        result = placer.run(alive, choose_clock(session, (session.runner.known(c.key) for c in alive)))
        assert not [m for m in session.missing if "pricing" in m.name]
        assert np.isfinite(result.prices_s).all()
        assert result.solution.optimal
        assert result.solution.value == pytest.approx(result.transfers.total_s(result.solution.assignment))
        assert placer.along(result.solution.assignment) == result.solution.assignment
        sides = placer.along((HOME, HOME, HOME, AWAY, AWAY, HOME, AWAY, HOME, HOME))
        mix = placer.contender("plan", "a mix", sides, None)
        verified, places = verify(session, write_package(session, mix, tmp_path / "package", overwrite=False), mix)
    assert verified.ok, verified
    assert places == mix.backends
    assert (tmp_path / "package" / "openvino_hetero.py").is_file()
