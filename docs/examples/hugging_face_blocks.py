"""A layer of Hugging Face's ViT behind a convolution: pip install transformers."""

from torch import nn
from transformers import ViTConfig
from transformers.models.vit.modeling_vit import ViTLayer

from gnomon.spaces.cells.primitives import Primitive


class ViT(nn.Module):
    """The layer keeps its width, and the convolution before it changes it."""

    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.project = nn.Conv2d(c_in, c_out, stride, stride=stride)
        config = ViTConfig(hidden_size=c_out, num_attention_heads=4, intermediate_size=2 * c_out)
        config._attn_implementation = "sdpa"
        self.layer = ViTLayer(config)

    def forward(self, x):
        """Places of an image as a sequence, and back."""
        x = self.project(x)
        return self.layer(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(x.shape)


primitives = [Primitive(family="ViT", number=0, module=ViT, meaning="ViTLayer of transformers, 4 heads")]
