"""Words and lines that several reports have in common."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from gnomon.core.stats import Comparison, Summary, is_narrow, may_be_as_fast
from gnomon.report import units
from gnomon.report.page import Page

if TYPE_CHECKING:
    from gnomon.core.sample import Failure


def failure_text(failure: Failure) -> str:
    """A failure in one line, with the last line of the process's output if it died."""
    text = f"{failure.kind} at {failure.stage}: {failure.message}"
    tail = failure.log_tail.strip().splitlines()
    return f"{text} ({tail[-1].strip()[:160]})" if tail and failure.kind in ("crash", "hang", "memory") else text


_WIDE = 1.25
"""The largest ratio of an interval's ends at which two sides are called a tie, and not undecided."""


def bounds(compared: Comparison) -> str:
    """The interval of a comparison in brackets; `units.UNKNOWN` if there is too little data."""
    return units.ratio_interval(compared.low, compared.high)


def is_open(compared: Comparison) -> bool:
    """Whether a comparison leaves open whether its first side is as fast as its second."""
    return may_be_as_fast(compared.verdict, compared.ratio)


def outcome(compared: Comparison) -> str:
    """The verdict of a comparison; "undecided" for a tie with an unbounded or wide interval, or a ratio far from 1."""
    close = is_open(compared) and may_be_as_fast(compared.verdict, 1 / compared.ratio)
    narrow = compared.low is not None and compared.high is not None and compared.high <= _WIDE * compared.low
    return "undecided" if compared.verdict == "tie" and not (close and narrow) else compared.verdict


def bounds_and_outcome(compared: Comparison) -> str:
    """The interval of a comparison and its verdict: "[1.20, 1.40] slower"; only the verdict if there is no interval."""
    return f"{bounds(compared)} {outcome(compared)}".removeprefix(f"{units.UNKNOWN} ")


def counted(summaries: Sequence[Summary]) -> str:
    """The numbers of processes and samples behind summaries: "3 to 6 processes, 40 to 900 samples each"."""
    processes = _range([summary.processes for summary in summaries], "process", "processes")
    return f"{processes}, {_range([summary.n for summary in summaries], 'sample', 'samples')} each"


def _range(counts: list[int], single: str, many: str) -> str:
    low, high = min(counts), max(counts)
    return f"{low} to {high} {many}" if low < high else f"{high} {single if high == 1 else many}"


def certainty(each: Sequence[tuple[str, Comparison | None]], best: str, processes: int, page: Page) -> None:
    """Write which differences from the best are open, and how to get certainty; `each` has pairs of a label and its
    comparison.

    A tie with a narrow interval is certain: both are equally fast.
    """
    ties = [(label, tie) for label, tie in each if tie and tie.verdict == "tie" and not is_narrow(tie.low, tie.high)]
    near, far = ([label for label, tie in ties if is_open(tie) is wanted] for wanted in (True, False))
    advice = f"To decide: --processes {max(10, 2 * processes)}, or a quieter machine."
    most = 1 if page.brief else len(ties)
    if near:
        page.item(f"Undecided: whether {best} is faster than {' or '.join(near[:most])}.", advice)
    if far and not (near and page.brief):
        page.item(f"Undecided: how much faster {best} is than {' and '.join(far[:most])}.", advice)


def spans(assignment: Sequence[str | None]) -> list[tuple[int, int, str]]:
    """Runs of operators on the same backend: (first, last, backend), both ends included; "-" without a backend."""
    runs = groupby(range(len(assignment)), key=lambda index: assignment[index] or "-")
    return [(run[0], run[-1], name) for name, run in ((name, list(run)) for name, run in runs)]


def numbers(indices: Sequence[int], *, most: int = 12) -> str:
    """Ascending indices as "0-2, 5, 7-9"; beyond `most` runs, only the number of further indices."""
    # Within a run of consecutive numbers, the difference between number and position is constant.
    consecutive = (list(run) for _, run in groupby(enumerate(indices), key=lambda pair: pair[1] - pair[0]))
    runs = [(run[0][1], run[-1][1]) for run in consecutive]
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:most]]
    more = sum(b - a + 1 for a, b in runs[most:])
    return ", ".join(shown) + (f" and {more} more" if more else "")


def assignment_text(assignment: Sequence[str | None], *, most: int = 40) -> str:
    """ "0-2 cpu   3-26 ruy   27-28 cpu"; beyond `most` runs, the number of operators of each backend."""
    runs = spans(assignment)
    if len(runs) <= most:
        return "   ".join(f"{a if a == b else f'{a}-{b}'} {name}" for a, b, name in runs)
    counts = Counter(name or "-" for name in assignment).most_common()
    text = ", ".join(f"{count} on {name}" for name, count in counts)
    return f"{text}, in {len(runs)} stretches"


def percent(share: float | None) -> str:
    """A share of images, such as an accuracy: "91.3 %"; "-" for None."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def points(share: float | None) -> str:
    """A share without its unit: "91.3"; "-" for None."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.1f}"


def networks(digits: str) -> str:
    """A count of networks, given as digits: "130 321", "1.23e15"."""
    if not digits.isdecimal():
        return digits
    return f"{int(digits):,}".replace(",", " ") if len(digits) <= 9 else f"{digits[0]}.{digits[1:3]}e{len(digits) - 1}"


def part(after: str, before: str) -> str:
    """The share of networks that are left: "7.7 %"; "-" for invalid counts."""
    if not (after.isdecimal() and before.isdecimal()) or len(before + after) > 300 or not int(before):
        return "-"
    share = 100 * int(after) / int(before)
    return f"{share:.1f} %" if share >= 0.1 or not share else f"{share:.1g} %" if share >= 1e-4 else f"{share:.0e} %"


def sentence(text: str) -> str:
    """A text with a full stop."""
    text = text.strip() or "no reason was given"
    return text if text.endswith((".", "!", "?")) else text + "."
