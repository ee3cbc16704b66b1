"""Writing the result of a search-space profile into the config that asked for it, in place.

Two values of one mapping are replaced in the text, and nothing else is touched: comments, quotes, indentation and the
line ends of everything else stay letter for letter. The style of the new list is that of the list of all primitives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.errors import GnomonError, ProblemError
from gnomon.formats.yaml import YamlNode, read_yaml

_HINT = "Write search_space_cfg as a plain block of keys, each with a colon behind it in its line."


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The mapping that is edited, the key whose list becomes null, and the key that is filled in."""

    mapping: YamlNode
    emptied: str
    filled: str

    @classmethod
    def of(cls, mapping: YamlNode, emptied: str, filled: str) -> Keys:
        """Of a mapping that has both keys."""
        return cls(mapping=mapping, emptied=emptied, filled=filled)


@dataclass(frozen=True, slots=True)
class _Edit:
    """A stretch of the text and what stands there instead."""

    start: int
    end: int
    text: str


def filled(text: str, keys: Keys, lists: Sequence[Sequence[str]]) -> str:
    """The text with one key's value null and the other's these lists of plain words.

    ProblemError where the document is written so that this cannot be done without touching something else.
    """
    empty_key, empty_value = keys.mapping.entries[keys.emptied]
    fill_key, fill_value = keys.mapping.entries[keys.filled]
    edits = _cleared(text, empty_key, empty_value)
    edits.append(_Edit(_colon(text, empty_key), _colon(text, empty_key), " null"))
    edits += _cleared(text, fill_key, fill_value)
    behind = _colon(text, fill_key)
    if keys.mapping.flow or empty_value.flow:
        edits.append(_Edit(behind, behind, f" [{', '.join(_flow(one) for one in lists)}]"))
    else:
        break_ = "\r\n" if "\r\n" in text else "\n"
        column = empty_value.start - _line_start(text, empty_value.start)
        scalar = (fill_value.kind == "scalar" and fill_value.text) or fill_value.flow
        end = _line_end(text, fill_value.end if scalar else behind)
        first = "" if text[:end].endswith("\n") else break_
        edits.append(_Edit(end, end, first + _block(lists, " " * column, break_)))
    made = text
    # From behind, so that offsets hold; of two at one place the later one, which is text put in, goes first.
    for edit in sorted(edits, key=lambda one: (one.start, one.end), reverse=True):
        made = made[: edit.start] + edit.text + made[edit.end :]
    _prove(text, made, keys, lists)
    return made


def has_text(root: YamlNode, section: str, key: str) -> bool:
    """Whether a section has a key with a text, or with nothing."""
    found = root.entries.get(section)
    value = None if found is None else found[1].entries.get(key)
    return value is not None and value[1].kind == "scalar"


def renamed(text: str, section: str, key: str, value: str) -> str:
    """The text with another text as the value of a section's key.

    ProblemError where the document is written so that this cannot be done without touching something else.
    """
    before = read_yaml(text, "config", _HINT)
    key_node, old = before.entries[section][1].entries[key]
    made = json.dumps(value, ensure_ascii=False)
    behind = _colon(text, key_node)
    if old.kind == "scalar" and (old.text or old.quoted):
        after = text[: old.start] + made + text[old.end :]
    else:
        after = f"{text[:behind]} {made}{text[behind:]}"
    try:
        new = read_yaml(after, "config", _HINT)
        good = new.entries[section][1].entries[key][1].value == value
        same = _but(before, section, key) == _but(new, section, key)
    except (GnomonError, KeyError) as error:
        raise _refusal(key_node.line) from error
    if not good or not same:
        raise _refusal(key_node.line)
    return after


def _but(root: YamlNode, section: str, key: str) -> list[Any]:
    """All that a document says but one value of a section, in order."""
    rows: list[Any] = []
    for name, value in root.entries.values():
        inside = value.entries.values() if name.text == section else ()
        mine = [(k.shape(), None if k.text == key else v.shape()) for k, v in inside]
        rows.append((name.shape(), mine or value.shape()))
    return rows


def _cleared(text: str, key: YamlNode, value: YamlNode) -> list[_Edit]:
    """What takes a value away: from its key's colon to its end, or the lines of a block list."""
    if value.kind == "list" and not value.flow:
        last = value
        while last.items:
            last = last.items[-1]
        return [_Edit(_line_start(text, value.start), _line_end(text, last.end), "")]
    if value.kind == "scalar" and not value.text and not value.quoted:
        return []
    return [_Edit(_colon(text, key), value.end, "")]


def _colon(text: str, key: YamlNode) -> int:
    """Where the text behind a key's colon begins."""
    match = re.compile(r"[ \t]*:").match(text, key.end)
    if match is None:
        raise _refusal(key.line)
    return match.end()


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    """Behind the line break that ends a line, or the end of the text."""
    return text.find("\n", at) + 1 or len(text)


def _flow(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def _block(lists: Sequence[Sequence[str]], indent: str, break_: str) -> str:
    """Lists in a list, as PyYAML writes them."""
    rows = [f"{indent}{'  ' if k else '- '}- {name}" for names in lists for k, name in enumerate(names)]
    return "".join(row + break_ for row in rows)


def _prove(before: str, after: str, keys: Keys, lists: Sequence[Sequence[str]]) -> None:
    """Read the result again: the two values are what they should be, and everything else is what it was."""
    path = [k for k, v in read_yaml(before, "config", _HINT).entries.items() if v[1].start == keys.mapping.start]
    try:
        old, new = (read_yaml(text, "config", _HINT) for text in (before, after))
        old_part, new_part = (root.entries[path[0]][1] for root in (old, new))
        made = [[item.value for item in one.items] for one in new_part.entries[keys.filled][1].items]
        good = made == [list(names) for names in lists] and new_part.entries[keys.emptied][1].value is None
        same = _others(old, old_part, keys) == _others(new, new_part, keys)
    except (GnomonError, KeyError, IndexError) as error:
        raise _refusal(keys.mapping.line) from error
    if not good or not same:
        raise _refusal(keys.mapping.line)


def _others(root: YamlNode, part: YamlNode, keys: Keys) -> list[Any]:
    """All that a document says but the two values, in order."""
    rows: list[Any] = [(key.shape(), value.shape()) for key, value in root.entries.values() if value is not part]
    mine = [(key.shape(), value.shape()) for key, value in part.entries.values() if key.text not in _names(keys)]
    return [*rows, [key.text for key, _ in root.entries.values()], mine, [k.text for k, _ in part.entries.values()]]


def _names(keys: Keys) -> tuple[str, str]:
    return keys.emptied, keys.filled


def _refusal(line: int) -> ProblemError:
    return ProblemError(f"the config cannot be filled in as it is written (at line {line})", hint=_HINT)
