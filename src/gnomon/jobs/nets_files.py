"""Files of nets, and what measuring them told, as documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnomon.core.space import Space
from gnomon.formats.nets_csv import NetRow, write_nets
from gnomon.jobs.nets_measure import NetsMeasured
from gnomon.jobs.saving import save_text


def save_nets(rows: Sequence[NetRow], space: Space, path: Path, *, measured: bool) -> None:
    """Write nets as csv, whole or not at all. UsageError where that cannot be."""
    save_text(write_nets(rows, space, measured=measured), path)


def measured_document(found: NetsMeasured) -> dict[str, Any]:
    """What measuring nets told, as JSON values."""
    return {
        "clock": found.clock,
        "nets": [{"latency_s": r.latency_s, "low_s": r.low_s, "high_s": r.high_s} for r in found.rows],
        "failures": [{"net": index, "reason": reason} for index, reason in found.failures],
        "unlike": list(found.unlike),
        "doubts": [{"kind": d.kind, "message": d.message, "hint": d.hint} for d in found.doubts],
        "seconds": found.seconds,
    }
