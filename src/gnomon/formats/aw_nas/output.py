"""Other values in a config of aw_nas, written into its text.

One value after another is replaced, and nothing else is touched: comments, quotes, indentation and the line ends of
everything else stay letter for letter. For that the text is edited at the places that ruamel.yaml finds; what
ruamel.yaml writes itself keeps comments, and neither indentation nor blanks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from gnomon.errors import ProblemError
from gnomon.formats.yaml import Node, read_yaml

Lists = Sequence[Sequence[str]]

_WHAT = "config"
_HINT = "Write search_space_cfg as a plain block of keys, each with a colon behind it in its line."


def with_value(text: str, section: str, key: str, value: str | Lists | None, column: int | None = None) -> str:
    """The text with another value of a section's key.

    Lists are of plain words. With a column, that of their dashes, they stand in lines of their own, as PyYAML writes
    them; any other value stands behind the key.

    ProblemError where the text is written so that this cannot be done without touching something else.
    """
    root = read_yaml(text, _WHAT, _HINT)
    pairs = next(node.value for name, node in root.value if name.value == section)
    place = next(k for k, (name, _) in enumerate(pairs) if name.value == key)
    name, old = pairs[place]
    refused = ProblemError(
        f"the config cannot be filled in as it is written (at line {name.start_mark.line + 1})", hint=_HINT
    )
    colon = re.compile(r"[ \t]*:").match(text, name.end_mark.index)
    if colon is None:
        raise refused
    flow = json.dumps(value, ensure_ascii=False)
    pairs[place] = (name, read_yaml(flow, _WHAT, _HINT))
    if value is None or isinstance(value, str):
        after = _edited(text, colon.end(), old, f" {flow}", "")
    elif column is None:
        after = _edited(text, colon.end(), old, " " + flow.replace('"', ""), "")
    else:
        after = _edited(text, colon.end(), old, "", _block(value, column))
    try:
        good = _shape(read_yaml(after, _WHAT, _HINT)) == _shape(root)
    except ProblemError as error:
        raise refused from error
    if not good:
        raise refused
    return after


def _edited(text: str, behind: int, old: Node, words: str, lines: str) -> str:
    """The text with words behind a key's colon and lines below it, in place of its old value."""
    if old.id == "sequence" and not old.flow_style:
        last = old
        while last.id == "sequence" and last.value:
            last = last.value[-1]
        end = behind
        lines_from = text.rfind("\n", 0, old.start_mark.index) + 1
        lines_to = _line_end(text, last.end_mark.index)
    else:
        empty = old.id == "scalar" and not old.value and not old.style
        end = behind if empty else old.end_mark.index
        lines_from = lines_to = _line_end(text, end)
    if lines and not text[:lines_from].endswith("\n"):
        lines = "\n" + lines
    if "\r\n" in text:
        lines = lines.replace("\n", "\r\n")
    return text[:behind] + words + text[end:lines_from] + lines + text[lines_to:]


def _line_end(text: str, at: int) -> int:
    """Behind the line break that ends a line, or the end of the text."""
    return text.find("\n", at) + 1 or len(text)


def _block(lists: Lists, column: int) -> str:
    """Lists in a list, as PyYAML writes them."""
    rows = [f"{'  ' if k else '- '}- {name}" for names in lists for k, name in enumerate(names)]
    return "".join(f"{' ' * column}{row}\n" for row in rows)


def _shape(node: Node) -> Any:
    """What a node says, without where and how: equal for equal content."""
    if isinstance(node.value, str):
        return node.tag, node.value
    return [node.tag, *(tuple(map(_shape, one)) if isinstance(one, tuple) else _shape(one) for one in node.value)]
