"""Checked conversion between the values of gnomon's own files and JSON.

A frozen dataclass becomes an object whose keys are its field names. Pydantic decodes in strict mode and reports all
errors at once, each with its JSON path: missing, unknown and mistyped fields, and values that break the `Must` of their
type. So a damaged or foreign file is refused instead of being read as wrong numbers.
"""

from __future__ import annotations

import copy
import functools
import json
import math
import numbers
import re
import shlex
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

from gnomon.core.strict_json import Complaints, Strict, complaint, is_line, refuse_constant, shown, shown_key
from gnomon.errors import ProblemError, RecordError, UsageError, did_you_mean

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, SchemaValidator

T = TypeVar("T")

_BAD_VALUE_HINT = "Record plain JSON values: null, true, false, finite numbers, strings, lists, string-keyed maps."
_BAD_RECORD_HINT = "If this record is in the results database, the database was damaged: restore it from a copy."

_STRICT = {"strict": True, "extra": "forbid", "allow_inf_nan": False}
OTHERS_TOO = _STRICT | {"extra": "ignore"}
"""The `__pydantic_config__` of a record whose object may have further fields, which are ignored."""

Location = tuple[int | str, ...]
"""The keys and indices that lead to a place in a document."""

_MOST = 100_000
"""If a document has more values, only each list's first error is reported: an error takes a kilobyte or more."""
_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "string_unicode": "a text",
    "tuple_type": "a list",
    "dict_type": "an object",
    "dataclass_type": "an object",
}


def to_json(value: Any, path: str = "$") -> Any:
    """JSON values of a record: dataclasses and mappings become objects, and tuples and lists become lists.

    numpy's integers and floats become numbers. RecordError for NaN, infinities and all other values that JSON cannot
    express.
    """
    return _json(value, path, null=False)


def document(value: Any) -> dict[str, Any]:
    """The JSON object of a record for display: like that of `to_json`, but with null for NaN and infinities."""
    return dict(_json(value, "$", null=True))


def _json(value: Any, path: str, *, null: bool) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        if math.isfinite(value):
            return float(value)
        if null:
            return None
        raise RecordError(f"{path} is {value}, which JSON cannot express", hint=_BAD_VALUE_HINT)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _json(getattr(value, f.name), f"{path}.{f.name}", null=null) for f in fields(value)}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise RecordError(f"{path} has a key that is not a string", hint=_BAD_VALUE_HINT)
        return {key: _json(item, f"{path}.{key}", null=null) for key, item in value.items()}
    if isinstance(value, tuple | list):
        # Samples are most of a document: integers and finite floats need not be checked one by one.
        kinds = set(map(type, value))
        if kinds == {int} or (kinds == {float} and all(map(math.isfinite, value))):
            return list(value)
        return [_json(item, f"{path}[{i}]", null=null) for i, item in enumerate(value)]
    raise RecordError(f"{path} is a {type(value).__name__}, which JSON cannot express", hint=_BAD_VALUE_HINT)


def fields_of(kind: type[Any], record: object) -> dict[str, Any]:
    """The values that a record has for the fields of a dataclass, by name: the arguments for creating an instance."""
    return {f.name: getattr(record, f.name) for f in fields(kind) if hasattr(record, f.name)}


def from_json(kind: type[T], value: Any, path: str = "$") -> T:
    """The record of this dataclass from JSON values; RecordError lists all values that do not fit, with their paths."""
    complaints = Complaints(what="record", hint=_BAD_RECORD_HINT)
    record = decode(kind, value, complaints, path)
    if complaints.sentences:
        raise RecordError(complaint(complaints.what, complaints.sentences), hint=complaints.hint)
    return typing.cast(T, record)


def dumps(value: Any, path: str = "$") -> str:
    """Compact JSON text of a record or of JSON values; raises RecordError as `to_json` does."""
    return json.dumps(to_json(value, path), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def loads(text: str | bytes, path: str = "$") -> Any:
    """JSON values of a text (UTF-8 if bytes).

    RecordError if the text is not JSON, is nested too deeply, or holds NaN or infinity.
    """
    try:
        return _DECODER.decode(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, TypeError, RecursionError) as error:  # bytes that are not text come from a damaged record
        raise RecordError(f"{path} is not JSON: {error}", hint=_BAD_RECORD_HINT) from error


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:40]} is too large for a number")
    return number


# Creating a decoder for each text would take half as long as decoding a short text.
_DECODER = json.JSONDecoder(parse_constant=refuse_constant, parse_float=_finite)


