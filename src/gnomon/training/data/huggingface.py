"""Images of Hugging Face's `datasets`, from this machine alone: what `save_to_disk` wrote, or the local cache.

The package is imported here and nowhere else, offline. It gives the bytes of each picture, which are decoded as those
of a folder are; nothing of it is unpickled, and a picture that is an address is not fetched.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.installing import install_line, needed
from gnomon.errors import ProblemError, RuntimeMissingError, UsageError
from gnomon.training.data.dataset import PARTS
from gnomon.training.data.pictures import decoded, is_grey
from gnomon.training.data.readers import read_bytes

_OFFLINE = ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE")
_SAVED = ("dataset_dict.json", "state.json")
_MOST_FILE = 64 << 20
_AT_ONCE = 256
_LEAST = 4
"""The first version of the package that runs no program of a data set."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Rows of a data set of the package, as a map-style data set: item k is a Pillow picture and its class."""

    rows: Any
    image: str
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.labels)

    def __getitem__(self, k: int) -> tuple[Any, int]:
        """A picture of mode L or RGB, and its class. ProblemError for what is none."""
        return decoded(_content(self.rows[int(k)][self.image]), f"row {k}"), int(self.labels[k])


def open_saved(
    place: str, image: str | None, label: str | None, *, look: bool
) -> tuple[dict[str, Rows], tuple[str, ...], bool]:
    """The rows of a data set by part, the names of its classes, and whether all pictures are grey.

    With `look` the head of each picture is looked at; without, nothing is known of grey. `place` is a folder that
    `save_to_disk` wrote, or the name of a data set in the local cache. `image` and `label` name the columns; else they
    are the only one of pictures and the only one of classes. UsageError for what is not here; ProblemError for other
    columns, and for what is not a picture; RuntimeMissingError without the package.
    """
    found = _loaded(place)
    parts = {name: found[name] for name in PARTS if name in found} if isinstance(found, Mapping) else {"train": found}
    if "train" not in parts:
        raise ProblemError(
            f"{place} has the parts {', '.join(map(str, found))}, and none called train",
            hint="Save a data set, or a dictionary of such with train and, where there are, validation and test.",
        )
    image, label = _columns(parts["train"], place, image, label)
    classes: tuple[str, ...] = tuple(getattr(parts["train"].features[label], "names", None) or ())
    made, grey = {}, True
    for name, part in parts.items():
        if image not in part.features or label not in part.features:
            raise ProblemError(f"the part {name} of {place} lacks the columns {image} and {label}", hint=_COLUMNS)
        whole = "int" in str(getattr(part.features[label], "dtype", ""))
        labels = np.asarray(part.with_format(None)[label][:] if whole else None)
        if labels.dtype.kind not in "iu":  # there may be gaps
            raise ProblemError(
                f"the classes of {place}, {label}, are not whole numbers",
                hint=f"Save it with class_encode_column({label!r}).",
            )
        rows = part.select_columns([image]).cast_column(image, _package().Image(decode=False)).with_format(None)
        grey = grey and (not look or _all_grey(rows, image))
        made[name] = Rows(rows=rows, image=image, labels=labels.astype(np.int64))
    count = 1 + max(int(one.labels.max(initial=0)) for one in made.values())
    return made, classes or tuple(map(str, range(count))), grey


_COLUMNS = "Name them: gnomon_cfg.image_column and gnomon_cfg.label_column."


def _columns(part: Any, place: str, image: str | None, label: str | None) -> tuple[str, str]:
    """The columns of pictures and of classes. ProblemError where they are not named and not the only ones."""
    package, found = _package(), []
    for given, kind, what in ((image, package.Image, "pictures"), (label, package.ClassLabel, "classes")):
        there = [name for name, one in part.features.items() if isinstance(one, kind)]
        if given is not None and given not in part.features:
            raise ProblemError(
                f"{place} has no column {given[:60]!r}", hint=f"Its columns: {', '.join(part.features)[:400]}."
            )
        if given is None and len(there) != 1:
            raise ProblemError(
                f"{place} has {len(there)} columns of {what} ({', '.join(part.features)[:400]})", hint=_COLUMNS
            )
        found.append(given or there[0])
    if not isinstance(part.features[found[0]], package.Image):
        raise ProblemError(f"the column {found[0]} of {place} holds no pictures", hint=_COLUMNS)
    return found[0], found[1]


def _all_grey(rows: Any, image: str) -> bool:
    """Whether all pictures are grey, by their heads. ProblemError for what is none, with its row."""
    grey = True
    for start in range(0, len(rows), _AT_ONCE):
        for k, one in enumerate(rows[start : start + _AT_ONCE][image], start):
            try:
                grey = is_grey(_content(one)) and grey
            except (ProblemError, UsageError) as error:
                raise type(error)(f"row {k}: {error.message}", hint=error.hint) from error
    return grey


def _content(one: Any) -> bytes:
    """The bytes of a picture that was not decoded: its own, or those of a file here."""
    content, path = one.get("bytes"), one.get("path")
    if isinstance(content, bytes):
        return content
    if not isinstance(path, str) or "://" in path:
        raise ProblemError("a picture that is not here", hint="Save the data set with its pictures: save_to_disk.")
    return read_bytes(Path(path), _MOST_FILE)


def _loaded(place: str) -> Any:
    """The data set, or the dictionary of them."""
    package, folder = _package(), Path(place)
    try:
        if any((folder / name).is_file() for name in _SAVED):
            return package.load_from_disk(place)
        if not folder.exists():
            return package.load_dataset(place)
    except Exception as error:  # a cache that lacks it, a broken file, a format of another day: it raises many kinds
        told = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise UsageError(
            f"huggingface:{place} cannot be read here: {told}",
            hint="Nothing is fetched: load it once with the package datasets, or give the folder of its save_to_disk.",
        ) from error
    raise UsageError(
        f"{place} is not a folder that save_to_disk of the package datasets wrote",
        hint="Give that folder, or folder:DIR for a folder of images.",
    )


def _package() -> Any:
    """The package datasets, offline. RuntimeMissingError where it is missing; UsageError where it may go online."""
    told = needed(
        "the package datasets cannot be loaded", "datasets", python=sys.executable, instead=", or give folder:DIR."
    )
    with told, _offline():
        import datasets
    if int(datasets.__version__.partition(".")[0]) < _LEAST:
        raise RuntimeMissingError(
            f"the package datasets {datasets.__version__} runs programs that come with data sets",
            hint=f"{install_line('datasets', python=sys.executable)}, from version {_LEAST}.",
        )
    if not datasets.config.HF_HUB_OFFLINE:
        raise UsageError(
            "the package datasets was imported before, and not offline",
            hint="Set HF_DATASETS_OFFLINE=1 and HF_HUB_OFFLINE=1 in the environment.",
        )
    datasets.disable_progress_bars()
    return datasets


@contextmanager
def _offline() -> Iterator[None]:
    """The package reads at its import whether it may use the network."""
    before = {name: os.environ.get(name) for name in _OFFLINE}
    os.environ.update(dict.fromkeys(_OFFLINE, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
