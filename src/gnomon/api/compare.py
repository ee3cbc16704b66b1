"""Comparing runs from Python."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnomon.jobs.compare.job import Compared
    from gnomon.store.address import RecordLike


def compare(
    first: str | PathLike[str],
    *others: str | PathLike[str],
    record: RecordLike | None = None,
    alpha: float = 0.01,
    relevant: float = 0.01,
    changed: Iterable[str] = (),
    sessions: float = 0.02,
) -> Compared:
    """Compare later runs with the first: faster, slower, the same, or unknown with what would tell.

    Each is a run's id ("last", "last~1"), a file that --json wrote, a report in HTML, a package, or a results database.
    All verdicts of a pair together hold with probability 1 - `alpha`; a difference within `relevant` is none. `changed`
    says what was changed on purpose: "machine", "governor", "version", "threads". `sessions` is what runs of the same
    are taken to differ by (a standard deviation, relative) where fewer than five earlier ones tell. Raises GnomonError.
    """
    from gnomon.jobs.compare.job import compare as compare_job
    from gnomon.store.address import record_address

    names = [str(one) for one in (first, *others)]
    return compare_job(
        names,
        record=None if record is None else record_address(record),
        alpha=alpha,
        relevant=relevant,
        changed=tuple(changed),
        sessions=sessions,
    )
