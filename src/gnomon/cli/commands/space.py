"""`gnomon space`: which primitives of a search space are worth searching on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.help import group
from gnomon.cli.options import (
    KNOWN,
    TRAINING,
    bench_options,
    chosen_toolchains,
    gone,
    html_option,
    http_options,
    json_option,
    place_options,
    server_of,
    settings_by_toolchain,
    training_options,
)
from gnomon.cli.output import answering, showing, write_answer
from gnomon.cli.values import latency, toolchain_setting

_PATH = click.Path(path_type=Path)
_BLOCKS = click.option(
    "--blocks",
    multiple=True,
    metavar="FILE.py",
    help="A file of your own primitives, or one by itself: FILE.py:FUNCTION, PACKAGE.MODULE:CLASS. May be repeated.",
)
_OWN_BLOCKS = click.option(
    "--blocks",
    multiple=True,
    metavar="FILE.py",
    help="A file of your own primitives that PROFILE was made with, or one by itself: it is run. May be repeated.",
)
_PROOFS = click.option(
    "--use-proofs",
    "proofs",
    is_flag=True,
    help="Go by what validate and front measured, too.",
)
_OWN_DATA = click.option(
    "--data", metavar="SOURCE", help="The profile's images, where a function makes them: only then is it run."
)
_PROFILE = click.argument("profile_dir", type=_PATH, metavar="PROFILE")


@group(short_help="Choose the primitives worth searching on a device, from accuracy and latency.")
def space() -> None:
    """Which primitives of a search space are worth searching on a device. docs/jobs/space.md describes it."""


@space.command(short_help="Train and measure the networks of a search space.")
@click.argument("config", type=_PATH)
@click.option("--profile-dir", type=_PATH, required=True, metavar="DIR", help="The profile; it is never deleted.")
@click.option("--family", "families", multiple=True, metavar="NAME", help="Only this family. May be repeated.")
@click.option(
    "--numbering",
    type=click.Choice(["ssprofile", "aw_nas"]),
    help="Which numbering of primitives is used.  [default: as the config says, else ssprofile]",
)
@_BLOCKS
@training_options
@click.option(
    "--toolchain",
    "toolchains",
    multiple=True,
    metavar="NAME",
    help="Makes and runs what is measured; gnomon space toolchains lists them. May be repeated.  "
    "[default: --runtime's, else onnxruntime]",
)
@click.option("--no-latency", is_flag=True, help="Measure nothing.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=toolchain_setting,
    metavar="TOOLCHAIN.KEY=VALUE",
    help="A setting of a toolchain, such as vitis.arch=/path/arch.json. May be repeated.",
)
@click.option("--mixed", type=click.IntRange(0), default=12, show_default=True, help="Mixed networks of each family.")
@http_options
@bench_options
@html_option
@gone("--gpu", hint="Give --train-on cuda; CUDA_VISIBLE_DEVICES=N in the environment says which GPU that is.")
@gone("--arch-file", hint="Give --toolchain vitis --set vitis.arch=FILE.")
@answering
@showing()
def profile(*, config: Path, profile_dir: Path, on_progress: Any, on_message: Any, **values: Any) -> Any:
    """Train and measure the networks of CONFIG, a search space in the layout of aw_nas.

    Results are written as they are made: after an interruption the same command resumes.
    """
    from gnomon.api import space as api

    space_part = {name: values.pop(name) for name in ("families", "numbering", "blocks", "mixed")}
    training = {name: values.pop(name) for name in TRAINING}
    training["method"] = None if training["method"] == "none" else training["method"]
    server = server_of(values)
    toolchains = chosen_toolchains(values)
    settings = settings_by_toolchain(values.pop("settings"))
    made = {name: settings.pop(name, {}) for name in toolchains}
    if settings:
        raise click.UsageError(f"--set {', '.join(settings)}: no such --toolchain is given")
    return api.profile_space(
        config,
        profile_dir,
        space=space_part,  # type: ignore[arg-type]  # by name
        training=training,  # type: ignore[arg-type]  # by name
        toolchains=made,
        hooks=api.Hooks(server=server, on_progress=on_progress, on_message=on_message),
        **values,
    )


@space.command(short_help="Choose primitives from a profile, without measuring anything.")
@_PROFILE
@click.option(
    "--rule",
    type=click.Choice(["pareto", "published"]),
    default="pareto",
    show_default=True,
    help="pareto: what is on the front of mixed networks. published: the published rule to the letter, which depends "
    "on the unit of latency.",
)
@click.option("--accuracy", "method", type=click.Choice(KNOWN), help="Whose accuracies.  [default: the first]")
@click.option("--toolchain", metavar="NAME", help="Whose latencies.  [default: the first]")
@_PROOFS
@click.option(
    "--families",
    type=click.Choice(["mixed", "one"]),
    help="pareto: primitives of all families side by side, or of the one that is worth most.",
)
@click.option(
    "--max-fraction",
    "--most-share",
    "most_share",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="pareto: at most this share of the networks is left (1: all but what is on no front); one that leaves too "
    "little to search is refused, with the share that would do.  [default: 0.1]",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the resampled noise.")
@click.option(
    "--output-yaml",
    "-o",
    "output",
    type=_PATH,
    metavar="FILE",
    help="The config with the choice filled in.  [default: PROFILE/output.yaml]",
)
@_OWN_BLOCKS
@click.option("--picture", type=_PATH, metavar="FILE", help="Draw the choice, as .svg, .png or .pdf.")
@gone("--stability-prior", "--inertia", hint="Leave it out: the measurements alone decide.")
@gone(
    "--threshold", hint="Give --max-fraction; how often each primitive is on the front is in the report and in --json."
)
@json_option
@html_option
def select(profile_dir: Path, as_json: bool, picture: Path | None, html: Path | None, **values: Any) -> None:
    """Choose the primitives worth searching from PROFILE. Nothing is measured, however often it runs."""
    from gnomon.api import space as api
    from gnomon.spaces.selection.pareto import pareto_options

    options = pareto_options(values["families"], values["most_share"], values["seed"])
    chosen = api.select_primitives(
        profile_dir,
        rule=values["rule"],
        method=values["method"],
        toolchain=values["toolchain"],
        proofs=values["proofs"],
        options=options,
        output=values["output"],
        blocks=values["blocks"],
    )
    document = chosen.document()
    write_answer(document, as_json=as_json, html=html)
    if picture is not None:
        from gnomon.jobs.space.picture import selection_picture

        selection_picture(document, picture)


_PROOF_TRAINING = ("data", "epochs", "seeds", "workers", "cluster", "training_device", "download")


@space.command(short_help="Find the best networks of the full space, train and measure them.")
@_PROFILE
@click.option(
    "--latency",
    "latency_s",
    type=latency,
    metavar="2ms",
    help="Only networks that are predicted to take no longer than this.",
)
@click.option(
    "--networks",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="The most networks.",
)
@click.option("--measure/--no-measure", default=True, show_default=True, help="Train and measure them.")
@click.option("--accuracy", "method", type=click.Choice(KNOWN), help="Whose accuracies.  [default: the first]")
@click.option("--toolchain", metavar="NAME", help="Whose latencies.  [default: the first]")
@_PROOFS
@click.option("--epochs", type=click.IntRange(1), metavar="N", help="Epochs.  [default: the profile's own]")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Trainings of each.")
@_OWN_DATA
@_OWN_BLOCKS
@click.option("--picture", type=_PATH, metavar="FILE", help="Draw the front, as .svg, .png or .pdf.")
@place_options
@http_options
@bench_options
@html_option
def front(profile_dir: Path, picture: Path | None, html: Path | None, **values: Any) -> None:
    """Find the best networks of PROFILE's full space by predicted accuracy and latency, then train and measure them.

    After an interruption the same command resumes, and measures nothing twice.
    """
    from gnomon.api import space as api
    from gnomon.cli.progress import Show

    as_json, quiet, server = values.pop("as_json"), values.pop("quiet"), server_of(values)
    names = ("latency_s", "networks", "measure", "method", "toolchain", "proofs", "blocks")
    own = {name: values.pop(name) for name in names}
    training = {name: values.pop(name) for name in _PROOF_TRAINING}
    with Show(quiet=quiet) as show:
        done = api.find_front(
            profile_dir,
            **own,
            training=training,  # type: ignore[arg-type]  # by name
            hooks=api.Hooks(server=server, on_progress=show.on_progress, on_message=show.on_message),
            **values,
        )
    document = done.document()
    write_answer(document, as_json=as_json, html=html)
    if picture is not None:
        from gnomon.jobs.space.picture import front_picture

        front_picture(document, picture)


@space.command(short_help="Build, train and measure mixed networks that the choice implies.")
@_PROFILE
@click.option(
    "--networks",
    type=click.IntRange(8, 10_000),
    default=12,
    show_default=True,
    help="Mixed networks of the reduced space, and as many of the full one.",
)
@click.option(
    "--front",
    type=click.IntRange(0, 1000),
    default=10,
    show_default=True,
    help="Networks of the predicted front of each space; 0: none.",
)
@click.option("--epochs", type=click.IntRange(1), metavar="N", help="Epochs.  [default: the profile's own]")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Trainings of each.")
@_OWN_DATA
@_OWN_BLOCKS
@place_options
@http_options
@bench_options
@html_option
@answering
@showing()
def validate(*, profile_dir: Path, on_progress: Any, on_message: Any, **values: Any) -> Any:
    """Test the predictions for PROFILE's choice on mixed networks that were never measured."""
    from gnomon.api import space as api

    hooks = api.Hooks(server=server_of(values), on_progress=on_progress, on_message=on_message)
    values["training"] = {name: values.pop(name) for name in _PROOF_TRAINING}
    return api.validate_selection(profile_dir, hooks=hooks, **values)


