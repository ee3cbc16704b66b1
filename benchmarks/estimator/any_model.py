"""Predicts models from which no table was built, by their units, and compares the predictions with measured times.

On this machine, a table of the shipped space `operators` is built, and one of the units of five models. Then ten other
ONNX models are predicted by the first table alone and by both, and are measured whole (gnomon profile, one thread).
Targets: a median error of 15 % with the first table, and of 7 % with both. Everything uses the public API with its
defaults. `--models` adds further test models; --shape NAME=1,3,224,224 fixes open inputs.

With `--from`, the table is of the units of these models alone, and only `--models` are tested. This serves to test
TFLite files and quantised ONNX files (--runtime litert --from a.tflite b.tflite --models c.tflite d.tflite).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import onnx

from benchmarks.common import model_path, own_record, parser, publish
from gnomon.api.estimator import predict_model
from gnomon.api.place import profile
from gnomon.api.table import build_table
from gnomon.models.load import load
from gnomon.models.model import dynamic_inputs

_CLASSICS = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MEASURED = ("light_resnet50", "light_squeezenet", "efficientnet-lite0", "ppocr-cls", "minilm-layer")
TESTED = (
    "light_bvlc_alexnet",
    "light_densenet121",
    "light_inception_v1",
    "light_inception_v2",
    "light_shufflenet",
    "light_vgg19",
    "light_zfnet512",
    "ppocr-det",
    "ppocr-rec",
)


def main() -> None:
    """Measure units, predict models, and measure models."""
    made = parser(__doc__)
    made.add_argument("--runtime", default="onnxruntime")
    made.add_argument("--shape", action="append", default=[], help="of open inputs: NAME=1,3,224,224")
    made.add_argument(
        "--from", nargs="+", default=[], dest="built_from", help="models that the one table is built from"
    )
    made.add_argument("--keep", type=Path, help="keep the tables in this folder")
    given = made.parse_args()
    shapes = {name: tuple(int(n) for n in text.split(",")) for name, _, text in (s.partition("=") for s in given.shape)}
    with tempfile.TemporaryDirectory(prefix="gnomon-benchmark-") as folder, own_record() as record:
        at = given.keep or Path(folder)
        at.mkdir(parents=True, exist_ok=True)
        options: Any = {"runtimes": (given.runtime,), "record": record}
        tables = [at / "models.table"]
        build_table(*map(_path, given.built_from or MEASURED), from_models=True, out=tables[0], **options)
        by = {"these models": tables}
        if not given.built_from:
            build_table("operators", out=at / "operators.table", **options)
            by = {"operators alone": [at / "operators.table"], "and five models": [at / "operators.table", *tables]}
        tested = [*(() if given.built_from else TESTED), *given.models]
        rows = [_row(_path(name), by, shapes, options) for name in tested]
        publish(summary(given.runtime, rows, tuple(by)), given)


def summary(runtime: str, rows: list[dict[str, Any]], ways: tuple[str, ...]) -> Any:
    """The errors over all models, for each way to predict them."""
    ratios = {key: [row[key]["over"] for row in rows] for key in ways}
    return {
        "runtime": runtime,
        "models_tested": len(rows),
        "median_error": {key: _median([abs(ratio - 1) for ratio in found]) for key, found in ratios.items()},
        "mean_error": {key: sum(abs(ratio - 1) for ratio in found) / len(found) for key, found in ratios.items()},
        "median_ratio": {key: _median(found) for key, found in ratios.items()},
        "median_error_scaled": {key: _scaled(found) for key, found in ratios.items()},
        "within_interval": {key: sum(row[key]["within"] for row in rows) / len(rows) for key in ways},
        "models": rows,
    }


def _row(path: Path, by: dict[str, list[Path]], shapes: dict[str, tuple[int, ...]], options: Any) -> dict[str, Any]:
    unfixed = {tensor.name for tensor in dynamic_inputs(load(path).graph)}
    own = {name: shape for name, shape in shapes.items() if name in unfixed}
    told = {key: predict_model(path, tables=tables, shapes=own) for key, tables in by.items()}
    # Tables are of a runtime's first configuration, which for LiteRT is XNNPACK.
    backends = ("xnnpack",) if options["runtimes"] == ("litert",) else ()
    found = profile(path, threads=1, shapes=own, backends=backends, quick=True, **options)
    took = found.chosen.level_s
    row: dict[str, Any] = {"model": path.stem, "clock": found.clock, "took_s": took}
    for key, one in told.items():
        row[key] = {
            "mean_s": one.mean_s,
            "low_s": one.low_s,
            "high_s": one.high_s,
            "over": one.mean_s / took,
            "within": one.low_s <= took <= one.high_s,
            "shares": one.shares,
            "left_out": sum(part.count for part in one.left_out),
        }
    return row


def _path(name: str) -> Path:
    classic = _CLASSICS / f"{name}.onnx"
    return classic if classic.is_file() else model_path(name if Path(name).suffix else f"{name}.onnx")


def _scaled(ratios: list[float]) -> float:
    """The median error that remains after scaling all predictions by one factor: the machine's speed may change between
    tables and models.
    """
    middle = _median(ratios)
    return _median([abs(ratio / middle - 1) for ratio in ratios])


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


if __name__ == "__main__":
    main()
