"""A family of two primitives: a 1x1 convolution that widens, then a kxk one."""

from gnomon.spaces.cells.primitives import Primitive


def wide(kernel):
    """The block of a kernel."""

    def block(x, channels, stride):
        y = x.conv(2 * channels, 1).batch_norm().relu()
        return y.conv(channels, kernel, stride=stride).batch_norm().relu()

    return block


primitives = [Primitive(family="Wide", number=i, block=wide(k), meaning=f"1x1, {k}x{k}") for i, k in enumerate((3, 5))]
