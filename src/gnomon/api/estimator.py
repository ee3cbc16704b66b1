"""Estimators of latency from Python: what `gnomon estimator` does, as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from gnomon.api.pictures import EVALUATION, draw
from gnomon.errors import UsageError
from gnomon.estimate.columns import FitOptions, Unknown
from gnomon.estimate.design import Bound
from gnomon.formats.nets_csv import NetRow, UnitCount, write_counts
from gnomon.jobs.estimator import document, job
from gnomon.jobs.estimator.job import Described, SpaceEstimator
from gnomon.spaces.loading import load_space
from gnomon.store.address import RecordLike, record_address
from gnomon.system.files import save_text

if TYPE_CHECKING:
    from gnomon.api.options import MeasureOptions, PathLike
    from gnomon.jobs.estimator.evaluation import Evaluation
    from gnomon.jobs.estimator.models import ModelPrediction
    from gnomon.jobs.table.nets import NetsMeasured
    from gnomon.measure.progress import Watch


def suggest_nets(
    count: int | None = None,
    *,
    table: PathLike | None = None,
    space: str | None = None,
    pool: PathLike | None = None,
    given: PathLike | None = None,
    near: PathLike | None = None,
    bound_s: float | None = None,
    others: Sequence[PathLike] = (),
    work: str | None = None,
    seed: int = 0,
    out: PathLike | None = None,
    overwrite: bool = False,
) -> tuple[Described, tuple[tuple[int, ...], ...]]:
    """The nets that tell an estimator the most, as assignments, and the space that they are of: ten unless `count` says
    how many, or all where there are fewer.

    Half of them near `bound_s` by the estimator of the file `near`. `pool` is a csv of nets to choose from, `given` of
    those that are measured already, `others` of what other devices took, and `out` is one that gets the chosen ones.
    `work` is a function of a unit, as FILE.py:FUNCTION (see docs/jobs/estimator.md). A file at `out` is an error unless
    it may be overwritten. Raises GnomonError.
    """
    _unused(out, overwrite=overwrite)
    described = job.described(_path(table), space, work=work)
    if (bound_s is None) != (near is None):
        raise UsageError("a bound needs an estimator, and the other way round", hint="Give --bound and --estimator.")
    bound = None
    if near is not None and bound_s is not None:
        bound = Bound(bound_s=bound_s, estimator=load_estimator(near, space).estimator)
    nets = job.suggest_nets(
        described,
        count,
        pool=None if pool is None else [row.assignment for row in _nets(pool, described)],
        given=_nets(given, described),
        near=bound,
        others=_measured_nets(others, described),
        seed=seed,
    )
    rows = [NetRow(assignment=net) for net in nets]
    job.save_nets(rows, described.space.space, _path(out), measured=False)
    return described, nets


def measure_nets(
    nets: PathLike,
    *,
    table: PathLike,
    space: str | None = None,
    out: PathLike | None = None,
    overwrite: bool = False,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[MeasureOptions],
) -> tuple[Described, NetsMeasured]:
    """Measure the nets of a csv as the table was measured; `out` is a csv that gets them with their latencies, which
    must not be there unless it may be overwritten.

    Raises GnomonError; the same call goes on from there.
    """
    from gnomon.api.options import measure_request
    from gnomon.jobs.table import nets as table_nets
    from gnomon.session.bench.tool import tool_of
    from gnomon.system.files import check_file

    _unused(out, overwrite=overwrite)
    if out is not None:
        check_file(Path(out))
    described = job.described(Path(table), space)
    assert described.table is not None  # noqa: S101  # a table was given
    chosen = [row.assignment for row in _nets(nets, described)]
    request = measure_request(options)
    named = described.table.manifest.context.get("runtime")
    if not request.runtimes and isinstance(named, str):
        request = replace(request, runtimes=(named,))
    tool = tool_of(request)
    measured = table_nets.measure_nets(
        request, described.space, described.table, chosen, tool=tool, watch=on_progress, tell=on_message
    )
    job.save_nets(measured.rows, described.space.space, _path(out), measured=True)
    return described, measured


def fit_estimator(
    *,
    table: PathLike | None = None,
    space: str | None = None,
    samples: PathLike | None = None,
    others: Sequence[PathLike] = (),
    coverage: float = 0.9,
    work: str | None = None,
    out: PathLike | None = None,
    overwrite: bool = False,
    picture: PathLike | None = None,
    on_message: Callable[[str], None] | None = None,
) -> tuple[SpaceEstimator, Evaluation | None, dict[str, Any]]:
    """Fit an estimator; returns it, how good it is on nets held out (None: fewer than 4), and both as JSON values.

    `out` is the file that gets it, which must not be there unless it may be overwritten. `work` is a function of a
    unit, as FILE.py:FUNCTION. `picture`.svg and .png show the evaluation. Raises GnomonError.
    """
    from gnomon.jobs.estimator.evaluation import LEAST_TO_HOLD_OUT, cross_validate

    _unused(out, overwrite=overwrite)
    described = job.described(_path(table), space, work=work)
    options = FitOptions(coverage=coverage)
    rows = _nets(samples, described, measured=True)
    # Read once, and no fold of the evaluation.
    sources = {source.name: source for source in job.sources_of(described, _measured_nets(others, described))}
    estimator = job.fit_estimator(described, rows, others=sources, options=options)
    evaluation = None
    if len(rows) >= LEAST_TO_HOLD_OUT:
        evaluation = cross_validate(described, rows, others=sources, options=options)
    if out is not None:
        job.save_estimator(estimator, Path(out))
    if picture is not None and evaluation is None:
        raise UsageError(
            "there is nothing to draw: too few measured nets to hold some out",
            hint=f"The estimator is written to {out}. Measure 4 nets or more, and give them with --samples.",
        )
    fitted = document.fit_document(estimator, rows, evaluation, None if out is None else str(out))
    return estimator, evaluation, _drawn(fitted, picture, on_message)


def evaluate_estimator(
    path: PathLike,
    samples: PathLike,
    *,
    space: str | None = None,
    picture: PathLike | None = None,
    on_message: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """What an estimator's file predicts of measured nets that it was not fitted to, as JSON values.

    `picture`.svg and .png show it. Raises GnomonError.
    """
    from gnomon.jobs.estimator.evaluation import evaluate

    estimator = load_estimator(path, space)
    evaluation = evaluate(estimator, _nets(samples, estimator.described, measured=True))
    return _drawn(document.evaluation_document(estimator, evaluation, str(path)), picture, on_message)


def predict_nets(
    path: PathLike,
    nets: PathLike,
    *,
    space: str | None = None,
    widen: bool = False,
    bound_s: float | None = None,
    out: PathLike | None = None,
    overwrite: bool = False,
) -> tuple[Described, tuple[NetRow, ...], dict[str, Any]]:
    """Predict the nets of a csv: as rows, and as JSON values. `out` is a csv that gets them, which must not be there
    unless it may be overwritten. Raises GnomonError.
    """
    _unused(out, overwrite=overwrite)
    estimator = load_estimator(path, space)
    described, unknown = estimator.described, Unknown.WIDEN if widen else Unknown.REFUSE
    chosen = [row.assignment for row in _nets(nets, described)]
    predicted = estimator.predict(chosen, unknown=unknown)
    below = None if bound_s is None else estimator.probability(chosen, bound_s, unknown=unknown).tolist()
    rows = tuple(
        NetRow(assignment=net, latency_s=float(mean), low_s=float(low), high_s=float(high))
        for net, mean, low, high in zip(chosen, predicted.mean_s, predicted.low_s, predicted.high_s, strict=True)
    )
    job.save_nets(rows, described.space.space, _path(out), measured=True)
    file = None if out is None else str(out)
    return described, rows, document.predictions_document(estimator, rows, bound_s, below, file)


def predict_model(
    model: PathLike,
    *,
    tables: Sequence[PathLike] = (),
    device: str = "local",
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    coverage: float = 0.9,
    record: RecordLike | None = None,
) -> ModelPrediction:
    """What an ONNX model that was never measured is expected to take, with an interval that says how that is known.

    Its units are priced by `tables`; none: by those that were built on `device`, as the results database (`record`)
    knows them. `shapes` fix inputs that the file leaves open. Raises GnomonError.
    """
    from gnomon.jobs.estimator import models

    chosen = [Path(table) for table in tables] or models.tables_of(device, record_address(record))
    return models.predict_model(Path(model), chosen, shapes=shapes, coverage=coverage)


def explain_net(path: PathLike, nets: PathLike, *, space: str | None = None) -> dict[str, Any]:
    """What each unit of the first net of a csv adds to its time, and to the doubt, as JSON values.

    Raises GnomonError.
    """
    estimator = load_estimator(path, space)
    return document.explanation_document(estimator, _nets(nets, estimator.described)[0].assignment)


def load_estimator(path: PathLike, space: str | None = None) -> SpaceEstimator:
    """Read an estimator's file; `space` says where its space is, where it is not a shipped one. Raises GnomonError."""
    return job.load_estimator(Path(path), space)


