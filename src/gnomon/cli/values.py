"""Option values with a form of their own: NAME=1,3,224,224, NAME=FILE.npy, KEY=VALUE,KEY=VALUE, NAME=80MB; and problems
from a file or the standard input.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from gnomon.errors import ProblemError

_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SPANS = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOOLCHAIN_KEY = re.compile(r"[A-Za-z0-9_+-]+\.[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)\s*([A-Za-z]*)")
_SIZES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_ENERGIES = {"nJ": 1e-9, "uJ": 1e-6, "mJ": 1e-3, "J": 1.0, "kJ": 1e3}
_VALUES_UNITS = {"": 1.0, **_SIZES, **_TIMES, **_ENERGIES}
_OF = {"B": _SIZES, "s": _TIMES, "J": _ENERGIES}
_MOST_RUNS = 50
_MOST_BYTES = 1 << 30

T = TypeVar("T")


class Value(click.ParamType[T]):
    """The values of an option, by a function of their text that raises ValueError with what is wrong."""

    def __init__(self, name: str, meaning: Callable[[str], T]) -> None:
        self.name = name
        self._meaning = meaning

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """What a text means; anything else is a default already."""
        if not isinstance(value, str):
            return cast(T, value)
        try:
            return self._meaning(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def written(name: str) -> Callable[[Callable[[str], T]], Value[T]]:
    """Make a type of options of a function, with how its values are written."""
    return lambda meaning: Value(name, meaning)


@written("NAME=1,3,224,224")
def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """An input's name and its dimensions, which may be 0: a decoder's first call has no past. The name may hold "="."""
    name, sign, sizes = text.rpartition("=")
    numbers = sizes.split(",") if sizes else []
    if not sign or not name or not all(re.fullmatch(r" *[0-9]{1,9} *", n) for n in numbers):
        raise ValueError(f"{text!r} is not a shape: give NAME=1,3,224,224, whole numbers and commas")
    return name, tuple(int(n) for n in numbers)


@written("NAME=64")
def dimension(text: str) -> tuple[str, tuple[int, ...]]:
    """The name of a dimension and its sizes, each once; 0 is one, as in `shape`."""
    name, _, sizes = text.rpartition("=")
    if not name or not re.fullmatch(r" *[0-9]{1,9} *(, *[0-9]{1,9} *)*", sizes, re.ASCII):
        raise ValueError(f"{text!r} is not a dimension: give NAME=64, or several sizes as NAME=16,64")
    return name, tuple(dict.fromkeys(int(n) for n in sizes.split(",")))


@written("NAME=FILE.npy")
def input_files(text: str) -> tuple[str, tuple[Path, ...]]:
    """An input's name and the .npy files that feed it: one where all of the text is a path, else those between its
    commas.
    """
    name, _, files = text.partition("=")
    if not name or not files:
        raise ValueError(f"{text!r} names no file: give NAME=FILE.npy")
    return name, (Path(files),) if Path(files).exists() else tuple(map(Path, files.split(",")))


class RecordValue(click.Path):
    """A results database: a file, or a database of a PostgreSQL server."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A path, or what `gnomon.store.address` makes of an address. RecordError for one with a password."""
        from gnomon.store.address import PostgresAddress, record_address

        if isinstance(address := record_address(value), PostgresAddress):
            return address
        return super().convert(value, param, ctx)


RECORD = click.option(
    "--record",
    type=RecordValue(),
    metavar="FILE|URL",
    help="The results database: a file, or postgresql://USER@HOST/DATABASE.  [default: the user's own]",
)


@written("KEY=VALUE[,KEY=VALUE]")
def environment(text: str) -> dict[str, str]:
    """Environment variables of one variant. A comma that no KEY= follows belongs to the value."""
    variables: dict[str, str] = {}
    for part in re.split(r",(?=[A-Za-z_][A-Za-z0-9_]*=)", text):
        key, sign, value = part.partition("=")
        if not sign or not _KEY.fullmatch(key):
            raise ValueError(f"{part!r} is not an environment variable: give KEY=VALUE[,KEY=VALUE]")
        if "\0" in value:
            raise ValueError(f"the value of {key} holds a NUL character")
        if key in variables:
            raise ValueError(f"{key} is given twice in {text!r}; another --env is another variant")
        variables[key] = value
    return variables


def _setting(text: str, keys: re.Pattern[str], name: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not value or not keys.fullmatch(key):
        raise ValueError(f"{text!r} is not a setting: give {name}")
    return key, value


@written("KEY=VALUE")
def setting(text: str) -> tuple[str, str]:
    """A setting of a tool: its name and its value."""
    return _setting(text, _KEY, "KEY=VALUE")


@written("TOOLCHAIN.KEY=VALUE")
def toolchain_setting(text: str) -> tuple[str, str]:
    """A setting of one of several toolchains: its name with the toolchain's before it, and its value."""
    return _setting(text, _TOOLCHAIN_KEY, "TOOLCHAIN.KEY=VALUE")


@written("latency=1,memory=0.1")
def weights(text: str) -> dict[str, float]:
    """Weights of a problem's objectives."""
    numbers: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.rpartition("="))
        if name in numbers:
            raise ValueError(f"{name!r} is given twice")
        try:
            numbers[name] = float(number)
        except ValueError:
            raise ValueError(f"{part!r} is not a weight: give latency=1,memory=0.1") from None
        if not name:
            raise ValueError(f"{part!r} names no objective: give latency=1,memory=0.1")
    return numbers


