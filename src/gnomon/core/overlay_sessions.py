"""Which times of several record sets can be compared with each other: those that were taken side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnomon.core.tuning_record import UNTUNED, TuningRecords


def side_by_side(given: tuple[TuningRecords, ...]) -> tuple[TuningRecords, ...]:
    """The record sets without times that are not to be compared with the others, and each trial once.

    What was collected on a device was measured side by side there; the times of the search before were taken one by
    one, and the best of them was partly lucky. These go where a configuration has the former. Layers that are untuned
    stand in the file of each host that was collected.
    """
    collected = {
        (one.device.key, trial.layer, trial.configuration)
        for one in given
        if one.found_on
        for trial in one.trials
        if trial.failure is None
    }
    seen: set[tuple[Any, ...]] = set()
    made = []
    for one in given:
        kept = []
        for trial in one.trials:
            key = (one.device.key, trial.layer, trial.configuration)
            own = (*key, trial.at_s, trial.times_s)
            again = trial.configuration == UNTUNED and own in seen
            searched = not one.found_on and trial.failure is None and key in collected
            if not again and not searched:
                kept.append(trial)
            seen.add(own)
        made.append(replace(one, trials=tuple(kept)))
    return tuple(made)
