"""Words that the reports of search spaces have in common: shares, swaps, failures, and the counts of networks."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report.plain import clean
from gnomon.report.text import Page

_MOST_NAMES = 6
_BOUND = re.compile(r"(?<=\d) (?=(?:%|[num]?s\b|points\b|\d{3}(?:\D|$)))")
"""Spaces between a number and its unit, and between groups of digits: no line ends there."""


def say(page: Page, sentence: str, *, answer: bool = False, indent: int = 0) -> None:
    """A sentence as `Page.line` and `Page.headline` write it, without tearing a number from its unit."""
    held = _BOUND.sub("\0", clean(sentence))  # what is clean has no such character
    for line in textwrap.wrap(held, page.width - indent, break_on_hyphens=False):
        told = line.replace("\0", " ")
        if answer:
            page.headline(told)
        else:
            page.line(told, indent=indent)


def row(page: Page, label: str, items: Sequence[str], *, indent: int = 0) -> None:
    """A label and items after commas, over as many lines as it takes; none ends inside of an item."""
    held = ", ".join(clean(item).replace(" ", "\0") for item in items)
    for line in textwrap.wrap(label + held, page.width - indent, break_on_hyphens=False):
        page.line(line.replace("\0", " "), indent=indent)


def percent(share: float | None) -> str:
    """A share of images, such as an accuracy: "91.3 %"; "-" where there is none."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def points(share: float | None) -> str:
    """A share without its unit: "91.3"; "-" where there is none."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.1f}"


def listed(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """Names in a row: "a, b and c"; of more than `most` only how many more there are."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def swap_words(family: Mapping[str, Any], primitives: Sequence[str]) -> str:
    """What a network has where its family's default has another primitive: "cell 2: 7x7, expansion 4"."""
    meanings = {one["name"]: one["meaning"] for one in family.get("primitives", ())}
    default = family.get("default")
    apart = [(place, name) for place, name in enumerate(primitives) if name != default]
    if not apart:
        return "the default"
    if len(apart) > 1:
        return f"{len(apart)} cell groups"
    place, name = apart[0]
    return f"cell {place}: {meanings.get(name) or name}"


def is_single(families: Mapping[str, Mapping[str, Any]], primitives: Sequence[str]) -> bool:
    """Whether a network is a family's default, or differs from it in one cell group alone."""
    family = family_of(families, primitives)
    return bool(family) and sum(name != families[family]["default"] for name in primitives) <= 1


def family_of(families: Mapping[str, Mapping[str, Any]], primitives: Sequence[str]) -> str:
    """The family that all primitives of a network are of; an empty text where there is none."""
    for name, family in families.items():
        if set(primitives) <= {one["name"] for one in family["primitives"]}:
            return name
    return ""


def networks(digits: str) -> str:
    """A count of networks, given in digits: "130 321", "1.23e15"."""
    if not digits.isdecimal():
        return digits
    return f"{int(digits):,}".replace(",", " ") if len(digits) <= 9 else f"{digits[0]}.{digits[1:3]}e{len(digits) - 1}"


def part(after: str, before: str) -> str:
    """The share of networks that are left: "7.7 %"; "-" where the counts are none."""
    if not (after.isdecimal() and before.isdecimal()) or len(before + after) > 300 or not int(before):
        return "-"
    share = 100 * int(after) / int(before)
    return f"{share:.1f} %" if share >= 0.1 or not share else f"{share:.1g} %" if share >= 1e-4 else f"{share:.0e} %"


def failures(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """The networks that failed, by reason, the most frequent reason first; each reason is a sentence."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(sentence(row["reason"]), []).append(row["network"])
    return sorted(found.items(), key=lambda item: -len(item[1]))


def sentence(text: str) -> str:
    """A text with a full stop."""
    text = text.strip() or "no reason was told"
    return text if text.endswith((".", "!", "?")) else text + "."
