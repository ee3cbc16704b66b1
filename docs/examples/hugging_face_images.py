"""Pictures that `save_to_disk` of Hugging Face's `datasets` wrote, as a data set: pip install datasets."""

import os

from datasets import load_from_disk
from torch.utils.data import Dataset


class Pictures(Dataset):
    """The column `image` of a part, and its classes, which `targets` tells without reading a picture."""

    def __init__(self, rows):
        self.rows = rows
        self.targets = rows["label"][:]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, k):
        row = self.rows[int(k)]
        return row["image"], row["label"]


def images():
    """The parts of the saved dictionary; without a part `validation` or `test` gnomon splits it off `train`."""
    saved = load_from_disk(os.environ.get("PICTURES", "pictures"))
    return {name: Pictures(saved[name]) for name in ("train", "test")}
