"""`gnomon table`: latency tables of search spaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.help import group
from gnomon.cli.main import report_page, write_answer, write_json
from gnomon.cli.options import bench_options, html_option, options_of
from gnomon.cli.values import SettingValue, ShapeValue, complete_runtime, complete_space

_NOT_GOOD = 7
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output.")
_PATH = click.Path(path_type=Path)


@group(short_help="Measure every unit of a search space once, as a table.")
def table() -> None:
    """Latency tables: what each unit of a search space takes on a device. docs/jobs/table.md describes them."""


@table.command(short_help="Measure the units of a space on a device.")
@click.argument("what", metavar="SPACE", nargs=-1, required=True, shell_complete=complete_space)
@click.option("--from", "from_models", is_flag=True, help="The arguments are ONNX models, not a space.")
@click.option("--out", type=_PATH, metavar="DIR", help="The table.  [default: ./SPACE.table, or ./models.table]")
@click.option(
    "--shape", "shapes", type=ShapeValue(), multiple=True, metavar="NAME=1,3,224,224", help="Of inputs of the models."
)
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
    type=SettingValue(),
    metavar="KEY=VALUE",
    help="A setting of an external measuring tool, such as perf_profile=burst or runs=20 of snpe. May be repeated.",
)
@bench_options
@html_option
def build(
    what: tuple[str, ...],
    from_models: bool,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    out: Path | None,
    chains: tuple[str, ...],
    again: bool,
    settings: tuple[tuple[str, str], ...],
    html: Path | None,
    **values: Any,
) -> None:
    """Measure every unit of SPACE once: a name (gnomon table spaces), or FILE.py:ATTRIBUTE.

    With --from MODEL.. those of ONNX models, which price other models (gnomon estimator predict MODEL).
    Results are written as they are measured: the same command completes a table that was interrupted.
    """
    from gnomon.api import table as api
    from gnomon.cli.progress import Show

    as_json, quiet = values.pop("as_json"), values.pop("quiet")
    if "none" in chains and len(chains) > 1:
        raise click.UsageError("--fuse none stands alone")
    if len(dict(settings)) < len(settings):
        raise click.UsageError("--set gives a key twice")
    if not from_models and len(what) > 1:
        raise click.UsageError("a table is of one SPACE; for models give --from")
    fuse = None if not chains else [c for c in chains if c != "none"]
    with Show(quiet=quiet) as show:
        built = api.build_table(
            None if from_models else what[0],
            models=what if from_models else (),
            out=out,
            fuse=fuse,
            again=again,
            settings=dict(settings),
            on_progress=show.watch,
            on_message=show.tell,
            **options_of({**values, "shapes": shapes}),
        )
    write_answer(built.document(), as_json=as_json, html=html)


@table.command(short_help="List the search spaces that are known by name.")
@_JSON
def spaces(as_json: bool) -> None:
    """List the search spaces that are known by name: how many nets and units they have."""
    from gnomon.spaces.fuse import UNFUSED
    from gnomon.spaces.loading import known_spaces, load_space

    rows = []
    for name in known_spaces():
        tables = load_space(name).tables(UNFUSED)
        rows.append({"name": name, "nets": str(tables.nets()), "units": len(tables.units)})
    write_answer({"format": "gnomon-table-spaces", "version": 1, "spaces": rows}, as_json=as_json)


@table.command(short_help="Say whether a table can be trusted.")
@click.argument("path", type=_PATH, metavar="TABLE")
@click.option(
    "--space", shell_complete=complete_space, metavar="SPACE", help="The space it is for.  [default: the one it names]"
)
@_JSON
@html_option
def check(path: Path, space: str | None, as_json: bool, html: Path | None) -> int:
    """Check TABLE: report what it holds, and units that are missing, failed or unstable.

    Exits with 7 if there are any.
    """
    from gnomon.api import table as api

    found = api.check_table(path, space=space)
    write_answer(found, as_json=as_json, html=html)
    return _NOT_GOOD if found["complaints"] else 0


@table.command(short_help="Compare two tables unit by unit.")
@click.argument("first", type=_PATH, metavar="TABLE")
@click.argument("second", type=_PATH, metavar="TABLE")
@_JSON
@html_option
def diff(first: Path, second: Path, as_json: bool, html: Path | None) -> None:
    """Compare two tables: what differs in how they were measured, and each unit's times."""
    from gnomon.api import table as api

    write_answer(api.compare_tables(first, second), as_json=as_json, html=html)


