"""How the parameters of a function are given on the command line: declared once, in its signature.

`count: Annotated[int | None, option("--k", least=1, help="How many nets.")] = None` is a parameter for Python, and the
option --k of the command that `gnomon.cli.declared` makes of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gnomon.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What the command line needs to know of a parameter, beside its type and its default.

    `names` are the option's (none: --NAME of the parameter); a parameter that has a place is an argument unless it has
    names. `help` is a sentence, or a function that makes it where that would load much. `read` makes a value of a text,
    or raises ValueError with what is wrong. A number lies between `least` and `most`;
    with a `least` at least one of several arguments is given. With `repeat` the option may be
    given several times, for several values or items of a mapping. `off` makes a flag that turns a True into a False.
    `default` stands for one that the signature does not have, and `unsaid` makes what the command gives where nobody
    gave a value, of all that was given. `complete` is what a shell completes a value with.
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
    """An `Option` of these names, such as "--out" and "-o"."""
    return Option(names=names, **settings)


def refuse_unknown(given: Mapping[str, object], record: type[Any]) -> None:
    """UsageError for an option that the TypedDict of a function's keywords does not have."""
    if unknown := sorted(given.keys() - record.__annotations__.keys()):
        raise UsageError(f"there is no option {unknown[0]!r}", hint=f"Options: {', '.join(record.__annotations__)}.")


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command: the function that it calls, as "module:function", one line on it, and whether it can write a page.

    `first` is what it does until a first stage is reported; None: look at the model and the runtimes.
    `gone` are options that another tool has, with what to give instead.
    In place of a function the command may be named as click has made it.
    """

    place: str
    short_help: str
    html: bool = True
    first: str | None = None
    gone: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupRow(CommandRow):
    """A group of commands by their names: `place` is the module of those whose rows name a function alone.

    Without a subcommand the group is its `default` one, whose options it takes too.
    """

    help: str = ""
    rows: Mapping[str, CommandRow] = field(default_factory=dict)
    default: str | None = None

    def commands(self) -> dict[str, CommandRow]:
        """The rows of its commands, with whole places."""
        places = {
            name: row.place if ":" in row.place else f"{self.place}:{row.place}" for name, row in self.rows.items()
        }
        return {name: replace(row, place=places[name]) for name, row in self.rows.items()}
