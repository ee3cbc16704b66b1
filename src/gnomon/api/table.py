"""Latency tables from Python: what `gnomon table` does, as functions."""

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
NewTable = Annotated[PathLike, option(metavar="DIR", help="The new table.")]


def build_table(
    *what: Annotated[Any, option(metavar="SPACE", complete="space", least=1)],
    from_models: Annotated[
        bool, option("--from", help="The arguments are ONNX or TFLite models, not a space.")
    ] = False,
    out: Annotated[
        PathLike | None, option(metavar="DIR", help="The table.  [default: ./SPACE.table, or ./models.table]")
    ] = None,
    shapes: Shapes | None = None,
    fuse: Annotated[
        Sequence[str],
        option(
            repeat=True,
            metavar="Conv+Relu",
            help="This chain of operators runs as one; 'none': every operator by itself. May be repeated.  "
            "[default: as the runtime itself reports]",
        ),
    ] = (),
    again: Annotated[bool, option(help="Measure also the units that the table holds already.")] = False,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[MeasureOptions],
) -> TableDocument:
    """Measure every unit of SPACE once: a name (gnomon table spaces), or FILE.py:ATTRIBUTE.

    With --from MODEL.. those of ONNX or TFLite models, which price other models (gnomon estimator predict MODEL).
    A --shape is for each of them that leaves the input open, or for one: --shape MODEL@NAME=1,3,224,224.
    Results are written as they are measured: the same command completes a table that was interrupted.

    Raises GnomonError. From Python a space may be a `SearchSpace` too.
    """
    from gnomon.jobs.table.job import TableRequest
    from gnomon.jobs.table.job import build_table as build_job
    from gnomon.spaces.fuse import rules

    chains = [chain for chain in fuse if chain != "none"]
    if chains and len(chains) < len(fuse):
        raise UsageError("'none' stands alone among chains that run as one", hint="Give --fuse none, or chains.")
    asked = TableRequest(
        request=measure_request(options),
        space=(space := _space_of(what, from_models, shapes or {})),
        out=Path(out) if out is not None else Path(f"{space.name}.table"),
        rules=rules(chains) if fuse else None,
        again=again,
    )
    return build_job(asked, watch=on_progress, tell=on_message)


def _space_of(what: Sequence[Any], from_models: bool, shapes: Mapping[str, Sequence[int]]) -> SearchSpace:
    """The space of a table. UsageError without one, or with several."""
    if from_models and what:
        from gnomon.jobs.estimator.models import space_of_models

        return space_of_models([Path(model) for model in what], {name: tuple(s) for name, s in shapes.items()})
    if len(what) != 1:
        raise UsageError(f"a table is of one SPACE, and {len(what)} are given", hint="For models give --from MODEL..")
    return load_space(what[0]) if isinstance(what[0], str) else what[0]


def known_spaces() -> SpacesDocument:
    """List the search spaces that are known by name: how many nets and units they have.

    Raises GnomonError.
    """
    return look.list_spaces()


def check_table(path: Table, *, space: Space = None) -> TableDocument:
    """Check TABLE: report what it holds, and units that are missing, failed or unstable.

    Exits with 7 if there are any.

    Raises GnomonError.
    """
    return look.look(Path(path), space, CheckedTable)


def compare_tables(first: Table, second: Table) -> TableDiffDocument:
    """Compare two tables: what differs in how they were measured, and each unit's times.

    Raises GnomonError.
    """
    return look.compare(Path(first), Path(second))


def merge_tables(first: Table, second: Table, *, out: NewTable) -> TableDocument:
    """Join two tables of one context: of a unit that both hold, what was measured last.

    Raises GnomonError.
    """
    tables = (folder.read_table(Path(path)) for path in (first, second))
    folder.write_table(merged(*tables), Path(out), folder.kept_space(Path(first)) or folder.kept_space(Path(second)))
    return look.look(Path(out), None)


def import_tables(
    file: Annotated[PathLike, option(metavar="FILE")],
    *,
    space: Annotated[str, option(complete="space", metavar="SPACE", help="The space that its units belong to.")],
    runtime: Annotated[
        str | None, option(complete="runtime", metavar="NAME", help="Which runtime of the file.  [default: each]")
    ] = None,
    key: Annotated[str, option(metavar="NAME", help="Which time of the file.")] = "Layers Time",
    out: NewTable,
    on_message: Callable[[str], None] | None = None,
) -> TableDocument | TablesDocument:
    """Make a table of FILE, a csv or json of nnabla-nas's SNPE profiler (its .meta beside it is kept).

    A file with several runtimes makes a table of each, DIR/RUNTIME, unless one is named.

    Raises GnomonError. What is left out is said to `on_message`.
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
    out: Annotated[PathLike, option(metavar="FILE", help="A .csv or .json; with --nets, a folder.")],
    nets: Annotated[
        PathLike | None, option(metavar="FILE", help="Write the table's sum for each net of this csv instead.")
    ] = None,
    space: Space = None,
    on_message: Callable[[str], None] | None = None,
) -> TableExportDocument:
    """Write TABLE as a csv or json of nnabla-nas's SNPE profiler, in microseconds, and its .meta beside it.

    Several tables of one space, of a runtime each, make one file with all of their runtimes, in the order given.
    With --nets the sums of its times are written as that tool accumulates them: OUT/000.json for the first net.
    A table with fused units, which that tool does not know, becomes a csv with a line a unit.

    Raises GnomonError. What is left out is said to `on_message`.
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
