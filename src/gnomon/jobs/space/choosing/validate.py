"""The job `space validate`: mixed networks that a selection implies, built, trained and measured.

Predicted accuracies and latencies are compared with measured ones; the predicted fronts of the reduced and of the full
space are measured and compared with each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.core.cost import Ints
from gnomon.core.front.dominance import hypervolume
from gnomon.core.strict_json import Strict, indented
from gnomon.devices.http import DpuServer
from gnomon.errors import UsageError
from gnomon.jobs.space.choosing.front import beliefs_of, has_both, measured_points, networks_of
from gnomon.jobs.space.choosing.proving import ProofRequest, inside, proving, with_proofs
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
from gnomon.jobs.space.profiling.look import SELECTION
from gnomon.jobs.space.profiling.study import Network, Study
from gnomon.measure.progress import Watch
from gnomon.report.answer import Answer
from gnomon.spaces.cells.costs import kendall_tau
from gnomon.spaces.cells.effects import balanced_design, fit_effects
from gnomon.spaces.selection.front import FrontOptions, predict_front, ratio_of
from gnomon.system.files import save_text

VALIDATION = "validation.json"
_STRICT = Strict(what="selection", hint="Select again: gnomon space select", most_letters=1 << 24)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateRequest(ProofRequest):
    """What is validated: so many mixed `networks` of the reduced space, and as many of the full one.

    And the predicted front of both spaces, at most so many `front` networks of each (0: none).
    """

    networks: int = 12
    front: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated(Answer):
    """What was found, as JSON values."""

    found: Mapping[str, Any]

    __repr__ = Answer.__repr__

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
    toolchain = selection["toolchain"]
    with proving(asked, server=server, watch=watch, tell=tell) as prover:
        study, folder = prover.study, prover.folder
        # What an earlier validation drew is no evidence, hence drawn again: another draw each time would be one until
        # it suits. But what the choice was made from cannot prove it.
        used = {str(name) for name in selection.get("proofs") or ()}
        rows = (
            [row for row in folder.accuracy.values() if row.method != PROOF or row.network in used],
            [row for row in folder.latency.values() if not row.proof or row.network in used],
        )
        known = evidence_of(study, rows, selection["method"], toolchain, proofs=bool(used))
        reduced, full = _drawn(study, selection, asked, {*known[0], *known[1]})
        fronts = _fronts(study, selection, asked, known)
        every = [network for one in fronts for network in networks_of(study, one)]
        proofs = prover.prove([*reduced, *full, *every], toolchain)
    drawn = [network.id for network in (*reduced, *full)]
    seen = {name: proofs[0][name] for name in drawn if name in proofs[0]}
    timed = {name: proofs[1][name] for name in drawn if name in proofs[1]}
    found = {
        "format": "gnomon-space-validate",
        "version": 2,
        "profile": str(asked.profile),
        "toolchain": toolchain,
        "networks": len(drawn),
        **_predictions(study, known, (seen, timed)),
        "fronts": _compared_fronts(study, asked, (known, proofs), fronts),
    }
    save_text(indented(found), asked.profile / VALIDATION, option="--profile-dir")
    return Validated(found=found)


def _fronts(study: Study, selection: Mapping[str, Any], asked: ValidateRequest, known: Known) -> list[Ints]:
    """The networks of the predicted front of the reduced space and of the full one; none where none are asked for."""
    if not asked.front:
        return []
    beliefs = beliefs_of(study, known)
    names = list(study.primitives)
    return [
        predict_front(
            beliefs,
            FrontOptions(
                networks=asked.front,
                choices=tuple(tuple(sorted(names.index(name) for name in group)) for group in groups),
                seed=asked.request.seed,
            ),
        ).networks
        for groups in _both_spaces(study, selection)
    ]


def _compared_fronts(
    study: Study, asked: ValidateRequest, known: tuple[Known, Known], fronts: Sequence[Ints]
) -> dict[str, Any] | None:
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
    volumes = [
        hypervolume(measured_points([n.id for n in networks_of(study, one)], proofs, before), before.reference)
        for one in both
    ]
    options = FrontOptions(seed=asked.request.seed)
    return {
        "networks": [len(one) for one in both],
        "in_both": len({tuple(row) for row in both[0].tolist()} & {tuple(row) for row in both[1].tolist()}),
        "hypervolume": {"reduced": volumes[0], "full": volumes[1]},
        "measured_ratio": volumes[0] / volumes[1] if volumes[1] > 0 else None,
        "ratio": list(ratio_of(after, both[0], both[1], options)),
    }


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
    if not isinstance(document.get("proofs", []), list):
        _STRICT.fail("$.proofs", "a list of networks expected")
    if not texts or not isinstance(groups, list) or not all(isinstance(names, list) and names for names in groups):
        _STRICT.fail("$", "it is not a selection")
    return document


def _drawn(
    study: Study, selection: Mapping[str, Any], asked: ValidateRequest, known: set[str]
) -> tuple[list[Network], list[Network]]:
    """New networks of the reduced space and of the full one that the selection was made from."""
    reduced_groups, full_groups = _both_spaces(study, selection)
    reduced = _some(study, reduced_groups, asked, known)
    return reduced, _some(study, full_groups, asked, known | {n.id for n in reduced})


def _both_spaces(study: Study, selection: Mapping[str, Any]) -> tuple[list[list[str]], list[list[str]]]:
    """The primitives of each cell group in the reduced space, and in the full one that it was selected from."""
    groups = [[str(name) for name in names] for names in selection["groups"]]
    family = selection.get("family")
    every = [name for name, one in study.primitives.items() if family in (None, one.family)]
    return groups, [every] * len(groups)


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
            "inside": inside(evidence.values, (low, believed, high), evidence.errors),
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
