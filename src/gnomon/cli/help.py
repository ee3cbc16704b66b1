"""The help of every command: examples first, then the common options, or with --help-all all options in groups.

`SECTIONS` orders the commands; `COMMON` and `GROUPS` select and order the options of all commands by their long names.
Tests check them and the `EXAMPLES` against the commands.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import click

VERBOSE = "gnomon.verbose"
"""The key in a context that is set if -v is given."""

HELP_ALL = "gnomon.help-all"
"""The key in a context that is set if the help shows every option."""

SECTIONS: dict[str, tuple[str, ...]] = {
    "Commands": ("place", "profile", "compare", "check", "where", "report", "devices", "runs", "suite"),
    "Trade-offs": ("pareto", "front", "solve"),
    "Many networks": ("table", "estimator", "space"),
    "Kernels": ("tune", "tune list", "exec", "overlay"),
    "Files of ONE": ("stab", "oplist"),
    "Set-up": ("runtimes", "deploy", "serve", "new", "schema", "commands", "completion", "help"),
}
"""The commands in the order of the help: those of the first section with a line each, the others by name."""

COMMON = (
    *("device", "runtime", "threads", "precision", "input", "shape", "dim", "max-time", "quick", "under", "memory"),
    *("fail-slower", "fail-below", "beside-python", "for", "streams", "objective", "from", "model", "nets", "table"),
    *("k", "samples", "space", "profile-dir", "data", "epochs", "networks", "latency", "trials", "portfolio", "prove"),
    *("nnpackage", "ip", "user", "out", "html", "json", "help"),
)
"""The options that --help shows for a command with many options, in addition to the required ones."""

GROUPS: dict[str, tuple[str, ...]] = {
    "What is measured": (
        *("runtime", "backend", "toolchain", "threads", "shape", "dim", "signature", "input", "precision", "env"),
        *("set", "option", "fuse", "objective", "space", "family", "blocks", "mixed", "target", "linker", "clock"),
        *("nets", "model", "numbering", "dtype", "compat", "given", "inside", "command", "read", "config"),
    ),
    "Where": (
        *("device", "pin", "governor", "fetch", "reconnect-timeout", "host", "port", "pool", "python", "ssh-option"),
        *("folder", "cluster", "workers", "train-on", "deploy", "to"),
    ),
    "How long and how often": (
        *("processes", "for", "every", "budget", "max-time", "timeout", "time-limit", "repeat", "min-repeat-ms"),
        *("build-timeout",),
        *("trials", "per-round", "first-round", "plateau", "iterations", "samples", "resamples", "runs", "seed"),
        *("epochs", "networks", "seeds", "idle-timeout", "upload-timeout", "job-timeout", "connect-timeout"),
    ),
    "What is written": (
        *("out", "overwrite", "no-package", "picture", "pictures", "no-picture", "record", "fresh", "again"),
        *("html", "junit", "markdown", "action-benchmark", "bencher"),
        *("format", "json", "quiet", "verbose", "no-write", "output-yaml"),
    ),
}
"""The headings in order, with the long names of their options; all other options are under "Options"."""

EXAMPLES = (
    "gnomon check model.onnx",
    "gnomon check model.tflite --json",
    "gnomon where model.onnx --runtime onnxruntime --backend webgpu --fail-below 95%",
    "gnomon place model.onnx",
    "gnomon place model.tflite --threads 1,4 --budget 20",
    "gnomon place model.onnx --dim sequence_length=16,64,256",
    "gnomon place model.onnx --device board --device ssh://pi@10.0.0.7",
    "gnomon place model.onnx --runtime onnxruntime --runtime openvino --no-package",
    "gnomon deploy model.gnomon ssh://pi@10.0.0.7 --fetch",
    "gnomon profile model.onnx",
    "gnomon profile model.onnx --runtime openvino --json > profile.json",
    "gnomon profile model.onnx --runtime onnxruntime --threads 1 --inside",
    "gnomon profile model.onnx --runtime onnxruntime --for 10min --every 33ms",
    "gnomon profile model.onnx --streams 4",
    "gnomon pareto model.circle",
    "gnomon pareto model.circle --tuning threads --tuning planner --objective latency --objective peak-memory",
    "gnomon pareto model.circle --under peak-memory=80MB --out small",
    "gnomon stab --nnpackage inception --ip 10.0.0.7 --user odroid -n 4",
    "gnomon stab --nnpackage inception --no-profile",
    "gnomon oplist model.circle",
    "gnomon oplist model.circle --out oplist.json",
    "gnomon solve problem.json",
    "gnomon solve problem.json --json",
    "gnomon front problem.json",
    "gnomon table build mobilenetv2-cifar10 --runtime onnxruntime",
    "gnomon table check mobilenetv2-cifar10.table",
    "gnomon table diff phone.table board.table",
    "gnomon table build space.py:space --device phone --runtime openvino --out phone.table",
    "gnomon table build --from one.onnx other.onnx --runtime onnxruntime",
    "gnomon table export phone.table --out phone.csv",
    "gnomon table import seed.csv --space mobilenetv2-cifar10 --out seed",
    "gnomon table merge monday.table tuesday.table --out both.table",
    "gnomon table spaces",
    "gnomon estimator predict model.onnx",
    "gnomon estimator fit --table mobilenetv2-cifar10.table --samples measured.csv",
    "gnomon estimator suggest --table mobilenetv2-cifar10.table --k 12",
    "gnomon estimator count nets.csv --space mobilenetv2-cifar10 --out counts.csv",
    "gnomon estimator eval estimator.json measured.csv",
    "gnomon estimator explain estimator.json nets.csv",
    "gnomon estimator export estimator.json --out estimator.py",
    "gnomon estimator import pixel3.pt --out nets.csv",
    "gnomon estimator measure nets.csv --table mobilenetv2-cifar10.table",
    "gnomon estimator predict estimator.json nets.csv",
    "gnomon estimator verify space.table model.onnx --net first=k3 --net second=skip",
    "gnomon space profile space.yaml --profile-dir out",
    "gnomon space select out",
    "gnomon space front out --latency 2ms --networks 20",
    "gnomon space export out --out networks.csv",
    "gnomon space import accuracy_table.yaml latency_table.yaml --config space.yaml --profile-dir out",
    "gnomon space primitives",
    "gnomon space primitives --blocks blocks.py",
    "gnomon space profile space.yaml --profile-dir out --data folder:images --epochs 40",
    "gnomon space select out --picture choice.svg",
    "gnomon space show out --pictures pictures",
    "gnomon space toolchains",
    "gnomon tune model.onnx --trials 320",
    "gnomon tune model.onnx --device board --budget 600",
    "gnomon tune list",
    "gnomon exec tuned/libraries/local.model.float32.so",
    "gnomon exec board.model.float32.so --device board",
    "gnomon overlay collect one.json two.json --device one --device two",
    "gnomon overlay analyze records/*.json",
    "gnomon overlay analyze records/*.json --portfolio 2 --prove",
    "gnomon runs",
    "gnomon runs show last",
    "gnomon runs resume last",
    "gnomon runs list --limit 5",
    "gnomon runs show 4133a05a --json",
    "gnomon runs export last > run.jsonl",
    "gnomon runs export last --format csv > samples.csv",
    "gnomon runs export last --format perfetto --out trace.json",
    "gnomon runs export last --format netron --out timed.onnx",
    "gnomon runs import run.jsonl",
    "gnomon runs import board.sqlite --record all.sqlite",
    "gnomon runs merge monday.sqlite tuesday.sqlite --out both.sqlite",
    "gnomon compare old.onnx new.onnx --runtime onnxruntime",
    "gnomon compare old.onnx new.onnx --fail-slower 3% --junit gnomon.xml --markdown comment.md",
    "gnomon compare model.onnx --self-test 5min --fail-slower 3%",
    "gnomon compare model.onnx --beside-python /opt/new/bin/python",
    "gnomon compare last~1 last",
    "gnomon suite run suite.toml",
    "gnomon suite status",
    "gnomon suite compare last~1 last --fail-slower 3%",
    "gnomon suite run suite.toml --cluster tcp://10.0.0.5:8786",
    "gnomon report last",
    "gnomon report main.json change.json -o change.html",
    "gnomon runtimes",
    "gnomon commands -v",
    "gnomon devices",
    "gnomon devices add board ssh://pi@10.0.0.7",
    "gnomon devices check board",
    "gnomon devices add phone adb://SERIAL --threads 4",
    "gnomon devices add bench3 labgrid:bench3",
    "gnomon devices clean board",
    "gnomon devices list",
    "gnomon devices probe board",
    "gnomon devices noise",
    "gnomon devices release board",
    "gnomon devices remove board",
    "gnomon new runtime my_runtime",
    "gnomon new device board --out packages/board",
    "gnomon schema",
    "gnomon schema place > place.schema.json",
    "gnomon serve --runtime onnxruntime",
    'gnomon serve --command "xdputil benchmark {model} 1" --read "FPS= (?P<fps>[0-9.]+)"',
    "gnomon help place",
    "gnomon help space profile",
    "gnomon completion bash >> ~/.bashrc",
)
"""Commands that a user would type. The help of a group shows the first few examples of its commands."""


def examples_of(path: str) -> list[str]:
    """The examples of the command of this path, or of all commands of a group."""
    return [example for example in EXAMPLES if f"{example} ".startswith(f"gnomon {path} ")]


def path_of(ctx: click.Context) -> str:
    """The path of a command without the program's name: "runs show"."""
    return ctx.command_path.partition(" ")[2]


