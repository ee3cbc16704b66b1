"""The result files of pareto_profiler: the dump of its brute force, and that of its samplers.

Brute force: ``{"oplist": [..], "solutions": [{"memory": KiB, "id": code, "time": ms}]}``, by index with ``opmap`` and
``opname_by_indx`` too. Samplers: ``{"configs": {"code": "BACKENDS=.. OP_BACKEND_..=.."}, "oplist": [..], "solutions":
[{"exec_time": ms, "max_rss": KiB, "id": code}], "mode": "name" | "index"}``; by index their ``oplist`` is the opmap.
Some write no ``mode``, some add ``sample_cnt`` and ``profiling time``.

Source: ``tools/pareto_profiler`` of Samsung ONE: its README, ``brute_force_profiler.py``, ``pareto.py``, ``runner.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gnomon.core.space import Slot, Space, decimal, parse_decimal
from gnomon.core.strict_json import Strict, is_text, shown
from gnomon.formats.pareto.config import DEFAULT_BACKENDS, Found, backends_of, check_backends, write_config
from gnomon.formats.pareto.oplist import Mode, check_group_types, group_names, groups_in, types_in

Spelling = Literal["brute-force", "sampler"]

_MOST_SOLUTIONS = 1 << 21
_MOST_MS = 1e12
_MOST_KIB = 1 << 50
_KEYS: dict[Spelling, tuple[str, str]] = {"brute-force": ("time", "memory"), "sampler": ("exec_time", "max_rss")}
_FILE = Strict(
    what="dump of pareto_profiler",
    hint="give a dump of brute_force_profiler.py or of a sampler, as they wrote it",
    most_letters=64 << 20,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSolution:
    """One measured assignment: its code, the time of a run, and the memory as the file has it.

    `memory_kib` of pareto_profiler's own files is the resident memory of its execution phase, not the peak.
    """

    id: int
    time_ms: float
    memory_kib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """A dump: what its codes mean, and what was measured, in the order of the file.

    `slots` names what digit i of a code belongs to (first digit least significant); digit d means `backends[d]`. By
    index `opmap` has the group of each node, which is its digit, and `opname_by_indx` each node's type where the file
    tells it. `configs` are the lines of settings by code, letter for letter. `doubts` tells what is odd about the file.
    """

    mode: Mode
    slots: tuple[str, ...]
    backends: tuple[str, ...]
    solutions: tuple[DumpSolution, ...]
    configs: Mapping[int, str] = field(default_factory=dict)
    opmap: tuple[int, ...] | None = None
    oplist: tuple[str, ...] = ()
    opname_by_indx: tuple[str, ...] | None = None
    sample_count: int | None = None
    profiling_s: float | None = None
    spelling: Spelling = "sampler"
    doubts: tuple[str, ...] = ()

    @property
    def space(self) -> Space:
        """The space of the codes: a slot for each digit, with the backends as choices."""
        return Space(tuple(Slot(name, self.backends) for name in self.slots))


def read_dump(text: str | bytes, backends: Sequence[str] | None = None) -> Dump:
    """Reads a dump of either kind, as JSON text (UTF-8 if bytes).

    `backends` are the names by digit. Without them they are taken from the configs; where there are none, from the
    number of codes and the largest, as cpu, acl_cl, acl_neon in this order. Raises ProblemError, which names the path
    inside the file, for whatever is wrong with it: also a code that is out of range, one given twice, a config that is
    not what its code means, and backends that the file does not tell.
    """
    data = _FILE.object(_FILE.parse(text), "$")
    spelling = _spelling(data)
    mode = _mode(data)
    oplist, opmap, nodes = _slots(data, mode)
    slots = oplist if opmap is None else group_names(opmap, nodes)
    solutions = _solutions(data, spelling)
    configs = _configs(data.get("configs", {}))
    given = data.get("backends") if backends is None else list(backends)
    if given is not None:
        path = "$.backends" if backends is None else "the backends given"
        check_backends(_FILE.items(given, path, 10), path, _FILE)
    found = Found(
        slots=slots, opmap=opmap, ids=[row.id for row in solutions], configs=configs, full=spelling == "brute-force"
    )
    known, doubts = backends_of(found, None if given is None else tuple(given), _FILE)
    _check_unique(solutions)
    profiling = data.get("profiling time")
    count = data.get("sample_cnt")
    return Dump(
        mode=mode,
        slots=slots,
        backends=known,
        solutions=solutions,
        configs=configs,
        opmap=opmap,
        oplist=oplist,
        opname_by_indx=nodes,
        sample_count=None if count is None else _FILE.whole(count, "$.sample_cnt", "a number of samples"),
        profiling_s=None if profiling is None else _number(profiling, "$['profiling time']", _MOST_MS, "seconds"),
        spelling=spelling,
        doubts=doubts,
    )


def write_dump(dump: Dump, spelling: Spelling | None = None) -> str:
    """The JSON text of a dump in one of the two spellings (None: the dump's own), laid out as published.

    Configs that the dump has are written as they are, others made from their codes. Names of backends other than
    pareto_profiler's own go into a key `backends` that its readers do not look at. Raises ProblemError where the
    spelling cannot hold the dump.
    """
    kind = dump.spelling if spelling is None else spelling
    time_key, memory_key = _KEYS[kind]
    parts: list[tuple[str, str]] = []
    if kind == "sampler":
        parts.append(("configs", _block([f'"{decimal(i)}": {json.dumps(t)}' for i, t in _all_configs(dump)], "{}")))
        parts.append(("oplist", json.dumps(list(dump.oplist if dump.opmap is None else dump.opmap))))
    else:
        if dump.opmap is not None:
            if dump.opname_by_indx is None:
                _FILE.fail("$.opname_by_indx", "missing, and the dump of a brute force by index holds it")
            parts.append(("opname_by_indx", json.dumps(list(dump.opname_by_indx))))
            parts.append(("opmap", json.dumps(list(dump.opmap))))
        parts.append(("oplist", json.dumps(list(dump.oplist))))
    rows = []
    for row in dump.solutions:
        time, memory = json.dumps(row.time_ms, allow_nan=False), row.memory_kib
        if kind == "sampler":
            rows.append(f'{{"{time_key}": {time}, "{memory_key}": {memory}, "id": {decimal(row.id)}}}')
        else:
            rows.append(f'{{"{memory_key}": {memory}, "id": {decimal(row.id)}, "{time_key}": {time}}}')
    parts.append(("solutions", _block(rows, "[]")))
    if kind == "sampler":
        parts.append(("mode", json.dumps(dump.mode)))
    if dump.sample_count is not None:
        parts.append(("sample_cnt", str(dump.sample_count)))
    if dump.profiling_s is not None:
        parts.append(("profiling time", json.dumps(dump.profiling_s)))
    if dump.backends != DEFAULT_BACKENDS[: len(dump.backends)]:
        parts.append(("backends", json.dumps(list(dump.backends))))
    return "{" + ",\n".join(f"{json.dumps(key)}: {text}" for key, text in parts) + "}\n"


def _block(rows: Sequence[str], marks: str) -> str:
    return f"{marks[0]}\n" + ",\n".join(rows) + marks[1] if rows else marks


def _all_configs(dump: Dump) -> list[tuple[int, str]]:
    """Those that the dump has, then those of the other solutions."""
    space = dump.space
    found = dict(dump.configs)
    for row in dump.solutions:
        if row.id not in found:
            chosen = space.names(space.decode(row.id))
            found[row.id] = write_config(dump.slots, dump.opmap, dump.backends, chosen)
    return list(found.items())


def _spelling(data: Mapping[str, Any]) -> Spelling:
    for key in ("oplist", "solutions"):
        if key not in data:
            _FILE.fail(f"$.{key}", "missing, so this is not a dump of pareto_profiler")
    if data["solutions"] == []:
        return "sampler" if "configs" in data or "mode" in data else "brute-force"
    rows = _FILE.items(data["solutions"], "$.solutions", _MOST_SOLUTIONS)
    first = _FILE.object(rows[0], "$.solutions[0]")
    fitting: list[Spelling] = [kind for kind, keys in _KEYS.items() if all(key in first for key in keys)]
    if len(fitting) != 1:
        _FILE.fail("$.solutions[0]", "either 'time' and 'memory' expected in it, or 'exec_time' and 'max_rss'")
    return fitting[0]


def _mode(data: Mapping[str, Any]) -> Mode:
    """The mode that the file tells, or that its lists show: NSGA-II and SPEA2 write none."""
    listed = data["oplist"]
    by_index = "opmap" in data or (isinstance(listed, list) and bool(listed) and type(listed[0]) is int)
    mode = data.get("mode", "index" if by_index else "name")
    if mode not in ("name", "index"):
        _FILE.fail("$.mode", f"'name' or 'index' expected, {shown(mode)} found")
    if (mode == "index") != by_index:
        _FILE.fail("$.mode", f"{shown(mode)}, and the oplist is one by {'index' if by_index else 'name'}")
    return "index" if by_index else "name"


def _slots(
    data: Mapping[str, Any], mode: Mode
) -> tuple[tuple[str, ...], tuple[int, ...] | None, tuple[str, ...] | None]:
    """The operator types, the group of each node, and each node's type, as far as the file tells them."""
    if mode == "name":
        return types_in(data["oplist"], "$.oplist", _FILE), None, None
    if "opmap" not in data:  # a sampler's: its "oplist" is the opmap
        return (), groups_in(data["oplist"], "$.oplist", _FILE), None
    opmap = groups_in(data["opmap"], "$.opmap", _FILE)
    oplist = types_in(data["oplist"], "$.oplist", _FILE)
    nodes = tuple(_FILE.items(data.get("opname_by_indx"), "$.opname_by_indx", len(opmap)))
    if len(nodes) != len(opmap):
        _FILE.fail("$.opname_by_indx", f"{len(opmap)} names expected, {len(nodes)} found")
    check_group_types(oplist, opmap, nodes, _FILE)
    return oplist, opmap, nodes


def _solutions(data: Mapping[str, Any], spelling: Spelling) -> tuple[DumpSolution, ...]:
    if data["solutions"] == []:
        return ()
    time_key, memory_key = _KEYS[spelling]
    found = []
    for index, item in enumerate(_FILE.items(data["solutions"], "$.solutions", _MOST_SOLUTIONS)):
        path = f"$.solutions[{index}]"
        row = _FILE.object(item, path)
        for key in ("id", time_key, memory_key):
            if key not in row:
                _FILE.fail(f"{path}.{key}", "missing")
        memory = _FILE.whole(row[memory_key], f"{path}.{memory_key}", "a whole number of KiB")
        if memory > _MOST_KIB:
            _FILE.fail(f"{path}.{memory_key}", "more than any memory")
        found.append(
            DumpSolution(
                id=_FILE.whole(row["id"], f"{path}.id", "a code"),
                time_ms=_number(row[time_key], f"{path}.{time_key}", _MOST_MS, "milliseconds"),
                memory_kib=memory,
            )
        )
    return tuple(found)


def _number(value: Any, path: str, most: float, what: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= most:
        _FILE.fail(path, f"{what} expected, {shown(value)} found")
    return float(value)


def _configs(data: Any) -> dict[int, str]:
    found: dict[int, str] = {}
    for key, text in _FILE.object(data, "$.configs").items():
        path = f"$.configs[{shown(key)}]"
        if not (key.isascii() and key.isdigit()) or len(key) > 4300 or (len(key) > 1 and key[0] == "0"):
            _FILE.fail(path, "a code in decimal digits expected as the key")
        if not isinstance(text, str) or not is_text(text):
            _FILE.fail(path, f"a text expected, {shown(text)} found")
        found[parse_decimal(key)] = text
    return found


def _check_unique(solutions: Sequence[DumpSolution]) -> None:
    seen: dict[int, int] = {}
    for index, row in enumerate(solutions):
        if row.id in seen:
            _FILE.fail(f"$.solutions[{index}].id", f"code {shown(row.id)} is in $.solutions[{seen[row.id]}] already")
        seen[row.id] = index
