"""Studies, profile folders and rows of journals without any training or measuring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.jobs.space.kits.spacekit import CONFIG

from gnomon.jobs.space.profiling.folder import AccuracyRow, LatencyRow, ProfileFolder
from gnomon.jobs.space.profiling.study import Network, Study, open_study
from gnomon.spaces.cells.effects import balanced_design

SHAPE = (1, 8, 8)
LAYERS = CONFIG.replace("cell_layout: [0, 1]", "cell_layout: [0, 1, 1]").replace(
    "{C_in: 4, C_out: 8}]", "{C_in: 4, C_out: 8}, {C_in: 8, C_out: 8}]"
)
"""The second cell group has two layers."""


def study(text: str = CONFIG, **options: Any) -> Study:
    """The study of a config for images of one channel, 8x8."""
    return open_study(text, SHAPE, **options)


def made(path: Path, one: Study, *, blocks: tuple[str, ...] = ()) -> ProfileFolder:
    """A profile of a study, as the job asks for it, open."""
    data = {"name": "npz:images.npz", "digest": "0" * 64}
    return ProfileFolder(path, {**one.question(), "blocks": list(blocks), "data": data}, one.text)


def trained(network: Network, validation: float | None, **changes: Any) -> AccuracyRow:
    """The row of a training."""
    own: dict[str, Any] = {"method": "fair", "stage": "whole", "seed": 0, "epochs": 2, "images": 400, **changes}
    key = f"{own['method']}/{own['stage']}/{own['epochs']}/{own['seed']}/{network.id}"
    known = {"key": key, "network": network.id, "primitives": network.primitives, "validation": validation}
    return AccuracyRow(**{**known, **own})


def timed(network: Network, call_s: float | None, toolchain: str = "onnxruntime", **changes: Any) -> LatencyRow:
    """The row of a measurement, known to 1 %."""
    ends = {} if call_s is None else {"low_s": call_s * 0.99, "high_s": call_s * 1.01, "processes": 6}
    key = f"{toolchain}/0/{network.id}"
    own = {"key": key, "network": network.id, "primitives": network.primitives, "toolchain": toolchain}
    return LatencyRow(**{**own, "call_s": call_s, **ends, **changes})


def synthetic(
    path: Path,
    one: Study,
    accuracy: Callable[[Network], float],
    latency: Callable[[Network], float],
    toolchain: str = "onnxruntime",
) -> None:
    """A profile whose one-change variants have the accuracies and the latencies that these functions tell."""
    folder = made(path, one)
    for family in one.families.values():
        for network in family.swaps():
            folder.add(trained(network, accuracy(network)))
            folder.add(timed(network, latency(network), toolchain, size=one.size(network)))
    folder.close()


def mixed_networks(counts: Sequence[int], defaults: Sequence[int], count: int, seed: int = 0) -> list[tuple[int, ...]]:
    """So many networks, or as many as there are, that differ from the default in two groups or more; balanced."""
    found = dict[tuple[int, ...], None]()
    for number in range(100):
        for net in map(tuple, balanced_design(counts, count, seed=seed + number).tolist()):
            if sum(k != default for k, default in zip(net, defaults, strict=True)) > 1 and len(found) < count:
                found[net] = None
    return list(found)


COSTS = {"VGGblock_0": 1.0, "VGGblock_1": 2.0, "VGGblock_2": 2.5, "Mobileblock_0": 3.0, "Mobileblock_1": 6.0}
GOOD = {"VGGblock_0": 0.0, "VGGblock_1": 0.10, "VGGblock_2": 0.12, "Mobileblock_0": 0.05, "Mobileblock_1": 0.14}


def latency(network: Network) -> float:
    """Layers add up, beside an overhead."""
    return 1e-4 + 1e-4 * sum((1 + group) * COSTS[name] for group, name in enumerate(network.primitives))


def accuracy(network: Network) -> float:
    """Primitives add up."""
    return 0.5 + sum(GOOD[name] for name in network.primitives)
