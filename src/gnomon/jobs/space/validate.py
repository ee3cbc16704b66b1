"""The job `space validate`: mixed networks that a selection implies, built, trained and measured.

What is held against what: the accuracy and the latency that were predicted, against those measured; and networks of the
reduced space against networks of the full one, at equal latency.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.core.brief import brief
from gnomon.core.cost import Floats
from gnomon.core.strict_json import Strict
from gnomon.devices.http import DpuServer
from gnomon.errors import ProblemError, UsageError
from gnomon.jobs.space.estimates import Seen, latest, predictors, seen_networks
from gnomon.jobs.space.folder import LatencyRow, ProfileFolder, read_question, settings_in
from gnomon.jobs.space.images import carried, reopened_images
from gnomon.jobs.space.job import trained_weights, workers_of
from gnomon.jobs.space.look import study_of
from gnomon.jobs.space.measuring import Measurer
from gnomon.jobs.space.methods import recipes
from gnomon.jobs.space.select import SELECTION, accuracy_evidence, latency_evidence, mixed_space
from gnomon.jobs.space.study import Network, Study
from gnomon.jobs.space.training import Method, Trainer, Training
from gnomon.measure.progress import Watch
from gnomon.session.request import Request
from gnomon.spaces.cells.costs import kendall_tau
from gnomon.spaces.cells.effects import balanced_design, fit_effects
from gnomon.spaces.cells.evidence import DrawnNetworks, compare_spaces
from gnomon.system.files import save_text
from gnomon.toolchains.base import chosen_toolchain
from gnomon.training.loop import check_device

VALIDATION = "validation.json"
METHOD = "validation"
_STRICT = Strict(what="selection", hint="Select again: gnomon space select", most_letters=1 << 24)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateRequest:
    """What is validated: so many mixed `networks` of the reduced space, and as many of the full one.

    They are trained for `epochs` (None: as the config says) from `seeds` seeds each, by `workers` processes or on a
    Dask `cluster`, on a `training_device`; `download` is where torchvision may fetch images to.
    `blocks` are the files of own primitives of the profile, `data` its source of images where that is a function.
    """

    profile: Path
    request: Request
    networks: int = 12
    epochs: int | None = None
    seeds: int = 1
    workers: int = 0
    cluster: str | None = None
    training_device: str = "cpu"
    download: Path | None = None
    data: str | None = None
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """What was found, as JSON values."""

    found: Mapping[str, Any]

    __repr__ = brief

    def document(self) -> dict[str, Any]:
        """As JSON values for reports."""
        return dict(self.found)


def validate_selection(
    asked: ValidateRequest,
    *,
    server: DpuServer | None = None,
    watch: Watch | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Validated:
    """Build, train and measure, and write `validation.json`; the same call goes on where it was interrupted.

    UsageError where nothing was selected yet. Raises GnomonError.
    """
    selection = read_selection(asked.profile)
    study = study_of(asked.profile, asked.blocks)
    question = read_question(asked.profile)
    if not question["data"]["digest"]:
        raise UsageError(
            f"{asked.profile} was made of tables alone: nothing is known of the images",
            hint="Make a profile of the config with --accuracy none --no-latency, and import the tables into that.",
        )
    own = study.config.gnomon
    if asked.cluster is None:
        check_device(asked.training_device)
    data = reopened_images(own, question["data"], asked.data, classes=study.config.classes, download=asked.download)
    folder = ProfileFolder(asked.profile, question, study.text)
    try:
        study.check([*folder.accuracy.values(), *folder.latency.values()])
        # What an earlier validation drew is drawn again: another draw each time would be one until it suits.
        ours = {row.network for row in folder.accuracy.values() if row.method == METHOD}
        every = latest(folder.latency.values(), selection["toolchain"])
        before = {name: row for name, row in every.items() if name not in ours}
        known = seen_networks(study, folder.accuracy.values(), selection["method"])
        reduced, full = _drawn(study, selection, asked, {*before, *known})
        with carried(data, folder.path / "checkpoints" / "partial", far=asked.cluster is not None) as images:
            trainer = Trainer(
                folder=folder,
                study=study,
                data=images,
                workers=workers_of(asked.workers, asked.training_device),
                cluster=asked.cluster,
                device=asked.training_device,
                watch=watch,
                tell=tell,
            )
            trainer.run(_trainings(study, [*reduced, *full], asked), (len(reduced) + len(full)) * asked.seeds)
        measurer = Measurer(
            folder=folder,
            study=study,
            request=asked.request,
            weights=trained_weights(folder),
            data=data,
            server=server,
            watch=watch,
            tell=tell,
        )
        settings = settings_in(next((row.context for row in before.values() if row.call_s is not None), {}))
        rows = measurer.run(chosen_toolchain(selection["toolchain"], settings), settings, [*reduced, *full])
        seen = seen_networks(study, folder.accuracy.values(), METHOD)
    finally:
        folder.close()
    return _found(asked, study, selection, (known, before), (reduced, full, seen, rows))


def _found(
    asked: ValidateRequest,
    study: Study,
    selection: Mapping[str, Any],
    known: tuple[Mapping[str, Seen], Mapping[str, LatencyRow]],
    drawn: tuple[list[Network], list[Network], Mapping[str, Seen], Mapping[str, LatencyRow]],
) -> Validated:
    """What was predicted against what was measured, of both spaces; and write it down."""
    reduced, full, seen, rows = drawn
    found = {
        "profile": str(asked.profile),
        "toolchain": selection["toolchain"],
        "networks": len(reduced) + len(full),
        **_predictions(study, known, (seen, rows)),
        "spaces": _spaces([n.id for n in full], [n.id for n in reduced], seen, rows),
    }
    save_text(json.dumps(found, indent=1, allow_nan=False) + "\n", asked.profile / VALIDATION, option="--profile-dir")
    return Validated(found=found)


def read_selection(profile: Path) -> dict[str, Any]:
    """What was selected last. UsageError where nothing was, ProblemError for a damaged file."""
    path = profile / SELECTION
    try:
        document = dict(_STRICT.object(_STRICT.parse(path.read_bytes()), "$"))
    except OSError as error:
        read_question(profile)  # where there is no profile at all, that is what is told
        raise UsageError(f"nothing was selected in {profile} yet", hint="Run gnomon space select first.") from error
    groups = document.get("groups")
    texts = all(isinstance(document.get(name), str) for name in ("toolchain", "method"))
    if not texts or not isinstance(groups, list) or not all(isinstance(names, list) and names for names in groups):
        _STRICT.fail("$", "it is not a selection")
    return document


def _drawn(
    study: Study, selection: Mapping[str, Any], asked: ValidateRequest, known: set[str]
) -> tuple[list[Network], list[Network]]:
    """New networks of the reduced space and of the full one that the selection was made from."""
    groups = [[str(name) for name in names] for names in selection["groups"]]
    family = selection.get("family")
    every = [one.name for name, one in _primitives(study) if family in (None, name)]
    reduced = _some(study, groups, asked, known)
    return reduced, _some(study, [every] * len(groups), asked, known | {n.id for n in reduced})


def _primitives(study: Study) -> list[tuple[str, Any]]:
    return [(name, one) for name, family in study.families.items() for one in family.primitives]


def _some(study: Study, groups: Sequence[Sequence[str]], asked: ValidateRequest, known: set[str]) -> list[Network]:
    """Networks of these primitives that are not known yet, each primitive about equally often."""
    counts = [len(names) for names in groups]
    found: dict[str, Network] = {}
    for number in range(20):
        for row in balanced_design(counts, asked.networks, seed=asked.request.seed + number):
            network = study.mixed([names[int(k)] for names, k in zip(groups, row, strict=True)])
            if network.id not in known and len(found) < asked.networks:
                found.setdefault(network.id, network)
        if len(found) >= min(asked.networks, math.prod(counts)):
            break
    return list(found.values())


def _trainings(study: Study, networks: Sequence[Network], asked: ValidateRequest) -> Method:
    first, _ = recipes(study, epochs=asked.epochs)
    yield [
        Training(method=METHOD, stage="whole", network=network, recipe=first, seed=study.config.gnomon.seed + 1000 + k)
        for network in networks
        for k in range(asked.seeds)
    ]


def _predictions(
    study: Study,
    known: tuple[Mapping[str, Seen], Mapping[str, LatencyRow]],
    measured: tuple[Mapping[str, Seen], Mapping[str, LatencyRow]],
) -> dict[str, Any]:
    """What was predicted from what was known before, against what was measured now."""
    space = mixed_space(study)
    accuracy = fit_effects(space, accuracy_evidence(study, known[0]), scale="logit")
    found: dict[str, Any] = {"accuracy": None, "latency": None}
    if measured[0]:
        evidence = accuracy_evidence(study, measured[0])
        believed, low, high = accuracy.predict(evidence.assignments)
        found["accuracy"] = {
            "networks": len(believed),
            "mean_error": float(np.abs(believed - evidence.values).mean()),
            "inside": _inside(evidence.values, (low, believed, high), evidence.errors),
            "tau": kendall_tau(believed, evidence.values) if len(believed) > 1 else None,
        }
    pairs = _latencies(study, known[1], measured[1])
    if len(pairs):
        off = np.abs(pairs[:, 0] / pairs[:, 1] - 1)
        found["latency"] = {
            "networks": len(pairs),
            "mean_error": float(off.mean()),
            "worst_error": float(off.max()),
            "tau": kendall_tau(pairs[:, 0], pairs[:, 1]) if len(pairs) > 1 else None,
        }
    return found


def _inside(measured: Floats, believed: tuple[Floats, Floats, Floats], errors: Floats) -> float:
    """The share of measured values within the 95 % interval of what one training of such a network shows.

    It is as wide as what is believed (low, middle, high) and the standard error of the measured value itself together.
    """
    low, middle, high = believed
    reach = np.where(measured < middle, middle - low, high - middle)
    return float((np.abs(measured - middle) <= np.hypot(reach, 1.96 * errors)).mean())


def _latencies(
    study: Study, known: Mapping[str, LatencyRow], measured: Mapping[str, LatencyRow]
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Predicted and measured latency of each network: by the family's predictor, or by the effects of all families."""
    by_family = predictors(study, known)
    rows = [row for row in measured.values() if row.call_s is not None]
    effects = fit_effects(mixed_space(study), latency_evidence(study, known), scale="plain")
    found = []
    for row in rows:
        network = study.mixed(row.primitives)
        if network.family in by_family:
            told = float(by_family[network.family].predict([network.assignment]).mean_s[0])
        else:
            told = float(effects.predict(latency_evidence(study, {row.network: row}).assignments)[0][0])
        if math.isfinite(told):
            found.append((told, float(row.call_s or 0.0)))
    return np.array(found, np.float64).reshape(-1, 2)


def _spaces(
    full: Sequence[str], reduced: Sequence[str], seen: Mapping[str, Seen], rows: Mapping[str, LatencyRow]
) -> dict[str, Any] | None:
    """Networks of the reduced space against those of the full one; None where there are too few to compare."""
    try:
        sides = [_side(names, seen, rows) for names in (full, reduced)]
        told = compare_spaces(sides[0], sides[1], bins=4)
    except ProblemError:
        return None
    return {
        "statistic": told.statistic,
        "p_value": told.p_value,
        "p_ahead": told.p_ahead,
        "median_full": [told.full_median.value, told.full_median.low, told.full_median.high],
        "median_reduced": [told.reduced_median.value, told.reduced_median.low, told.reduced_median.high],
        "thresholds": told.thresholds.tolist(),
        "full": told.full.tolist(),
        "reduced": told.reduced.tolist(),
    }


def _side(names: Sequence[str], seen: Mapping[str, Seen], rows: Mapping[str, LatencyRow]) -> DrawnNetworks:
    both = [name for name in names if name in seen and name in rows and rows[name].call_s is not None]
    return DrawnNetworks(
        errors=np.array([1 - seen[name].accuracy for name in both]),
        latencies=np.array([rows[name].call_s for name in both], np.float64),
    )
