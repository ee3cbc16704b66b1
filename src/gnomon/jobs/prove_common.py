"""The proof of a plan for all: on each device, measured interleaved with that device's own choice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from gnomon.core.stats import summarise
from gnomon.devices.guard import guarded_folder
from gnomon.errors import MeasurementError
from gnomon.jobs.across import AcrossPlacer
from gnomon.jobs.common import Common, Option, Share, chosen_of, settle
from gnomon.jobs.contender import Contender, blocks, choose_clock, versus
from gnomon.jobs.fleet import Fleet, TellOf, WatchOf
from gnomon.jobs.inside import InsidePlacer
from gnomon.jobs.lab import Lab, open_lab
from gnomon.jobs.lanes import run_lanes
from gnomon.jobs.patience import patiently
from gnomon.jobs.place import Placement
from gnomon.jobs.request import Request
from gnomon.jobs.targets import describe
from gnomon.jobs.trust import reference
from gnomon.measure.campaign import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonProof:
    """What the plan for all was measured to be: its share on each device, or why it could not be measured there."""

    label: str
    shares: Mapping[str, Share]
    failed: Mapping[str, str]


def prove_common(
    requests: Mapping[str, Request],
    fleet: Fleet,
    option: Option,
    *,
    watch: WatchOf | None = None,
    tell: TellOf | None = None,
) -> CommonProof:
    """Measure an option on every device that has a placement, beside that device's choice, all at the same time.

    Where the choice is a chain of segments, which would have to be cut again, the best single contender stands in
    for it, and how the two compared when the choice was proven. A device that fails is told of in `failed`.
    """
    placements = fleet.placements

    def lane(name: str) -> Share:
        def once(request: Request) -> Share:
            with ExitStack() as stack:
                question = {"plan": _digest(option)}
                say = (lambda sentence: tell(name, sentence)) if tell else None
                watching = watch(name) if watch else None
                lab = stack.enter_context(open_lab(request, kind="proof", question=question, watch=watching, tell=say))
                folder = stack.enter_context(guarded_folder("gnomon-segments-"))
                return _prove(lab, folder, placements[name], option)

        return patiently(once, requests[name], (lambda sentence: tell(name, sentence)) if tell else None)

    ended = run_lanes({name: requests[name].device for name in placements}, lane)
    return CommonProof(
        label=option.label,
        shares={name: e.found for name, e in ended.items() if e.found is not None},
        failed={name: e.error.message for name, e in ended.items() if e.error is not None},
    )


def settled(common: Common, option: Option, proof: CommonProof) -> Common:
    """The options with what the proof measured in place of what was known of that option; the choice is made anew.

    An option that failed on a device is none any more.
    """
    kept = [o for o in common.options if o is not option]
    notes = list(common.notes)
    if proof.failed:
        notes += [f"{option.label} cannot be had on {name}: {why}" for name, why in proof.failed.items()]
    else:
        kept.append(replace(option, shares={**option.shares, **proof.shares}))
    return settle(kept, notes)


def _digest(option: Option) -> str:
    """What a proof of the same option has in common with another, and no other proof."""
    told = json.dumps([option.configurations, sorted(option.backends.items())])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _prove(lab: Lab, folder: Path, placement: Placement, option: Option) -> Share:
    reference(lab)
    common = _rebuilt(lab, folder, option.label, option.configurations, option.backends)
    verdict = placement.verdict
    chained = len(verdict.chosen.contender.parts) > 1
    stand_in = verdict.best_single if chained else verdict.chosen
    named = tuple(part.configuration.name for part in stand_in.contender.parts)
    own = _rebuilt(lab, folder, stand_in.contender.label, named, stand_in.contender.backends)
    lab.runner.note("labels", {f"proof/{c.key}": c.label for c in (common, own)})
    candidates = {c.key: replace(c.candidate, key=f"proof/{c.key}") for c in (common, own)}
    found = lab.runner.measure("prove the plan for all", list(candidates.values()), lab.request.effort)
    ours, theirs = found[candidates[common.key].key], found[candidates[own.key].key]
    for contender, measured in ((common, ours), (own, theirs)):
        if not measured.ok:
            raise MeasurementError(
                f"{contender.label} failed: {describe(measured.failure)}", hint="Measure again with --fresh."
            )
    share = _share(lab, placement, ours, theirs, chained=chained)
    lab.runner.finish({"plan": option.label, "regret": share.regret})
    return share


def _rebuilt(
    lab: Lab, folder: Path, label: str, configurations: tuple[str, ...], backends: Mapping[int, str]
) -> Contender:
    """The contender of an assignment inside one configuration, or of the whole model in it, in this lab."""
    target = next((t for t in lab.targets if (t.configuration.name,) == configurations), None)
    if target is None:
        raise MeasurementError(
            f"{' and '.join(configurations)} cannot run the model here as one", hint="Compare another option."
        )
    if len(target.configuration.backends) == 1:
        whole = tuple(t for t in lab.targets if len(t.configuration.backends) == 1)
        return replace(AcrossPlacer(lab, whole, folder).whole(target), label=label)
    placer = InsidePlacer(lab, target)
    count = len(target.placed.graph.operators)
    absent = sorted({backends.get(i, "nothing") for i in range(count)} - set(placer.backends))
    if absent:
        raise MeasurementError(f"there is no backend {absent[0]} on this device", hint="Compare another option.")
    assignment = tuple(placer.backends.index(backends[i]) for i in range(count))
    return placer.contender("plan", label, assignment, None)


def _share(lab: Lab, placement: Placement, ours: Measured, theirs: Measured, *, chained: bool) -> Share:
    clock = choose_clock(lab, (ours, theirs)) if placement.clock == "cpu" else placement.clock
    compared = versus(ours, theirs, clock)
    ratio, low, high = compared.ratio, compared.low, compared.high
    chosen = chosen_of(placement)
    if chained and chosen.against_best is not None:  # the choice took so much of the stand-in's time
        against = chosen.against_best
        ratio, low, high = ratio / against.ratio, low / against.high, high / against.low if against.low > 0 else high
    summary = summarise(blocks(ours, clock))
    known = low > 0 and high < float("inf")
    bounded = summary.low_s > 0 and summary.high_s < float("inf")
    return Share(
        time_s=summary.median_s,
        low_s=summary.low_s if bounded else None,
        high_s=summary.high_s if bounded else None,
        regret=ratio - 1.0,
        regret_low=low - 1.0 if known else None,
        regret_high=high - 1.0 if known else None,
        measured=True,
    )


def prove_best(
    requests: Mapping[str, Request], fleet: Fleet, *, watch: WatchOf | None = None, tell: TellOf | None = None
) -> tuple[Fleet, tuple[CommonProof, ...]]:
    """Measure the option of least total time where it is only predicted, and choose anew.

    Each option is measured once, and at most two are: what then is best may still rest on predictions, and says so.
    """
    proofs: list[CommonProof] = []
    for _ in range(2):
        option = fleet.common.total
        if (
            option is None
            or not option.predicted_on
            or any(request.time and request.time.left_s <= 0 for request in requests.values())
        ):
            break
        proof = prove_common(requests, fleet, option, watch=watch, tell=tell)
        proofs.append(proof)
        fleet = replace(fleet, common=settled(fleet.common, option, proof))
    return fleet, tuple(proofs)
