"""`gnomon place` on real models: its choice, its prediction, the measured time, and how long it took.

For each model: the decision; the predicted and measured time of the chosen contender (`prediction_error`, by the
deciding clock); the measured ratio of every contender to the best single one, interleaved in one run, with its interval
and count; the number of operators confirmed by the runtime's own trace or report; the largest difference of the
outputs; and the seconds of the job. Targets: a mix that pays (mix.circle) takes at most 0.85 of the best single
backend; EfficientNet-Lite0 on onert has no operator moved and takes at most 60 s; on the ONNX models, the whole runtime
that measures fastest is chosen, or a plan that is at most 2 % slower; predictions are within 10 % of measurements on
all models.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, model_path, own_record, publish
from gnomon.jobs.place.document import ContenderPart, PlaceDocument
from gnomon.jobs.place.job import place
from gnomon.session.request import ModelRequest

MODELS = (
    "mix.circle",
    "efficientnet-lite0.circle",
    "ppocr-det.onnx",
    "ppocr-rec.onnx",
    "efficientnet-lite0.onnx",
    "minilm-layer.onnx",
)


def row(contender: ContenderPart, placement: PlaceDocument) -> dict[str, Any]:
    """The figures of one contender."""
    versus, wall = contender.against_best, contender.measured
    return {
        "label": contender.label,
        "kind": contender.kind,
        "predicted_s": contender.predicted_s,
        "level_s": contender.level_s,
        "prediction_error": contender.prediction_error,
        "prediction_error_of_ratio": _error_of_ratio(contender, placement),
        "wall_median_s": wall.median_s if wall else None,
        "wall_interval_s": [wall.low_s, wall.high_s] if wall else None,
        "samples": wall.n if wall else 0,
        "processes": wall.processes if wall else 0,
        "ratio_to_best_single": versus.ratio if versus else 1.0,
        "ratio_interval": [versus.low, versus.high] if versus else None,
        "verdict": versus.verdict if versus else "best single",
        "failure": contender.failure.message if contender.failure else None,
    }


def _error_of_ratio(contender: ContenderPart, placement: PlaceDocument) -> float | None:
    """The error of the predicted ratio to the best single contender, which is free of the machine's drift since the
    profile.
    """
    (best,) = (c for c in placement.contenders if c.label == placement.decision.best_single)
    if not (contender.level_s and best.level_s and contender.predicted_s and best.predicted_s):
        return None
    return (contender.predicted_s / best.predicted_s) / (contender.level_s / best.level_s) - 1


def figures(name: str, placement: PlaceDocument) -> dict[str, Any]:
    """The figures of one model."""
    chosen = row(placement.chosen, placement)
    fastest_s = min(c.level_s for c in placement.contenders if c.level_s is not None)
    rows, difference = placement.operators, placement.verified.difference
    return {
        "model": name,
        "clock": placement.clock,
        "decision": placement.decision.reason,
        "chosen": chosen,
        "chosen_over_measured_fastest": (chosen["level_s"] or 0.0) / fastest_s,
        "contenders": [row(contender, placement) for contender in placement.contenders],
        "operators": len(rows),
        "operators_proven": sum(r.ran_on == r.planned for r in rows),
        "operators_off_default": sum(r.planned != rows[0].planned for r in rows),
        "difference": asdict(difference) if difference else {},
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
    errors = [abs(error) for f in found if (error := f["chosen"]["prediction_error"]) is not None]
    publish({"benchmark": "placement", "models": found, "worst_prediction_error": max(errors, default=None)}, given)


if __name__ == "__main__":
    main()
