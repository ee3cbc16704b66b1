"""Estimates for a study's networks from the lines of its journals: accuracies with their noise, rankings, latencies.

The latency of a network is measured, or predicted from the networks of its family or from all networks. The costs of a
family's primitives are learned from all its networks alike (`effects.learn`). The error of predictions is measured on
mixed networks, each of which is predicted from all other networks of its family.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.space import Space
from gnomon.core.stats import pooled_variance, student_quantile
from gnomon.errors import UsageError
from gnomon.jobs.space.document import ComparedPart, HeldOutPart, RankedPart, RankingPart, RuleAccuracies
from gnomon.jobs.space.profiling.folder import IMPORTED, METHODS, PROOF, PUBLISHED, AccuracyRow, LatencyRow
from gnomon.jobs.space.profiling.study import Family, Network, Study
from gnomon.spaces.cells.effects import Evidence, Learned, learn
from gnomon.spaces.cells.ranks import kendall_tau
from gnomon.spaces.features import Ints

LEAST_MIXED = 6
"""Predictions are tested only on at least this many mixed networks."""

MOST_LEARNED = 500
"""The most networks to learn from, because the time grows with the cube of their number."""

NORMAL_95 = 1.959964
"""The number of standard deviations from the mean to either end of a normal distribution's 95 % interval."""

_DRAWS, _RESAMPLES = 60, 1000
_NO_NOISE_SEEN = 0.005
"""The assumed standard deviation between trainings of a network, used if no network was trained twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """A network's accuracy: the mean over its trainings, and its standard error from the seeds and the images."""

    network: Network
    accuracy: float
    error: float
    trainings: int


def method_of(rows: Iterable[AccuracyRow], wanted: str | None) -> str:
    """The wanted method, or else the first of METHODS with trained networks, or else "imported".

    UsageError if the method trained no network.
    """
    there = {row.method for row in rows if row.validation is not None and not row.reason}
    names = [name for name in (*METHODS, IMPORTED) if name in there]
    return _chosen(names, wanted, "no network was trained", "method", "Methods with trained networks")


def _chosen(names: Sequence[str], wanted: str | None, nothing: str, kind: str, there: str) -> str:
    """The wanted name, or else the first name. UsageError for an unknown name, and if there are no names."""
    if names and (wanted is None or wanted in names):
        return wanted or names[0]
    raise UsageError(
        f"{nothing}{'' if wanted is None else f' by the {kind} {wanted}'}",
        hint=f"{there}: {', '.join(names) or 'none; run gnomon space profile first'}.",
    )


def seen_networks(
    study: Study, rows: Iterable[AccuracyRow], method: str, *, proofs: bool = False
) -> dict[str, Accuracy]:
    """The networks that a method trained, by id; only the last stage of a training counts. Failures are left out.

    With `proofs`, the networks that were trained to check predictions are included. UsageError for `proofs` with the
    method "published": proofs are trained from scratch, whereas this method fine-tunes.
    """
    if proofs and method == PUBLISHED:
        raise UsageError(
            "the measurements of gnomon space front cannot be compared with the method published, which fine-tunes",
            hint="Leave out --use-proofs, or give --accuracy balanced (or fair).",
        )
    every = list(rows)
    last = _last(row for row in every if row.method == method or (proofs and row.method == PROOF))
    noise = training_noise(last)
    if noise is None and method == PROOF:
        noise = training_noise(row for row in every if row.method != PUBLISHED)
    seen: dict[str, Accuracy] = {}
    by_network: dict[str, list[AccuracyRow]] = {}
    for row in last:
        by_network.setdefault(row.network, []).append(row)
    for name, ones in by_network.items():
        mean = float(np.mean([row.validation for row in ones]))
        error = _error(ones, mean, _NO_NOISE_SEEN if noise is None else noise)
        seen[name] = Accuracy(network=study.mixed(ones[0].primitives), accuracy=mean, error=error, trainings=len(ones))
    return seen


def _error(ones: Sequence[AccuracyRow], mean: float, noise: float) -> float:
    """The standard error of a network's mean accuracy, from the errors of its trainings if these are known.

    The number of images behind an imported accuracy is unknown, so its error includes only the noise of training.
    """
    errors = [row.error for row in ones if row.error is not None]
    rest = len(ones) - len(errors)
    if not rest:
        return math.hypot(*errors) / len(ones)
    images = max(row.images for row in ones if row.error is None)
    unknown = not images and all(row.origin for row in ones)
    sampling = 0.0 if unknown else math.sqrt(max(mean * (1 - mean), 1e-4) / (images or 1))
    own = math.hypot(sampling, noise / math.sqrt(rest))
    return math.hypot(own * rest, *errors) / len(ones) if errors else own


