"""Parts of log lines that mean the same wherever they occur, so that each is parsed only once.

A line of a log is a JSON object. If it is cut into parts that are JSON values with different names, these are the
values of the object. A part that has been parsed thus need not be parsed again in another line or file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gnomon.core.overlay.records import Tuner, identity_of, trace_text
from gnomon.core.overlay.trials import Name, Trace
from gnomon.formats.json_lines import part_of_a_line

Configuration = tuple[Name, Trace]

_MOST_KEPT = 256 << 20
_NOTHING_DECIDED = re.compile(r", ?\[\]\],")


@dataclass(slots=True, kw_only=True)
class Texts:
    """The texts that have been read so far, from all files that are read together."""

    _layers: dict[tuple[Tuner, str], dict[str, Configuration]] = field(default_factory=dict)
    _begun: dict[tuple[str, str], tuple[str, dict[str, Configuration]]] = field(default_factory=dict)
    _letters: int = 0

    def of(self, tuner: Tuner, layer: str) -> dict[str, Configuration]:
        """The configurations of a layer, by their texts."""
        return self._layers.setdefault((tuner, layer), {})

    def keep(self, configurations: dict[str, Configuration], text: str, name: Name, trace: Trace) -> Configuration:
        """Keep a configuration under its text, and return it. With too many texts, all older ones are dropped."""
        self._count(len(text) + len(trace[-1]))
        return configurations.setdefault(text, (name, trace))

    def trace_at(self, layer: str, line: str, begin: int) -> tuple[Configuration, int]:
        """The configuration whose MetaSchedule trace begins at a position of a line, and the position where it ends.

        The two parts of the trace, instructions and decisions, are found by their ends, parsed separately, and kept.
        ValueError or RecursionError if they are missing or not JSON; the line may still be valid.
        """
        middle = line.index("]]],", begin) + 3
        nothing = _NOTHING_DECIDED.match(line, middle)
        end = nothing.end() - 1 if nothing else line.index("]]],", middle) + 3
        instructions, decisions = line[begin:middle], line[middle:end]
        if (begun := self._begun.get((layer, instructions))) is None:
            (value,) = part_of_a_line(f"{instructions}]")  # a list, because the instructions end in a bracket
            begun = f"[{trace_text(value)},", {}
            self._count(len(instructions))
            self._begun[layer, instructions] = begun
        first, configurations = begun
        if (kept := configurations.get(decisions)) is None:
            _, value = part_of_a_line(f"[0{decisions}")
            second = f"{trace_text(value)}]"
            name = layer, identity_of(layer, first + second)
            kept = self.keep(configurations, decisions, name, (first, second))
        return kept, end

    def _count(self, letters: int) -> None:
        self._letters += letters
        if self._letters > _MOST_KEPT:
            self._letters = 0
            self._begun.clear()
            for configurations in self._layers.values():
                configurations.clear()
