"""Nodes of PyYAML for the YAML of other tools: each node knows its place in the text, and none becomes an object.

Only this module uses PyYAML, with which aw_nas and the published profiler read configs too; `gnomon.formats.yaml`
imports it when needed. Only scalars get values. Tags and duplicate keys are refused, and an alias stays a node of its
own, so no file can create objects or expand in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

from gnomon.core.strict_json import shown

_MOST_DEPTH = 32
_MOST_OF_A_NUMBER = 400
_TYPES = ("null", "bool", "int", "float")


class UnreadableError(Exception):
    """The error for a text that is refused: the line, counted from 1, and its fault."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        self.problem = problem


class AliasNode(yaml.ScalarNode):  # type: ignore[misc]
    """An alias, whose value is the name of its anchor."""

    id = "alias"

    def __repr__(self) -> str:
        return f"the alias {self.value} (write out its value)"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Makes the nodes of a text, and refuses unsupported content as soon as it occurs."""

    def __init__(self, text: str, most_nodes: int) -> None:
        super().__init__(text)
        self._most_nodes, self._nodes, self._depth = most_nodes, 0, 0

    def compose_document(self) -> Any:
        """The node of the next document, which must not have a directive for tags."""
        event = self.peek_event()
        if event.tags:
            _refuse(event, "the document has a %TAG directive, but tags are not supported")
        return super().compose_document()

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node, with all nodes below it; `anchor` is the name by which aliases refer to it."""
        event = self.peek_event()
        is_alias = isinstance(event, yaml.AliasEvent)
        if is_alias and event.anchor not in self.anchors:
            _refuse(event, f"the alias {shown(event.anchor)} has no anchor before it")
        if self._depth > _MOST_DEPTH:
            _refuse(event, f"nested more than {_MOST_DEPTH} levels deep")
        if getattr(event, "tag", None):
            _refuse(event, f"the tag {shown(event.tag)} is not supported: write the value without a tag")
        if is_alias:
            self.get_event()
            node: Any = AliasNode("alias", event.anchor, event.start_mark, event.end_mark)
        else:
            self._depth += 1
            node = super().compose_node(parent, index)
            self._depth -= 1
        node.anchor = None if is_alias else event.anchor
        self._nodes += 1
        if self._nodes > self._most_nodes:
            _refuse(node, f"more than {self._most_nodes} nodes")
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        """The next mapping, whose keys must be scalars and must not repeat."""
        node = super().compose_mapping_node(anchor)
        lines: dict[object, int] = {}
        for key, _ in node.value:
            if key.id != "scalar":
                _refuse(key, "a key is not a plain word, a text or a number")
            value = value_of(key)
            if value in lines:
                _refuse(key, f"the key {shown(key.value)} is given twice, first in line {lines[value]}")
            lines[value] = line_of(key)
        return node


def compose(text: str, most_nodes: int) -> Any:
    """The node of a text's only document. UnreadableError for a text that is not YAML, or that is refused."""
    try:
        node = _Loader(text, most_nodes).get_single_node()
    except UnreadableError:
        raise
    except Exception as error:  # PyYAML has many errors of its own, and hostile texts cause further ones
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        parts = [getattr(error, name, None) for name in ("context", "problem", "reason")]
        problem = ", ".join(str(part) for part in parts if part) or type(error).__name__
        raise UnreadableError(mark.line + 1 if mark else 1, f"not YAML: {problem}") from error
    if node is None:
        raise UnreadableError(1, "the file is empty")
    return node


def nodes_of(node: Any) -> Iterator[Any]:
    """The node and all nodes below it, including keys."""
    yield node
    for part in () if isinstance(node.value, str) else node.value:
        for below in part if isinstance(part, tuple) else (part,):
            yield from nodes_of(below)


def values_of(node: Any) -> Any:
    """The content of a node as lists, mappings and values of scalars; an alias stays a node."""
    if node.id == "sequence":
        return [values_of(item) for item in node.value]
    if node.id == "mapping":
        return {value_of(key): values_of(value) for key, value in node.value}
    return value_of(node) if node.id == "scalar" else node


def line_of(place: Any) -> int:
    """The line of a node or an event, counted from 1."""
    return int(place.start_mark.line) + 1


def value_of(scalar: Any) -> bool | int | float | str | None:
    """The value of a scalar."""
    text: str = scalar.value
    return text if scalar.style else plain(text)


def plain(text: str) -> bool | int | float | str | None:
    """The value of an unquoted scalar. Anything but null, truth values and numbers is a string, including dates."""
    if len(text) > _MOST_OF_A_NUMBER:  # PyYAML would add up the digits of a number of base 60 one by one
        return text
    constructor = _constructor()
    tag = constructor.resolve(yaml.ScalarNode, text, (True, False))
    if tag.rpartition(":")[2] not in _TYPES:
        return text
    try:
        value: bool | int | float | None = constructor.yaml_constructors[tag](constructor, yaml.ScalarNode(tag, text))
    except (ValueError, OverflowError, LookupError):  # no digit at all
        return text
    return value


@functools.cache
def _constructor() -> yaml.SafeLoader:
    return yaml.SafeLoader("")


def _refuse(place: Any, problem: str) -> NoReturn:
    raise UnreadableError(line_of(place), problem)