def _number(text: str) -> float:
    """A number; NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


@written("SECONDS")
def seconds(text: str) -> float:
    """A time span: a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number of seconds") from None
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{text!r} is not above 0 and finite")
    return number


@written("2ms")
def latency(text: str) -> float:
    """A latency: a number above 0 with its unit. Without one it is an error: 2 would be seconds, and is meant as ms."""
    match = re.fullmatch(r"\s*(?P<number>[^\sa-z]+|[^\sa-z]+e[^\sa-z]+)\s*(?P<unit>s|ms|us|ns)\s*", text)
    number = _number(match["number"]) * _UNITS[match["unit"]] if match else math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{text!r} is not a latency above 0: give a number and s, ms, us or ns")
    return number


@written("10min")
def span(text: str) -> float:
    """A time span with its unit. Without one it is an error: 10 may be minutes or seconds."""
    match = re.fullmatch(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>h|min|s|ms|us)\s*", text, re.ASCII)
    number = float(match["number"]) * _SPANS[match["unit"]] if match else math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{text!r} is not a time above 0: give a number and h, min, s, ms or us")
    return number


@written("3%")
def percent(text: str) -> float:
    """A share, in per cent: 3% or 0.5%. Without the sign it is an error: 0.03 could be 3 %."""
    number = _number(text.strip()[:-1]) / 100 if text.strip().endswith("%") else math.nan
    if not 0 <= number <= 1:
        raise ValueError(f"{text!r} is not a share from 0% to 100%: give a number and %")
    return number


@written("4-7")
def cores(text: str) -> tuple[int, ...]:
    """Cores of a device: numbers and ranges."""
    numbers: set[int] = set()
    for part in text.split(","):
        ends = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip(), re.ASCII)
        if not ends or int(ends[2] or ends[1]) < int(ends[1]):
            raise ValueError(f"{part!r} names no cores: give numbers and ranges, such as 0,2 or 4-7")
        numbers.update(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return tuple(sorted(numbers))


@written("1,2,4")
def thread_counts(text: str) -> tuple[int, ...]:
    """Numbers of threads in the order given, each once."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not re.fullmatch(r"[0-9]{1,4}", part, re.ASCII) or not 1 <= int(part) <= 1024:
            raise ValueError(f"{part!r} is not a number of threads from 1 to 1024: give 1,2,4")
    return tuple(dict.fromkeys(map(int, parts)))


@written("NAME[=VALUE,VALUE]")
def tuning(text: str) -> tuple[str, tuple[str, ...]]:
    """An option of a runtime, with the values to try; none mean the usual ones."""
    name, sign, rest = text.partition("=")
    values = tuple(part.strip() for part in rest.split(",")) if sign else ()
    if not name or (sign and not all(values)):
        raise ValueError(f"{text!r} is not an option: give NAME, or NAME=VALUE,VALUE")
    return name, values


@written("OBJECTIVE=80MB")
def bound(text: str) -> tuple[str, float]:
    """An objective and its bound in seconds, bytes, joules or as it is. Seconds for memory are a slip of the pen."""
    from gnomon.api.objectives import objective_unit

    name, _, rest = text.partition("=")
    match = _NUMBER.fullmatch(rest.strip())
    if not name or match is None or match[2] not in _VALUES_UNITS:
        known = ", ".join(unit for unit in _VALUES_UNITS if unit)
        raise ValueError(f"{text!r} is not a bound: give OBJECTIVE=NUMBER with a unit of: {known}")
    number = float(match[1]) * _VALUES_UNITS[match[2]]
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not finite")
    measured_in = objective_unit(name)
    if match[2] and measured_in is not None and match[2] not in _OF.get(measured_in, {}):
        raise ValueError(f"{name} is not measured in {match[2]}")
    return name, number


def complete_device(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of the file of devices that begin so; none where the file cannot be read."""
    from gnomon.devices.config import load_devices
    from gnomon.errors import GnomonError

    try:
        return [name for name in ("local", *load_devices()) if name.startswith(incomplete)]
    except GnomonError:
        return []


def complete_runtime(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of runtimes that begin so, installed or not."""
    from gnomon.plugins import named

    return [name for name in named("gnomon.runtimes") if name.startswith(incomplete)]


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of the newest runs that begin so, each with what it is; none where the record cannot be read."""
    from gnomon.api.runs import runs
    from gnomon.errors import GnomonError

    try:
        found = [row.campaign for row in runs(record=ctx.params.get("record"), limit=_MOST_RUNS)]
    except GnomonError:
        return []
    told = [(one.id[:8], f"{one.kind} of {one.context.model_name}") for one in found]
    return [
        CompletionItem(name, help=what) for name, what in [("last", "the newest"), *told] if name.startswith(incomplete)
    ]


def complete_space(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of search spaces that begin so, and files."""
    from gnomon.spaces.loading import known_spaces

    found = [CompletionItem(name) for name in known_spaces() if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def read_problem_bytes(problem: str) -> bytes:
    """The bytes of a file, or with - of the standard input. ProblemError where it cannot be read or is too large."""
    from gnomon.system.files import read_at_most

    try:
        if problem == "-":
            found = read_at_most(sys.stdin.buffer, _MOST_BYTES)
        else:
            with Path(problem).open("rb") as file:
                found = read_at_most(file, _MOST_BYTES)
    except OSError as error:
        raise ProblemError(
            f"the problem {problem} cannot be read: {error.strerror or error}", hint="Give a JSON file, or - for stdin."
        ) from error
    if len(found) > _MOST_BYTES:
        raise ProblemError(f"the problem {problem} is larger than 1 GiB", hint="Give a smaller problem.")
    return found
