"""The best network by a score of your own within a latency bound, searched by Optuna."""

import optuna

from gnomon.formats.nets_csv import NetRow
from gnomon.jobs.estimator.job import described, fit_estimator
from gnomon.spaces.loading import draw

# A simulated device: in practice, networks and their latencies come from `gnomon estimator measure`.
found = described(None, "mobilenetv2-cifar10")
nets = draw(found.tables, 80, seed=0)
times = 1e-3 * found.tables.counts(nets).sum(axis=1) / 100
samples = [NetRow(assignment=tuple(n), latency_s=float(t)) for n, t in zip(nets.tolist(), times, strict=True)]
estimator = fit_estimator(found, samples)
space = found.space.space


def objectives(trial):
    """A score of your own, and the milliseconds that a net stays below: the upper end of its interval."""
    net = [trial.suggest_categorical(slot.name, tuple(range(len(slot.choices)))) for slot in space.slots]
    score = sum(choice != "skip_connect" for choice in space.names(net))
    return score, 1e3 * estimator.predict([net], unknown="widen").high_s[0]


optuna.logging.set_verbosity(optuna.logging.WARNING)
sampler = optuna.samplers.NSGAIISampler(population_size=20, seed=0)
study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
study.optimize(objectives, n_trials=200)

best = max((trial for trial in study.best_trials if trial.values[1] <= 1.2), key=lambda trial: trial.values[0])
print(best.values, space.names(list(best.params.values())))
