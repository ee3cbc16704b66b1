"""YAML of other tools as a tree that knows where each of its nodes stands, so that a text can be edited in place.

PyYAML finds the tokens; nothing is constructed, expanded or merged. So no file can make an object or grow: tags
and keys that are there twice are refused, an alias stays an alias, and what it would expand to is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from gnomon.core.strict_json import shown
from gnomon.errors import ProblemError
from gnomon.formats.yaml_plain import Plain, plain, pyyaml

MOST_LETTERS = 1 << 20
_MOST_DEPTH = 32
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
        """A scalar's value, as YAML 1.1 has it; see `gnomon.formats.yaml_plain`."""
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
    """The text of a file. ProblemError if it is longer than a mebibyte, or no UTF-8."""
    if len(text) > MOST_LETTERS:
        raise ProblemError(f"the {what} has {len(text)} letters, and no more than {MOST_LETTERS} are read", hint=hint)
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProblemError(f"the {what} is no UTF-8 text (byte {error.start})", hint=hint) from error


def read_yaml(text: str, what: str, hint: str) -> YamlNode:
    """The tree of the one document of a text (without a byte order mark).

    ProblemError, with the line, for what is no YAML, has several documents, tags, a key twice or one that is no scalar,
    is nested deeper than 32, or would expand to more than 100,000 nodes. RuntimeMissingError without PyYAML.
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
            builder.fail(mark.line + 1 if mark else 1, f"no YAML: {shown(str(told))[1:-1]}")
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
                self.fail(node.line, "a key that is no plain word, text or number")
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
