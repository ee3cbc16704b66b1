"""A small search space, a config of it, and images: for the tests of profiling."""

from __future__ import annotations

from pathlib import Path

import numpy as np

CONFIG = """\
# kept as it is
search_space_cfg:
  num_cell_groups: 2
  cell_layout: [0, 1]
  reduce_cell_groups: [0, 1]
  shared_primitives: [VGGblock_0, VGGblock_1, VGGblock_2, Mobileblock_0, Mobileblock_1]
  cell_shared_primitives: null
weights_manager_cfg:
  num_classes: 3
  cell_group_kwargs: [{C_in: 1, C_out: 4}, {C_in: 4, C_out: 8}]
ss_profiler_cfg:
  first_train_epochs: 2
  first_train_optimizer_cfg: {type: SGD, lr: 0.1, momentum: 0.9}
  first_train_scheduler_cfg: null
  finetune_epochs: 1
  finetune_optimizer_cfg: {type: SGD, lr: 0.05, momentum: 0.9}
  finetune_scheduler_cfg: null
  select_ss_threshold: 2
gnomon_cfg: {batch_size: 16}
"""


def write_config(folder: Path) -> Path:
    """The config's path."""
    path = folder / "config.yaml"
    path.write_text(CONFIG)
    return path


def write_images(folder: Path, count: int = 120) -> str:
    """A source of images of three classes: a bar that lies, one that stands, and a square."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 60, (count, 1, 8, 8)).astype(np.uint8)
    y = np.arange(count) % 3
    for image, kind in zip(x, y, strict=True):
        row, column = rng.integers(1, 5, 2)
        height, width = ((2, 6), (6, 2), (4, 4))[kind]
        image[0, row - 1 : row - 1 + height, column - 1 : column - 1 + width] = 255
    path = folder / "images.npz"
    np.savez(path, x=x, y=y.astype(np.int64))
    return f"npz:{path}"
