"""``oplist.json``: what the digits of pareto_profiler's integer codes belong to.

By name it is ``{"oplist": [types]}``: digit i is the backend of all operators of ``oplist[i]``. By index it is
``{"opmap": [..], "oplist": [types], "opname_by_indx": [type of each node]}``: digit ``opmap[n]`` is the backend of
node n, one digit for each distinct pair of operator name and data size.

Source: ``tools/pareto_profiler/generator/gen_oplist.py`` of Samsung ONE. There the order comes from a Python set and
changes from run to run; the file is what makes codes mean anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gnomon.core.strict_json import Strict, shown

Mode = Literal["name", "index"]

MOST_SLOTS = 4096
"""The most digits of a code, which keeps every code below the 4,300 decimal digits that Python converts."""
MOST_NODES = 1 << 17
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.+/:-]{0,199}", re.ASCII)
_FILE = Strict(
    what="oplist", hint="give an oplist.json of gen_oplist.py, or write one: gnomon oplist MODEL", most_letters=16 << 20
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpList:
    """What the digits of a code belong to. `opmap` and `opname_by_indx` are None by name.

    Raises ProblemError, with the path that it would have in the file, where the three do not fit together.
    """

    oplist: tuple[str, ...]
    opmap: tuple[int, ...] | None = None
    opname_by_indx: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_types(self.oplist, "$.oplist", _FILE)
        if (self.opmap is None) != (self.opname_by_indx is None):
            missing = "opmap" if self.opmap is None else "opname_by_indx"
            _FILE.fail(f"$.{missing}", "missing, and by index there are both opmap and opname_by_indx")
        if self.opmap is None or self.opname_by_indx is None:
            return
        check_groups(self.opmap, "$.opmap", _FILE)
        if len(self.opname_by_indx) != len(self.opmap):
            _FILE.fail("$.opname_by_indx", f"{len(self.opmap)} names expected, {len(self.opname_by_indx)} found")
        check_group_types(self.oplist, self.opmap, self.opname_by_indx, _FILE)

    @property
    def mode(self) -> Mode:
        """Whether a digit is an operator type ("name") or a group of nodes ("index")."""
        return "name" if self.opmap is None else "index"

    @property
    def slots(self) -> tuple[str, ...]:
        """A name of what each digit belongs to: "Conv2D" by name, "3 Conv2D" (a group's number and type) by index."""
        if self.opmap is None or self.opname_by_indx is None:
            return self.oplist
        return group_names(self.opmap, self.opname_by_indx)


def read_oplist(text: str | bytes) -> OpList:
    """Reads an oplist.json, as JSON text (UTF-8 if bytes).

    Raises ProblemError, which names the path inside the file, for whatever is wrong with it.
    """
    data = _FILE.object(_FILE.parse(text), "$")
    if "oplist" not in data:
        _FILE.fail("$.oplist", "missing, so this is not an oplist.json")
    opmap = groups_in(data["opmap"], "$.opmap", _FILE) if "opmap" in data else None
    nodes = data.get("opname_by_indx")
    named = None if nodes is None else tuple(_FILE.items(nodes, "$.opname_by_indx", MOST_NODES))
    return OpList(oplist=types_in(data["oplist"], "$.oplist", _FILE), opmap=opmap, opname_by_indx=named)


def write_oplist(found: OpList) -> str:
    """The JSON text of an oplist.json: what `read_oplist` reads back as an equal one."""
    document: dict[str, Any] = {}
    if found.opmap is not None:
        document["opmap"] = list(found.opmap)
    document["oplist"] = list(found.oplist)
    if found.opname_by_indx is not None:
        document["opname_by_indx"] = list(found.opname_by_indx)
    return json.dumps(document) + "\n"


def is_type(name: Any) -> bool:
    """Whether a name can stand in the environment variable OP_BACKEND_<name>."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def types_in(data: Any, path: str, file: Strict) -> tuple[str, ...]:
    """Operator types in a list, each once."""
    found = tuple(file.items(data, path, MOST_SLOTS))
    check_types(found, path, file)
    return found


def check_types(found: Sequence[Any], path: str, file: Strict) -> None:
    """Raise ProblemError unless these are operator types, each once."""
    if not 1 <= len(found) <= MOST_SLOTS:
        file.fail(path, f"1 to {MOST_SLOTS} operator types expected, {len(found)} found")
    seen: dict[str, int] = {}
    for index, name in enumerate(found):
        if not is_type(name):
            file.fail(f"{path}[{index}]", f"an operator type such as 'Conv2D' expected, {shown(name)} found")
        if name in seen:
            file.fail(f"{path}[{index}]", f"{shown(name)} is in {path}[{seen[name]}] already")
        seen[name] = index


def groups_in(data: Any, path: str, file: Strict) -> tuple[int, ...]:
    """The group of each node in a list."""
    found = tuple(file.items(data, path, MOST_NODES))
    check_groups(found, path, file)
    return found


def check_groups(found: Sequence[Any], path: str, file: Strict) -> None:
    """Raise ProblemError unless these are numbers of groups from 0, with none left out."""
    if not 1 <= len(found) <= MOST_NODES:
        file.fail(path, f"the groups of 1 to {MOST_NODES} nodes expected, {len(found)} found")
    for index, group in enumerate(found):
        if file.whole(group, f"{path}[{index}]", "the number of a group") >= MOST_SLOTS:
            file.fail(f"{path}[{index}]", f"the number of a group below {MOST_SLOTS} expected, {shown(group)} found")
    there = set(found)
    gap = next((group for group in range(max(there)) if group not in there), None)
    if gap is not None:
        file.fail(path, f"group {max(there)} has nodes, and group {gap} has none")


def check_group_types(oplist: Sequence[str], opmap: Sequence[int], nodes: Sequence[Any], file: Strict) -> None:
    """Raise ProblemError unless the types of the nodes are those of `oplist`, and one in each group."""
    known = set(oplist)
    types: dict[int, str] = {}
    for index, (group, name) in enumerate(zip(opmap, nodes, strict=True)):
        if not isinstance(name, str) or name not in known:
            file.fail(f"$.opname_by_indx[{index}]", f"a type of $.oplist expected, {shown(name)} found")
        if types.setdefault(group, name) != name:
            told = f"{shown(name)} in group {group}, which has {shown(types[group])} already"
            file.fail(f"$.opname_by_indx[{index}]", told)
    unused = known - set(types.values())
    if unused:
        name = next(name for name in oplist if name in unused)
        file.fail(f"$.oplist[{list(oplist).index(name)}]", f"no node is of the type {shown(name)}")


def group_names(opmap: Sequence[int], nodes: Sequence[str] | None) -> tuple[str, ...]:
    """A name of each group: its number, and its type where that is known."""
    if nodes is None:
        return tuple(f"group {group}" for group in range(max(opmap) + 1))
    types = dict(zip(opmap, nodes, strict=True))
    return tuple(f"{group} {types[group]}" for group in range(max(opmap) + 1))
