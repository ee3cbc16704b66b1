"""`gnomon estimator`: latencies of nets that were never measured."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from gnomon.cli.help import group
from gnomon.cli.main import answering, showing
from gnomon.cli.options import bench_options, html_option, json_option, models_shape_option
from gnomon.cli.values import RECORD, complete_space, latency

_PATH = click.Path(path_type=Path)
_TABLE = click.option("--table", type=_PATH, metavar="DIR", help="The table of the space.")
_SPACE = click.option(
    "--space",
    shell_complete=complete_space,
    metavar="SPACE",
    help="The space, where it is not the one that is named there.",
)
_WORK = click.option(
    "--work", metavar="FILE.py:FUNCTION", help="A Python function that returns further features of a unit; it is run."
)
_OTHER = click.option(
    "--other",
    "others",
    type=_PATH,
    multiple=True,
    metavar="CSV",
    help="Measured nets of another device. May be repeated.",
)
_OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace the file if it is there.")
_SEED = click.option("--seed", type=click.IntRange(0, 2**31 - 2), default=0, show_default=True, metavar="N")


@group(short_help="Predict the latency of nets that were never measured.")
def estimator() -> None:
    """Estimators: the latency of any net of a search space, from a table and whole nets. See docs/jobs/estimator.md."""


@estimator.command("suggest", short_help="Say which nets to measure, before any is measured.")
@_TABLE
@_SPACE
@click.option(
    "--k", "count", type=click.IntRange(1, 2000), help="How many nets.  [default: 10, or all where there are fewer]"
)
@click.option("--pool", type=_PATH, metavar="CSV", help="Nets to choose from.  [default: drawn from the space]")
@click.option("--given", type=_PATH, metavar="CSV", help="Nets that are measured already.")
@_OTHER
@_WORK
@click.option("--estimator", "near", type=_PATH, metavar="JSON", help="With --bound: says which nets are near it.")
@click.option("--bound", "bound_s", type=latency, metavar="2ms", help="Half of the nets are taken near this latency.")
@_SEED
@click.option("--out", type=_PATH, default=Path("nets.csv"), show_default=True, metavar="CSV", help="The nets.")
@_OVERWRITE
@json_option
@answering
def suggest_(*, out: Path, **values: Any) -> Any:
    """Choose the nets that an estimator learns the most from, and write them as csv."""
    from gnomon.api import estimator as api

    found, nets = api.suggest_nets(out=out, **values)
    return _written("suggest", out, nets=[list(found.space.space.names(net)) for net in nets])


@estimator.command("measure", short_help="Measure whole nets as the table was measured.")
@click.argument("nets", type=_PATH, metavar="CSV")
@click.option("--table", type=_PATH, required=True, metavar="DIR", help="The table of the space.")
@_SPACE
@click.option(
    "--out", type=_PATH, default=Path("measured.csv"), show_default=True, metavar="CSV", help="Nets and latencies."
)
@_OVERWRITE
@bench_options
@html_option
@answering
@showing()
def measure_(*, nets: Path, out: Path, **values: Any) -> Any:
    """Measure the nets of CSV beside the table's reference kernel. After an interruption it resumes."""
    from gnomon.api import estimator as api

    _, measured = api.measure_nets(nets, out=out, **values)
    return measured.document() | {"file": str(out)}


@estimator.command("fit", short_help="Fit to measured nets.")
@_TABLE
@_SPACE
@click.option("--samples", type=_PATH, metavar="CSV", help="Measured nets. Without them it is the table's sum.")
@_OTHER
@_WORK
@click.option("--coverage", type=click.FloatRange(0.5, 0.999), default=0.9, show_default=True, help="Of intervals.")
@click.option("--out", "-o", type=_PATH, default=Path("estimator.json"), show_default=True, metavar="JSON")
@_OVERWRITE
@click.option(
    "--picture", type=_PATH, metavar="PATH", help="Write PATH.svg and PATH.png: what it predicts of nets held out."
)
@json_option
@html_option
@answering
def fit_(**values: Any) -> Any:
    """Fit an estimator to a table and the measured nets of --samples, and say how good it is on nets held out."""
    from gnomon.api import estimator as api

    return api.fit_estimator(on_message=_message, **values)[2]


@estimator.command("eval", short_help="Compare predictions with nets held out.")
@click.argument("path", type=_PATH, metavar="ESTIMATOR")
@click.argument("samples", type=_PATH, metavar="CSV")
@_SPACE
@click.option("--picture", type=_PATH, metavar="PATH", help="Write PATH.svg and PATH.png.")
@json_option
@html_option
@answering
def eval_(*, path: Path, samples: Path, **values: Any) -> Any:
    """Compare ESTIMATOR's predictions with the measured nets of CSV, and with the limit that noise sets."""
    from gnomon.api import estimator as api

    return api.evaluate_estimator(path, samples, on_message=_message, **values)


