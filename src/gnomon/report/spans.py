"""Assignments in few words."""

from __future__ import annotations

from collections.abc import Sequence


def spans(assignment: Sequence[str | None]) -> list[tuple[int, int, str]]:
    """Runs of equal backend: (first, last, backend), both ends included; "-" where there is none."""
    made: list[tuple[int, int, str]] = []
    for index, backend in enumerate(assignment):
        name = backend or "-"
        if made and made[-1][2] == name:
            made[-1] = (made[-1][0], index, name)
        else:
            made.append((index, index, name))
    return made


def numbers(indices: Sequence[int], *, most: int = 12) -> str:
    """Ascending indices as "0-2, 5, 7-9"; beyond `most` runs only how many more there are."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    told = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:most]]
    more = sum(b - a + 1 for a, b in runs[most:])
    return ", ".join(told) + (f" and {more} more" if more else "")


def assignment_text(assignment: Sequence[str | None], *, most: int = 40) -> str:
    """ "0-2 cpu   3-26 ruy   27-28 cpu"; beyond `most` runs, how many operators each backend has."""
    runs = spans(assignment)
    if len(runs) <= most:
        return "   ".join(f"{a if a == b else f'{a}-{b}'} {name}" for a, b, name in runs)
    counts: dict[str, int] = {}
    for a, b, name in runs:
        counts[name] = counts.get(name, 0) + b - a + 1
    told = ", ".join(f"{count} on {name}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))
    return f"{told}, in {len(runs)} stretches"
