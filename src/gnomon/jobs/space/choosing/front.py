"""The job `space front`: the best networks of the full space by predicted accuracy and latency, trained and measured.

Predictions are sums of the same effects that `select` uses. Measurements go into the profile as proofs, so that the
same command finds the same networks again. A proof does not count as evidence for a choice, a front or a lookup table
unless the user requests it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.front.dominance import hypervolume, nondominated
from gnomon.core.strict_json import indented
from gnomon.errors import UsageError, problems_of
from gnomon.jobs.space.choosing.select import sums_held_out
from gnomon.jobs.space.document import (
    FrontNetwork,
    FrontVolumes,
    HeldAccuracies,
    HeldFront,
    HeldLatencies,
    MeasuredPoint,
    PredictedPoint,
    SpaceFrontDocument,
    Three,
)
from gnomon.jobs.space.profiling.estimates import (
    NORMAL_95,
    NetworkPrices,
    accuracy_evidence,
    evidence_of,
    latency_evidence,
    method_of,
    seen_networks,
    standard_error,
    tau,
    toolchain_of,
)
from gnomon.jobs.space.profiling.folder import PROOF, PUBLISHED, AccuracyRow, read_question, settings_in
from gnomon.jobs.space.profiling.images import kept_calibration, reopened_images
from gnomon.jobs.space.profiling.look import network_size, read_rows, read_selection, study_of
from gnomon.jobs.space.profiling.measuring import Measurer
from gnomon.jobs.space.profiling.methods import recipes
from gnomon.jobs.space.profiling.study import Network, Study
from gnomon.jobs.space.profiling.training import OpenProfile, Training, TrainRequest, open_folder, train
from gnomon.measure.progress import Watch
from gnomon.report import units
from gnomon.spaces.selection.beliefs import Beliefs, believe
from gnomon.spaces.selection.front import FrontOptions, PredictedFront, exact_front, in_rounds, predict_front, share_of
from gnomon.system.files import save_text
from gnomon.toolchains.base import Toolchain, chosen_toolchain
from gnomon.training.loop import check_device

_FROM_NOTHING = ("whole", "first")
_FIRST_SEED = 1000
"""Added to the config's seed for proofs: no method of a profile uses seeds so high, so no proof repeats a training."""


@contextmanager
def proving(
    path: Path, asked: TrainRequest, study: Study, *, watch: Watch | None, tell: Callable[[str], None]
) -> Iterator[OpenProfile]:
    """The profile of a study, open for adding proofs. UsageError if its images are unknown or have changed.

    If the request has no `epochs`, networks are trained for as many epochs as most networks of the profile, or else for
    as many as the config says. The request's `data` must name the source of the images if a function provides them.
    """
    question = read_question(path)
    if not question["data"]["digest"]:
        raise UsageError(
            f"the profile {path} was made from tables alone, so its images are unknown",
            hint="Make a profile from the config with --accuracy none --no-latency, and import the tables into it.",
        )
    if asked.cluster is None:
        check_device(asked.training_device)
    data = reopened_images(
        study.config.gnomon,
        question["data"],
        asked.data or (question["data"]["name"] if asked.trust_config else None),
        classes=study.config.manager.num_classes,
        download=asked.download,
    )
    with open_folder(path, question, study) as folder:
        yield OpenProfile(asked=asked, folder=folder, study=study, data=data, watch=watch, tell=tell)


def prove(profile: OpenProfile, networks: Sequence[Network], toolchain: str) -> NetworkPrices:
    """The accuracies and latencies of networks by id; missing ones are trained and measured.

    A network whose trainings failed has no accuracy; a network that could not be measured has a row with the reason.
    """
    folder, study = profile.folder, profile.study
    wanted = list({network.id: network for network in networks}.values())
    rows = folder.latency.values()
    before = next((row for row in rows if row.toolchain == toolchain and row.call_s is not None), None)
    settings = settings_in({} if before is None else before.context)
    chain = chosen_toolchain(toolchain, settings)
    measurer = Measurer(profile=profile, calibration=_calibration(profile, chain), proof=True)
    measurer.check(chain, settings)
    first, _ = recipes(study, epochs=profile.asked.epochs or epochs_of(folder.accuracy.values()))
    seed = study.config.gnomon.seed + _FIRST_SEED
    trainings = [
        Training(method=PROOF, stage="whole", network=network, recipe=first, seed=seed + k)
        for network in wanted
        for k in range(profile.asked.seeds)
    ]
    train(profile, [trainings])
    measured = measurer.run(chain, settings, wanted)
    seen = seen_networks(study, folder.accuracy.values(), PROOF)
    return {n.id: seen[n.id] for n in wanted if n.id in seen}, measured


def _calibration(profile: OpenProfile, toolchain: Toolchain) -> NDArray[np.uint8] | None:
    """The profile's copy of the config's calibration images; None if none are needed, or the config names none."""
    if toolchain.name == toolchain.runtime or profile.study.config.profiler.calib_data is None:
        return None
    path = profile.folder.path
    images = kept_calibration(path)
    if images is None:
        raise UsageError(
            f"the profile {path} lacks the calibration images that its config names",
            hint="Repeat the command that made the profile: it now keeps a copy of these images.",
        )
    return images


