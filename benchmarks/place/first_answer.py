"""How soon `gnomon place` shows a correct figure, and how long the whole command takes, with one thread.

The models are those of the zoo, ONNX's own light ones, and made-up ones of about 5 ms. With --before DIR, the `src` of
another checkout of gnomon, that version places each model too, alternately. Figures: the seconds until the first line
that names a leader; whether this leader is the final answer or tied with it; whether the ratio of the runner-up to it
lies in the answer's interval; the seconds of the whole command, and the share of these in which calls were measured. If
the two versions give different answers, the later document compares them: `choice_ratio` is the time of this version's
choice divided by that of the other's. --runtime NAME measures one runtime alone. The machine should be idle.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import onnx

from benchmarks.common import kept_rows, model_path, publish, row_parser, spread
from benchmarks.tune.speed import Drawn
from gnomon.store.base import RunQuery
from gnomon.store.opening import open_store

ZOO = ("ppocr-cls", "ppocr-rec", "efficientnet-lite0", "minilm-layer", "ppocr-det")
LIGHT = ("squeezenet", "shufflenet", "bvlc_alexnet", "inception_v1", "inception_v2")
MADE_UP = 10
_AHEAD = re.compile(r"so far: (\S+) [0-9.]+ \S+(?: of CPU time)?(?:, (\S+) ([0-9.]+) times as long)?")
_COMMAND = [str(Path(sys.executable).with_name("gnomon")), "place"]


def made_up(seed: int, path: Path) -> None:
    """A network of random blocks: convolutions, separable convolutions, squeezes, and products over channels."""
    draw, net = random.Random(seed), Drawn(seed)
    channels, side = draw.choice((24, 32, 48)), draw.choice((80, 112))
    x = net.conv("x", (3, channels, 3))
    for _ in range(draw.randint(5, 9)):
        kind = draw.choice(("plain", "separable", "squeeze", "residual"))
        if kind == "plain":
            x = net.conv(x, (channels, channels, draw.choice((1, 3))))
        elif kind == "separable":
            wide = 3 * channels
            y = net.conv(net.conv(x, (channels, wide, 1)), (wide, wide, draw.choice((3, 5))), group=wide)
            x = net.node("Add", x, net.conv(y, (wide, channels, 1)))
        elif kind == "squeeze":
            y = net.conv(net.node("GlobalAveragePool", x), (channels, channels, 1))
            x = net.node("Mul", x, net.node("Sigmoid", y))
        else:
            x = net.node("Add", x, net.node("HardSwish", net.conv(x, (channels, channels, 3))))
    y = net.node("Flatten", net.node("GlobalAveragePool", x))
    net.save(path, (1, 3, side, side), net.node("Gemm", y, net.weight(channels, 10), net.weight(10)))


def model_of(name: str, folder: Path) -> Path:
    """The file of a model by its name here."""
    if name in ZOO:
        return model_path(f"{name}.onnx")
    if name in LIGHT:
        return Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"
    made_up(int(name.removeprefix("made-up-")), folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


def placed(model: Path, source: str, runtime: str | None) -> dict[str, Any]:
    """The output lines of the command from a checkout, and when they were printed."""
    with tempfile.TemporaryDirectory() as folder:
        out, own = ["--out", f"{folder}/out"], ["--record", f"{folder}/record.sqlite", "-n", "1", "--json"]
        asked = [*_COMMAND, str(model), *out, *own, *(["--runtime", runtime] if runtime else [])]
        began_s, ahead = time.monotonic(), None
        with Path(folder, "json").open("w+", encoding="utf-8") as told:
            environment = {**os.environ, "PYTHONPATH": source}
            with subprocess.Popen(asked, stdout=told, stderr=subprocess.PIPE, text=True, env=environment) as process:
                assert process.stderr is not None
                for line in process.stderr:
                    if ahead is None and (found := _AHEAD.search(line)):
                        ahead = time.monotonic() - began_s, found
            wall_s = time.monotonic() - began_s
            told.seek(0)
            document = json.load(told)
        with open_store(Path(folder, "record.sqlite")) as store:
            runs = list(store.query(RunQuery(campaign=document["campaign"])))
        measured_s = 1e-9 * sum(sum(run.samples.wall_ns) * run.samples.inner for run in runs if run.samples)
    singles = {c["label"]: c for c in document["contenders"] if c["kind"] == "single" and c["level_s"]}
    decision = document["decision"]
    best = decision["best_single"]
    row: dict[str, Any] = {"wall_s": wall_s, "chosen": decision["chosen"], "best": best, "tied": decision["tied"]}
    gain = decision["speedup_vs_best_single"]
    row["gain"] = None if gain is None else [gain["ratio"], gain["low"], gain["high"]]
    row["levels_s"] = {label: c["level_s"] for label, c in singles.items()}
    row["measured_share"] = measured_s / wall_s
    if ahead is not None:
        seconds, found = ahead
        row |= {"first_s": seconds, "first": found[1], "right": found[1] in (best, *decision["tied"])}
        versus = singles.get(found[2] or "", {}).get("against_best")
        if found[1] == best and versus:
            row["inside"] = versus["low"] <= float(found[3]) <= versus["high"]
    return row


def row_of(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """The row of one model."""
    here = str(Path(__file__).parents[2] / "src")
    with tempfile.TemporaryDirectory() as folder:
        model = model_of(name, Path(folder))
        sources = {"now": here, **({"before": str(given.before)} if given.before else {})}
        order = list(sources) if sum(map(ord, name)) % 2 else list(reversed(sources))
        rows = {which: placed(model, sources[which], given.runtime) for which in order}
    if "before" in rows:
        now, before = rows["now"], rows["before"]
        rows["now"]["wall_ratio"] = now["wall_s"] / before["wall_s"]
        levels_s = rows[order[-1]]["levels_s"]
        if {now["best"], before["best"]} <= levels_s.keys():
            rows["now"]["choice_ratio"] = levels_s[now["best"]] / levels_s[before["best"]]
    return rows


def main() -> None:
    """Run all models."""
    made = row_parser(__doc__)
    made.add_argument("--before", type=Path, metavar="DIR", help="the src folder of another checkout")
    made.add_argument("--runtime", help="measure this one alone")
    given = made.parse_args()
    names = given.models or [*ZOO, *LIGHT, *(f"made-up-{seed}" for seed in range(MADE_UP))]
    rows = kept_rows("first_answer", names, lambda name: row_of(name, given), given)
    now = [row["now"] for row in rows if "now" in row]
    figures = {
        key: spread([float(row[key]) for row in now if key in row])
        for key in ("first_s", "wall_s", "wall_ratio", "choice_ratio", "measured_share")
        if any(key in row for row in now)
    }
    counts = {key: [sum(bool(r.get(key)) for r in now), sum(key in r for r in now)] for key in ("right", "inside")}
    publish({"benchmark": "first_answer", **figures, **counts, "rows": rows}, given)


if __name__ == "__main__":
    main()
