"""The JSON documents of `gnomon runs`: the list, a campaign for `show`, and the results of `import` and `merge`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gnomon.core.sample import Campaign, Event, Failure
from gnomon.core.stats import Summary
from gnomon.report.answer import Answer, FirstVersion


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CampaignRow(Answer):
    """One line of the list: a campaign, the amount of its contents, and its last decision (None without one so far).

    An unfinished campaign is `running` if a live process measures for it. Otherwise, it has `failed`, with the
    `message` and the `hint` of the error that ended it, or it was interrupted.
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
    """One candidate of a campaign, summarised by the document's clock; null if no end-to-end run of it succeeded."""

    candidate: str
    runs: int
    failures: int
    profiled_runs: int
    summary: Summary | None
    last_failure: Failure | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RunsDocument(FirstVersion):
    """The newest campaigns of a record, and whether it has `more`: `gnomon runs` and `runs list`."""

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
    """The numbers of campaigns, runs and events in a file that were not in the record before."""

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
        """The record, and the counts."""
        campaigns, runs = (sum(getattr(file, name) for file in self.files) for name in ("campaigns", "runs"))
        return self.record, f"{campaigns} campaigns and {runs} runs were not there before."
