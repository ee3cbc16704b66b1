"""Estimators of latency from Python: what `gnomon estimator` does, as functions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from gnomon.api.options import MeasureOptions, PathLike, Record, Shapes, Space, skipped
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
    option("--other", repeat=True, metavar="CSV", help="Measured nets of another device. May be repeated."),
]
Work = Annotated[
    str | None,
    option(metavar="FILE.py:FUNCTION", help="A Python function that returns further features of a unit; it is run."),
]
Overwrite = Annotated[bool, option(help="Replace the file if it is there.")]
Estimator = Annotated[PathLike, option(metavar="ESTIMATOR")]
Nets = Annotated[PathLike, option(metavar="CSV")]
Csv = Annotated[PathLike, option("--out", metavar="CSV", help="The nets.")]


def suggest_nets(
    *,
    table: MaybeTable = None,
    space: Space = None,
    count: Annotated[
        int | None,
        option("--k", least=1, most=2000, help="How many nets.  [default: 10, or all where there are fewer]"),
    ] = None,
    pool: Annotated[
        PathLike | None, option(metavar="CSV", help="Nets to choose from.  [default: drawn from the space]")
    ] = None,
    given: Annotated[PathLike | None, option(metavar="CSV", help="Nets that are measured already.")] = None,
    others: Others = (),
    work: Work = None,
    seed: Annotated[int, option(least=0, most=2**31 - 2, metavar="N", help="Seed of what is drawn.")] = 0,
    out: Csv = "nets.csv",
    overwrite: Overwrite = False,
    on_message: Callable[[str], None] | None = None,
) -> SuggestDocument:
    """Choose the nets that an estimator learns the most from, and write them as csv.

    Raises GnomonError. `work` is described in docs/jobs/estimator.md.
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
    """The next command, with the table and the space of this one."""
    named = [] if space is None else ["--space", space]
    return shlex.join(["gnomon", "estimator", verb, *words, "--table", str(table), *named])


def measure_nets(
    nets: Nets,
    *,
    table: Annotated[PathLike, option(metavar="DIR", help="The table of the space.")],
    space: Space = None,
    out: Annotated[PathLike, option(metavar="CSV", help="Nets and latencies.")] = "measured.csv",
    overwrite: Overwrite = False,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[MeasureOptions],
) -> NetsDocument:
    """Measure the nets of CSV beside the table's reference kernel. After an interruption it resumes.

    Raises GnomonError; the same call goes on from there.
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
    if not request.runtimes and not request.wish.commands and isinstance(named, str):
        if manifest.command:
            raise UsageError(f"{table} was measured by the command {named}", hint=f"Give --command {named}, as there.")
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
        PathLike | None, option(metavar="CSV", help="Measured nets. Without them it is the table's sum.")
    ] = None,
    others: Others = (),
    work: Work = None,
    coverage: Annotated[float, option(least=0.5, most=0.999, help="Of intervals.")] = 0.9,
    out: Annotated[PathLike, option("--out", "-o", metavar="JSON", help="The estimator.")] = "estimator.json",
    overwrite: Overwrite = False,
    picture: Annotated[
        PathLike | None,
        option(metavar="PATH", help="Write PATH.svg and PATH.png: what it predicts of nets held out."),
    ] = None,
    on_message: Callable[[str], None] | None = None,
) -> FitDocument:
    """Fit an estimator to a table and the measured nets of --samples, and say how good it is on nets held out.

    Raises GnomonError. `load_estimator` reads the file that it writes.
    """
    from gnomon.jobs.estimator.evaluation import LEAST_TO_HOLD_OUT, complaints_about, cross_validate

    path = _unused(out, overwrite=overwrite)
    described = job.described(table, space, work=work, tell=on_message)
    options = FitOptions(coverage=coverage)
    rows = _nets(samples, described, measured=True)
    # Read once, and no fold of the evaluation.
    sources = {source.name: source for source in job.sources_of(described, _measured_nets(others, described))}
    estimator = job.fit_estimator(described, rows, others=sources, options=options)
    evaluation = None
    if len(rows) >= LEAST_TO_HOLD_OUT and len(estimator.fitted) > 1:
        evaluation = cross_validate(described, rows, others=sources, options=options)
    job.save_estimator(estimator, path)
    if picture is not None and evaluation is None:
        raise UsageError(
            "there is nothing to draw: too few measured nets to hold some out",
            hint=f"The estimator is written to {out}. Measure 4 nets or more, and give them with --samples.",
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
    picture: Annotated[PathLike | None, option(metavar="PATH", help="Write PATH.svg and PATH.png.")] = None,
    on_message: Callable[[str], None] | None = None,
) -> EvaluationDocument:
    """Compare ESTIMATOR's predictions with the measured nets of CSV, and with the limit that noise sets.

    Raises GnomonError. Nets that it was fitted to are left out.
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
    widen: Annotated[bool, option(help="Units without any measurement widen the interval.  [default: refuse]")] = False,
    bound_s: Annotated[
        float | None,
        option("--bound", read=latency, metavar="2ms", help="Show the probability of staying below it."),
    ] = None,
    out: Annotated[PathLike | None, option(metavar="CSV", help="Nets with latency_s, low_s and high_s.")] = None,
    overwrite: Overwrite = False,
    tables: Annotated[
        Sequence[PathLike], option("--table", repeat=True, metavar="DIR", help="Price MODEL by it. May be repeated.")
    ] = (),
    device: Annotated[
        str | None,
        option(metavar="NAME", help="Price MODEL by the tables that were built there.  [default: this machine]"),
    ] = None,
    shapes: Shapes | None = None,
    record: Record = None,
) -> PredictionsDocument | ModelPredictionDocument:
    """Predict the latency of the nets of CSV by ESTIMATOR, or that of a MODEL (ONNX, TFLite) by tables, with intervals.

    Raises GnomonError.
    """
    of_nets = {"space": space, "widen": widen, "bound": bound_s, "out": out, "overwrite": overwrite}
    of_model = {"table": tables, "device": device, "shape": shapes, "record": record}
    if nets is None and Path(path).suffix == ".json":
        raise UsageError("no csv of nets is given", hint="Give ESTIMATOR CSV.")
    idle = of_nets if nets is None else of_model
    if given := [f"--{name}" for name, value in idle.items() if value not in (None, False, (), {})]:
        subject = "nets of a csv alone, and none is given" if nets is None else "a MODEL alone, and this has a csv"
        raise UsageError(f"{', '.join(given)}: for {subject}", hint="Leave it out.")
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
    """What an ONNX or TFLite model that was never measured is expected to take: see `predict`. Raises GnomonError.

    Its units are priced by `tables`; none: by those that were built on `device`, as the results database knows them.
    """
    from gnomon.jobs.estimator import models

    fixed = {name: tuple(sizes) for name, sizes in (shapes or {}).items()}
    own = [Path(table) for table in tables]
    address = record_address(record)
    return models.predict_model(Path(model), own, device=device, record=address, shapes=fixed, coverage=coverage)


