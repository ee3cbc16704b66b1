"""Block tables of the ProxylessNAS and OFA kind: YAML or JSON, a block's name -> {mean, std or var, count, ...}.

The mean and the deviation `std` are in milliseconds, the variance `var` in their square.

Sources: latency estimators of mit-han-lab/proxylessnas (``latency_estimator.py``) and mit-han-lab/once-for-all, which
add up the ``mean`` of a net's blocks. A name is such as
``expanded_conv-input:56x56x24-output:28x28x40-expand:3-kernel:5-stride:2-idskip:0``.

Read is the part of YAML that PyYAML writes for such a table, and no more: one mapping of names to mappings of plain
numbers and words, in block or flow style, with ``? name`` for the long ones; neither tags, anchors nor documents. So no
file can make anything, or grow, and everything that is wrong is told at once, each with its line; of JSON, where its
blocks are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gnomon.core.strict_json import Complaints, Strict, shown
from gnomon.formats.snpe.table import MOST_LETTERS, csv_text, line_of

_HINT = "Give a YAML or JSON table of blocks, each with a mean in milliseconds, as ProxylessNAS and OFA publish them."
_MOST_BLOCKS = 1 << 18
_MOST_NAME = 1024
_NUMBER = re.compile(r"([0-9]{1,15}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?", re.ASCII)
_COMMENT = re.compile(r"(^|\s)#.*$")
_HEAD = re.compile(r"('(?:[^']|'')*'|\"[^\"\\]*\"|[^\s{}\[\],&*!|>%@`'\"-][^\s{}]*?)\s*:(?:\s+(.*))?")
_FLOW = re.compile(r"\{([^{}]*)\}")
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


def scan_block_table(text: str | bytes) -> tuple[dict[str, Block], Complaints]:
    """The good blocks by name, in the file's order, and complaints about the rest.

    ProblemError for what is not text, too long, or begun as JSON and none.
    """
    complaints = Complaints(what="block table", hint=_HINT)
    blocks: dict[str, Block] = {}
    seen: dict[str, str] = {}
    text = csv_text(text, complaints.what, _HINT)
    for place, name, fields in (_json_entries if text.lstrip().startswith("{") else _entries)(text, complaints):
        before = seen.setdefault(name, place)
        numbers = {key: float(value) for key, value in (fields or {}).items() if _NUMBER.fullmatch(value)}
        if len(seen) > _MOST_BLOCKS:
            complaints.tell(place, f"more than {_MOST_BLOCKS} blocks")
            break
        if not name or len(name) > _MOST_NAME or not name.isprintable() or "/" in name or "\\" in name:
            complaints.tell(place, f"the name of a block, without slashes, expected, {shown(name)} found")
        elif before != place:
            complaints.tell(place, f"the block {shown(name)} is there already, in {before}")
        elif fields is None:
            continue
        elif not 0 < numbers.get("mean", 0.0) < 1e12:
            found = shown(fields["mean"]) if "mean" in fields else "none"
            complaints.tell(place, f"a mean above 0 expected for {shown(name)}, {found} found")
        else:
            blocks[name] = Block(name=name, mean_ms=numbers["mean"], numbers=numbers)
    if not blocks and not complaints.told:
        complaints.tell(line_of(1), "no block at all")
    return blocks, complaints


def _json_entries(text: str, complaints: Complaints) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Each entry of a JSON object, as `_entries` has them."""
    strict = Strict(what=complaints.what, hint=_HINT, most_letters=MOST_LETTERS)
    for number, (name, fields) in enumerate(strict.object(strict.parse(text), "$").items(), 1):
        if isinstance(fields, dict):
            yield f"block {number}", name, {key: str(value) for key, value in fields.items()}
        else:
            complaints.tell(f"block {number}", f"a mapping of numbers expected, {shown(fields)} found")


def _entries(text: str, complaints: Complaints) -> Iterator[tuple[str, str, dict[str, str] | None]]:
    """Each entry: the line in which it begins, its name, and its fields as they are written; None, told, where they
    are not all right: what is left of them may say something else.
    """
    for number, head, rows in _paragraphs(text):
        if head.startswith("? ") and rows and rows[0][1].startswith(":"):  # a long name, and its value in a line below
            line, value = rows.pop(0)
            name, rest = _word(head[2:].strip()), value[1:].strip()
            if rest and not rest.startswith("{"):
                rows, rest = [(line, rest), *rows], ""
        elif match := _HEAD.fullmatch(head):
            name, rest = _word(match[1]), match[2] or ""
        else:
            complaints.tell(line_of(number), f"name: and its numbers expected, {shown(head)} found")
            continue
        if rest.startswith("{"):  # which PyYAML breaks after 80 columns
            ends = (count for count, (_, row) in enumerate(rows, 1) if "}" in row)
            count = 0 if "}" in rest else next(ends, len(rows))
            rest = " ".join([rest, *(row.strip() for _, row in rows[:count])])
            for line, stray in rows[count:]:
                complaints.tell(line_of(line), f"a block's name expected, {shown(stray)} found")
            flow = _FLOW.fullmatch(rest)
            rows = [(number, item) for item in flow[1].split(",") if item.strip()] if flow else []
            rest = "" if flow else rest
        if rest:
            complaints.tell(line_of(number), f"a mapping of numbers expected, {shown(rest)} found")
        else:
            yield line_of(number), name, _fields(rows, complaints)


def _paragraphs(text: str) -> Iterator[tuple[int, str, list[tuple[int, str]]]]:
    """Each line that begins without a blank, with its number, and the lines below it that do; without comments."""
    head: tuple[int, str, list[tuple[int, str]]] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        bare = _COMMENT.sub("", line).rstrip()
        if not bare or (bare == "---" and number == 1):
            continue
        if head is not None and bare[0] in " :":
            head[2].append((number, bare))
            continue
        if head is not None:
            yield head
        head = (number, bare, [])
    if head is not None:
        yield head


def _fields(rows: Iterable[tuple[int, str]], complaints: Complaints) -> dict[str, str] | None:
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
