"""Latency tables and estimators from Python: what `gnomon table` and `gnomon estimator` do, as functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from gnomon.errors import UsageError
from gnomon.store.address import RecordLike, record_address

if TYPE_CHECKING:
    from gnomon.api.place import Options, PathLike
    from gnomon.formats.nets_csv import NetRow, UnitCount
    from gnomon.jobs.estimator.evaluation import Evaluation
    from gnomon.jobs.estimator.job import Described, SpaceEstimator
    from gnomon.jobs.estimator.models import ModelPrediction
    from gnomon.jobs.table.job import Built
    from gnomon.jobs.table.nets import NetsMeasured
    from gnomon.measure.progress import Watch
    from gnomon.spaces.loading import SearchSpace


def build_table(
    space: str | SearchSpace | None = None,
    *,
    models: Sequence[PathLike] = (),
    out: PathLike | None = None,
    fuse: Sequence[str] | None = None,
    again: bool = False,
    settings: Mapping[str, str] | None = None,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> Built:
    """Measure every unit of a search space once, into the table at `out` (./SPACE.table).

    `models` are ONNX files in the place of a space: their units are measured, into ./models.table; `shapes` fix
    inputs that they leave open.
    `fuse` are chains of operators that run as one, such as "Conv+Relu"; None: as the runtime itself tells. The same
    call completes a table that was interrupted; `again` measures all of it again. `settings` are for a tool that
    measures by itself, such as snpe (docs/runtimes/snpe.md). Raises GnomonError.
    """
    from gnomon.api.place import request_of
    from gnomon.jobs.table.job import TableRequest
    from gnomon.jobs.table.job import build_table as build_job
    from gnomon.runtimes.snpe import bench_tools
    from gnomon.session.bench.tool import tool_of, tool_runtime
    from gnomon.spaces.fuse import rules
    from gnomon.spaces.loading import load_space

    if (space is None) == (not models):
        raise UsageError("a table is of a space or of models", hint="Give one of both.")
    if space is None:
        from gnomon.jobs.estimator.models import space_of_models

        shapes = {name: tuple(shape) for name, shape in (options.get("shapes") or {}).items()}
        found: SearchSpace = space_of_models([Path(model) for model in models], shapes)
    else:
        found = load_space(space) if isinstance(space, str) else space
    asked = TableRequest(
        request=request_of(os.devnull, options),
        space=found,
        out=Path(out) if out is not None else Path(f"{found.name}.table"),
        rules=None if fuse is None else rules(fuse),
        again=again,
    )
    tool = tool_of(asked.request)
    if tool is not None:
        asked = replace(asked, tool=tool_runtime(tool, asked.request, settings or {}, on_message))
    elif settings:
        known = ", ".join(bench_tools())
        raise UsageError(
            f"{', '.join(settings)}: only tools that measure by themselves have settings", hint=f"Tools: {known}."
        )
    return build_job(asked, watch=on_progress, tell=on_message)


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
    from gnomon.estimate.design import Bound
    from gnomon.formats.nets_csv import NetRow
    from gnomon.jobs.estimator.job import described, load_estimator, read_samples, save_nets
    from gnomon.jobs.estimator.job import suggest_nets as suggest_job

    _unused(out, overwrite=overwrite)
    found = described(_path(table), space, work=work)
    if (bound_s is None) != (near is None):
        raise UsageError("a bound needs an estimator, and the other way round", hint="Give --bound and --estimator.")
    bound = None
    if near is not None and bound_s is not None:
        bound = Bound(bound_s=bound_s, estimator=load_estimator(Path(near), space).estimator)
    rows = read_samples(Path(given), found, measured=False) if given is not None else ()
    choice = None if pool is None else [r.assignment for r in read_samples(Path(pool), found, measured=False)]
    more = {str(other): read_samples(Path(other), found, measured=True) for other in others}
    nets = suggest_job(found, count, pool=choice, given=rows, near=bound, others=more, seed=seed)
    if out is not None:
        save_nets([NetRow(assignment=net) for net in nets], found.space.space, Path(out), measured=False)
    return found, nets


def measure_nets(
    nets: PathLike,
    *,
    table: PathLike,
    space: str | None = None,
    out: PathLike | None = None,
    overwrite: bool = False,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> tuple[Described, NetsMeasured]:
    """Measure the nets of a csv as the table was measured; `out` is a csv that gets them with their latencies, which
    must not be there unless it may be overwritten.

    Raises GnomonError; the same call goes on from there.
    """
    from gnomon.api.place import request_of
    from gnomon.jobs.estimator.job import described, read_samples, save_nets
    from gnomon.jobs.table.nets import measure_nets as measure_job
    from gnomon.session.bench.tool import tool_of
    from gnomon.system.files import check_file

    _unused(out, overwrite=overwrite)
    if out is not None:
        check_file(Path(out))
    found = described(Path(table), space)
    assert found.table is not None  # noqa: S101  # a table was given
    rows = read_samples(Path(nets), found, measured=False)
    request = request_of(os.devnull, options)
    named = found.table.manifest.context.get("runtime")
    if not request.runtimes and isinstance(named, str):
        request = replace(request, runtimes=(named,))
    chosen = [row.assignment for row in rows]
    tool = tool_of(request)
    made = measure_job(request, found.space, found.table, chosen, tool=tool, watch=on_progress, tell=on_message)
    if out is not None:
        save_nets(made.rows, found.space.space, Path(out), measured=True)
    return found, made


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
) -> tuple[SpaceEstimator, Evaluation | None, dict[str, Any]]:
    """Fit an estimator; returns it, how good it is on nets held out (None: fewer than 4), and both as JSON values.

    `out` is the file that gets it, which must not be there unless it may be overwritten. `work` is a function of a
    unit, as FILE.py:FUNCTION. Raises GnomonError.
    """
    from gnomon.core import codec
    from gnomon.estimate.columns import FitOptions
    from gnomon.jobs.estimator.document import FitDocument, evaluation_part
    from gnomon.jobs.estimator.evaluation import LEAST_TO_HOLD_OUT, cross_validate
    from gnomon.jobs.estimator.job import described, read_samples, save_estimator, sources_of
    from gnomon.jobs.estimator.job import fit_estimator as fit_job

    _unused(out, overwrite=overwrite)
    found = described(_path(table), space, work=work)
    options = FitOptions(coverage=coverage)
    rows = read_samples(Path(samples), found, measured=True) if samples is not None else ()
    read = {str(other): read_samples(Path(other), found, measured=True) for other in others}
    more = {one.name: one for one in sources_of(found, read)}  # once, and not a fold
    made = fit_job(found, rows, others=more, options=options)
    evaluation = cross_validate(found, rows, others=more, options=options) if len(rows) >= LEAST_TO_HOLD_OUT else None
    if out is not None:
        save_estimator(made, Path(out))
    document = FitDocument(
        format="gnomon-estimator-fit",
        version=1,
        space=found.space.name,
        samples=len(rows),
        units=len(found.tables.units),
        priced=0 if found.table is None else sum(u in found.table.times_s for u in found.tables.units),
        sum_over_measured=found.sum_over_measured(rows),
        context=made.context,
        noise=made.estimator.noise.relative,
        unknown=tuple(found.label(n) for n, k in zip(found.columns.names, made.estimator.known, strict=True) if not k),
        learner=made.estimator.residual is not None,
        evaluation=evaluation_part(evaluation) if evaluation else None,
        file=None if out is None else str(out),
    )
    return made, evaluation, codec.document(document)


def evaluate_estimator(path: PathLike, samples: PathLike, *, space: str | None = None) -> dict[str, Any]:
    """What an estimator's file predicts of measured nets that it was not fitted to, as JSON values.

    Raises GnomonError.
    """
    from gnomon.core import codec
    from gnomon.jobs.estimator.document import EvaluationDocument, evaluation_part
    from gnomon.jobs.estimator.evaluation import evaluate
    from gnomon.jobs.estimator.job import load_estimator, read_samples

    made = load_estimator(Path(path), space)
    rows = read_samples(Path(samples), made.described, measured=True)
    return codec.document(
        EvaluationDocument(
            format="gnomon-estimator-evaluation",
            version=1,
            space=made.described.space.name,
            file=str(path),
            evaluation=evaluation_part(evaluate(made, rows)),
        )
    )


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
    from gnomon.core import codec
    from gnomon.estimate.columns import Unknown
    from gnomon.formats.nets_csv import NetRow
    from gnomon.jobs.estimator.document import PredictedNet, PredictionsDocument
    from gnomon.jobs.estimator.job import load_estimator, read_samples, save_nets

    _unused(out, overwrite=overwrite)
    made = load_estimator(Path(path), space)
    rows = read_samples(Path(nets), made.described, measured=False)
    unknown = Unknown.WIDEN if widen else Unknown.REFUSE
    chosen = [row.assignment for row in rows]
    found = made.predict(chosen, unknown=unknown)
    below = (
        [None] * len(rows)
        if bound_s is None
        else made.estimator.probability(made.described.rows(chosen), bound_s, unknown=unknown).tolist()
    )
    told = tuple(
        NetRow(assignment=net, latency_s=float(mean), low_s=float(low), high_s=float(high))
        for net, mean, low, high in zip(chosen, found.mean_s, found.low_s, found.high_s, strict=True)
    )
    document = PredictionsDocument(
        format="gnomon-estimator-predictions",
        version=1,
        space=made.described.space.name,
        coverage=made.estimator.noise.coverage,
        bound_s=bound_s,
        nets=tuple(
            PredictedNet(latency_s=r.latency_s, low_s=r.low_s, high_s=r.high_s, below=p)
            for r, p in zip(told, below, strict=True)
        ),
        file=None if out is None else str(out),
    )
    if out is not None:
        save_nets(told, made.described.space.space, Path(out), measured=True)
    return made.described, told, codec.document(document)


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
    from gnomon.jobs.estimator.models import predict_model as predict_job
    from gnomon.jobs.estimator.models import tables_of

    chosen = [Path(table) for table in tables] or tables_of(device, None if record is None else record_address(record))
    return predict_job(Path(model), chosen, shapes=shapes, coverage=coverage)


def explain_net(path: PathLike, nets: PathLike, *, space: str | None = None) -> dict[str, Any]:
    """What each unit of the first net of a csv adds to its time, and to the doubt, as JSON values.

    Raises GnomonError.
    """
    from gnomon.core import codec
    from gnomon.estimate.columns import Unknown
    from gnomon.jobs.estimator.document import ExplainedPart, ExplanationDocument
    from gnomon.jobs.estimator.job import load_estimator, read_samples

    made = load_estimator(Path(path), space)
    rows = read_samples(Path(nets), made.described, measured=False)
    matrix = made.described.rows([rows[0].assignment])
    predicted = made.estimator.predict(matrix, unknown=Unknown.WIDEN)
    return codec.document(
        ExplanationDocument(
            format="gnomon-estimator-explanation",
            version=1,
            latency_s=float(predicted.mean_s[0]),
            low_s=float(predicted.low_s[0]),
            high_s=float(predicted.high_s[0]),
            parts=tuple(
                ExplainedPart(unit=made.described.label(d.column), time_s=d.time_s, share=d.share)
                for d in made.estimator.explain(matrix[0])
            ),
        )
    )


def load_estimator(path: PathLike, space: str | None = None) -> SpaceEstimator:
    """Read an estimator's file; `space` says where its space is, where it is not a shipped one. Raises GnomonError."""
    from gnomon.jobs.estimator.job import load_estimator as load

    return load(Path(path), space)