def epochs_of(rows: Iterable[AccuracyRow]) -> int | None:
    """The most frequent number of epochs among a profile's trainings from scratch; None without such trainings.

    Of the trainings with the same method, network and seed, only the longest counts. Networks trained for different
    numbers of epochs are not comparable.
    """
    longest: dict[tuple[str, str, int], int] = {}
    for row in rows:
        failed = row.validation is None or bool(row.reason)
        if row.method != PROOF and row.stage in _FROM_NOTHING and row.epochs and not failed and not row.origin:
            training = row.method, row.network, row.seed
            longest[training] = max(longest.get(training, 0), row.epochs)
    most = Counter(longest.values()).most_common(1)
    return most[0][0] if most else None


def inside(measured: Floats, believed: Sequence[Floats] | Floats, errors: Floats) -> float:
    """The share of measured values that lie within the 95 % interval for a new measurement of their network.

    The interval combines the prediction's interval (middle, low, high) with the standard error of the measured value.
    """
    middle, low, high = believed
    reach = np.where(measured < middle, middle - low, high - middle)
    return float((np.abs(measured - middle) <= np.hypot(reach, 1.96 * errors)).mean())


def with_proofs(evidence: NetworkPrices, proofs: NetworkPrices) -> NetworkPrices:
    """The evidence together with the proofs, which take precedence for the same network."""
    timed = {name: row for name, row in proofs[1].items() if row.call_s is not None}
    return {**evidence[0], **proofs[0]}, {**evidence[1], **timed}


FRONT = "front.json"
MOST_NETWORKS = 1000


