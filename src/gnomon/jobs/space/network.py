"""A network of a profile as a module of PyTorch's, with its trained weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnomon.core.strict_json import shown
from gnomon.errors import UsageError
from gnomon.jobs.space.profiling.look import read_rows, study_of
from gnomon.jobs.space.profiling.training import best_weights
from gnomon.training.modules import load_factories
from gnomon.training.network import build


def network_module(profile: Path, name: str, blocks: Sequence[str] = ()) -> Any:
    """The network of this id, in evaluation mode, with the weights of its best training by validation.

    UsageError for a network that was not trained, or whose weights are gone; and whatever `study_of` raises.
    """
    study = study_of(profile, blocks)
    accuracy, _ = read_rows(profile, study)
    row = next((row for row in accuracy if row.network == name), None)
    network = None if row is None else study.mixed(row.primitives)
    state = None if network is None else best_weights(accuracy, profile, network)
    if network is None or state is None:
        trained = list(dict.fromkeys(one.network for one in accuracy if one.validation is not None))
        known = f"Trained are {', '.join(trained[:10])}{', ..' if len(trained) > 10 else '.'}" if trained else ""
        raise UsageError(
            f"{profile} has no trained weights of {shown(name)}",
            hint=known or "Train networks with gnomon space profile first.",
        )
    tagged = study.tagged(network)
    factories = load_factories(study.origins(tagged), tagged)
    return build(tagged, state, seed=0, factories=factories).eval()
