"""Compares the choice of `gnomon.place` with the vendors' automatic placement and with the best single backend.

Each of --models (the zoo's ONNX models) is placed twice with OpenVINO's devices and ONNX Runtime. OpenVINO's AUTO and
HETERO (and the providers in order, if there are several) are rows like the single backends. The choice of the first run
is judged by the second run, which measures it and all of these alternately in its own processes. Target: no choice is
certainly slower than any of them (the intervals do not overlap). Prints one JSON document.
"""

from __future__ import annotations

import argparse
from typing import Any

import gnomon
from benchmarks.common import kept_rows, model_path, own_record, publish, row_parser
from gnomon.jobs.place.document import ContenderPart, PlaceDocument

_SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "efficientnet-lite0.onnx": {},
    "minilm-layer.onnx": {},
    "ppocr-det.onnx": {},
    "ppocr-rec.onnx": {"x": (1, 3, 48, 320)},
    "ppocr-cls.onnx": {"x": (1, 3, 48, 192)},
}
_AUTOMATIC = ("[auto", "[hetero", "[order")


def arguments() -> argparse.Namespace:
    """The command line."""
    made = row_parser(__doc__)
    made.add_argument("--processes", type=int, default=3, help="of each configuration")
    made.add_argument(
        "--backends", nargs="*", default=["cpu", "cpu-f32", "onnxruntime"], help="those of OpenVINO and ONNX Runtime"
    )
    return made.parse_args()


def row(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """The row of one model."""
    with own_record() as record:
        first, second = (
            gnomon.place(
                model_path(name),
                package=False,
                picture=False,
                record=record,
                fresh=True,
                seed=seed,
                shapes=_SHAPES.get(name, {}),
                backends=given.backends,
                processes=given.processes,
                threads=1,
            )
            for seed in (1, 2)
        )
        return judged(first, second)


def judged(first: PlaceDocument, second: PlaceDocument) -> dict[str, Any]:
    """The choice of the first run against all single rows of the second; if it is missing there, the choice of the
    second run.
    """
    rows = {c.label: c for c in second.contenders if c.measured and c.failure is None}
    chosen = rows.get(first.decision.chosen, second.chosen)
    rivals = [c for c in rows.values() if c.kind == "single" and c.label != chosen.label]
    slower = {c.label: chosen_low / high for c in rivals if (chosen_low := _ends(chosen)[0]) > (high := _ends(c)[1])}
    return {
        "chosen": first.decision.chosen,
        "judged": chosen.label,
        "automatic": [c.label for c in rivals if any(part in c.label for part in _AUTOMATIC)],
        "rivals": len(rivals),
        "slower_than": slower,
        "ratio_to_best": chosen.against_best.ratio if chosen.against_best else 1.0,
        "ok": not slower,
    }


def _ends(part: ContenderPart) -> tuple[float, float]:
    """The interval of a row's ratio to the best single backend."""
    found = part.against_best
    return (1.0, 1.0) if found is None else (found.low or 0.0, found.high or float("inf"))


def main() -> None:
    """Run all models."""
    given = arguments()
    rows = kept_rows("automatic", given.models or _SHAPES, lambda name: row(name, given), given)
    done = [found for found in rows if "ok" in found]
    counted = {"models": len(rows), "answered": len(done), "never_slower": sum(found["ok"] for found in done)}
    publish({"benchmark": "automatic", **counted, "rows": rows}, given)


if __name__ == "__main__":
    main()
