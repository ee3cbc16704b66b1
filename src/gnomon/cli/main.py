"""The entry point: imports commands when needed, reports errors as text or JSON, and ends cleanly on a signal."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import re
import resource
import shlex
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

import click

import gnomon
from gnomon.builtin import JOBS
from gnomon.cli.declared import command_of
from gnomon.cli.help import SECTIONS, Group, command
from gnomon.cli.output import PRINTED, write_json
from gnomon.errors import CLOSED_PIPE, GnomonError, ProblemError, UsageError, did_you_mean
from gnomon.options import CommandRow
from gnomon.report.plain import clean


class LazyGroup(Group):
    """The group of all commands, which are imported when needed: gnomon's own, and those of packages."""

    def __init__(self, *args: Any, places: Mapping[str, CommandRow], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the help, commands of packages last."""
        return [*(name for names in SECTIONS.values() for name in names), *self._of_packages()]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common commands with one line each, the names of the others by section, then commands of packages.

        A command of a package that cannot be loaded is listed with the reason.
        """
        (first, common), *others = SECTIONS.items()
        with formatter.section(first):
            formatter.write_dl([(name, self._places[name].short_help) for name in common])
        with formatter.section("More commands"):
            formatter.write_dl([(section, ", ".join(names)) for section, names in others])
        from gnomon.plugins import JOBS, named, passed_over

        own = [entry for entry in named(JOBS).values() if entry.name not in self._of_packages()]
        rows = []
        for name in self._of_packages():
            try:
                command = _command_of_package(name)
                rows.append((name, command.get_short_help_str(formatter.width - 6 - len(name))))
            except GnomonError as error:
                rows.append((name, f"{error.message}. {error.hint}"))
        for entry in [*own, *passed_over(JOBS)]:
            rows.append((entry.name, f"cannot be called: its name is taken or is not a single word ({entry.value})"))
        if rows:
            with formatter.section("From installed packages"):
                formatter.write_dl(rows)

    def _of_packages(self) -> list[str]:
        """The names of the commands that packages add, except names that gnomon uses itself."""
        from gnomon.plugins import JOBS, named

        taken = {*self._places, *_REPLACED}
        return [name for name in named(JOBS) if name not in taken and not re.search(r"^-|\s", name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command with this name, or None; during completion, also None if a package's command cannot be loaded."""
        if place := self._places.get(cmd_name):
            return command_of(cmd_name.split()[-1], place)
        try:
            return _command_of_package(cmd_name) if cmd_name in self._of_packages() else None
        except GnomonError:
            if ctx.resilient_parsing:
                return None
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; return `CLOSED_PIPE` if the reader of the standard output has gone."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _silence()
            return CLOSED_PIPE

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, also by an alias or a name of two words; the error for an unknown name has suggestions."""
        args = [_ALIASES.get(args[0], args[0]), *args[1:]] if args else args
        if (two := " ".join(args[:2])) in self._places and len(args) > 1:
            return two, self.get_command(ctx, two), args[2:]
        if args and args[0] in _REPLACED:
            raise UsageError(f"there is no command {args[0]}: {_REPLACED[args[0]]}", hint=_TABLE)
        is_name = args and (args[0].startswith("-") or args[0] in self._places)
        if args and not is_name and args[0] not in (names := self.list_commands(ctx)):
            if "." in args[0]:
                raise UsageError(f"there is no command {args[0]!r}", hint=f"gnomon place {shlex.join(args)}")
            near = did_you_mean(args[0], names) or f"Commands: {', '.join(names)}."
            raise click.UsageError(f"there is no command {args[0]!r}. {near}", ctx)
        return super().resolve_command(ctx, args)


def _command_of_package(name: str) -> click.Command:
    """The command of a job that a package adds. UsageError if it cannot be loaded."""
    from gnomon.plugins import at, job

    row = job(name).commands[name]
    at(row.place, f"the function of the command {name}", callable, "a function")
    return command_of(name, row)


_HELP = {
    "help": CommandRow("gnomon.cli.main:help_", "Show the help of a command."),
    "completion": CommandRow("gnomon.cli.main:completion", "Print the completion script of a shell."),
}
_COMMANDS = {name: place for job in JOBS.values() for name, place in job.commands.items()} | _HELP

_ALIASES = {"bench": "profile", "benchmark": "profile", "measure": "profile", "optimize": "place"}
"""Names that other tools use, with the corresponding commands."""

_REPLACED = {
    "cross-compile": "use gnomon tune, gnomon exec and gnomon tune list for its commands tune, exec and view",
    "config-overlay": "use gnomon overlay collect and gnomon overlay analyze for its commands collect and analyze",
}
"""Commands of tools that gnomon replaces, with the replacements."""

_TABLE = "docs/jobs/tune.md lists the replacement of each command and option of Ferule."

_EPILOG = """\b
First steps:
  gnomon place model.onnx  the fastest way to run a model on this machine
  gnomon runtimes          what is installed here, and how to add the rest
  gnomon COMMAND --help    its common options; --help-all shows all of them

Exit codes: 0 done, 2 a wrong option, 3 a bad model or problem, 4 no allowed assignment, 5 a runtime is missing,
6 device, 7 nothing measured or compared, 8 record or output, 9 package, 70 a defect of gnomon, 130 interrupted; with
an answer: 1 a gate failed, 10 undecided, 11 the outputs prove nothing."""


_LONGEST = 400
"""The most characters that are shown of an error whose message may come from a runtime or a device."""


class Terminated(BaseException):
    """Raised on SIGTERM, so that everything is cleaned up as after Ctrl-C."""


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
    """Run the command line and report errors; return the exit code."""
    as_json = "--json" in args
    PRINTED.set(False)
    # numpy's matrices are small here: threads would slow them down, and take cores from the measured process.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Garbage collection after every 700 objects took an eighth of the time of profiling a small space (perf, one run).
    gc.set_threshold(50_000, 20, 100)
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        code = cli.main(args=list(args), prog_name="gnomon", standalone_mode=False, obj=tuple(args))
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except GnomonError as error:
        message = error.message
        # Errors in a user's input are shown completely.
        whole = as_json or isinstance(error, UsageError | ProblemError) or {"-v", "--verbose"} & {*args}
        if len(message) > _LONGEST and not whole:
            message = f"{message[:_LONGEST]} .. (whole message: -v)"
        return _fail(as_json, _kind(error), message, _whole(error, args), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        _tell(error.format_message())
        return error.exit_code
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "gnomon"
        return _fail(as_json, "usage", error.format_message(), f"See: {where} --help", error.exit_code)
    except (click.Abort, KeyboardInterrupt, Terminated) as end:
        kept = "interrupted: the measurements are kept, and the same command resumes"
        # Commands import this module only when they are about to measure.
        kept = kept if "gnomon.measure.campaign" in sys.modules else "interrupted"
        if as_json and not PRINTED.get():
            write_json({"error": {"kind": "interrupted", "message": kept, "hint": ""}})
        _tell(kept)
        return 143 if isinstance(end, Terminated) else 130
    except BrokenPipeError:
        _silence()
        return CLOSED_PIPE
    except MemoryError:
        hint = "Give smaller files, or allow more memory in the shell that starts gnomon: ulimit -v unlimited"
        return _fail(as_json, "usage", "there is not enough memory for this command", hint, 2)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            _silence()
            return _fail(False, "output", f"the output cannot be written: {error.strerror}", "Free some disk space.", 8)
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
            hint = "Allow larger files in the shell that starts gnomon: ulimit -f unlimited"
            return _fail(as_json, "output", f"this process cannot write files larger than {most} bytes", hint, 8)
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            hint = "Raise the limit in the shell that starts gnomon: ulimit -n 4096. Or use fewer devices at once."
            return _fail(as_json, "usage", f"this process cannot have more than {most} open files", hint, 2)
        if os.environ.get("GNOMON_DEBUG") == "1":
            traceback.print_exc()
        from gnomon.spaces.loading import users_line

        if line := users_line(error):
            hint = "Correct the file; GNOMON_DEBUG=1 shows the whole traceback."
            return _fail(as_json, "usage", f"{line}: {type(error).__name__}: {error}", hint, UsageError.exit_code)
        message = f"a defect of gnomon: {type(error).__name__}: {error}"
        hint = "Please report it, with the output of the same command under GNOMON_DEBUG=1 and of `gnomon runtimes`."
        return _fail(as_json, "defect", message, hint, 70)
    finally:
        signal.signal(signal.SIGTERM, before)


def _silence() -> None:
    """Redirect the closed standard output to /dev/null, so that Python does not fail to flush it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminated(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _kind(error: GnomonError) -> str:
    """The kind of an error in JSON: "runtime-missing" for RuntimeMissingError."""
    name = type(error).__name__.removesuffix("Error")
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower() or "error"


def _fail(as_json: bool, kind: str, message: str, hint: str, code: int) -> int:
    try:
        if as_json and not PRINTED.get():
            write_json({"error": {"kind": kind, "message": message, "hint": hint}})
        print(end="", flush=True)
    except OSError:  # the standard output may be on the full disk; the standard error must suffice
        _silence()
    _tell(f"error: {clean(message, lines=True)}")
    if hint:
        _tell(f"hint: {clean(hint, lines=True)}")
    return code


def _whole(error: GnomonError, args: Sequence[str]) -> str:
    """The hint of an error; missing options at its end are completed to the user's whole command with these options."""
    lacking = error.words if isinstance(error, UsageError) else ()
    end = list(args).index("--") if "--" in args else len(args)
    whole = shlex.join(("gnomon", *args[:end], *lacking, *args[end:]))
    return error.hint.replace(shlex.join(lacking), whole) if lacking else error.hint


def _tell(line: str) -> None:
    """Print a line on the standard error; if that fails, as on a full disk, the exit code must suffice."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


@command(short_help="Show the help of a command.")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def help_(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of COMMAND, such as place or space profile."""
    at, shown = ctx.find_root(), ctx.find_root().command
    left = list(words)
    while left:
        if not isinstance(shown, click.Group):
            raise click.UsageError(f"{at.command_path} has no subcommands", ctx)
        name, inner, left = shown.resolve_command(at, left)
        if inner is None:
            raise click.UsageError(f"there is no command {' '.join(words)!r}", ctx)
        at, shown = click.Context(inner, info_name=name, parent=at), inner
    click.echo(shown.get_help(at))


@command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes gnomon's commands and options in SHELL.

    \b
    bash:  gnomon completion bash >> ~/.bashrc
    zsh:   gnomon completion zsh >> ~/.zshrc
    fish:  gnomon completion fish > ~/.config/fish/completions/gnomon.fish
    """
    from click.shell_completion import BashComplete, FishComplete, ZshComplete

    root = ctx.find_root().command
    # BashComplete.source() would start bash to check its version; the script itself needs no shell.
    script = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell](
        root, {}, "gnomon", "_GNOMON_COMPLETE"
    )
    click.echo(script.source_template % script.source_vars())
