"""Values of gnomon's own files to JSON and back, checked: a frozen dataclass becomes an object with its field names.

Decoding is strict, and tells all that is wrong at once, each with its JSON path: a missing, unknown or mistyped field,
and a value that is not what its type's `Must` says. So a damaged or foreign file never becomes a wrong number.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import numbers
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from gnomon.core.strict_json import Complaints, complaint, shown
from gnomon.errors import ProblemError, RecordError

T = TypeVar("T")

_BAD_VALUE_HINT = "Record plain JSON values: null, true, false, finite numbers, strings, lists, string-keyed maps."
_BAD_RECORD_HINT = "If that is in the results database, it was damaged, or another wrote it: restore it from a copy."


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
        if _plain(value):
            return list(value)
        return [to_json(item, f"{path}[{i}]") for i, item in enumerate(value)]
    raise RecordError(f"{path} is a {type(value).__name__}, which JSON does not have", hint=_BAD_VALUE_HINT)


def document(value: Any) -> dict[str, Any]:
    """JSON values of a record for whoever shows it: as `to_json`, but null for what is not finite, so not known."""
    return dict(to_json(_known(value)))


def _known(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _known(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _known(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return value if set(map(type, value)) <= {int, str} or _plain(value) else [_known(item) for item in value]
    return value


def _plain(values: tuple[Any, ...] | list[Any]) -> bool:
    """Whether all are integers, or all finite floats, which need no look at each: samples are most of a document."""
    kinds = set(map(type, values))
    return kinds == {int} or (kinds == {float} and all(map(math.isfinite, values)))


def from_json(kind: type[T], value: Any, path: str = "$") -> T:
    """The record of that dataclass out of JSON values; RecordError with all that does not fit, each with its path."""
    complaints = Complaints(what="record", hint=_BAD_RECORD_HINT)
    found = decode(kind, value, complaints, path)
    if complaints.told:
        raise RecordError(complaint(complaints.what, complaints.told), hint=complaints.hint)
    return typing.cast(T, found)


def dumps(value: Any, path: str = "$") -> str:
    """Compact JSON text of a record or of JSON values; RecordError as `to_json`."""
    return json.dumps(to_json(value, path), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def loads(text: str | bytes, path: str = "$") -> Any:
    """JSON values of a text; RecordError if it is not JSON, is nested too deep, or holds NaN or infinity."""
    try:
        if isinstance(text, str) and not text.startswith("\ufeff"):
            return (_CAREFUL if _may_be_beyond(text) else _QUICK).decode(text)
        refuse = _finite if _may_be_beyond(text) else None
        return json.loads(text, parse_constant=_refuse_constant, parse_float=refuse)
    except (ValueError, TypeError, RecursionError) as error:  # what is not a text is in a damaged record
        raise RecordError(f"{path} is not JSON: {error}", hint=_BAD_RECORD_HINT) from error


_DIGITS = str.maketrans("123456789", "0" * 9)
_MANY = "0" * 200


def _may_be_beyond(text: str | bytes) -> bool:
    """Whether a number may be beyond a float: it has an exponent above 0 or very many digits.

    To look at each number would make reading records slow.
    """
    known = text.decode(json.detect_encoding(text), "replace") if isinstance(text, bytes) else str(text)
    exponents = (_SMALL_E.search(known), _LARGE_E.search(known))
    return any(exponents) or _MANY in known.translate(_DIGITS)


_SMALL_E, _LARGE_E = re.compile("e[+0-9]"), re.compile("E[+0-9]")  # one after the other is ten times as fast


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:40]} is larger than any number")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


# To make a decoder anew takes half as long as to decode a short text.
_QUICK = json.JSONDecoder(parse_constant=_refuse_constant)
_CAREFUL = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def not_that(path: str, expected: str, value: Any) -> RecordError:
    """The error for a value of a record that is not what it should be."""
    return RecordError(f"{path}: {expected} expected, {shown(value)} found", hint=_BAD_RECORD_HINT)


def field_types(kind: type[Any]) -> dict[str, tuple[Any, bool]]:
    """Type of each field, and whether it must be given. Kept, because asking takes longer than decoding."""
    if kind not in _KNOWN_FIELDS:
        hints = typing.get_type_hints(kind, include_extras=True)
        _KNOWN_FIELDS[kind] = {
            f.name: (
                hints[f.name],
                f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
            )
            for f in dataclasses.fields(kind)
        }
    return _KNOWN_FIELDS[kind]


_KNOWN_FIELDS: dict[type[Any], dict[str, tuple[Any, bool]]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Must:
    """What a value must be beside of its type: `Annotated[int, Must(be="a number from 0", fits=..)]`.

    `fits` is asked of the JSON value once that has the type; of a list before its items are looked at. It is defined
    beside the dataclass, not inside: a function in an annotation sees no names of its module.
    """

    be: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBy:
    """How a value is made of its JSON value where its type has a document of its own: `Annotated[Unit, ReadBy(..)]`.

    `read` raises ProblemError for what is wrong, which is told with the path.
    """

    read: Callable[[Any], Any]


def decode(kind: Any, value: Any, complaints: Complaints, path: str = "$") -> Any:
    """The value of that type out of JSON values: a dataclass, a plain type, or tuples, mappings and options of these.

    What does not fit is told to `complaints`; what is returned then is not to be used.
    """
    if kind is Any:
        return value
    origin, arguments = _parts(kind)
    if origin is Annotated:
        kind, *musts = arguments
        if isinstance(musts[0], ReadBy):
            return _made(lambda: musts[0].read(value), complaints, path)
        if _is_of(kind, value):
            for must in musts:
                if not must.fits(value):
                    return _wrong(complaints, path, f"{must.be} expected, {shown(value)} found")
            return decode(kind, value, complaints, path)
        return _wrong(complaints, path, f"{musts[0].be} expected, {shown(value)} found")
    if kind in _PLAIN:
        if not _is_of(kind, value):
            return _wrong(complaints, path, f"{_PLAIN[kind]} expected, {shown(value)} found")
        return float(value) if kind is float else value
    if origin is Literal:
        if value not in arguments:
            return _wrong(complaints, path, f"one of {', '.join(map(str, arguments))} expected, {shown(value)} found")
        return value
    if dataclasses.is_dataclass(kind):
        return _decode_record(typing.cast(type[Any], kind), value, complaints, path)
    if origin in (types.UnionType, typing.Union):
        inner = [a for a in arguments if a is not type(None)]
        # Of several types the first that the value may be of, which no two of a field share.
        chosen = next((a for a in inner if _is_of(a, value)), inner[0])
        return None if value is None and len(inner) < len(arguments) else decode(chosen, value, complaints, path)
    if origin is tuple:
        if not isinstance(value, list):
            return _wrong(complaints, path, f"a list expected, {shown(value)} found")
        if arguments[-1] is not Ellipsis:
            if len(value) != len(arguments):
                return _wrong(complaints, path, f"a list of {len(arguments)} expected, one of {len(value)} found")
            return tuple(
                decode(inner, item, complaints, f"{path}[{i}]")
                for i, (inner, item) in enumerate(zip(arguments, value, strict=True))
            )
        kinds = set(map(type, value))
        if kinds <= _as_they_are(arguments[0]) and (
            float not in kinds or math.isfinite(sum(abs(item) for item in value if item is not None))
        ):
            return tuple(value)
        return tuple(decode(arguments[0], item, complaints, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, dict):
            return _wrong(complaints, path, f"an object expected, {shown(value)} found")
        return {key: decode(arguments[1], item, complaints, f"{path}.{key}") for key, item in value.items()}
    raise TypeError(f"{path}: no field has the type {kind}")


@functools.cache
def _as_they_are(kind: Any) -> frozenset[type[Any]]:
    """The types of JSON values that items of that type are as they stand, if these are finite: most of a document."""
    kinds = frozenset(typing.get_args(kind) if typing.get_origin(kind) is types.UnionType else (kind,))
    # A sum of floats and integers may be too large for a float.
    return kinds if kinds <= {int, str, float, type(None)} and not {int, float} <= kinds else frozenset()


@functools.cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """What a type is made of, and of what: asking takes longer than decoding."""
    return typing.get_origin(kind), typing.get_args(kind)


def _wrong(complaints: Complaints, path: str, sentence: str) -> None:
    complaints.tell(path, sentence)


_PLAIN = {int: "a whole number", str: "a text", bool: "true or false", float: "a finite number"}
_LARGEST = math.nextafter(math.inf, 0)


def _is_of(kind: Any, value: Any) -> bool:
    """Whether a JSON value is of a plain type, or a list or an object where that is asked; options may be None."""
    if kind is float:
        return type(value) in (int, float) and -_LARGEST <= value <= _LARGEST
    if kind in _PLAIN:
        return type(value) is kind
    origin, arguments = _parts(kind)
    if origin in (types.UnionType, typing.Union):
        return any(value is None if a is type(None) else _is_of(a, value) for a in arguments)
    return isinstance(value, list if origin is tuple else dict)


def _decode_record(kind: type[Any], value: Any, complaints: Complaints, path: str) -> Any:
    if not isinstance(value, dict):
        return _wrong(complaints, path, f"an object ({kind.__name__}) expected, {shown(value)} found")
    fields = field_types(kind)
    before = len(complaints.told)
    for name in sorted(value.keys() - fields.keys()):
        complaints.tell(path, f"the field {shown(name)} is not known; known are {', '.join(fields)}")
    for name, (_, required) in fields.items():
        if required and name not in value:
            complaints.tell(f"{path}.{name}", "missing")
    found = {
        name: decode(fields[name][0], item, complaints, f"{path}.{name}")
        for name, item in value.items()
        if name in fields
    }
    return _made(lambda: kind(**found), complaints, path) if len(complaints.told) == before else None


def _made(make: Callable[[], Any], complaints: Complaints, path: str) -> Any:
    """What `make` returns; where its values do not fit together, that is told."""
    try:
        return make()
    except ProblemError as error:
        return _wrong(complaints, path, error.message)
