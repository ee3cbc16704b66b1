"""The JSON document of `gnomon place` on several devices, from which its report is made too; docs/fleet.md."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from gnomon.cli.place_document import place_document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gnomon.jobs.common import Common, Option
    from gnomon.jobs.fleet import DeviceResult, Fleet
    from gnomon.jobs.prove_common import CommonProof


def fleet_document(found: Fleet, record: Path, proofs: Sequence[CommonProof] = ()) -> dict[str, Any]:
    """All that `place_on` found, in JSON values: each device's own document, and the plan that is best for all."""
    return {
        "format": "gnomon-fleet",
        "version": 1,
        "model": str(found.model),
        "devices": [_device(result, record) for result in found.results],
        "common": _common(found.common),
        "proofs": [_proof(proof) for proof in proofs],
        "record": str(record),
        "seconds": found.seconds,
    }


def _device(result: DeviceResult, record: Path) -> dict[str, Any]:
    error = result.error
    return {
        "name": result.name,
        "placement": None if result.placement is None else place_document(result.placement, record),
        "error": None
        if error is None
        else {"kind": type(error).__name__, "message": error.message, "hint": error.hint, "exit_code": error.exit_code},
    }


def _common(found: Common) -> dict[str, Any]:
    """The options, and the place in their list of that of least total time."""
    return {
        "options": [_option(option) for option in found.options],
        "least_total": None if found.total is None else found.options.index(found.total),
        "notes": list(found.notes),
    }


def _option(option: Option) -> dict[str, Any]:
    certificate = option.certificate
    return {
        "label": option.label,
        "configurations": list(option.configurations),
        "assignment": [option.backends[index] for index in sorted(option.backends)],
        "total": option.total,
        "worst": option.worst,
        "devices": {name: dataclasses.asdict(share) for name, share in option.shares.items()},
        "predicted_on": list(option.predicted_on),
        "certificate": None
        if certificate is None
        else {
            "method": certificate.method,
            "optimal": certificate.optimal,
            "total": certificate.total,
            "worst": certificate.worst,
            "bound": certificate.bound,
        },
    }


def _proof(proof: CommonProof) -> dict[str, Any]:
    return {
        "label": proof.label,
        "devices": {name: dataclasses.asdict(share) for name, share in proof.shares.items()},
        "failed": dict(proof.failed),
    }
