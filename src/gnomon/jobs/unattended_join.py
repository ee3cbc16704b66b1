"""The runs of a job's record into the record of this machine.

Nothing is made comparable that was not: a campaign comes as it is, with its key, which is made of the device's
fingerprint, the versions, the model, the options and the protocol. Only how its device is called and reached is told
anew, as the job knew it as its own machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gnomon.core.campaign import Campaign, Event
from gnomon.jobs import recall
from gnomon.store import codec
from gnomon.store.base import CampaignQuery, EventQuery, RunQuery, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """How many campaigns and runs were not there before."""

    campaigns: int
    runs: int


def join_records(source: Store, target: Store, lab: Mapping[str, Any]) -> Joined:
    """Add what `target` lacks of `source`; to be done again at any time. `lab` is how the device is called and reached.

    A visit that both have sampled stays as the target has it: each may have gone on with the campaign by itself.
    RecordError if a campaign is another's, or is being measured for here.
    """
    campaigns = runs = 0
    for campaign in reversed(list(source.query(CampaignQuery()))):
        campaigns += next(target.query(CampaignQuery(id=campaign.id)), None) is None
        target.open_campaign(campaign)
        runs += _add_runs(source, target, campaign)
        _add_events(source, target, campaign, lab)
    return Joined(campaigns=campaigns, runs=runs)


def _add_runs(source: Store, target: Store, campaign: Campaign) -> int:
    known = list(target.query(RunQuery(campaign=campaign.id)))
    visits = {(r.candidate, r.process, r.block, r.profiled) for r in known if r.samples is not None}
    failures = {codec.dumps(run) for run in known if run.samples is None}
    count = 0
    for run in source.query(RunQuery(campaign=campaign.id)):
        if run.samples is None:
            new = codec.dumps(run) not in failures
        else:
            new = (run.candidate, run.process, run.block, run.profiled) not in visits
        if new:
            target.append(campaign.id, run)
            count += 1
    return count


def _add_events(source: Store, target: Store, campaign: Campaign, lab: Mapping[str, Any]) -> None:
    known = {codec.dumps(event) for event in target.query(EventQuery(campaign=campaign.id))}
    for event in source.query(EventQuery(campaign=campaign.id)):
        told = _renamed(event, lab) if event.name == recall.NOTE else event
        if codec.dumps(told) not in known:
            target.append(campaign.id, told)


def _renamed(event: Event, lab: Mapping[str, Any]) -> Event:
    return replace(event, data={**event.data, **lab})
