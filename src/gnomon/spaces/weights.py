"""Trained weights by tag: what networks of one space share, and what a model file is written with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.spaces.cell_space import TaggedNet
from gnomon.spaces.net import layer_name

State = Mapping[str, NDArray[np.float32]]
"""Parameters by name: a node's tag and a part, such as "l3/Mobileblock_2/0.w".

Parts: `w` (a convolution's, as (out, in / group, height, width); a linear layer's, as (in, out)), `b` (their bias),
and `scale`, `bias`, `mean`, `var` of a batch normalisation (channels,).
"""


def model_weights(tagged: TaggedNet, state: State) -> dict[str, NDArray[Any]]:
    """The parameters of one network as `gnomon.models.units.write_net` names them; those of other networks stay out."""
    numbers = {tag: index for index, tag in enumerate(tagged.tags)}
    found = {}
    for name, array in state.items():
        tag, _, part = name.rpartition(".")
        if tag in numbers:
            index = numbers[tag]
            found[f"{layer_name(index, 0, tagged.net.nodes[index].unit.kinds[0])}.{part}"] = array
    return found


def shared(state: State, tagged: TaggedNet) -> dict[str, NDArray[np.float32]]:
    """What of a state a network has too: the parameters whose tags it has."""
    tags = set(tagged.tags)
    return {name: array for name, array in state.items() if name.rpartition(".")[0] in tags}
