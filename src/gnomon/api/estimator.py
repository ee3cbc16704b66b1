"""`gnomon estimator` as functions: estimators of latency."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from gnomon.api.options import MeasureOptions, Overwrite, PathLike, Record, Shapes, Space, skipped
from gnomon.errors import UsageError
from gnomon.estimate.columns import FitOptions, Unknown
from gnomon.formats.nets_csv import NetRow, write_counts
from gnomon.jobs.estimator import document, job
from gnomon.jobs.estimator.document import (
    CountDocument,
    EvaluationDocument,
    ExplanationDocument,
    ExportDocument,
    FitDocument,
    ImportDocument,
    ModelPredictionDocument,
    PredictionsDocument,
    SuggestDocument,
    VerificationDocument,
)
from gnomon.jobs.estimator.job import Described, SpaceEstimator
from gnomon.jobs.table.folder import is_table
from gnomon.options import option
from gnomon.spaces.loading import load_space
from gnomon.store.address import RecordLike, record_address
from gnomon.system.files import check_file, save_text
from gnomon.values import latency

if TYPE_CHECKING:
    from gnomon.jobs.table.document import NetsDocument
    from gnomon.measure.progress import Watch

MaybeTable = Annotated[PathLike | None, option("--table", metavar="DIR", help="The table of the space.")]
Others = Annotated[
    Sequence[PathLike],
    option("--other", repeat=True, metavar="CSV", help="Nets measured on another device. May be repeated."),
]
Work = Annotated[
    str | None,
    option(metavar="FILE.py:FUNCTION", help="A Python function with further features of a unit. Its code is run."),
]
Estimator = Annotated[PathLike, option(metavar="ESTIMATOR")]
Nets = Annotated[PathLike, option(metavar="CSV")]
Csv = Annotated[PathLike, option("--out", metavar="CSV", help="Write the nets to this file.")]


def suggest_nets(
    *,
    table: MaybeTable = None,
    space: Space = None,
    count: Annotated[
        int | None,
        option("--k", least=1, most=2000, help="The number of nets.  [default: 10, or all if there are fewer]"),
    ] = None,
    pool: Annotated[
        PathLike | None, option(metavar="CSV", help="Nets to choose from.  [default: drawn from the space]")
    ] = None,
    given: Annotated[PathLike | None, option(metavar="CSV", help="Nets that are already measured.")] = None,
    others: Others = (),
    work: Work = None,
    seed: Annotated[int, option(least=0, most=2**31 - 2, metavar="N", help="Seed for random choices.")] = 0,
    out: Csv = "nets.csv",
    overwrite: Overwrite = False,
    on_message: Callable[[str], None] | None = None,
) -> SuggestDocument:
    """Choose the nets from which an estimator learns the most, and write them as csv.

    Raises GnomonError. docs/jobs/estimator.md describes `work`.
    """
    path = _unused(out, overwrite=overwrite)
    described = job.described(table, space, work=work, tell=on_message)
    of_pool = [row.assignment for row in _nets(pool, described)]
    nets = job.suggest_nets(
        described,
        count,
        pool=None if pool is None else of_pool,
        given=_nets(given, described),
        others=_measured_nets(others, described),
        seed=seed,
    )
    if pool is None:
        job.save_nets([NetRow(assignment=net) for net in nets], described.space.space, path, measured=False)
    else:
        nets = job.save_chosen(Path(pool), of_pool, nets, described, path)
    names = tuple(tuple(described.space.space.names(net)) for net in nets)
    step = None if table is None else _step("measure", str(out), table=table, space=space)
    return SuggestDocument(file=str(out), nets=names, measure=step)


def _step(verb: str, *words: str, table: PathLike, space: str | None) -> str:
    """The next command, with the same table and space."""
    named = [] if space is None else ["--space", space]
    return shlex.join(["gnomon", "estimator", verb, *words, "--table", str(table), *named])


def measure_nets(
    nets: Nets,
    *,
    table: Annotated[PathLike, option(metavar="DIR", help="The table of the space.")],
    space: Space = None,
    out: Annotated[PathLike, option(metavar="CSV", help="Write nets and latencies to this file.")] = "measured.csv",
    overwrite: Overwrite = False,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[MeasureOptions],
) -> NetsDocument:
    """Measure the nets of CSV next to the table's reference kernel. After an interruption, the same command resumes.

    Raises GnomonError; the same call then continues.
    """
    from gnomon.api.options import measure_request
    from gnomon.jobs.table import nets as table_nets

    path = _unused(out, overwrite=overwrite)
    check_file(path)
    described = job.described(table, space, tell=on_message)
    assert described.table is not None  # noqa: S101  # a table was given
    chosen = [row.assignment for row in _nets(nets, described)]
    request = measure_request(options)
    manifest = described.table.manifest
    named = manifest.context.get("runtime")
    if not request.runtimes and not request.settings.commands and isinstance(named, str):
        if manifest.command:
            raise UsageError(f"the table {table} was measured by the command {named}", hint=f"Give --command {named}.")
        request = replace(request, runtimes=(named,))
    rows, measured = table_nets.measure_nets(
        request, described.space, described.table, chosen, watch=on_progress, tell=on_message
    )
    job.save_nets(rows, described.space.space, path, measured=True)
    return replace(measured, file=str(out), fit=_step("fit", "--samples", str(out), table=table, space=space))


def fit_estimator(
    *,
    table: MaybeTable = None,
    space: Space = None,
    samples: Annotated[
        PathLike | None, option(metavar="CSV", help="Measured nets; without them, the table's sum is used.")
    ] = None,
    others: Others = (),
    work: Work = None,
    coverage: Annotated[float, option(least=0.5, most=0.999, help="Coverage of intervals.")] = 0.9,
    out: Annotated[PathLike, option("--out", "-o", metavar="JSON", help="The estimator's file.")] = "estimator.json",
    overwrite: Overwrite = False,
    picture: Annotated[
        PathLike | None, option(metavar="PATH", help="Draw the predictions for held-out nets to PATH.svg and PATH.png.")
    ] = None,
    on_message: Callable[[str], None] | None = None,
) -> FitDocument:
    """Fit an estimator to a table and the measured nets of --samples, and report its errors on held-out nets.

    Raises GnomonError. `load_estimator` reads the written file.
    """
    from gnomon.jobs.estimator.evaluation import LEAST_TO_HOLD_OUT, complaints_about, cross_validate

    path = _unused(out, overwrite=overwrite)
    described = job.described(table, space, work=work, tell=on_message)
    options = FitOptions(coverage=coverage)
    rows = _nets(samples, described, measured=True)
    # Nets of other devices are read once, and are in no fold of the evaluation.
    sources = {source.name: source for source in job.sources_of(described, _measured_nets(others, described))}
    estimator = job.fit_estimator(described, rows, others=sources, options=options)
    evaluation = None
    if len(rows) >= LEAST_TO_HOLD_OUT and len(estimator.fitted) > 1:
        evaluation = cross_validate(described, rows, others=sources, options=options)
    job.save_estimator(estimator, path)
    if picture is not None and evaluation is None:
        raise UsageError(
            "no picture can be drawn: there are too few measured nets to hold some of them out",
            hint=f"The estimator was written to {out}. Give at least 4 measured nets with --samples.",
        )
    fitted = document.fit_document(estimator, rows, evaluation, str(out))
    step = None if rows or table is None else _step("suggest", table=table, space=space)
    complaints = complaints_about(described, rows)
    return replace(fitted, complaints=complaints, suggest=step, pictures=_drawn(fitted, picture, on_message))


def evaluate_estimator(
    path: Estimator,
    samples: Nets,
    *,
    space: Space = None,
    picture: Annotated[PathLike | None, option(metavar="PATH", help="Draw errors to PATH.svg and PATH.png.")] = None,
    on_message: Callable[[str], None] | None = None,
) -> EvaluationDocument:
    """Compare ESTIMATOR's predictions with the measured nets of CSV, and its errors with the measurement-noise limit.

    Raises GnomonError. Nets to which the estimator was fitted are left out.
    """
    from gnomon.jobs.estimator.evaluation import complaints_about, evaluate

    estimator = load_estimator(path, space)
    rows = _nets(samples, estimator.described, measured=True)
    errors, space_name = evaluate(estimator, rows), estimator.described.space.name
    evaluated = document.EvaluationDocument(space=space_name, file=str(path), evaluation=errors)
    complaints = complaints_about(estimator.described, rows)
    return replace(evaluated, complaints=complaints, pictures=_drawn(evaluated, picture, on_message))


def predict(
    path: Annotated[PathLike, option(metavar="ESTIMATOR|MODEL")],
    nets: Annotated[PathLike | None, option(metavar="CSV")] = None,
    *,
    space: Space = None,
    widen: Annotated[bool, option(help="Widen the interval for unmeasured units.  [default: refuse them]")] = False,
    bound_s: Annotated[
        float | None,
        option("--bound", read=latency, metavar="2ms", help="Show the probability that a latency is below this bound."),
    ] = None,
    out: Annotated[PathLike | None, option(metavar="CSV", help="Write nets, latency_s, low_s and high_s.")] = None,
    overwrite: Overwrite = False,
    tables: Annotated[
        Sequence[PathLike], option("--table", repeat=True, metavar="DIR", help="Predict from DIR. May be repeated.")
    ] = (),
    device: Annotated[
        str | None, option(metavar="NAME", help="Predict from this device's tables.  [default: this machine]")
    ] = None,
    shapes: Shapes | None = None,
    record: Record = None,
) -> PredictionsDocument | ModelPredictionDocument:
    """Predict latencies with intervals: of the nets in CSV with ESTIMATOR, or of a MODEL (ONNX, TFLite) from tables.

    Raises GnomonError.
    """
    of_nets = {"space": space, "widen": widen, "bound": bound_s, "out": out, "overwrite": overwrite}
    of_model = {"table": tables, "device": device, "shape": shapes, "record": record}
    if nets is None and Path(path).suffix == ".json":
        raise UsageError("an estimator needs a csv of nets", hint=f"gnomon estimator predict {path} NETS.csv")
    idle = of_nets if nets is None else of_model
    if given := [f"--{name}" for name, value in idle.items() if value not in (None, False, (), {})]:
        subject = "a MODEL" if nets is None else "a csv of nets"
        raise UsageError(f"{' and '.join(given)} cannot be used with {subject}", hint="Leave out these options.")
    if nets is None:
        return predict_model(path, tables=tables, device=device or "local", shapes=shapes, record=record)
    file = None if out is None else _unused(out, overwrite=overwrite)
    estimator = load_estimator(path, space)
    described, unknown = estimator.described, Unknown.WIDEN if widen else Unknown.REFUSE
    chosen = [row.assignment for row in _nets(nets, described)]
    predicted = estimator.predict(chosen, unknown=unknown)
    below = None if bound_s is None else estimator.probability(chosen, bound_s, unknown=unknown).tolist()
    rows = tuple(
        NetRow(assignment=net, latency_s=float(mean), low_s=float(low), high_s=float(high))
        for net, mean, low, high in zip(chosen, predicted.mean_s, predicted.low_s, predicted.high_s, strict=True)
    )
    if file is not None:
        job.save_nets(rows, described.space.space, file, measured=True)
    return document.predictions_document(estimator, rows, bound_s, below, None if out is None else str(out))


def predict_model(
    model: PathLike,
    *,
    tables: Sequence[PathLike] = (),
    device: str = "local",
    shapes: Mapping[str, Sequence[int]] | None = None,
    coverage: float = 0.9,
    record: RecordLike | None = None,
) -> ModelPredictionDocument:
    """The predicted latency of an ONNX or TFLite model that was never measured; see `predict`. Raises GnomonError.

    Its units are priced by `tables`; without them, by the tables that were built on `device` according to the results
    database.
    """
    from gnomon.jobs.estimator import models

    fixed = {name: tuple(sizes) for name, sizes in (shapes or {}).items()}
    own = [Path(table) for table in tables]
    address = record_address(record)
    return models.predict_model(Path(model), own, device=device, record=address, shapes=fixed, coverage=coverage)


def explain_net(path: Estimator, nets: Nets, *, space: Space = None) -> ExplanationDocument:
    """Show the contribution of each unit to the time of the first net of CSV, and to the uncertainty of that time.

    Raises GnomonError.
    """
    estimator = load_estimator(path, space)
    return document.explanation_document(estimator, _nets(nets, estimator.described)[0].assignment)


def load_estimator(path: PathLike, space: str | None = None) -> SpaceEstimator:
    """Read an estimator's file; `space` names its space if gnomon does not ship that space. Raises GnomonError."""
    return job.load_estimator(Path(path), space)