@space.command(short_help="Show what a profile holds.")
@_PROFILE
@click.option("--accuracy", "method", type=click.Choice(KNOWN), help="Whose accuracies.  [default: the first]")
@click.option("--pictures", type=_PATH, metavar="DIR", help="Draw the pictures of the profile into this folder.")
@_OWN_BLOCKS
@json_option
@html_option
@answering
def show(*, profile_dir: Path, **values: Any) -> Any:
    """Show what PROFILE holds: rankings with their noise, latencies, and how reliable both are."""
    from gnomon.api import space as api

    return api.show_space(profile_dir, **values)


@space.command("import", short_help="Import accuracies and latencies into a profile.")
@click.argument("files", nargs=-1, required=True, type=_PATH, metavar="FILE...")
@click.option(
    "--profile-dir", type=_PATH, required=True, metavar="DIR", help="The profile, which may be there already."
)
@click.option(
    "--config",
    type=_PATH,
    metavar="CONFIG",
    help="The config of a new profile.  [default: made from the ids of the tables]",
)
@click.option(
    "--numbering",
    type=click.Choice(["ssprofile", "aw_nas"]),
    help="Which numbering of primitives is used.  [default: as the config says, else ssprofile]",
)
@click.option(
    "--accuracy",
    "method",
    type=click.Choice(KNOWN),
    help="What the accuracies count as.  [default: as a csv says, else imported]",
)
@click.option(
    "--toolchain",
    metavar="NAME",
    help="The toolchain that the latencies count as.  [default: as a csv says, else imported]",
)
@_OWN_BLOCKS
@json_option
@html_option
@answering
def import_(*, files: tuple[Path, ...], profile_dir: Path, **values: Any) -> Any:
    """Bring networks into a profile: tables of ssprofile (accuracy_table.yaml, latency_table.yaml), or csv.

    Latencies of a table are in milliseconds. A csv is what gnomon space export writes.
    """
    from gnomon.api import space as api

    return api.import_networks(files, profile_dir, **values)


