"""How robust the server of `gnomon serve` is: thousands of malformed requests, and many models at the same time.

Sends --requests malformed and hostile requests (tests/serving/hostilekit.py) to a server on loopback, 32 at a time,
then --uploads copies of a small real model at the same moment. Reports the server's answers, whether it crashed, its
memory and open files before and after, how long /health took between the requests, and, for the models, how many were
answered, in which order they were measured, and how long one takes. `--data` is not needed.

--in-turn N sends models one at a time, alternately to a server that keeps a process and to one with three fresh
processes for each (and with --before FOLDER, a checkout of gnomon, to the server of that version). It reports the
seconds of each request, their ratio, and how well the latencies and intervals of the first server agree with those of
the second. Prints one JSON document.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import parser, publish, spread

AT_ONCE = 32
LIMIT_S = 900.0
BURST = 4


def memory_bytes(process: int) -> int:
    """The resident memory of a process."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def open_files(process: int) -> int:
    """The number of files and sockets that a process has open."""
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def quantiles(values: list[float]) -> dict[str, float]:
    """The median, the ninth decile, the 99th percentile and the largest value."""
    found = {name: float(np.quantile(values, q)) for name, q in (("median", 0.5), ("p90", 0.9), ("p99", 0.99))}
    return {**found, "max": max(values), "n": len(values)}


def malformed(server: Any, count: int) -> dict[str, Any]:
    """Send this many malformed requests, and check the state of the server."""
    from tests.serving.hostilekit import hostile
    from tests.serving.servekit import exchange, reply_of

    process = server.process.pid

    def one(number: int) -> tuple[str, float]:
        _, sent = hostile(number)
        start = time.perf_counter()
        try:
            status = str(reply_of(exchange(server.port, sent)).status)
        except (OSError, ValueError) as error:
            status = type(error).__name__
        return status, time.perf_counter() - start

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(min(count, 10 * AT_ONCE))))  # memory that is allocated only once is allocated by now
        before = {"rss_bytes": memory_bytes(process), "open_files": open_files(process)}
        done = threading.Event()
        asking = ThreadPoolExecutor(1).submit(asked, server, done)
        start = time.perf_counter()
        found = list(pool.map(one, range(count)))
        seconds = time.perf_counter() - start
        done.set()
    server.until(lambda health: health["present"] == 0)
    time.sleep(1.0)
    after = {"rss_bytes": memory_bytes(process), "open_files": open_files(process)}
    counts = server.health()["requests"]
    return {
        "requests": count,
        "seconds": seconds,
        "crashes": int(server.process.poll() is not None),
        "defects": sum("defect" in line or "Traceback" in line for line in server.lines()),
        "answers": dict(sorted(Counter(status for status, _ in found).items())),
        "answer_s": quantiles([took for _, took in found]),
        "health_s": quantiles(asking.result()),
        "before": before,
        "after": after,
        "measured": sum(counts.values()),
    }


def asked(server: Any, done: threading.Event) -> list[float]:
    """Request the server's health until everything is done: the seconds of each answer."""
    took = []
    while not done.wait(0.05):
        start = time.perf_counter()
        server.health()
        took.append(time.perf_counter() - start)
    return took


def at_once(server: Any, model: bytes, count: int) -> dict[str, Any]:
    """Send this many models at the same moment, each with its own name, so that its answer can be identified."""
    from tests.serving.servekit import exchange, form, reply_of, request

    def one(number: int) -> tuple[int, str, float]:
        sent = request(form(model, f"net{number}SSPROFILE"), {"Accept": "application/json"})
        reply = reply_of(exchange(server.port, sent, limit_s=LIMIT_S))
        named = reply.json().get("kernel_name", "") if reply.status == 200 else ""
        return reply.status, named, reply.json().get("latency_s", 0.0)

    start = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(one, range(count)))
    seconds = time.perf_counter() - start
    right = sum(name == f"net{number}SSPROFILE" for number, (_, name, _) in enumerate(found))
    latencies = [latency for _, _, latency in found if latency]
    return {
        "uploads": count,
        "statuses": dict(Counter(status for status, _, _ in found)),
        "lost": count - right,
        "seconds": seconds,
        "seconds_each": seconds / count,
        "latency_s": spread(latencies),
    }