def export_estimator(path: PathLike, *, space: str | None = None, out: PathLike, overwrite: bool = False) -> None:
    """Write an estimator's file as one Python file that needs numpy alone. Raises GnomonError."""
    from gnomon.estimate.export import export_estimator as exported
    from gnomon.jobs.estimator.job import load_estimator, space_document
    from gnomon.system.files import save_text

    _unused(out, overwrite=overwrite)
    made = load_estimator(Path(path), space)
    save_text(exported(made.estimator, space_document(made.described)), Path(out))


def import_nets(
    latencies: PathLike, *, archs: PathLike, space: str, out: PathLike | None = None, overwrite: bool = False
) -> tuple[tuple[NetRow, ...], tuple[str, ...]]:
    """Nets and latencies of HELP's files, which PyTorch saved; returns them, and in sentences which have no latency.

    `latencies` is its latency/DEVICE.pt, `archs` its metainfo.pt, ofa_archs.pt or str_arch2idx.pt, of `space`. `out`
    is a csv that gets the nets; a file there is an error unless it may be overwritten. Raises GnomonError.
    """
    from gnomon.jobs.estimator.help_files import import_nets as imported
    from gnomon.jobs.estimator.job import save_nets

    _unused(out, overwrite=overwrite)
    found = imported(Path(latencies), Path(archs), space)
    if out is not None:
        save_nets(found.rows, found.space.space, Path(out), measured=True)
    return found.rows, found.told


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
    from gnomon.formats.nets_csv import write_counts
    from gnomon.jobs.estimator.job import count_units as counted
    from gnomon.jobs.estimator.job import described, described_space, load_estimator, read_samples
    from gnomon.spaces.loading import load_space
    from gnomon.system.files import save_text

    _unused(out, overwrite=overwrite)
    if table is not None and estimator is not None:
        raise UsageError("the units are those of a table or of an estimator", hint="Give one of both.")
    if estimator is not None:
        found = load_estimator(Path(estimator), space).described
    elif table is None and space is not None:
        found = described_space(load_space(space), chains=())
    elif table is None:
        raise UsageError("nothing says what units are", hint="Give --space SPACE, --table DIR or --estimator JSON.")
    else:
        found = described(Path(table), space)
    rows = counted(found, read_samples(Path(nets), found, measured=False))
    if out is not None:
        save_text(write_counts(rows), Path(out))
    return rows


