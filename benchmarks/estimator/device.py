"""The job of the tool that gnomon replaces: its search space measured on this machine, and nets predicted that were not
fitted.

The MobileNetV2 / CIFAR-10 space runs on ONNX Runtime with one thread. The benchmark measures the table of fused units,
the table of single operators (which the replaced tool adds up), and random whole nets, all with the same anchor. Then
estimators are fitted to none, 10 and 20 of the nets, drawn at random or suggested, and tested on all others. For
comparison, there are the replaced tool's sum, alone and with its scale and bias, and the prediction of one half of the
measurements by the other (the noise ceiling). Targets: with 10 nets a mean error of 2.5 % and a rank correlation of
.965; with none 5 %, and 93 % of the nets within 10 %.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import own_record, parser, publish, spread
from gnomon.api.options import measure_request
from gnomon.estimate.columns import Columns, Floats, Unknown
from gnomon.estimate.design import suggest
from gnomon.estimate.estimator import coverage, relative_error, spearman, within
from gnomon.estimate.fit import fit
from gnomon.jobs.estimator.job import Described, described
from gnomon.jobs.table.job import TableRequest, build_table
from gnomon.jobs.table.nets import measure_nets
from gnomon.session.request import MeasureRequest
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.loading import draw, load_space

Assignments = np.ndarray[Any, Any]
SPACE = "mobilenetv2-cifar10"
SEEDS = 20


def main() -> None:
    """Measure, fit, and compare."""
    made = parser(__doc__)
    made.add_argument("--nets", type=int, default=120)
    made.add_argument("--runtime", default="onnxruntime")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--keep", type=Path, help="keep the measured numbers here, or read them from here again")
    given = made.parse_args()
    if given.keep is not None and given.keep.is_file():
        seen = dict(np.load(given.keep))
    else:
        seen = measured(given.nets, given.runtime, given.seed)
        if given.keep is not None:
            np.savez(given.keep, **seen)
    publish(figures(given.runtime, seen), given)


def measured(count: int, runtime: str, seed: int) -> dict[str, Any]:
    """Both tables and the nets: counts, prices, times, and the times in each half of the processes."""
    space = load_space(SPACE)
    with own_record() as record, tempfile.TemporaryDirectory() as folder:
        request = replace(measure_request({"runtimes": (runtime,), "seed": seed}), record=record)
        fused, single = Path(folder) / "fused", Path(folder) / "single"
        build_table(TableRequest(request=request, space=space, out=fused))
        build_table(TableRequest(request=request, space=space, out=single, rules=UNFUSED))
        found, apart = described(fused, None), described(single, None)
        assert found.table is not None and apart.table is not None
        chosen = draw(found.tables, count, seed=seed)
        times = _nets(request, found, chosen)
        calls = {row.unit: row.call_s for row in apart.table.rows}
        raw = [calls[unit] or np.nan for unit in apart.tables.units]
        return {
            "rows": found.rows(chosen),
            "prices": found.columns.prior_s,
            "names": np.array(found.columns.names),
            "kinds": np.array(found.columns.kinds),
            "raw_sum": apart.tables.counts(chosen) @ np.array(raw),
            "single_sum": apart.rows(chosen) @ np.asarray(apart.columns.prior_s),
            "assignments": chosen,
            **times,
        }


def _nets(request: MeasureRequest, found: Described, chosen: Assignments) -> dict[str, Floats]:
    """The times of whole nets in two campaigns with the table's anchor: those of each half, and of both together with
    intervals.
    """
    assert found.table is not None
    nets = [tuple(net) for net in chosen.tolist()]
    fresh = replace(request, fresh=True)
    halves = [measure_nets(fresh, found.space, found.table, nets)[0] for _ in range(2)]
    first, second = (np.array([row.latency_s for row in rows]) for rows in halves)
    # The deviation of the mean of two values is estimated from their differences over all nets: one difference alone
    # says little.
    apart = float(np.sqrt(np.mean((np.log(first / second) / 2) ** 2)))
    times = np.sqrt(first * second)
    return {
        "times": times,
        "low": times * (1 - 1.96 * apart),
        "high": times * (1 + 1.96 * apart),
        "first": first,
        "second": second,
    }


def figures(runtime: str, seen: dict[str, Any]) -> dict[str, Any]:
    """The scores of each way, and the ceilings."""
    y = seen["times"]
    columns = Columns(names=tuple(seen["names"]), kinds=tuple(seen["kinds"]), prior_s=seen["prices"])
    rows = seen["rows"]
    told: dict[str, Any] = {
        "table's sum, nothing fitted": _table_sum(columns, rows, y),
        "sum of single operators as they are": _scores(seen["raw_sum"], y),
        "sum of single operators less the overhead": _scores(seen["single_sum"], y),
    }
    for count in (4, 10, 20, 50):
        told[f"scale and bias of the raw sum, {count} random nets"] = _over_seeds(
            lambda kept, held: _line(seen["raw_sum"], y, kept, held), y, _random(len(y), count)
        )
    unpriced = Columns(names=columns.names, kinds=columns.kinds)
    for count in (4, 10, 20):
        designs = [suggest(columns, rows, count, seed=seed) for seed in range(SEEDS)]
        for how, drawn in (("random", _random(len(y), count)), ("suggested", designs)):
            for what, described_by in (("table and", columns), ("no table,", unpriced)):
                told[f"{what} {count} {how} nets"] = _over_seeds(
                    lambda kept, held, c=described_by: _fitted(c, rows, y, kept, held), y, drawn
                )
    return {
        "space": SPACE,
        "runtime": runtime,
        "nets": len(y),
        "times_s": spread(y.tolist()),
        "load_average": os.getloadavg(),
        "sum_over_measured": spread((rows @ seen["prices"] / y).tolist()),
        "ceiling_by_halves": _scores(seen["first"], seen["second"]),
        "scores": told,
    }


def _random(total: int, count: int) -> list[np.ndarray[Any, Any]]:
    return [np.random.default_rng(seed).permutation(total)[:count] for seed in range(SEEDS)]


def _over_seeds(predict: Any, y: Floats, drawn: Any) -> dict[str, float]:
    """The mean scores over the draws, each tested on all nets that it does not contain."""
    found = []
    for kept in drawn:
        held = np.setdiff1d(np.arange(len(y)), kept)
        found.append(_scores(*predict(kept, held)))
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def _fitted(columns: Columns, rows: Floats, y: Floats, kept: Any, held: Any) -> tuple[Any, ...]:
    made = fit(columns, rows[kept], y[kept]).predict(rows[held], unknown=Unknown.WIDEN)
    return made.mean_s, y[held], made.low_s, made.high_s


def _table_sum(columns: Columns, rows: Floats, y: Floats) -> dict[str, float]:
    made = fit(columns, (), ()).predict(rows)
    return _scores(made.mean_s, y, made.low_s, made.high_s)


def _line(x: Floats, y: Floats, kept: Any, held: Any) -> tuple[Floats, Floats]:
    scale, bias = np.polyfit(x[kept], y[kept], 1)
    return scale * x[held] + bias, y[held]


def _scores(predicted: Floats, y: Floats, low: Floats | None = None, high: Floats | None = None) -> dict[str, float]:
    mean, median = relative_error(predicted, y)
    told = {
        "mean_error": mean,
        "median_error": median,
        "within_10": within(predicted, y),
        "within_5": within(predicted, y, 0.05),
        "spearman": spearman(predicted, y),
    }
    if low is not None and high is not None:
        told["coverage_90"] = coverage(low, high, y)
        told["half_width"] = float(np.median((high - low) / 2 / predicted))
    return told


if __name__ == "__main__":
    main()
