"""Latencies of a cell space: how long the table takes, how accurate it is, and how well mixes are predicted.

There are families of five primitives, five cell groups of one layer each, widths 8 to 128 (--widths), and input (1, 1,
32, 32). The default network of each family and its one-change variants, 21 per family, are written, quantised if
requested, and measured: this is the table, whose wall time is reported in parts. Then --mixed networks per family,
balanced over the primitives, are measured to learn from, and --unseen networks, drawn uniformly, to which nothing is
fitted. For each family, the document has the errors (mean, median, 90th percentile, Kendall's tau), and how often 95 %
intervals contain the truth. Targets: the float32 table of three families on ONNX Runtime in 15 s; half widths of the 95
% intervals of 5 % or less; mean errors of at most 5 % (float32) and 8 % (int8). --again builds the first table once
more and compares the two.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import own_record, parser, publish
from gnomon.api.options import measure_request
from gnomon.core.stats import student_quantile
from gnomon.jobs.space.profiling.estimates import score
from gnomon.jobs.space.profiling.latency import measure_files
from gnomon.jobs.space.profiling.study import Family, space_of
from gnomon.models.units import write_net
from gnomon.session.bench.baseline import Timed
from gnomon.spaces.cells.effects import Evidence, balanced_design, learn
from gnomon.spaces.cells.primitives import Primitive, default_of, families_of, published_primitives
from gnomon.spaces.cells.space import CellLayout, network_id, swaps, tagged_net
from gnomon.spaces.unit import Net
from gnomon.toolchains.base import ToolJob
from gnomon.toolchains.openvino_int8 import openvino_int8
from gnomon.toolchains.ort_int8 import onnxruntime_int8

INPUT, GROUPS, CLASSES, PRIMITIVES = (1, 1, 32, 32), 5, 10, 5
TOOLS = {"onnxruntime": onnxruntime_int8, "openvino": openvino_int8}
SEED = 1
Assignment = tuple[int, ...]
Spaces = Mapping[str, tuple[Callable[[Assignment], Net], Family]]
"""For each family, how its networks are written, and their choices."""
Found = tuple[dict[str, Timed], str]
"""The latencies of networks by key, and the clock."""


def main() -> None:
    """Measure all requested tables, and print."""
    made = parser(__doc__)
    made.add_argument("--families", nargs="+", default=["Mobile", "Res", "VGG"])
    made.add_argument(
        "--runtimes", nargs="+", default=["onnxruntime:fp32", "onnxruntime:int8"], metavar="NAME:fp32|int8"
    )
    made.add_argument("--widths", nargs=GROUPS, type=int, default=[8, 16, 32, 64, 128])
    made.add_argument("--mixed", type=int, default=24)
    made.add_argument("--unseen", type=int, default=30)
    made.add_argument("--again", action="store_true", help="also build the first table once more")
    given = made.parse_args()
    spaces = spaces_of(given.families, given.widths)
    told: dict[str, Any] = {"cores": os.cpu_count(), "load_average_before": os.getloadavg()}
    for number, runtime in enumerate(given.runtimes):
        told[runtime] = figures(runtime, spaces, given, again=given.again and number == 0)
    publish({**told, "load_average": os.getloadavg()}, given)


def spaces_of(families: list[str], widths: list[int]) -> Spaces:
    """A space for each family, with its first primitives."""
    layout = CellLayout(
        input_shape=INPUT,
        groups=tuple(range(GROUPS)),
        widths=tuple(widths),
        reduces=frozenset(range(1, GROUPS)),
        classes=CLASSES,
    )
    known = families_of(published_primitives().values())
    found = {}
    for family in families:
        ones = known[family][:PRIMITIVES]
        default = ones.index(default_of(family, ones))
        space = space_of([one.name for one in ones], GROUPS)
        own = Family(name=family, primitives=tuple(ones), space=space, defaults=(default,) * GROUPS)
        found[family] = writer(layout, ones), own
    return found


def writer(layout: CellLayout, ones: Sequence[Primitive]) -> Callable[[Assignment], Net]:
    """The net of each assignment."""
    return lambda net: tagged_net(layout, [ones[k] for k in net]).net


def figures(runtime: str, spaces: Spaces, given: Any, *, again: bool) -> dict[str, Any]:
    """The table of a runtime in a precision, its mixed networks, and the errors."""
    name, _, precision = runtime.partition(":")
    table = {family: list(swaps(own.defaults, own.counts)) for family, (_, own) in spaces.items()}
    design = balanced_design([PRIMITIVES] * GROUPS, given.mixed, seed=SEED).tolist() if given.mixed else []
    fitted = {family: [net for net in map(tuple, design) if net not in table[family]] for family in spaces}
    unseen = {f: drawn(own, given.unseen, {*table[f], *fitted[f]}) for f, (_, own) in spaces.items()}
    closely = frozenset(network_id(family, own.defaults) for family, (_, own) in spaces.items())
    with own_record() as record, tempfile.TemporaryDirectory(prefix="gnomon-benchmark-") as folder:
        request = replace(measure_request({"runtimes": (name,), "seed": SEED}), record=record)
        asked = partial(measure_files, request, subject="cells", closely=closely, question={"precision": precision})
        work, before = Path(folder), cpu_s()
        first, parts = measured(asked, spaces, table, name, precision, work)
        used_s = cpu_s() - before
        mixes = {family: [*fitted[family], *unseen[family]] for family in spaces}
        second, more = measured(asked, spaces, mixes, name, precision, work)
        told: dict[str, Any] = {
            "table": {**known_how_well(first), "seconds": parts, "wall_s": sum(parts.values()), "cpu_s": used_s},
            "mixed": {**known_how_well(second), "seconds": more, "wall_s": sum(more.values())},
        }
        if again:
            other, _ = measured(partial(asked, question={"again": 1}), spaces, table, name, precision, work)
            told["repeated"] = agreement(first[0], other[0])
    everything = {**first[0], **second[0]}
    for family, (_, own) in spaces.items():
        times = latencies({net: everything[network_id(family, net)] for net in (*table[family], *mixes[family])})
        kept = {net: one for net, one in times.items() if net not in unseen[family]}
        told[family] = errors(own, kept, {net: times[net] for net in unseen[family] if net in times})
    return told


def drawn(own: Family, count: int, known: set[Assignment]) -> list[Assignment]:
    """Networks drawn uniformly from those that are not known."""
    rng = np.random.default_rng(SEED + 100)
    found: list[Assignment] = []
    while len(found) < count:
        net = tuple(int(k) for k in rng.integers(0, own.counts))
        if net not in known and net not in found:
            found.append(net)
    return found


def cpu_s() -> float:
    """The processor seconds of this process and of the children that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measured(
    measure: Callable[[Mapping[str, Path]], Found],
    spaces: Spaces,
    nets: Mapping[str, list[Assignment]],
    runtime: str,
    precision: str,
    work: Path,
) -> tuple[Found, dict[str, float]]:
    """Write, quantise and measure networks; return also the wall seconds of each part."""
    start = time.perf_counter()
    (work / "fp32").mkdir(exist_ok=True)
    files = {}
    for family, ones in nets.items():
        for net in ones:
            key = network_id(family, net)
            files[key] = write_net(spaces[family][0](net), work / "fp32" / f"{key}.onnx", seed=SEED)
    seconds = {"write": time.perf_counter() - start}
    if precision == "int8":
        start = time.perf_counter()
        files = dict(quantised(runtime, files, work))
        seconds["quantise"] = time.perf_counter() - start
    start = time.perf_counter()
    found = measure(files)
    return found, {**seconds, "measure": time.perf_counter() - start}


