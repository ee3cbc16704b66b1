"""Estimators as JSON: exact, versioned, and read with suspicion (see docs/estimator.md).

Reading JSON that may be broken or hostile: each value is asked for by what it must be, and errors have its path.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from gnomon.core.strict_json import Strict, shown
from gnomon.errors import GnomonError, ProblemError
from gnomon.estimate.columns import MOST_COLUMNS, Columns, Floats
from gnomon.estimate.estimator import Coefficients, Estimator, Noise
from gnomon.estimate.residual import Residual

HINT = "docs/estimator.md describes the format; an estimator is written by gnomon"
_MOST_TEXT = 20_000


def parse(text: str | bytes, most: int) -> Any:
    """The value of a JSON text without duplicate keys, NaN or infinities. Raises ProblemError for anything else."""
    return Strict(what="estimator", hint=HINT, most_letters=most).parse(text)


class Node:
    """A value of a document and its path."""

    def __init__(self, value: Any, path: str) -> None:
        self._value = value
        self.path = path

    def __getitem__(self, name: str) -> Node:
        found = self._object()
        if name not in found:
            self.fail(f"'{name}' is missing")
        return Node(found[name], f"{self.path}.{name}")

    @property
    def empty(self) -> bool:
        """Whether it is null."""
        return self._value is None

    def only(self, *names: str) -> Node:
        """Itself, if it is an object without other keys than these."""
        strange = sorted(str(k)[:60] for k in set(self._object()) - set(names))
        if strange:
            self.fail(f"the key '{strange[0]}' is not known")
        return self

    def items(self) -> Iterator[tuple[str, Node]]:
        """The pairs of an object."""
        for name, value in self._object().items():
            yield str(name), Node(value, f"{self.path}.{str(name)[:60]}")

    def items_of_list(self, most: int) -> list[Node]:
        """The items of a list of at most so many."""
        if not isinstance(self._value, list):
            self.fail(f"a list expected, {shown(self._value)} found")
        if len(self._value) > most:
            self.fail(f"{len(self._value)} items, and no more than {most} are read")
        return [Node(value, f"{self.path}[{i}]") for i, value in enumerate(self._value)]

    def text(self) -> str:
        """A text."""
        if not isinstance(self._value, str):
            self.fail(f"a text expected, {shown(self._value)} found")
        if len(self._value) > _MOST_TEXT:
            self.fail(f"a text of {len(self._value)} letters, and no more than {_MOST_TEXT} are read")
        return self._value

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self._value, bool):
            self.fail(f"true or false expected, {shown(self._value)} found")
        return self._value

    def number(self, *, least: float = -math.inf) -> float:
        """A finite number."""
        if isinstance(self._value, bool) or not isinstance(self._value, int | float):
            self.fail(f"a number expected, {shown(self._value)} found")
        try:
            found = float(self._value)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found) or found < least:
            self.fail("a finite number expected" if least == -math.inf else f"a finite number from {least:g} expected")
        return found

    def floats(self, count: int | None, *, least: float = -math.inf, most: int = 10_000_000) -> Floats:
        """A list of finite numbers, of this length if one is given."""
        items = self.items_of_list(most)
        if count is not None and len(items) != count:
            self.fail(f"{count} items expected, {len(items)} found")
        return np.array([item.number(least=least) for item in items], dtype=float)

    def matrix(self, width: int, most: int) -> Floats:
        """A list of rows of this width (rows, width)."""
        rows = [row.floats(width) for row in self.items_of_list(most)]
        return np.array(rows, dtype=float).reshape(len(rows), width)

    def fail(self, what: str, hint: str = HINT) -> NoReturn:
        """Raise the ProblemError of what is wrong here."""
        _fail(self.path, what, hint)

    def _object(self) -> Mapping[str, Any]:
        if not isinstance(self._value, Mapping):
            self.fail(f"an object expected, {shown(self._value)} found")
        return self._value


def _fail(path: str, what: str, hint: str = HINT) -> NoReturn:
    raise ProblemError(f"the estimator is malformed: {path}: {what}", hint=hint)


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
