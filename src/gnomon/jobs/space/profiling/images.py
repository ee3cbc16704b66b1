"""The images of a study: reading them, splitting them into training, validation and test parts, and calibration."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.codec import fields_of
from gnomon.errors import ProblemError, UsageError
from gnomon.formats.aw_nas.config import CalibrationFiles, GnomonConfig
from gnomon.jobs.space.profiling.folder import writing
from gnomon.jobs.space.profiling.study import changed, refused
from gnomon.system.files import in_place_of
from gnomon.training.data.dataset import PARTS, Dataset, check_classes, map_dataset, split_parts
from gnomon.training.data.pictures import load_calibration
from gnomon.training.data.sources import KINDS, load_images
from gnomon.training.data.streamed import STREAMED, Origin, Streamed, open_streamed
from gnomon.training.loop import TrainingData

CALIBRATION_IMAGES = 100
"""The most training images that a quantiser sees."""

CALIBRATION = "calibration.npz"
"""The profile's file with a copy of the calibration images that the config names."""

VALIDATION_BYTES = 256 << 20
"""The most memory for the validation images with which each of a toolchain's models is checked."""

_SOURCES = {
    "cifar10": "--data torchvision:CIFAR10 --download DIR",
    "cifar100": "--data torchvision:CIFAR100 --download DIR",
    "imagenet": "--data folder:DIR",
    "tiny-imagenet": "--data folder:DIR",
}
"""The options that correspond to aw_nas's names for data sets."""


def _meant(dataset_type: str) -> str:
    """A hint about how to name images: the options for the config's data set, if its name is known."""
    line = _SOURCES.get(dataset_type)
    if line is not None:
        return f"For the config's dataset_type {dataset_type}, give {line}."
    return f"Give --data (one of {', '.join(KINDS)}), or set gnomon_cfg.data in the config."


def open_images(
    own: GnomonConfig, source: str | None, *, classes: int, download: Path | None = None
) -> Dataset | Streamed:
    """The data set of a config, or of another source, in three parts that share no image.

    An official test part remains the test part; tuning and choosing use the validation part. UsageError if no source is
    named, or if the source is a function that only the config names; ProblemError for images that do not fit the
    config. Errors of `load_images` and `open_streamed` are also raised.
    """
    name = source or own.data
    if not name:
        raise UsageError("neither the config nor the command names images to train on", hint=_meant(own.dataset_type))
    kind, _, place = name.partition(":")
    if kind == "dataset" and source is None:
        raise refused("gnomon_cfg.data of the config", [f"--data {shlex.quote(name)}"])
    if place and kind in STREAMED and (kind != "folder" or own.resize is not None):
        return _streamed(own, name, classes)
    if own.resize is not None or own.augment == "resized-crop":
        raise UsageError(
            f"gnomon_cfg.resize and the augmentation resized-crop need picture files, but {name} has none",
            hint="Give --data folder:DIR or dataset:FUNCTION. To pad small images, set gnomon_cfg.image_size.",
        )
    images = load_images(name, size=own.image_size, download=download)
    check_classes(name, images.classes, classes)
    labels = {part: held.y for part, held in images.parts.items()}
    rows = split_parts(labels, (own.validation_share, own.test_share), seed=own.seed)
    train, validation, test = (images.parts[rows[part][0]].take(rows[part][1]) for part in PARTS)
    return Dataset(name=name, classes=classes, train=train, validation=validation, test=test)


def _streamed(own: GnomonConfig, name: str, classes: int) -> Streamed:
    """A data set that is read on demand. UsageError for padding, which works only for images in memory."""
    kind, _, place = name.partition(":")
    if own.image_size is not None:
        raise UsageError(
            f"gnomon_cfg.image_size pads images in memory, but the images of {name} are read on demand",
            hint="Set gnomon_cfg.resize instead, or leave out both if all images have the same size.",
        )
    function, _, attribute = place.rpartition(":")
    if kind == "dataset" and not function:
        raise UsageError(f"{name} names no function", hint="Give dataset:FILE.py:FUNCTION, or dataset:MODULE:FUNCTION.")
    # Each training process opens the data set itself, possibly from another working folder.
    if kind == "dataset" and function.endswith(".py"):
        place = f"{Path(function).absolute()}:{attribute}"
    elif kind == "folder":
        place = str(Path(place).absolute())
    origin = Origin(kind=kind, place=place, **fields_of(Origin, own))
    shares = (own.validation_share, own.test_share)
    return open_streamed(name, origin, classes=classes, shares=shares, seed=own.seed, augment=own.augment)


def reopened_images(
    own: GnomonConfig, recorded: Mapping[str, str], given: str | None, *, classes: int, download: Path | None = None
) -> Dataset | Streamed:
    """The images that a profile was made with (`recorded`: their name and digest).

    A profile may come from anybody, so a function that only the profile names is not run and must be `given` again.
    UsageError for a function that is not given, for other images, or if the images have changed. Errors of
    `open_images` are also raised.
    """
    name = str(recorded["name"]) or str(own.data)  # as `open_images` reads it
    if given is not None and given != name:
        raise UsageError(f"the profile was made with {name}, not {given}", hint=f"Give --data {shlex.quote(name)}.")
    if given is None and name.startswith("dataset:"):
        raise refused("the profile", [f"--data {shlex.quote(name)}"])
    data = open_images(own, name, classes=classes, download=download)
    if data.digest != recorded["digest"]:
        raise changed(f"the images of {data.name}")
    return data


