"""The result files of pareto_profiler: the dumps of its brute-force search and of its samplers.

Brute force: ``{"oplist": [..], "solutions": [{"memory": KiB, "id": code, "time": ms}]}``; a dump by index also has
``opmap`` and ``opname_by_indx``. Samplers: ``{"configs": {"code": "BACKENDS=.. OP_BACKEND_..=.."}, "oplist": [..],
"solutions": [{"exec_time": ms, "max_rss": KiB, "id": code}], "mode": "name" | "index"}``; in a dump by index,
``oplist`` is the opmap. Some samplers write no ``mode``, and some add ``sample_cnt`` and ``profiling time``.

Source: ``tools/pareto_profiler`` of Samsung ONE: its README, ``brute_force_profiler.py``, ``pareto.py``, ``runner.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, cast

from gnomon.core.codec import OTHERS_TOO, Whole, matching, read_json, within
from gnomon.core.space import Slot, Space, decimal, parse_decimal
from gnomon.core.strict_json import Complaints, Strict, repeated, shown
from gnomon.formats.pareto.config import DEFAULT_BACKENDS, check_backends, read_config, write_config
from gnomon.formats.pareto.oplist import Groups, Mode, Types, group_names, tell_groups, tell_nodes, tell_types

Spelling = Literal["brute-force", "sampler"]

_KEYS: dict[Spelling, tuple[str, str]] = {"brute-force": ("time", "memory"), "sampler": ("exec_time", "max_rss")}
_FILE = Strict(
    what="dump of pareto_profiler",
    hint="Give an unchanged dump of brute_force_profiler.py or of a sampler.",
    most_letters=64 << 20,
)
_MORE = "If there are more backends, name all of them in the order of their digits: --codes NAME,NAME"

Code = Annotated[str, matching("0|[1-9][0-9]*", "a code in decimal digits as the key", 4300)]
Milliseconds = Annotated[float, within(0, 1e12, "a time from 0")]
Kibibytes = Annotated[int, within(0, 1 << 50, "a memory size in KiB")]
Listed = TypeVar("Listed")
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSolution:
    """A measured assignment: its code, the time of a run, and the memory as in the file.

    In pareto_profiler's own files, `memory_kib` is the resident memory in the execution phase, not the peak.
    """

    id: int
    time_ms: float
    memory_kib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """A dump: the meaning of its codes, and the measurements, in the order of the file.

    Digit i of a code stands for the operators that `slots[i]` names (the first digit is the least significant), and a
    digit's value d stands for `backends[d]`. In a dump by index, `opmap` has the group of each node, which is the place
    of its digit in a code, and `opname_by_indx` has each node's type if the file contains it. `configs` has the lines
    of settings by code, letter for letter. `doubts` lists oddities of the file.
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
    def ids(self) -> list[int]:
        """The codes of the measured assignments."""
        return [row.id for row in self.solutions]

    @property
    def space(self) -> Space:
        """The space of the codes: a slot for each digit, with the backends as choices."""
        return Space(tuple(Slot(name, self.backends) for name in self.slots))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """A solution of the brute-force search."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    id: Whole
    time: Milliseconds
    memory: Kibibytes


_ALIASES = {"profiling_time": "profiling time", "time": "exec_time", "memory": "max_rss"}
_ALIASED = OTHERS_TOO | {"alias_generator": lambda name: _ALIASES.get(name, name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampled(_Timed):
    """A solution of a sampler."""

    __pydantic_config__: ClassVar[Any] = _ALIASED


_ROWS: dict[Spelling, type[_Timed]] = {"brute-force": _Timed, "sampler": _Sampled}


@dataclass(frozen=True, slots=True, kw_only=True)
class _File(Generic[Listed, Row]):
    """The parts of a dump that are used, with an oplist and solutions of these types."""

    __pydantic_config__: ClassVar[Any] = _ALIASED
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
    """Read a dump of either kind, as JSON text (UTF-8 if bytes).

    `backends` are the names by digit. If they are not given, they are taken from the configs; without configs they are
    cpu, acl_cl, acl_neon in this order, and the codes show how many of them are used. Raises ProblemError, with the
    path inside the file, for any fault in it, including a code that is out of range or given twice, a config that
    contradicts its code, and backends that the file does not determine.
    """
    data = _FILE.object(_FILE.parse(text), "$")
    spelling, mode, has_types = _spelling(data), _mode(data), _has_types(data)
    kind = cast(Any, _File)[Types if has_types else Groups, _ROWS[spelling]]
    read: _File[Any, Any] = read_json(kind, data, _FILE)
    complaints = Complaints(what=_FILE.what, hint=_FILE.hint)
    if read.mode not in (None, mode):
        complaints.tell("$.mode", f"{mode!r} expected, because the oplist is by {mode}, {read.mode!r} found")
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
        complaints.tell(f"$.solutions[{index}].id", f"code {shown(ids[index])} is already in $.solutions[{first}]")
    complaints.raise_any()
    slots = oplist if opmap is None else group_names(opmap, nodes)
    configs = {parse_decimal(code): line for code, line in read.configs.items()}
    names = read.backends if backends is None else tuple(backends)
    if names is not None:
        check_backends(names, "$.backends" if backends is None else "the backends given", _FILE)
    dump = Dump(
        mode=mode,
        slots=slots,
        backends=(),
        solutions=tuple(DumpSolution(id=r.id, time_ms=r.time, memory_kib=r.memory) for r in read.solutions),
        configs=configs,
        opmap=opmap,
        oplist=oplist,
        opname_by_indx=nodes,
        sample_count=read.sample_cnt,
        profiling_s=read.profiling_time,
        spelling=spelling,
    )
    named, doubts = _backends_of(dump, names)
    return replace(dump, backends=named, doubts=doubts)


def write_dump(dump: Dump) -> str:
    """The JSON text of a dump in its spelling, in the published layout.

    Configs of the dump are written unchanged; others are made from their codes. Names of backends other than
    pareto_profiler's own go into a key `backends`, which the tool's readers ignore. Raises ProblemError if the spelling
    cannot hold the dump.
    """
    kind = dump.spelling
    time_key, memory_key = _KEYS[kind]
    parts: list[tuple[str, str]] = []
    if kind == "sampler":
        parts.append(("configs", _block([f'"{decimal(i)}": {json.dumps(t)}' for i, t in _all_configs(dump)], "{}")))
        parts.append(("oplist", json.dumps(list(dump.oplist if dump.opmap is None else dump.opmap))))
    else:
        if dump.opmap is not None:
            if dump.opname_by_indx is None:
                _FILE.fail("$.opname_by_indx", "missing, but a brute-force dump by index must contain it")
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
    """The configs of the dump by code, then new ones for the other solutions."""
    space = dump.space
    configs = dict(dump.configs)
    for row in dump.solutions:
        if row.id not in configs:
            chosen = space.names(space.decode(row.id))
            configs[row.id] = write_config(dump.slots, dump.opmap, dump.backends, chosen)
    return list(configs.items())


def _spelling(data: Mapping[str, object]) -> Spelling:
    """The spelling of a dump, according to its first solution."""
    rows = data.get("solutions")
    if not isinstance(rows, list) or not rows:
        return "sampler" if "configs" in data or "mode" in data else "brute-force"
    first = rows[0] if isinstance(rows[0], dict) else {}
    fitting: list[Spelling] = [kind for kind, keys in _KEYS.items() if first.keys() >= set(keys)]
    if len(fitting) != 1:
        _FILE.fail("$.solutions[0]", "the keys 'time' and 'memory', or 'exec_time' and 'max_rss', expected")
    return fitting[0]


def _has_types(data: Mapping[str, object]) -> bool:
    """Return True if the oplist has types. In a sampler's dump by index, it has groups of nodes instead."""
    listed = data.get("oplist")
    return not (isinstance(listed, list) and listed and type(listed[0]) is int)


