"""The estimator as users get it: ten suggested nets, and a later test on the fast end and on usual nets.

A table of the space is built on this machine, ten nets are suggested and measured, and an estimator is fitted. Then, in
another campaign, the 20 nets that the table ranks as the fastest of 500 and 40 random nets are measured and compared
with their predictions. Everything uses the public API with its defaults. Targets: a mean error of 3 %, and 90 %
intervals that contain 85 to 95 % of both groups. For comparison, there are the errors of the table alone, and the
differences of the same nets between two campaigns (which no estimator can predict).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import own_record, parser, publish
from gnomon.api.estimator import evaluate_estimator, fit_estimator, measure_nets, suggest_nets
from gnomon.api.table import build_table
from gnomon.formats.nets_csv import NetRow, read_nets
from gnomon.jobs.estimator.job import described, save_nets
from gnomon.spaces.loading import draw

POOL, FASTEST, RANDOM, SUGGESTED = 500, 20, 40, 10


def main() -> None:
    """Measure, fit, measure again, and compare."""
    made = parser(__doc__)
    made.add_argument("--space", default="mobilenetv2-cifar10")
    made.add_argument("--runtime", default="onnxruntime")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--keep", type=Path, help="keep the table and the measured nets in this folder")
    given = made.parse_args()
    with tempfile.TemporaryDirectory(prefix="gnomon-benchmark-") as folder, own_record() as record:
        at = given.keep or Path(folder)
        at.mkdir(parents=True, exist_ok=True)
        publish(flow(at, record, given.space, given.runtime, given.seed), given)


def flow(folder: Path, record: Path, space: str, runtime: str, seed: int) -> dict[str, Any]:
    """Take the user's steps, each with the file of the previous one; existing files are not measured again."""
    table = folder / "table"

    def measure(nets: Path, out: Path, *, fresh: bool = False) -> None:
        measure_nets(nets, table=table, out=out, overwrite=True, fresh=fresh, runtimes=(runtime,), record=record)

    if not table.exists():
        build_table(space, out=table, runtimes=(runtime,), record=record)
    found = described(table, None)
    asked, known = folder / "suggested.csv", folder / "measured.csv"
    if not known.exists():
        suggest_nets(count=SUGGESTED, table=table, out=asked, seed=seed, overwrite=True)
        measure(asked, known)
    estimators = {}
    for name, samples in (("table alone", None), ("10 suggested nets", known)):
        estimators[name] = folder / f"{name.replace(' ', '-')}.json"
        fit_estimator(table=table, samples=samples, out=estimators[name], overwrite=True)
    pool = draw(found.tables, POOL, seed=seed + 1000)
    prices = np.zeros(len(found.columns)) if found.columns.prior_s is None else np.nan_to_num(found.columns.prior_s)
    order = np.argsort(found.rows(pool) @ prices, kind="stable")
    rest = np.random.default_rng(seed).permutation(order[FASTEST:])
    groups = {"fastest": pool[order[:FASTEST]], "random": pool[rest[:RANDOM]]}
    later = folder / "later.csv"
    if not later.exists():
        nets = [NetRow(assignment=tuple(net)) for net in np.concatenate(list(groups.values())).tolist()]
        save_nets(nets, found.space.space, folder / "asked-later.csv", measured=False)
        measure(folder / "asked-later.csv", later, fresh=True)
        measure(asked, folder / "measured-later.csv", fresh=True)
    rows = read_nets(later.read_bytes(), found.space.space)
    told: dict[str, Any] = {}
    for group, part in zip(groups, (rows[:FASTEST], rows[FASTEST:]), strict=True):
        file = folder / f"{group}.csv"
        save_nets(part, found.space.space, file, measured=True)
        for name, estimator in estimators.items():
            evaluation = evaluate_estimator(estimator, file).evaluation
            kept = ("nets", "mean_error", "within_10", "spearman", "coverage", "half_width")
            told[f"{group}, {name}"] = {key: getattr(evaluation.scores, key) for key in kept} | {"how": evaluation.how}
    return {
        "space": space,
        "runtime": runtime,
        "load_average": os.getloadavg(),
        "scores": told,
        "apart": apart(
            *(read_nets(at.read_bytes(), found.space.space) for at in (known, folder / "measured-later.csv"))
        ),
    }


def apart(first: tuple[NetRow, ...], second: tuple[NetRow, ...]) -> dict[str, float]:
    """The differences of the same nets between two campaigns: as measured, and relative to the reference net."""
    logs = [np.log((b.latency_s or np.nan) / (a.latency_s or np.nan)) for a, b in zip(first, second, strict=True)]
    beside = [np.log((b.reference_s or np.nan) / (a.reference_s or np.nan)) for a, b in zip(first, second, strict=True)]
    return {
        "nets": len(logs),
        "mean": float(np.nanmean(np.abs(logs))),
        "median_shift": float(np.nanmedian(logs)),
        "reference_shift": float(np.nanmedian(beside)),
    }


if __name__ == "__main__":
    main()
