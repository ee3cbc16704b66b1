"""`gnomon place` on real models: what it chose, what it predicted, what was measured, and how long it took.

For each model: the decision; the chosen contender's predicted and measured time (`prediction_error`, by the deciding
clock); the measured ratio of every contender to the best single one, interleaved in one run, with interval and count;
operators proven by the runtime's own trace or report; the largest difference of the outputs; the seconds of the job.

The figures that are asked for: a mix that pays (mix.circle) at most 0.85 of the best single backend; EfficientNet-Lite0
on onert with no operator moved and within 60 s; the measured-fastest whole runtime on the ONNX models, never a plan
slower than it beyond 2 %; predicted against measured within 10 % on all.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, model_path, own_record, publish
from gnomon.jobs.place.job import Placement, place
from gnomon.session.contender import Proved, level
from gnomon.session.request import ModelRequest

MODELS = (
    "mix.circle",
    "efficientnet-lite0.circle",
    "ppocr-det.onnx",
    "ppocr-rec.onnx",
    "efficientnet-lite0.onnx",
    "minilm-layer.onnx",
)


def row(proved: Proved, placement: Placement) -> dict[str, Any]:
    """One contender's figures."""
    versus = proved.against_best
    measured = level(proved.measured, placement.clock) if proved.ok else None
    predicted = proved.contender.predicted_s
    return {
        "label": proved.contender.label,
        "kind": proved.contender.kind,
        "predicted_s": predicted,
        "level_s": measured,
        "prediction_error": predicted / measured - 1 if predicted and measured else None,
        "prediction_error_of_ratio": _error_of_ratio(proved, placement),
        "wall_median_s": proved.summary.median_s if proved.summary else None,
        "wall_interval_s": [proved.summary.low_s, proved.summary.high_s] if proved.summary else None,
        "samples": proved.summary.n if proved.summary else 0,
        "processes": proved.summary.processes if proved.summary else 0,
        "ratio_to_best_single": versus.ratio if versus else 1.0,
        "ratio_interval": [versus.low, versus.high] if versus else None,
        "verdict": versus.verdict if versus else "best single",
        "failure": proved.measured.failure.message if proved.measured.failure else None,
    }


def _error_of_ratio(proved: Proved, placement: Placement) -> float | None:
    """Predicted against measured ratio to the best single contender: without the machine's drift since the profile."""
    best = placement.verdict.best_single
    predicted, base = proved.contender.predicted_s, best.contender.predicted_s
    if not (proved.ok and predicted and base):
        return None
    measured = level(proved.measured, placement.clock) / level(best.measured, placement.clock)
    return predicted / base / measured - 1


def figures(name: str, placement: Placement) -> dict[str, Any]:
    """One model's figures."""
    chosen = row(placement.verdict.chosen, placement)
    fastest = min((p for p in placement.verdict.proved if p.ok), key=lambda p: level(p.measured, placement.clock))
    return {
        "model": name,
        "clock": placement.clock,
        "decision": placement.verdict.reason,
        "chosen": chosen,
        "chosen_over_measured_fastest": (chosen["level_s"] or 0.0) / level(fastest.measured, placement.clock),
        "contenders": [row(p, placement) for p in placement.verdict.proved],
        "operators": len(placement.rows),
        "operators_proven": sum(r.ran_on == r.planned for r in placement.rows),
        "operators_off_default": sum(r.planned != placement.rows[0].planned for r in placement.rows),
        "difference": dict(placement.verified.difference or {}),
        "doubts": [d.message for d in placement.doubts],
        "seconds": placement.seconds,
    }


def main() -> None:
    """Place each model once."""
    given = arguments(__doc__, MODELS)
    found = []
    with own_record() as record, tempfile.TemporaryDirectory() as folder:
        for name in given.models:
            request = ModelRequest(model=model_path(name), record=record, fresh=True)
            found.append(figures(name, place(request, Path(folder) / name)))
    errors = [abs(f["chosen"]["prediction_error"]) for f in found]
    publish({"benchmark": "placement", "models": found, "worst_prediction_error": max(errors)}, given)


if __name__ == "__main__":
    main()
