"""Records to JSON and back, checked: a frozen dataclass becomes an object with its field names.

Decoding is strict. A missing, unknown or mistyped field is a `RecordError` that names its JSON path, so
that a damaged or foreign record never becomes a wrong number.
"""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from gnomon.errors import RecordError

T = TypeVar("T")

_BAD_VALUE_HINT = "Record plain JSON values: null, true, false, finite numbers, strings, lists, string-keyed maps."
_BAD_RECORD_HINT = "If that is in the record, it was damaged or written by another program: restore it from a copy."


def to_json(value: Any, path: str = "$") -> Any:
    """JSON values of a record: dataclasses and mappings become objects, tuples and lists become lists.

    numpy's integers and floats become numbers. RecordError for NaN, infinities and all that JSON lacks.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        if not math.isfinite(value):
            raise RecordError(f"{path} is {value}, which JSON does not have", hint=_BAD_VALUE_HINT)
        return float(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name), f"{path}.{f.name}") for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise RecordError(f"{path} has a key that is not a string", hint=_BAD_VALUE_HINT)
        return {key: to_json(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, tuple | list):
        if set(map(type, value)) == {int}:
            return list(value)
        return [to_json(item, f"{path}[{i}]") for i, item in enumerate(value)]
    raise RecordError(f"{path} is a {type(value).__name__}, which JSON does not have", hint=_BAD_VALUE_HINT)


def from_json(kind: type[T], value: Any, path: str = "$") -> T:
    """The record of that dataclass out of JSON values; RecordError names the path of what does not fit."""
    return typing.cast(T, _decode(kind, value, path))


def dumps(value: Any, path: str = "$") -> str:
    """Compact JSON text of a record or of JSON values; RecordError as `to_json`."""
    return json.dumps(to_json(value, path), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def loads(text: str | bytes, path: str = "$") -> Any:
    """JSON values of a text; RecordError if it is not JSON, is nested too deep, or holds NaN or infinity."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is not JSON: {error}", hint=_BAD_RECORD_HINT) from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _fields(kind: type[Any]) -> dict[str, tuple[Any, bool]]:
    """Type of each field, and whether it must be given. Kept, because asking takes longer than decoding."""
    if kind not in _KNOWN_FIELDS:
        hints = typing.get_type_hints(kind)
        _KNOWN_FIELDS[kind] = {
            f.name: (
                hints[f.name],
                f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
            )
            for f in dataclasses.fields(kind)
        }
    return _KNOWN_FIELDS[kind]


_KNOWN_FIELDS: dict[type[Any], dict[str, tuple[Any, bool]]] = {}


def wrong(path: str, expected: str, value: Any) -> RecordError:
    """The error for a value of a record that is not what it should be."""
    return RecordError(f"{path} should be {expected}, not {str(value)[:60]!r}", hint=_BAD_RECORD_HINT)


def _decode(kind: Any, value: Any, path: str) -> Any:
    if kind is Any:
        return value
    if kind in (int, str, bool):
        if type(value) is not kind:
            raise wrong(path, f"of type {kind.__name__}", value)
        return value
    if kind is float:
        if type(value) not in (int, float):
            raise wrong(path, "a number", value)
        return float(value)
    if dataclasses.is_dataclass(kind):
        return _decode_record(typing.cast(type[Any], kind), value, path)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union) and type(None) in arguments:
        (inner,) = (a for a in arguments if a is not type(None))
        return None if value is None else _decode(inner, value, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise wrong(path, "a list", value)
        if arguments[0] is int and set(map(type, value)) <= {int}:
            return tuple(value)
        return tuple(_decode(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise wrong(path, "an object", value)
        return {key: _decode(arguments[1], item, f"{path}.{key}") for key, item in value.items()}
    raise TypeError(f"{path}: records have no fields of type {kind}")


def _decode_record(kind: type[Any], value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise wrong(path, f"an object ({kind.__name__})", value)
    fields = _fields(kind)
    if unknown := value.keys() - fields.keys():
        raise RecordError(
            f"{path} has the unknown field {min(unknown)!r}; known are {', '.join(fields)}",
            hint=_BAD_RECORD_HINT,
        )
    for name, (_, required) in fields.items():
        if required and name not in value:
            raise RecordError(f"{path}.{name} is missing", hint=_BAD_RECORD_HINT)
    return kind(**{name: _decode(fields[name][0], item, f"{path}.{name}") for name, item in value.items()})
