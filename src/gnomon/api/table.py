"""`gnomon table` as functions: latency tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Unpack

from gnomon.api.options import MeasureOptions, PathLike, Shapes, Space, measure_request, skipped
from gnomon.errors import UsageError
from gnomon.jobs.table import folder, look
from gnomon.jobs.table.document import (
    CheckedTable,
    SpacesDocument,
    TableDiffDocument,
    TableDocument,
    TableExportDocument,
    TablesDocument,
)
from gnomon.measure.progress import Watch
from gnomon.options import option
from gnomon.spaces.latency_table import merged
from gnomon.spaces.loading import SearchSpace, load_space

Table = Annotated[PathLike, option(metavar="TABLE")]
NewTable = Annotated[PathLike, option(metavar="DIR", help="The folder of the new table.")]


def build_table(
    *what: Annotated[Any, option(metavar="SPACE", complete="space", least=1)],
    from_models: Annotated[bool, option("--from", help="Use ONNX or TFLite models instead of a space.")] = False,
    out: Annotated[
        PathLike | None,
        option(metavar="DIR", help="The folder of the table.  [default: ./SPACE.table, or ./models.table]"),
    ] = None,
    shapes: Shapes | None = None,
    fuse: Annotated[
        Sequence[str],
        option(
            repeat=True,
            metavar="Conv+Relu",
            help="Measure this chain of operators as one unit; 'none': measure each operator alone. May be repeated.  "
            "[default: the chains that the runtime reports]",
        ),
    ] = (),
    again: Annotated[bool, option(help="Also measure units that the table already has.")] = False,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[MeasureOptions],
) -> TableDocument:
    """Measure every unit of SPACE once. SPACE is a name (gnomon table spaces), or FILE.py:ATTRIBUTE.

    With --from MODEL.., measure the units of ONNX or TFLite models; their times price other models (gnomon estimator
    predict MODEL). A --shape applies to each model that leaves the input open, or to one model: --shape
    MODEL@NAME=1,3,224,224. Each result is written at once: after an interruption, the same command resumes.

    Raises GnomonError. From Python, a space may also be a `SearchSpace`.
    """
    from gnomon.jobs.table.job import TableRequest
    from gnomon.jobs.table.job import build_table as build_job
    from gnomon.spaces.fuse import rules

    chains = [chain for chain in fuse if chain != "none"]
    if chains and len(chains) < len(fuse):
        raise UsageError("--fuse none cannot be combined with chains", hint="Give --fuse none alone, or only chains.")
    asked = TableRequest(
        request=measure_request(options),
        space=(space := _space_of(what, from_models, shapes or {})),
        out=Path(out) if out is not None else Path(f"{space.name}.table"),
        rules=rules(chains) if fuse else None,
        again=again,
    )
    return build_job(asked, watch=on_progress, tell=on_message)


def _space_of(what: Sequence[Any], from_models: bool, shapes: Mapping[str, Sequence[int]]) -> SearchSpace:
    """The space of a table. UsageError if there is not exactly one."""
    if from_models and what:
        from gnomon.jobs.estimator.models import space_of_models

        return space_of_models([Path(model) for model in what], {name: tuple(s) for name, s in shapes.items()})
    if len(what) != 1:
        raise UsageError(f"a table needs one SPACE, but {len(what)} are given", hint="For models, give --from MODEL..")
    return load_space(what[0]) if isinstance(what[0], str) else what[0]


def known_spaces() -> SpacesDocument:
    """List the named search spaces, with their numbers of nets and units.

    Raises GnomonError.
    """
    return look.list_spaces()


def check_table(path: Table, *, space: Space = None) -> TableDocument:
    """Check TABLE: report its contents, and the missing, failed or unstable units.

    Exits with 7 if there are such units.

    Raises GnomonError.
    """
    return look.look(Path(path), space, CheckedTable)


def compare_tables(first: Table, second: Table) -> TableDiffDocument:
    """Compare two tables: the conditions of their measurements, and the times of each unit.

    Raises GnomonError.
    """
    return look.compare(Path(first), Path(second))


def merge_tables(first: Table, second: Table, *, out: NewTable) -> TableDocument:
    """Merge two tables with the same context. If both contain a unit, its newest measurement counts.

    Raises GnomonError.
    """
    tables = (folder.read_table(Path(path)) for path in (first, second))
    folder.write_table(merged(*tables), Path(out), folder.kept_space(Path(first)) or folder.kept_space(Path(second)))
    return look.look(Path(out), None)


def import_tables(
    file: Annotated[PathLike, option(metavar="FILE")],
    *,
    space: Annotated[str, option(complete="space", metavar="SPACE", help="The space of the units.")],
    runtime: Annotated[
        str | None,
        option(complete="runtime", metavar="NAME", help="Only this runtime of the file.  [default: every runtime]"),
    ] = None,
    key: Annotated[str, option(metavar="NAME", help="Use this time of the file.")] = "Layers Time",
    out: NewTable,
    on_message: Callable[[str], None] | None = None,
) -> TableDocument | TablesDocument:
    """Convert FILE, a csv or json of nnabla-nas's SNPE profiler, to a table. A .meta file next to it is kept.

    A file with several runtimes is converted to one table per runtime, DIR/RUNTIME, unless --runtime is given.

    Raises GnomonError. `on_message` is called with the parts that are left out.
    """
    from gnomon.jobs.table import exchange

    paths, left_out = exchange.import_tables(Path(file), Path(out), space=space, runtime=runtime, key=key)
    skipped(left_out, on_message)
    tables = tuple(look.look(path, None) for path in paths)
    if tuple(paths) == (Path(out),):
        return tables[0]
    return TablesDocument(tables=tables)


def export_table(
    *tables: Annotated[PathLike, option(metavar="TABLE", least=1)],
    out: Annotated[PathLike, option(metavar="FILE", help="A .csv or .json file; with --nets, a folder.")],
    nets: Annotated[
        PathLike | None, option(metavar="FILE", help="Instead, write the sum of unit times for each net of this csv.")
    ] = None,
    space: Space = None,
    on_message: Callable[[str], None] | None = None,
) -> TableExportDocument:
    """Write TABLE as a csv or json of nnabla-nas's SNPE profiler, in microseconds, with a .meta file next to it.

    Several tables of one space, each of a different runtime, are written to one file, in the given order. With --nets,
    the sums of the units' times are written as the profiler accumulates them, beginning with OUT/000.json. Because the
    profiler does not know fused units, a table with such units is written as a csv with one line per unit.

    Raises GnomonError. `on_message` is called with the parts that are left out.
    """
    from gnomon.jobs.table import exchange

    paths = [Path(table) for table in tables]
    left_out: tuple[str, ...] = ()
    if nets is not None:
        files = exchange.export_sums(paths, Path(nets), Path(out), space)
    else:
        files, left_out = exchange.export_table(paths, Path(out), space)
    skipped(left_out, on_message)
    return TableExportDocument(files=tuple(map(str, files)), left_out=tuple(left_out))
