"""Estimators as JSON: exact, versioned, and read with suspicion (see docs/estimator.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import GnomonError, ProblemError
from gnomon.estimate.columns import MOST_COLUMNS, Columns, Floats
from gnomon.estimate.estimator import Coefficients, Estimator, Noise
from gnomon.estimate.reading import HINT, Node, parse
from gnomon.estimate.residual import Residual

FORMAT = "gnomon-estimator"
VERSION = 1
MOST_LETTERS = 256 << 20
_MOST_SAMPLES = 100_000
_MOST_RANK = 100_000


def estimator_document(estimator: Estimator) -> dict[str, Any]:
    """The JSON object of an estimator; `read_estimator` gives back one that predicts the same, bit for bit."""
    c, n = estimator.coefficients, estimator.noise
    columns = estimator.columns
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
        "noise": {"relative": n.relative, "floor_s": n.floor_s, "width": n.width, "coverage": n.coverage},
        "known": [bool(k) for k in estimator.known],
        "sizes": dict(estimator.sizes),
        "weights": estimator.weights.tolist(),
        "residual": None if estimator.residual is None else _residual_document(estimator.residual),
    }


def write_estimator(estimator: Estimator) -> str:
    """The JSON text of an estimator, on one line; equal estimators give equal texts."""
    return json.dumps(estimator_document(estimator), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def read_estimator(document: str | bytes | Mapping[str, Any]) -> Estimator:
    """The estimator of JSON text (UTF-8 if bytes) or of the parsed object. Raises ProblemError with the path of what
    is wrong."""
    data = parse(document, MOST_LETTERS) if isinstance(document, str | bytes) else document
    root = Node(data, "$")
    root.only(
        "format", "version", "unit", "columns", "level_s", "bias_s", "coefficients_s", "covariance", "noise", "known",
        "sizes", "weights", "residual",
    )  # fmt: skip
    if root["format"].text() != FORMAT:
        root["format"].fail(f"'{FORMAT}' expected")
    version = root["version"].number()
    if version != VERSION:
        root["version"].fail(f"version {VERSION} expected", hint="use the gnomon that wrote it, or fit again")
    if root["unit"].text() != "s":
        root["unit"].fail("'s' expected")
    columns = _columns(root["columns"])
    width = len(columns)
    mean = np.concatenate([[root["bias_s"].number()], root["coefficients_s"].floats(width)])
    covariance = root["covariance"].only("own", "more", "less")
    coefficients = Coefficients(
        mean=mean,
        own=covariance["own"].floats(1 + width, least=0.0),
        more=covariance["more"].matrix(1 + width, _MOST_RANK).T,
        less=covariance["less"].matrix(1 + width, _MOST_RANK).T,
    )
    noise = root["noise"].only("relative", "floor_s", "width", "coverage")
    coverage = noise["coverage"].number(least=0.0)
    if not 0 < coverage < 1:
        noise["coverage"].fail("a share between 0 and 1 expected")
    return Estimator(
        columns=columns,
        level_s=root["level_s"].number(least=0.0),
        coefficients=coefficients,
        noise=Noise(
            relative=noise["relative"].number(least=0.0),
            floor_s=noise["floor_s"].number(least=0.0),
            width=noise["width"].number(least=0.0),
            coverage=coverage,
        ),
        known=_flags(root["known"], width),
        sizes={name: node.number(least=0.0) for name, node in root["sizes"].items()},
        weights=root["weights"].floats(None, least=0.0, most=_MOST_SAMPLES),
        residual=None if root["residual"].empty else _residual(root["residual"], width),
    )


def _columns(node: Node) -> Columns:
    node.only("names", "kinds", "prior_s", "scale")
    names = tuple(item.text() for item in node["names"].items_of_list(MOST_COLUMNS))
    kinds = tuple(item.text() for item in node["kinds"].items_of_list(MOST_COLUMNS))
    prior: Floats | None = None
    if not node["prior_s"].empty:
        prices = node["prior_s"].items_of_list(MOST_COLUMNS)
        prior = np.array([math.nan if price.empty else price.number(least=0.0) for price in prices])
    scale = None if node["scale"].empty else node["scale"].floats(len(names))
    try:
        return Columns(names=names, kinds=kinds, prior_s=prior, scale=scale)
    except GnomonError as error:
        raise ProblemError(f"the estimator is malformed: {node.path}: {error.message}", hint=HINT) from error


def _flags(node: Node, count: int) -> NDArray[np.bool_]:
    items = node.items_of_list(MOST_COLUMNS)
    if len(items) != count:
        node.fail(f"{count} items expected, {len(items)} found")
    return np.array([item.flag() for item in items], dtype=bool)


def _residual_document(residual: Residual) -> dict[str, Any]:
    return {
        "centre": residual.centre.tolist(),
        # An endless length takes a column that never varied out of the distance; JSON has no infinity.
        "length": [None if math.isinf(v) else v for v in residual.length.tolist()],
        "points": residual.points.tolist(),
        "alpha": residual.alpha.tolist(),
        "half": residual.half.tolist(),
        "size_s": residual.size_s,
    }


def _residual(node: Node, width: int) -> Residual:
    node.only("centre", "length", "points", "alpha", "half", "size_s")
    points = node["points"].matrix(width, _MOST_SAMPLES)
    count = len(points)
    lengths = node["length"].items_of_list(MOST_COLUMNS)
    if len(lengths) != width:
        node["length"].fail(f"{width} items expected, {len(lengths)} found")
    length = np.array([math.inf if item.empty else item.number() for item in lengths])
    if not (length > 0).all():
        node["length"].fail("numbers above 0 expected")
    half = node["half"].matrix(count, count)
    if len(half) != count:
        node["half"].fail(f"{count} rows expected, {len(half)} found")
    return Residual(
        centre=node["centre"].floats(width),
        length=length,
        points=points,
        alpha=node["alpha"].floats(count),
        half=half,
        size_s=node["size_s"].number(least=0.0),
    )
