"""Training networks of a space with PyTorch, which is loaded at the first use of a function that needs it."""

from gnomon.training.data.dataset import Dataset, Images, Packed, pack, packed, split, split_rows, unpack
from gnomon.training.job import Epoch, Trained, TrainJob
from gnomon.training.loop import train
from gnomon.training.network import build, state_of
from gnomon.training.recipe import Recipe, check

__all__ = [
    "Dataset",
    "Epoch",
    "Images",
    "Packed",
    "Recipe",
    "TrainJob",
    "Trained",
    "build",
    "check",
    "pack",
    "packed",
    "split",
    "split_rows",
    "state_of",
    "train",
    "unpack",
]