def _last(rows: Iterable[AccuracyRow]) -> list[AccuracyRow]:
    """For each training of a network from a seed, the last stage that succeeded."""
    last: dict[tuple[str, int], AccuracyRow] = {}
    for row in rows:
        if row.validation is not None and not row.reason:
            before = last.get((row.network, row.seed))
            if before is None or row.epochs >= before.epochs:
                last[row.network, row.seed] = row
    return list(last.values())


def training_noise(rows: Iterable[AccuracyRow]) -> float | None:
    """The standard deviation of accuracies between seeds, pooled over networks trained from several seeds.

    The rows must be of one method. Only the last stage of a training counts, and failed stages are left out. None if no
    network was trained from several seeds.
    """
    by_network: dict[str, list[float]] = {}
    for row in _last(rows):
        by_network.setdefault(row.network, []).append(row.validation or 0.0)
    variance = pooled_variance(by_network.values())
    return None if variance is None else math.sqrt(variance)


def accuracy_effects(family: Family, seen: Mapping[str, Accuracy]) -> Learned | None:
    """The effect of each primitive in each cell group on the accuracy of a family's networks; None without any."""
    ones = [row for row in seen.values() if row.network.family == family.name]
    if not ones:
        return None
    return learn(family.space, _accuracies(ones, [row.network.assignment for row in ones]), scale="logit")


def _accuracies(seen: Collection[Accuracy], assignments: Sequence[Sequence[int]]) -> Evidence:
    return _evidence(assignments, [row.accuracy for row in seen], [row.error for row in seen])


def _evidence(assignments: Sequence[Sequence[int]], values: Sequence[float], errors: Sequence[float]) -> Evidence:
    """The networks to learn from; a fixed random sample if there are more than `MOST_LEARNED`."""
    every = Evidence(assignments=np.array(assignments), values=np.array(values), errors=np.array(errors))
    return every.at(np.sort(np.random.default_rng(0).permutation(len(values))[:MOST_LEARNED]))


def swap_accuracies(
    study: Study, seen: Mapping[str, Accuracy], networks: Iterable[Network]
) -> tuple[dict[str, float], RuleAccuracies]:
    """The accuracies of these one-change variants by id, and their kind: measured if all were trained, else estimated.

    Measured and estimated accuracies are never mixed: estimates are shrunk towards each other, so measured networks
    would take both the best and the worst places. Variants of families without any trained network are left out.
    """
    families = {row.network.family for row in seen.values()}
    wanted = [network for network in networks if network.family in families]
    trained = sum(network.id in seen for network in wanted)
    values: dict[str, float] = {}
    if trained == len(wanted):
        values = {network.id: seen[network.id].accuracy for network in wanted}
    else:
        for name, family in study.families.items():
            own = [network for network in wanted if network.family == name]
            effects = accuracy_effects(family, seen) if own else None
            if effects is not None:
                believed = effects.predict([network.assignment for network in own])[0].tolist()
                values |= dict(zip((network.id for network in own), believed, strict=True))
    kind: Literal["measured", "believed"] = "measured" if trained == len(wanted) else "believed"
    return values, RuleAccuracies(kind=kind, trained=trained, networks=len(values))


def ranking(family: Family, seen: Mapping[str, Accuracy], method: str, noise: float | None) -> RankingPart | None:
    """The one-change variants of a family by expected accuracy; None if none of its networks was trained.

    The ranking includes its repeatability, because an order that cannot be repeated cannot be right.
    """
    effects = accuracy_effects(family, seen)
    if effects is None:
        return None
    networks = family.swaps()
    chosen = np.array([n.assignment for n in networks])
    means, lows, highs = effects.predict(chosen)
    rows = zip(networks, means.tolist(), lows.tolist(), highs.tolist(), strict=True)
    ranked = [
        RankedPart(id=network.id, primitives=network.primitives, accuracy=mean, low=low, high=high)
        for network, mean, low, high in rows
    ]
    return RankingPart(
        family=family.name,
        method=method,
        repeatability=_repeatability(effects, chosen),
        noise=noise,
        trainings=sum(row.trainings for row in seen.values() if row.network.family == family.name),
        networks=tuple(sorted(ranked, key=lambda network: -network.accuracy)),
    )


