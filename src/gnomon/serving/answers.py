"""Replies: the published text, the JSON document, and errors in either."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.formats.dpu_profile import DpuLine, write_dpu_profile
from gnomon.report.plain import clean, finite
from gnomon.serving.order import Found

_INSIDE = frozenset({"reference_s", "workload_mop"})
"""What the measuring program tells the server alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply: its status, its body, and further headers. `told` is what the server says of it itself."""

    status: int
    body: str
    json: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    told: str = ""


def measured_answer(found: Found, kernel_name: str, *, as_json: bool) -> Answer:
    """The latency of a model: the profile's text as published, or all that is known of it."""
    told = f"{found['latency_s'] * 1e3:.4g} ms"
    if as_json:
        document = {"kernel_name": kernel_name, **{k: v for k, v in found.items() if k not in _INSIDE}}
        return Answer(status=200, body=_text(document), json=True, told=told)
    # The kernel's name is not in it: a name can hold what reads as a line of the profile.
    total = DpuLine(name="All", latency_ms=found["latency_s"] * 1e3, workload_mop=found["workload_mop"])
    return Answer(status=200, body=write_dpu_profile(total), told=told)


def error_answer(
    status: int, message: str, hint: str = "", *, as_json: bool, headers: Mapping[str, str] | None = None
) -> Answer:
    """What is wrong, and the next step: two lines as the command line prints them, or the same document."""
    message, hint = clean(message), clean(hint)
    if as_json:
        body = _text({"error": {"status": status, "message": message, "hint": hint}})
    else:
        body = f"error: {message}\n" + (f"hint: {hint}\n" if hint else "")
    return Answer(status=status, body=body, json=as_json, headers=headers or {}, told=message)


def document_answer(document: Mapping[str, Any]) -> Answer:
    """A document as it is."""
    return Answer(status=200, body=_text(document), json=True)


def wants_json(accept: str) -> bool:
    """Whether an Accept header names application/json, and no text before it: the published client names neither."""
    weights: dict[str, float] = {}
    for one in accept[:1000].split(","):
        kind, _, rest = one.partition(";")
        weight = 1.0
        for parameter in rest.split(";"):
            name, _, value = parameter.strip().partition("=")
            if name == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 0.0
        weights[kind.strip().lower()] = weight
    wanted = weights.get("application/json", 0.0)
    return wanted > 0 and wanted >= weights.get("text/plain", 0.0)


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(finite(document), indent=1, ensure_ascii=True, allow_nan=False) + "\n"
