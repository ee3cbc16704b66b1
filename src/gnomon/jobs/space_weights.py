"""Which trained weights a network is measured with."""

from __future__ import annotations

from collections.abc import Callable

from gnomon.jobs.space_folder import ProfileFolder
from gnomon.jobs.space_study import Network
from gnomon.jobs.space_training import weights_path
from gnomon.spaces.weights import State
from gnomon.training.state_files import read_state


def trained_weights(folder: ProfileFolder) -> Callable[[Network], State | None]:
    """Finds the weights of a network's best training by validation, by what the journal holds when it is asked.

    None where none was kept.
    """

    def find(network: Network) -> State | None:
        rows = [
            row
            for row in folder.accuracy.values()
            if row.network == network.id and row.validation is not None and not row.reason
        ]
        for row in sorted(rows, key=lambda row: -(row.validation or 0.0)):
            if weights_path(folder.path, row).is_file():
                return read_state(weights_path(folder.path, row))
        return None

    return find
