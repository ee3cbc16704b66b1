"""YAML of other tools as a tree that knows where each of its nodes stands, so that a text can be edited in place.

PyYAML finds the tokens; nothing is constructed, expanded or merged. So no file can make an object or grow: tags
and keys that are there twice are refused, an alias stays an alias, and what it would expand to is counted.

Values are read out of a tree into records: everything that is wrong is told at once, with its path and line. A null
stands for a key that is not there.

Plain scalars of YAML 1.1 as PyYAML reads them, which is what aw_nas and the published profiler read configs with.

What that means where YAML 1.2 differs: ``1.e-4`` is a number, and ``1e-4`` and ``1.0e4`` are texts (a number has a
point, and its exponent a sign); ``yes``, ``no``, ``on`` and ``off`` are true and false; ``010`` is eight; ``1:30`` is
ninety.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeVar, cast

from gnomon.core.codec import Location, checked, steps
from gnomon.core.installing import needed
from gnomon.core.strict_json import Complaints, not_utf8, shown
from gnomon.errors import ProblemError

Plain = None | bool | int | float | str
T = TypeVar("T")

_KINDS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float"))
_MOST_OF_A_NUMBER = 400
_ALMOST = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+", re.ASCII)


def pyyaml() -> Any:
    """The package. RuntimeMissingError without it."""
    with needed("YAML configs are read with PyYAML, which cannot be loaded", "pyyaml", python=sys.executable):
        import yaml
    return yaml


@functools.cache
def _loader() -> Any:
    return pyyaml().SafeLoader("")


def plain(text: str) -> Plain:
    """The value of an unquoted scalar. What is not null, a truth value or a number is a text; dates are texts too."""
    if len(text) > _MOST_OF_A_NUMBER:  # PyYAML adds up a number of base 60 digit by digit
        return text
    loader, node = _loader(), pyyaml().ScalarNode
    tag = loader.resolve(node, text, (True, False))
    if tag not in _KINDS:
        return text
    try:
        value: Plain = loader.yaml_constructors[tag](loader, node(tag, text))
    except (ValueError, OverflowError, KeyError):  # no digit at all, or thousands of them; a line's end behind a word
        return text
    return value


def almost(text: str) -> str:
    """How a text that looks like a number is to be written so that it is one: "1.0e-4" for "1e-4". Empty otherwise."""
    if not _ALMOST.fullmatch(text) or not isinstance(plain(text), str):
        return ""
    mantissa, _, exponent = text.lower().partition("e")
    point = "" if "." in mantissa else ".0"
    return f"{mantissa}{point}e{'' if exponent[0] in '+-' else '+'}{exponent}"


MOST_LETTERS = 1 << 18
"""PyYAML reads some 100,000 letters or nodes in a second or several; a config of aw_nas has some thousand letters."""
_MOST_DEPTH = 32
_MOST_WRITTEN = 20_000
_MOST_NODES = 100_000

Kind = Literal["scalar", "list", "mapping", "alias"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class YamlNode:
    """One node: its line, counted from 1, and its place in the text as offsets.

    `start` is where a scalar, a flow collection or the first dash of a block list begins; `end` is behind the last
    letter of a scalar or a flow collection, and means nothing for a block collection. An empty scalar stands where the
    next token begins. `text` is a scalar's content or an alias's anchor.
    """

    kind: Kind
    line: int
    start: int
    end: int
    text: str = ""
    quoted: bool = False
    flow: bool = False
    anchored: bool = False
    items: tuple[YamlNode, ...] = ()
    entries: Mapping[Plain, tuple[YamlNode, YamlNode]] = field(default_factory=dict)

    @property
    def value(self) -> Plain:
        """A scalar's value, as YAML 1.1 has it; see `gnomon.formats.yaml`."""
        return self.text if self.quoted else plain(self.text)

    def nodes(self) -> Iterator[YamlNode]:
        """The node and all below it, keys too."""
        yield self
        for item in self.items:
            yield from item.nodes()
        for key, value in self.entries.values():
            yield key
            yield from value.nodes()

    def shape(self) -> Any:
        """What the node says, without where and how: equal for equal content."""
        if self.kind == "list":
            return [item.shape() for item in self.items]
        if self.kind == "mapping":
            return {"": [(key.shape(), value.shape()) for key, value in self.entries.values()]}
        return (self.kind, self.quoted, self.text)


