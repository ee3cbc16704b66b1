"""`gnomon overlay`: one configuration a layer that is good on several devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.help import group
from gnomon.cli.options import device_options, ferules, gone, html_option, proof_options, shape_option, tune_options
from gnomon.cli.output import write_answer, write_report
from gnomon.errors import InfeasibleError

_PATH = click.Path(path_type=Path)
_LAYERS = click.option(
    "--layer", "layers", multiple=True, metavar="TEXT", help="Only this layer: a number, or what its name holds."
)

_OF_RECORDS = "Leave it out: the records say it."


@group(short_help="Choose tuned configurations that are good on several devices.")
def overlay() -> None:
    """One configuration a layer for several devices. docs/jobs/tune.md describes it."""


@overlay.command(short_help="Measure the configurations of some devices on another.")
@click.argument("logs", type=_PATH, nargs=-1, required=True, metavar="LOG...")
@click.option("--best", type=click.IntRange(1), metavar="N", help="Only the N best of each layer.  [default: all]")
@_LAYERS
@click.option(
    "--close",
    is_flag=True,
    help="Only the configurations that the choice cannot separate, without others beside them, in 4 times as many "
    "processes; give all LOGs.",
)
@click.option("--fresh", is_flag=True, help="Measure again; existing records are moved aside.")
@device_options
@html_option
@ferules(b="Give --best N.", l="Give --layer N.", m=_OF_RECORDS, t=_OF_RECORDS)
def collect(logs: tuple[Path, ...], html: Path | None, **values: Any) -> None:
    """Measure the configurations of LOGs on each --device.

    All configurations of a layer are measured side by side, in fresh processes and random order.
    """
    from gnomon.api import tune as api
    from gnomon.cli.progress import Show

    as_json, quiet = values.pop("as_json"), values.pop("quiet")
    rest = {name: values.pop(name) for name in ("best", "layers", "fresh")}
    if (again := values.pop("close")) and (rest["best"] is not None or rest["fresh"]):
        raise click.UsageError("--close says what is measured: leave out --best and --fresh")
    devices: tuple[str, ...] = tuple(dict.fromkeys(values.pop("devices"))) or ("local",)
    with Show(quiet=quiet, first="read the logs") as show:
        options = tune_options(values)
        options |= {"on_progress": show.on_progress, "on_message": show.on_message}
        documents: list[dict[str, Any]] = []
        if again:
            rest["close"] = api.overlay_analyze(logs, layers=rest.pop("layers"), seed=options["seed"]).close()
            devices = devices if rest["close"] else ()
        if len(devices) > 1:
            api.check_collect(logs, devices, rest.get("close"), **options)
        for device in devices:
            options["device"] = device
            documents += api.overlay_collect(logs, **rest, **options)
    whole = {"format": "gnomon-overlay-collected", "version": 1, "collected": documents}

    def report() -> None:
        from gnomon.jobs.overlay.report import collect_report, collected_next, nothing_close

        for document in documents:
            write_report(collect_report, document)
        if documents:
            write_report(collected_next, [str(log) for log in logs], documents)
        else:
            write_report(nothing_close)

    write_answer(whole, as_json=as_json, html=html, report=report)


@overlay.command(short_help="Choose one configuration a layer, and write what can be deployed.")
@click.argument("logs", type=_PATH, nargs=-1, required=True, metavar="LOG...")
@_LAYERS
@click.option(
    "--portfolio", type=click.IntRange(2), metavar="P", help="Also the best P configurations of each layer, exactly."
)
@click.option("--plot", type=_PATH, metavar="DIR", help="Draw layers and networks into this folder, as SVG and PNG.")
@click.option("--prove", is_flag=True, help="Measure the whole network on every device under each choice.")
@click.option("--no-write", is_flag=True, help="Only choose: write and compile nothing.")
@click.option("--no-compile", is_flag=True, help="Write records, and compile nothing.")
@click.option("--model", type=_PATH, metavar="FILE", help="The network's file, where tuning kept no copy of it.")
@shape_option
@click.option("--resamples", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, metavar="N")
@proof_options
@html_option
@gone("--log-device", hint="--device KEY=FILE says of which device a file is, --device KEY that there is one.")
@ferules(l="Give --layer N.")
def analyze(logs: tuple[Path, ...], html: Path | None, **values: Any) -> None:
    """Choose for each layer the configuration whose sum of relative regrets over the devices of LOGs (M) is least.

    Logs that do not name their device are identified by their file names, <device>_<found on>.<model>.., and by their
    content; --device decides where that is ambiguous. The devices of --prove are found by these names; --device
    says where the others are. The exit code is 4 where no layer could be decided.
    """
    from gnomon.api import tune as api
    from gnomon.cli.progress import Show

    as_json, quiet, plot = values.pop("as_json"), values.pop("quiet"), values.pop("plot")
    prove, write = values.pop("prove"), not values.pop("no_write")
    rest = {"compile": not values.pop("no_compile"), "model": values.pop("model"), "shapes": values.pop("shapes")}
    chosen = {name: values.pop(name) for name in ("layers", "resamples")}
    devices = tuple(dict.fromkeys(values.pop("devices")))
    if prove and not write:
        raise click.UsageError("--prove compiles the network: leave out --no-write")
    with Show(quiet=quiet, first="read the logs") as show:
        analysis = api.overlay_analyze(
            logs,
            portfolio=values.pop("portfolio") or 0,
            seed=values["seed"],
            devices=devices,
            on_progress=show.on_progress,
            **chosen,
        )
        document = analysis.document()
        if write and analysis.chosen():
            options = tune_options(values)
            options |= {"on_progress": show.on_progress, "on_message": show.on_message}
            parts = api.overlay_deploy(analysis, prove=prove, devices=devices, **rest, **options)
            document |= {**parts, "notes": [*document["notes"], *parts["notes"]]}
        if plot is not None:
            from gnomon.api.pictures import draw_overlay

            document["pictures"] = draw_overlay(document, plot, show.on_message)
    write_answer(document, as_json=as_json, html=html)
    if not document["layers"]:
        click.get_current_context().exit(InfeasibleError.exit_code)
