"""YAML of other tools as a tree that knows where each of its nodes stands, so that a text can be edited in place.

PyYAML finds the tokens; nothing is constructed, expanded or merged. So no file can make an object or grow: tags
and keys that are there twice are refused, an alias stays an alias, and what it would expand to is counted.

Reading values out of a YAML tree: each with its path and line, everything that is wrong told at once.

A getter that finds something wrong tells it and returns a value that stands in for it, so that reading goes on; what
was read is used only where nothing was told. A null stands for a key that is not there.

Plain scalars of YAML 1.1 as PyYAML reads them, which is what aw_nas and the published profiler read configs with.

What that means where YAML 1.2 differs: ``1.e-4`` is a number, and ``1e-4`` and ``1.0e4`` are texts (a number has a
point, and its exponent a sign); ``yes``, ``no``, ``on`` and ``off`` are true and false; ``010`` is eight; ``1:30`` is
ninety.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from gnomon.core.installing import needed
from gnomon.core.strict_json import Complaints, not_utf8, shown
from gnomon.errors import ProblemError

Plain = None | bool | int | float | str

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


_MOST_ITEMS = 10_000
_MOST_TEXT = 4096
_NAMES = {"list": "a list", "mapping": "a mapping", "alias": "an alias"}


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlPlace:
    """A place in a document; `node` is None where nothing stands there. `line` is that of the nearest that does."""

    node: YamlNode | None
    path: str
    line: int
    complaints: Complaints

    @property
    def missing(self) -> bool:
        """Whether nothing stands here, or null."""
        return self.node is None or (self.node.kind == "scalar" and self.node.value is None)

    def tell(self, sentence: str) -> None:
        """Complain about this place."""
        self.complaints.tell(f"{self.path} (line {self.line})", sentence)

    def entry(self, key: str) -> YamlPlace:
        """The value of a key; nothing, where there is none or this is not a mapping."""
        found = self.node.entries.get(key) if self.node is not None else None
        path = f"{self.path}.{key}" if self.path != "$" else key
        if found is None:
            return YamlPlace(node=None, path=path, line=self.line, complaints=self.complaints)
        return YamlPlace(node=found[1], path=path, line=found[0].line, complaints=self.complaints)

    def is_mapping(self) -> bool:
        """Whether a mapping stands here; anything else but nothing is told."""
        if self.missing or self.node is None:
            return False
        if self.node.kind != "mapping":
            self._expected("a mapping")
        elif "<<" in self.node.entries:
            self.tell("a merge key (<<) is not read here: write its keys out")
        return self.node.kind == "mapping"

    def only(self, known: Sequence[str]) -> None:
        """Tell every key of a mapping that is not one of these, and which one may have been meant."""
        if self.node is None:
            return
        for key, (name, _) in self.node.entries.items():
            if key not in known and key != "<<":
                near = difflib.get_close_matches(name.text[:64], known, n=1)
                meant = f"is {near[0]} meant?" if near else f"known are {', '.join(known)}"
                self.complaints.tell(f"{self.path} (line {name.line})", f"there is no key {shown(name.text)}; {meant}")

    def items(self, *, least: int = 0) -> Iterator[YamlPlace]:
        """The items of a list; none, told, where this is not a list or has too few."""
        if self.node is None or self.node.kind != "list":
            self._expected("a list")
            return
        if not least <= len(self.node.items) <= _MOST_ITEMS:
            self.tell(f"{least} to {_MOST_ITEMS} items expected, {len(self.node.items)} found")
            return
        for k, item in enumerate(self.node.items):
            yield YamlPlace(node=item, path=f"{self.path}[{k}]", line=item.line, complaints=self.complaints)

    def whole(self, least: int, most: int, default: int | None = None) -> int:
        """A whole number of this range."""
        if self.missing and default is not None:
            return default
        value = self._scalar()
        if type(value) is int and least <= value <= most:
            return value
        self._expected(f"a whole number from {least} to {most}")
        return least

    def number(self, least: float, most: float, default: float | None = None) -> float:
        """A finite number of this range."""
        if self.missing and default is not None:
            return default
        value = self._scalar()
        if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
            return float(value)
        self._expected(f"a number from {least:g} to {most:g}")
        return least

    def flag(self, default: bool) -> bool:
        """True or false."""
        value = self._scalar()
        if not self.missing and not isinstance(value, bool):
            self._expected("true or false")
        return value if isinstance(value, bool) else default

    def word(self, default: str | None = None) -> str:
        """A text of one line."""
        if self.missing and default is not None:
            return default
        value = self._scalar()
        if isinstance(value, str) and 0 < len(value) <= _MOST_TEXT and value.isprintable():
            return value
        self._expected("a text")
        return ""

    def one_of(self, choices: Sequence[str], default: str) -> str:
        """One of these texts."""
        value = self.word(default)
        if value and value not in choices:
            self.tell(f"one of {', '.join(choices)} expected, {shown(value)} found")
        return value

    def option(self) -> Plain:
        """Any scalar but NaN and the infinities."""
        value = self._scalar()
        strange = isinstance(value, float) and not math.isfinite(value)
        text = self.node.text if self.node is not None and not self.node.quoted else ""
        if self.node is None or self.node.kind != "scalar" or strange or almost(text):
            self._expected("a number, a text, true, false or null")
            return None
        return value

    def _scalar(self) -> Plain:
        return self.node.value if self.node is not None and self.node.kind == "scalar" else None

    def _expected(self, what: str) -> None:
        if self.node is None:
            self.tell(f"{what} expected, the key is missing")
        elif self.node.kind == "alias":
            self.tell(f"{what} expected, the alias {shown(self.node.text)} found: write its value out")
        else:
            text = self.node.text if self.node.kind == "scalar" and not self.node.quoted else ""
            better = f", which YAML 1.1 reads as a text: write {almost(text)}" if text and almost(text) else ""
            self.tell(f"{what} expected, {_NAMES.get(self.node.kind) or shown(self._scalar())} found{better}")
