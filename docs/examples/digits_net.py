"""Trains the network of digits.onnx on scikit-learn's digits, and writes it: python docs/examples/digits_net.py."""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


class Digits(nn.Module):
    """Images of 8x8, widened to 16x16, through a plain, a separable and a pointwise convolution."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 16, 3, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.pointwise = nn.Conv2d(16, 32, 1)
        self.last = nn.Conv2d(32, 32, 3, stride=2, padding=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        """Logits of ten classes."""
        x = torch.relu(self.first(x))
        x = torch.relu(self.pointwise(self.depthwise(x)))
        x = torch.relu(self.last(x))
        return self.head(x.mean((2, 3)))


def main():
    """Train, tell the accuracy on the 360 images that were left out, and write."""
    torch.manual_seed(0)
    data = load_digits()
    images = torch.from_numpy(np.kron(data.images, np.ones((2, 2)))[:, None].astype("float32") / 16)
    labels = torch.from_numpy(data.target)
    order = torch.randperm(len(images))
    train, test = order[360:], order[:360]
    net = Digits()
    optimiser = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(120):
        for batch in train[torch.randperm(len(train))].split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
            optimiser.step()
    net.eval()
    with torch.no_grad():
        right = (net(images[test]).argmax(1) == labels[test]).float().mean().item()
    print(f"accuracy {right:.3f} on {len(test)} images")
    out = Path(__file__).with_name("digits.onnx")
    example = torch.zeros(1, 1, 16, 16)
    names = {"input_names": ["image"], "output_names": ["logits"]}
    torch.onnx.export(net, (example,), str(out), dynamo=False, opset_version=17, **names)


if __name__ == "__main__":
    main()