def yaml_text(text: str | bytes, what: str, hint: str) -> str:
    """The text of a file. ProblemError if it is longer than `MOST_LETTERS`, or no UTF-8."""
    if len(text) > MOST_LETTERS:
        raise ProblemError(f"the {what} has {len(text)} letters, and no more than {MOST_LETTERS} are read", hint=hint)
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProblemError(f"the {what} is {not_utf8(text, error)}", hint=hint) from error


def read_yaml(text: str, what: str, hint: str) -> YamlNode:
    """The tree of the one document of a text (without a byte order mark).

    ProblemError, with the line, for what is not YAML, has several documents, tags, a key twice or one that is not a
    scalar, is nested deeper than 32, has more than 20,000 nodes, or would expand to more than 100,000.
    RuntimeMissingError without PyYAML.
    """
    builder = _Builder(what=what, hint=hint)
    for event in _events(text, builder):
        builder.take(event)
    if builder.root is None:
        builder.fail(1, "nothing at all")
    return builder.root


def _events(text: str, builder: _Builder) -> Iterator[Any]:
    """The parser's events."""
    yaml = pyyaml()
    stream = iter(yaml.parse(text, Loader=yaml.SafeLoader))
    while True:
        try:
            event = next(stream)
        except StopIteration:
            return
        except Exception as error:  # its own errors are many, and hostile texts find others
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            told = getattr(error, "problem", None) or getattr(error, "reason", None) or type(error).__name__
            builder.fail(mark.line + 1 if mark else 1, f"not YAML: {shown(str(told))[1:-1]}")
        yield event


@dataclass(slots=True)
class _Open:
    """A collection whose end is still to come."""

    event: Any
    kind: Kind
    anchor: str
    items: list[YamlNode] = field(default_factory=list)
    entries: dict[Plain, tuple[YamlNode, YamlNode]] = field(default_factory=dict)
    key: YamlNode | None = None
    size: int = 1


