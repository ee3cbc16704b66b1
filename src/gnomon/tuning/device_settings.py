"""Really different devices made of one machine: servers that have other threads, and code for other vector units."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

MOST_DEVICES = 64
_PLAINEST = {"x86_64": "x86-64", "aarch64": "generic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSetting:
    """A device to make of this machine: its `key` at the tracker and the `threads` of its server.

    `target` is what is compiled for it, as `gnomon tune --target` takes it: "native" is this machine with all its
    vector units, else the name of a processor without most of them.
    """

    key: str
    threads: int
    target: str


def device_settings(count: int) -> tuple[DeviceSetting, ...]:
    """`wide` (all cores that this process may use, native), `narrow` (one thread, the plainest code), and so on.

    More than two alternate and are numbered: wide-2, narrow-2, wide-3. The order of schedules by their time differs
    between the two kinds, as it does between two machines; devices of one kind differ by noise alone.
    """
    wide = DeviceSetting(key="wide", threads=len(os.sched_getaffinity(0)), target="native")
    narrow = DeviceSetting(key="narrow", threads=1, target=_PLAINEST.get(platform.machine(), "generic"))
    made = []
    for k in range(count):
        kind, number = (wide, narrow)[k % 2], k // 2 + 1
        key = kind.key if number == 1 else f"{kind.key}-{number}"
        made.append(DeviceSetting(key=key, threads=kind.threads, target=kind.target))
    return tuple(made)
