"""Commands made from functions: the options of their signatures, and their results as text, JSON or a page.

See `gnomon.options` for how a signature declares an option.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import click

from gnomon.cli.help import Command, Group
from gnomon.cli.output import answering, showing
from gnomon.errors import UsageError
from gnomon.options import CommandRow, GroupRow, Option, option
from gnomon.values import new_file

T = TypeVar("T")
Decorator = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A parameter on the command line: `kind` is its type, and with `has_place` it is an argument, not an option."""

    name: str
    kind: Any
    option: Option
    default: Any = None
    required: bool = False
    has_place: bool = False


_HTML = option(read=new_file, metavar="FILE", help="Write the whole report as one HTML file.")
_MARKDOWN = option("--markdown", read=new_file, metavar="FILE", help="Write the main table as Markdown.")
_JSON = option("--json", help="Print one JSON document.")
_QUIET = option(help="Show no progress.")
HTML = Declared(name="html", kind=Path, option=_HTML)
MARKDOWN = Declared(name="as_markdown", kind=Path, option=_MARKDOWN)
JSON = Declared(name="as_json", kind=bool, option=_JSON, default=False)
QUIET = Declared(name="quiet", kind=bool, option=_QUIET, default=False)


class DeclaredGroup(Group):
    """A group of commands, given by rows; the module of a command is imported when the command is needed.

    Without a subcommand, the group runs its `default` command. It accepts the options of that command for all of its
    subcommands.
    """

    def __init__(self, name: str, row: GroupRow) -> None:
        own: dict[str, Any] = (
            {"invoke_without_command": True, "callback": click.pass_context(self._call)} if row.default else {}
        )
        super().__init__(name, help=row.help, short_help=row.short_help, **own)
        self.rows = row.commands()
        self._default = row.default

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """See `click.Command.get_params`."""
        command = self.get_command(ctx, self._default) if self._default else None
        own = [param for param in command.params if param.expose_value] if command else []
        return [*own, *super().get_params(ctx)]

    def _call(self, ctx: click.Context, /, **values: Any) -> Any:
        """Run the default command if there is no subcommand; otherwise pass the given options on to the subcommand."""
        given = {name: value for name, value in values.items() if value is not None}
        ctx.default_map = dict.fromkeys(self.list_commands(ctx), given)
        command = self.get_command(ctx, self._default) if self._default and not ctx.invoked_subcommand else None
        return None if command is None else ctx.invoke(command, **values)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the rows."""
        return list(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command with this name, or None."""
        if cmd_name in self.rows and cmd_name not in self.commands:
            self.add_command(command_of(cmd_name, self.rows[cmd_name]))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with one line each, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.short_help) for name, row in self.rows.items()])


def command_of(name: str, row: CommandRow) -> click.Command:
    """The command of a row: a group, an existing click command, or a command made from a function.

    A command made from a function calls it with the values of the options, and writes the returned document. Its help
    is the function's docstring up to "Raises". If the function takes `on_progress` or `on_message`, the command shows
    its progress or its messages.
    """
    if isinstance(row, GroupRow):
        return DeclaredGroup(name, row)
    module, _, attribute = row.place.partition(":")
    function = getattr(import_module(module), attribute)
    if isinstance(function, click.Command):
        function.short_help = row.short_help
        return function
    parameters = {
        n: parameter
        for n, parameter in signature(function).parameters.items()
        if parameter.kind is not Parameter.VAR_KEYWORD
    }
    declared = list(declared_by(function))
    places = [part.name for part in declared if part.has_place]
    unsaid = [part for part in declared if part.option.unsaid]
    defaults = {part.name: part.default for part in declared if part.name not in parameters}

    def call(**values: Any) -> Any:
        # Options that are not given are left out, because only the function knows their defaults.
        given = {key: value for key, value in values.items() if value not in (defaults.get(key, key), None, (), {})}
        given |= {key: values[key] for key in values if key in parameters}
        given |= {
            part.name: part.option.unsaid(given) for part in unsaid if part.option.unsaid and not given[part.name]
        }
        arguments: list[Any] = []
        for place in places:
            value = given.pop(place)
            arguments += value if parameters[place].kind is Parameter.VAR_POSITIONAL else [value]
        return function(*arguments, **given)

    shown = [*declared, *([HTML, MARKDOWN] if row.html else []), JSON]
    work: Callable[..., Any] = call
    if "on_progress" in parameters:
        work, shown = showing(first=row.first, messages="on_message" in parameters)(call), [*shown, QUIET]
    elif "on_message" in parameters:
        work = partial(call, on_message=_echo)
    text = (function.__doc__ or "").split("\n\n    Raises ")[0]
    params = [parameter_of(part) for part in shown]
    command = Command(name, callback=answering(work), params=params, help=text, short_help=row.short_help)
    for option_name, hint in row.gone.items():
        gone(option_name, hint)(command)
    return command


