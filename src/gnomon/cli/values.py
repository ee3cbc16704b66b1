"""Option values with a form of their own: NAME=1,3,224,224, NAME=FILE.npy, KEY=VALUE,KEY=VALUE, NAME=80MB; and problems
from a file or the standard input.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from gnomon.errors import ProblemError

_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SPANS = {"h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOOLCHAIN_KEY = re.compile(r"[A-Za-z0-9_+-]+\.[A-Za-z_][A-Za-z0-9_]*")


class ShapeValue(click.ParamType[tuple[str, tuple[int, ...]]]):
    """An input's name and its shape."""

    name = "NAME=1,3,224,224"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """(name, dimensions), which may be 0: a decoder's first call has no past. The name may hold "=" itself."""
        name, sign, text = str(value).rpartition("=")
        numbers = text.split(",") if text else []
        if not sign or not name or not all(re.fullmatch(r" *[0-9]{1,9} *", n) for n in numbers):
            self.fail(f"{value!r} is not a shape: give {self.name}, whole numbers and commas", param, ctx)
        return name, tuple(int(n) for n in numbers)


class DimensionValue(click.ParamType[tuple[str, tuple[int, ...]]]):
    """The name of a dimension and its sizes."""

    name = "NAME=64"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """(name, sizes), each once; 0 is one, as in `ShapeValue`."""
        name, _, text = str(value).rpartition("=")
        if not name or not re.fullmatch(r" *[0-9]{1,9} *(, *[0-9]{1,9} *)*", text, re.ASCII):
            self.fail(f"{value!r} is not a dimension: give {self.name}, or several sizes as NAME=16,64", param, ctx)
        return name, tuple(dict.fromkeys(int(n) for n in text.split(",")))


class InputValue(click.ParamType[tuple[str, tuple[Path, ...]]]):
    """An input's name and the .npy files that feed it."""

    name = "NAME=FILE.npy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """(name, paths): one where all of the text is a path, else those between its commas."""
        name, _, files = str(value).partition("=")
        if not name or not files:
            self.fail(f"{value!r} names no file: give {self.name}", param, ctx)
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


class EnvironmentValue(click.ParamType[dict[str, str]]):
    """Environment variables of one variant."""

    name = "KEY=VALUE[,KEY=VALUE]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Key -> value. A comma that no KEY= follows belongs to the value."""
        if isinstance(value, dict):
            return value
        made: dict[str, str] = {}
        for part in re.split(r",(?=[A-Za-z_][A-Za-z0-9_]*=)", str(value)):
            key, sign, text = part.partition("=")
            if not sign or not _KEY.fullmatch(key):
                self.fail(f"{part!r} is not an environment variable: give {self.name}", param, ctx)
            if "\0" in text:
                self.fail(f"the value of {key} holds a NUL character", param, ctx)
            if key in made:
                self.fail(f"{key} is given twice in {value!r}; another --env is another variant", param, ctx)
            made[key] = text
        return made


class SettingValue(click.ParamType[tuple[str, str]]):
    """A setting of a tool: its name and its value."""

    name = "KEY=VALUE"
    keys = _KEY

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """(key, value)."""
        key, sign, text = str(value).partition("=")
        if not sign or not text or not self.keys.fullmatch(key):
            self.fail(f"{value!r} is not a setting: give {self.name}", param, ctx)
        return key, text


class ToolchainSettingValue(SettingValue):
    """A setting of one of several toolchains: its name with the toolchain's before it, and its value."""

    name = "TOOLCHAIN.KEY=VALUE"
    keys = _TOOLCHAIN_KEY