def check_table(path: PathLike, *, space: str | None = None) -> dict[str, Any]:
    """What a table holds, and under "complaints" what speaks against it, as JSON values. Raises GnomonError."""
    from gnomon.jobs.table.look import look

    return look(Path(path), space)


def compare_tables(first: PathLike, second: PathLike) -> dict[str, Any]:
    """How two tables differ: what they were measured with, and each unit that both hold. Raises GnomonError."""
    from gnomon.jobs.table.look import compare

    return compare(Path(first), Path(second))


def merge_tables(first: PathLike, second: PathLike, *, out: PathLike) -> None:
    """Join two tables of one context into a new one: of a unit that both hold, what was measured last.

    Raises GnomonError.
    """
    from gnomon.jobs.table.folder import read_table, write_table
    from gnomon.spaces.latency_table import merged

    write_table(merged(read_table(Path(first)), read_table(Path(second))), Path(out))


def import_table(
    file: PathLike, *, space: str, out: PathLike, runtime: str | None = None, key: str = "Layers Time"
) -> tuple[str, ...]:
    """Make a table of a csv or json of nnabla-nas's SNPE profiler; returns in sentences what of it was left out.

    `runtime` and `key` say which of the file's; None: of each of its runtimes, as `import_tables` does.
    Raises GnomonError.
    """
    return import_tables(file, space=space, out=out, runtime=runtime, key=key)[1]