def export_estimator(
    path: Estimator,
    *,
    space: Space = None,
    out: Annotated[PathLike, option("--out", "-o", metavar="FILE", help="The Python file to write.")] = "estimator.py",
    overwrite: Overwrite = False,
) -> ExportDocument:
    """Write ESTIMATOR as one Python file that needs only numpy.

    Its function get_estimation takes a net as {slot: choice}, or as {unit: count} with ids, labels or UIDs of units.

    Raises GnomonError.
    """
    from gnomon.estimate.export import export_estimator as exported

    file = _unused(out, overwrite=overwrite)
    estimator = load_estimator(path, space)
    save_text(exported(estimator.estimator, job.space_document(estimator.described)), file)
    return ExportDocument(file=str(out))


def import_nets(
    latencies: Annotated[PathLike, option(metavar="LATENCY.pt")],
    *,
    archs: Annotated[PathLike, option(metavar="FILE.pt", help="The architectures, in the order of the latencies.")],
    space: Annotated[str, option(complete="space", metavar="SPACE", help="The space of the architectures.")],
    out: Csv = "nets.csv",
    overwrite: Overwrite = False,
    on_message: Callable[[str], None] | None = None,
) -> ImportDocument:
    """Convert HELP's files to a csv of measured nets: LATENCY.pt of a device, and the file of the architectures.

    The architectures are in metainfo.pt (fbnet), ofa_archs.pt (ofa-mobilenetv3) or str_arch2idx.pt (nasbench201).
    PyTorch reads these files without running code from them.

    Raises GnomonError.
    """
    from gnomon.jobs.estimator import help_files

    file = _unused(out, overwrite=overwrite)
    loaded = load_space(space)
    rows, left_out = help_files.import_nets(Path(latencies), Path(archs), loaded)
    job.save_nets(rows, loaded.space, file, measured=True)
    skipped(left_out, on_message)
    return ImportDocument(
        file=str(out),
        space=space,
        nets=len(rows),
        measured=sum(row.latency_s is not None for row in rows),
        left_out=left_out,
    )