class WeightsValue(click.ParamType[dict[str, float]]):
    """Weights of a problem's objectives."""

    name = "latency=1,memory=0.1"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Objective -> weight."""
        if isinstance(value, dict):
            return value
        made: dict[str, float] = {}
        for part in str(value).split(","):
            name, _, text = part.rpartition("=")
            if name.strip() in made:
                self.fail(f"{name.strip()!r} is given twice", param, ctx)
            try:
                made[name.strip()] = float(text)
            except ValueError:
                self.fail(f"{part!r} is not a weight: give {self.name}", param, ctx)
            if not name.strip():
                self.fail(f"{part!r} names no objective: give {self.name}", param, ctx)
        return made


class Seconds(click.ParamType[float]):
    """A time span: a finite number above 0."""

    name = "SECONDS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        if not (math.isfinite(number) and number > 0):
            self.fail(f"{value!r} is not above 0 and finite", param, ctx)
        return number


class Latency(click.ParamType[float]):
    """A latency: a number above 0 with its unit. Without one it is an error: 2 would be seconds, and is meant as ms."""

    name = "2ms"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number of seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"\s*(?P<number>[^\sa-z]+|[^\sa-z]+e[^\sa-z]+)\s*(?P<unit>s|ms|us|ns)\s*", str(value))
        try:
            number = float(match["number"]) * _UNITS[match["unit"]] if match else math.nan
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            self.fail(f"{value!r} is not a latency above 0: give a number and s, ms, us or ns", param, ctx)
        return number


class Span(click.ParamType[float]):
    """A time span with its unit. Without one it is an error: 10 may be minutes or seconds."""

    name = "10min"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number of seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>h|min|s|ms|us)\s*", str(value), re.ASCII)
        seconds = float(match["number"]) * _SPANS[match["unit"]] if match else math.nan
        if not (math.isfinite(seconds) and seconds > 0):
            self.fail(f"{value!r} is not a time above 0: give a number and h, min, s, ms or us", param, ctx)
        return seconds


class Percent(click.ParamType[float]):
    """A share, in per cent: 3% or 0.5%. Without the sign it is an error: 0.03 could be 3 %."""

    name = "3%"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The share as a number: 0.03."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            number = float(text[:-1]) / 100 if text.endswith("%") else math.nan
        except ValueError:
            number = math.nan
        if not 0 <= number <= 1:
            self.fail(f"{value!r} is not a share from 0% to 100%: give a number and %", param, ctx)
        return number


class Cores(click.ParamType[tuple[int, ...]]):
    """Cores of a device: numbers and ranges."""

    name = "4-7"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The cores, in order."""
        if isinstance(value, tuple):
            return value
        cores: set[int] = set()
        for part in str(value).split(","):
            ends = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip(), re.ASCII)
            if not ends or int(ends[2] or ends[1]) < int(ends[1]):
                self.fail(f"{part!r} names no cores: give numbers and ranges, such as 0,2 or 4-7", param, ctx)
            cores.update(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
        return tuple(sorted(cores))


class Threads(click.ParamType[tuple[int, ...]]):
    """Numbers of threads."""

    name = "1,2,4"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The numbers in the order given, each once."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        for part in parts:
            if not re.fullmatch(r"[0-9]{1,4}", part, re.ASCII) or not 1 <= int(part) <= 1024:
                self.fail(f"{part!r} is not a number of threads from 1 to 1024: give {self.name}", param, ctx)
        return tuple(dict.fromkeys(map(int, parts)))


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


_MOST_RUNS = 50
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)\s*([A-Za-z]*)")
_SIZES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_ENERGIES = {"nJ": 1e-9, "uJ": 1e-6, "mJ": 1e-3, "J": 1.0, "kJ": 1e3}
_VALUES_UNITS = {"": 1.0, **_SIZES, **_TIMES, **_ENERGIES}
_OF = {"B": _SIZES, "s": _TIMES, "J": _ENERGIES}


class TuningValue(click.ParamType[tuple[str, tuple[str, ...]]]):
    """An option of a runtime, with the values to try."""

    name = "NAME[=VALUE,VALUE]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """(name, values); no values mean the usual ones."""
        if isinstance(value, tuple):
            return value
        name, sign, text = str(value).partition("=")
        values = tuple(part.strip() for part in text.split(",")) if sign else ()
        if not name or (sign and not all(values)):
            self.fail(f"{value!r} is not an option: give NAME, or NAME=VALUE,VALUE", param, ctx)
        return name, values


class BoundValue(click.ParamType[tuple[str, float]]):
    """A bound of an objective, with its unit."""

    name = "OBJECTIVE=80MB"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """(objective, bound in seconds, bytes, joules or as it is)."""
        if isinstance(value, tuple):
            return value
        name, _, text = str(value).partition("=")
        match = _NUMBER.fullmatch(text.strip())
        if not name or match is None or match[2] not in _VALUES_UNITS:
            known = ", ".join(unit for unit in _VALUES_UNITS if unit)
            self.fail(f"{value!r} is not a bound: give OBJECTIVE=NUMBER with a unit of: {known}", param, ctx)
        number = float(match[1]) * _VALUES_UNITS[match[2]]
        if not math.isfinite(number):
            self.fail(f"{value!r} is not finite", param, ctx)
        _check_kind(self, name, match[2], (param, ctx))
        return name, number


def _check_kind(kind: BoundValue, name: str, unit: str, where: tuple[Any, Any]) -> None:
    """Seconds for memory, or bytes for a time, are a slip of the pen."""
    from gnomon.api.objectives import objective_unit

    measured_in = objective_unit(name)
    if unit and measured_in is not None and unit not in _OF.get(measured_in, {}):
        kind.fail(f"{name} is not measured in {unit}", *where)


_MOST_BYTES = 1 << 30


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
