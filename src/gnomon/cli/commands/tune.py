"""`gnomon tune`, `gnomon exec` and `gnomon tune list`: kernels tuned for a device, compiled networks on any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.help import command
from gnomon.cli.main import answering, showing, write_answer, write_report
from gnomon.cli.options import (
    device_options,
    ferules,
    html_option,
    json_option,
    only_device,
    shape_option,
    tune_options,
)
from gnomon.cli.values import seconds
from gnomon.errors import MeasurementError, UsageError

_PATH = click.Path(path_type=Path)


def _no_tuner(context: click.Context, argument: click.Parameter, more: tuple[str, ...]) -> None:
    """Ferule's commands begin with a tuner, of which today's TVM has one."""
    if more:
        told = " ".join(more)
        if context.params.get("model") in (Path("ansor"), Path("atvm")):
            raise UsageError("there is one tuner, which is not named", hint=f"Give gnomon tune {told}")
        raise click.UsageError(f"Got unexpected extra argument{'s' if len(more) > 1 else ''} ({told})", context)


@command(short_help="Tune a network's kernels on a device, with TVM.")
@click.argument("model", type=_PATH)
@click.option("--trials", type=click.IntRange(1), default=512, show_default=True, help="Candidates measured in all.")
@click.option(
    "--search",
    "strategy",
    type=click.Choice(["evolutionary", "replay-trace", "random"]),
    default="evolutionary",
    show_default=True,
    help="How candidate schedules are found.",
)
@click.option(
    "--start/--no-start",
    default=True,
    show_default=True,
    help="Begin each layer with schedules that are made for it, and what was best for layers like it.",
)
@click.option(
    "--per-round",
    type=click.IntRange(1, 256),
    default=8,
    show_default=True,
    help="Candidates that a round measures of a layer.",
)
@click.option(
    "--first-round",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Candidates of a layer's first round. Default: enough for each relevant layer to have one.",
)
@click.option(
    "--plateau",
    type=click.IntRange(0),
    default=4,
    show_default=True,
    metavar="ROUNDS",
    help="A layer that gained less than 1 % in this many rounds is done; 0: never.",
)
@click.option(
    "--budget",
    "budget_s",
    type=seconds,
    metavar="SECONDS",
    help="End the whole command, proof included, after about this time.",
)
@click.option("--layer", "layers", multiple=True, metavar="TEXT", help="Only layers whose name holds this. Repeatable.")
@click.option("--dtype", type=click.Choice(["float32", "float16"]), default="float32", show_default=True)
@shape_option
@click.option("--fresh", is_flag=True, help="Begin again; existing records are moved aside.")
@click.option(
    "--from",
    "logs",
    multiple=True,
    type=_PATH,
    metavar="LOG",
    help="Try the best configurations of these records, or MetaSchedule databases, first. Repeatable.",
)
@click.option(
    "--compare/--no-compare",
    default=None,
    help="Measure other runtimes beside the tuned network. Default: yes, unless there is a --budget.",
)
@device_options
@html_option
@ferules(m="Give --search.", t="Give --dtype.")
@click.argument("more", nargs=-1, metavar="", callback=_no_tuner, expose_value=False)
def tune(model: Path, html: Path | None, **values: Any) -> None:
    """Tune the layers of MODEL (.onnx, .pt2, .tflite) on a device, compile it, and prove it there.

    Several devices are tuned for one after the other. Every trial is written at once: after an interruption the same
    command resumes.
    """
    from gnomon.api import tune as api
    from gnomon.cli.progress import Show

    as_json, quiet = values.pop("as_json"), values.pop("quiet")
    search = {
        name: values.pop(name)
        for name in ("strategy", "start", "per_round", "first_round", "plateau", "budget_s", "layers")
    }
    shapes = values.pop("shapes")
    rest = {name: values.pop(name) for name in ("trials", "dtype", "fresh", "compare", "logs")}
    devices = tuple(dict.fromkeys(values.pop("devices"))) or ("local",)
    with Show(quiet=quiet, first="look at the network and the device") as show:
        options = tune_options(values)
        options |= {"on_progress": show.on_progress, "on_message": show.on_message}
        documents = []
        if len(devices) > 1:
            api.check_devices(devices, **options)
        for device in devices:
            options["device"] = device
            documents.append(api.tune(model, search=search, shapes=shapes, **rest, **options).document())
    whole = documents[0] if len(documents) == 1 else {"format": "gnomon-tuned", "version": 1, "tuned": documents}

    def report() -> None:
        from gnomon.jobs.tune.report import tune_report, tuned_next

        for document in documents:
            write_report(tune_report, document)
        write_report(tuned_next, documents)

    write_answer(whole, as_json=as_json, html=html, report=report)
    if any(document["network"]["failure"] for document in documents):
        click.get_current_context().exit(MeasurementError.exit_code)


@command("exec", short_help="Measure a compiled network, or tuned records, on any device.")
@click.argument("source", type=_PATH, metavar="FILE.so|FILE.json")
@click.option("--model", type=_PATH, metavar="FILE", help="The network's file, where tuning kept no copy of it.")
@shape_option
@click.option("--no-layers", is_flag=True, help="Measure the whole network only.")
@device_options
@html_option
@ferules()
@answering
@showing(first="look at the library and the device")
def exec_(*, source: Path, no_layers: bool, **values: Any) -> Any:
    """Measure a compiled network, or the best of a record file compiled for a device, and compare its outputs."""
    from gnomon.api import tune as api

    device = only_device(values)
    document = api.execute(source, layers=not no_layers, device=device, **values)
    return document, 0 if document["failure"] is None else MeasurementError.exit_code


@command("list", short_help="List tuned models, records and libraries.")
@click.option("--out", type=_PATH, metavar="DIR", help="The folder.  [default: the user's own]")
@json_option
@answering
def list_(*, out: Path | None) -> Any:
    """List what tuning has made: models, records and compiled networks."""
    from gnomon.api import tune as api

    return api.tuned_files(out)
