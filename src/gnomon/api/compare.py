"""Comparing runs from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from typing import TYPE_CHECKING, Unpack

from gnomon.errors import UsageError

if TYPE_CHECKING:
    from gnomon.api.options import Options
    from gnomon.jobs.compare.document import CompareDocument
    from gnomon.measure.progress import Watch
    from gnomon.store.address import RecordLike

TURNS = 30
"""Fresh processes of each model that `compare_models` measures by turns."""


def compare(
    first: str | PathLike[str],
    *others: str | PathLike[str],
    record: RecordLike | None = None,
    alpha: float = 0.01,
    relevant: float = 0.01,
    changed: Iterable[str] = (),
    sessions: float = 0.02,
) -> CompareDocument:
    """Compare later runs with the first: faster, slower, the same, or unknown with what would decide.

    Each is a run's id ("last", "last~1"), a file that --json wrote, a report in HTML, a package, or a results database.
    All verdicts of a pair together hold with probability 1 - `alpha`; a difference within `relevant` is none. `changed`
    says what was changed on purpose: "machine", "governor", "version", "threads", "shapes", "inputs", "precision",
    "options". `sessions` is what runs of the same are taken to differ by (a standard deviation, relative) where fewer
    than five earlier ones tell. Raises GnomonError.
    """
    from gnomon.jobs.compare.job import compare as compare_job
    from gnomon.store.address import record_address

    names = [str(one) for one in (first, *others)]
    return compare_job(
        names,
        record=record_address(record),
        alpha=alpha,
        relevant=relevant,
        changed=tuple(changed),
        sessions=sessions,
    )


def compare_models(
    before: str | PathLike[str],
    *others: str | PathLike[str],
    alpha: float = 0.01,
    relevant: float = 0.01,
    changed: Iterable[str] = (),
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> CompareDocument:
    """Measure models by turns, a fresh process of each and then of each again, and compare the others with the first.

    The options are those of `profile`, where `processes` is 30 if it is not given. What moves the machine moves all
    alike, so that small differences show. Each is a run of its own in the results database, the last one the newest.
    Raises GnomonError; what was measured until then is kept, and the same call goes on from there.
    """
    from gnomon.api.options import model_request
    from gnomon.jobs.compare.job import compare_sides
    from gnomon.jobs.compare.sides import Side
    from gnomon.jobs.place.job import profile_by_turns
    from gnomon.jobs.runs.answers import keep

    if not others:
        raise UsageError("a comparison needs two models", hint='For example: compare_models("old.onnx", "new.onnx")')
    if options.get("processes") is None:
        options["processes"] = TURNS
    requests = [model_request(model, options, sweeps=True, limited=True) for model in (before, *others)]
    profiles = profile_by_turns(requests, watch=on_progress, tell=on_message)
    for profile in profiles:
        keep(profile.document(), on_message)
    sides = [Side(name=profile.model.path, document=profile.document()) for profile in profiles]
    return compare_sides(
        sides, record=requests[0].record, alpha=alpha, relevant=relevant, changed=tuple(changed), sessions=0.0
    )
