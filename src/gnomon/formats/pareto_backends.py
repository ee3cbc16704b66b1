"""How many backends a dump of pareto_profiler is about, and which: its files do not say it in so many words.

The digits 0, 1 and 2 are cpu, acl_cl and acl_neon in pareto_profiler (``utils.py`` of its estimators), which takes two
or three backends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gnomon.core.space import Slot, Space
from gnomon.core.strict_json import Strict, shown
from gnomon.formats.pareto_config import read_config

DEFAULT_BACKENDS = ("cpu", "acl_cl", "acl_neon")
"""The backend of each digit in pareto_profiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a file holds. `full`: its codes are those of a brute force, so that their number tells the base."""

    slots: tuple[str, ...]
    opmap: tuple[int, ...] | None
    ids: Sequence[int]
    configs: Mapping[int, str]
    full: bool


def backends_of(found: Found, given: tuple[str, ...] | None, file: Strict) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The backend of each digit, and what is odd about the file. ProblemError where it does not tell the backends.

    All codes and configs are checked against them.
    """
    doubts: list[str] = []
    if found.configs:
        backends = _from_configs(found, given, file)
    elif given is not None:
        backends = given
    elif found.ids:
        backends = _from_codes(found, doubts, file)
    else:
        file.fail(
            "$.solutions",
            "empty, and without configs too nothing tells the backends",
            "Name the backends by digit, such as cpu, acl_cl.",
        )
    size = len(backends) ** len(found.slots)
    for index, code in enumerate(found.ids):
        if code >= size:
            told = f"code {shown(code)} is out of range: {len(found.slots)} digits of {len(backends)} backends "
            told += f"({', '.join(backends)}) end at {shown(size - 1)}"
            file.fail(f"$.solutions[{index}].id", told, "Name all backends by digit, if there are more of them.")
    if found.opmap is not None and len(found.slots) > 1 and found.ids:
        reached = len(backends) ** (len(found.slots) - 1)
        if max(found.ids) < reached and (len(found.ids) == reached or not found.full):
            doubts.append(_short(found, reached, size))
    return backends, tuple(doubts)


def _short(found: Found, reached: int, size: int) -> str:
    """pareto_profiler counts one group too few by index, so that the last one never leaves the first backend."""
    whose = f"the last group ({found.slots[-1]}) never leaves the first backend"
    if found.full:
        return f"by index pareto_profiler goes through {shown(reached)} of {shown(size)} codes: {whose}"
    return f"no code is beyond {shown(reached - 1)} of {shown(size - 1)}, as pareto_profiler errs by index: {whose}"


def _from_codes(found: Found, doubts: list[str], file: Strict) -> tuple[str, ...]:
    digits, most, count = len(found.slots), max(found.ids), len(found.ids)
    bases = range(2, len(DEFAULT_BACKENDS) + 1)
    if found.full and most == count - 1:
        for base in bases:
            if count == base**digits or (found.opmap is not None and digits > 1 and count == base ** (digits - 1)):
                return DEFAULT_BACKENDS[:base]
    fitting = [base for base in bases if most < base**digits]
    if not fitting:
        where = list(found.ids).index(most)
        told = f"code {shown(most)} is out of range: {digits} digits of {len(DEFAULT_BACKENDS)} backends end at "
        told += shown(len(DEFAULT_BACKENDS) ** digits - 1)
        file.fail(f"$.solutions[{where}].id", told, "Name the backends by digit, if there are more of them.")
    base = fitting[0]
    if len(fitting) > 1:
        doubts.append(
            f"the file does not tell how many backends there are: {base} are taken, the least with which no code is "
            "out of range"
        )
    return DEFAULT_BACKENDS[:base]


def _from_configs(found: Found, given: tuple[str, ...] | None, file: Strict) -> tuple[str, ...]:
    """The backend of each digit, as the configs have it where their codes have the digit."""
    first: tuple[str, ...] | None = None
    space: Space | None = None
    names: dict[int, str] = {}
    for code, text in found.configs.items():
        path = f"$.configs['{shown(code)}']"
        config = read_config(text, found.slots, found.opmap, path, file)
        if first is None or space is None:
            first = config.backends
            base = tuple(map(str, range(len(first))))
            space = Space(tuple(Slot(slot, base) for slot in found.slots))
            if given is not None and set(given) != set(first):
                file.fail(path, f"BACKENDS are {shown(';'.join(first))}, and {shown(';'.join(given))} are given")
            names = dict(enumerate(given or ()))
        if set(config.backends) != set(first):
            file.fail(path, f"BACKENDS are {shown(';'.join(config.backends))} here, {shown(';'.join(first))} before")
        if code >= space.size:
            file.fail(path, f"the code is out of range: {len(found.slots)} digits end at {shown(space.size - 1)}")
        for slot, digit, backend in zip(found.slots, space.decode(code), config.chosen, strict=True):
            if digit not in names and backend in names.values():
                other = next(number for number, name in names.items() if name == backend)
                file.fail(path, f"digits {other} and {digit} both mean {shown(backend)}")
            if names.setdefault(digit, backend) != backend:
                told = (
                    f"digit {digit} puts {shown(slot)} on {shown(backend)} here, and means {shown(names[digit])} else"
                )
                file.fail(path, told)
    assert first is not None  # noqa: S101
    return _complete(names, first, file)


def _complete(names: dict[int, str], backends: tuple[str, ...], file: Strict) -> tuple[str, ...]:
    usual = [name for name in DEFAULT_BACKENDS if name in backends]
    rest = [name for name in (usual if len(usual) == len(backends) else backends) if name not in names.values()]
    open_digits = [digit for digit in range(len(backends)) if digit not in names]
    if len(open_digits) > 1 and len(usual) < len(backends):
        file.fail(
            "$.configs",
            f"no config shows which digits {shown(';'.join(rest))} are",
            "Name the backends by digit, such as cpu, acl_cl.",
        )
    known = {**names, **dict(zip(open_digits, rest, strict=True))}
    return tuple(known[digit] for digit in range(len(backends)))
