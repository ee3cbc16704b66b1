"""`gnomon serve`: measure models that arrive over HTTP."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnomon import values
from gnomon.cli.complete import complete_device, complete_runtime
from gnomon.cli.declared import Value
from gnomon.cli.help import command
from gnomon.cli.options import record_option
from gnomon.cli.output import write_json

if TYPE_CHECKING:
    from gnomon.serving.settings import ServeSettings

_SECONDS = Value("SECONDS", values.seconds)
_NUMBER = click.IntRange(1, 1 << 40)
_PATH = click.Path(path_type=Path)


@command(
    short_help="Measure models that are sent over HTTP, for search-space profilers.",
    context_settings={"show_default": True},
)
@click.option(
    "--runtime", shell_complete=complete_runtime, metavar="NAME", help="The runtime that measures; or give --command."
)
@click.option(
    "--command",
    metavar="NAME|LINE",
    help="Measure with this command, without a shell: one that `gnomon commands` lists, or a line with {model} in it.",
)
@click.option(
    "--read",
    multiple=True,
    metavar="WHERE",
    help="The place of the times in the command's output.  [default: the wall time of its process]",
)
@click.option("--config", type=_PATH, metavar="FILE", help="A TOML file that declares commands.")
@click.option("--model-name", metavar="NAME", default="model", help="The model's file name for --command.")
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_device,
    help="A device that measures; several devices share the requests.  [default: local]",
)
@click.option("--threads", "-n", type=click.IntRange(1, 1024), default=1, help="Threads of the runtime.")
@click.option("--backend", metavar="NAME", help="Backend of the runtime.  [default: its own default]")
@click.option("--precision", metavar="NAME", help="Precision of the runtime.  [default: float32]")
@click.option(
    "--processes",
    "--runs",
    "processes",
    type=click.IntRange(1, 100),
    help="Fresh processes per model.  [default: one reused process; 3 with --command or on another machine]",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 2), default=0, help="Seed of random inputs.")
@click.option("--host", default="127.0.0.1", help="The address to listen on; other machines need a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=8055, help="The port; 0 selects a free port.")
@click.option("--path", default="/test_latency/test_latency/", help="The path of requests.")
@click.option("--token-file", type=_PATH, metavar="FILE", help="File with the required token.  [$GNOMON_SERVE_TOKEN]")
@click.option("--no-token", is_flag=True, help="Measure for anyone who can reach the address.")
@click.option("--most-mb", type=_NUMBER, default=256, help="Maximum size of one model, in MiB.")
@click.option("--most-waiting-mb", type=_NUMBER, default=2048, help="Maximum size of all waiting models, in MiB.")
@click.option("--queue", type=click.IntRange(1, 100_000), default=1000, help="Maximum number of requests at once.")
@click.option("--job-timeout", type=_SECONDS, help="Seconds for one model.  [default: 120; 600 with --command]")
@click.option("--upload-timeout", type=_SECONDS, default=300.0, help="Seconds for an upload.")
@click.option("--idle-timeout", type=_SECONDS, default=20.0, help="Maximum pause of a client, in seconds.")
@click.option("--memory-mb", type=_NUMBER, default=8192, help="Maximum address space of each process, in MiB.")
@record_option
@click.option("--json", "as_json", is_flag=True, help="Print the address as one JSON document.")
@click.option("--quiet", is_flag=True, help="Do not print a line for each request.")
def serve(as_json: bool, quiet: bool, **values: Any) -> int:
    """Measure models that are sent over HTTP, one at a time, and answer with their latency.

    The protocol is that of published search-space profilers: a POST request with the parts kernel_name and file; the
    reply is a profile with milliseconds in the line "All" (docs/jobs/serve.md). The server ends on Ctrl-C or SIGTERM.
    """
    from gnomon.report.plain import clean
    from gnomon.serving.server import serve as serving

    def log(line: str) -> None:
        print(f"gnomon: {clean(line)}", file=sys.stderr, flush=True)

    def started(settings: ServeSettings, facts: Mapping[str, str]) -> None:
        if as_json:
            write_json(
                {
                    "format": "gnomon-serve",
                    "version": 1,
                    **{name: getattr(settings, name) for name in ("url", "host", "port", "path")},
                    "runtime": facts["runtime"],
                    "runtime_version": facts["version"],
                    **{name: facts[name] for name in ("configuration", "device")},
                    "token": settings.token is not None,
                    "process": os.getpid(),
                }
            )
        what = f"{facts['configuration']} {facts['version']}".strip()
        where = f" on {facts['device']}" if len(settings.measuring.devices) > 1 else ""
        log(f"models sent to {settings.url} are measured with {what}{where}")
        if settings.open_to_all:
            log("warning: without a token, anyone who can reach this address can measure models here")

    number = serving(_settings(values), started=started, log=(lambda line: None) if quiet else log)
    log("ended: everything is cleaned up, and the measurements are in the results database")
    return 128 + number


def _settings(values: dict[str, Any]) -> ServeSettings:
    from gnomon.serving.settings import COMMAND_S, HEAD_S, JOB_S, Limits, Measuring, ServeSettings, read_token
    from gnomon.store.address import whole

    command, record = _command(values), values["record"]
    return ServeSettings(
        measuring=Measuring(
            **{name: values[name] for name in ("model_name", "threads", "backend", "precision", "processes", "seed")},
            runtime=values["runtime"] or "",
            command=command,
            devices=tuple(dict.fromkeys(values["devices"])) or ("local",),
            record=None if record is None else str(whole(record)),
        ),
        **{name: values[name] for name in ("host", "port", "path")},
        token=None if values["no_token"] and values["token_file"] is None else read_token(values["token_file"]),
        open_to_all=values["no_token"],
        limits=Limits(
            most_bytes=values["most_mb"] << 20,
            most_held_bytes=values["most_waiting_mb"] << 20,
            queue=values["queue"],
            idle_s=values["idle_timeout"],
            head_s=min(HEAD_S, values["idle_timeout"]),
            upload_s=values["upload_timeout"],
            job_s=values["job_timeout"] or (JOB_S if command is None else COMMAND_S),
            memory_bytes=values["memory_mb"] << 20,
        ),
    )


def _command(values: dict[str, Any]) -> Any:
    """The given command; None if a runtime is given. UsageError for both, neither, or options that do not fit."""
    from gnomon.api.options import commands_of
    from gnomon.errors import UsageError

    line = values["command"]
    if (line is None) == (values["runtime"] is None):
        raise UsageError(
            "exactly one of --runtime and --command is needed to measure models",
            hint="Give --runtime NAME (gnomon runtimes lists them) or --command LINE.",
        )
    idle = [f"--{name}" for name in ("backend", "precision") if values[name]]
    if line is not None and idle:
        raise UsageError(
            f"{' and '.join(idle)} cannot be used with --command", hint="Put these settings into the command line."
        )
    given = [] if line is None else [line]
    return next(iter(commands_of({"commands": given, "read": values["read"], "commands_file": values["config"]})), None)