class _Help(click.Command):
    """The common part of the help of commands and groups."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usage and examples."""
        super().format_usage(ctx, formatter)
        if path := path_of(ctx):
            formatter.write_paragraph()
            for example in examples_of(path)[: None if HELP_ALL in ctx.meta else _FEW_EXAMPLES]:
                formatter.write(f"  {example}\n")

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description, or only its beginning for a command with many options."""
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("\n\n".join(paragraphs[:2] if self._is_short(ctx) else paragraphs))

    def _is_short(self, ctx: click.Context) -> bool:
        return HELP_ALL not in ctx.meta and len(self._options(ctx)) > _MOST

    def _options(self, ctx: click.Context) -> list[click.Option]:
        return [part for part in self.get_params(ctx) if isinstance(part, click.Option) and not part.hidden]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common options of a command with many options, otherwise all options."""
        options, is_short = self._options(ctx), self._is_short(ctx)
        common = [option for option in options if option.required or _names(option) & {*COMMON}]
        groups: dict[str, list[tuple[str, str]]] = {heading: [] for heading in ("Options", *GROUPS)}
        for parameter in common if is_short else options:
            heading = next((heading for heading, names in GROUPS.items() if _names(parameter) & {*names}), "Options")
            if record := parameter.get_help_record(ctx):
                name, text = record
                text = _SENTENCE.split(text)[0] if is_short else text
                groups[heading if len(options) > _MOST and not is_short else "Options"].append((name, text))
        for heading, rows in groups.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)
        if is_short:
            formatter.write(f"\nAll {len(options)} options: {ctx.command_path} --help-all\n")
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


