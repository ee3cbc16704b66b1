"""python -m fuzz: attacks readers for a given time; exits with 1 if a reader raised, hung or used too much."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path

from fuzz.run import Attack, Tally
from fuzz.targets import TARGETS, Target


def main() -> int:
    """Read the command line, attack, and report."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Attack gnomon's readers of outside input.")
    parser.add_argument("--seconds", type=float, help="how long, all targets together (default: 60)")
    parser.add_argument("--count", type=int, help="so many inputs for each target, however long that takes")
    parser.add_argument("--target", action="append", metavar="NAME", help="one of them (may be repeated)")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--input", type=Path, help="let the one target read this file, and show what comes of it")
    parser.add_argument("--out", type=Path, help="where findings are kept (default: a new temporary folder)")
    parser.add_argument("--guided", action="store_true", help="damage further what reaches new code (needs atheris)")
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    parser.add_argument("--list", action="store_true", help="the names of all targets")
    given = parser.parse_args()
    targets = list(TARGETS.values())
    if given.list:
        print("\n".join(TARGETS))
        return 0
    if given.target:
        if unknown := [name for name in given.target if name not in TARGETS]:
            parser.error(f"there is no target {unknown[0]!r}; --list names all")
        targets = [TARGETS[name] for name in given.target]
    if given.input is not None:
        if len(targets) != 1:
            parser.error("--input needs one --target")
        print(repr(targets[0].read(given.input.read_bytes()))[:2000])
        return 0
    folder = given.out or Path(tempfile.mkdtemp(prefix="gnomon-fuzz-findings-"))
    folder.mkdir(parents=True, exist_ok=True)
    seconds = given.seconds if given.seconds is not None else (60.0 if given.count is None else float("inf"))
    if given.guided:
        if importlib.util.find_spec("atheris") is None:
            parser.error("--guided needs atheris: pip install atheris")
        return _guided(targets, 60.0 if seconds == float("inf") else seconds, folder)
    attack = Attack(seed=given.seed, folder=folder)
    tallies = _all(attack, targets, seconds, given.count, max(1, given.jobs), quiet=given.json)
    if given.json:
        print(json.dumps([asdict(tally) for tally in tallies], indent=1))
    return _end(tallies, folder, quiet=given.json)


def _all(
    attack: Attack, targets: list[Target], seconds: float, count: int | None, jobs: int, *, quiet: bool
) -> list[Tally]:
    """Attack all targets, several at a time. Each gets its share of the time that is left when its turn comes."""
    for target in targets:
        with contextlib.suppress(Exception):  # before the processes are started, so that they share the cached inputs
            target.read(target.made()[0])
    ends_s = time.monotonic() + seconds
    waiting = list(targets)
    running: set[Future[Tally]] = set()
    done: list[Tally] = []
    with ProcessPoolExecutor(max_workers=jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        while waiting or running:
            while waiting and len(running) < jobs:
                share_s = max(0.1, (ends_s - time.monotonic()) * min(1.0, jobs / len(waiting)))
                running.add(pool.submit(_one, attack, waiting.pop(0).name, share_s, count))
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                done.append(future.result())
                if not quiet:
                    left = f", {max(0.0, ends_s - time.monotonic()):.0f} s left" if count is None else ""
                    print(f"[{len(done)}/{len(targets)}{left}] {done[-1].line()}", flush=True)
    return sorted(done, key=lambda tally: tally.name)


def _one(attack: Attack, name: str, seconds: float, count: int | None) -> Tally:
    """Attack one target. An input that took more than a second is run again alone, because the machine may have been
    busy.
    """
    tally = attack.run(TARGETS[name], seconds=seconds, count=count)
    again_s = attack.slow(TARGETS[name], tally)
    if again_s is not None:
        tally.slowest_s = again_s
    return tally


def _guided(targets: list[Target], seconds: float, folder: Path) -> int:
    """Attack one target after the other, each in a separate process whose code atheris watches."""
    for target in targets:
        print(target.name, flush=True)
        share_s = max(1, round(seconds / len(targets)))
        subprocess.run([sys.executable, "-m", "fuzz.guided", target.name, str(share_s), str(folder)], check=False)
    found = sorted(folder.iterdir())
    print(f"{len(found)} inputs in {folder}" if found else "nothing was found")
    return 1 if found else 0


def _end(tallies: list[Tally], folder: Path, *, quiet: bool) -> int:
    """Print the summary, and return the exit status."""
    found = [(tally.name, wrong, how) for tally in tallies for wrong, how in tally.findings.items()]
    if not quiet:
        print(
            f"\n{sum(tally.inputs for tally in tallies)} inputs of {len(tallies)} readers:"
            f" {sum(tally.accepted for tally in tallies)} accepted, {sum(tally.refused for tally in tallies)} refused,"
            f" {len(found)} findings; slowest {max(tally.slowest_s for tally in tallies):.3f} s,"
            f" most memory {max(tally.peak_bytes for tally in tallies) >> 20} MiB"
        )
        for name, wrong, how in found:
            print(f"{name}: {wrong}\n    {how}")
    if not any(folder.iterdir()):
        folder.rmdir()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