def import_tables(
    file: PathLike, *, space: str, out: PathLike, runtime: str | None = None, key: str = "Layers Time"
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Make tables of a csv or json of nnabla-nas's SNPE profiler; returns where they are, and what of it was left out.

    Of a file with several runtimes each has its own table, `out`/RUNTIME; one runtime, or the one that is named, makes
    a table at `out` itself. `key` says which of the file's times. Raises GnomonError.
    """
    from gnomon.jobs.table.exchange import import_table as imported
    from gnomon.jobs.table.exchange import import_tables as imported_all

    if runtime is not None:
        return (Path(out),), imported(Path(file), Path(out), space=space, runtime=runtime, key=key)[1]
    tables, told = imported_all(Path(file), Path(out), space=space, key=key)
    return tuple(tables), told


def export_table(
    path: PathLike | Sequence[PathLike], out: PathLike, *, nets: PathLike | None = None, space: str | None = None
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Write a table as nnabla-nas's SNPE profiler does; with a csv of `nets` its sum for each of them, into a folder.

    Several tables, of one space and a runtime each, make one file that has all of their runtimes.
    Returns the files, and in sentences what was left out. Raises GnomonError.
    """
    from gnomon.jobs.table.exchange import export_sums
    from gnomon.jobs.table.exchange import export_table as exported

    paths = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(one) for one in path]
    if nets is not None:
        return export_sums(paths, Path(nets), Path(out), space), ()
    return exported(paths, Path(out), space)


def sum_blocks(file: PathLike, names: Sequence[str] = ()) -> dict[str, Any]:
    """The blocks of a YAML table of the ProxylessNAS or OFA kind, in seconds, and the sum of those named: JSON values.

    Raises GnomonError.
    """
    from gnomon.jobs.table.look import blocks_document

    return blocks_document(Path(file), names)


def _unused(out: PathLike | None, *, overwrite: bool) -> None:
    """UsageError where a file would be replaced that may not be."""
    if out is not None and not overwrite and Path(out).exists():
        raise UsageError(f"{out} is there already", hint="Give --out another path, or --overwrite it.")


def _path(path: PathLike | None) -> Path | None:
    return None if path is None else Path(path)
