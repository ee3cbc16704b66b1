"""Texts of logs that say the same wherever they stand: each is read once.

A line whose parts are each a JSON value, with commas and names that differ between them, is itself a JSON object of
these, wherever it was cut. So a part that was read once need not be read again in another line, or in another file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gnomon.core.overlay.records import Tuner
from gnomon.core.overlay.trials import Name
from gnomon.formats.json_lines import part_of_a_line

Configuration = tuple[Name, str]
"""A configuration, and its trace as JSON."""

_MOST_KEPT = 256 << 20


@dataclass(slots=True, kw_only=True)
class Texts:
    """What was read so far, of all files that are read together."""

    _layers: dict[tuple[Tuner, str], dict[str, Configuration]] = field(default_factory=dict)
    _ends: set[str] = field(default_factory=set)
    _letters: int = 0

    def of(self, tuner: Tuner, layer: str) -> dict[str, Configuration]:
        """The configurations of a layer, by their texts."""
        return self._layers.setdefault((tuner, layer), {})

    def keep(self, configurations: dict[str, Configuration], text: str, name: Name, trace: str) -> Configuration:
        """Keep a configuration; what was kept before goes where it is too much."""
        self._letters += len(text) + len(trace)
        if self._letters > _MOST_KEPT:
            self._letters = 0
            for known in self._layers.values():
                known.clear()
        return configurations.setdefault(text, (name, trace))

    def ends(self, text: str, fields: tuple[str, ...]) -> bool:
        """Whether a text can stand behind the last of these fields: more of others, and the end of the object."""
        if text in self._ends:
            return True
        more = part_of_a_line("{" + text.removeprefix(", ")) if text.startswith(", ") else {}
        good = text == "}" or (bool(more) and isinstance(more, dict) and more.keys().isdisjoint(fields))
        if good and len(self._ends) < 1000:
            self._ends.add(text)
        return good
