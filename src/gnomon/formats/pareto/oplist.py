"""``oplist.json``: the operators that the digits of pareto_profiler's integer codes stand for.

By name it is ``{"oplist": [types]}``: digit i gives the backend of all operators of the type ``oplist[i]``. By index it
is ``{"opmap": [..], "oplist": [types], "opname_by_indx": [type of each node]}``: digit ``opmap[n]`` gives the backend
of node n, and there is a digit for each distinct pair of operator name and data size.

Source: ``tools/pareto_profiler/generator/gen_oplist.py`` of Samsung ONE. Its order comes from a Python set and
changes from run to run, so codes have a meaning only together with this file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from gnomon.core.codec import OTHERS_TOO, matching, read_json, whole
from gnomon.core.strict_json import Complaints, Strict, repeated, shown

Mode = Literal["name", "index"]

MOST_SLOTS = 4096
"""The largest number of digits: no code then exceeds the 4,300 decimal digits that Python converts."""
MOST_NODES = 1 << 17
_FILE = Strict(
    what="oplist", hint="Give an oplist.json of gen_oplist.py, or write one: gnomon oplist MODEL", most_letters=16 << 20
)
_NAME = matching(r"[A-Za-z_][A-Za-z0-9_.+/:-]{0,199}", "an operator type such as 'Conv2D'")
Types = tuple[Annotated[str, _NAME], ...]
"""Operator types."""

Groups = tuple[Annotated[int, whole(0, MOST_SLOTS - 1)], ...]
"""The group of each node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpList:
    """The types or nodes that the digits of a code stand for. By name, `opmap` and `opname_by_indx` are None."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    oplist: Types
    opmap: Groups | None = None
    opname_by_indx: Types | None = None

    @property
    def mode(self) -> Mode:
        """Whether a digit stands for an operator type ("name") or for a group of nodes ("index")."""
        return "name" if self.opmap is None else "index"

    @property
    def slots(self) -> tuple[str, ...]:
        """A name for each digit: "Conv2D" by name, "3 Conv2D" (a group's number and type) by index."""
        if self.opmap is None or self.opname_by_indx is None:
            return self.oplist
        return group_names(self.opmap, self.opname_by_indx)


def read_oplist(text: str | bytes) -> OpList:
    """Read an oplist.json, as JSON text (UTF-8 if bytes). ProblemError with all faults, each with its path."""
    return fitting(read_json(OpList, text, _FILE))


def fitting(listing: OpList) -> OpList:
    """The same oplist. ProblemError with all parts that do not fit together, each with its path in a file."""
    complaints = Complaints(what=_FILE.what, hint=_FILE.hint)
    tell_types(listing.oplist, complaints)
    if listing.opmap is not None and listing.opname_by_indx is not None:
        tell_groups(listing.opmap, "$.opmap", complaints)
        tell_nodes(listing.oplist, listing.opmap, listing.opname_by_indx, complaints)
    elif listing.mode == "index" or listing.opname_by_indx is not None:
        missing = "opmap" if listing.opmap is None else "opname_by_indx"
        complaints.tell(f"$.{missing}", "missing, but an oplist by index has both opmap and opname_by_indx")
    complaints.raise_any()
    return listing


def write_oplist(listing: OpList) -> str:
    """The JSON text of an oplist.json, which `read_oplist` reads back as an equal oplist."""
    listed = {name: getattr(listing, name) for name in ("opmap", "oplist", "opname_by_indx")}
    return json.dumps({name: values for name, values in listed.items() if values is not None}) + "\n"


def is_type(name: str) -> bool:
    """Return True if a name can be part of the environment variable OP_BACKEND_<name>."""
    return _NAME.fits(name)


def tell_types(types: Sequence[str], complaints: Complaints) -> None:
    """Report too few or too many operator types, and types that are listed twice."""
    if not 1 <= len(types) <= MOST_SLOTS:
        complaints.tell("$.oplist", f"1 to {MOST_SLOTS} operator types expected, {len(types)} found")
    for index, first in repeated(types):
        complaints.tell(f"$.oplist[{index}]", f"{shown(types[index])} is already in $.oplist[{first}]")


def tell_groups(groups: Sequence[int], path: str, complaints: Complaints) -> None:
    """Report too few or too many nodes, and groups without a node."""
    if not 1 <= len(groups) <= MOST_NODES:
        complaints.tell(path, f"the groups of 1 to {MOST_NODES} nodes expected, {len(groups)} found")
    last = max(groups, default=0)
    gap = next(iter(sorted(set(range(last)) - set(groups))), None)
    if gap is not None:
        complaints.tell(path, f"group {last} has nodes, but group {gap} has none")


def tell_nodes(oplist: Sequence[str], opmap: Sequence[int], nodes: Sequence[str], complaints: Complaints) -> None:
    """Report nodes whose types are not in `oplist`, groups of several types, and types without a node."""
    if len(nodes) != len(opmap):
        complaints.tell("$.opname_by_indx", f"{len(opmap)} names expected, {len(nodes)} found")
        return
    listed, types = set(oplist), dict[int, str]()
    for index, (group, name) in enumerate(zip(opmap, nodes, strict=True)):
        if name not in listed:
            complaints.tell(f"$.opname_by_indx[{index}]", f"a type of $.oplist expected, {shown(name)} found")
        elif types.setdefault(group, name) != name:
            message = f"{shown(types[group])} expected, as for other nodes of group {group}, {shown(name)} found"
            complaints.tell(f"$.opname_by_indx[{index}]", message)
    unused = listed - set(nodes)
    for index, name in enumerate(oplist):
        if name in unused:
            complaints.tell(f"$.oplist[{index}]", f"no node has the type {shown(name)}")


def group_names(opmap: Sequence[int], nodes: Sequence[str] | None) -> tuple[str, ...]:
    """A name for each group: its number, and its type if known."""
    if nodes is None:
        return tuple(f"group {group}" for group in range(max(opmap) + 1))
    types = dict(zip(opmap, nodes, strict=True))
    return tuple(f"{group} {types[group]}" for group in range(max(opmap) + 1))