def export_estimator(path: PathLike, *, space: str | None = None, out: PathLike, overwrite: bool = False) -> None:
    """Write an estimator's file as one Python file that needs numpy alone. Raises GnomonError."""
    from gnomon.estimate.export import export_estimator as exported

    _unused(out, overwrite=overwrite)
    estimator = load_estimator(path, space)
    save_text(exported(estimator.estimator, job.space_document(estimator.described)), Path(out))


def import_nets(
    latencies: PathLike, *, archs: PathLike, space: str, out: PathLike | None = None, overwrite: bool = False
) -> tuple[tuple[NetRow, ...], tuple[str, ...]]:
    """Nets and latencies of HELP's files, which PyTorch saved; returns them, and in sentences which have no latency.

    `latencies` is its latency/DEVICE.pt, `archs` its metainfo.pt, ofa_archs.pt or str_arch2idx.pt, of `space`. `out`
    is a csv that gets the nets; a file there is an error unless it may be overwritten. Raises GnomonError.
    """
    from gnomon.jobs.estimator import help_files

    _unused(out, overwrite=overwrite)
    imported = help_files.import_nets(Path(latencies), Path(archs), space)
    job.save_nets(imported.rows, imported.space.space, _path(out), measured=True)
    return imported.rows, imported.told


def count_units(
    nets: PathLike,
    *,
    table: PathLike | None = None,
    space: str | None = None,
    estimator: PathLike | None = None,
    out: PathLike | None = None,
    overwrite: bool = False,
) -> tuple[UnitCount, ...]:
    """How often each unit occurs in each net of a csv: the units of `table`, or of `estimator`, as they run as one
    there; of a `space` alone every operator is a unit.

    `out` is a csv that gets the counts; a file there is an error unless it may be overwritten. Raises GnomonError.
    """
    _unused(out, overwrite=overwrite)
    if table is not None and estimator is not None:
        raise UsageError("the units are those of a table or of an estimator", hint="Give one of both.")
    if estimator is not None:
        described = load_estimator(estimator, space).described
    elif table is None and space is not None:
        described = job.described_space(load_space(space), chains=())
    elif table is None:
        raise UsageError("nothing says what units are", hint="Give --space SPACE, --table DIR or --estimator JSON.")
    else:
        described = job.described(Path(table), space)
    counts = job.count_units(described, _nets(nets, described))
    if out is not None:
        save_text(write_counts(counts), Path(out))
    return counts


def _unused(out: PathLike | None, *, overwrite: bool) -> None:
    """UsageError where a file would be replaced that may not be."""
    if out is not None and not overwrite and Path(out).exists():
        raise UsageError(f"{out} is there already", hint="Give --out another path, or --overwrite it.")


def _path(path: PathLike | None) -> Path | None:
    return None if path is None else Path(path)


def _nets(path: PathLike | None, described: Described, *, measured: bool = False) -> tuple[NetRow, ...]:
    """The nets of a csv; none without one."""
    return () if path is None else job.read_samples(Path(path), described, measured=measured)


def _measured_nets(paths: Sequence[PathLike], described: Described) -> dict[str, tuple[NetRow, ...]]:
    """The measured nets of other devices, by the name of their file."""
    return {str(path): _nets(path, described, measured=True) for path in paths}


def _drawn(values: dict[str, Any], picture: PathLike | None, tell: Callable[[str], None] | None) -> dict[str, Any]:
    """The document of an evaluation, with its pictures where they are wanted."""
    if picture is None:
        return values
    return values | {"pictures": draw(EVALUATION, values["evaluation"], Path(picture), tell)}
