"""The latency of a model that belongs to no space, from tables of units.

The model is cut into units by the fusion rules of the tables. A unit in a table costs its measured time; the price of
any other unit is estimated from units of its family with similar work (see `gnomon.estimate.like`). The predicted time
is the sum of these prices plus the overhead of one call. Its interval covers the uncertainty of each unit, and the
difference between whole models and the sums of their units.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from statistics import NormalDist

import numpy as np

from gnomon.core.stats import median
from gnomon.errors import ModelError, UsageError
from gnomon.estimate.like import Like, learn_likeness
from gnomon.jobs.estimator.document import (
    LeftOutPart,
    ModelPredictionDocument,
    PricedUnitPart,
    UnitDifference,
    VerificationDocument,
)
from gnomon.jobs.estimator.job import FOLDED
from gnomon.jobs.table.folder import is_table, read_table
from gnomon.models.load import load
from gnomon.models.model import is_known
from gnomon.models.net import ModelNet
from gnomon.session.nets import read_net
from gnomon.session.replay import NOTE as LAB
from gnomon.spaces.fuse import fuse, kernel_of, kernels_of, rules
from gnomon.spaces.latency_table import Manifest, Table, merged, unlike
from gnomon.spaces.loading import SearchSpace
from gnomon.spaces.models import NAME, ModelFile, ModelSpace, format_of
from gnomon.spaces.unit import Net, Unit
from gnomon.spaces.work import WORK, families, features, work
from gnomon.store.address import RecordAddress
from gnomon.store.base import CampaignQuery, last_files, last_note
from gnomon.store.opening import read_store

_SOURCES = ("measured", "like measured ones", "unlike any measured one")
_MOST_IN_DOUBT = 3.0

APART = 0.1
"""The relative difference between whole models and the sums of their units, due to work between units and to caches."""


def tables_of(device: str, record: RecordAddress | None, model_format: str = "onnx") -> tuple[Path, ...]:
    """The newest table of a device, according to the results database, and all other tables with the same conditions.

    `device` is the device's name or address. Only tables for models in `model_format` count. UsageError if
    there is no such table.
    """
    manifests: dict[Path, Manifest] = {}
    with read_store(record) as store:
        for campaign in store.query(CampaignQuery(kind="table")):
            where = last_note(store, campaign.id, LAB) or {}
            if device not in (where.get("device"), where.get("address")):
                continue
            if files := last_files(store, campaign.id):
                folder = Path(files[0].path).parent
                if folder not in manifests and is_table(folder):
                    table = read_table(folder)
                    if format_of(table.times_s) == model_format:
                        manifests[folder] = table.manifest
    if not manifests:
        what = "operators" if model_format == "onnx" else f"--from OTHER.{model_format}"
        raise UsageError(
            f"the results database has no table from the device {device} for {model_format} models",
            hint=f"Give --table DIR, or build a table: gnomon table build {what} --device {shlex.quote(device)}",
        )
    newest = next(iter(manifests.values()))
    return tuple(folder for folder, manifest in manifests.items() if not _unlike(manifest, newest))


def _unlike(manifest: Manifest, other: Manifest) -> list[str]:
    """Differences between two tables, apart from their spaces and fused chains."""
    return unlike(other, replace(manifest, space=other.space, rules=other.rules))


def joined(tables: Sequence[Table]) -> Table:
    """All tables joined into one, with the kernels and the fusion rules of all, at the speed of the first.

    UsageError if the tables' contexts differ.
    """
    chains = kernels_of(rules(chain for table in tables for chain in table.manifest.rules)).document()
    others_s = [table.manifest.other_s for table in tables if table.manifest.other_s is not None]
    other_s = median(others_s) if others_s else None
    parts = [
        Table(
            manifest=replace(table.manifest, space=NAME, rules=tuple(chains), other_s=other_s),
            rows=tuple(replace(row, unit=kernel_of(row.unit)) for row in table.rows),
        )
        for table in tables
    ]
    for part in parts[1:]:
        if reasons := _unlike(part.manifest, parts[0].manifest):
            raise UsageError(
                "the tables were measured under different conditions: " + "; ".join(reasons),
                hint="Give tables of the same device and runtime.",
            )
    return reduce(merged, parts)


def predict_model(
    path: Path,
    tables: Sequence[Path] = (),
    *,
    device: str = "local",
    record: RecordAddress | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    coverage: float = 0.9,
) -> ModelPredictionDocument:
    """Predict the time of an ONNX or TFLite model under the conditions of these tables (none: the device's tables).

    `shapes` fixes the shapes of inputs that the file leaves open. Raises GnomonError for files that cannot be read, and
    for tables with different contexts.
    """
    read = read_net(path, shapes or {})
    tables = tables or tables_of(device, record, format_of(read.net.counts()))
    table = joined([read_table(folder) for folder in tables])
    format_of([*read.net.counts(), *table.times_s])
    left_out = read.left_out
    counts = _kernels(read.net, table.manifest.rules)
    prices = table.times_s
    widths = {row.unit: row.relative_half_width for row in table.rows}
    units = list(counts)
    often = np.array([counts[unit] for unit in units], float)
    lacking = [k for k, unit in enumerate(units) if unit not in prices]
    times = np.array([prices.get(unit, 0.0) for unit in units])
    own = np.array([min(widths.get(unit, 0.0), 1.0) / 2 for unit in units])
    shared = np.zeros((len(units), len(units)))
    source: dict[int, str] = {}
    if lacking:
        learnt = _likeness(table)
        asked = [units[k] for k in lacking]
        logs, covariance = learnt.predict(features(asked), families(asked))
        times[lacking] = np.exp(logs)
        shared[np.ix_(lacking, lacking)] = covariance
        have = set(families(list(prices)))
        source = {k: _SOURCES[1 if family in have else 2] for k, family in zip(lacking, families(asked), strict=True)}
    each = often * times
    overhead, (guessed, doubt) = table.manifest.overhead_s, _guessed(table, read)
    mean = float(each.sum()) + overhead + guessed
    if not mean > 0:
        raise ModelError(f"{path} has no operator that takes time", hint="Measure it whole: gnomon profile MODEL")
    variance = float(each @ shared @ each + ((each * own) ** 2).sum() + (APART * mean) ** 2 + doubt**2)
    spread = NormalDist().inv_cdf((1 + coverage) / 2) * math.sqrt(math.log1p(variance / mean**2))
    deviations = np.sqrt(own**2 + np.diag(shared))
    priced = [
        PricedUnitPart(
            label=units[k].label,
            id=units[k].id,
            count=int(often[k]),
            time_s=float(times[k]),
            deviation=float(deviations[k]),
            source=source.get(int(k), _SOURCES[0]),
        )
        for k in np.argsort(-each, kind="stable")
    ]
    known_s = {way: sum(unit.count * unit.time_s for unit in priced if unit.source == way) for way in _SOURCES}
    known_s[_SOURCES[2]] += guessed
    missed = Counter((operator.type, operator.reason) for operator in left_out)
    return ModelPredictionDocument(
        model=str(path),
        tables=tuple(map(str, tables)),
        context=table.manifest.context,
        mean_s=mean,
        low_s=mean * math.exp(-spread),
        high_s=mean * math.exp(spread),
        coverage=coverage,
        overhead_s=overhead,
        guessed_s=guessed,
        shares={way: seconds / mean for way, seconds in known_s.items()},
        units=tuple(priced),
        left_out=tuple(
            LeftOutPart(type=type_, count=count, reason=why) for (type_, why), count in sorted(missed.items())
        ),
    )


def _kernels(net: Net, chains: Sequence[str]) -> Counter[Unit]:
    """How often each kernel occurs in a net whose operators are fused by these chains."""
    counts = Counter[Unit]()
    for unit, count in fuse(net, rules(chains)).counts().items():
        counts[kernel_of(unit)] += count
    return counts


def verify_net(
    space: SearchSpace, net: Mapping[str, str], path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> VerificationDocument:
    """Compare the units of an ONNX model, in any order, with those of a net that is given as a choice for each slot.

    `shapes` fixes the shapes of inputs that the file leaves open.

    Raises GnomonError for a slot or a choice that the space lacks, and for a model that cannot be read.
    """
    slots = [slot.name for slot in space.space.slots]
    if strange := [name for name in net if name not in slots]:
        raise UsageError(f"the space {space.name} has no slot {strange[0]!r}", hint=f"Slots: {', '.join(slots)}.")
    read = read_net(path, shapes or {})
    own = _kernels(space.net(space.space.indices([net.get(name, "") for name in slots])), FOLDED)
    theirs = _kernels(read.net, FOLDED)
    differences = [
        UnitDifference(label=unit.label, id=unit.id, space=own[unit], model=theirs[unit])
        for unit in dict.fromkeys((*own, *theirs))
        if own[unit] != theirs[unit]
    ]
    differences += [UnitDifference(label=operator.type, id="", space=0, model=1) for operator in read.left_out]
    return VerificationDocument(space=space.name, model=str(path), differences=tuple(differences))


def space_of_models(paths: Sequence[Path], shapes: Mapping[str, tuple[int, ...]]) -> ModelSpace:
    """Models as a search space, named after their files; for `shapes` see `shapes_by_model`.

    Raises GnomonError for a model that cannot be read.
    """
    nets: dict[str, Net] = {}
    files: dict[str, ModelFile] = {}
    for path, own in zip(paths, shapes_by_model(paths, shapes), strict=True):
        name = path.stem
        while name in nets:
            name += "_"
        read = read_net(path, own)
        nets[name] = read.net
        files[name] = ModelFile(path=path, shapes=own, nodes=read.nodes, left_out=len(read.left_out))
    return ModelSpace(nets=nets, files=files)


def shapes_by_model(
    paths: Sequence[Path], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, tuple[int, ...]], ...]:
    """The shapes of each model's inputs. A shape for INPUT applies to all models that leave this input open; a shape
    for MODEL@INPUT, where MODEL is the name of a file with or without its ending, takes precedence.

    UsageError for an input that no model has.
    """
    graphs = [load(path).graph for path in paths] if shapes else []
    inputs = [{graph.tensors[index].name: graph.tensors[index] for index in graph.inputs} for graph in graphs]
    by_model: tuple[dict[str, tuple[int, ...]], ...] = tuple({} for _ in paths)
    for text in sorted(shapes, key=lambda text: "@" in text):
        model, _, name = text.partition("@")
        own = [k for k, path in enumerate(paths) if name in inputs[k] and model in (path.name, path.stem)]
        having = [k for k, tensors in enumerate(inputs) if text in tensors]
        leaving_open = [k for k in having if not is_known(inputs[k][text])]
        if not (own or having):
            listed = (f"{path.name}: {', '.join(names)}" for path, names in zip(paths, inputs, strict=True))
            raise UsageError(f"--shape: no model has an input {text!r}", hint=f"Inputs of {'; '.join(listed)}.")
        for k in own or leaving_open or having:
            by_model[k][name if own else text] = shapes[text]
    return by_model


def _guessed(table: Table, read: ModelNet) -> tuple[float, float]:
    """The estimated time of the operators that are in no unit, and its standard deviation, in seconds.

    The time follows from the median time of the table's units per multiply-add or, for operators without multiply-adds,
    per element; it is at least the time of such operators in measured networks. An operator of unknown shape may take
    as long as a typical unit without multiply-adds; only the deviation allows for this.
    """
    times = table.times_s
    units = list(times)
    if not units:
        return 0.0, 0.0
    done, seconds = work(units), np.array([times[unit] for unit in units])
    products = done[:, : WORK.index("dense") + 1].sum(axis=1)
    elements = np.array([math.prod(unit.output) for unit in units], float)
    heavy = products > 0
    rate = float(np.median(seconds[heavy] / products[heavy])) if heavy.any() else 0.0
    pace = float(np.median(seconds[~heavy] / elements[~heavy])) if (~heavy).any() else 0.0
    least = table.manifest.other_s or 0.0
    light = float(np.median(seconds[~heavy])) if (~heavy).any() else 0.0
    large = (operator.macs * rate or (operator.elements or 0) * pace for operator in read.left_out)
    guessed = read.net.views() * least + math.fsum(max(least, time_s) for time_s in large)
    return guessed, guessed + light * sum(operator.elements is None for operator in read.left_out)


def _likeness(table: Table) -> Like:
    """The model that estimates units from similar ones, fitted to the measured units, each weighted by its precision.

    A unit that adds little to the overhead of a call is known only roughly. Units that ran within the kernel of another
    unit are left out, because their own time is unknown.
    """
    times, units, errors = table.times_s, [], []
    for row in table.rows:
        if row.call_s is not None and not (row.nets and row.call_s <= table.manifest.overhead_s):
            units.append(row.unit)
            errors.append(min(row.relative_half_width / 2, 1.0) * row.call_s / times[row.unit])
    logs = np.log([times[unit] for unit in units])
    return learn_likeness(features(units), families(units), logs, np.minimum(errors, _MOST_IN_DOUBT))
