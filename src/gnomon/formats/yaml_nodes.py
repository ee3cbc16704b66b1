"""Nodes of ruamel.yaml for the YAML of other tools: each knows its place in the text, none becomes an object.

This is the one module that knows ruamel.yaml, and `gnomon.formats.yaml` imports it where it is needed. Only scalars get
values. Tags and duplicate keys are refused, and an alias stays a node of its own: no file can make an object or
grow.

Values are those of PyYAML, with which aw_nas and the published profiler read configs. It follows YAML 1.1: ``1.e-4`` is
a number, and ``1e-4`` and ``1.0e4`` are texts (a number has a point, and its exponent a sign); ``yes``, ``no``, ``on``
and ``off`` are true and false; ``010`` is eight; ``1:30`` is ninety.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver

from gnomon.core.strict_json import shown

_MOST_DEPTH = 32
_MOST_OF_A_NUMBER = 400
# PyYAML breaks lines at these, as YAML 1.1 has it, and ruamel.yaml does not: a text with one means two things.
_BREAK_OF_YAML_1_1 = re.compile("[\x85\u2028\u2029]")
_TYPES = ("null", "bool", "int", "float")
# ruamel.yaml has types for these, and PyYAML has none: a letter, a number without a point or a sign, underscores first.
_TEXT_OF_PYYAML = re.compile(r"[yYnN]|[-+]?[0-9][0-9_]*(?:\.[0-9_]*[eE]|[eE][-+]?)[0-9]+|[-+._]*_.*", re.ASCII)


class UnreadableError(Exception):
    """A text that is not read: the line, counted from 1, and what is wrong there."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        self.problem = problem


class AliasNode(ScalarNode):
    """An alias, whose value is the name of its anchor."""

    __slots__ = ()
    id = "alias"

    def __repr__(self) -> str:
        return f"the alias {self.value}, whose value is to be written out,"


class _Resolver(VersionedResolver):
    """Finds the type of a plain scalar as PyYAML does."""

    @property
    def processing_version(self) -> tuple[int, int]:
        """The version of YAML, whatever a directive asks for."""
        return 1, 1

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """The tag of a node without one."""
        if kind is ScalarNode and implicit[0] and _TEXT_OF_PYYAML.fullmatch(value):
            return self.DEFAULT_SCALAR_TAG
        return super().resolve(kind, value, implicit)


class _Composer(Composer):
    """Makes the nodes of a text, and refuses what is not read as soon as it comes."""

    most_nodes = 0

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self.warn_double_anchors = False
        self.nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node, with all below it."""
        event = self.parser.peek_event()
        is_alias = isinstance(event, AliasEvent)
        if is_alias and event.anchor not in self.anchors:
            _refuse(event, f"the alias {shown(event.anchor)} of nothing that stands before it")
        if self.depth > _MOST_DEPTH:
            _refuse(event, f"nested deeper than {_MOST_DEPTH}")
        if self.loader.tags:
            _refuse(event, "a %TAG directive before it, and tags are not read")
        if getattr(event, "tag", None):
            _refuse(event, f"the tag {shown(event.tag)}, and tags are not read")
        if is_alias:
            self.parser.get_event()
            node: Any = AliasNode("alias", event.anchor, event.start_mark, event.end_mark)
        else:
            node = super().compose_node(parent, index)
        if (
            node.id == "scalar" and not node.style and node.value.endswith(":")
        ):  # PyYAML has a key in [a:], without value
            _refuse(node, f"{shown(node.value)}, which ends in a colon: quote it, or write a space behind it")
        self.nodes += 1
        if self.nodes > self.most_nodes:
            _refuse(node, f"more than {self.most_nodes} nodes")
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        """The next mapping, each of its keys a scalar and there once."""
        node = super().compose_mapping_node(anchor)
        lines: dict[object, int] = {}
        for key, _ in node.value:
            if key.id != "scalar":
                _refuse(key, "a key that is not a plain word, text or number")
            value = value_of(key)
            if value in lines:
                _refuse(key, f"the key {shown(key.value)} is there already, in line {lines[value]}")
            lines[value] = line_of(key)
        return node


def compose(text: str, most_nodes: int) -> Any:
    """The node of a text's one document. UnreadableError for a text that is not YAML, or that is not read."""
    if line_break := _BREAK_OF_YAML_1_1.search(text):
        raise UnreadableError(
            text.count("\n", 0, line_break.start()) + 1, f"the line break {shown(line_break[0])} is not read"
        )
    yaml = _yaml()
    yaml.composer.most_nodes = most_nodes
    try:
        node = yaml.compose(text)
    except UnreadableError:
        raise
    except Exception as error:  # ruamel.yaml's own errors are many, and hostile texts find others
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        parts = [getattr(error, name, None) for name in ("context", "problem", "reason")]
        problem = ", ".join(str(part) for part in parts if part) or type(error).__name__
        raise UnreadableError(mark.line + 1 if mark else 1, f"not YAML: {problem}") from error
    if node is None:
        raise UnreadableError(1, "nothing at all")
    return node


def nodes_of(node: Any) -> Iterator[Any]:
    """The node and all below it, keys too."""
    yield node
    for part in () if isinstance(node.value, str) else node.value:
        for below in part if isinstance(part, tuple) else (part,):
            yield from nodes_of(below)


def values_of(node: Any) -> Any:
    """What a node says, as lists, mappings and values of scalars; an alias stays what it is."""
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
    """The value of an unquoted scalar. What is not null, a truth value or a number is a text; dates are texts too."""
    # A number of base 60 is added up digit by digit; and a number with a line's end behind it is not one.
    if len(text) > _MOST_OF_A_NUMBER or text != text.strip():
        return text
    yaml = _yaml_of_values()
    kind = str(yaml.resolver.resolve(ScalarNode, text, (True, False))).rpartition(":")[2]
    if kind not in _TYPES:
        return text
    try:
        value = getattr(yaml.constructor, f"construct_yaml_{kind}")(ScalarNode("", text))
    except (ValueError, OverflowError, LookupError):  # no digit at all
        return text
    return value if value is None or isinstance(value, bool | int | float) else text


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    yaml.Resolver, yaml.Composer = _Resolver, _Composer
    return yaml


@functools.cache
def _yaml_of_values() -> YAML:
    return _yaml()


def _refuse(place: Any, problem: str) -> NoReturn:
    raise UnreadableError(line_of(place), problem)
