"""Names beside points, which cover nothing: where they stand, in pixels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SIZE, _HEIGHT = 12.0, 14.0
"""How high letters and lines of text are."""

_REACH = 8.0
"""Half of a mark with its surroundings."""

_OFFSETS = (
    *((9, -12), (9, 12), (-9, -12), (-9, 12)),
    *((19, y) for y in (-28, 26, -44, 42)),
    *((-19, y) for y in (-28, 26, -44, 42)),
    *((19, y) for y in (-60, 58, -76, 74)),
)
"""Where the middle of a label may stand beside its point, the best first; to the left it ends there."""

_NEAR = 9
"""A label that is farther from its point than this has a line to it."""

_NARROW = frozenset(" .,:;'|!()[]ijltfI/")
_WIDE = frozenset("mwMW%@")

Box = tuple[float, float, float, float]
"""The left, the upper, the right and the lower end."""


def text_width(text: str, size: float = _SIZE) -> float:
    """About how wide a text is drawn in a sans serif font: rather too wide than too narrow."""
    return size * sum(map(_width, text))


def _width(letter: str) -> float:
    if letter in _NARROW:
        return 0.33
    if letter in _WIDE or ord(letter) > 0x2E80:  # from there on letters are as wide as high
        return 1.0
    return 0.74 if letter.isupper() else 0.58


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a point is called, of which the first word alone may stand where there is no room for all."""

    at: tuple[float, float]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A label that has a place: where it begins (`left`) or ends, and in what height its middle is."""

    point: tuple[float, float]
    text: str
    x: float
    y: float
    left: bool

    @property
    def far(self) -> bool:
        """Whether a line leads to it."""
        return abs(self.x - self.point[0]) > _NEAR

    @property
    def box(self) -> Box:
        """What it covers."""
        wide, high = text_width(self.text), _HEIGHT / 2
        return (self.x if self.left else self.x - wide, self.y - high, self.x + wide * self.left, self.y + high)


def place_labels(labels: Sequence[Label], width: float, height: float) -> list[Placed]:
    """Labels that stand in a rectangle from (0, 0) on and cover neither each other nor a point, the first ones first.

    One for which there is no room is shortened to its first word; where there is none even for that, it is left out.
    Points without a text are only not to be covered.
    """
    placed: list[Placed] = []
    points: list[Box] = [(x - _REACH, y - _REACH, x + _REACH, y + _REACH) for x, y in (one.at for one in labels)]
    for k, label in enumerate(labels):
        others = [*points[:k], *points[k + 1 :], *(one.box for one in placed)] if label.text else []
        for one in _choices(label):
            left, upper, right, lower = one.box
            inside = left >= 0 and upper >= 0 and right <= width and lower <= height
            if inside and not any(_overlap(one.box, other) for other in others):
                placed.append(one)
                break
    return placed


def _choices(label: Label) -> Iterable[Placed]:
    """What may be written at which places, the best first."""
    x, y = label.at
    for text in dict.fromkeys((label.text, label.text.partition(" ")[0])):
        for across, down in _OFFSETS if text else ():
            yield Placed(point=label.at, text=text, x=x + across, y=y + down, left=across > 0)


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