@dataclass(slots=True, kw_only=True)
class _Builder:
    """Makes the tree of events, one by one, without recursion."""

    what: str
    hint: str
    root: YamlNode | None = None
    documents: int = 0
    written: int = 0
    stack: list[_Open] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    def take(self, event: Any) -> None:
        """One event."""
        name = type(event).__name__
        line = event.start_mark.line + 1
        anchor = getattr(event, "anchor", None) or ""
        if getattr(event, "tag", None):
            self.fail(line, f"the tag {shown(str(event.tag))}, and tags are not read")
        if name == "DocumentStartEvent":
            self.documents += 1
            if self.documents > 1:
                self.fail(line, "a second document, and one is read")
            if getattr(event, "tags", None):
                self.fail(line, "a %TAG directive, and tags are not read")
        elif name in ("SequenceStartEvent", "MappingStartEvent"):
            if len(self.stack) >= _MOST_DEPTH:
                self.fail(line, f"nested deeper than {_MOST_DEPTH}")
            self.stack.append(_Open(event, "list" if name.startswith("Seq") else "mapping", anchor))
        elif name in ("SequenceEndEvent", "MappingEndEvent"):
            self._close(event)
        elif name == "ScalarEvent":
            quoted = not event.implicit[0]
            self._add(self._node("scalar", event, text=event.value, quoted=quoted, anchored=bool(anchor)), anchor, 1)
        elif name == "AliasEvent":
            if anchor not in self.sizes:
                self.fail(line, f"the alias {shown(anchor)} of nothing that stands before it")
            self._add(self._node("alias", event, text=anchor), "", self.sizes[anchor])

    def fail(self, line: int, told: str) -> NoReturn:
        """Refuse the text."""
        raise ProblemError(f"the {self.what} is malformed: line {line}: {told}", hint=self.hint)

    def _close(self, event: Any) -> None:
        one = self.stack.pop()
        flow = bool(one.event.flow_style)
        node = YamlNode(
            kind=one.kind,
            line=one.event.start_mark.line + 1,
            start=one.event.start_mark.index,
            end=event.end_mark.index,
            flow=flow,
            anchored=bool(one.anchor),
            items=tuple(one.items),
            entries=one.entries,
        )
        self._add(node, one.anchor, one.size)

    def _add(self, node: YamlNode, anchor: str, size: int) -> None:
        """Put a finished node into what it stands in."""
        self.written += 1
        if self.written > _MOST_WRITTEN:
            self.fail(node.line, f"more than {_MOST_WRITTEN} nodes")
        if size > _MOST_NODES:
            self.fail(node.line, f"more than {_MOST_NODES} nodes with its aliases expanded")
        if anchor:
            self.sizes[anchor] = size
        if not self.stack:
            self.root = node
            return
        into = self.stack[-1]
        into.size += size
        if into.size > _MOST_NODES:
            self.fail(node.line, f"more than {_MOST_NODES} nodes with aliases expanded")
        if into.kind == "list":
            into.items.append(node)
        elif into.key is None:
            if node.kind != "scalar":
                self.fail(node.line, "a key that is not a plain word, text or number")
            if node.value in into.entries:
                before = into.entries[node.value][0].line
                self.fail(node.line, f"the key {shown(node.text)} is there already, in line {before}")
            into.key = node
        else:
            into.entries[into.key.value] = (into.key, node)
            into.key = None

    def _node(self, kind: Kind, event: Any, **more: Any) -> YamlNode:
        start, end = event.start_mark, event.end_mark
        return YamlNode(kind=kind, line=start.line + 1, start=start.index, end=end.index, **more)


@dataclass(frozen=True, slots=True)
class _Alias:
    """An alias where a value is expected."""

    name: str

    def __repr__(self) -> str:
        return f"the alias {self.name}, whose value is to be written out,"


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlReader:
    """Reads values out of a tree; what is wrong is told with its path and line."""

    root: YamlNode
    complaints: Complaints

    def tell(self, location: Location, sentence: str) -> None:
        """Complain about a place, in the line of the nearest node that is there."""
        node, line = self.root, self.root.line
        for part in location:
            if isinstance(part, int):
                found = node.items[part : part + 1]
            else:
                found = node.entries.get(part, ())
            if not found:
                break
            node, line = found[-1], found[0].line
        better = almost(node.text) if node.kind == "scalar" and not node.quoted else ""
        advice = f", which YAML 1.1 reads as a text: write {better}" if better else ""
        path = steps(location).lstrip(".") or "$"
        self.complaints.tell(f"{path} (line {line})", f"{sentence}{advice}")

    def section(self, name: str, usual: Any = None, nulls: Sequence[str] = ()) -> Any:
        """The value of a key of the document, without keys that are null unless that says something: `nulls`.

        `usual` is the value where nothing stands there, or null.
        """
        node = self.root.entries.get(name, (None, None))[1]
        value = None if node is None else _value(node)
        if not isinstance(value, dict):
            return usual if value is None else value
        if "<<" in value:
            self.tell((name,), "a merge key (<<) is not read here: write its keys out")
        return {key: one for key, one in value.items() if key in nulls or not (one is None or key == "<<")}

    def read(self, kind: type[T], name: str, value: Any) -> T | None:
        """A record of a section's value; None, and told, where it is none."""
        record, faults = checked(kind, value)
        for location, sentence in faults:
            self.tell((name, *location), sentence)
        return cast("T | None", record)


def _value(node: YamlNode) -> Any:
    """What a node says, as plain values."""
    if node.kind == "list":
        return [_value(item) for item in node.items]
    if node.kind == "mapping":
        return {key: _value(value) for key, (_, value) in node.entries.items()}
    return node.value if node.kind == "scalar" else _Alias(node.text)