def declared_by(function: Callable[..., Any]) -> Iterator[Declared]:
    """The parameters of a function that have an `Option`: its own, then those of the TypedDict of its keywords.

    If two have the same name on the command line, the function's own counts.
    """
    # The types of these are not needed here, so they are not imported.
    later = ("return", "on_progress", "on_message")
    hints = {name: hint for name, hint in function.__annotations__.items() if name not in later}
    holder = type("Parameters", (), {"__annotations__": hints, "__module__": function.__module__})
    kinds = get_type_hints(holder, include_extras=True)
    taken: set[str] = set()
    for name, hint in kinds.items():
        parameter = signature(function).parameters[name]
        kind, option = _split(hint)
        if parameter.kind is Parameter.VAR_KEYWORD:
            yield from (part for part in options_of(get_args(kind)[0]) if not taken & {part.name, long_name(part)})
        elif option is not None:
            has_place = parameter.kind is not Parameter.KEYWORD_ONLY and not option.names
            many = parameter.kind is Parameter.VAR_POSITIONAL
            is_empty = parameter.default is Parameter.empty
            declared = Declared(
                name=parameter.name,
                kind=Sequence[kind] if many else kind,  # type: ignore[valid-type]
                option=option,
                default=None if is_empty else parameter.default,
                required=bool(option.least) if many else is_empty,
                has_place=has_place,
            )
            taken |= {declared.name, long_name(declared)}
            yield declared


def options_of(record: Any) -> Iterator[Declared]:
    """The options of the fields of a TypedDict."""
    kinds = [(name, *_split(hint)) for name, hint in get_type_hints(record, include_extras=True).items()]
    return (Declared(name=n, kind=kind, option=o, default=o.default) for n, kind, o in kinds if o is not None)


def parameter_of(declared: Declared) -> click.Parameter:
    """The click parameter of a declared parameter."""
    option = declared.option
    members = _members(declared.kind)
    repeated = next((member for member in members if get_origin(member) in (Sequence, tuple)), None)
    settings: dict[str, Any] = {"type": _type_of(declared), "required": declared.required}
    if not declared.required:  # for click, a default of None is a value
        settings["default"] = declared.default
    if option.complete is not None:
        settings["shell_complete"] = _completing(f"complete_{option.complete}")
    if declared.has_place:
        many = repeated is not None
        name = option.metavar or declared.name.upper()
        metavar = (name if declared.required else f"[{name}]") + ("..." if many else "")
        if many:
            settings |= {"nargs": -1, "default": None}
        return click.Argument([declared.name], metavar=metavar, **settings)
    if option.repeat:
        is_mapping = any(get_origin(member) is Mapping for member in members)
        settings |= {"multiple": True, "default": None}
        settings["callback"] = _by_name if is_mapping else None if repeated is not None else _only_one(declared.default)
    if bool in members:
        settings |= {"is_flag": True, "type": None} | ({"flag_value": False} if option.off else {})
    text = option.help if isinstance(option.help, str) else ""
    shown = declared.default not in (None, "", ()) and not isinstance(declared.default, bool) and not option.repeat
    value_name = option.metavar or (option.read.__name__.upper() if option.read else None)
    settings |= {"metavar": value_name, "help": text, "show_default": shown and "[default:" not in text}
    return _Option([*(option.names or (f"--{declared.name.replace('_', '-')}",)), declared.name], declared, settings)


