"""A campaign as the record holds it: decided again from what was measured, without any device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.core.campaign import Campaign
from gnomon.core.sample import Failure
from gnomon.measure.campaign import Candidate, Known, Measured
from gnomon.measure.effort import Effort
from gnomon.store.base import EventQuery, Store

UNMEASURED = Failure(
    stage="record", kind="unmeasured", transient=False, message="it was not measured; leave out --no-profile"
)


class RecordedRunner(Known):
    """Stands where a `CampaignRunner` stands, and measures nothing: what the record lacks is a failure.

    What a proof lacks is taken from the profile, where the same candidate was measured among others than there.
    """

    resumed = False
    stopped = ""

    def __init__(self, store: Store, campaign: Campaign) -> None:
        super().__init__(store, campaign)
        self._events = {e.name: e.data for e in store.query(EventQuery(campaign=campaign.id))}

    def last(self, name: str) -> Mapping[str, Any] | None:
        """The data of the campaign's last event of a name; None if it has none."""
        return self._events.get(name)

    def known(self, key: str) -> Measured:
        """What the record holds of a candidate."""
        found = super().known(key)
        if not found.runs:
            found = super().known(key.removeprefix("proof/"))
            found = Measured(key=key, runs=found.runs, failure=found.failure)
        return found if found.runs else Measured(key=key, runs=(), failure=UNMEASURED)

    def measure(self, stage: str, candidates: Sequence[Candidate], effort: Effort) -> dict[str, Measured]:
        """What the record holds of the candidates."""
        return {candidate.key: self.known(candidate.key) for candidate in candidates}

    def over(self, stage: str, *, needs_s: float = 0.0) -> bool:
        """Never: nothing is measured, so nothing takes time."""
        return False

    def note(self, name: str, data: Mapping[str, Any]) -> None:
        """Nothing: the record of what was measured stays as it is."""

    def finish(self, decision: Mapping[str, Any]) -> None:
        """Nothing: the record of what was measured stays as it is."""