def latencies(timed: Mapping[Assignment, Timed]) -> dict[Assignment, tuple[float, float]]:
    """The seconds with their standard errors, without failures; an unknown error counts as 0."""
    found = {}
    for net, one in timed.items():
        if one.reason:
            continue
        error = 0.0
        if one.low_s is not None and one.high_s is not None and one.processes > 1:
            error = (one.high_s - one.low_s) / 2 / student_quantile(0.975, one.processes - 1)
        found[net] = one.call_s, error
    return found


def quantised(runtime: str, files: Mapping[str, Path], work: Path) -> Iterator[tuple[str, Path]]:
    """The int8 files that the runtime's own toolchain makes."""
    for name in ("int8", "logs"):
        (work / name).mkdir(exist_ok=True)
    calibration = work / "calibration.npz"
    rng = np.random.default_rng(SEED)
    np.savez(calibration, x=rng.standard_normal((32, *INPUT[1:])).astype(np.float32))
    jobs = [
        ToolJob(key=key, model=path, folder=work / "int8", calibration=calibration, logs=work / "logs")
        for key, path in files.items()
    ]
    for artifact in TOOLS[runtime]({}).make(jobs):
        if artifact.path is None:
            raise SystemExit(f"{artifact.key}: {artifact.failure}")
        yield artifact.key, artifact.path


def known_how_well(found: Found) -> dict[str, Any]:
    """The half widths of the 95 % intervals, the processes, and the failures."""
    timed, clock = found
    rows = [one for one in timed.values() if not one.reason]
    widths = [one.half_width for one in rows]
    calls = [one.call_s * 1e3 for one in rows]
    return {
        "networks": len(rows),
        "failed": {key: one.reason for key, one in timed.items() if one.reason},
        "half_width": {"median": np.median(widths), "p90": np.quantile(widths, 0.9), "max": max(widths)},
        "within_5_percent": float(np.mean(np.array(widths) <= 0.05)),
        "processes": float(np.mean([one.processes for one in rows])),
        "call_ms": [min(calls), float(np.median(calls)), max(calls)],
        "drift": [min(one.drift for one in rows), max(one.drift for one in rows)],
        "clock": clock,
    }


def agreement(first: Mapping[str, Timed], second: Mapping[str, Timed]) -> dict[str, Any]:
    """The difference of two independent tables of the same networks, after removing their common factor."""
    keys = [key for key in first if not first[key].reason and not second[key].reason]
    a, b = (np.array([one[key].call_s for key in keys]) for one in (first, second))
    level = float(np.median(a / b))
    by_family = {}
    for family in dict.fromkeys(key.split("_")[0] for key in keys):
        own = np.array([key.startswith(f"{family}_") for key in keys])
        by_family[family] = asdict(score(a[own] / level, b[own]))
    return {"level": level, **asdict(score(a / level, b)), "families": by_family}


def errors(
    own: Family, kept: Mapping[Assignment, tuple[float, float]], unseen: Mapping[Assignment, tuple[float, float]]
) -> dict[str, Any]:
    """The errors on networks that were not used for fitting, the width of the intervals, and how often these contain
    the truth.
    """
    (values, errors), (y, noise) = (np.array(list(one.values())).T for one in (kept, unseen))
    known = Evidence(assignments=np.array(list(kept)), values=values, errors=errors)
    mean, low, high = learn(own.space, known, scale="sums").predict(list(unseen))
    return {
        "unseen": asdict(score(mean, y)),
        "unseen_noise": float(np.mean(noise / y)),
        "intervals_hold": float(np.mean((low <= y) & (y <= high))),
        "interval_half_width": float(np.median((high - low) / 2 / mean)),
    }


if __name__ == "__main__":
    main()
