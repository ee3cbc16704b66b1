"""A plan whose segment a runtime refuses is never proposed: the best that does without it is."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tests.models.modelkit import model, node, save, value

from gnomon.jobs.place.across import AcrossPlacer, SegmentFiles, merge
from gnomon.measure.effort import Effort
from gnomon.models.cutters import open_cutter
from gnomon.session.contender import Anchor, profile_singles
from gnomon.session.model_session import open_session
from gnomon.session.reference import reference
from gnomon.session.request import ModelRequest

pytestmark = pytest.mark.skipif(find_spec("MNN") is None, reason="MNN is not installed")

WIDTH = 16


def dynamically_quantised(path: Path) -> Path:
    """Two products of eight bits with a Relu between them: MNN takes the operators of a product together alone."""
    nodes: list[Any] = []
    held: dict[str, Any] = {}
    for number, (reads, writes) in enumerate((("x", "a"), ("b", "y"))):
        q, s, z, w, ws, wz = (f"{name}{number}" for name in ("q", "s", "z", "w", "ws", "wz"))
        nodes += [
            node("DynamicQuantizeLinear", [reads], [q, s, z]),
            node("Mul", [s, ws], [f"scale{number}"]),
            node("MatMulInteger", [q, w, z, wz], [f"sum{number}"]),
            node("Cast", [f"sum{number}"], [f"real{number}"], to=TensorProto.FLOAT),
            node("Mul", [f"real{number}", f"scale{number}"], [writes]),
        ]
        weight = np.random.default_rng(number).integers(-100, 100, (WIDTH, WIDTH)).astype(np.int8)
        held |= {w: weight, ws: np.float32(0.01), wz: np.int8(0)}
        nodes += [node("Relu", ["a"], ["b"])] if number == 0 else []
    return save(model(nodes, [value("x", [1, WIDTH])], [value("y", [1, WIDTH])], held), path)


@pytest.mark.slow
def test_a_plan_gives_way_whose_segment_is_refused(small: Effort, tmp_path: Path) -> None:
    path = dynamically_quantised(tmp_path / "m.onnx")
    request = ModelRequest(model=path, effort=small, runtimes=("onnxruntime", "mnn"))
    with open_session(request, kind="test", question={}) as session:
        reference(session)
        targets = {target.configuration.name: target for target in session.targets}
        placer = AcrossPlacer(session, [targets["onnxruntime"], targets["mnn"]], tmp_path)
        alive = profile_singles(session, [placer.whole(target) for target in placer.targets])
        cutter = open_cutter(path, "onnx")
        kinds = [session.graph.operators[index].type for index in cutter.order]
        assert (kinds[1], kinds[5]) == ("MatMulInteger", "Relu")
        # The first block ends within what MNN takes together; the third is the Relu, which it takes alone.
        placer.files = SegmentFiles(cutter, (0, 2, 5, 6, 11), tmp_path, session)
        prior = np.array([[9.0, 1.0], [1.0, 9.0], [9.0, 1.0], [1.0, 9.0]])
        greedy = merge([int(b) for b in prior.argmin(axis=1)])
        prices, solution = placer._settle(prior, [], Anchor(candidate=alive[0].candidate, clock="wall"), math.inf)
        plan = merge(solution.assignment)
        assert plan == ((0, 2, 0), (2, 3, 1), (3, 4, 0))
        assert placer._barred() == {(1, 1, False)}, "MNN takes the first block"
        (mix,) = placer._extra(prices, plan, greedy, math.inf)
        measured = session.runner.measure("test", [mix.candidate], small)[mix.key]
        assert (mix.kind, measured.failure) == ("plan", None)
