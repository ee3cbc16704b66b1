"""Option values of `gnomon pareto`: NAME[=VALUE,VALUE] of a runtime's option, NAME=80MB of a bound."""

from __future__ import annotations

import math
import re
from typing import Any

import click

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)\s*([A-Za-z]*)")
_SIZES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_ENERGIES = {"nJ": 1e-9, "uJ": 1e-6, "mJ": 1e-3, "J": 1.0, "kJ": 1e3}
_UNITS = {"": 1.0, **_SIZES, **_TIMES, **_ENERGIES}
_OF = {"peak-memory": _SIZES, "latency": _TIMES, "cpu-time": _TIMES, "energy": _ENERGIES}


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
            self.fail(f"{value!r} is no option: give NAME, or NAME=VALUE,VALUE", param, ctx)
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
        if not name or match is None or match[2] not in _UNITS:
            known = ", ".join(unit for unit in _UNITS if unit)
            self.fail(f"{value!r} is no bound: give OBJECTIVE=NUMBER with a unit of: {known}", param, ctx)
        number = float(match[1]) * _UNITS[match[2]]
        if not math.isfinite(number):
            self.fail(f"{value!r} is not finite", param, ctx)
        _check_kind(self, name, match[2], (param, ctx))
        return name, number


def _check_kind(kind: BoundValue, name: str, unit: str, where: tuple[Any, Any]) -> None:
    """Seconds for memory, or bytes for a time, are a slip of the pen."""
    if unit and name in _OF and unit not in _OF[name]:
        kind.fail(f"{name} is not measured in {unit}", *where)
