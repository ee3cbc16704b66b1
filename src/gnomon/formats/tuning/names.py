"""Names of the files of tuning: ``<key>.<model>.<dtype>[.<tuner>].json`` and ``.so``, with the device's key in front.

Where configurations that were found on one device are measured on another, the front is ``<target>_<host>``. These are
Ferule's names. A key may hold dots and underscores, so that a name alone does not always say where one part ends: the
model is taken to be what stands between the last two dots, and a front is cut only where known keys fit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gnomon.core.overlay.records import Tuner
from gnomon.core.strict_json import shown
from gnomon.errors import UsageError

Suffix = Literal["json", "so"]

MOST_KEY = 60
MOST_MODEL = 80
_SUFFIXES: tuple[Suffix, ...] = ("json", "so")
_TUNERS: dict[str, Tuner] = {
    "atvm": "autotvm",
    "autotvm": "autotvm",
    "ansor": "ansor",
    "metaschedule": "metaschedule",
}
_WORDS: dict[Tuner, str] = {"autotvm": "atvm", "ansor": "ansor", "metaschedule": "metaschedule"}
_DTYPE = re.compile(r"(bfloat|float|uint|int)[0-9]{1,3}[a-z0-9_]{0,12}", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]|^[.-]+|\.(?=\.)|\.$", re.ASCII)
_MOST_NAME = 255
_DIGITS = 8
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


def make_tuning_name(name: TuningName) -> str:
    """The name of a file, without any folder. UsageError for a data type that is none.

    Keys and the model are made safe as by `safe_key` and `safe_model`.
    """
    if not _DTYPE.fullmatch(name.dtype):
        raise UsageError(f"{shown(name.dtype)} is no data type", hint="Give one such as float32 or float16.")
    front = safe_key(name.key) + (f"_{safe_key(name.found_on)}" if name.found_on else "")
    tuner = "" if name.tuner is None else f".{_WORDS[name.tuner]}"
    return f"{front}.{safe_model(name.model)}.{name.dtype}{tuner}.{name.suffix}"


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


def safe_key(key: str) -> str:
    """A key as it is in a name: itself, if that is safe; else with what is unsafe replaced, and a digest behind."""
    return _safe(key, MOST_KEY)


def safe_model(model: str) -> str:
    """A model as it is in a name: as `safe_key`, and without dots."""
    return _safe(model.replace(".", "-"), MOST_MODEL)


def _safe(text: str, most: int) -> str:
    """A text that cannot leave its folder, be an option, or be too long. Different ones stay different."""
    clean = _UNSAFE.sub("-", text)
    clean = clean.lstrip("-.") or "x"
    if clean == text and len(clean) <= most:
        return clean
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{clean[: most - _DIGITS - 1]}-{digest}"


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
