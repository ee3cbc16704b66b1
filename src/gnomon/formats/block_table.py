"""Block tables of the ProxylessNAS and OFA kind: YAML, a block's name -> {mean, std, count, ...}, in milliseconds.

Sources: latency estimators of mit-han-lab/proxylessnas (``latency_estimator.py``) and mit-han-lab/once-for-all, which
add up the ``mean`` of a net's blocks. A name is such as
``expanded_conv-input:56x56x24-output:28x28x40-expand:3-kernel:5-stride:2-idskip:0``.

Read is the part of YAML that PyYAML writes for such a table, and no more: one mapping of names to mappings of plain
numbers and words, in block or flow style, with ``? name`` for the long ones; neither tags, anchors nor documents. So no
file can make anything, or grow, and everything that is wrong is told at once, each with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gnomon.core.strict_json import Complaints, shown
from gnomon.formats.snpe.table import csv_text, line_of

_HINT = "Give a YAML table of blocks, each with a mean in milliseconds, as ProxylessNAS and OFA publish them."
_MOST_BLOCKS = 1 << 18
_MOST_NAME = 1024
_NUMBER = re.compile(r"([0-9]{1,15}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?", re.ASCII)
_PART = re.compile(r"([A-Za-z_]+):([A-Za-z0-9_.x-]+?)(?=-[A-Za-z_]+:|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block's mean in milliseconds, and what else the table says of it as numbers (std, count, min, max, ...)."""

    name: str
    mean_ms: float
    numbers: Mapping[str, float]

    @property
    def kind(self) -> str:
        """What stands before the first attribute: "expanded_conv", "Conv", "Logits"."""
        match = _PART.search(self.name)
        return self.name if match is None else self.name[: match.start()].rstrip("-")

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes in the name: {"input": "56x56x24", "expand": "3", ...}."""
        return dict(_PART.findall(self.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTable:
    """Blocks by name, in the order of their file."""

    blocks: Mapping[str, Block]


def read_block_table(text: str | bytes) -> BlockTable:
    """Reads a table. Raises ProblemError with everything that is wrong, each with its line."""
    table, complaints = scan_block_table(text)
    complaints.raise_any()
    return table


def scan_block_table(text: str | bytes) -> tuple[BlockTable, Complaints]:
    """The good part of a table and the complaints about the rest. ProblemError for what is not text, or too long."""
    complaints = Complaints(what="block table", hint=_HINT)
    blocks: dict[str, Block] = {}
    seen: dict[str, int] = {}
    for line, name, fields in _entries(csv_text(text, complaints.what, _HINT), complaints):
        place = line_of(line)
        before = seen.setdefault(name, line)
        numbers = {key: float(value) for key, value in (fields or {}).items() if _NUMBER.fullmatch(value)}
        if len(seen) > _MOST_BLOCKS:
            complaints.tell(place, f"more than {_MOST_BLOCKS} blocks")
            break
        if not name or len(name) > _MOST_NAME or not name.isprintable() or "/" in name or "\\" in name:
            complaints.tell(place, f"the name of a block, without slashes, expected, {shown(name)} found")
        elif before != line:
            complaints.tell(place, f"the block {shown(name)} is there already, in line {before}")
        elif fields is None:
            continue
        elif not 0 < numbers.get("mean", 0.0) < 1e12:
            found = shown(fields["mean"]) if "mean" in fields else "none"
            complaints.tell(place, f"a mean above 0 expected for {shown(name)}, {found} found")
        else:
            blocks[name] = Block(name=name, mean_ms=numbers["mean"], numbers=numbers)
    if not blocks and not complaints.told:
        complaints.tell(line_of(1), "no block at all")
    return BlockTable(blocks=blocks), complaints


def _entries(text: str, complaints: Complaints) -> Iterator[tuple[int, str, dict[str, str] | None]]:
    """Each entry: the line in which it begins, its name, and its fields as they are written; None, told, where they
    are not all right: what is left of them may say something else.
    """
    lines = _Lines(text)
    while (row := lines.next()) is not None:
        number, content = row
        if content == "---" and number == 1:
            continue
        if content.startswith(" "):
            complaints.tell(
                line_of(number), f"a block's name at the begin of the line expected, {shown(content)} found"
            )
            continue
        name, rest = _split(content, lines)
        if name is None:
            complaints.tell(line_of(number), f"name: and its numbers expected, {shown(content)} found")
        elif rest.startswith("{"):
            yield number, name, _flow(rest, number, lines, complaints)
        elif rest:
            complaints.tell(line_of(number), f"a mapping of numbers expected, {shown(rest)} found")
        else:
            yield number, name, _block(lines, complaints)


class _Lines:
    """The lines that say something, without comments, with their numbers."""

    def __init__(self, text: str) -> None:
        self._rows = [
            (number, bare)
            for number, row in enumerate(text.split("\n"), 1)
            if (bare := re.sub(r"(^|\s)#.*$", "", row).rstrip())
        ]
        self._at = 0

    def next(self) -> tuple[int, str] | None:
        """The next line, if there is one."""
        row = self.peek()
        self._at += row is not None
        return row

    def put(self, number: int, content: str) -> None:
        """Make a line the next one."""
        self._at -= 1
        self._rows[self._at] = (number, content)

    def peek(self) -> tuple[int, str] | None:
        """What `next` would return."""
        return self._rows[self._at] if self._at < len(self._rows) else None


def _split(content: str, lines: _Lines) -> tuple[str | None, str]:
    """A name and what stands behind its colon; a long name stands behind "? ", its value behind ":" in the next."""
    if content.startswith("? "):
        name = _word(content[2:].strip())
        row = lines.peek()
        if row is None or not row[1].startswith(":"):
            return None, ""
        lines.next()
        rest = row[1][1:].strip()
        if rest and not rest.startswith("{"):  # the first field of a block
            lines.put(row[0], f" {rest}")
            rest = ""
        return name, rest
    match = re.fullmatch(r"('(?:[^']|'')*'|\"[^\"\\]*\"|[^\s{}\[\],&*!|>%@`'\"-][^\s{}]*?)\s*:(?:\s+(.*))?", content)
    return (None, "") if match is None else (_word(match[1]), match[2] or "")


def _flow(first: str, number: int, lines: _Lines, complaints: Complaints) -> dict[str, str] | None:
    """``{mean: 1.5, std: 0.1}``, which PyYAML breaks after 80 columns."""
    parts = [first]
    while "}" not in parts[-1] and (row := lines.peek()) is not None and row[1].startswith(" "):
        parts.append(row[1].strip())
        lines.next()
    whole = " ".join(parts)
    if not whole.endswith("}") or "{" in whole[1:] or whole.count("}") > 1:
        complaints.tell(line_of(number), f"a mapping of numbers expected, {shown(whole)} found")
        return None
    return _fields(((number, item) for item in whole[1:-1].split(",") if item.strip()), complaints)


def _block(lines: _Lines, complaints: Complaints) -> dict[str, str] | None:
    """Indented lines, each a field."""
    rows: list[tuple[int, str]] = []
    while (row := lines.peek()) is not None and row[1].startswith(" "):
        rows.append(row)
        lines.next()
    return _fields(iter(rows), complaints)


def _fields(rows: Iterator[tuple[int, str]], complaints: Complaints) -> dict[str, str] | None:
    found: dict[str, str] = {}
    before = len(complaints.told)
    for number, text in rows:
        key, colon, value = text.strip().partition(": ")
        key = _word(key)
        if not colon or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", key) or value.strip()[:1] in ("", *"&*!|>{["):
            complaints.tell(line_of(number), f"a field such as mean: 1.5 expected, {shown(text.strip())} found")
        elif key in found:
            complaints.tell(line_of(number), f"the field {key} is there twice")
        else:
            found[key] = _word(value.strip())
    return found if len(complaints.told) == before else None


def _word(text: str) -> str:
    """A word without its quotes."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1]
    return text
