"""`gnomon stab` as a function: backends for the operators of an nnpackage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypedDict, Unpack, cast

from gnomon.api.options import Budget, Fresh, Options, Overwrite, PathLike, Processes, Record, model_request
from gnomon.errors import UsageError
from gnomon.jobs.stab import job
from gnomon.jobs.stab.document import StabDocument
from gnomon.measure.progress import Watch
from gnomon.options import option
from gnomon.values import folder


class StabOptions(TypedDict, total=False):
    """Options for measuring, with the names that ONE's stab uses."""

    device: Annotated[
        str, option(metavar="DEVICE", help="Instead of --ip: the name or address of a device (see gnomon devices).")
    ]
    threads: Annotated[
        int,
        option(
            "--num_threads",
            "--num-threads",
            "-n",
            least=1,
            most=1024,
            metavar="N",
            help="Threads of the runtime.  [default: 1]",
        ),
    ]
    processes: Processes
    budget_s: Budget
    record: Record
    fresh: Fresh


def stab(
    nnpackage: Annotated[PathLike, option("--nnpackage", metavar="DIR", help="The nnpackage to schedule.")],
    *,
    ip: Annotated[str | None, option(metavar="HOST", help="The device's address for ssh.")] = None,
    user: Annotated[
        str | None, option("--user", "-u", metavar="USER", help="The user on the device.  [default: ssh's]")
    ] = None,
    port: Annotated[
        int | None, option(least=1, most=65535, metavar="N", help="The port for ssh.  [default: ssh's]")
    ] = None,
    verbose: Annotated[bool, option("--verbose", "-v", help="Report each step, and show every operator.")] = False,
    measure: Annotated[bool, option("--no-profile", off=True, help="Decide from existing traces.")] = True,
    traces: Annotated[PathLike, option(read=folder, metavar="DIR", help="The folder of the traces.")] = "traces",
    out: Annotated[
        PathLike | None,
        option(
            read=folder, metavar="DIR", help="The folder of the scheduled nnpackage.  [default: ./nnpkg_sched/PACKAGE]"
        ),
    ] = None,
    overwrite: Overwrite = False,
    compat: Annotated[
        bool, option(help="Write the decision of ONE's stab; the report also has the exact decision.")
    ] = False,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[StabOptions],
) -> StabDocument:
    """Choose an onert backend for each operator of an nnpackage, and write the nnpackage with the choice.

    Each backend is profiled on the device. The best placement is computed exactly and measured next to the best single
    backend; its outputs and the backend of each operator are verified. The traces stay in ./traces with stab's names,
    and --no-profile decides from them without a device.

    Raises GnomonError.
    """
    device = _device(ip, user, port, options.get("device")) if measure else "local"
    request = job.StabRequest(
        measuring=model_request(nnpackage, cast("Options", {"threads": 1, **options, "device": device})),
        traces=Path(traces),
        out=Path("nnpkg_sched") / job.package_name(Path(nnpackage)) if out is None else Path(out),
        profile=measure,
        compat=compat,
        overwrite=overwrite,
    )
    return job.stab(request, watch=on_progress, tell=on_message, step=on_message if verbose else None)


def _device(ip: str | None, user: str | None, port: int | None, device: str | None) -> str:
    """The device's address or name. UsageError if the options name no device, or name it twice."""
    if (ip is None) == (device is None):
        message = "no device is given" if ip is None else "--ip and --device both name the device"
        raise UsageError(message, hint="Give --ip HOST, or --device DEVICE.")
    if device is not None:
        if user or port:
            raise UsageError("--user and --port need --ip", hint="Give --device ssh://USER@HOST:PORT instead.")
        return device
    host = f"[{ip}]" if ":" in str(ip) and not str(ip).startswith("[") else ip
    return f"ssh://{f'{user}@' if user else ''}{host}{f':{port}' if port else ''}"
