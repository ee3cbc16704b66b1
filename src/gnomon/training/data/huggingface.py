"""Images of Hugging Face's `datasets`, from this machine alone: what `save_to_disk` wrote, or the local cache.

The package is imported here and nowhere else, offline. It gives the bytes of each picture, which are decoded as those
of a folder are; nothing of it is unpickled, and a picture that is an address is not fetched.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gnomon.core.strict_json import Complaints
from gnomon.errors import ProblemError, RuntimeMissingError, UsageError
from gnomon.installing import install_line, needed
from gnomon.training.data.dataset import PARTS
from gnomon.training.data.pictures import Opened, Pictures, common_mode
from gnomon.training.data.readers import regular_file

_OFFLINE = ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE")
_SAVED = ("dataset_dict.json", "state.json")
_COLUMNS = "Name them: gnomon_cfg.image_column and gnomon_cfg.label_column."
_LEAST = 4
"""The first version of the package that runs no program of a data set."""


def open_saved(place: str, image: str | None, label: str | None, mode: str = "") -> Opened:
    """The pictures of a data set by part, and their classes.

    `place` is a folder that `save_to_disk` wrote, or the name of a data set in the local cache. `image` and `label`
    name the columns; else they are the only one of pictures and the only one of classes. Without a `mode` the head of
    each picture is looked at. UsageError for what is not here; ProblemError for other columns, and for what is not a
    picture; RuntimeMissingError without the package.
    """
    package = _package()
    saved = _loaded(package, place)
    parts = {name: saved[name] for name in PARTS if name in saved} if isinstance(saved, Mapping) else {"train": saved}
    if "train" not in parts:
        raise ProblemError(
            f"{place} has the parts {', '.join(map(str, saved))}, and none called train",
            hint="Save a data set, or a dictionary of such with train and, where there are, validation and test.",
        )
    features = parts["train"].features
    image = image or _only(features, package.Image, f"columns of pictures in {place}")
    label = label or _only(features, package.ClassLabel, f"columns of classes in {place}")
    for name in (image, label):
        if lacking := [part for part, rows in parts.items() if name not in rows.features]:
            raise ProblemError(
                f"{place} has no column {name[:60]!r} in {', '.join(lacking)}",
                hint=f"Its columns: {', '.join(features)[:400]}.",
            )
    if not isinstance(features[image], package.Image):
        raise ProblemError(f"the column {image} of {place} holds no pictures", hint=_COLUMNS)
    pictures = {name: _pictures(package, part, image, label) for name, part in parts.items()}
    if not mode:
        complaints = Complaints(what=f"data set {place}", hint="Save the data set with its pictures: save_to_disk.")
        mode = common_mode(pictures, complaints)
    labels = {name: part.labels for name, part in pictures.items()}
    count = 1 + max(int(y.max(initial=0)) for y in labels.values())
    classes = tuple(getattr(features[label], "names", None) or map(str, range(count)))
    return Opened(parts=pictures, labels=labels, classes=classes, mode=mode)


def _only(features: Mapping[str, object], kind: type, what: str) -> str:
    """The only column of a kind. ProblemError where there is none, or several."""
    columns = [name for name, feature in features.items() if isinstance(feature, kind)]
    if len(columns) != 1:
        raise ProblemError(f"there are {len(columns)} {what} ({', '.join(features)[:400]})", hint=_COLUMNS)
    return columns[0]


def _pictures(package: Any, part: Any, image: str, label: str) -> Pictures:
    """The pictures of a part, which the package hands over as they lie in it."""
    whole = "int" in str(getattr(part.features[label], "dtype", ""))
    labels = np.asarray(part.with_format(None)[label][:] if whole else None)
    if labels.dtype.kind not in "iu":  # there may be gaps
        raise ProblemError(
            f"the classes, {label}, are not whole numbers", hint=f"Save it with class_encode_column({label!r})."
        )
    rows = part.select_columns([image]).cast_column(image, package.Image(decode=False)).with_format(None)
    return Pictures(
        names=[f"row {k}" for k in range(len(labels))],
        labels=labels.astype(np.int64),
        file=lambda k: _file(rows[int(k)][image]),
    )


def _file(row: Any) -> AbstractContextManager[BinaryIO]:
    """The file of a picture that was not decoded: its own bytes, or a file here."""
    content, path = row.get("bytes"), row.get("path")
    if isinstance(content, bytes):
        return io.BytesIO(content)
    if not isinstance(path, str) or "://" in path:
        raise ProblemError("a picture that is not here", hint="Save the data set with its pictures: save_to_disk.")
    return regular_file(Path(path))


def _loaded(package: Any, place: str) -> Any:
    """The data set, or the dictionary of them."""
    folder = Path(place)
    try:
        if any((folder / name).is_file() for name in _SAVED):
            return package.load_from_disk(place)
        if not folder.exists():
            return package.load_dataset(place)
    except Exception as error:  # a cache that lacks it, a broken file, a format of another day: it raises many kinds
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise UsageError(
            f"huggingface:{place} cannot be read here: {reason}",
            hint="Nothing is fetched: load it once with the package datasets, or give the folder of its save_to_disk.",
        ) from error
    raise UsageError(
        f"{place} is not a folder that save_to_disk of the package datasets wrote",
        hint="Give that folder, or folder:DIR for a folder of images.",
    )


def _package() -> Any:
    """The package datasets, offline. RuntimeMissingError where it is missing; UsageError where it may go online."""
    loaded = needed("the package datasets cannot be loaded", "datasets", instead=", or give folder:DIR.")
    with loaded, _offline():
        import datasets
    if int(datasets.__version__.partition(".")[0]) < _LEAST:
        raise RuntimeMissingError(
            f"the package datasets {datasets.__version__} runs programs that come with data sets",
            hint=f"{install_line('datasets')}, from version {_LEAST}.",
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