@estimator.command("predict", short_help="Predict nets of a csv, or any model.")
@click.argument("path", type=_PATH, metavar="ESTIMATOR|MODEL")
@click.argument("nets", type=_PATH, metavar="[CSV]", required=False)
@_SPACE
@click.option("--widen", is_flag=True, help="Units without any measurement widen the interval.  [default: refuse]")
@click.option("--bound", "bound_s", type=latency, metavar="2ms", help="Show the probability of staying below it.")
@click.option("--out", type=_PATH, metavar="CSV", help="Nets with latency_s, low_s and high_s.")
@_OVERWRITE
@click.option("--table", "tables", type=_PATH, multiple=True, metavar="DIR", help="Price MODEL by it. May be repeated.")
@click.option(
    "--device", metavar="NAME", help="Price MODEL by the tables that were built there.  [default: this machine]"
)
@models_shape_option
@RECORD
@json_option
@html_option
@answering
def predict_(*, path: Path, nets: Path | None, out: Path | None, **values: Any) -> Any:
    """Predict the latency of the nets of CSV by ESTIMATOR, or that of an ONNX MODEL by tables, with intervals."""
    from gnomon.api import estimator as api

    model = {name: values.pop(name) for name in ("tables", "device", "shapes", "record")}
    if nets is None and path.suffix != ".json":
        _refuse("nets of a csv alone, and none is given", {**values, "out": out})
        return api.predict_model(path, **model | {"device": model["device"] or "local"})
    if nets is None:
        raise click.UsageError("Missing argument 'CSV': the nets that ESTIMATOR predicts")
    _refuse("a MODEL alone, and this is an estimator's csv", model)
    return api.predict_nets(path, nets, out=out, **values)[2]


def _refuse(what: str, values: dict[str, Any]) -> None:
    """UsageError for options that would say nothing here."""
    given = [name for name, value in values.items() if value not in (None, False, (), {})]
    if given:
        names = {"bound_s": "bound", "tables": "table", "shapes": "shape"}
        raise click.UsageError(f"{', '.join(f'--{names.get(name, name)}' for name in given)}: for {what}")


@estimator.command("explain", short_help="Show which units a net's time and its uncertainty come from.")
@click.argument("path", type=_PATH, metavar="ESTIMATOR")
@click.argument("nets", type=_PATH, metavar="CSV")
@_SPACE
@json_option
@html_option
@answering
def explain_(*, path: Path, nets: Path, space: str | None) -> Any:
    """Show what each unit adds to the time of the first net of CSV, and which units its uncertainty comes from."""
    from gnomon.api import estimator as api

    return api.explain_net(path, nets, space=space)


@estimator.command("export", short_help="Write it as a Python file that needs numpy alone.")
@click.argument("path", type=_PATH, metavar="ESTIMATOR")
@_SPACE
@click.option("--out", "-o", type=_PATH, default=Path("estimator.py"), show_default=True, metavar="FILE")
@_OVERWRITE
@json_option
@answering
def export_(*, path: Path, out: Path, **values: Any) -> Any:
    """Write ESTIMATOR as one Python file that needs numpy alone.

    Its get_estimation takes a net as {slot: choice}, or as {unit: how often} by ids, labels or UIDs.
    """
    from gnomon.api import estimator as api

    api.export_estimator(path, out=out, **values)
    return _written("export", out)


@estimator.command("import", short_help="Make a csv of nets of another tool's files.")
@click.argument("latencies", type=_PATH, metavar="LATENCY.pt")
@click.option("--archs", type=_PATH, required=True, metavar="FILE.pt", help="The architectures, in the same order.")
@click.option(
    "--space", shell_complete=complete_space, required=True, metavar="SPACE", help="The space that they are of."
)
@click.option("--out", type=_PATH, default=Path("nets.csv"), show_default=True, metavar="CSV", help="The nets.")
@_OVERWRITE
@json_option
@answering
def import_(*, space: str, out: Path, **values: Any) -> Any:
    """Make a csv of measured nets of HELP's files: LATENCY.pt of a device, and the architectures that it is of.

    These are metainfo.pt (fbnet), ofa_archs.pt (ofa-mobilenetv3) or str_arch2idx.pt (nasbench201). PyTorch reads them
    without running code from them.
    """
    from gnomon.api import estimator as api

    rows, told = api.import_nets(space=space, out=out, **values)
    for sentence in told:
        click.echo(f"skipped: {sentence}", err=True)
    measured = sum(row.latency_s is not None for row in rows)
    return _written("import", out, space=space, nets=len(rows), measured=measured, left_out=list(told))


@estimator.command("count", short_help="Count the units of nets.")
@click.argument("nets", type=_PATH, metavar="CSV")
@_TABLE
@_SPACE
@click.option("--estimator", type=_PATH, metavar="JSON", help="An estimator: its units, as they run as one there.")
@click.option("--out", type=_PATH, default=Path("counts.csv"), show_default=True, metavar="CSV", help="The counts.")
@_OVERWRITE
@json_option
@answering
def count_(*, out: Path, **values: Any) -> Any:
    """Count how often each unit occurs in each net of CSV, as a csv with the columns net, unit, label, uid and count.

    The units are those of a table or an estimator; of a --space alone every operator is one, as the modules are that
    have UIDs. The counts of a net by `uid` or `unit` are what the get_estimation of an exported estimator takes.
    """
    from gnomon.api import estimator as api

    rows = api.count_units(out=out, **values)
    return _written("count", out, counts=[dataclasses.asdict(row) for row in rows])


def _written(what: str, out: Path, **more: Any) -> dict[str, Any]:
    """The document of a command that wrote a file."""
    return {"format": f"gnomon-estimator-{what}", "version": 1, "file": str(out), **more}


def _message(sentence: str) -> None:
    click.echo(f"gnomon: {sentence}", err=True)