def _completing(name: str) -> Callable[..., Any]:
    """The function of `gnomon.cli.complete` with this name, imported only when a shell calls it."""
    return lambda *args: getattr(import_module("gnomon.cli.complete"), name)(*args)


class _Option(click.Option):
    """An option whose help may be a function, which is called when the help is shown."""

    def __init__(self, names: Sequence[str], declared: Declared, settings: Mapping[str, Any]) -> None:
        super().__init__(names, **settings)
        self._declared = declared

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """See `click.Option.get_help_record`."""
        if not isinstance(self._declared.option.help, str):
            self.help = self._declared.option.help()
        return super().get_help_record(ctx)


class Value(click.ParamType[T]):
    """A type of values, given by a function that converts a string or raises ValueError with the reason."""

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """The value of a string; anything else is a default, which needs no conversion."""
        if not isinstance(value, str):
            return cast(T, value)
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _split(kind: Any) -> tuple[Any, Option | None]:
    """A type without its `Option`, and the option; the type may be a member of a union, such as `Shapes | None`."""
    for part in _members(kind):
        if get_origin(part) is Annotated:
            return get_args(part)[0], next((extra for extra in get_args(part)[1:] if isinstance(extra, Option)), None)
    return kind, None


def _members(kind: Any) -> list[Any]:
    """The types of a union without None; for another type, the type itself."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return [part for part in parts if part is not NoneType]


def _type_of(declared: Declared) -> click.ParamType[Any] | None:
    """The click type of a single value."""
    option = declared.option
    if option.read is not None:
        return Value(option.metavar or declared.name, option.read)
    members = _members(declared.kind)
    items = [
        part for member in members if get_origin(member) in (Sequence, tuple) for part in _members(get_args(member)[0])
    ]
    for kind in items or members:
        if get_origin(kind) is Literal:
            return click.Choice(list(get_args(kind)))
        if isinstance(get_origin(kind) or kind, type) and issubclass(get_origin(kind) or kind, os.PathLike):
            return click.Path(path_type=Path)
        if kind is int:
            return click.IntRange(cast("int | None", option.least), cast("int | None", option.most))
        if kind is float:
            return click.FloatRange(option.least, option.most)
    return click.STRING


def long_name(declared: Declared) -> str:
    """The first name of an option."""
    return declared.option.names[0] if declared.option.names else f"--{declared.name.replace('_', '-')}"


def _by_name(context: click.Context, parameter: click.Parameter, pairs: tuple[Any, ...]) -> dict[str, object]:
    """Callback of an option: the values by name. UsageError if a name is given twice."""
    values: dict[str, object] = {}
    for name, value in (item for pair in pairs for item in (pair.items() if isinstance(pair, Mapping) else [pair])):
        if name in values:
            raise click.UsageError(f"{parameter.opts[0]} gives {name!r} twice", context)
        values[name] = value
    return values


def _only_one(default: Any) -> Callable[[click.Context, click.Parameter, tuple[Any, ...]], Any]:
    """The callback of an option that may be given only once, because a second value would be ignored silently."""

    def only(context: click.Context, parameter: click.Parameter, values: tuple[Any, ...]) -> Any:
        if len(dict.fromkeys(values)) > 1:
            raise click.UsageError(f"this command takes {parameter.opts[0]} only once", context)
        return values[0] if values else default

    return only


def _echo(sentence: str) -> None:
    click.echo(f"gnomon: {sentence}", err=True)


def gone(name: str, hint: str) -> Decorator:
    """A hidden option of another tool or an earlier gnomon: using it is an error that names the replacement."""

    def refuse(context: click.Context, option: click.Parameter, value: object) -> None:
        if value is not None:
            raise UsageError(f"{context.command_path} has no option {name}", hint=hint)

    return click.option(name, hidden=True, expose_value=False, is_eager=True, callback=refuse)