def count_units(
    nets: Nets,
    *,
    table: MaybeTable = None,
    space: Space = None,
    estimator: Annotated[
        PathLike | None, option(metavar="JSON", help="Count the units of this estimator, with its fused operators.")
    ] = None,
    out: Annotated[PathLike, option(metavar="CSV", help="Write the counts to this file.")] = "counts.csv",
    overwrite: Overwrite = False,
) -> CountDocument:
    """Write a csv of how often each unit occurs in each net of CSV: columns net, unit, label, uid and count.

    The units come from a table or an estimator; with only --space, each operator is a unit, and so is each module that
    has a UID. get_estimation of an exported estimator takes the counts of a net by `uid` or `unit`.

    Raises GnomonError.
    """
    file = _unused(out, overwrite=overwrite)
    if table is not None and estimator is not None:
        raise UsageError("--table and --estimator both define the units", hint="Give one of them.")
    if estimator is not None:
        described = load_estimator(estimator, space).described
    elif table is None and space is not None:
        described = job.described_space(load_space(space), chains=())
    else:
        described = job.described(table, space)
    counts = job.count_units(described, _nets(nets, described))
    save_text(write_counts(counts), file)
    return CountDocument(file=str(out), counts=counts)


def verify_net(
    space: Annotated[str, option(metavar="SPACE|TABLE")],
    model: Annotated[PathLike, option(metavar="MODEL")],
    *,
    net: Annotated[Sequence[str], option(repeat=True, metavar="SLOT=CHOICE", help="The choice of each slot.")],
    shapes: Shapes | None = None,
) -> VerificationDocument:
    """Check whether an ONNX MODEL is the network that SPACE, or the space of TABLE, has for the choices of --net.

    The units of the model and of the network are compared, regardless of their order; a convolution and its batch
    normalisation count as one unit. Exits with 1 if the units differ.

    Raises GnomonError.
    """
    from gnomon.jobs.estimator import models

    given = job.described(space, None).space if is_table(Path(space)) else load_space(space)
    fixed = {name: tuple(sizes) for name, sizes in (shapes or {}).items()}
    return models.verify_net(given, dict(choice.partition("=")[::2] for choice in net), Path(model), fixed)


def _unused(out: PathLike, *, overwrite: bool) -> Path:
    """The path of a file to write. UsageError if a file exists there that may not be replaced."""
    if not overwrite and Path(out).exists():
        raise UsageError(f"{out} exists already", hint="Give --out another path, or give --overwrite.")
    return Path(out)


def _nets(path: PathLike | None, described: Described, *, measured: bool = False) -> tuple[NetRow, ...]:
    """The nets of a csv; none without a path."""
    return () if path is None else job.read_samples(Path(path), described, measured=measured)


def _measured_nets(paths: Sequence[PathLike], described: Described) -> dict[str, tuple[NetRow, ...]]:
    """The measured nets of other devices, by the paths of their files."""
    return {str(path): _nets(path, described, measured=True) for path in paths}


def _drawn(
    evaluated: FitDocument | EvaluationDocument, picture: PathLike | None, tell: Callable[[str], None] | None
) -> tuple[str, ...]:
    """The paths of the pictures of an evaluation; none if no picture is requested or nothing was evaluated."""
    if picture is None or evaluated.evaluation is None:
        return ()
    from gnomon.api.pictures import EVALUATION, draw

    return tuple(draw(EVALUATION, evaluated.evaluation, Path(picture), tell))