def find_front(
    path: Path,
    asked: TrainRequest,
    *,
    networks: int = 50,
    latency_s: float | None = None,
    kept: Path | None = None,
    method: str | None = None,
    toolchain: str | None = None,
    proofs: bool = False,
    measure: bool = True,
    watch: Watch | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> SpaceFrontDocument:
    """Predict the front, train and measure its networks, and write `front.json`; an interrupted call can be repeated.

    The front has at most `networks` networks, whose predicted latency is at most `latency_s` (None: any) and whose
    primitives are all in `kept`, a config that `select_primitives` wrote (None: all primitives). Shares refer to the
    full space. The accuracies of `method` and the latencies of `toolchain` are used (None: the first available), and
    with `proofs` also the earlier measurements of `front`. With `measure`, the networks are trained and measured; see
    `proving`.

    UsageError if the profile lacks accuracies or latencies, ProblemError if no network is predicted to be that fast.
    All errors are GnomonErrors.
    """
    if not 1 <= networks <= MOST_NETWORKS:
        raise UsageError(f"a front cannot have {networks} networks", hint=f"Give --networks from 1 to {MOST_NETWORKS}.")
    study = study_of(path, asked.blocks)
    rows = read_rows(path, study)
    method, toolchain = method_of(rows[0], method), toolchain_of(rows[1], toolchain)
    evidence = evidence_of(study, rows, method, toolchain, proofs=proofs)
    beliefs = beliefs_of(study, evidence)
    full = FrontOptions(networks=networks, most_latency=latency_s)
    options = replace(full, choices=_kept(kept, study)) if kept is not None else full
    with nullcontext() if latency_s is None else problems_of(f"--latency {units.time(latency_s)}"):
        front = exact_front(beliefs, options)
    proved: NetworkPrices = {}, {}
    if measure:
        with proving(path, asked, study, watch=watch, tell=tell) as profile:
            rounds = _in_rounds(profile, (method, toolchain), beliefs, evidence, options, proved)
    else:
        rounds = (predict_front(beliefs, options),)
    measured, best = _held(study, full, (beliefs, evidence, proved), rounds)
    exact = {network.id for network in networks_of(study, front)}
    rows_of_front = [
        FrontNetwork(
            id=network.id,
            primitives=network.primitives,
            on_front=network.id in exact,
            round=number,
            chance=float(some.chance[k]),
            meets=float(some.meets[k]),
            predicted=PredictedPoint(
                accuracy=tuple(some.accuracy[k].tolist()), latency_s=tuple(some.latency[k].tolist())
            ),
            measured=_measured(network.id, proved) if measure else None,
            best=network.id in best,
            size=network_size(study, network, evidence[1].get(network.id)),
        )
        for number, some in enumerate(rounds, 1)
        for k, network in enumerate(networks_of(study, some.networks))
    ]
    document = SpaceFrontDocument(
        profile=str(path),
        method=method,
        toolchain=toolchain,
        latency_bound_s=latency_s,
        measure=measure,
        proofs=proofs,
        kept=kept is not None,
        space=str(beliefs.space.size),
        on_front=len(front),
        rounds=len(rounds),
        share=share_of(beliefs, np.concatenate([some.networks for some in rounds]), full)
        if kept is not None
        else rounds[-1].share,
        latency_model=sums_held_out(study, latency_evidence(study.space, evidence[1])),
        networks=tuple(sorted(rows_of_front, key=lambda network: network.predicted.latency_s[0])),
        measured=measured,
    )
    save_text(indented(document.document()), path / FRONT, option="--profile-dir")
    return document


def _kept(output: Path, study: Study) -> tuple[tuple[int, ...], ...]:
    """The indices of the selected primitives of each cell group. UsageError if there is no selection.

    ProblemError for a selection of a different space.
    """
    selection = read_selection(output)
    if selection is None:
        raise UsageError(f"{output} has no selection next to it", hint="Give a config that gnomon space select wrote.")
    with problems_of(str(output)):
        return tuple(tuple(sorted(own)) for own in study.places(selection.groups))


def _in_rounds(
    profile: OpenProfile,
    whose: tuple[str, str],
    beliefs: Beliefs,
    evidence: NetworkPrices,
    options: FrontOptions,
    proofs: NetworkPrices,
) -> tuple[PredictedFront, ...]:
    """The predicted networks of each round; `whose` has the method and the toolchain.

    Measurements are added to `proofs`. The method "published" has only one round, because its fine-tuned networks are
    not comparable with networks trained from scratch.
    """
    method, toolchain = whose

    def measured(front: PredictedFront) -> Beliefs:
        seen, rows = prove(profile, networks_of(profile.study, front.networks), toolchain)
        proofs[0].update(seen)
        proofs[1].update(rows)
        return beliefs_of(profile.study, with_proofs(evidence, proofs))

    if method != PUBLISHED:
        return in_rounds(beliefs, options, measured)
    front = predict_front(beliefs, options)
    measured(front)
    return (front,)


def beliefs_of(study: Study, prices: NetworkPrices) -> Beliefs:
    """Predictions for all networks of all families. UsageError if no network has a latency."""
    return believe(study.space, accuracy_evidence(study, prices[0]), latency_evidence(study.space, prices[1]))


def networks_of(study: Study, assignments: Ints) -> list[Network]:
    """The networks with these indices in the space of all primitives."""
    return [study.at(row) for row in assignments.tolist()]


def _measured(name: str, proofs: NetworkPrices) -> MeasuredPoint:
    """A network's measured accuracy and latency with 95 % intervals (None: missing), and why a latency is missing."""
    seen, row = proofs[0].get(name), proofs[1].get(name)
    accuracy: Three | None = None
    latency_s: Three | None = None
    if seen is not None:
        half = NORMAL_95 * seen.error
        accuracy = seen.accuracy, max(0.0, seen.accuracy - half), min(1.0, seen.accuracy + half)
    if row is not None and row.call_s is not None:
        low, high = (row.call_s if end is None else end for end in (row.low_s, row.high_s))
        latency_s = row.call_s, low, high
    return MeasuredPoint(accuracy=accuracy, latency_s=latency_s, reason="" if row is None else row.reason)


def _held(
    study: Study,
    options: FrontOptions,
    sources: tuple[Beliefs, NetworkPrices, NetworkPrices],
    rounds: Sequence[PredictedFront],
) -> tuple[HeldFront | None, set[str]]:
    """Predictions compared with measurements, and the ids of the best networks; None and no ids if no network has both
    an accuracy and a latency.
    """
    beliefs, evidence, proofs = sources
    assignments = np.concatenate([some.networks for some in rounds])
    every = [network.id for network in networks_of(study, assignments)]
    timed = {name for name, row in proofs[1].items() if row.call_s is not None}
    both = [k for k, name in enumerate(every) if name in proofs[0] and name in timed]
    if not both:
        return None, set()
    names = [every[k] for k in both]
    seen, rows = [proofs[0][name] for name in names], [proofs[1][name] for name in names]
    right, call = np.array([row.accuracy for row in seen]), np.array([row.call_s for row in rows], np.float64)
    points = np.column_stack([call / beliefs.unit, 1 - right])
    most = np.inf if options.most_latency is None else options.most_latency / beliefs.unit
    fits = np.flatnonzero(points[:, 0] <= most)
    best = {names[place] for place in fits[nondominated(points[fits])].tolist()} if len(fits) else set[str]()
    accuracy = np.concatenate([some.accuracy for some in rounds])[both].T
    latency = np.concatenate([some.latency for some in rounds])[both].T
    predicted = np.column_stack([latency[0] / beliefs.unit, 1 - accuracy[0]])
    after = beliefs_of(study, with_proofs(evidence, proofs))
    off = np.abs(latency[0] / call - 1)
    return (
        HeldFront(
            networks=len(both),
            best=len(best),
            hypervolume=FrontVolumes(
                predicted=hypervolume(predicted, beliefs.reference), measured=hypervolume(points, beliefs.reference)
            ),
            share=share_of(after, assignments[both], options),
            accuracy=HeldAccuracies(
                mean_error=float(np.abs(accuracy[0] - right).mean()),
                inside=inside(right, accuracy, np.array([row.error for row in seen])),
                tau=tau(accuracy[0], right),
            ),
            latency=HeldLatencies(
                mean_error=float(off.mean()),
                worst_error=float(off.max()),
                inside=inside(call, latency, np.array([standard_error(row) for row in rows])),
                tau=tau(latency[0], call),
            ),
        ),
        best,
    )
