"""Whole nets and their latencies from HELP's files (Lee et al., NeurIPS 2021), which were saved with PyTorch.

The module follows the loader of HayeonLee/HELP (loader.py, utils.py). Each folder data/SPACE there has
`latency/DEVICE.pt`, with a time in milliseconds for each architecture, and a file with the architectures in the same
order: `metainfo.pt` for FBNet and `ofa_archs.pt` for OFA, each with a list `arch`, and `str_arch2idx.pt` for
NAS-Bench-201, with the number of each architecture string. No such file was available for testing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gnomon.core.space import Space
from gnomon.core.strict_json import Complaints, shown
from gnomon.errors import ProblemError, UsageError
from gnomon.formats.nets_csv import NetRow
from gnomon.spaces.catalogue.fbnet import fbnet
from gnomon.spaces.catalogue.ofa_mobilenetv3 import STAGES, assignments_of, ofa_mobilenetv3
from gnomon.spaces.loading import SearchSpace, text_reader
from gnomon.training.saved import load_saved, numbers

_MS = 1e-3
_MOST_NETS = 1 << 20
_MOST_SHOWN = 5
_OTHERS = "For other sources, write a csv with the columns latency_ms and arch, or latency_ms and one column per slot."
_HINT = (
    "Give HELP's latency/DEVICE.pt, and with --archs its metainfo.pt (fbnet), ofa_archs.pt (ofa-mobilenetv3) or"
    f" str_arch2idx.pt (nasbench201). {_OTHERS}"
)

Assignment = tuple[int, ...]


def import_nets(latencies: Path, archs: Path, space: SearchSpace) -> tuple[tuple[NetRow, ...], tuple[str, ...]]:
    """The nets of the architectures in `archs` with their times from `latencies`, in the order of the files.

    Returns the nets, and warnings as sentences. An invalid time (0, negative, NaN) means that the net failed: it has no
    latency, and a warning lists it.

    UsageError if a file cannot be read or belongs to another space, ProblemError with all faults for a malformed file,
    RuntimeMissingError without PyTorch.
    """
    times = numbers(load_saved(latencies, hint=_HINT), _MOST_NETS)
    if not times:
        raise ProblemError(f"{latencies} does not contain a list of latencies", hint=_HINT)
    nets = _nets(load_saved(archs, hint=_HINT), archs, space)
    if len(nets) != len(times):
        raise ProblemError(
            f"{latencies} has {len(times)} latencies, and {archs} has {len(nets)} architectures",
            hint="Give two files from the same folder of HELP.",
        )
    good = [math.isfinite(time) and time > 0 for time in map(float, times)]
    failed = [number for number, fine in enumerate(good) if not fine]
    if len(failed) == len(times):
        raise ProblemError(f"{latencies} has no latency above 0", hint=_HINT)
    rows = (
        NetRow(assignment=net, latency_s=float(time) * _MS if fine else None)
        for net, time, fine in zip(nets, times, good, strict=True)
    )
    if not failed:
        return tuple(rows), ()
    few = ", ".join(f"{number} ({times[number]})" for number in failed[:_MOST_SHOWN])
    dots = ", .." if len(failed) > _MOST_SHOWN else ""
    lacking = f"{len(failed)} of {len(times)} nets have no latency, because their times are invalid"
    return tuple(rows), (f"{lacking} (net, counted from 0, and time): {few}{dots}",)


def _nets(saved: Any, path: Path, space: SearchSpace) -> list[Assignment]:
    """The assignments of architectures, in the order of their latencies."""
    complaints = Complaints(what=f"file {path}", hint=_HINT)
    if isinstance(saved, Mapping) and isinstance(saved.get("arch"), list | tuple):
        archs = saved["arch"]
        if not 0 < len(archs) <= _MOST_NETS:
            raise ProblemError(f"{path} has {len(archs)} architectures", hint=f"Allowed: 1 to {_MOST_NETS}.")
        read = _reader(archs[0], path, space)
        nets = [_read(read, arch, f"architecture {number}", complaints) for number, arch in enumerate(archs)]
    elif isinstance(saved, Mapping) and 0 < len(saved) <= _MOST_NETS and all(isinstance(key, str) for key in saved):
        by_number = _numbered(saved, complaints)
        text = text_reader(space)
        if text is None:
            raise UsageError(
                f"{path} has architecture strings, which do not exist for the space {space.name}",
                hint="Give the space of the strings: --space nasbench201.",
            )
        nets = [_read(text, by_number[number], shown(by_number[number]), complaints) for number in sorted(by_number)]
    else:
        raise ProblemError(f"{path} does not contain architectures in HELP's format", hint=_HINT)
    complaints.raise_any()
    return [net for net in nets if net is not None]


def _numbered(texts: Mapping[str, object], complaints: Complaints) -> dict[int, str]:
    """Architecture strings by their numbers, which are 0, 1, .. in any order."""
    by_number: dict[int, str] = {}
    for text, value in texts.items():
        number = _whole(value)
        if number is None or not 0 <= number < len(texts):
            complaints.tell(shown(text), f"a number from 0 to {len(texts) - 1} expected, {_shown(value)} found")
        elif number in by_number:
            complaints.tell(shown(text), f"its number {number} is also the number of another architecture")
        else:
            by_number[number] = text
    return by_number


def _read(read: Callable[[Any], Assignment], arch: Any, place: str, complaints: Complaints) -> Assignment | None:
    try:
        return read(arch)
    except ProblemError as error:
        complaints.tell(place, error.message)
        return None


def _reader(first: Any, path: Path, space: SearchSpace) -> Callable[[Any], Assignment]:
    """The reader of a list of architectures, chosen by the first one. UsageError if they belong to another space."""
    for keys, build, read in (
        (("op_idx_list",), fbnet, partial(_fbnet, slots=space.space)),
        (("ks", "e", "d", "r"), ofa_mobilenetv3, _ofa),
    ):
        if isinstance(first, Mapping) and all(key in first for key in keys):
            own = build()
            if own.space != space.space:
                raise UsageError(
                    f"{path} has architectures of the space {own.name}, not of {space.name}",
                    hint=f"Give --space {own.name}.",
                )
            return read
    raise ProblemError(f"{path} does not contain architectures in HELP's format", hint=_HINT)


def _fbnet(arch: Any, *, slots: Space) -> Assignment:
    """The numbers of the blocks in the published list, which has the same order as the choices."""
    blocks = _values(arch, "op_idx_list", len(slots.slots))
    slots.encode(blocks)
    return blocks


def _ofa(arch: Any) -> Assignment:
    layers, stages = 4 * len(STAGES), len(STAGES)
    kernels, expansions = _values(arch, "ks", layers), _values(arch, "e", layers)
    depths, height = _values(arch, "d", stages), _values(arch, "r", 1)
    (assignment,) = assignments_of([kernels], [expansions], [depths], height).tolist()
    return tuple(assignment)


def _values(arch: Any, key: str, count: int) -> Assignment:
    """The whole numbers under one key of an architecture. ProblemError for other values or a wrong number of them."""
    given = arch.get(key) if isinstance(arch, Mapping) else None
    values = numbers(given, count)
    whole = [number for number in map(_whole, values or ()) if number is not None]
    if len(whole) != count:
        many = f"{count} whole numbers" if count > 1 else "a whole number"
        raise ProblemError(f"{many} expected as {key!r}, {_shown(given)} found")
    return tuple(whole)


def _shown(value: Any) -> str:
    """A value of a basic type as errors show it; for any other value only the name of its type."""
    return (
        shown(value) if type(value) in (str, int, float, bool, list, dict, type(None)) else f"a {type(value).__name__}"
    )


def _whole(value: Any) -> int | None:
    """A value as a whole number that fits into 64 bits; None for any other value."""
    listed = numbers(value, 1)
    if not listed or not math.isfinite(listed[0]) or listed[0] != int(listed[0]) or abs(listed[0]) >= 1 << 62:
        return None
    return int(listed[0])