_MOST = 12
"""The most options that --help shows completely, without groups."""

_FEW_EXAMPLES = 3

_SENTENCE = re.compile(r"(?<=[\w)])\.(?:\s|$)")


def _names(parameter: click.Parameter) -> set[str]:
    return {name.lstrip("-") for name in (*parameter.opts, *parameter.secondary_opts)}


class Command(_Help):
    """A command with grouped options and examples in its help; a command with a report also takes -v."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                hidden=True,
                callback=_show_all,
            )
        )
        own = {parameter.name: parameter for parameter in self.params}
        if "verbose" in own:
            own["verbose"].callback = note_verbose
        elif "as_json" in own:
            self.params.append(
                click.Option(
                    ["-v", "--verbose"],
                    is_flag=True,
                    expose_value=False,
                    callback=note_verbose,
                    help="Print the whole report, with every section.",
                )
            )


def _show_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    """Print the help with every option, and exit."""
    if value and not ctx.resilient_parsing:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def note_verbose(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    """Callback of -v: note it in the context."""
    if value:
        ctx.meta[VERBOSE] = True
    return value


class Group(_Help, click.Group):
    """A group of commands with this help."""


def command(
    name: str | None = None, *, short_help: str | None = None, **settings: Any
) -> Callable[[Callable[..., Any]], Command]:
    """Like `click.command`, with this help."""
    return click.command(name, cls=Command, short_help=short_help, **settings)