def _repeatability(believed: Learned, chosen: Ints) -> float:
    """The mean Kendall's tau between the estimates and draws from the posterior."""
    values = believed.draw(chosen, _DRAWS, seed=0)
    middle = believed.predict(chosen)[0]
    if len(middle) < 2:
        return 1.0
    return float(np.mean([kendall_tau(middle, row) for row in values]))


def latest(rows: Iterable[LatencyRow], toolchain: str, *, proofs: bool = False) -> dict[str, LatencyRow]:
    """The last row, failed or not, of each network that a toolchain made, by id.

    With `proofs`, the networks that were measured to check predictions are included.
    """
    return {row.network: row for row in rows if row.toolchain == toolchain and (proofs or not row.proof)}


NetworkPrices = tuple[dict[str, Accuracy], dict[str, LatencyRow]]
"""Accuracies and latencies of networks by id."""


def evidence_of(
    study: Study,
    rows: tuple[Iterable[AccuracyRow], Iterable[LatencyRow]],
    method: str,
    toolchain: str,
    *,
    proofs: bool = False,
) -> NetworkPrices:
    """The accuracies by a method and the latencies by a toolchain, from the lines of both journals.

    Networks that were measured to check predictions are included only with `proofs`.
    """
    return seen_networks(study, rows[0], method, proofs=proofs), latest(rows[1], toolchain, proofs=proofs)


def proved_networks(accuracies: Iterable[AccuracyRow], latencies: Iterable[LatencyRow]) -> tuple[str, ...]:
    """The ids of the networks that were trained or measured to check predictions."""
    names = {row.network for row in accuracies if row.method == PROOF} | {r.network for r in latencies if r.proof}
    return tuple(sorted(names))


def toolchains_of(rows: Iterable[LatencyRow]) -> tuple[str, ...]:
    """The toolchains that measured anything, in the order of their first rows."""
    return tuple(dict.fromkeys(row.toolchain for row in rows))


def toolchain_of(rows: Iterable[LatencyRow], wanted: str | None) -> str:
    """The wanted toolchain, or else the first one with measurements. UsageError lists the valid ones."""
    names = toolchains_of(row for row in rows if row.call_s is not None)
    return _chosen(names, wanted, "nothing was measured", "toolchain", "Toolchains with measurements")


def standard_error(row: LatencyRow) -> float:
    """The standard error of a row's time in seconds, from its interval; 0 if it has none.

    If the number of processes behind an imported interval is unknown, a normal distribution is assumed.
    """
    if row.low_s is None or row.high_s is None or (row.processes < 2 and not row.origin):
        return 0.0
    quantile = student_quantile(0.975, row.processes - 1) if row.processes > 1 else NORMAL_95
    return abs(row.high_s - row.low_s) / 2 / quantile


def milliseconds(seconds: float) -> float:
    """A time in seconds, converted to milliseconds; exact for numbers of at most 15 digits.

    Imported tables thus keep their values to the last digit, on which ties may depend.
    """
    return float(Decimal(repr(float(seconds))).scaleb(3))


def seconds(milliseconds: float) -> float:
    """A time in milliseconds, converted to seconds; exact for numbers of at most 15 digits."""
    return float(Decimal(repr(float(milliseconds))).scaleb(-3))


def accuracy_evidence(study: Study, seen: Mapping[str, Accuracy]) -> Evidence:
    """The networks of all families with their accuracies, as indices in the space of all primitives."""
    return _accuracies(seen.values(), [list(study.space.indices(row.network.primitives)) for row in seen.values()])


def latency_evidence(space: Space, rows: Mapping[str, LatencyRow]) -> Evidence:
    """The networks with their latencies in seconds, as indices in the space. UsageError if no network has one."""
    timed = [(row, row.call_s, standard_error(row)) for row in rows.values() if row.call_s is not None]
    if not timed:
        raise UsageError("no network has a latency", hint="Run gnomon space profile with --toolchain NAME.")
    ones, times, errors = zip(*timed, strict=True)
    return _evidence([space.indices(row.primitives) for row in ones], times, errors)