def explain_net(path: Estimator, nets: Nets, *, space: Space = None) -> ExplanationDocument:
    """Show what each unit adds to the time of the first net of CSV, and which units its uncertainty comes from.

    Raises GnomonError.
    """
    estimator = load_estimator(path, space)
    return document.explanation_document(estimator, _nets(nets, estimator.described)[0].assignment)


def load_estimator(path: PathLike, space: str | None = None) -> SpaceEstimator:
    """Read an estimator's file; `space` says where its space is, where it is not a shipped one. Raises GnomonError."""
    return job.load_estimator(Path(path), space)


def export_estimator(
    path: Estimator,
    *,
    space: Space = None,
    out: Annotated[PathLike, option("--out", "-o", metavar="FILE", help="The Python file.")] = "estimator.py",
    overwrite: Overwrite = False,
) -> ExportDocument:
    """Write ESTIMATOR as one Python file that needs numpy alone.

    Its get_estimation takes a net as {slot: choice}, or as {unit: how often} by ids, labels or UIDs.

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
    archs: Annotated[PathLike, option(metavar="FILE.pt", help="The architectures, in the same order.")],
    space: Annotated[str, option(complete="space", metavar="SPACE", help="The space that they are of.")],
    out: Csv = "nets.csv",
    overwrite: Overwrite = False,
    on_message: Callable[[str], None] | None = None,
) -> ImportDocument:
    """Make a csv of measured nets of HELP's files: LATENCY.pt of a device, and the architectures that it is of.

    These are metainfo.pt (fbnet), ofa_archs.pt (ofa-mobilenetv3) or str_arch2idx.pt (nasbench201). PyTorch reads them
    without running code from them.

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
        PathLike | None, option(metavar="JSON", help="An estimator: its units, as they run as one there.")
    ] = None,
    out: Annotated[PathLike, option(metavar="CSV", help="The counts.")] = "counts.csv",
    overwrite: Overwrite = False,
) -> CountDocument:
    """Count how often each unit occurs in each net of CSV, as a csv with the columns net, unit, label, uid and count.

    The units are those of a table or an estimator; of a --space alone every operator is one, as the modules are that
    have UIDs. The counts of a net by `uid` or `unit` are what the get_estimation of an exported estimator takes.

    Raises GnomonError.
    """
    file = _unused(out, overwrite=overwrite)
    if table is not None and estimator is not None:
        raise UsageError("the units are those of a table or of an estimator", hint="Give one of both.")
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
    net: Annotated[Sequence[str], option(repeat=True, metavar="SLOT=CHOICE", help="A choice; one for each slot.")],
    shapes: Shapes | None = None,
) -> VerificationDocument:
    """Say whether an ONNX MODEL is the network that SPACE, or the space of TABLE, has for these choices.

    Compared are the units of both, a convolution with its batch normalisation as one, and not their order. Exits with 1
    where they differ.

    Raises GnomonError.
    """
    from gnomon.jobs.estimator import models

    given = job.described(space, None).space if is_table(Path(space)) else load_space(space)
    fixed = {name: tuple(sizes) for name, sizes in (shapes or {}).items()}
    return models.verify_net(given, dict(choice.partition("=")[::2] for choice in net), Path(model), fixed)


def _unused(out: PathLike, *, overwrite: bool) -> Path:
    """Where a file goes. UsageError where one would be replaced that may not be."""
    if not overwrite and Path(out).exists():
        raise UsageError(f"{out} is there already", hint="Give --out another path, or --overwrite it.")
    return Path(out)


def _nets(path: PathLike | None, described: Described, *, measured: bool = False) -> tuple[NetRow, ...]:
    """The nets of a csv; none without one."""
    return () if path is None else job.read_samples(Path(path), described, measured=measured)


def _measured_nets(paths: Sequence[PathLike], described: Described) -> dict[str, tuple[NetRow, ...]]:
    """The measured nets of other devices, by the name of their file."""
    return {str(path): _nets(path, described, measured=True) for path in paths}


def _drawn(
    evaluated: FitDocument | EvaluationDocument, picture: PathLike | None, tell: Callable[[str], None] | None
) -> tuple[str, ...]:
    """The paths of the pictures of an evaluation, where they are wanted."""
    if picture is None or evaluated.evaluation is None:
        return ()
    from gnomon.api.pictures import EVALUATION, draw

    return tuple(draw(EVALUATION, evaluated.evaluation, Path(picture), tell))
