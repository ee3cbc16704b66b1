"""Times of a search go where a device was collected, and untuned trials count once."""

from __future__ import annotations

from dataclasses import replace

from gnomon.core.overlay.pool import side_by_side
from gnomon.core.overlay.records import UNTUNED, TunedDevice, TunedModel, TuningLayer, TuningRecords, TuningTrial


def test_times_of_the_search_go_where_a_device_was_collected() -> None:
    def trial(name: str, *times_s: float, at_s: float) -> TuningTrial:
        trace = None if name == UNTUNED else [name]
        return TuningTrial(layer="l", configuration=name, trace=trace, times_s=times_s, at_s=at_s)

    own = TuningRecords(
        device=TunedDevice(key="a", target={}),
        model=TunedModel(name="net"),
        layers=(TuningLayer(layer="l", name="conv"),),
        trials=(trial("x", 1.0, at_s=1.0), trial("y", 2.0, at_s=2.0), trial(UNTUNED, 9.0, at_s=3.0)),
    )
    again = (trial("x", 1.5, at_s=4.0), trial(UNTUNED, 8.0, at_s=5.0))
    collected = replace(own, found_on="a", trials=again)
    elsewhere = replace(own, found_on="b", trials=(trial(UNTUNED, 8.0, at_s=5.0),))
    kept = side_by_side((own, collected, elsewhere))
    # What was collected again is taken in the place of the search's times, and an untuned trial of two files once.
    assert [[(t.configuration, t.times_s) for t in one.trials] for one in kept] == [
        [("y", (2.0,))],
        [("x", (1.5,)), (UNTUNED, (8.0,))],
        [],
    ]
