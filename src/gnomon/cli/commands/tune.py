"""`gnomon tune` and `gnomon exec`: the functions of `gnomon.api.tune`, and errors for the options of Ferule."""

from __future__ import annotations

from pathlib import Path

import click

from gnomon.cli.declared import command_of
from gnomon.cli.options import FERULES
from gnomon.errors import UsageError
from gnomon.options import CommandRow


def _no_tuner(context: click.Context, argument: click.Parameter, more: tuple[str, ...]) -> None:
    """Refuse further arguments, such as the name of a tuner, with which Ferule's commands begin."""
    if more:
        words = " ".join(more)
        if context.params.get("model") in (Path("ansor"), Path("atvm")):
            raise UsageError("gnomon has only one tuner, so leave out its name", hint=f"gnomon tune {words}")
        raise click.UsageError(f"Got unexpected extra argument{'s' if len(more) > 1 else ''} ({words})", context)


_TUNE = CommandRow(
    "gnomon.api.tune:tune",
    "Tune a network's kernels on a device, with TVM.",
    gone={**FERULES, "-m": "Give --search.", "-t": "Give --dtype."},
)
_EXEC = CommandRow(
    "gnomon.api.tune:execute",
    "Measure a compiled network, or tuned records, on any device.",
    first="look at the library and the device",
    gone=FERULES,
)

tune = command_of("tune", _TUNE)
tune.params.append(click.Argument(["more"], nargs=-1, metavar="", callback=_no_tuner, expose_value=False))
exec_ = command_of("exec", _EXEC)
