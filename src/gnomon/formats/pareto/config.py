"""The settings for onert in a dump of pareto_profiler.

They look like ``BACKENDS="acl_cl;cpu" OP_BACKEND_Conv2D=cpu``. In a dump by name, there is an ``OP_BACKEND_<type>`` for
each type; in a dump by index, a single ``OP_BACKEND_MAP="0=cpu;1=acl_cl"`` for all nodes.

Source: ``tools/pareto_profiler/estimator/utils.py`` of Samsung ONE (``fetch_config_by_name``,
``fetch_config_by_indx``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gnomon.core.strict_json import Strict, shown
from gnomon.formats.pareto.oplist import MOST_NODES, is_type

_SETTING = re.compile(r'\s*(BACKENDS|OP_BACKEND_[^\s="]{1,200})=(?:"([^"]*)"|([^\s"]*))(?:\s|\Z)')
_MOST_BACKENDS = 10
DEFAULT_BACKENDS = ("cpu", "acl_cl", "acl_neon")
"""The backend of each digit in pareto_profiler, which uses the first two or all three; its files do not say which."""


def read_config(
    text: str, slots: Sequence[str], opmap: Sequence[int] | None, path: str, file: Strict
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The backends that a line of settings loads, in its order, and the backend of each slot of a code.

    `opmap` is None for a dump by name. ProblemError, with the `path`, for a malformed line.
    """
    settings: dict[str, str] = {}
    at, text = 0, text.strip()
    while at < len(text):
        match = _SETTING.match(text, at)
        if match is None or match[1] in settings:
            what = "a setting is given twice at" if match else "BACKENDS=.. or OP_BACKEND_..=.. expected at"
            file.fail(path, f"{what} {shown(text[at : at + 40])}")
        if len(settings) > len(slots):
            file.fail(path, f"more settings than the {len(slots) + 1} that the oplist allows, BACKENDS included")
        settings[match[1]] = match[3] if match[2] is None else match[2]
        at = match.end()
    if "BACKENDS" not in settings:
        file.fail(path, "BACKENDS, which lists the backends to load, is missing")
    backends = tuple(settings.pop("BACKENDS").split(";"))
    check_backends(backends, path, file)
    chosen = _by_name(settings, slots, path, file) if opmap is None else _by_index(settings, slots, opmap, path, file)
    for slot, backend in zip(slots, chosen, strict=True):
        if backend not in backends:
            file.fail(path, f"{shown(slot)} is on {shown(backend)}, which is not in BACKENDS")
    return backends, chosen


def check_backends(backends: Sequence[str], path: str, file: Strict) -> None:
    """Raise ProblemError unless these are one to ten different names of backends."""
    if not 1 <= len(backends) <= _MOST_BACKENDS or not all(map(is_type, backends)):
        file.fail(
            path, f"1 to {_MOST_BACKENDS} names of backends expected, {shown(';'.join(map(str, backends)))} found"
        )
    if len(set(backends)) != len(backends):
        file.fail(path, f"a backend is named twice in {shown(';'.join(backends))}")


def write_config(
    slots: Sequence[str], opmap: Sequence[int] | None, backends: Sequence[str], chosen: Sequence[str]
) -> str:
    """The line of settings that gives each slot its backend, exactly as pareto_profiler writes it."""
    head = f'BACKENDS="{";".join(sorted(backends))}" '
    if opmap is None:
        return head + "".join(f"OP_BACKEND_{slot}={backend} " for slot, backend in zip(slots, chosen, strict=True))
    return head + 'OP_BACKEND_MAP="' + ";".join(f"{node}={chosen[group]}" for node, group in enumerate(opmap)) + '"'


def _by_name(settings: dict[str, str], slots: Sequence[str], path: str, file: Strict) -> tuple[str, ...]:
    chosen = []
    for slot in slots:
        if f"OP_BACKEND_{slot}" not in settings:
            file.fail(path, f"OP_BACKEND_{slot} is missing")
        chosen.append(settings.pop(f"OP_BACKEND_{slot}"))
    if settings:
        file.fail(path, f"{shown(next(iter(settings)))} does not name a type of the oplist")
    return tuple(chosen)


def _by_index(
    settings: dict[str, str], slots: Sequence[str], opmap: Sequence[int], path: str, file: Strict
) -> tuple[str, ...]:
    if set(settings) != {"OP_BACKEND_MAP"}:
        file.fail(path, "only BACKENDS and OP_BACKEND_MAP expected, because the dump is by index")
    parts = settings["OP_BACKEND_MAP"].split(";", MOST_NODES)
    if len(parts) != len(opmap):
        file.fail(path, f"the backends of {len(opmap)} nodes expected, {len(parts)} found")
    chosen: dict[int, str] = {}
    for node, (part, group) in enumerate(zip(parts, opmap, strict=True)):
        number, _, backend = part.partition("=")
        if number != str(node):
            file.fail(path, f"'{node}=..' expected, {shown(part)} found")
        if chosen.setdefault(group, backend) != backend:
            message = f"node {node} is on {shown(backend)}, but its group {group} is on {shown(chosen[group])}"
            file.fail(path, message)
    return tuple(chosen[group] for group in range(len(slots)))
