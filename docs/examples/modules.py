"""Blocks of PyTorch's: a ConvNeXt block, and attention behind a convolution that changes the width."""

from torch import nn

from gnomon.spaces.cells.primitives import Primitive


class ConvNeXt(nn.Module):
    """7x7 for each channel by itself, then two linear layers (Liu et al., 2022)."""

    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.down = nn.Conv2d(c_in, c_out, stride, stride=stride)
        self.mix = nn.Conv2d(c_out, c_out, 7, padding=3, groups=c_out)
        self.wide = nn.Sequential(nn.LayerNorm(c_out), nn.Linear(c_out, 4 * c_out), nn.GELU())
        self.narrow = nn.Linear(4 * c_out, c_out)

    def forward(self, x):
        """The block's output."""
        x = self.down(x)
        return x + self.narrow(self.wide(self.mix(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


class Attention(nn.Module):
    """Attention among all places of an image (Vaswani et al., 2017)."""

    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.down = nn.Conv2d(c_in, c_out, stride, stride=stride)
        self.norm = nn.LayerNorm(c_out)
        self.attention = nn.MultiheadAttention(c_out, num_heads=4, batch_first=True)

    def forward(self, x):
        """The block's output."""
        x = self.down(x)
        y = self.norm(x.flatten(2).transpose(1, 2))
        return x + self.attention(y, y, y, need_weights=False)[0].transpose(1, 2).reshape(x.shape)


def stem(c_in, c_out):
    """What stands before the first layer."""
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, padding=1), nn.BatchNorm2d(c_out), nn.GELU())


primitives = [
    Primitive(family="Modern", number=0, module=ConvNeXt, meaning="ConvNeXt"),
    Primitive(family="Modern", number=1, module=Attention, meaning="attention, 4 heads"),
]