def compare_with_twin(rows: Iterable[LatencyRow], toolchain: str) -> ComparedPart | None:
    """A quantised toolchain compared with the float32 toolchain of the same runtime; None if there is no such twin.

    The interval of the median ratio is found by resampling networks.
    """
    every = list(rows)
    names = toolchains_of(every)
    twin = next((name for name in names if name != toolchain and toolchain.startswith(f"{name}-")), None)
    if twin is None and toolchain.startswith("quark"):
        twin = "onnxruntime" if "onnxruntime" in names else None
    if twin is None:
        return None
    mine, other = latest(every, toolchain), latest(every, twin)
    pairs = [(row, other[name]) for name, row in mine.items() if name in other]
    timed = np.array([[a.call_s, b.call_s] for a, b in pairs if a.call_s and b.call_s])
    if not len(timed):
        return None
    ratios = timed[:, 0] / timed[:, 1]
    rng = np.random.default_rng(0)
    drawn = np.median(ratios[rng.integers(0, len(ratios), (_RESAMPLES, len(ratios)))], axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    drops = [b.correct - a.correct for a, b in pairs if a.correct is not None and b.correct is not None]
    return ComparedPart(
        toolchain=toolchain,
        twin=twin,
        networks=len(ratios),
        ratio=float(np.median(ratios)),
        low=float(low),
        high=float(high),
        faster=int((ratios < 1).sum()),
        drop=float(np.mean(drops)) if drops else None,
        worst_drop=float(np.max(drops)) if drops else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Latencies:
    """The latency of any network: measured, or predicted from its family's networks, or predicted from all networks."""

    study: Study
    rows: Mapping[str, LatencyRow]
    by_family: Mapping[str, Learned]
    learned: Learned

    def predict(self, networks: Ints) -> tuple[Floats, Floats, Floats]:
        """The seconds of networks (N, groups), given as indices of all primitives, and the ends of 95 % intervals."""
        times = np.array(self.learned.predict(networks))
        for place, network in enumerate(map(self.study.at, networks.tolist())):
            row, model = self.rows.get(network.id), self.by_family.get(network.family)
            if row is not None and row.call_s is not None:
                ends = (row.call_s if end is None else end for end in (row.low_s, row.high_s))
                times[:, place] = row.call_s, *ends
            elif model is not None:
                times[:, place] = np.concatenate(model.predict([network.assignment]))
        return times[0], times[1], times[2]


def latencies_of(study: Study, rows: Mapping[str, LatencyRow]) -> Latencies:
    """A predictor of any network's latency, learned from rows by id. UsageError if no row has a latency."""
    learned = learn(study.space, latency_evidence(study.space, rows), scale="sums")
    by_family = {
        name: learn(study.families[name].space, measured, scale="sums")
        for name, measured in family_latencies(study, rows).items()
    }
    return Latencies(study=study, rows=rows, by_family=by_family, learned=learned)


def family_latencies(study: Study, rows: Mapping[str, LatencyRow]) -> dict[str, Evidence]:
    """The measured networks by family, as indices in the family's own space; families without any are left out."""
    by_family: dict[str, dict[str, LatencyRow]] = {}
    for name, row in rows.items():
        if row.call_s is not None:
            by_family.setdefault(study.mixed(row.primitives).family, {})[name] = row
    return {name: latency_evidence(study.families[name].space, own) for name, own in by_family.items() if name}


def held_out(study: Study, rows: Mapping[str, LatencyRow]) -> dict[str, HeldOutPart]:
    """The errors of predictions for each family's mixed networks; families with too few such networks are left out."""
    scores = {}
    for name, measured in family_latencies(study, rows).items():
        family = study.families[name]
        mixed = (measured.assignments != np.array(family.defaults)).sum(axis=1) > 1
        if mixed.sum() >= LEAST_MIXED:
            off = learn(family.space, measured, scale="sums").left_out()
            tested = mixed & np.isfinite(off)
            scores[name] = score(measured.values[tested] * np.exp(-off[tested]), measured.values[tested])
    return scores


def score(predicted: Floats, measured: Floats) -> HeldOutPart:
    """The errors |predicted / measured - 1| of arrays (networks,), and Kendall's tau-b (None for a single network)."""
    off = np.abs(predicted / measured - 1)
    return HeldOutPart(
        networks=len(off),
        mean=float(off.mean()),
        median=float(np.median(off)),
        p90=float(np.quantile(off, 0.9)),
        tau=tau(predicted, measured),
    )


def tau(predicted: Floats, measured: Floats) -> float | None:
    """Kendall's tau-b of predicted and measured values; None for a single pair."""
    return kendall_tau(predicted, measured) if len(measured) > 1 else None
