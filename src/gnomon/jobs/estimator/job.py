"""The jobs of `gnomon estimator`: an estimator for the nets of a search space, from a table and a few whole nets."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gnomon.core.brief import brief
from gnomon.core.codec import OTHERS_TOO, read_json
from gnomon.core.space import Space
from gnomon.core.stats import drift
from gnomon.core.strict_json import Strict
from gnomon.errors import ProblemError, UsageError
from gnomon.estimate.columns import Columns, FitOptions, Floats, Unknown
from gnomon.estimate.document import estimator_document, read_estimator
from gnomon.estimate.estimator import Estimator, Prediction
from gnomon.formats.nets_csv import NetRow, UnitCount, lines_of_nets, number_columns, read_nets, write_nets
from gnomon.jobs.estimator.relaxed import RelaxedSpace
from gnomon.jobs.table.folder import read_table, table_space
from gnomon.spaces.features import CountTables, Ints
from gnomon.spaces.fuse import rules
from gnomon.spaces.latency_table import Table
from gnomon.spaces.loading import SearchSpace, draw, load_attribute, load_space, space_of, spread, text_reader
from gnomon.spaces.numbers import NumberSpace
from gnomon.spaces.remembered import read_space, remembered
from gnomon.spaces.unit import Unit
from gnomon.spaces.work import WORK, relative_size, told_work
from gnomon.spaces.work import work as unit_work
from gnomon.system.files import read_file, save_text

if TYPE_CHECKING:
    from gnomon.estimate.fit import Source
    from gnomon.measure.progress import Tell

FORMAT, VERSION = "gnomon-space-estimator", 1
OVERHEAD = "overhead"
"""The column that every net has exactly once: the time that a call takes in addition to the net's units."""

FOLDED = ("Conv+BatchNormalization",)
"""The chain that every runtime folds: the only fusion rule if there is no table."""

POOL = 2000
"""The number of random nets from which the nets to measure are chosen."""

_MANY = 500
"""The smallest number of choices for which finding a space's units takes seconds."""

_LOW = 0.1
_Z95 = NormalDist().inv_cdf(0.975)

_BIAS, _BIAS_UNMEASURED = 0.1, 0.3
"""The usual time of a net in addition to its units, as a share of the median net's time: with a measured overhead, and
without one.
"""

