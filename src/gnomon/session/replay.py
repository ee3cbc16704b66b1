"""A session's findings about a device, stored with its campaign so that decisions can be repeated without the
device.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gnomon.core.codec import to_json
from gnomon.core.sample import Campaign, Failure
from gnomon.devices.base import DeviceInfo
from gnomon.devices.config import DeviceConfig
from gnomon.errors import MeasurementError
from gnomon.models.model import Model
from gnomon.runtimes.base import PlacedModel, Probe, RunSettings, Support
from gnomon.runtimes.tunings import configurations
from gnomon.session.request import MeasureRequest, ModelRequest
from gnomon.session.targets import Missing, Target
from gnomon.store.base import CampaignQuery, EventQuery, Store

NOTE = "lab"
"""The name of the event that holds the findings."""

_CHOSEN_AGAIN = frozenset({"backends", "precisions"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """A campaign with its session's findings: the device, its runtimes, and the operators that their backends take."""

    campaign: Campaign
    device: DeviceInfo
    probes: Mapping[str, Probe]
    supports: Mapping[str, Support]
    converted: Mapping[str, str]

    def support(self, key: str) -> Support:
        """The support of a runtime's backends. MeasurementError if the campaign has none."""
        if key not in self.supports:
            raise MeasurementError(
                f"the results database does not say which operators {key} runs: another version of gnomon measured it",
                hint="Leave out --no-profile to measure it again.",
            )
        return self.supports[key]


def noted(
    request: MeasureRequest, device: DeviceInfo, probes: Mapping[str, Probe], supports: Mapping[str, Support]
) -> dict[str, object]:
    """The data of the event `NOTE`, as JSON values."""
    return {
        "device": device.name,
        "address": str(request.device.address),
        "settings": settings_of(request.device),
        "python": device.python,
        "probes": {name: to_json(probe) for name, probe in probes.items()},
        "supports": {
            name: {
                "operators": {backend: sorted(indices) for backend, indices in s.operators.items()},
                "folded": sorted(s.folded.items()),
                "failures": {backend: [f.stage, f.kind, f.transient, f.message] for backend, f in s.failures.items()},
                "options": dict(s.options),
                "copy": s.copy,
            }
            for name, s in supports.items()
        },
    }


def settings_of(config: DeviceConfig) -> dict[str, object]:
    """The settings of a device that change the times measured on it, as JSON values; empty by default.

    The environment is stored as a digest, because its variables may be secrets.
    """
    variables = json.dumps(dict(config.environment), sort_keys=True).encode() if config.environment else b""
    digest = hashlib.sha256(variables).hexdigest() if variables else None
    requested: dict[str, object] = {"pin": list(config.pin), "governor": config.governor, "environment": digest}
    return {name: value for name, value in requested.items() if value}


def digests(models: Mapping[str, tuple[Model, PlacedModel]], own: Model) -> dict[str, str]:
    """The SHA-256 of the converted model for each runtime, except for runtimes that load the file itself."""
    by_runtime: dict[str, str] = {}
    for runtime, (model, _) in models.items():
        if model is not own:
            digest = hashlib.sha256()
            for path in sorted(p for p in model.path.parent.iterdir() if p.is_file()):
                digest.update(path.read_bytes())
            by_runtime[runtime] = digest.hexdigest()
    return by_runtime


def check_converted(recalled: Recalled, now: Mapping[str, str]) -> None:
    """MeasurementError if converting the model gives a different result now than when it was measured."""
    for runtime, digest in now.items():
        if recalled.converted.get(runtime, digest) != digest:
            raise MeasurementError(
                f"the model converted for {runtime} is not the same as when it was measured",
                hint="Leave out --no-profile to measure the newly converted model.",
            )


