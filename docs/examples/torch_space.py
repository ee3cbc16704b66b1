"""A search space of PyTorch modules for images of 8x8, in which resolution, kernel, width and depth are choices."""

from torch import nn

from gnomon.spaces import from_torch, skip


def conv(kernel, width, stride=1):
    """A convolution that makes this width of whatever width arrives."""
    return lambda channels: nn.Sequential(
        nn.Conv2d(channels, width, kernel, stride, kernel // 2), nn.BatchNorm2d(width), nn.ReLU()
    )


class Residual(nn.Module):
    """Two convolutions beside their input."""

    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(conv(3, channels)(channels), conv(3, channels)(channels))

    def forward(self, x):
        """The block's output."""
        return x + self.body(x)


space = from_torch(
    {
        "first": {"k3": conv(3, 8), "k5": conv(5, 8), "wide": conv(3, 16)},
        "depth": {"skip": skip, "once": Residual, "twice": lambda c: nn.Sequential(Residual(c), Residual(c))},
        "last": {"k1": conv(1, 16, 2), "k3": conv(3, 16, 2), "wide": conv(3, 32, 2)},
    },
    stem=nn.Conv2d(1, 8, 3, padding=1),
    head=lambda channels: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)),
    input=[(1, 1, 8, 8), (1, 1, 4, 4)],
    name="digits",
    training={"ss_profiler_cfg": {"first_train_optimizer_cfg": {"type": "AdamW", "lr": 0.005}}},
)
