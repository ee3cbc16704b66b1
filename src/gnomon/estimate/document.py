"""Estimators as JSON: exact, versioned, and checked strictly when read (see docs/jobs/estimator.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Annotated, Any, Literal

import numpy as np

from gnomon.core.codec import Must, decode, within
from gnomon.core.strict_json import Complaints
from gnomon.errors import GnomonError, ProblemError
from gnomon.estimate.columns import Columns, Floats, Least0, Positive
from gnomon.estimate.estimator import Coefficients, Estimator, Noise

HINT = "Give a file that gnomon wrote; docs/jobs/estimator.md describes the format."
_MOST_TEXT = 20_000

FORMAT = "gnomon-estimator"
VERSION = 1
_LARGEST = 1e100
_MOST_SAMPLES = 100_000
_MOST_COLUMNS = 20_000
_VERSION = within(VERSION, VERSION, f"version {VERSION} (read others with their own gnomon, or fit again)")
Text = Annotated[str, Must(be=f"at most {_MOST_TEXT} characters", fits=lambda value: len(value) <= _MOST_TEXT)]
_ALL = Must(be=f"at most {_MOST_COLUMNS} items", fits=lambda value: len(value) <= _MOST_COLUMNS)
_SAMPLES = Must(be=f"at most {_MOST_SAMPLES} items", fits=lambda value: len(value) <= _MOST_SAMPLES)
Rows = Annotated[tuple[tuple[float, ...], ...], _SAMPLES]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsDocument:
    """The columns. A price of None means that the table has no price for the column."""

    names: Annotated[tuple[Text, ...], _ALL]
    kinds: Annotated[tuple[Text, ...], _ALL]
    prior_s: Annotated[tuple[Least0 | None, ...], _ALL] | None
    scale: Annotated[tuple[Positive, ...], _ALL] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CovarianceDocument:
    """The covariance as a diagonal, plus the outer products of `more`, minus those of `less`."""

    own: tuple[Least0, ...]
    more: Rows
    less: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorDocument:
    """The whole content of an estimator's JSON."""

    format: Literal["gnomon-estimator"]
    version: Annotated[float, _VERSION]
    unit: Literal["s"]
    columns: ColumnsDocument
    level_s: Least0
    bias_s: float
    coefficients_s: tuple[float, ...]
    covariance: CovarianceDocument
    noise: Noise
    known: Annotated[tuple[bool, ...], _ALL]
    sizes: Mapping[str, Least0]
    weights: Annotated[tuple[Least0, ...], _SAMPLES]
    residual: None = None
    """Earlier versions wrote a model of the residuals here; only null is accepted now."""


def estimator_document(estimator: Estimator) -> dict[str, object]:
    """The JSON object of an estimator, from which `read_estimator` restores bit-identical predictions."""
    c, columns = estimator.coefficients, estimator.columns
    return {
        "format": FORMAT,
        "version": VERSION,
        "unit": "s",
        "columns": {
            "names": list(columns.names),
            "kinds": list(columns.kinds),
            "prior_s": None
            if columns.prior_s is None
            else [None if math.isnan(v) else v for v in columns.prior_s.tolist()],
            "scale": None if columns.scale is None else columns.scale.tolist(),
        },
        "level_s": estimator.level_s,
        "bias_s": float(c.mean[0]),
        "coefficients_s": c.mean[1:].tolist(),
        "covariance": {"own": c.own.tolist(), "more": c.more.T.tolist(), "less": c.less.T.tolist()},
        "noise": asdict(estimator.noise),
        "known": [bool(k) for k in estimator.known],
        "sizes": dict(estimator.sizes),
        "weights": estimator.weights.tolist(),
    }


def read_estimator(document: Mapping[str, object]) -> Estimator:
    """The estimator in a JSON object. ProblemError lists all faults, each with its path."""
    complaints = Complaints(what="estimator", hint=HINT)
    read: EstimatorDocument = decode(EstimatorDocument, document, complaints)
    complaints.raise_any()
    width = len(read.columns.names)
    covariance = read.covariance
    rows = (covariance.own, *covariance.more, *covariance.less, read.coefficients_s, (read.bias_s, read.level_s))
    if max(map(abs, chain(*rows))) > _LARGEST:
        complaints.tell("$", f"a number is above {_LARGEST:g}, and its square overflows")
    _check_sizes(read, width, complaints)
    complaints.raise_any()
    return Estimator(
        columns=_columns(read.columns),
        level_s=read.level_s,
        coefficients=Coefficients(
            mean=np.array([read.bias_s, *read.coefficients_s]),
            own=np.array(read.covariance.own),
            more=_matrix(read.covariance.more, 1 + width).T,
            less=_matrix(read.covariance.less, 1 + width).T,
        ),
        noise=read.noise,
        known=np.array(read.known, dtype=bool),
        sizes=dict(read.sizes),
        weights=np.array(read.weights, dtype=float),
    )


def _check_sizes(read: EstimatorDocument, width: int, complaints: Complaints) -> None:
    """Report all lists whose lengths do not match."""
    covariance = read.covariance
    lists: list[tuple[str, Sequence[Any] | None, int]] = [
        ("columns.kinds", read.columns.kinds, width),
        ("columns.prior_s", read.columns.prior_s, width),
        ("columns.scale", read.columns.scale, width),
        ("coefficients_s", read.coefficients_s, width),
        ("covariance.own", covariance.own, 1 + width),
        *((f"covariance.more[{k}]", row, 1 + width) for k, row in enumerate(covariance.more)),
        *((f"covariance.less[{k}]", row, 1 + width) for k, row in enumerate(covariance.less)),
        ("known", read.known, width),
    ]
    for name, items, wanted in lists:
        if items is not None and len(items) != wanted:
            complaints.tell(f"$.{name}", f"{wanted} items expected, {len(items)} found")


def _matrix(rows: Sequence[Sequence[float]], width: int) -> Floats:
    return np.array(rows, dtype=float).reshape(len(rows), width)


def _columns(read: ColumnsDocument) -> Columns:
    prior = None if read.prior_s is None else np.array(read.prior_s, dtype=float)  # None becomes NaN
    scale = None if read.scale is None else np.array(read.scale, dtype=float)
    try:
        return Columns(names=read.names, kinds=read.kinds, prior_s=prior, scale=scale)
    except GnomonError as error:
        raise ProblemError(f"the estimator is malformed: $.columns: {error.message}", hint=HINT) from error
