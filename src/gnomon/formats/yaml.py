"""YAML of other tools, read into records; one error reports all faults, each with its path and line.

A null counts as a missing key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from gnomon.core.codec import Location, checked, steps
from gnomon.core.strict_json import Complaints
from gnomon.errors import ProblemError
from gnomon.installing import needed

T = TypeVar("T")
Node = Any  # of PyYAML, which has no types

# PyYAML takes one to several seconds for 100,000 characters or nodes; a config of aw_nas has a few thousand characters.
MOST_LETTERS = 1 << 18
_MOST_NODES = 20_000
_ALMOST_A_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*[eE]|[eE][-+]?)[0-9]+", re.ASCII)


def read_yaml(text: str, what: str, hint: str, *, most_nodes: int = _MOST_NODES) -> Node:
    """The root node of a text (without a byte order mark) that is a single document.

    ProblemError, with the line, for a text that is not YAML, that has several documents, tags, a repeated key, a key
    that is not a scalar, or more than `most_nodes` nodes, or that is nested more than 32 levels deep.
    RuntimeMissingError without PyYAML.
    """
    with needed("reading YAML needs PyYAML, which cannot be loaded", "pyyaml"):
        from gnomon.formats.yaml_nodes import UnreadableError, compose
    try:
        return compose(text, most_nodes)
    except UnreadableError as error:
        raise ProblemError(f"the {what} is malformed: line {error.line}: {error.problem}", hint=hint) from error


def almost(text: str) -> str:
    """For text that looks like a number but is not one in YAML 1.1, its spelling as a number: "1.0e-4" for "1e-4".

    Empty for any other string.
    """
    if not _ALMOST_A_NUMBER.fullmatch(text):
        return ""
    mantissa, _, exponent = text.lower().partition("e")
    point = "" if "." in mantissa else ".0"
    return f"{mantissa}{point}e{'' if exponent[0] in '+-' else '+'}{exponent}"


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlReader:
    """Reads values from a document, and reports faults with their paths and lines."""

    root: Node
    complaints: Complaints

    def find(self, *location: int | str) -> tuple[Node, Node] | None:
        """The nodes of the key and the value at a location; None if it does not exist. A list's item is its own key."""
        nodes = self.root, self.root
        for part in location:
            node = nodes[1]
            if isinstance(part, int):
                pairs = [(item, item) for item in node.value[part : part + 1]] if node.id == "sequence" else []
            else:
                pairs = [pair for pair in node.value if pair[0].value == part] if node.id == "mapping" else []
            if not pairs:
                return None
            nodes = pairs[0]
        return nodes

    def value(self, *location: int | str) -> Any:
        """The plain values at a location; None if it does not exist."""
        from gnomon.formats.yaml_nodes import values_of

        pair = self.find(*location)
        return None if pair is None else values_of(pair[1])

    def anchors(self, name: str) -> list[int]:
        """The lines of the anchors in the value of a key of the document."""
        from gnomon.formats.yaml_nodes import line_of, nodes_of

        pair = self.find(name)
        return [] if pair is None else [line_of(node) for node in nodes_of(pair[1]) if node.anchor]

    def tell(self, location: Location, sentence: str) -> None:
        """Complain about a location, with the line of the nearest node that exists."""
        places = (self.find(*location[:length]) for length in range(len(location), -1, -1))
        key, node = next(filter(None, places))
        better = almost(node.value) if node.id == "scalar" and not node.style else ""
        advice = f", which YAML 1.1 reads as text: write {better}" if better else ""
        path = steps(location).lstrip(".") or "$"
        self.complaints.tell(f"{path} (line {key.start_mark.line + 1})", f"{sentence}{advice}")

    def section(self, name: str, usual: Any = None, nulls: Sequence[str] = ()) -> Any:
        """The value of a key of the document, without inner keys that are null, except those in `nulls`.

        `usual` is the value if the key is missing or null.
        """
        value = self.value(name)
        if not isinstance(value, dict):
            return usual if value is None else value
        if "<<" in value:
            self.tell((name,), "a merge key (<<) is not supported in this section: write out its keys")
        return {key: part for key, part in value.items() if key in nulls or not (part is None or key == "<<")}

    def read(self, kind: type[T], name: str, value: Any) -> T | None:
        """A record made from a section's value; None if it has faults, which are reported."""
        record, faults = checked(kind, value)
        for location, sentence in faults:
            self.tell((name, *location), sentence)
        return cast("T | None", record)