def normalised(x: NDArray[Any], dataset: Dataset | Streamed) -> NDArray[np.float32]:
    """Images as a network's input: (x - mean) / std per channel, with the training part's statistics."""
    mean, std = (np.array(values, np.float32)[:, None, None] for values in (dataset.mean, dataset.std))
    scaled: NDArray[np.float32] = ((x.astype(np.float32) - mean) / std).astype(np.float32)
    return scaled


def open_calibration(
    given: CalibrationFiles | None, beside: Path, data: Dataset | Streamed, resize: int | None = None
) -> NDArray[np.uint8] | None:
    """The calibration images that a config names by paths relative to itself; None if it names none.

    With `resize`, pictures may have any size and are resized to `resize` by `resize` pixels.

    UsageError if the data set's images are floating-point, ProblemError for images whose shape does not fit the
    networks. Errors of `load_calibration` are also raised.
    """
    if given is None:
        return None
    if isinstance(data, Streamed) and data.floats:
        raise UsageError(
            f"ss_profiler_cfg.calib_data of the config names pictures, but {data.name} returns floating-point images",
            hint="Leave calib_data out: some training images are then used for calibration.",
        )
    shape = data.shape
    try:
        images = load_calibration(beside / given.source, beside / given.root_folder, channels=shape[0], resize=resize)
    except (ProblemError, UsageError) as error:
        raise type(error)(
            f"ss_profiler_cfg.calib_data of the config: {error.message}",
            hint=f"{error.hint} Paths are relative to the config. Without calib_data, training images are used.",
        ) from error
    if images.shape[1:] != shape:
        raise ProblemError(
            f"the calibration images have the shape {list(images.shape[1:])}, but the networks take {list(shape)}",
            hint="Give images of the networks' shape in ss_profiler_cfg.calib_data, or leave calib_data out.",
        )
    return images


def keep_calibration(given: NDArray[np.uint8] | None, profile: Path) -> None:
    """Keep a copy of a config's calibration images in the profile, so that networks added later see the same images.

    UsageError if the profile has different images.
    """
    path = profile / CALIBRATION
    if given is None:
        return
    kept = kept_calibration(profile)
    if kept is not None and not np.array_equal(kept, given):
        raise changed(f"the calibration images of {profile}")
    if kept is None:
        with writing(profile), in_place_of(path) as partial, partial.open("wb") as file:
            np.savez(file, x=given)


def kept_calibration(profile: Path) -> NDArray[np.uint8] | None:
    """The images that a profile keeps for calibration; None if it keeps none."""
    path = profile / CALIBRATION
    if not path.is_file():
        return None
    with np.load(path) as kept:
        images: NDArray[np.uint8] = kept["x"]
        return images


def write_calibration(dataset: Dataset | Streamed, given: NDArray[np.uint8] | None, path: Path) -> Path:
    """Write an npz file of calibration images as a network's input (`x`, float32), and return its path.

    The images are the given ones, or else training images spread evenly over the classes.
    """
    if given is None:
        count = min(CALIBRATION_IMAGES, dataset.count("train"))
        rows = np.linspace(0, dataset.count("train") - 1, count).round().astype(np.int64)
        given = dataset.some("train", np.argsort(dataset.labels["train"], kind="stable")[rows])
    np.savez(path, x=normalised(given, dataset))
    return path


def write_validation(dataset: Dataset | Streamed, path: Path) -> Path:
    """Write an npz file of validation images, `x`, and their classes, `y`, and return its path.

    If the data set is in memory, the file has all its validation images; if it is read on demand, the file has an
    evenly spread part of them that fits into `VALIDATION_BYTES`.
    """
    count, rows = dataset.count("validation"), np.arange(dataset.count("validation"), dtype=np.int64)
    if isinstance(dataset, Streamed):
        most = VALIDATION_BYTES // (math.prod(dataset.shape) * (4 if dataset.floats else 1))
        rows = np.unique(np.linspace(0, count - 1, max(1, min(count, most))).round().astype(np.int64))
    np.savez(path, x=dataset.some("validation", rows), y=dataset.labels["validation"][rows])
    return path


@contextmanager
def carried(dataset: Dataset | Streamed, folder: Path, *, far: bool) -> Iterator[TrainingData]:
    """The images as workers get them: a temporary file in `folder`, or the data set itself if the workers are `far`.

    A data set that is read on demand is always passed on as it is, and each worker opens it.
    """
    if isinstance(dataset, Streamed) or far:
        yield dataset
        return
    path = folder / f"{dataset.digest[:16]}.{os.getpid()}.images"
    try:
        with writing(folder):
            mapped = map_dataset(dataset, path)
        yield mapped
    finally:
        path.unlink(missing_ok=True)
