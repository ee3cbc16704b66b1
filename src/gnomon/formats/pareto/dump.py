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
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, cast

from gnomon.core.codec import OTHERS_TOO, Whole, matching, read_json, within
from gnomon.core.space import Slot, Space, decimal, parse_decimal
from gnomon.core.strict_json import Complaints, Strict, repeated, shown
from gnomon.formats.pareto.config import DEFAULT_BACKENDS, Found, backends_of, check_backends, write_config
from gnomon.formats.pareto.oplist import Groups, Mode, Types, group_names, tell_groups, tell_nodes, tell_types

Spelling = Literal["brute-force", "sampler"]

_KEYS: dict[Spelling, tuple[str, str]] = {"brute-force": ("time", "memory"), "sampler": ("exec_time", "max_rss")}
_FILE = Strict(
    what="dump of pareto_profiler",
    hint="give a dump of brute_force_profiler.py or of a sampler, as they wrote it",
    most_letters=64 << 20,
)

Code = Annotated[str, matching("0|[1-9][0-9]*", "a code in decimal digits as the key", 4300)]
Milliseconds = Annotated[float, within(0, 1e12, "milliseconds")]
Kibibytes = Annotated[int, within(0, 1 << 50, "a number of KiB that a memory can have")]
Listed = TypeVar("Listed")
Row = TypeVar("Row")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """A solution of the brute force."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    id: Whole
    time: Milliseconds
    memory: Kibibytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampled:
    """A solution of a sampler."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    id: Whole
    exec_time: Milliseconds
    max_rss: Kibibytes


_ALIASES = {"profiling_time": "profiling time"}
_ROWS: dict[Spelling, type[_Timed | _Sampled]] = {"brute-force": _Timed, "sampler": _Sampled}


@dataclass(frozen=True, slots=True, kw_only=True)
class _File(Generic[Listed, Row]):
    """What is read of a dump whose oplist and solutions are of these types."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO | {"alias_generator": lambda name: _ALIASES.get(name, name)}
    oplist: Listed
    solutions: tuple[Row, ...]
    opmap: Groups | None = None
    opname_by_indx: Types | None = None
    configs: Mapping[Code, str] = field(default_factory=dict)
    mode: Mode | None = None
    backends: tuple[str, ...] | None = None
    sample_cnt: Whole | None = None
    profiling_time: Milliseconds | None = None


def read_dump(text: str | bytes, backends: Sequence[str] | None = None) -> Dump:
    """Reads a dump of either kind, as JSON text (UTF-8 if bytes).

    `backends` are the names by digit. Without them they are taken from the configs; where there are none, from the
    number of codes and the largest, as cpu, acl_cl, acl_neon in this order. Raises ProblemError, which names the path
    inside the file, for whatever is wrong with it: also a code that is out of range, one given twice, a config that is
    not what its code means, and backends that the file does not tell.
    """
    data = _FILE.object(_FILE.parse(text), "$")
    spelling, mode, has_types = _spelling(data), _mode(data), _has_types(data)
    kind = cast(Any, _File)[Types if has_types else Groups, _ROWS[spelling]]
    read: _File[Any, Any] = read_json(kind, data, _FILE)
    complaints = Complaints(what=_FILE.what, hint=_FILE.hint)
    if read.mode not in (None, mode):
        complaints.tell("$.mode", f"{read.mode!r}, and the oplist is one by {mode}")
    oplist, opmap = (read.oplist, read.opmap) if has_types else ((), read.oplist)
    nodes: Types | None = None
    if has_types:
        tell_types(oplist, complaints)
    if opmap is not None:
        tell_groups(opmap, "$.opmap" if has_types else "$.oplist", complaints)
    if opmap is not None and has_types:
        nodes = read.opname_by_indx or ()
        tell_nodes(oplist, opmap, nodes, complaints)
    ids = [row.id for row in read.solutions]
    for index, first in repeated(ids):
        complaints.tell(f"$.solutions[{index}].id", f"code {shown(ids[index])} is in $.solutions[{first}] already")
    complaints.raise_any()
    slots = oplist if opmap is None else group_names(opmap, nodes)
    configs = {parse_decimal(code): line for code, line in read.configs.items()}
    names = read.backends if backends is None else tuple(backends)
    if names is not None:
        check_backends(names, "$.backends" if backends is None else "the backends given", _FILE)
    found = Found(slots=slots, opmap=opmap, ids=ids, configs=configs, full=spelling == "brute-force")
    known, doubts = backends_of(found, names, _FILE)
    time_key, memory_key = _KEYS[spelling]
    return Dump(
        mode=mode,
        slots=slots,
        backends=known,
        solutions=tuple(
            DumpSolution(id=row.id, time_ms=getattr(row, time_key), memory_kib=getattr(row, memory_key))
            for row in read.solutions
        ),
        configs=configs,
        opmap=opmap,
        oplist=oplist,
        opname_by_indx=nodes,
        sample_count=read.sample_cnt,
        profiling_s=read.profiling_time,
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


def _spelling(data: Mapping[str, object]) -> Spelling:
    """Whose words a dump is in, as its first solution shows."""
    rows = data.get("solutions")
    if not isinstance(rows, list) or not rows:
        return "sampler" if "configs" in data or "mode" in data else "brute-force"
    first = rows[0] if isinstance(rows[0], dict) else {}
    fitting: list[Spelling] = [kind for kind, keys in _KEYS.items() if first.keys() >= set(keys)]
    if len(fitting) != 1:
        _FILE.fail("$.solutions[0]", "either 'time' and 'memory' expected in it, or 'exec_time' and 'max_rss'")
    return fitting[0]


def _has_types(data: Mapping[str, object]) -> bool:
    """Whether the oplist has types; that of a sampler by index has the group of each node."""
    listed = data.get("oplist")
    return not (isinstance(listed, list) and listed and type(listed[0]) is int)


def _mode(data: Mapping[str, object]) -> Mode:
    """The mode that the lists of a dump show: samplers by NSGA-II and SPEA2 write none."""
    return "name" if data.get("opmap") is None and _has_types(data) else "index"
