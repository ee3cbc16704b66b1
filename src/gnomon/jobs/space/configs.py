"""Configs of aw_nas as search spaces for latency tables: each cell group is a slot that all its layers share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gnomon.errors import UsageError
from gnomon.formats.aw_nas.config import read_aw_nas_config
from gnomon.jobs.space.job import block_files, read_config
from gnomon.jobs.space.profiling.images import open_images
from gnomon.jobs.space.profiling.study import open_study
from gnomon.spaces.blocks import Block, BlockSpace, Choice
from gnomon.spaces.cells.primitives import HEAD, STEM
from gnomon.spaces.cells.space import write_head
from gnomon.spaces.sources import Source
from gnomon.training.modules import ModuleBlock


def space_of_config(path: Path, blocks: Sequence[str] = ()) -> BlockSpace:
    """A config's search space, named after its file, for images of the size that the config gives.

    `blocks` name the Python files and functions of the config's own primitives, stem and head; this code is run.
    UsageError if the config names any other Python code; GnomonErrors for errors in the config.
    """
    text = read_config(path)
    config, _ = read_aw_nas_config(text)
    try:
        own = block_files(blocks, path, config.gnomon, trust=False)
    except UsageError as error:
        hint = "If you trust it, call gnomon.spaces.from_aw_nas(CONFIG, blocks=[..]) in a file, and give FILE.py:NAME."
        raise UsageError(error.message, hint=hint) from error
    study = open_study(text, open_images(config.gnomon, None, classes=config.manager.num_classes).shape, blocks=own)
    layout, ends = study.layout, study.ends
    stem = _layers(ends[STEM], config.manager.input_channels) if STEM in ends else layout.stem
    head = _layers(ends[HEAD], layout.classes) if HEAD in ends else partial(write_head, layout=layout)
    cells = []
    for layer, (group, width) in enumerate(zip(layout.groups, layout.widths, strict=True)):
        slot = study.space.slots[group]
        choices = {name: _layers(study.primitives[name].block, width, layout.stride(layer)) for name in slot.choices}
        cells.append(Choice(slot.name, choices, again=True))
    return BlockSpace(name=path.stem, inputs=(layout.input_shape,), parts=(*filter(None, [stem]), *cells, head))


def _layers(block: Any, *arguments: int) -> Block:
    """A function that writes a block's layers with these arguments; a module's layers come from its ONNX model."""
    if isinstance(block, ModuleBlock):
        return Source(lambda channels: block.factory(channels, *arguments))
    return lambda x: block(x, *arguments)
