"""`gnomon table`: latency tables of search spaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.help import group
from gnomon.cli.main import answering, showing
from gnomon.cli.options import bench_options, by_name, html_option, json_option, models_shape_option
from gnomon.cli.values import complete_runtime, complete_space, setting

_NOT_GOOD = 7
_PATH = click.Path(path_type=Path)


@group(short_help="Measure every unit of a search space once, as a table.")
def table() -> None:
    """Latency tables: what each unit of a search space takes on a device. docs/jobs/table.md describes them."""


@table.command(short_help="Measure the units of a space on a device.")
@click.argument("what", metavar="SPACE", nargs=-1, required=True, shell_complete=complete_space)
@click.option("--from", "from_models", is_flag=True, help="The arguments are ONNX models, not a space.")
@click.option("--out", type=_PATH, metavar="DIR", help="The table.  [default: ./SPACE.table, or ./models.table]")
@models_shape_option
@click.option(
    "--fuse",
    "chains",
    multiple=True,
    metavar="Conv+Relu",
    help="This chain of operators runs as one; 'none': every operator by itself. May be repeated.  "
    "[default: as the runtime itself reports]",
)
@click.option("--again", is_flag=True, help="Measure also the units that the table holds already.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=setting,
    callback=by_name,
    metavar="KEY=VALUE",
    help="A setting of an external measuring tool, such as perf_profile=burst or runs=20 of snpe. May be repeated.",
)
@bench_options
@html_option
@answering
@showing()
def build(*, what: tuple[str, ...], from_models: bool, chains: tuple[str, ...], **values: Any) -> Any:
    """Measure every unit of SPACE once: a name (gnomon table spaces), or FILE.py:ATTRIBUTE.

    With --from MODEL.. those of ONNX models, which price other models (gnomon estimator predict MODEL).
    Results are written as they are measured: the same command completes a table that was interrupted.
    """
    from gnomon.api import table as api

    if "none" in chains and len(chains) > 1:
        raise click.UsageError("--fuse none stands alone")
    if not from_models and len(what) > 1:
        raise click.UsageError("a table is of one SPACE; for models give --from")
    values["fuse"] = [chain for chain in chains if chain != "none"] if chains else None
    return api.build_table(None, models=what, **values) if from_models else api.build_table(what[0], **values)


@table.command(short_help="List the search spaces that are known by name.")
@json_option
@answering
def spaces() -> Any:
    """List the search spaces that are known by name: how many nets and units they have."""
    from gnomon.spaces.fuse import UNFUSED
    from gnomon.spaces.loading import known_spaces, load_space

    rows = []
    for name in known_spaces():
        tables = load_space(name).tables(UNFUSED)
        rows.append({"name": name, "nets": str(tables.nets()), "units": len(tables.units)})
    return {"format": "gnomon-table-spaces", "version": 1, "spaces": rows}


@table.command(short_help="Say whether a table can be trusted.")
@click.argument("path", type=_PATH, metavar="TABLE")
@click.option(
    "--space", shell_complete=complete_space, metavar="SPACE", help="The space it is for.  [default: the one it names]"
)
@json_option
@html_option
@answering
def check(*, path: Path, space: str | None) -> Any:
    """Check TABLE: report what it holds, and units that are missing, failed or unstable.

    Exits with 7 if there are any.
    """
    from gnomon.api import table as api

    document = api.check_table(path, space=space)
    return document, _NOT_GOOD if document["complaints"] else 0


@table.command(short_help="Compare two tables unit by unit.")
@click.argument("first", type=_PATH, metavar="TABLE")
@click.argument("second", type=_PATH, metavar="TABLE")
@json_option
@html_option
@answering
def diff(*, first: Path, second: Path) -> Any:
    """Compare two tables: what differs in how they were measured, and each unit's times."""
    from gnomon.api import table as api

    return api.compare_tables(first, second)


@table.command(short_help="Join two tables that were measured in the same way.")
@click.argument("first", type=_PATH, metavar="TABLE")
@click.argument("second", type=_PATH, metavar="TABLE")
@click.option("--out", type=_PATH, required=True, metavar="DIR", help="The new table.")
@json_option
@html_option
@answering
def merge(*, first: Path, second: Path, out: Path) -> Any:
    """Join two tables of one context: of a unit that both hold, what was measured last."""
    from gnomon.api import table as api

    api.merge_tables(first, second, out=out)
    return api.check_table(out)


@table.command("import", short_help="Make a table of another tool's file.")
@click.argument("file", type=_PATH, metavar="FILE")
@click.option(
    "--space", shell_complete=complete_space, required=True, metavar="SPACE", help="The space that its units belong to."
)
@click.option(
    "--runtime", shell_complete=complete_runtime, metavar="NAME", help="Which runtime of the file.  [default: each]"
)
@click.option("--key", metavar="NAME", default="Layers Time", show_default=True, help="Which time of the file.")
@click.option("--out", type=_PATH, required=True, metavar="DIR", help="The new table.")
@json_option
@html_option
@answering
def import_(*, file: Path, out: Path, **values: Any) -> Any:
    """Make a table of FILE, a csv or json of nnabla-nas's SNPE profiler (its .meta beside it is kept).

    A file with several runtimes makes a table of each, DIR/RUNTIME, unless one is named.
    """
    from gnomon.api import table as api

    tables, left_out = api.import_tables(file, out=out, **values)
    for told in left_out:
        click.echo(f"skipped: {told}", err=True)
    documents = [api.check_table(table) for table in tables]
    return documents[0] if tables == (out,) else {"format": "gnomon-tables", "version": 1, "tables": documents}


@table.command(short_help="Write a table as another tool's file.")
@click.argument("path", type=_PATH, metavar="TABLE", nargs=-1, required=True)
@click.option("--out", type=_PATH, required=True, metavar="FILE", help="A .csv or .json; with --nets, a folder.")
@click.option("--nets", type=_PATH, metavar="FILE", help="Write the table's sum for each net of this csv instead.")
@click.option(
    "--space", shell_complete=complete_space, metavar="SPACE", help="The space it is for.  [default: the one it names]"
)
@json_option
@answering
def export(*, path: tuple[Path, ...], out: Path, nets: Path | None, space: str | None) -> Any:
    """Write TABLE as a csv or json of nnabla-nas's SNPE profiler, in microseconds, and its .meta beside it.

    Several tables of one space, of a runtime each, make one file with all of their runtimes, in the order given.
    With --nets the sums of its times are written as that tool accumulates them: OUT/000.json for the first net.
    """
    from gnomon.api import table as api

    files, left_out = api.export_table(path, out, nets=nets, space=space)
    for told in left_out:
        click.echo(f"skipped: {told}", err=True)
    written = {"files": [str(file) for file in files], "left_out": list(left_out)}
    return {"format": "gnomon-table-export", "version": 1, **written}


@table.command(short_help="List a table of blocks, and add up a net's.")
@click.argument("file", type=_PATH, metavar="FILE")
@click.option("--sum", "names", multiple=True, metavar="NAME[,NAME]", help="Add these blocks up. May be repeated.")
@json_option
@answering
def blocks(*, file: Path, names: tuple[str, ...]) -> Any:
    """List FILE, a YAML table of blocks of the ProxylessNAS or OFA kind, and add up those that --sum names."""
    from gnomon.api import table as api

    return api.sum_blocks(file, [name.strip() for text in names for name in text.split(",") if name.strip()])
