"""The entry point: commands, errors as two lines for people or one JSON document, and a clean end on a signal."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

import gnomon
from gnomon.cli.lazy import LazyGroup
from gnomon.cli.output import write_json
from gnomon.errors import GnomonError
from gnomon.report.plain import clean

_COMMANDS = {
    "place": "gnomon.cli.place:place",
    "profile": "gnomon.cli.profile:profile",
    "pareto": "gnomon.cli.pareto:pareto",
    "unattended": "gnomon.cli.unattended:unattended",
    "runs": "gnomon.cli.runs:runs",
    "solve": "gnomon.cli.solve:solve",
    "runtimes": "gnomon.cli.runtimes:runtimes",
    "devices": "gnomon.cli.devices:devices",
    "stab": "gnomon.cli.stab:stab",
    "front": "gnomon.cli.front:front",
    "oplist": "gnomon.cli.oplist:oplist",
    "space": "gnomon.cli.space:space",
    "table": "gnomon.cli.table:table",
    "estimator": "gnomon.cli.estimator:estimator",
    "tune": "gnomon.cli.tune:tune",
    "exec": "gnomon.cli.tune:exec_",
    "view": "gnomon.cli.tune:view",
    "overlay": "gnomon.cli.overlay:overlay",
    "serve": "gnomon.cli.serve:serve",
    "rpc": "gnomon.cli.rpc:rpc",
    "completion": "gnomon.cli.completion:completion",
}

_EPILOG = """\b
First steps:
  gnomon runtimes          what is installed here, and how to add the rest
  gnomon place model.onnx  the fastest way to run a model on this machine
  gnomon devices           the machines to measure on, and how to add one
  gnomon runs              what was measured so far

Progress and messages go to the standard error, results to the standard output. Exit codes: 0 done, 2 a wrong
option, 3 a bad model or problem, 4 no allowed assignment, 5 a runtime is missing, 6 device, 7 nothing could be
measured, 8 record or output, 9 package, 70 a defect of gnomon, 130 interrupted."""


class Terminated(BaseException):
    """SIGTERM came: everything is cleaned up as after Ctrl-C."""


@click.group(
    cls=LazyGroup,
    places=_COMMANDS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(gnomon.__version__, message="gnomon %(version)s")
def cli() -> None:
    """Measure a neural network on the hardware it will run on, and decide what should run where."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:] if args is None else args))


def run(args: Sequence[str]) -> int:
    """Run the command line; returns the exit code, having told any error."""
    as_json = "--json" in args
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        code = cli.main(args=list(args), prog_name="gnomon", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except GnomonError as error:
        return _fail(as_json, _kind(error), error.message, error.hint, error.exit_code)
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "gnomon"
        return _fail(as_json, "usage", error.format_message(), f"See: {where} --help", error.exit_code)
    except (click.Abort, KeyboardInterrupt, Terminated) as end:
        kept = "interrupted: what was measured is kept; the same command goes on from there"
        if as_json:
            write_json({"error": {"kind": "interrupted", "message": kept, "hint": ""}})
        print(kept, file=sys.stderr)
        return 143 if isinstance(end, Terminated) else 130
    except BrokenPipeError:
        _silence()
        return 1
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            _silence()
            return _fail(False, "output", f"nothing more can be written: {error.strerror}", "Make room.", 8)
        if os.environ.get("GNOMON_DEBUG") == "1":
            traceback.print_exc()
        message = f"a defect of gnomon: {type(error).__name__}: {error}"
        hint = "Please report it with the output of the same command under GNOMON_DEBUG=1, and `gnomon runtimes`."
        return _fail(as_json, "defect", message, hint, 70)
    finally:
        signal.signal(signal.SIGTERM, before)


def _silence() -> None:
    """The standard output leads nowhere: nothing can be said there any more, and Python shall not try to at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminated(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _kind(error: GnomonError) -> str:
    """ "runtime-missing" for RuntimeMissingError."""
    name = type(error).__name__.removesuffix("Error")
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower() or "error"


def _fail(as_json: bool, kind: str, message: str, hint: str, code: int) -> int:
    if as_json:
        write_json({"error": {"kind": kind, "message": message, "hint": hint}})
    print(f"error: {clean(message, lines=True)}", file=sys.stderr)
    if hint:
        print(f"hint: {clean(hint, lines=True)}", file=sys.stderr)
    return code
