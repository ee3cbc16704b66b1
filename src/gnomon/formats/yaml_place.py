"""Reading values out of a YAML tree: each with its path and line, everything that is wrong told at once.

A getter that finds something wrong tells it and returns a value that stands in for it, so that reading goes on; what
was read is used only where nothing was told. A null stands for a key that is not there.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gnomon.core.strict_json import shown
from gnomon.formats.complaints import Complaints
from gnomon.formats.yaml_plain import Plain, almost
from gnomon.formats.yaml_tree import YamlNode

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
        """The value of a key; nothing, where there is none or this is no mapping."""
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
        """Tell every key of a mapping that is not one of these, and which one may be meant."""
        if self.node is None:
            return
        for key, (name, _) in self.node.entries.items():
            if key not in known and key != "<<":
                near = difflib.get_close_matches(name.text[:64], known, n=1)
                meant = f"is {near[0]} meant?" if near else f"known are {', '.join(known)}"
                self.complaints.tell(f"{self.path} (line {name.line})", f"there is no key {shown(name.text)}; {meant}")

    def items(self, *, least: int = 0) -> Iterator[YamlPlace]:
        """The items of a list; none, told, where this is no list or has too few."""
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