def _mode(data: Mapping[str, object]) -> Mode:
    """The mode of a dump, according to its lists, because samplers by NSGA-II and SPEA2 write no mode."""
    return "name" if data.get("opmap") is None and _has_types(data) else "index"


def _backends_of(dump: Dump, given: tuple[str, ...] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The backend of each digit, and the oddities of the file. ProblemError if the file does not determine the
    backends, or if a code or config does not fit them.
    """
    doubts: list[str] = []
    if dump.configs:
        backends = _from_configs(dump, given)
    elif given is not None:
        backends = given
    elif dump.ids:
        backends = _from_codes(dump, doubts)
    else:
        _FILE.fail(
            "$.solutions",
            "empty, and there are no configs, so the file does not show the backends",
            "Name the backends in the order of their digits, such as --codes cpu,acl_cl.",
        )
    size = len(backends) ** len(dump.slots)
    for index, code in enumerate(dump.ids):
        if code >= size:
            message = f"code {shown(code)} is out of range: with {len(dump.slots)} digits and "
            message += f"the backends {', '.join(backends)}, the largest is {shown(size - 1)}"
            _FILE.fail(f"$.solutions[{index}].id", message, _MORE)
    if dump.opmap is not None and len(dump.slots) > 1 and dump.ids:
        reached = len(backends) ** (len(dump.slots) - 1)
        if max(dump.ids) < reached and (len(dump.ids) == reached or dump.spelling == "sampler"):
            doubts.append(_short(dump, reached, size))
    return backends, tuple(doubts)


def _short(dump: Dump, reached: int, size: int) -> str:
    """A doubt about a dump by index: pareto_profiler counts one group too few, so the last group is always on the first
    backend.
    """
    whose = f"the last group ({dump.slots[-1]}) is always on the first backend"
    if dump.spelling == "brute-force":
        return f"pareto_profiler tried {shown(reached)} of {shown(size)} codes: its index mode has a bug, so {whose}"
    return f"codes end at {shown(reached - 1)} of {shown(size - 1)}: pareto_profiler's index mode has a bug, so {whose}"


def _from_codes(dump: Dump, doubts: list[str]) -> tuple[str, ...]:
    digits, most, count = len(dump.slots), max(dump.ids), len(dump.ids)
    bases = range(2, len(DEFAULT_BACKENDS) + 1)
    if dump.spelling == "brute-force" and most == count - 1:
        for base in bases:
            if count == base**digits or (dump.opmap is not None and digits > 1 and count == base ** (digits - 1)):
                return DEFAULT_BACKENDS[:base]
    fitting = [base for base in bases if most < base**digits]
    if not fitting:
        where = dump.ids.index(most)
        message = f"code {shown(most)} is out of range: with {digits} digits and {len(DEFAULT_BACKENDS)} "
        message += f"backends, the largest is {shown(len(DEFAULT_BACKENDS) ** digits - 1)}"
        _FILE.fail(f"$.solutions[{where}].id", message, _MORE)
    base = fitting[0]
    if len(fitting) > 1:
        doubts.append(
            f"the file does not state the number of backends; gnomon assumes {base}, the smallest number for which all "
            "codes are in range"
        )
    return DEFAULT_BACKENDS[:base]


def _from_configs(dump: Dump, given: tuple[str, ...] | None) -> tuple[str, ...]:
    """The backend of each digit, from the configs whose codes contain the digit."""
    first: tuple[str, ...] | None = None
    space: Space | None = None
    names: dict[int, str] = {}
    for code, text in dump.configs.items():
        path = f"$.configs.{shown(code)}"
        backends, chosen = read_config(text, dump.slots, dump.opmap, path, _FILE)
        if first is None or space is None:
            first = backends
            base = tuple(map(str, range(len(first))))
            space = Space(tuple(Slot(slot, base) for slot in dump.slots))
            if given is not None and set(given) != set(first):
                _FILE.fail(path, f"BACKENDS is {shown(';'.join(first))}, not the given {shown(';'.join(given))}")
            names = dict(enumerate(given or ()))
        if set(backends) != set(first):
            _FILE.fail(path, f"BACKENDS is {shown(';'.join(backends))} here, but {shown(';'.join(first))} earlier")
        if code >= space.size:
            _FILE.fail(path, f"out of range: with {len(dump.slots)} digits, the last code is {shown(space.size - 1)}")
        for slot, digit, backend in zip(dump.slots, space.decode(code), chosen, strict=True):
            if digit not in names and backend in names.values():
                other = next(number for number, name in names.items() if name == backend)
                _FILE.fail(path, f"digits {other} and {digit} both mean {shown(backend)}")
            if names.setdefault(digit, backend) != backend:
                message = f"digit {digit} means {shown(backend)} for {shown(slot)}, but {shown(names[digit])} elsewhere"
                _FILE.fail(path, message)
    assert first is not None  # noqa: S101
    return _complete(names, first)


def _complete(names: dict[int, str], backends: tuple[str, ...]) -> tuple[str, ...]:
    usual = [name for name in DEFAULT_BACKENDS if name in backends]
    rest = [name for name in (usual if len(usual) == len(backends) else backends) if name not in names.values()]
    open_digits = [digit for digit in range(len(backends)) if digit not in names]
    if len(open_digits) > 1 and len(usual) < len(backends):
        _FILE.fail(
            "$.configs",
            f"no config shows the digits of {shown(';'.join(rest))}",
            "Name the backends in the order of their digits, such as --codes cpu,acl_cl.",
        )
    by_digit = {**names, **dict(zip(open_digits, rest, strict=True))}
    return tuple(by_digit[digit] for digit in range(len(backends)))