@table.command(short_help="Join two tables that were measured in the same way.")
@click.argument("first", type=_PATH, metavar="TABLE")
@click.argument("second", type=_PATH, metavar="TABLE")
@click.option("--out", type=_PATH, required=True, metavar="DIR", help="The new table.")
@_JSON
@html_option
def merge(first: Path, second: Path, out: Path, as_json: bool, html: Path | None) -> None:
    """Join two tables of one context: of a unit that both hold, what was measured last."""
    from gnomon.api import table as api

    api.merge_tables(first, second, out=out)
    write_answer(api.check_table(out), as_json=as_json, html=html)


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
@_JSON
@html_option
def import_(file: Path, out: Path, as_json: bool, html: Path | None, **values: Any) -> None:
    """Make a table of FILE, a csv or json of nnabla-nas's SNPE profiler (its .meta beside it is kept).

    A file with several runtimes makes a table of each, DIR/RUNTIME, unless one is named.
    """
    from gnomon.api import table as api

    tables, left_out = api.import_tables(file, out=out, **values)
    for told in left_out:
        click.echo(f"skipped: {told}", err=True)
    found = [api.check_table(table) for table in tables]
    several = {"format": "gnomon-tables", "version": 1, "tables": found}
    write_answer(found[0] if tables == (out,) else several, as_json=as_json, html=html)


@table.command(short_help="Write a table as another tool's file.")
@click.argument("path", type=_PATH, metavar="TABLE", nargs=-1, required=True)
@click.option("--out", type=_PATH, required=True, metavar="FILE", help="A .csv or .json; with --nets, a folder.")
@click.option("--nets", type=_PATH, metavar="FILE", help="Write the table's sum for each net of this csv instead.")
@click.option(
    "--space", shell_complete=complete_space, metavar="SPACE", help="The space it is for.  [default: the one it names]"
)
@_JSON
def export(path: tuple[Path, ...], out: Path, nets: Path | None, space: str | None, as_json: bool) -> None:
    """Write TABLE as a csv or json of nnabla-nas's SNPE profiler, in microseconds, and its .meta beside it.

    Several tables of one space, of a runtime each, make one file with all of their runtimes, in the order given.
    With --nets the sums of its times are written as that tool accumulates them: OUT/000.json for the first net.
    """
    from gnomon.api import table as api

    files, left_out = api.export_table(path, out, nets=nets, space=space)
    for told in left_out:
        click.echo(f"skipped: {told}", err=True)
    if as_json:
        written = {"files": [str(f) for f in files], "left_out": list(left_out)}
        write_json({"format": "gnomon-table-export", "version": 1, **written})
        return

    page = report_page()
    for made in files:
        page.path("file", str(made))


@table.command(short_help="List a table of blocks, and add up a net's.")
@click.argument("file", type=_PATH, metavar="FILE")
@click.option("--sum", "names", multiple=True, metavar="NAME[,NAME]", help="Add these blocks up. May be repeated.")
@_JSON
def blocks(file: Path, names: tuple[str, ...], as_json: bool) -> None:
    """List FILE, a YAML table of blocks of the ProxylessNAS or OFA kind, and add up those that --sum names."""
    from gnomon.api import table as api

    document = api.sum_blocks(file, [name.strip() for text in names for name in text.split(",") if name.strip()])
    write_answer(document, as_json=as_json)