def latest(
    store: Store, request: ModelRequest, kind: str, digest: str, options: Mapping[str, Any], runtimes: Collection[str]
) -> Recalled:
    """The campaign from which to repeat a decision: one for this kind of job, model, device (with its current settings)
    and options.

    Campaigns without any of the requested runtimes come last. Finished campaigns come before interrupted ones, which
    may contain almost nothing. Among the rest, the newest of those that measured the most requested runtimes is chosen.
    If the request was interrupted, the campaign that was under way is chosen. The request may choose fewer backends and
    precisions than were measured, but not more. MeasurementError if the record holds no such campaign.
    """
    others: set[str] = set()
    fitting: list[tuple[tuple[bool, bool, int], Campaign, Mapping[str, Any]]] = []
    for finished in (True, False):
        for campaign in store.query(CampaignQuery(kind=kind, model_digest=digest, finished=finished)):
            notes = list(store.query(EventQuery(campaign=campaign.id, name=NOTE)))
            if not notes:
                continue
            data = notes[-1].data
            has = len(data["probes"].keys() & set(runtimes))
            other = _other(request, data)
            if not other and not _answers(campaign.context.options, options):
                other = f"{data['device']} with other options"
            if other:
                others.add(other)
            else:
                rank = (not finished, True, 0) if request.interrupted else (has > 0, finished, has)
                fitting.append((rank, campaign, data))
    if fitting:
        _, campaign, data = max(fitting, key=lambda row: row[0])
        return _recalled(campaign, data)
    where = f"; it was measured on {', '.join(sorted(others))}" if others else ""
    raise MeasurementError(
        f"the results database holds no measurement of this model on {request.device.name} with these options{where}",
        hint="Leave out --no-profile to measure it; `gnomon runs` shows what the results database holds.",
    )


def _other(request: MeasureRequest, data: Mapping[str, Any]) -> str:
    """A campaign's device if it is not the request's or had other settings; "" otherwise."""
    if request.device.name not in (data["device"], data["address"]):
        return str(data["device"])
    if data["address"] != str(request.device.address):
        return f"{data['device']} when its address was {data['address']}"
    if data.get("settings", {}) != settings_of(request.device):
        return f"{data['device']} with other settings (pin, governor, environment) in the file of devices"
    return ""


def _answers(measured: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether measurements with these options can answer a request with the `wanted` ones; if no backends are named,
    all are meant.
    """
    free = _CHOSEN_AGAIN | ({"threads"} if wanted.get("usual") or wanted.get("every") else set())
    alike = all(measured.get(k) == wanted.get(k) for k in (measured.keys() | wanted.keys()) - free)
    backends, precisions = set(wanted["backends"]), set(wanted["precisions"])
    enough = not measured["backends"] or (backends and backends <= set(measured["backends"]))
    return bool(alike and enough and precisions <= set(measured["precisions"]))


def narrowed(
    targets: Iterable[Target], probes: Mapping[str, Probe], settings: RunSettings, missing: list[Missing]
) -> tuple[Target, ...]:
    """The targets as they were measured, except that only the requested backends take operators.

    Targets that can no longer run the model go into `missing`. The configurations do not change, because the runs in
    the record belong to them. UsageError if a runtime does not have a requested backend.
    """
    kept: list[Target] = []
    requested: dict[str, Mapping[str, tuple[str, ...]]] = {}
    for target in targets:
        runtime, own = target.runtime, target.configuration
        if runtime.name not in requested:
            wanted = configurations(runtime, probes[runtime.name], settings)
            requested[runtime.name] = {c.name: c.backends for c in wanted}
        left = requested[runtime.name].get(own.name, ())
        taken = {b: taken for b, taken in target.support.operators.items() if b in left}
        covered = frozenset[int]().union(*taken.values())
        lacking = next((op for op in target.placed.graph.operators if op.index not in covered), None)
        if lacking is not None:
            reason = f"no requested backend runs operator {lacking.index} ({lacking.type}, {lacking.name!r})"
            missing.append(Missing(name=own.name, reason=reason))
        else:
            none = dict.fromkeys(target.support.operators, frozenset[int]())
            kept.append(replace(target, support=replace(target.support, operators={**none, **taken})))
    return tuple(kept)


def _recalled(campaign: Campaign, data: Mapping[str, Any]) -> Recalled:
    supports = {}
    for name, row in data["supports"].items():
        failures = {
            backend: Failure(stage=stage, kind=kind, transient=transient, message=message)
            for backend, (stage, kind, transient, message) in row["failures"].items()
        }
        operators = {backend: frozenset(indices) for backend, indices in row["operators"].items()}
        supports[name] = Support(
            operators=operators,
            failures=failures,
            options=row.get("options", {}),
            folded=dict(row.get("folded", ())),
            copy=row.get("copy", ""),
        )
    return Recalled(
        campaign=campaign,
        device=DeviceInfo(name=data["device"], fingerprint=campaign.context.device, python=data["python"]),
        probes={
            name: Probe(version=p["version"], backends=tuple(p["backends"]), details=p["details"])
            for name, p in data["probes"].items()
        },
        supports=supports,
        converted=data.get("converted", {}),
    )
