"""The job `space validate`: mixed networks that a selection implies, built, trained and measured.

Predicted accuracies and latencies are compared with measured ones; the predicted fronts of the reduced and of the full
space are measured and compared with each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnomon.core.cost import Ints
from gnomon.core.front.dominance import hypervolume
from gnomon.core.strict_json import indented
from gnomon.errors import UsageError
from gnomon.jobs.space.choosing.front import beliefs_of, has_both, measured_points, networks_of
from gnomon.jobs.space.choosing.proving import inside, prove, proving, with_proofs
from gnomon.jobs.space.document import (
    FrontsPart,
    FrontsVolumes,
    NewAccuracies,
    NewLatencies,
    SelectionDocument,
    ValidationDocument,
)
from gnomon.jobs.space.profiling.estimates import (
    Known,
    Seen,
    accuracy_evidence,
    evidence_of,
    latency_evidence,
    mixed_space,
    predictors,
)
from gnomon.jobs.space.profiling.folder import PROOF, LatencyRow, read_question
from gnomon.jobs.space.profiling.look import read_selection, study_of
from gnomon.jobs.space.profiling.opened import TrainRequest
from gnomon.jobs.space.profiling.predict import tau
from gnomon.jobs.space.profiling.study import Network, Study
from gnomon.measure.progress import Watch
from gnomon.spaces.cells.effects import balanced_design, fit_effects
from gnomon.spaces.selection.front import FrontOptions, predict_front, ratio_of
from gnomon.system.files import save_text

VALIDATION = "validation.json"

Groups = Sequence[Sequence[str]]
"""The primitives of each cell group."""


def validate_selection(
    path: Path,
    asked: TrainRequest,
    *,
    networks: int = 12,
    front: int = 10,
    watch: Watch | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> ValidationDocument:
    """Build, train and measure, and write `validation.json`; the same call goes on where it was interrupted.

    So many mixed `networks` of the reduced space, as many of the full one, and of the predicted front of each space at
    most so many `front` networks (0: none), as `proving` has it.

    UsageError where nothing was selected yet. Raises GnomonError.
    """
    selection = read_selection(path)
    if selection is None:
        read_question(path)  # where there is no profile at all, that is what is reported
        raise UsageError(f"nothing was selected in {path} yet", hint="Run gnomon space select first.")
    study, seed = study_of(path, asked.blocks), asked.request.seed
    with proving(path, asked, study, watch=watch, tell=tell) as profile:
        folder = profile.folder
        # What an earlier validation drew is no evidence, hence drawn again: another draw each time would be one until
        # it suits. But what the choice was made from cannot prove it.
        used = set(selection.proofs)
        rows = (
            [row for row in folder.accuracy.values() if row.method != PROOF or row.network in used],
            [row for row in folder.latency.values() if not row.proof or row.network in used],
        )
        known = evidence_of(study, rows, selection.method, selection.toolchain, proofs=bool(used))
        reduced, full = _drawn(study, selection, networks, {*known[0], *known[1]}, seed)
        fronts = _fronts(study, selection, FrontOptions(networks=front, seed=seed), known)
        every = [network for one in fronts for network in networks_of(study, one)]
        proofs = prove(profile, [*reduced, *full, *every], selection.toolchain)
    drawn = [network.id for network in (*reduced, *full)]
    document = ValidationDocument(
        profile=str(path),
        toolchain=selection.toolchain,
        networks=len(drawn),
        accuracy=_accuracies(study, known[0], {name: proofs[0][name] for name in drawn if name in proofs[0]}),
        latency=_latencies(study, known[1], [proofs[1][name] for name in drawn if name in proofs[1]]),
        fronts=_compared_fronts(study, FrontOptions(seed=seed), (known, proofs), fronts),
    )
    save_text(indented(document.document()), path / VALIDATION, option="--profile-dir")
    return document


def _fronts(study: Study, selection: SelectionDocument, options: FrontOptions, known: Known) -> list[Ints]:
    """The networks of the predicted front of the reduced space and of the full one; none where none are asked for."""
    if not options.networks:
        return []
    beliefs = beliefs_of(study, known)
    choices = (
        tuple(tuple(sorted(study.places[name] for name in group)) for group in groups)
        for groups in _both_spaces(study, selection)
    )
    return [predict_front(beliefs, replace(options, choices=own)).networks for own in choices]


def _compared_fronts(
    study: Study, options: FrontOptions, known: tuple[Known, Known], fronts: Sequence[Ints]
) -> FrontsPart | None:
    """What the reduced space's front reaches of the full one's, as measured; None where none was measured.

    The interval is of what is believed of these very networks when their own measurements are known, so that noise
    which makes the best of some look better does not count for either.
    """
    evidence, proofs = known
    both = [
        one[[k for k, network in enumerate(networks_of(study, one)) if has_both(network.id, proofs)]] for one in fronts
    ]
    if not both or not all(map(len, both)):
        return None
    before, after = beliefs_of(study, evidence), beliefs_of(study, with_proofs(evidence, proofs))
    reduced, full = (
        hypervolume(measured_points([n.id for n in networks_of(study, one)], proofs, before), before.reference)
        for one in both
    )
    return FrontsPart(
        networks=(len(both[0]), len(both[1])),
        in_both=len({tuple(row) for row in both[0].tolist()} & {tuple(row) for row in both[1].tolist()}),
        hypervolume=FrontsVolumes(reduced=reduced, full=full),
        measured_ratio=reduced / full if full > 0 else None,
        ratio=ratio_of(after, both[0], both[1], options),
    )


def _drawn(
    study: Study, selection: SelectionDocument, count: int, known: set[str], seed: int
) -> tuple[list[Network], list[Network]]:
    """New networks of the reduced space and of the full one that the selection was made from."""
    reduced_groups, full_groups = _both_spaces(study, selection)
    reduced = _some(study, reduced_groups, count, known, seed)
    return reduced, _some(study, full_groups, count, known | {n.id for n in reduced}, seed)


def _both_spaces(study: Study, selection: SelectionDocument) -> tuple[Groups, Groups]:
    """The primitives of each cell group in the reduced space, and in the full one that it was selected from."""
    every = [name for name, one in study.primitives.items() if selection.family in (None, one.family)]
    return selection.groups, [every] * len(selection.groups)


def _some(study: Study, groups: Groups, count: int, known: set[str], seed: int) -> list[Network]:
    """So many networks of these primitives that are not known yet, each primitive about equally often."""
    counts = [len(names) for names in groups]
    found: dict[str, Network] = {}
    for number in range(20):
        for row in balanced_design(counts, count, seed=seed + number):
            network = study.mixed([names[int(k)] for names, k in zip(groups, row, strict=True)])
            if network.id not in known and len(found) < count:
                found.setdefault(network.id, network)
        if len(found) >= min(count, math.prod(counts)):
            break
    return list(found.values())


def _accuracies(study: Study, known: Mapping[str, Seen], measured: Mapping[str, Seen]) -> NewAccuracies | None:
    """Accuracies predicted from what was known before, against those measured now; None where there are none."""
    if not measured:
        return None
    evidence = accuracy_evidence(study, measured)
    effects = fit_effects(mixed_space(study), accuracy_evidence(study, known), scale="logit")
    predicted = effects.predict(evidence.assignments)
    believed = predicted[0]
    return NewAccuracies(
        networks=len(believed),
        mean_error=float(np.abs(believed - evidence.values).mean()),
        inside=inside(evidence.values, predicted, evidence.errors),
        tau=tau(believed, evidence.values),
    )


def _latencies(study: Study, known: Mapping[str, LatencyRow], measured: Sequence[LatencyRow]) -> NewLatencies | None:
    """Latencies by the family's predictor, or by the effects of all families, as `_accuracies`."""
    by_family = predictors(study, known)
    effects = fit_effects(mixed_space(study), latency_evidence(study, known), scale="plain")
    pairs = []
    for row in measured:
        if row.call_s is None:
            continue
        network = study.mixed(row.primitives)
        if network.family in by_family:
            predicted = float(by_family[network.family].predict([network.assignment]).mean_s[0])
        else:
            predicted = float(effects.predict(latency_evidence(study, {row.network: row}).assignments)[0][0])
        if math.isfinite(predicted):
            pairs.append((predicted, row.call_s))
    if not pairs:
        return None
    told, call = np.array(pairs).T
    off = np.abs(told / call - 1)
    return NewLatencies(
        networks=len(pairs), mean_error=float(off.mean()), worst_error=float(off.max()), tau=tau(told, call)
    )
