"""Whether mixing can pay at all: said from kernels that are surely within a block, never from time shared out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.bad_days.livekit import matmul_onnx

from gnomon.core.sample import OperatorSamples, Run, Samples
from gnomon.errors import GnomonError
from gnomon.jobs.place.across import AcrossPlacer, AcrossResult
from gnomon.measure.campaign import Measured
from gnomon.measure.effort import Effort
from gnomon.models.load import load
from gnomon.runtimes.base import Configuration, PlacedModel, Support
from gnomon.session.contender import trace_of
from gnomon.session.model_session import ModelSession
from gnomon.session.targets import Target

DEPTH = 8
KERNELS = [(2 * k, 2 * k + 1) for k in range(DEPTH)]
"""A product and what follows it in one kernel."""

Times = Sequence[tuple[tuple[int, ...], int]]


class Priced(GnomonError):
    """The gate was open: chains were to be priced."""


def decide(folder: Path, profiles: dict[str, Times], monkeypatch: pytest.MonkeyPatch) -> AcrossResult:
    """What the placer says of configurations whose profiles have kernels of these operators and times."""
    path = folder / "m.onnx"
    path.write_bytes(matmul_onnx(depth=DEPTH))
    model = load(path)
    placed = PlacedModel(graph=model.graph, path=str(path), inputs=("x",), outputs=("y",))
    known: dict[str, Measured] = {}
    session = cast(
        "ModelSession",
        SimpleNamespace(
            graph=model.graph,
            read=SimpleNamespace(source=path),
            placed=placed,
            request=SimpleNamespace(effort=Effort(), seed=0, used_s=0.0),
            runner=SimpleNamespace(known=lambda key: known[key], over=lambda stage, needs_s: False, stopped=""),
            job=lambda segments: {"segments": segments},
            tolerance=lambda configuration: 1e-3,
            push=lambda path, name: str(path),
            cut_files={},
        ),
    )
    targets = [
        Target(
            runtime=cast("Any", SimpleNamespace(segment=lambda placed, configuration, backends: {"options": {}})),
            configuration=Configuration(runtime=name, name=name, backends=(name,), options={}),
            support=Support(operators={name: frozenset(range(2 * DEPTH))}),
            placed=placed,
            model=model,
        )
        for name in profiles
    ]
    placer = AcrossPlacer(session, targets, folder)
    alive = [placer.whole(target) for target in targets]
    for contender, rows in zip(alive, profiles.values(), strict=True):
        total = sum(ns for _, ns in rows)
        run = Run(
            candidate="c", process=0, block=0, started_at_s=0.0, samples=Samples(wall_ns=(total,), cpu_ns=(total,))
        )
        operators = tuple(
            OperatorSamples(name=f"k{k}", sources=sources, backend="b", wall_ns=(ns,))
            for k, (sources, ns) in enumerate(rows)
        )
        traced = replace(run, profiled=True, operators=operators)
        known[contender.key] = Measured(key=contender.key, runs=(run,), failure=None)
        known[trace_of(contender).key] = Measured(key=trace_of(contender).key, runs=(traced,), failure=None)

    def price(self: AcrossPlacer, *known: object) -> None:
        raise Priced("priced", hint="none")

    monkeypatch.setattr(AcrossPlacer, "price_chains", price)
    return placer.run(alive, "cpu")


EVEN = [(k, 1000) for k in KERNELS]
WHOLE = tuple(range(2 * DEPTH))


def test_what_is_nowhere_faster_is_not_priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = decide(tmp_path, {"a": EVEN, "b": [(k, 1200) for k in KERNELS]}, monkeypatch)
    assert "even if cuts were free" in found.why
    assert found.ideal_s == pytest.approx(DEPTH * 1e-6)
    # What reports no parts has lost as a whole.
    found = decide(tmp_path, {"a": EVEN, "b": [(WHOLE, 9000 * DEPTH)]}, monkeypatch)
    assert found.why.startswith("fewer than two configurations can run parts of the file")
    assert found.contenders[0].predicted_s == pytest.approx(DEPTH * 1e-6)


@pytest.mark.parametrize(
    "other",
    [
        [(k, 500 if number < DEPTH // 2 else 2000) for number, k in enumerate(KERNELS)],
        # By multiply-accumulates every block takes a fifth more than that of a; what they really take nobody knows.
        [(WHOLE, 1200 * DEPTH)],
    ],
    ids=["faster somewhere", "shared out"],
)
def test_what_may_be_faster_somewhere_is_priced(tmp_path: Path, other: Times, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Priced):
        decide(tmp_path, {"a": EVEN, "b": other}, monkeypatch)