_STRICT = Strict(what="estimator", hint="Fit it again with `gnomon estimator fit`.", most_letters=256 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A space and the columns that describe its nets to an estimator: the overhead of a call, the units, and extras.

    `table` is None if the estimator is based on whole nets alone; the price of a unit then follows from its work.
    """

    space: SearchSpace
    tables: CountTables
    columns: Columns
    table: Table | None
    rules: tuple[str, ...]

    __repr__ = brief

    def rows(self, nets: Sequence[Sequence[int]] | Ints) -> Floats:
        """The matrix (nets, columns) that describes these assignments."""
        counts = self.tables.counts(np.asarray(nets, dtype=np.int64).reshape(-1, len(self.space.space.slots)))
        return np.concatenate([np.ones((len(counts), 1)), counts], axis=1)

    def nets(self, assignments: Sequence[Sequence[int]] | Ints) -> list[tuple[int, ...]]:
        """The nets in their canonical form: slots without an effect on the net have their first choice."""
        given = np.asarray(assignments, dtype=np.int64).reshape(-1, len(self.space.space.slots))
        return list(map(tuple, self.tables.canonical(given).tolist()))

    def sum_over_measured(self, samples: Sequence[NetRow]) -> float | None:
        """The median ratio of the table's sum to the measured time; None if no sample has prices for all its units."""
        nets = [row for row in samples if row.latency_s is not None]
        if self.columns.prior_s is None or not nets:
            return None
        rows = self.rows([row.assignment for row in nets])
        prices = self.columns.prior_s
        priced = ~(rows[:, np.isnan(prices)] != 0).any(axis=1)
        ratios = rows @ np.nan_to_num(prices) / np.array([row.latency_s for row in nets])
        return float(np.median(ratios[priced])) if priced.any() else None

    def label(self, column: str) -> str:
        """The label of a column's unit, or the column itself if it is not a unit."""
        return next((unit.label for unit in self.tables.units if unit.id == column), column)


def space_document(view: Described) -> dict[str, object]:
    """The rules for counting a net's units, as `gnomon.estimate.export.export_estimator` accepts them.

    UsageError for nets without units.
    """
    need_units(view, "an exported estimator counts units")
    tables = view.tables
    return {
        "slots": [{"name": slot.name, "choices": list(slot.choices)} for slot in tables.space.slots],
        "always": {view.columns.names[0]: 1},
        "rows": [[[1 + int(c), float(row[c])] for c in np.flatnonzero(row)] for row in tables.rows],
        "steps": [
            {"slots": list(step.slots), "row": step.row.tolist(), "next": step.next_state.tolist()}
            for step in tables.steps
        ],
        "labels": {unit.id: unit.label for unit in tables.units},
        "uids": _uids(view),
    }


def _uids(view: Described) -> dict[str, str]:
    """The names of units in nnabla-nas, by unit id; units without such a name are left out."""
    from gnomon.spaces.catalogue.mobilenetv2_cifar10 import uids_of

    names = uids_of(view.space.name)
    uids = {}
    for unit in view.tables.units:
        with suppress(ProblemError):  # chains, and kinds without a module in nnabla-nas
            uids[unit.id] = names(unit)
    return uids


def count_units(view: Described, nets: Sequence[NetRow]) -> tuple[UnitCount, ...]:
    """How often each unit occurs in each net, including the overhead and the extras, which an estimator counts too.

    UsageError for nets without units.
    """
    need_units(view, "only units can be counted")
    labels, uids = {unit.id: unit.label for unit in view.tables.units}, _uids(view)
    columns = view.columns.names
    return tuple(
        UnitCount(
            net=number,
            unit=columns[column],
            label=labels.get(columns[column], columns[column]),
            uid=uids.get(columns[column], ""),
            count=float(row[column]),
        )
        for number, row in enumerate(view.rows([net.assignment for net in nets]), start=1)
        for column in np.flatnonzero(row)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceEstimator:
    """An estimator for the nets of a space: the fitted model (`estimator`), and the conditions of the samples
    (`context`).

    `fitted` has the nets of the fit, which must not be used for tests.
    """

    described: Described
    estimator: Estimator
    context: Mapping[str, object]
    fitted: tuple[tuple[int, ...], ...] = ()

    __repr__ = brief

    def predict(self, nets: Sequence[Sequence[int]] | Ints, *, unknown: Unknown = Unknown.REFUSE) -> Prediction:
        """Times of nets, given as assignments (nets, slots). ProblemError for a unit without any data."""
        return self.estimator.predict(self.described.rows(nets), unknown=unknown)

    def __call__(self, net: Sequence[int] | Mapping[str, str]) -> float:
        """The expected seconds of a net, given as an assignment or as a choice for each slot; for search loops."""
        space = self.described.space.space
        if isinstance(net, Mapping):
            net = space.indices([str(net.get(slot.name, "")) for slot in space.slots])
        return float(self.mean_s([net])[0])

    def mean_s(self, nets: Sequence[Sequence[int]] | Ints, *, unknown: Unknown = Unknown.REFUSE) -> Floats:
        """The expected times of nets (nets, slots), without intervals, by fast table lookups if all units are known."""
        given, estimator = np.asarray(nets, dtype=np.int64), self.estimator
        if Unknown(unknown) is Unknown.REFUSE and not estimator.known.all():
            return estimator.mean_s(self.described.rows(given), unknown=unknown)
        mean = estimator.coefficients.mean
        times_s: Floats = self.described.tables.sums(given, mean[2:]) + mean[:2].sum()
        low = times_s < _LOW * estimator.level_s  # the model raises such times to a minimum
        if low.any():
            times_s[low] = estimator.mean_s(self.described.rows(given[low]), unknown=unknown)
        return times_s

    def probability(
        self, nets: Sequence[Sequence[int]] | Ints, bound_s: float, *, unknown: Unknown = Unknown.REFUSE
    ) -> Floats:
        """The probability that each net (nets, slots) takes at most `bound_s`."""
        return self.estimator.probability(self.described.rows(nets), bound_s, unknown=unknown)

    def relaxed(self) -> RelaxedSpace:
        """Expected times of nets whose choices are probabilities. UsageError for nets without units."""
        need_units(self.described, "relaxed nets need units")
        return RelaxedSpace(tables=self.described.tables, estimator=self.estimator)

    def document(self) -> dict[str, object]:
        """The estimator as JSON values."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "space": self.described.space.name,
            "own_space": remembered(self.described.space),
            "rules": list(self.described.rules),
            "context": dict(self.context),
            "fitted": [list(net) for net in self.fitted],
            "estimator": estimator_document(self.estimator),
        }


def described(
    table: str | os.PathLike[str] | None, space: str | None, *, work: str | None = None, tell: Tell | None = None
) -> Described:
    """A space and its columns, with or without a table. UsageError if both are None or do not match.

    `work` names a function, as FILE.py:FUNCTION, that returns further work of a unit: {name: number}. `tell` gets a
    sentence if the space is so large that finding its units takes a while.
    """
    if table is None and space is None:
        raise UsageError("neither a table nor a space is given", hint="Give --table DIR, or --space SPACE.")
    if table is None:
        loaded = _with_notice(load_space(str(space)), tell)
        return described_space(loaded, work=None if work is None else load_attribute(work))
    if work is not None:
        raise UsageError("a table has the cost of units, so --work has no effect", hint="Leave out --table or --work.")
    read = read_table(folder := Path(table))
    return _priced(_with_notice(table_space(folder, read.manifest.space, space), tell), read)


def _with_notice(space: SearchSpace, tell: Tell | None) -> SearchSpace:
    choices = sum(len(slot.choices) for slot in space.space.slots)
    if tell is not None and choices >= _MANY:
        tell(f"the space {space.name} has {choices} choices: finding their units takes a while")
    return space


def described_space(
    space: SearchSpace, *, chains: Sequence[str] = FOLDED, work: Callable[[Unit], Mapping[str, float]] | None = None
) -> Described:
    """A space without a table: the cost of each unit is the cost of its work plus a deviation of its own.

    Deviations are proportional to the units' sizes and are shrunk separately for two kinds of units: those that
    multiply, and all others. `chains` are the chains of operators to fuse; `work` returns further work of a unit.
    ProblemError if `work` returns anything but finite numbers.
    """
    tables = space.tables(rules(chains))
    done = unit_work(tables.units)
    kinds = ["multiplies" if weights else "moves" for weights in done[:, WORK.index("weights")]]
    extras = len(tables.extras)
    sizes = np.concatenate([[1.0], 1 / relative_size(done), np.ones(extras)])
    if work is not None:
        done = np.concatenate([done, told_work(tables.units, work)], axis=1)
    width = done.shape[1]
    columns = Columns(
        names=(OVERHEAD, *(unit.id for unit in tables.units), *tables.extras),
        kinds=(OVERHEAD, *kinds, *tables.extra_kinds),
        scale=sizes,
        shared=np.concatenate([np.zeros((1, width)), done, np.zeros((extras, width))]),
    )
    return Described(space=space, tables=tables, columns=columns, table=None, rules=tuple(chains))


def _priced(space: SearchSpace, table: Table) -> Described:
    tables = space.tables(rules(table.manifest.rules))
    times = table.times_s
    # Units without a price have their own kinds: the accuracy of the table's prices says nothing about their times.
    kinds = (k if u in times else f"{k}, no price" for k, u in zip(tables.kinds, tables.units, strict=True))
    prices = np.array([table.manifest.overhead_s, *(times.get(unit, np.nan) for unit in tables.units)])
    if np.isnan(prices[1:]).all():
        raise UsageError(
            f"the table has no unit of the space {space.name}", hint="With --table DIR, give a table of this space."
        )
    columns = Columns(
        names=(OVERHEAD, *(unit.id for unit in tables.units), *tables.extras),
        kinds=(OVERHEAD, *kinds, *tables.extra_kinds),
        prior_s=np.concatenate([prices, np.zeros(len(tables.extras))]),  # the table's sum includes all computation
        bias=_BIAS if table.manifest.overhead_s else _BIAS_UNMEASURED,
    )
    return Described(space=space, tables=tables, columns=columns, table=table, rules=tuple(table.manifest.rules))


def space_of_numbers(path: Path) -> SearchSpace:
    """The space of a csv whose nets are described by numbers, named after the file."""
    return NumberSpace(name=path.stem, columns=number_columns(read_file(path, hint="Give a csv of nets.")))


def need_units(view: Described, what: str) -> None:
    """Raise UsageError if the nets are described by numbers instead of units."""
    if not view.tables.units:
        raise UsageError(f"numbers describe the nets of {view.space.name}, but {what}", hint="Give a space with units.")


def read_samples(path: Path, view: Described, *, measured: bool) -> tuple[NetRow, ...]:
    """The nets of a csv; with `measured`, only those that have a latency. Raises UsageError and ProblemError."""
    rows = read_nets(read_file(path, hint="Give a csv of nets."), view.space.space, text_reader(view.space))
    kept = tuple(row for row in rows if row.latency_s is not None) if measured else rows
    if not kept:
        what = "no net with a latency" if measured else "no net"
        raise ProblemError(f"{path} has {what}", hint="Measure some nets: gnomon estimator measure")
    return kept


_USUAL = 10


def suggest_nets(
    view: Described,
    count: int | None = None,
    *,
    pool: Sequence[Sequence[int]] | Ints | None = None,
    given: Sequence[NetRow] = (),
    others: Mapping[str, Sequence[NetRow] | Source] | None = None,
    seed: int = 0,
) -> tuple[tuple[int, ...], ...]:
    """The most informative nets to measure, the most useful first; no measured times of this device are needed.

    Returns `count` different nets (by default ten, or all if there are fewer), none of which is in `given`. They are
    chosen from the nets of `pool` (None: random nets). `others` has samples from other devices that the fit will use.
    UsageError if there are too few nets.
    """
    from gnomon.estimate.design import suggest

    if not view.space.space.slots:
        raise UsageError("the space has no slots and so only one net", hint="Give it slots, or measure the net itself.")
    if pool is None:
        if not view.tables.units:
            raise UsageError(f"nets of {view.space.name} can be chosen only from a csv", hint="Give --pool CSV.")
        pool = _pool(view, seed)
    taken = set(view.nets([row.assignment for row in given]))
    nets = np.array([net for net in dict.fromkeys(view.nets(pool)) if net not in taken], dtype=np.int64)
    nets = nets.reshape(-1, len(view.space.space.slots))
    if not len(nets):
        raise UsageError("every net of the pool is already in --given", hint="Give a larger --pool or fewer nets.")
    count = min(_USUAL, len(nets)) if count is None else count
    before = view.rows([row.assignment for row in given]) if given else ()
    sources = sources_of(view, others)
    chosen = suggest(view.columns, view.rows(nets), count, given=before, sources=sources, seed=seed)
    return tuple(tuple(int(c) for c in nets[index]) for index in chosen)


def _pool(view: Described, seed: int) -> Ints:
    """Nets to choose from: half drawn at random, half spread from the fastest to the slowest by their prices or work.

    Searches look at the ends of a space, which random draws do not reach.
    """
    tables = view.tables
    count = min(POOL, tables.nets())
    usual = draw(tables, count, seed=seed)
    prices = view.columns.prior_s
    if prices is None:
        sizes = relative_size(unit_work(tables.units))
        prices = np.concatenate([[0.0], sizes, np.zeros(len(tables.extras))])
    else:
        prices = np.where(np.isnan(prices), np.nanmean(prices[1:]), prices)
    ends = spread(tables, usual[: max(count // 2, 1)], prices[1:], seed=seed)
    _, first = np.unique(nets := np.concatenate([ends, usual]), axis=0, return_index=True)
    return nets[np.sort(first)][:count]


def sources_of(view: Described, others: Mapping[str, Sequence[NetRow] | Source] | None) -> list[Source]:
    """Other devices as named sources of a prior. UsageError for fewer than two samples of a device."""
    from gnomon.estimate.fit import Source, source

    return [
        rows
        if isinstance(rows, Source)
        else source(name, view.columns, view.rows([r.assignment for r in rows]), [r.latency_s or 0.0 for r in rows])
        for name, rows in (others or {}).items()
    ]


REFERENCE = "reference_s"
"""The key in an estimator's context for the reference net's time, which defines the speed of the predictions."""

_ELSEWHERE = 0.3

_LASTING = 0.02
"""The relative change of a net's time between processes or over hours, which a few minutes of measuring do not show."""

_UNCORRECTED = 0.5


def reference_of(samples: Sequence[NetRow]) -> float | None:
    """The median time of the reference net alongside the samples; None if it was not measured with each of them."""
    beside = [row.reference_s for row in samples]
    return None if None in beside or not beside else float(np.median(np.array(beside, dtype=float)))


def at_speed(samples: Sequence[NetRow], reference_s: float | None) -> tuple[Floats, Floats]:
    """Times of nets and their standard errors (NaN: unknown), at the speed at which the reference net takes
    `reference_s`.

    Without `reference_s`, times remain as measured. A change of speed within the noise of the reference net is ignored.
    Nets of other sizes may change by a different factor, so half of each correction is added to the error. UsageError
    if the change is so large that the nets must come from another device.
    """
    times_s = np.array([row.latency_s or np.nan for row in samples])
    bounds = [(row.low_s, row.high_s) for row in samples]
    errors_s = np.array([np.nan if a is None or b is None else (b - a) / 2 / _Z95 for a, b in bounds])
    beside_s = np.array([row.reference_s or np.nan for row in samples])
    measured = ~np.isnan(beside_s)
    if reference_s is None or not measured.any():
        return times_s, errors_s
    middle_s = float(np.median(beside_s[measured]))
    if abs(math.log(middle_s / reference_s)) > math.log1p(_ELSEWHERE):
        raise UsageError(
            f"the reference net took {middle_s:.3g} s next to these nets, but {reference_s:.3g} s in the fit",
            hint="The nets come from another device or other settings: fit another estimator to them.",
        )
    factor = np.ones(len(measured))
    factor[measured] = [drift([reference_s], [beside]) for beside in beside_s[measured]]
    doubt = _UNCORRECTED * np.abs(np.log(factor)) * times_s
    errors_s = np.where(np.isnan(errors_s) & (doubt > 0), doubt, np.hypot(errors_s * factor, doubt))
    return times_s * factor, errors_s


def fit_estimator(
    view: Described,
    samples: Sequence[NetRow],
    *,
    others: Mapping[str, Sequence[NetRow] | Source] | None = None,
    options: FitOptions | None = None,
) -> SpaceEstimator:
    """Fit an estimator to whole nets and the table's prices.

    `others` has samples from other devices, or sources, by device name. Without samples, the prediction is the table's
    sum. Raises UsageError if there is nothing to fit to.
    """
    from gnomon.estimate.fit import fit

    reference_s = reference_of(samples)
    times_s, errors_s = at_speed(samples, reference_s)
    estimator = fit(
        view.columns,
        view.rows([row.assignment for row in samples]) if samples else (),
        times_s,
        options=options,
        sources=sources_of(view, others),
        errors_s=errors_s,
    )
    if not np.isnan(errors_s).all():  # these errors are from a few minutes; times change more over hours
        lasting = math.hypot(estimator.noise.relative, _LASTING)
        estimator = replace(estimator, noise=replace(estimator.noise, relative=lasting))
    manifest = view.table.manifest if view.table else None
    context = dict(manifest.context) if manifest else {}
    return SpaceEstimator(
        described=view,
        estimator=estimator,
        context=context | ({} if reference_s is None else {REFERENCE: reference_s}),
        fitted=tuple(dict.fromkeys(view.nets([row.assignment for row in samples]))),
    )


def save_estimator(predictor: SpaceEstimator, path: Path) -> None:
    """Write an estimator as JSON, completely or not at all. UsageError if the file cannot be written."""
    save_text(json.dumps(predictor.document(), allow_nan=False, ensure_ascii=False) + "\n", path, what="the estimator")


def load_estimator(path: Path, space: str | None = None) -> SpaceEstimator:
    """Read an estimator; `space` names its space if gnomon does not know it.

    UsageError if the file cannot be read or belongs to another space, ProblemError if it is malformed.
    """
    read = read_json(_File, read_file(path, hint="Give the JSON file of an estimator."), _STRICT)
    kept = None if read.own_space is None else read_space(read.own_space, _STRICT)
    view = described_space(space_of(path, read.space, space, kept), chains=read.rules)
    estimator = read_estimator(read.estimator)
    if estimator.columns.names != view.columns.names:
        raise ProblemError(
            f"the space {read.space} no longer has the units of the estimator {path}",
            hint="Fit the estimator again: gnomon estimator fit.",
        )
    radices = [len(slot.choices) for slot in view.space.space.slots]
    for number, net in enumerate(read.fitted):
        if len(net) != len(radices) or not all(0 <= c < r for c, r in zip(net, radices, strict=True)):
            _STRICT.fail(f"$.fitted[{number}]", "the number of a choice for each slot expected")
    return SpaceEstimator(described=view, estimator=estimator, context=read.context, fitted=read.fitted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The parts of an estimator's JSON that are used."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    format: Literal["gnomon-space-estimator"]
    version: Literal[1]
    space: str
    own_space: Mapping[str, object] | None = None
    rules: tuple[str, ...]
    context: Mapping[str, object]
    estimator: Mapping[str, object]
    fitted: tuple[tuple[int, ...], ...]


def save_chosen(
    pool: Path, of_pool: Sequence[tuple[int, ...]], nets: Sequence[tuple[int, ...]], view: Described, path: Path
) -> tuple[tuple[int, ...], ...]:
    """Write the lines of a pool's csv that have these nets, and return the nets as the pool gives them.

    UsageError if the file cannot be written.
    """
    number = {net: k for k, net in reversed(list(enumerate(view.nets(of_pool))))}
    first, *lines = lines_of_nets(read_file(pool, hint="Give a csv of nets."))
    save_text("".join(f"{line}\n" for line in (first, *(lines[number[net]] for net in nets))), path)
    return tuple(of_pool[number[net]] for net in nets)


def save_nets(rows: Sequence[NetRow], space: Space, path: Path, *, measured: bool) -> None:
    """Write nets as csv, completely or not at all. UsageError if the file cannot be written."""
    save_text(write_nets(rows, space, measured=measured), path)