def not_that(path: str, expected: str, value: Any) -> RecordError:
    """The error for a value in a record that is not of the expected kind."""
    return RecordError(f"{path}: {expected} expected, {shown(value)} found", hint=_BAD_RECORD_HINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Must:
    """A rule that a value must obey besides having the right type: `Annotated[int, Must(be="0 or more", fits=..)]`.

    `fits` tests values that already have the type. Define `fits` outside the dataclass: a function inside an annotation
    cannot see the names of its module.
    """

    be: str
    fits: Callable[[Any], bool]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import PydanticCustomError, core_schema

        def check(value: Any) -> Any:
            if not self.fits(value):
                raise PydanticCustomError("must", "Input should be {be}", {"be": self.be})
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return handler(schema) | {"description": self.be}


def matching(pattern: str, be: str, most: int = 4096) -> Must:
    """A `Must` for texts: a line of at most `most` characters that a regular expression (ASCII) matches as a whole."""
    expression = re.compile(pattern, re.ASCII)
    return Must(be=be, fits=lambda text: is_line(text, most) and expression.fullmatch(text) is not None)


def within(least: float, most: float, be: str) -> Must:
    """A `Must` for numbers: from `least` to `most`."""
    return Must(be=be, fits=lambda number: least <= number <= most)


def whole(least: int, most: int) -> Must:
    """A `Must` for whole numbers: from `least` to `most`."""
    return within(least, most, f"a whole number from {least} to {most}")


Whole = Annotated[int, Must(be="a whole number from 0", fits=lambda number: number >= 0)]
Counted = Annotated[int, Must(be="a whole number from 1", fits=lambda number: number >= 1)]
Least0 = Annotated[float, Must(be="a number from 0", fits=lambda number: number >= 0)]
Above0 = Annotated[float, Must(be="a number above 0", fits=lambda number: number > 0)]


def check_fields(record: object) -> None:
    """Raise UsageError for a field of a dataclass that breaks its `Must`. Fields that are None are skipped."""
    for name, kind in get_type_hints(type(record), include_extras=True).items():
        value = getattr(record, name)
        for rule in (rule for part in (kind, *get_args(kind)) for rule in getattr(part, "__metadata__", ())):
            if isinstance(rule, Must) and value is not None and not rule.fits(value):
                raise UsageError(f"{name} is {shown(value)}", hint=f"Give {rule.be}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBy:
    """The reader of a type that has its own document format: `Annotated[Unit, ReadBy(..)]`.

    `read` creates the value from a JSON value. If `read` raises ProblemError, the error is reported with the value's
    path.
    """

    read: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(_reported(self.read))


def _reported(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, with any ProblemError turned into pydantic's error for a value."""
    from pydantic_core import PydanticCustomError

    def decoded(value: Any) -> Any:
        try:
            return read(value)
        except ProblemError as error:
            raise PydanticCustomError("problem", "{message}", {"message": error.message}) from error

    return decoded


def shell_words(value: Any) -> tuple[str, ...]:
    """The words of a command: a list of texts, or one text, split as a shell would split it. Raises ProblemError."""
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise ProblemError(f"a command expected ({error})") from error
    if isinstance(value, list | tuple) and value and all(isinstance(word, str) and "\0" not in word for word in value):
        return tuple(value)
    raise ProblemError("a command expected, as a list of texts")


Words = Annotated[tuple[str, ...], ReadBy(read=shell_words)]
"""A command: a list of texts, or one text, which is split as a shell would split it (but no shell runs the command)."""


def read_json(kind: type[T], document: Any, file: Strict) -> T:
    """The record from a file's JSON text (UTF-8 if bytes) or from the value parsed from it.

    ProblemError lists all errors, each with its path.
    """
    value = file.parse(document) if isinstance(document, str | bytes) else document
    complaints = Complaints(what=file.what, hint=file.hint)
    record = decode(kind, value, complaints)
    complaints.raise_any()
    return typing.cast(T, record)


def decode(kind: Any, value: Any, complaints: Complaints, path: str = "$") -> Any:
    """The value of this type from JSON values: a dataclass, a plain type, or tuples, mappings and optional values of
    these.

    Values that do not fit are reported to `complaints`; if there are any, the returned value must not be used.
    """
    record, faults = checked(kind, value)
    for location, sentence in faults:
        complaints.tell(path + steps(location), sentence)
    return record


def checked(kind: Any, value: Any) -> tuple[Any, list[tuple[Location, str]]]:
    """The value as `decode` returns it, and its errors, each as a location and a sentence."""
    from pydantic_core import ValidationError

    try:
        return _validator(kind).validate_python([value])[0], []
    except ValidationError as error:
        errors = error
    if _is_small(value):
        try:
            _validator(kind, all_items=True).validate_python([value])
        except ValidationError as error:
            errors = error
    if errors.error_count() > _MOST:
        return None, [((), f"{errors.error_count()} of its values are invalid")]
    return None, [_fault(wrong, value, kind) for wrong in errors.errors(include_url=False)]


def _is_small(value: Any) -> bool:
    """Return True if a document has at most `_MOST` values."""
    waiting, count = [value], 0
    while waiting and count < _MOST:
        part = waiting.pop()
        waiting.extend(part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ())
        count += 1
    return not waiting


@functools.cache
def _schema(kind: Any) -> Any:
    from pydantic import TypeAdapter

    # The type is wrapped in a tuple, because for a dataclass itself TypeAdapter accepts no configuration.
    schema = TypeAdapter(typing.cast(Any, tuple)[kind], config=typing.cast(Any, _STRICT)).core_schema
    _adapt(schema)
    return schema


@functools.cache
def _validator(kind: Any, *, all_items: bool = False) -> SchemaValidator:
    """The validator of a value in a list; it reports each list's first wrong item, or with `all_items` every one."""
    from pydantic_core import SchemaValidator

    schema = _schema(kind)
    if all_items:
        schema = copy.deepcopy(schema)
        for part in parts(schema, "tuple"):
            part["fail_fast"] = False
    return SchemaValidator(schema, {"strict": True, "allow_inf_nan": False})


def parts(schema: Any, kind: str) -> Iterator[dict[str, Any]]:
    """The parts of a schema that have this kind, the inner ones first."""
    for part in list(schema.values()) if isinstance(schema, dict) else schema:
        if isinstance(part, dict | list):
            yield from parts(part, kind)
    if isinstance(schema, dict) and schema.get("type") == kind:
        yield schema


def _adapt(schema: Any) -> None:
    """Make a schema accept JSON's lists as tuples and objects as records, which strict mode alone would refuse."""
    for part in parts(schema, "tuple"):
        part |= {"strict": False, "fail_fast": True}
    _demand_fixed(schema)
    for part in list(parts(schema, "dataclass")):
        part["strict"] = False
        if part.pop("post_init"):
            record = dict(part)
            part.clear()
            part |= {"type": "function-after", "schema": record, "ref": record.pop("ref")}
            part["function"] = {"type": "no-info", "function": _reported(_checked)}


def _demand_fixed(schema: Any) -> None:
    """Require fields with a single possible value, such as the format of a document, even if they have a default."""
    for field in parts(schema, "dataclass-field"):
        default = field["schema"]
        if default["type"] == "default" and default["schema"].get("expected") == [default.get("default")]:
            field["schema"] = default["schema"]


def _checked(record: Any) -> Any:
    record.__post_init__()
    return record


def _fault(wrong: ErrorDetails, value: Any, kind: Any) -> tuple[Location, str]:
    """The location and the sentence for one of pydantic's errors in a document."""
    fault, words = wrong["type"], wrong["msg"]
    place: list[int | str] = []
    around = value
    for part in wrong["loc"][1:]:
        # A step that the document lacks is a missing field, or the name of one of several types.
        with suppress(KeyError, IndexError, TypeError):
            around, value = value, value[part]
            place.append(part)
    if fault == "missing":
        return (*place, wrong["loc"][-1]), "missing"
    if fault == "unexpected_keyword_argument":
        records = [part["fields"] for part in parts(_schema(kind), "dataclass")]
        field = str(place[-1])
        valid = max(
            reversed(records),
            key=lambda names: (len(around.keys() & set(names)), bool(did_you_mean(field, names)), -len(names)),
        )
        advice = did_you_mean(field, valid) or f"Fields: {', '.join(valid)}"
        return tuple(place), f"there is no such field. {advice}"
    expected = _EXPECTED.get(fault, words.removeprefix("Input should be "))
    if fault == "must" and isinstance(wrong["input"], dict | list):
        return tuple(place), f"{expected} expected"
    return tuple(place), words if expected == words else f"{expected} expected, {shown(wrong['input'])} found"


def steps(location: Location) -> str:
    """A location as a path to append to the path of its document: `.cells[2].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{shown_key(part)}" for part in location)


def schema_of(kind: type[Any], *, title: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a record: the type of each field, and its meaning according to the docstrings.

    Fields that the codec demands are required. Other fields are allowed, because a later version may add some.
    """
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    fields = copy.deepcopy(TypeAdapter(kind).core_schema)
    _demand_fixed(fields)
    schema = Untitled().generate(fields)
    return {"$schema": Untitled.schema_dialect, **schema, "title": title}
