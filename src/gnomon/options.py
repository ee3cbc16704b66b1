"""Declares in a function's signature how its parameters are given on the command line.

`count: Annotated[int | None, option("--k", least=1, help="How many nets.")] = None` is a parameter for Python, and the
option --k of the command that `gnomon.cli.declared` creates from the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gnomon.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The command line's information about a parameter, besides its type and default.

    `names` are the option's names (none: --NAME after the parameter); a positional parameter without names is an
    argument. `help` is a sentence, or a function that returns one if creating the sentence would load many modules.
    `read` converts a string to a value, or raises ValueError with the reason. A number lies between `least` and `most`;
    a parameter that takes several arguments needs at least one if it has a `least`. With `repeat`, the option may be
    given several times, for several values or items of a mapping. `off` makes a flag that turns True into False.
    `default` is the default where the signature has none, and `unsaid` derives the value from all given options if the
    user does not give it. `complete` is the kind of values that a shell completes.
    """

    names: tuple[str, ...] = ()
    help: str | Callable[[], str] = ""
    metavar: str | None = None
    read: Callable[[str], Any] | None = None
    least: float | None = None
    most: float | None = None
    repeat: bool = False
    off: bool = False
    default: Any = None
    unsaid: Callable[[Mapping[str, Any]], Any] | None = None
    complete: Literal["device", "run", "runtime", "space"] | None = None


def option(*names: str, **settings: Any) -> Option:
    """An `Option` with these names, such as "--out" and "-o"."""
    return Option(names=names, **settings)


def refuse_unknown(given: Mapping[str, object], record: type[Any]) -> None:
    """Raise UsageError for an option that the TypedDict of a function's keywords does not have."""
    if unknown := sorted(given.keys() - record.__annotations__.keys()):
        raise UsageError(f"there is no option {unknown[0]!r}", hint=f"Options: {', '.join(record.__annotations__)}.")


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command: the function that it calls, as "module:function", a line of help, and whether it can write an HTML
    page.

    `first` describes its work until the first stage is reported; None means looking at the model and the runtimes.
    `gone` are options of other tools, each with its replacement. Instead of a function, `place` may name a click
    command.
    """

    place: str
    short_help: str
    html: bool = True
    first: str | None = None
    gone: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupRow(CommandRow):
    """A group of commands by their names; `place` is the module of commands whose rows name only a function.

    Without a subcommand the group runs its `default` command, whose options it accepts too.
    """

    help: str = ""
    rows: Mapping[str, CommandRow] = field(default_factory=dict)
    default: str | None = None

    def commands(self) -> dict[str, CommandRow]:
        """The rows of the group's commands, with complete places."""
        places = {
            name: row.place if ":" in row.place else f"{self.place}:{row.place}" for name, row in self.rows.items()
        }
        return {name: replace(row, place=places[name]) for name, row in self.rows.items()}
