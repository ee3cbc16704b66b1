"""Search spaces as data: their units, the nets of assignments, and the number of times each unit occurs in a net."""

from __future__ import annotations

from gnomon.spaces.blocks import Block, BlockSpace, Choice, Stage, from_onnx, from_torch, skip
from gnomon.spaces.features import CountTables
from gnomon.spaces.fuse import UNFUSED, FusionRules, fuse, rules
from gnomon.spaces.layers import Layer, layer
from gnomon.spaces.loading import SearchSpace, draw, from_aw_nas, known_spaces, load_space
from gnomon.spaces.unit import Net, Node, Symbol, Unit, empty, net_of, unit_of

__all__ = [
    "UNFUSED",
    "Block",
    "BlockSpace",
    "Choice",
    "CountTables",
    "FusionRules",
    "Layer",
    "Net",
    "Node",
    "SearchSpace",
    "Stage",
    "Symbol",
    "Unit",
    "draw",
    "empty",
    "from_aw_nas",
    "from_onnx",
    "from_torch",
    "fuse",
    "known_spaces",
    "layer",
    "load_space",
    "net_of",
    "rules",
    "skip",
    "unit_of",
]
