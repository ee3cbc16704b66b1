"""Names of tuning files: ``<key>.<model>.<dtype>[.<tuner>].json`` and ``.so``, beginning with the device's key.

If configurations that were found on one device were measured on another, the beginning is ``<target>_<host>``. These
are Ferule's names. A key may contain dots and underscores, so a name alone does not always show where a part ends:
`readings` returns all possible meanings, and `gnomon.formats.tuning.keys` decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from gnomon.core.strict_json import shown
from gnomon.errors import UsageError

_SUFFIXES = ("json", "so")
_TUNERS = ("atvm", "autotvm", "ansor", "metaschedule")
_DTYPE = re.compile(r"(bfloat|float|uint|int)[0-9]{1,3}[a-z0-9_]{0,12}", re.ASCII)
_MOST_NAME = 255
_HINT = "Rename it to DEVICE.MODEL.TYPE.json or DEVICE_HOST.MODEL.TYPE.json, such as phone.mobilenet.float32.json."


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningName:
    """The parts of the name of a tuning file.

    `key` is the device that was measured, or for which the file was compiled; `found_on` is the device on which the
    configurations were found, and empty if it is the same.
    """

    key: str
    model: str
    dtype: str
    found_on: str = ""

    @property
    def host(self) -> str:
        """The device on which the configurations were found."""
        return self.found_on or self.key


def parse_tuning_name(path: str) -> TuningName:
    """The parts of a file's name, without its folders, with the whole beginning as the key.

    The model is the part before the data type. UsageError for a name of another form.
    """
    name = path.rstrip("/").rpartition("/")[2].removesuffix(".gz")
    words = name.split(".")
    fits = words.pop() in _SUFFIXES
    if words and words[-1] in _TUNERS:
        words.pop()
    good = fits and len(words) >= 3 and len(name) <= _MOST_NAME and name.isprintable() and _DTYPE.fullmatch(words[-1])
    key = ".".join(words[:-2])
    if not good or not key or not words[-2]:
        raise UsageError(f"the name {shown(name)} does not show the device, model and data type", hint=_HINT)
    return TuningName(key=key, model=words[-2], dtype=words[-1])


def readings(path: str, keys: Collection[str] = ()) -> list[TuningName]:
    """All possible meanings of a name: first with the beginning as a single key, then split at each underscore.

    Meanings in which the model contains a dot are included if their keys are among `keys`. UsageError as in
    `parse_tuning_name`.
    """
    whole = parse_tuning_name(path)
    names = [whole, *(replace(whole, key=key, found_on=host) for key, host in _cuts(whole.key, "_"))]
    for front, model in _cuts(f"{whole.key}.{whole.model}", ".") if keys else []:
        for key, host in [(front, ""), *_cuts(front, "_")] if front != whole.key else []:
            if key in keys and host in (*keys, ""):
                names.append(replace(whole, key=key, found_on=host, model=model))
    return names


def _cuts(text: str, at: str) -> list[tuple[str, str]]:
    """A string split in two at each occurrence of a character, with something on both sides."""
    places = [place for place, letter in enumerate(text) if letter == at]
    return [(text[:place], text[place + 1 :]) for place in places if text[:place] and text[place + 1 :]]
