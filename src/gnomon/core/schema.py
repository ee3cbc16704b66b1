"""JSON Schema (draft 2020-12) of the records that `gnomon.core.codec` reads and writes, made from their types."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from gnomon.core.codec import Must, field_types

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_PLAIN: Mapping[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}


def schema_of(kind: type[Any], *, title: str) -> dict[str, Any]:
    """The schema of a record's JSON: what each field is, and by the docstrings what it means.

    Fields that the codec demands are required. More of them than are named may come: a later version may add some.
    """
    definitions: Definitions = {}
    reference = _schema(kind, definitions)
    named = {of.__name__: schema for of, schema in sorted(definitions.items(), key=lambda item: item[0].__name__)}
    if len(named) < len(definitions):
        raise TypeError(f"two records of {title} have one name")
    return {"$schema": DIALECT, "title": title, **reference, "$defs": named}


Definitions = dict[type[Any], dict[str, Any]]
"""The schemas of the records that were met."""


def _schema(kind: Any, definitions: Definitions) -> dict[str, Any]:
    if kind is Any:
        return {}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        told = "; ".join(must.be for must in arguments[1:] if isinstance(must, Must))
        return _schema(arguments[0], definitions) | ({"description": told} if told else {})
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if dataclasses.is_dataclass(kind):
        return _record(typing.cast(type[Any], kind), definitions)
    if origin in (types.UnionType, typing.Union):
        return _either([_schema(a, definitions) for a in arguments if a is not type(None)], type(None) in arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is tuple:
        items = [_schema(a, definitions) for a in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    raise TypeError(f"no field has the type {kind}")


def _either(choices: list[dict[str, Any]], null: bool) -> dict[str, Any]:
    """One of several schemas, or null."""
    if null and len(choices) == 1 and isinstance(choices[0].get("type"), str):
        return choices[0] | {"type": [choices[0]["type"], "null"]}
    choices = [*choices, {"type": "null"}] if null else choices
    return choices[0] if len(choices) == 1 else {"anyOf": choices}


def _record(kind: type[Any], definitions: Definitions) -> dict[str, Any]:
    if kind not in definitions:
        made = definitions[kind] = {}  # a record may hold its own kind
        fields = field_types(kind)
        made |= {
            "type": "object",
            "description": inspect.cleandoc(kind.__doc__ or ""),
            "properties": {field: _schema(of, definitions) for field, (of, _) in fields.items()},
            "required": [field for field, (_, required) in fields.items() if required],
        }
    return {"$ref": f"#/$defs/{kind.__name__}"}
