"""The backends in a dump of pareto_profiler: how many and which, and its settings for onert.

The files do not say in so many words what the digits of a code are. In pareto_profiler they are 0 cpu, 1 acl_cl and 2
acl_neon, of which it takes two or three.

Settings are such as ``BACKENDS="acl_cl;cpu" OP_BACKEND_Conv2D=cpu``. By name there is one ``OP_BACKEND_<type>`` for
each type; by index one ``OP_BACKEND_MAP="0=cpu;1=acl_cl"`` over all nodes.

Source: ``tools/pareto_profiler/estimator/utils.py`` of Samsung ONE (``fetch_config_by_name``,
``fetch_config_by_indx``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gnomon.core.space import Slot, Space
from gnomon.core.strict_json import Strict, shown
from gnomon.formats.pareto.oplist import MOST_NODES, is_type

_SETTING = re.compile(r'\s*(BACKENDS|OP_BACKEND_[^\s="]{1,200})=(?:"([^"]*)"|([^\s"]*))(?:\s|\Z)')
_MOST_BACKENDS = 10
DEFAULT_BACKENDS = ("cpu", "acl_cl", "acl_neon")
"""The backend of each digit in pareto_profiler."""


def read_config(
    text: str, slots: Sequence[str], opmap: Sequence[int] | None, path: str, file: Strict
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The backends that a line of settings loads, as there, and the backend that it gives each slot of a code.

    `opmap` is None where slots are by name. ProblemError tells the path.
    """
    found: dict[str, str] = {}
    at, text = 0, text.strip()
    while at < len(text):
        match = _SETTING.match(text, at)
        if match is None or match[1] in found:
            what = "set twice" if match else "BACKENDS=.. and OP_BACKEND_..=.. expected"
            file.fail(path, f"{what}: {shown(text[at : at + 40])}")
        if len(found) > len(slots):
            file.fail(path, f"more settings than the {len(slots)} of the oplist, and BACKENDS")
        found[match[1]] = match[3] if match[2] is None else match[2]
        at = match.end()
    if "BACKENDS" not in found:
        file.fail(path, "it does not say which BACKENDS are loaded")
    backends = tuple(found.pop("BACKENDS").split(";"))
    check_backends(backends, path, file)
    chosen = _by_name(found, slots, path, file) if opmap is None else _by_index(found, slots, opmap, path, file)
    for slot, backend in zip(slots, chosen, strict=True):
        if backend not in backends:
            file.fail(path, f"{shown(slot)} is on {shown(backend)}, which is not among its BACKENDS")
    return backends, chosen


def check_backends(backends: Sequence[str], path: str, file: Strict) -> None:
    """Raise ProblemError unless these are one to ten names of backends, each once."""
    if not 1 <= len(backends) <= _MOST_BACKENDS or not all(map(is_type, backends)):
        file.fail(
            path, f"1 to {_MOST_BACKENDS} names of backends expected, {shown(';'.join(map(str, backends)))} found"
        )
    if len(set(backends)) != len(backends):
        file.fail(path, f"a backend is named twice in {shown(';'.join(backends))}")


def write_config(
    slots: Sequence[str], opmap: Sequence[int] | None, backends: Sequence[str], chosen: Sequence[str]
) -> str:
    """The line of settings that gives each slot its backend, letter for letter as pareto_profiler writes it."""
    head = f'BACKENDS="{";".join(sorted(backends))}" '
    if opmap is None:
        return head + "".join(f"OP_BACKEND_{slot}={backend} " for slot, backend in zip(slots, chosen, strict=True))
    return head + 'OP_BACKEND_MAP="' + ";".join(f"{node}={chosen[group]}" for node, group in enumerate(opmap)) + '"'


def _by_name(found: dict[str, str], slots: Sequence[str], path: str, file: Strict) -> tuple[str, ...]:
    chosen = []
    for slot in slots:
        if f"OP_BACKEND_{slot}" not in found:
            file.fail(path, f"OP_BACKEND_{slot} is missing")
        chosen.append(found.pop(f"OP_BACKEND_{slot}"))
    if found:
        file.fail(path, f"{shown(next(iter(found)))} is of no type in the oplist")
    return tuple(chosen)


def _by_index(
    found: dict[str, str], slots: Sequence[str], opmap: Sequence[int], path: str, file: Strict
) -> tuple[str, ...]:
    if set(found) != {"OP_BACKEND_MAP"}:
        file.fail(path, "one OP_BACKEND_MAP alone expected, since the nodes are given by index")
    parts = found["OP_BACKEND_MAP"].split(";", MOST_NODES)
    if len(parts) != len(opmap):
        file.fail(path, f"the backends of {len(opmap)} nodes expected, {len(parts)} found")
    chosen: dict[int, str] = {}
    for node, (part, group) in enumerate(zip(parts, opmap, strict=True)):
        number, _, backend = part.partition("=")
        if number != str(node):
            file.fail(path, f"'{node}=..' expected, {shown(part)} found")
        if chosen.setdefault(group, backend) != backend:
            told = f"node {node} is on {shown(backend)}, and others of group {group} on {shown(chosen[group])}"
            file.fail(path, told)
    return tuple(chosen[group] for group in range(len(slots)))


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
            "empty, and without configs nothing else names the backends",
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
            f"the file does not say how many backends there are: {base} are taken, the least with which no code is "
            "out of range"
        )
    return DEFAULT_BACKENDS[:base]


def _from_configs(found: Found, given: tuple[str, ...] | None, file: Strict) -> tuple[str, ...]:
    """The backend of each digit, as the configs have it where their codes have the digit."""
    first: tuple[str, ...] | None = None
    space: Space | None = None
    names: dict[int, str] = {}
    for code, text in found.configs.items():
        path = f"$.configs.{shown(code)}"
        backends, chosen = read_config(text, found.slots, found.opmap, path, file)
        if first is None or space is None:
            first = backends
            base = tuple(map(str, range(len(first))))
            space = Space(tuple(Slot(slot, base) for slot in found.slots))
            if given is not None and set(given) != set(first):
                file.fail(path, f"BACKENDS are {shown(';'.join(first))}, and {shown(';'.join(given))} are given")
            names = dict(enumerate(given or ()))
        if set(backends) != set(first):
            file.fail(path, f"BACKENDS are {shown(';'.join(backends))} here, {shown(';'.join(first))} before")
        if code >= space.size:
            file.fail(path, f"the code is out of range: {len(found.slots)} digits end at {shown(space.size - 1)}")
        for slot, digit, backend in zip(found.slots, space.decode(code), chosen, strict=True):
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