@space.command(short_help="Write a profile's networks as csv.")
@_PROFILE
@click.option("--out", "-o", type=_PATH, required=True, metavar="CSV", help="The networks.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it is there.")
@click.option("--accuracy", "method", type=click.Choice(KNOWN), help="Whose accuracies.  [default: the first]")
@_OWN_BLOCKS
@json_option
@answering
def export(*, profile_dir: Path, out: Path, **values: Any) -> Any:
    """Write the networks of PROFILE as csv: a column a cell group, accuracy and latency with what is known of both."""
    from gnomon.api import space as api

    rows = api.export_networks(profile_dir, out, **values)
    return {
        "format": "gnomon-space-export",
        "version": 1,
        "file": str(out),
        "rows": len(rows),
        "accuracies": sum(row.accuracy is not None for row in rows),
        "latencies": sum(row.latency_s is not None for row in rows),
    }


@space.command(short_help="List the known primitives, and what they are made of.")
@click.option("--numbering", type=click.Choice(["ssprofile", "aw_nas"]), default="ssprofile", show_default=True)
@_BLOCKS
@json_option
@answering
def primitives(*, numbering: str, blocks: tuple[str, ...]) -> Any:
    """List primitives by name: a number means another block in another numbering, the digest does not."""
    from gnomon.training.modules import known_blocks

    rows = [
        {"name": one.name, "family": one.family, "meaning": one.meaning, "digest": one.digest}
        for one in known_blocks(numbering, blocks).values()
    ]
    return {"format": "gnomon-space-primitives", "version": 1, "numbering": numbering, "primitives": rows}


@space.command(short_help="List the toolchains, and what is missing for them here.")
@json_option
@answering
def toolchains() -> Any:
    """List the toolchains that turn a network into what is measured, and what to install for each."""
    from gnomon.toolchains.base import chosen_toolchain, toolchain_names

    rows = []
    for name in toolchain_names():
        one = chosen_toolchain(name)
        missing = [{"what": m.what, "hint": m.hint} for m in one.check()]
        rows.append({"name": name, "measured_by": one.runtime, "missing": missing})
    return {"format": "gnomon-space-toolchains", "version": 1, "toolchains": rows}
