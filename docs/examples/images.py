"""The digits of scikit-learn as a data set of one's own: moved by a pixel, at random, where they are trained on."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset, Subset


class Digits(Dataset):
    """Tensors of floats, which networks take as they are; `targets` tells the classes without reading an image."""

    def __init__(self, moved):
        found = load_digits()
        self.images = torch.tensor(found.images / 16, dtype=torch.float32)[:, None]
        self.targets = found.target
        self.moved = moved

    def __len__(self):
        return len(self.images)

    def __getitem__(self, k):
        image = self.images[k]
        if self.moved:
            image = torch.roll(image, tuple(torch.randint(-1, 2, (2,)).tolist()), (1, 2))
        return image, int(self.targets[k])


def images():
    """What is trained on, what is chosen by, and what is looked at once."""
    rows = torch.randperm(1797, generator=torch.Generator().manual_seed(0)).tolist()
    return {
        "train": Subset(Digits(moved=True), rows[:1100]),
        "validation": Subset(Digits(moved=False), rows[1100:1450]),
        "test": Subset(Digits(moved=False), rows[1450:]),
    }