def in_turn(folder: Path, models: dict[str, bytes], count: int, before: Path | None) -> dict[str, Any]:
    """Send each model to each server this many times, in turn.

    A turn consists of `BURST` consecutive requests; before the first one, a kept process may have been released.
    """
    from tests.serving.servekit import served

    options: dict[str, tuple[str, ...]] = {"kept": (), "fresh": ("--processes", "3")}
    paths: dict[str, Path | None] = dict.fromkeys(options)
    if before is not None:
        options["before"], paths["before"] = ("--processes", "3"), before
    with contextlib.ExitStack() as stack:
        servers = {}
        for name, given in options.items():
            path = paths[name]
            environment = None if path is None else {"PYTHONPATH": str(path / "src")}
            servers[name] = stack.enter_context(served(folder / name, *given, environment=environment))
        told: dict[str, Any] = {}
        for kind, model in models.items():
            rows: dict[str, list[dict[str, Any]]] = {name: [] for name in servers}
            for _, (name, server), number in itertools.product(range(count), servers.items(), range(BURST)):
                start = time.perf_counter()
                found = server.post(model, Accept="application/json").json()
                rows[name].append({**found, "seconds": time.perf_counter() - start, "first": number == 0})
            told[kind] = _compared(rows)
    return told


def _compared(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The seconds and latencies of each way; ratios are of requests that were made in the same turn."""
    truth = float(np.median([row["latency_s"] for row in rows["fresh"]]))
    told: dict[str, Any] = {}
    for name, found in rows.items():
        held = [row["low_s"] <= truth <= row["high_s"] for row in found if row["low_s"] is not None]
        told[name] = {
            "seconds_first": spread([row["seconds"] for row in found if row["first"]]),
            "seconds": spread([row["seconds"] for row in found if not row["first"]]),
            "latency_s": spread([row["latency_s"] for row in found]),
            "interval_half_width": spread(
                [(r["high_s"] - r["low_s"]) / 2 / r["latency_s"] for r in found if r["low_s"]]
            ),
            "intervals_that_hold_the_median_of_fresh": {"share": float(np.mean(held)), "n": len(held)},
        }
    for name in rows.keys() - {"kept"}:
        pairs = list(zip(rows[name], rows["kept"], strict=True))
        told[name]["seconds_over_kept"] = spread([a["seconds"] / b["seconds"] for a, b in pairs if not a["first"]])
        told[name]["kept_latency_over"] = spread([b["latency_s"] / a["latency_s"] for a, b in pairs])
    return told


def main() -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("--requests", type=int, default=10_000)
    made.add_argument("--uploads", type=int, default=100)
    made.add_argument("--in-turn", type=int, default=0, help="only the ways in turn, so often each")
    made.add_argument("--before", type=Path, help="a checkout whose server is asked too")
    given = made.parse_args()
    from tests.serving.servekit import served

    from gnomon.models.units import write_unit
    from gnomon.spaces.layers import layer
    from gnomon.spaces.unit import single

    unit = single(layer("Conv", out_channels=16, kernel=3, pad=1), ((1, 16, 32, 32),))
    with tempfile.TemporaryDirectory(prefix="gnomon-benchmark-") as name:
        folder = Path(name)
        model = write_unit(unit, folder / "conv.onnx").read_bytes()
        if given.in_turn:
            large = single(layer("Conv", out_channels=64, kernel=3, pad=1), ((1, 64, 56, 56),))
            models = {"small": model, "large": write_unit(large, folder / "large.onnx").read_bytes()}
            publish({"in_turn": in_turn(folder, models, given.in_turn, given.before)}, given)
            return
        with served(folder / "server", "--idle-timeout", "1", "--most-mb", "1") as server:
            told: dict[str, Any] = {"malformed": malformed(server, given.requests)}
        with served(folder / "uploads", "--processes", "3") as server:
            told["at_once"] = at_once(server, model, given.uploads)
            ended = server.end()
            told["end"] = {"status": ended, "left": server.left()}
    publish(told, given)


if __name__ == "__main__":
    main()
