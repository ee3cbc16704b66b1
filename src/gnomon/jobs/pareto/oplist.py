"""The job `oplist`: the meaning of the digits of a model's codes, and pareto_profiler's oplist.json for the model.

Its document is in this module, because the module of `pareto`'s document imports everything that measuring needs. This
job measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gnomon.core.codec import fields_of
from gnomon.core.graph import By, Graph, Grouping, grouped
from gnomon.core.space import decimal
from gnomon.errors import ModelError, ProblemError, UsageError
from gnomon.formats.onert.operators import ir_opcode
from gnomon.formats.pareto.config import write_config
from gnomon.formats.pareto.oplist import OpList, fitting, write_oplist
from gnomon.models.load import load
from gnomon.report.answer import FirstVersion
from gnomon.report.plain import many
from gnomon.system.files import save_text

DEFAULT_BACKENDS = ("cpu", "acl_cl")
"""The default backends of pareto_profiler."""

_MOST_BACKENDS = 10
_ONERT_FORMATS = ("tflite", "circle")


@dataclass(frozen=True, slots=True, kw_only=True)
class OplistModel:
    """The model."""

    path: str
    format: str
    digest: str
    operators: int
    macs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OplistSlot:
    """The operators of a digit of a code: their types with onert's names, the operators, and their data."""

    digit: int
    name: str
    types: tuple[str, ...]
    opcodes: tuple[str | None, ...]
    operators: tuple[int, ...]
    data_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OplistExample:
    """A code that puts one slot on a different backend from all other slots, and onert's configuration for this
    code.
    """

    code: str
    slot: str
    backend: str
    others: str
    config: str | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OplistDocument(FirstVersion):
    """The slots of a model, the backends by digit, and the oplist. Codes are texts because they may be large.

    `opcodes` are onert's names of the model's types, null for a type that onert does not load. `oplist` is the file as
    ONE's pareto_profiler reads it, null if onert does not accept such a model; `file` is its path if it was written.
    """

    format: Literal["gnomon-oplist"] = "gnomon-oplist"
    model: OplistModel
    by: str
    backends: tuple[str, ...]
    opcodes: Mapping[str, str | None]
    slots: tuple[OplistSlot, ...]
    codes: str
    example: OplistExample
    oplist: Mapping[str, object] | None
    file: str | None

    main = "slots"

    def headline(self) -> tuple[str, str]:
        """The model and the number of codes."""
        return Path(self.model.path).name, f"{many(len(self.slots), 'slot')}, {self.codes} codes."


def oplist(
    path: str | Path, by: By = "type", *, backends: Sequence[str] = DEFAULT_BACKENDS, out: Path | None = None
) -> OplistDocument:
    """Read a model, group its operators, and write the oplist to `out` if it is given.

    With `by` "type", the slots are onert's operator types, and the oplist has the published format by name; with groups
    or operators, it has the format by index. Raises ModelError for a model that cannot be read or is empty and, if an
    oplist is requested, for a model that onert does not load; UsageError for invalid backends, and if the file cannot
    be written.
    """
    _check(backends)
    model = load(path)
    graph = model.graph
    if not graph.operators:
        raise ModelError(f"the model {path} has no operator", hint="Give a model with operators.")
    loads = graph.format in _ONERT_FORMATS
    opcodes = {op.type: ir_opcode(op.type) if loads else None for op in graph.operators}
    kinds = [opcodes[op.type] or op.type for op in graph.operators]
    grouping = grouped(graph, by, kinds)
    form = _oplist(grouping, kinds) if all(opcodes.values()) else None
    if out is not None:
        if form is None:
            raise _not_onert(graph, opcodes)
        save_text(write_oplist(form), out, what="the oplist")
    return OplistDocument(
        model=OplistModel(
            path=str(model.path),
            format=graph.format,
            digest=graph.digest,
            operators=len(graph.operators),
            macs=graph.macs,
        ),
        by=by,
        backends=tuple(backends),
        opcodes=opcodes,
        slots=tuple(
            OplistSlot(
                digit=digit,
                opcodes=tuple(dict.fromkeys(opcodes[name] for name in group.types)),
                **fields_of(OplistSlot, group),
            )
            for digit, group in enumerate(grouping.groups)
        ),
        codes=decimal(grouping.space(backends).size),
        example=_example(grouping, backends, form),
        oplist=None if form is None else json.loads(write_oplist(form)),
        file=None if out is None else str(out),
    )


def _example(grouping: Grouping, backends: Sequence[str], form: OpList | None) -> OplistExample:
    """The code that puts only the third slot, or the last if there are fewer, on the second backend."""
    space = grouping.space(backends)
    assignment = [0] * len(space.slots)
    digit = min(3, len(assignment)) - 1
    assignment[digit] = min(1, len(backends) - 1)
    chosen = space.names(assignment)
    return OplistExample(
        code=decimal(space.encode(assignment)),
        slot=grouping.groups[digit].name,
        backend=chosen[digit],
        others=backends[0],
        config=None if form is None else write_config(form.slots, form.opmap, backends, chosen).strip(),
    )


def _check(backends: Sequence[str]) -> None:
    good = all(name and name.isascii() and not set(name) & set(" \t\r\n\"';=") for name in backends)
    if not 1 <= len(backends) <= _MOST_BACKENDS or len(set(backends)) != len(backends) or not good:
        raise UsageError(
            f"{','.join(backends)!r} is not a list of backends",
            hint=f"Give up to {_MOST_BACKENDS} different names, such as: cpu,acl_cl,acl_neon",
        )


def _oplist(grouping: Grouping, kinds: Sequence[str]) -> OpList:
    types = tuple(dict.fromkeys(kinds))
    try:
        if grouping.by == "type":
            return fitting(OpList(oplist=types))
        return fitting(OpList(oplist=types, opmap=grouping.slot_of, opname_by_indx=tuple(kinds)))
    except ProblemError as error:  # more slots or nodes than the format allows
        raise ModelError(f"no oplist can be made by {grouping.by}: {error.message}", hint="Use --by type.") from error


def _not_onert(graph: Graph, opcodes: dict[str, str | None]) -> ModelError:
    unknown = ", ".join(name for name, opcode in opcodes.items() if opcode is None)
    refused, other = f"operators of type {unknown}", "a model without them"
    if graph.format not in _ONERT_FORMATS:
        refused, other = f"{graph.format} models", "a TFLite or Circle model"
    return ModelError(
        f"onert does not load {refused}, so there is no oplist to write",
        hint=f"Give {other}, or leave out --out to see only the slots.",
    )
