"""The picture of an estimator: well-formed, told apart by marks as well as colours, the same bytes each time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.report.picture_kit import needs_drawing, words_in, words_of

from gnomon.api.pictures import EVALUATION, draw
from gnomon.jobs.estimator.document import Ceiling, EvaluationPart, HeldOutPart, Scores, Spent, UnitResidual
from gnomon.jobs.estimator.picture import evaluation_charts


def evaluation(nets: int = 12, units: int = 15, curve: int = 5, ceiling: bool = True) -> EvaluationPart:
    rng = random.Random(0)
    made = []
    for _ in range(nets):
        measured = rng.uniform(1e-3, 2e-3)
        mean = measured * rng.uniform(0.9, 1.1)
        made.append(HeldOutPart(measured_s=measured, mean_s=mean, low_s=0.93 * mean, high_s=1.07 * mean))
    scores = Scores(
        nets=nets,
        within_10=0.99,
        within_5=0.9,
        mean_error=0.05,
        median_error=0.05,
        spearman=0.95,
        coverage=0.9,
        nominal=0.9,
        half_width=0.07,
    )
    noise = Ceiling(within_10=1.0, within_5=1.0, mean_error=0.01, spearman=0.99)
    return EvaluationPart(
        how="10 folds",
        scores=scores,
        ceiling=noise if ceiling else None,
        nets=tuple(made),
        units=tuple(
            UnitResidual(
                unit=f"Conv {k}x{k}+BatchNormalization", nets=k + 3, mean=0.01, low=0.01 - 0.002 * k, high=0.03
            )
            for k in range(units)
        ),
        curve=tuple(
            Spent(samples=n, nets=9, mean_error=0.1 / (n + 1), within_10=0.9, spearman=0.9)
            for n in (0, 2, 5, 10, 50)[:curve]
        ),
    )


def drawn(found: EvaluationPart, to: Path) -> list[Path]:
    needs_drawing()
    told: list[str] = []
    paths = draw(EVALUATION, found, to, told.append)
    assert told == []
    return [Path(path) for path in paths]


def test_it_says_what_it_shows(tmp_path: Path) -> None:
    words = words_in(drawn(evaluation(), tmp_path / "p")[0])
    told = " ".join(words)
    assert "Predictions outside the fit: mean error 5.0 %, 99 % within 10 %, rank 0.950 (10 folds)" in told
    assert "Best scores that the measurement noise allows: mean error 1.0 %" in told
    assert "measured, ms" in words
    assert "predicted, ms" in words
    assert "10 % off" in words
    inside = sum((n.low_s or 0.0) <= (n.measured_s or 0.0) <= (n.high_s or 0.0) for n in evaluation().nets)
    assert f"inside the 90 % interval: {inside}" in words
    assert f"outside the interval: {12 - inside}" in words
    assert "Conv 3x3+BatchNormalization (6)" in words
    assert "number of nets in the fit (the first samples; all others are held out)" in words


def test_it_is_drawn_as_svg_and_png(tmp_path: Path) -> None:
    svg, png = drawn(evaluation(), tmp_path / "a.b")
    assert (svg.name, png.name) == ("a.b.svg", "a.b.png") and png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("how", "lacks", "has"),
    [
        (
            {"curve": 0},
            "Benefit of more samples",
            "Mean error of predictions for nets with each unit (number of nets); above 0: too long",
        ),
        (
            {"units": 0},
            "Mean error of predictions for nets with each unit (number of nets); above 0: too long",
            "Benefit of more samples",
        ),
        ({"ceiling": False}, "mean measurement error", "mean error"),
        ({"nets": 1, "units": 0, "curve": 0}, "Benefit of more samples", "predicted, ms"),
    ],
)
def test_what_there_is_not_is_not_drawn(how: dict[str, Any], lacks: str, has: str) -> None:
    words = words_of(evaluation_charts(evaluation(**how)))
    assert lacks not in words
    assert has in words
