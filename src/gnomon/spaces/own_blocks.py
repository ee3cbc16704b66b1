"""Primitives by name: the published ones, a package's by the entry-point group, a user's own by file.

A file has a list `primitives`, or a function of that name that makes one::

    from gnomon.spaces.primitives import Primitive

    def wide(x, channels, stride):
        y = x.conv(2 * channels, 1).batch_norm().relu()
        return y.conv(channels, 3, stride=stride).batch_norm().relu()

    primitives = [Primitive(family="Wide", number=0, block=wide, meaning="1x1, 3x3")]
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from gnomon.errors import GnomonError, UsageError
from gnomon.spaces.cell_space import CellLayout, tagged_net
from gnomon.spaces.loading import load_attribute, where_in
from gnomon.spaces.primitive_families import published_primitives
from gnomon.spaces.primitives import Primitive, parse_name

GROUP = "gnomon.primitives"
_ATTRIBUTE = "primitives"
_PUBLISHED = "the published ones"
_MOST = 10_000
_HINT = "A block takes a Symbol, the channels that it makes and its stride, and returns a Symbol."
# Widths that stay, grow, do not divide each other, and shrink; with and without a stride; a height that is odd.
_TRIED = CellLayout(
    input_shape=(1, 3, 31, 16),
    groups=(0, 1, 2, 3, 4),
    widths=(8, 8, 16, 20, 4),
    reduces=frozenset({0, 2}),
    classes=2,
)


def known_primitives(numbering: str = "ssprofile", files: Sequence[str | Path] = ()) -> dict[str, Primitive]:
    """All primitives by name: the published ones in this numbering, those of packages, those of files.

    Those of packages and files are tried with a few widths and strides. UsageError for what cannot be read, run or
    found, for a block that fails (with its line), and for a name that two origins have, unless it is the same object.
    """
    known = published_primitives(numbering)
    origins = dict.fromkeys(known, _PUBLISHED)
    paths = {path.resolve(): path for path in map(Path, files)}
    added = [*_packages(), *((str(path), path, load_attribute(f"{path}:{_ATTRIBUTE}")) for path in paths.values())]
    for origin, path, found in added:
        for one in _checked(found, origin, path):
            if known.setdefault(one.name, one) is not one:
                raise UsageError(
                    f"{one.name} is there twice: in {origins[one.name]} and in {origin}",
                    hint="Give one of them another family or number.",
                )
            origins.setdefault(one.name, origin)
    return known


def _packages() -> list[tuple[str, Path | None, Any]]:
    """What installed packages add: origin, no file, and what was found."""
    found: list[tuple[str, Path | None, Any]] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            found.append((f"the package entry {entry.name} ({entry.value})", None, entry.load()))
        except Exception as error:  # a third party's module may raise anything at import
            raise UsageError(
                f"the primitives {entry.name!r} cannot be loaded: {type(error).__name__}: {error}",
                hint=f"Mend or remove the package that adds them ({entry.value}).",
            ) from error
    return found


def _checked(found: Any, origin: str, path: Path | None) -> tuple[Primitive, ...]:
    """The primitives that were found, called where it is a function, each tried."""
    if callable(found):
        try:
            found = found()
        except GnomonError:
            raise
        except Exception as error:  # whatever the function does
            raise UsageError(
                f"{_ATTRIBUTE} of {origin} cannot be called: {_told(error, path)}",
                hint="It is called without arguments.",
            ) from error
    if not isinstance(found, list | tuple) or not all(isinstance(one, Primitive) for one in found):
        raise UsageError(
            f"{_ATTRIBUTE} of {origin} is no list of primitives",
            hint="Make it a list of gnomon.spaces.primitives.Primitive, or a function that returns one.",
        )
    if not 1 <= len(found) <= _MOST:
        raise UsageError(f"{origin} has {len(found)} primitives", hint=f"Give 1 to {_MOST}.")
    wrong = [f"{one.name}: {told}" for one in found if (told := _fault(one, path))]
    if wrong:
        more = f"; and {len(wrong) - 20} more" if len(wrong) > 20 else ""
        raise UsageError(f"{origin} has blocks that do not work: {'; '.join(wrong[:20])}{more}", hint=_HINT)
    return tuple(found)


def _fault(one: Primitive, path: Path | None) -> str:
    """What is wrong with a primitive, found by its name and by making networks of it; empty if nothing is."""
    try:
        if parse_name(one.name) != (one.family, one.number):
            return "its family is no name"
        first, second = (tagged_net(_TRIED, [one] * _TRIED.group_count) for _ in range(2))
        if first != second:
            return "it makes something else each time"
    except GnomonError as error:
        return error.message + (where_in(error, path) if path else "")
    except Exception as error:  # whatever a block does
        return _told(error, path)
    return ""


def _told(error: Exception, path: Path | None) -> str:
    return f"{type(error).__name__}: {error}{where_in(error, path) if path else ''}"
