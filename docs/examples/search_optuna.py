"""Searches what `gnomon space select` keeps of a profile with Optuna: accuracy against latency, as it tells both.

python search_optuna.py PROFILE
"""

import sys

import optuna

import gnomon

profile = sys.argv[1]
told = gnomon.open_profile(profile)
kept = dict(zip(told.choices, gnomon.select_primitives(profile).groups, strict=True))


def objectives(trial: optuna.Trial) -> tuple[float, float]:
    """Accuracy, which a training of your own may tell instead, and milliseconds."""
    network = [trial.suggest_categorical(cell, names) for cell, names in kept.items()]
    return told.accuracy(network).value, 1e3 * told.latency_s(network).value


optuna.logging.set_verbosity(optuna.logging.WARNING)
sampler = optuna.samplers.NSGAIISampler(population_size=20, seed=0)
study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
study.optimize(objectives, n_trials=200)

print("accuracy  latency  network")
front = {tuple(trial.params.values()): trial.values for trial in study.best_trials}
for network, (accuracy, latency_ms) in sorted(front.items(), key=lambda item: item[1][1]):
    print(f"{100 * accuracy:6.2f} %  {latency_ms:.4f} ms  {' '.join(network)}")
