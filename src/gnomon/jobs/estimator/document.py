"""The JSON documents of `gnomon estimator`, except the document of measured nets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gnomon.core.codec import fields_of
from gnomon.estimate.columns import Unknown
from gnomon.formats.nets_csv import NetRow, UnitCount
from gnomon.report.answer import FirstVersion

if TYPE_CHECKING:
    from gnomon.jobs.estimator.job import SpaceEstimator


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of predictions for held-out nets: shares, relative errors, and the rank correlation."""

    nets: int
    within_10: float
    within_5: float
    mean_error: float
    median_error: float
    spearman: float | None
    coverage: float
    nominal: float
    half_width: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The scores of a perfect estimator against measurements as noisy as these."""

    within_10: float
    within_5: float
    mean_error: float
    spearman: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutPart:
    """A held-out net: its measured time, and its predicted time with an interval."""

    measured_s: float | None
    mean_s: float | None
    low_s: float | None
    high_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitResidual:
    """The mean relative error of predictions for nets with a unit (above 0: too long), with its 95 % interval."""

    unit: str
    nets: int
    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Scores, on `nets` other nets, of an estimator that was fitted to the first `samples` samples."""

    samples: int
    nets: int
    mean_error: float
    within_10: float
    spearman: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPart:
    """Scores, the ceiling, each held-out net, residuals by unit, and the benefit of more samples."""

    how: str
    scores: Scores
    ceiling: Ceiling | None
    nets: tuple[HeldOutPart, ...]
    units: tuple[UnitResidual, ...]
    curve: tuple[Spent, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FitDocument(FirstVersion):
    """A fitted estimator: its samples, and its scores on held-out nets (null: too few samples).

    `unknown` are units without any data, `complaints` are warnings about the samples. Without samples, `suggest` is the
    command that chooses nets to measure.
    """

    format: Literal["gnomon-estimator-fit"] = "gnomon-estimator-fit"
    space: str
    samples: int
    units: int
    priced: int
    sum_over_measured: float | None
    context: Mapping[str, Any]
    noise: float | None
    unknown: tuple[str, ...]
    evaluation: EvaluationPart | None
    complaints: tuple[str, ...] = ()
    suggest: str | None = None
    file: str | None = None
    pictures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EvaluationDocument(FirstVersion):
    """The scores of a saved estimator on measured nets that it was not fitted to."""

    format: Literal["gnomon-estimator-evaluation"] = "gnomon-estimator-evaluation"
    space: str
    file: str
    evaluation: EvaluationPart
    complaints: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedNet:
    """A net's expected latency with its interval, and the probability that the latency is below the bound."""

    latency_s: float | None
    low_s: float | None
    high_s: float | None
    below: float | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PredictionsDocument(FirstVersion):
    """Predictions of nets, in the order of the input. The intervals hold with the probability `coverage`."""

    format: Literal["gnomon-estimator-predictions"] = "gnomon-estimator-predictions"
    space: str
    coverage: float
    bound_s: float | None
    nets: tuple[PredictedNet, ...]
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPart:
    """The time that a unit adds to a net, and its share of the variance."""

    unit: str
    time_s: float
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExplanationDocument(FirstVersion):
    """The parts of the latency of a net."""

    format: Literal["gnomon-estimator-explanation"] = "gnomon-estimator-explanation"
    latency_s: float
    low_s: float | None
    high_s: float | None
    parts: tuple[ExplainedPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExportDocument(FirstVersion):
    """The Python file to which an estimator was exported: `gnomon estimator export`."""

    format: Literal["gnomon-estimator-export"] = "gnomon-estimator-export"
    file: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SuggestDocument(FirstVersion):
    """The nets to measure, each as the choice of every slot, and their csv: `gnomon estimator suggest`.

    `measure` is the command that measures the nets; null without a table.
    """

    format: Literal["gnomon-estimator-suggest"] = "gnomon-estimator-suggest"
    file: str
    nets: tuple[tuple[str, ...], ...]
    measure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ImportDocument(FirstVersion):
    """The csv of imported nets, how many were measured, and notes on omissions: `gnomon estimator import`."""

    format: Literal["gnomon-estimator-import"] = "gnomon-estimator-import"
    file: str
    space: str
    nets: int
    measured: int
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CountDocument(FirstVersion):
    """How often each unit occurs in each net, and the csv with these counts: `gnomon estimator count`."""

    format: Literal["gnomon-estimator-count"] = "gnomon-estimator-count"
    file: str
    counts: tuple[UnitCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitDifference:
    """A unit that a space's network and a model do not contain equally often; an operator outside units has no id."""

    label: str
    id: str
    space: int
    model: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VerificationDocument(FirstVersion):
    """The differences between an ONNX model and a network of a space: `gnomon estimator verify`."""

    format: Literal["gnomon-estimator-verification"] = "gnomon-estimator-verification"
    space: str
    model: str
    differences: tuple[UnitDifference, ...]

    @property
    def exit_code(self) -> int:
        """1 if there are differences, otherwise 0."""
        return 1 if self.differences else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedUnitPart:
    """A unit of the model: how often it occurs, the seconds of one occurrence, their relative deviation, and their
    source.
    """

    label: str
    id: str
    count: int
    time_s: float
    deviation: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutPart:
    """Operators of one type that are in no unit, and the reason."""

    type: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelPredictionDocument(FirstVersion):
    """The predicted time of a model, which is between `low_s` and `high_s` with the probability `coverage`.

    `shares` are the shares of the time by source; `guessed_s` is the estimated time of operators outside units.
    """

    format: Literal["gnomon-model-prediction"] = "gnomon-model-prediction"
    model: str
    tables: tuple[str, ...]
    context: Mapping[str, Any]
    mean_s: float
    low_s: float
    high_s: float
    coverage: float
    overhead_s: float
    guessed_s: float
    shares: Mapping[str, float]
    units: tuple[PricedUnitPart, ...]
    left_out: tuple[LeftOutPart, ...]


def fit_document(
    predictor: SpaceEstimator, samples: Sequence[NetRow], evaluation: EvaluationPart | None, file: str | None
) -> FitDocument:
    """The document of an estimator that was fitted to samples."""
    described, estimator = predictor.described, predictor.estimator
    prices = {} if described.table is None else described.table.times_s
    columns = zip(described.columns.names, estimator.known, strict=True)
    return FitDocument(
        space=described.space.name,
        samples=len(samples),
        units=len(described.tables.units),
        priced=sum(unit in prices for unit in described.tables.units),
        sum_over_measured=described.sum_over_measured(samples),
        context=predictor.context,
        noise=estimator.noise.relative,
        unknown=tuple(described.label(name) for name, is_known in columns if not is_known),
        evaluation=evaluation,
        file=file,
    )


def predictions_document(
    predictor: SpaceEstimator,
    nets: Sequence[NetRow],
    bound_s: float | None,
    below: Sequence[float | None] | None,
    file: str | None,
) -> PredictionsDocument:
    """The document of predicted nets; `below` are the probabilities that their times are below the bound."""
    return PredictionsDocument(
        space=predictor.described.space.name,
        coverage=predictor.estimator.noise.coverage,
        bound_s=bound_s,
        nets=tuple(
            PredictedNet(**fields_of(PredictedNet, net), below=probability)
            for net, probability in zip(nets, below or [None] * len(nets), strict=True)
        ),
        file=file,
    )


def explanation_document(predictor: SpaceEstimator, net: Sequence[int]) -> ExplanationDocument:
    """The document of the parts of a net's latency."""
    row = predictor.described.rows([net])
    predicted = predictor.estimator.predict(row, unknown=Unknown.WIDEN)
    return ExplanationDocument(
        latency_s=float(predicted.mean_s[0]),
        low_s=float(predicted.low_s[0]),
        high_s=float(predicted.high_s[0]),
        parts=tuple(
            ExplainedPart(unit=predictor.described.label(unit.column), time_s=unit.time_s, share=unit.share)
            for unit in predictor.estimator.explain(row[0])
        ),
    )
