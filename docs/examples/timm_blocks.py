"""A block of timm as a primitive: pip install timm."""

from timm.models.convnext import ConvNeXtBlock

from gnomon.spaces.cells.primitives import Primitive


def convnext(c_in, c_out, stride):
    """The block of these channels and this stride."""
    return ConvNeXtBlock(c_in, c_out, stride=stride)


primitives = [Primitive(family="Timm", number=0, module=convnext, meaning="timm's ConvNeXtBlock")]
