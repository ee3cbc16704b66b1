"""One item of a data set that is read as it is needed: where it comes from, and the tensor that is made of it.

Each process opens the data set by itself. What an item is made of by chance depends on (seed, epoch, item) alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import GnomonError, ProblemError
from gnomon.spaces.loading import called, load_attribute, reason
from gnomon.training.data.dataset import PARTS, moved_most
from gnomon.training.data.huggingface import open_saved
from gnomon.training.data.pictures import Opened, as_array, fitted, open_folder
from gnomon.training.network import torch_package

STREAMED = ("folder", "huggingface", "dataset")
"""Kinds of sources that can be read so; a folder is only where pictures are made one size."""

ITEM = "An item is (image, class): a Pillow picture, a tensor (channels, height, width), or uint8 (height, width[, 3])."
_OWN = "Return a torch.utils.data.Dataset with a length, or a dictionary of such: train, and validation and test."

Key = tuple[str, int, int]
"""A part of the origin, a row of it, and the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where images come from and how each is made: what a process needs to open them.

    `kind` is one of `STREAMED`, `place` a path, a name, or a function (``file.py:function``). Pictures are made
    `resize` by `resize` pixels. Columns are those of Hugging Face's data sets. `loaders` are processes that read beside
    each one that trains. `mode` is that of all pictures, "L" or "RGB", once their heads were looked at.
    """

    kind: str
    place: str
    resize: int | None = None
    image_column: str | None = None
    label_column: str | None = None
    loaders: int = 0
    mode: str = ""


@functools.lru_cache(maxsize=2)
def open_origin(origin: Origin) -> Opened:
    """What an origin holds; the last two of a process are kept.

    UsageError for what cannot be opened, ProblemError for what is not a data set, RuntimeMissingError where a package
    is missing.
    """
    if origin.kind == "folder":
        return open_folder(Path(origin.place), origin.mode)
    if origin.kind == "huggingface":
        return open_saved(origin.place, origin.image_column, origin.label_column, origin.mode)
    return _of_function(origin.place)


def read_item(origin: Origin, key: Key, augment: str, seed: int) -> tuple[Any, int]:
    """An image as a tensor, uint8 or float32 (channels, height, width), and its class.

    ProblemError for whatever a data set gives else, or raises.
    """
    part, row, _ = key
    opened = open_origin(origin)
    digest = hashlib.sha256(json.dumps([seed, *key]).encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    where = f"item {row} of {part}"
    try:
        with _seeded(digest) if origin.kind == "dataset" else nullcontext():
            image, label = opened.parts[part][row]
        return _tensor(image, origin.resize, opened.mode, augment, rng), int(label)
    except GnomonError as error:
        raise ProblemError(f"{where}: {error.message}", hint=error.hint) from error
    except MemoryError:
        raise  # is a failure of this training, not of the images
    except Exception as error:  # whatever a user's data set does
        raise ProblemError(f"{where} cannot be read: {reason(error)}", hint=ITEM) from error


def _of_function(place: str) -> Opened:
    """What a user's function returns. UsageError where it is none or fails, ProblemError for anything else."""
    returned = called(load_attribute(place), f"dataset:{place}", f" {_OWN}")
    parts = dict(returned) if isinstance(returned, Mapping) else {"train": returned}
    if "train" not in parts or not set(parts) <= set(PARTS):
        raise ProblemError(f"dataset:{place} returns the parts {', '.join(map(str, parts))[:200]}", hint=_OWN)
    for name, part in parts.items():
        try:
            count = len(part)
        except Exception:  # torch's own raise several kinds where there is no length
            count = 0
        if not hasattr(part, "__getitem__") or count < 1 or isinstance(part, str | bytes):
            raise ProblemError(
                f"dataset:{place} returns a {type(part).__name__} without items or a length as {name}", hint=_OWN
            )
    classes = getattr(parts["train"], "classes", ())
    return Opened(
        parts=parts,
        labels={name: y for name, part in parts.items() if (y := _targets(part)) is not None},
        classes=tuple(map(str, classes)) if isinstance(classes, list | tuple) else (),
    )


def _targets(part: Any) -> NDArray[np.int64] | None:
    """The classes that a data set tells without being read, as torchvision's do; None where it does not."""
    data = torch_package().utils.data
    if isinstance(part, data.Subset):
        whole = _targets(part.dataset)
        return None if whole is None else whole[np.asarray(part.indices, np.int64)]
    for name in ("targets", "labels"):
        with suppress(Exception):  # no such attribute, or one of another meaning
            labels = np.asarray(getattr(part, name))
            if labels.shape == (len(part),) and labels.dtype.kind in "iu":
                return labels.astype(np.int64)
    return None


def _tensor(image: Any, resize: int | None, mode: str, augment: str, rng: np.random.Generator) -> Any:
    """An image as a tensor (channels, height, width)."""
    torch = torch_package()
    if augment == "resized-crop" and resize is None:
        raise ProblemError("the augmentation resized-crop has no size", hint="Give gnomon_cfg.resize.")
    if isinstance(image, torch.Tensor):
        if resize is not None or augment != "none":
            raise ProblemError(
                "gnomon_cfg.resize and augment are for pictures, and the data set makes tensors",
                hint="Leave them out: its own transforms do that.",
            )
        tensor = image if image.dim() == 3 else image[None]
        if tensor.dim() != 3 or 0 in tensor.shape or not (tensor.dtype == torch.uint8 or tensor.is_floating_point()):
            raise ProblemError(f"a tensor {image.dtype} {list(image.shape)} is not an image", hint=ITEM)
        return tensor if tensor.dtype == torch.uint8 else tensor.to(torch.float32)
    if hasattr(image, "convert") and hasattr(image, "size"):
        picture = image.convert(mode or ("L" if image.mode in ("1", "L") else "RGB"))
        if resize is not None:
            picture = fitted(picture, resize, rng if augment == "resized-crop" else None)
        image = np.asarray(picture)
    elif resize is not None:
        raise ProblemError("gnomon_cfg.resize is for pictures, and the data set makes arrays", hint=ITEM)
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim not in (2, 3) or 0 in image.shape:
        kind = f"{image.dtype}{list(image.shape)}" if isinstance(image, np.ndarray) else type(image).__name__
        raise ProblemError(f"{kind[:100]} is not an image", hint=ITEM)
    pixels = as_array(image)
    if augment in ("shift", "crop-flip"):
        pixels = _moved(pixels, augment, rng)
    return torch.from_numpy(np.array(pixels, order="C"))


def _moved(pixels: NDArray[np.uint8], augment: str, rng: np.random.Generator) -> NDArray[np.uint8]:
    """An image moved by a few pixels, and perhaps mirrored: what comes in is black."""
    _, height, width = pixels.shape
    border = moved_most(height)
    top, left = rng.integers(0, 2 * border + 1, 2)
    moved = np.pad(pixels, ((0, 0), (border, border), (border, border)))[:, top : top + height, left : left + width]
    return moved[..., ::-1] if augment == "crop-flip" and rng.random() < 0.5 else moved


@contextmanager
def _seeded(digest: bytes) -> Iterator[None]:
    """The global random numbers of Python, numpy and PyTorch come from these bytes meanwhile, and then go on."""
    torch, number = torch_package(), int.from_bytes(digest[8:16], "big")
    python, legacy = random.getstate(), np.random.get_state()  # transforms use them
    with torch.random.fork_rng(devices=[]):
        random.seed(number)
        np.random.seed(number % (1 << 32))
        torch.default_generator.manual_seed(number >> 1)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)
