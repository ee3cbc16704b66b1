"""Searches the space of a profile with Syne Tune, by aging evolution: the most accurate network below a latency.

    python search_syne_tune.py PROFILE NETS.csv MILLISECONDS

NETS.csv is what `gnomon space export` writes: networks that were trained have the accuracy of that table.
"""

import csv
import sys
from pathlib import Path

from syne_tune.config_space import choice
from syne_tune.optimizer.baselines import REA
from syne_tune.optimizer.schedulers.ask_tell_scheduler import AskTellScheduler

import gnomon

profile, table, bound_ms = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
told = gnomon.open_profile(profile)
cells = list(told.choices)
with table.open(newline="") as file:
    trained = {tuple(row[cell] for cell in cells): row["accuracy"] for row in csv.DictReader(file) if row["accuracy"]}


def score(network: tuple[str, ...], latency_ms: float) -> float:
    """The accuracy; a network that takes longer than the bound counts by how much longer it takes."""
    accuracy = float(trained.get(network) or told.accuracy(network).value)
    return accuracy if latency_ms <= bound_ms else 1 - latency_ms / bound_ms


space = {cell: choice(list(names)) for cell, names in told.choices.items()}
scheduler = AskTellScheduler(
    REA(space, metric="score", do_minimize=False, population_size=20, sample_size=5, random_seed=0)
)
found = {}
for _ in range(200):
    trial = scheduler.ask()
    network = tuple(trial.config[cell] for cell in cells)
    latency_ms = 1e3 * told.latency_s(network).value
    found[network] = score(network, latency_ms), latency_ms
    scheduler.tell(trial, {"score": found[network][0]})

print("score   latency  network")
for network, (worth, latency_ms) in sorted(found.items(), key=lambda item: -item[1][0])[:5]:
    print(f"{worth:.4f}  {latency_ms:.4f} ms  {' '.join(network)}")
