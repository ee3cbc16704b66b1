"""Measures the results database: durable appends per second, and the time to list, to read back and to export.

Appends are confirmed one by one, after each is on the disk, in a new database below --folder (so the kind of disk
matters). Reading is measured with the database open. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gnomon.core.sample import Campaign, Context, Run, Samples
from gnomon.jobs.runs.job import list_campaigns, show_campaign
from gnomon.store.base import CampaignQuery, RunQuery, newest_free
from gnomon.store.lines import write_lines
from gnomon.store.sqlite import SqliteStore


def _campaign(number: int) -> Campaign:
    context = Context(
        device={"cpu_model": "benchmark"},
        versions={},
        model_digest="0" * 64,
        model_name="benchmark.onnx",
        options={},
        seed=0,
        gnomon_version="0",
    )
    return Campaign(id=f"c{number}", kind="profile", key=f"k{number}", context=context, started_at_s=0.0)


def _run(number: int, samples: int) -> Run:
    times = tuple(1_000_000 + 37 * (number + i) % 9973 for i in range(samples))
    return Run(
        candidate=f"candidate {number % 20}",
        process=number // 100,
        block=number // 20 % 5,
        started_at_s=float(number),
        samples=Samples(wall_ns=times, cpu_ns=times),
        facts={"peak_rss_bytes": 50_000_000, "load_average_before": 0.5},
    )


def _best_s(work: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(folder: Path, campaigns: int, runs: int, samples: int) -> dict[str, object]:
    """Fill a database with campaigns of this many runs of this many samples each, then time the operations on it."""
    path = folder / "record.sqlite"
    with SqliteStore.open(path) as store:
        start = time.perf_counter()
        for c in range(campaigns):
            store.open_campaign(_campaign(c))
            for r in range(runs):
                store.append(f"c{c}", _run(r, samples))
        append_s = time.perf_counter() - start
        middle = _campaign(campaigns // 2)
        wanted = RunQuery(campaign=middle.id, candidate="candidate 7")
        return {
            "sqlite": sqlite3.sqlite_version,
            "campaigns": campaigns,
            "runs": campaigns * runs,
            "samples_a_run": samples,
            "bytes": sum(p.stat().st_size for p in folder.iterdir()),
            "appends_per_s": campaigns * runs / append_s,
            "resume_lookup_s": _best_s(lambda: newest_free(store, middle.key, finished=False)),
            "list_all_s": _best_s(lambda: list(list_campaigns(store))),
            "one_candidate_s": _best_s(lambda: list(store.query(wanted))),
            "show_campaign_s": _best_s(lambda: show_campaign(store, middle)),
            "read_all_runs_s": _best_s(
                lambda: [sum(1 for _ in store.query(RunQuery(campaign=f"c{c}"))) for c in range(campaigns)], 1
            ),
            "export_json_lines_s": _best_s(lambda: sum(map(len, write_lines(store, store.query(CampaignQuery())))), 1),
        }


def main() -> None:
    """Parse the arguments, measure in a folder that is removed afterwards, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=None, help="where to make the record (default: TMPDIR)")
    parser.add_argument("--campaigns", type=int, default=100)
    parser.add_argument("--runs", type=int, default=1000, help="runs a campaign")
    parser.add_argument("--samples", type=int, default=20, help="samples a run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        print(json.dumps(measure(Path(folder), given.campaigns, given.runs, given.samples), indent=2))


if __name__ == "__main__":
    main()
