"""`gnomon stab`: the backend scheduler's command line, and what gnomon adds to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.help import command, note_verbose
from gnomon.cli.main import answering, showing
from gnomon.cli.options import html_option, some_options


@command(short_help="Schedule backends for an nnpackage's operators, as ONE's stab does, and prove it.")
@click.option(
    "--nnpackage", required=True, type=click.Path(path_type=Path), metavar="DIR", help="The nnpackage to schedule."
)
@click.option("--ip", metavar="HOST", help="Address of the device, which is reached by ssh.")
@click.option("-u", "--user", metavar="USER", help="User on the device.  [default: as ssh has it]")
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port of ssh.  [default: as ssh has it]")
@click.option("--device", metavar="DEVICE", help="Instead of --ip: an address or name that `gnomon devices` takes.")
@click.option(
    "-n",
    "--num_threads",
    "--num-threads",
    "threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    default=1,
    show_default=True,
    help="Threads of the runtime.",
)
@click.option("-v", "--verbose", is_flag=True, callback=note_verbose, help="Report each step, and show every operator.")
@click.option(
    "--no-profile",
    "measure",
    is_flag=True,
    default=True,
    flag_value=False,
    help="Decide from the traces that are there.",
)
@click.option(
    "--traces",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    default=Path("traces"),
    help="Where traces are kept.  [default: ./traces]",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the scheduled nnpackage goes.  [default: ./nnpkg_sched/PACKAGE]",
)
@click.option("--overwrite", is_flag=True, help="Replace an nnpackage there that gnomon did not schedule.")
@click.option("--compat", is_flag=True, help="Write the decision of ONE's stab, the exact one beside it in the report.")
@some_options("--processes", "--budget", "record", "--fresh", "--json", "--quiet")
@html_option
@answering
@showing()
def stab(
    *, ip: str | None, user: str | None, port: int | None, device: str | None, verbose: bool, **values: Any
) -> Any:
    """Choose onert's backend for each operator of an nnpackage, and write the nnpackage with it.

    Each backend is profiled on the device, the placement is solved for exactly, measured against the best single
    backend, and proved: outputs, and where each operator ran. The traces stay in ./traces under the names that stab
    gives them, and --no-profile decides from them without a device.
    """
    from gnomon.api import stab as api

    values["device"] = _device(ip, user, port, device, values["measure"])
    return api.stab(step=values["on_message"] if verbose else None, **values)


def _device(ip: str | None, user: str | None, port: int | None, device: str | None, profile: bool) -> str:
    """The device's address or name. Without profiling none is needed, and what is said of one is not looked at."""
    if not profile:
        return "local"
    if (ip is None) == (device is None):
        told = "give the device: --ip HOST, or --device DEVICE"
        raise click.UsageError(told if ip is None else "--ip and --device both name the device: give one of them")
    if device is not None:
        if user or port:
            raise click.UsageError("--user and --port belong to --ip; --device ssh://user@host:port says it all")
        return device
    host = f"[{ip}]" if ":" in str(ip) and not str(ip).startswith("[") else ip
    return f"ssh://{f'{user}@' if user else ''}{host}{f':{port}' if port else ''}"
