"""Compares predicted and measured times of ten random chains across runtimes that were not used for pricing.

For each model, blocks are chosen and priced as `gnomon place` does it. Then ten random chains that the pricing never
ran are predicted, built, checked, and measured in fresh processes. They are interleaved with the fastest whole model,
whose own change of time since it was profiled (`drift_factor`) is removed. Target: a median error within 10 %.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import arguments, model_path, own_record, publish, spread
from gnomon.jobs.place.across import AcrossPlacer, random_chains
from gnomon.session.contender import Anchor, choose_clock, level, measure_beside, profile_singles, trace_of
from gnomon.session.model_session import open_session
from gnomon.session.reference import reference
from gnomon.session.request import ModelRequest

MODELS = ("ppocr-det.onnx", "ppocr-rec.onnx", "efficientnet-lite0.onnx", "minilm-layer.onnx")
CHAINS = 10


def figures(name: str, record: Path) -> dict[str, Any]:
    """The chains of one model."""
    request = ModelRequest(model=model_path(name), record=record, fresh=True)
    with open_session(request, kind="chains", question={}) as session, tempfile.TemporaryDirectory() as folder:
        reference(session)
        placer = AcrossPlacer(session, session.targets, Path(folder))
        alive = profile_singles(session, [placer.whole(target) for target in session.targets])
        clock = choose_clock(session, (session.runner.known(c.key) for c in alive))
        result = placer.run(alive, clock, always=True)
        if result.prices is None:
            return {"model": name, "why_not": result.why}
        names = [target.configuration.name for target in placer.targets]
        blocks = len(placer.files.places) - 1
        drawn = random_chains(blocks, len(placer.targets), 4 * CHAINS, np.random.default_rng(2024))
        run = {c for c in drawn if session.runner.known(trace_of(placer.chain("plan", "", c, None)).key).runs}
        chains = [c for c in drawn if c not in run][:CHAINS]
        predicted = [result.prices.chain_s(c) for c in chains]
        contenders = [placer.chain("plan", str(c), c, p) for c, p in zip(chains, predicted, strict=True)]
        # All chains share one anchor, the fastest whole model: live times are compared as interleaved ratios.
        effort = replace(request.effort, processes_least=3, processes_most=3, together=CHAINS + 1, laggard=1e9)
        fastest = min(alive, key=lambda c: level(session.runner.known(c.key), clock))
        anchor = Anchor(candidate=fastest.candidate, clock=clock)
        measured, factor = measure_beside(session.runner, "chains", [c.candidate for c in contenders], anchor, effort)
        rows: list[dict[str, Any]] = []
        for chain, contender in zip(chains, contenders, strict=True):
            seen = measured[contender.key]
            got = level(seen, clock) * factor[contender.candidate.key] if seen.ok else None
            rows.append(
                {
                    "chain": [[a, b, names[n]] for a, b, n in chain],
                    "predicted_s": contender.predicted_s,
                    "measured_s": got,
                    "drift_factor": factor[contender.candidate.key],
                    "error": (contender.predicted_s or 0.0) / got - 1 if got else None,
                    "failure": seen.failure.message if seen.failure else None,
                }
            )
        errors = [abs(r["error"]) for r in rows if r["error"] is not None]
        return {
            "model": name,
            "clock": clock,
            "blocks": blocks,
            "absolute_error": spread(errors),
            "chains": rows,
        }


def main() -> None:
    """Run all models."""
    given = arguments(__doc__, MODELS)
    with own_record() as record:
        found = [figures(name, record) for name in given.models]
    publish({"benchmark": "chains", "models": found}, given)


if __name__ == "__main__":
    main()
