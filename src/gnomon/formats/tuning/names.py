"""Names of the files of tuning: ``<key>.<model>.<dtype>[.<tuner>].json`` and ``.so``, with the device's key in front.

Where configurations that were found on one device are measured on another, the front is ``<target>_<host>``. These are
Ferule's names. A key may hold dots and underscores, so that a name alone does not always say where one part ends: the
model is taken to be what stands between the last two dots, and a front is cut only where known keys fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gnomon.core.overlay.records import Tuner
from gnomon.core.strict_json import shown
from gnomon.errors import UsageError

Suffix = Literal["json", "so"]

_SUFFIXES: tuple[Suffix, ...] = ("json", "so")
_TUNERS: dict[str, Tuner] = {
    "atvm": "autotvm",
    "autotvm": "autotvm",
    "ansor": "ansor",
    "metaschedule": "metaschedule",
}
_DTYPE = re.compile(r"(bfloat|float|uint|int)[0-9]{1,3}[a-z0-9_]{0,12}", re.ASCII)
_MOST_NAME = 255
_HINT = "Names are such as phone.mobilenet.float32.json, or phone_server.mobilenet.float32.json of one on another."


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningName:
    """What the name of a file of tuning says.

    `key` is the device that was measured, or compiled for; `found_on` the device on which the configurations were
    found, empty if it is the same. `tuner` is None where the name does not say it.
    """

    key: str
    model: str
    dtype: str
    found_on: str = ""
    tuner: Tuner | None = None
    suffix: Suffix = "json"


def parse_tuning_name(path: str, known: Iterable[str] = ()) -> TuningName:
    """What the name of a file says; folders before it are left out. `known` are keys of devices, as they are in names.

    A front is cut into two keys where both are known, and into key and model where that makes a known one; without
    any that fit, the whole front is a key. UsageError for a name of another kind, and for one that fits several ways.
    """
    front, model, dtype, tuner, suffix = _parts(path)
    keys = frozenset(known)
    fits = {
        (key, found_on, after)
        for before, after in _cuts(f"{front}.{model}", ".")
        for key, found_on in ([(before, "")] if before in keys else []) + _pairs(before, keys)
    }
    if len(fits) > 1:
        told = " or ".join(
            f"{model} on {key}" + (f" of what was found on {found_on}" if found_on else "")
            for key, found_on, model in sorted(fits)
        )
        hint = "Say which device it is of, or rename the file: keys without underscores fit one way only."
        raise UsageError(f"the name {shown(_last(path))} fits several ways: {told}", hint=hint)
    key, found_on, model = next(iter(fits), (front, "", model))
    return TuningName(key=key, model=model, dtype=dtype, found_on=found_on, tuner=tuner, suffix=suffix)


def _parts(path: str) -> tuple[str, str, str, Tuner | None, Suffix]:
    """Front, model, data type, tuner and suffix. UsageError if there are none."""
    name = _last(path)
    words = name.split(".")
    suffix = next((known for known in _SUFFIXES if known == words[-1]), None)
    words = words[:-1]
    tuner = _TUNERS.get(words[-1]) if words else None
    if tuner is not None:
        words = words[:-1]
    good = len(words) >= 3 and len(name) <= _MOST_NAME and name.isprintable() and _DTYPE.fullmatch(words[-1])
    front, model = ".".join(words[:-2]), words[-2] if good else ""
    if suffix is None or not good or not front or not model:
        raise UsageError(f"the name {shown(name)} does not say device, model and data type", hint=_HINT)
    return front, model, words[-1], tuner, suffix


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _cuts(text: str, at: str) -> list[tuple[str, str]]:
    """A text cut in two at each place of a letter, with something on both sides."""
    places = [place for place, letter in enumerate(text) if letter == at]
    return [(text[:place], text[place + 1 :]) for place in places if text[:place] and text[place + 1 :]]


def _pairs(front: str, keys: frozenset[str]) -> list[tuple[str, str]]:
    return [(key, found_on) for key, found_on in _cuts(front, "_") if key in keys and found_on in keys]
