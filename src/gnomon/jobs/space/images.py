"""The images of a study: read, split into training, validation and test parts, and those that a quantiser sees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import ProblemError, UsageError
from gnomon.formats.aw_nas.config import CalibrationFiles, GnomonConfig
from gnomon.jobs.space.folder import writing
from gnomon.training.data.dataset import Dataset, Images, Packed, PackedFile, packed, split
from gnomon.training.data.readers import load_calibration
from gnomon.training.data.sources import KINDS, load_images

CALIBRATION_IMAGES = 100
"""As many images of the training part as a quantiser sees."""


def open_images(own: GnomonConfig, source: str | None, *, classes: int, download: Path | None = None) -> Dataset:
    """The data set of a config, or of another source, in three parts that share no image.

    An official test part stays one. What is tuned and chosen is so by the validation part. UsageError where no source
    is named, ProblemError for images that do not fit the config, and whatever `load_images` raises.
    """
    name = source or own.data
    if not name:
        raise UsageError(
            "neither the config nor the command says which images to train on",
            hint=f"Give --data, one of {', '.join(KINDS)}, or gnomon_cfg.data in the config.",
        )
    found = load_images(name, size=own.image_size, download=download)
    if len(found.classes) > classes:
        raise ProblemError(
            f"{name} has {len(found.classes)} classes, and the config's networks have {classes}",
            hint="Correct weights_manager_cfg.num_classes.",
        )
    if found.test is not None:
        shares = (1 - own.validation_share, own.validation_share)
        (train, validation), test = split(found.images, shares, seed=own.seed), found.test
    else:
        left = 1 - own.validation_share - own.test_share
        train, validation, test = split(found.images, (left, own.validation_share, own.test_share), seed=own.seed)
    return Dataset(name=name, classes=classes, train=train, validation=validation, test=test)


def normalised(images: Images, dataset: Dataset) -> NDArray[np.float32]:
    """Images as a network takes them: (x - mean) / std by channel, of the training part."""
    mean, std = (np.array(values, np.float32)[:, None, None] for values in (dataset.mean, dataset.std))
    made: NDArray[np.float32] = ((images.x.astype(np.float32) - mean) / std).astype(np.float32)
    return made


def open_calibration(
    given: CalibrationFiles | None, beside: Path, shape: tuple[int, int, int]
) -> NDArray[np.uint8] | None:
    """The images that a config names for calibration, its paths being beside it; None where it names none.

    ProblemError for images of another shape than the networks take, and whatever `load_calibration` raises.
    """
    if given is None:
        return None
    try:
        found = load_calibration(beside / given.source, beside / given.root_folder, channels=shape[0])
    except (ProblemError, UsageError) as error:
        raise type(error)(
            f"ss_profiler_cfg.calib_data of the config: {error.message}",
            hint=f"{error.hint} Its paths are beside the config; without it a few training images do.",
        ) from error
    if found.shape[1:] != shape:
        raise ProblemError(
            f"images for calibration are {list(found.shape[1:])}, and networks take {list(shape)}",
            hint="Give images of that size in ss_profiler_cfg.calib_data, or leave it out.",
        )
    return found


def write_calibration(dataset: Dataset, given: NDArray[np.uint8] | None, path: Path) -> Path:
    """An npz file of `x`, float32, as a network takes images; and returns its path.

    Of the images that are given, else of a few of the training part, every class among them.
    """
    if given is not None:
        images = Images(x=given, y=np.zeros(len(given), np.int64))
        np.savez(path, x=normalised(images, dataset))
        return path
    count = min(CALIBRATION_IMAGES, len(dataset.train))
    rows = np.linspace(0, len(dataset.train) - 1, count).round().astype(np.int64)
    order = np.argsort(dataset.train.y, kind="stable")[rows]
    np.savez(path, x=normalised(dataset.train.take(order), dataset))
    return path


def write_validation(dataset: Dataset, path: Path) -> Path:
    """An npz file of the validation images in bytes, `x`, and their classes, `y`; and returns its path."""
    np.savez(path, x=dataset.validation.x, y=dataset.validation.y)
    return path


@contextmanager
def carried(dataset: Dataset, folder: Path, *, far: bool) -> Iterator[Packed | PackedFile]:
    """The images as workers get them: in a file of this folder meanwhile, or by value for those that are `far` away."""
    whole = packed(dataset)
    if far:
        yield whole
        return
    path = folder / f"{dataset.digest[:16]}.{os.getpid()}.images"
    try:
        with writing(folder):
            path.write_bytes(whole.content)
        yield PackedFile(digest=whole.digest, path=str(path.absolute()))
    finally:
        path.unlink(missing_ok=True)
