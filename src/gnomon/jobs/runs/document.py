"""The JSON documents of `gnomon runs`: the list, a campaign for `show`, and the results of `import` and `merge`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gnomon.core.sample import Campaign, Event, Failure
from gnomon.core.stats import Summary
from gnomon.report.answer import Answer, FirstVersion
from gnomon.report.plain import many


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CampaignRow(Answer):
    """One line of the list: a campaign, the numbers of its candidates and runs, and its last decision, if any.

    An unfinished campaign is `running` if a live process measures for it. Otherwise `failed` has the `message` and the
    `hint` of its error, or is None if the campaign was interrupted.
    """

    campaign: Campaign
    finished: bool
    running: bool
    failed: Mapping[str, object] | None
    candidates: int
    runs: int
    failures: int
    decision: Mapping[str, object] | None

    def headline(self) -> tuple[str, str]:
        """The campaign, and its last decision."""
        reason = (self.decision or {}).get("reason")
        own = self.campaign
        return f"{own.kind} of {own.context.model_name} ({own.id[:12]})", str(reason or f"{self.runs} runs.")

    @property
    def device(self) -> str:
        """The device's own name."""
        return str(self.campaign.context.device.get("cpu_model") or "unknown device")


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePart:
    """One candidate of a campaign, with a summary by the document's clock (null: no end-to-end run succeeded)."""

    candidate: str
    runs: int
    failures: int
    profiled_runs: int
    summary: Summary | None
    last_failure: Failure | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunsDocument(FirstVersion):
    """The newest campaigns of a results database, and whether it has `more`: `gnomon runs` and `runs list`."""

    format: Literal["gnomon-runs"] = "gnomon-runs"
    record: str
    campaigns: tuple[CampaignRow, ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunDocument(FirstVersion):
    """The answer of `gnomon runs show`: docs/record.md describes its fields.

    The fastest candidate by the clock comes first, the failed ones last.
    """

    format: Literal["gnomon-run"] = "gnomon-run"
    clock: Literal["wall", "cpu"]
    row: CampaignRow
    candidates: tuple[CandidatePart, ...]
    events: tuple[Event, ...]

    main = "candidates"

    def headline(self) -> tuple[str, str]:
        """The same as for its row."""
        return self.row.headline()


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtPart:
    """The numbers of campaigns, runs and events in a file that were new to the results database."""

    path: str
    campaigns: int
    runs: int
    events: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BroughtDocument(FirstVersion):
    """The answer of `gnomon runs import` and `merge`, by file."""

    format: Literal["gnomon-brought"] = "gnomon-brought"
    record: str
    files: tuple[BroughtPart, ...]

    def headline(self) -> tuple[str, str]:
        """The results database, and the numbers of new campaigns and runs."""
        campaigns, runs = (sum(getattr(file, name) for file in self.files) for name in ("campaigns", "runs"))
        return self.record, f"Added {many(campaigns, 'campaign')} and {many(runs, 'run')}."
