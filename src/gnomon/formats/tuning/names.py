"""Names of the files of tuning: ``<key>.<model>.<dtype>[.<tuner>].json`` and ``.so``, with the device's key in front.

Where configurations that were found on one device are measured on another, the front is ``<target>_<host>``. These are
Ferule's names. A key may hold dots and underscores, so that a name alone does not always say where one part ends:
`readings` are all that it may mean, and `gnomon.formats.tuning.keys` decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
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

    @property
    def host(self) -> str:
        """Where the configurations were found."""
        return self.found_on or self.key


def parse_tuning_name(path: str) -> TuningName:
    """What the name of a file says if its whole front is a key; folders before it are left out.

    The model is what stands between the last two dots. UsageError for a name of another kind.
    """
    front, model, dtype, tuner, suffix = _parts(path)
    return TuningName(key=front, model=model, dtype=dtype, tuner=tuner, suffix=suffix)


def readings(path: str, told: Collection[str] = ()) -> list[TuningName]:
    """All that a name may mean: the front as one key, first, and cut in two at each underscore.

    Where key and model are parted at another dot than the last, both keys must be among those that were `told`.
    UsageError as of `parse_tuning_name`.
    """
    whole = parse_tuning_name(path)
    found = [whole, *(replace(whole, key=key, found_on=host) for key, host in _cuts(whole.key, "_"))]
    for front, model in _cuts(f"{whole.key}.{whole.model}", ".") if told else []:
        for key, host in [(front, ""), *_cuts(front, "_")] if front != whole.key else []:
            if key in told and host in (*told, ""):
                found.append(replace(whole, key=key, found_on=host, model=model))
    return found


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
