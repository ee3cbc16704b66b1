"""Which trained weights a network is measured with."""

from __future__ import annotations

from collections.abc import Callable

from gnomon.jobs.space_folder import AccuracyRow, ProfileFolder
from gnomon.jobs.space_study import Network, Study
from gnomon.jobs.space_training import weights_path
from gnomon.spaces.weights import State
from gnomon.training.state_files import read_state


def trained_weights(folder: ProfileFolder, study: Study) -> Callable[[Network], State | None]:
    """Finds the weights of a network's best training by validation, None where none was kept."""
    best: dict[str, AccuracyRow] = {}
    for row in folder.accuracy.values():
        if row.validation is None or row.reason or not weights_path(folder.path, row).is_file():
            continue
        before = best.get(row.network)
        if before is None or row.validation > (before.validation or 0.0):
            best[row.network] = row

    def find(network: Network) -> State | None:
        row = best.get(network.id)
        return None if row is None else read_state(weights_path(folder.path, row))

    return find
