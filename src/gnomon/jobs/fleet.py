"""The main job on several devices at once: each gets its own plan, and all of them the one that is best for all."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gnomon.core.brief import brief
from gnomon.errors import GnomonError, PackageError, UsageError
from gnomon.jobs.common import Common, decide
from gnomon.jobs.lanes import run_lanes
from gnomon.jobs.place import Placement, place
from gnomon.jobs.request import Request
from gnomon.measure.progress import Watch

WatchOf = Callable[[str], Watch]
"""The watch of a device, by its name; each is called from that device's lane."""

TellOf = Callable[[str, str], None]
"""Gets the name of a device and a sentence, from that device's lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceResult:
    """What one device gave: its placement, or the error that ended its lane."""

    name: str
    placement: Placement | None
    error: GnomonError | None

    __repr__ = brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What several devices gave, in the order they were asked, and the plan that is best for all that answered."""

    model: Path
    results: tuple[DeviceResult, ...]
    common: Common
    seconds: float

    __repr__ = brief

    @property
    def placements(self) -> dict[str, Placement]:
        """The placements of the devices that gave one, by name."""
        return {r.name: r.placement for r in self.results if r.placement is not None}


def place_on(
    requests: Mapping[str, Request],
    out: Path,
    *,
    overwrite: bool = False,
    watch: WatchOf | None = None,
    tell: TellOf | None = None,
) -> Fleet:
    """Place the same model on several devices, by their names, at the same time; packages go to `out`/NAME.

    A device that fails is left out, with its error. Raises the error of the first if all fail, and UsageError where
    there is no device or the models differ. After Ctrl-C every device is left clean; what was measured is kept.
    """
    start = time.monotonic()
    model = _one_model(requests)
    folders = package_folders(requests, out)

    def lane(name: str) -> Placement:
        return place(
            requests[name],
            folders[name],
            overwrite=overwrite,
            watch=watch(name) if watch else None,
            tell=(lambda sentence: tell(name, sentence)) if tell else None,
        )

    ended = run_lanes({name: r.device for name, r in requests.items()}, lane)
    results = tuple(DeviceResult(name=name, placement=e.found, error=e.error) for name, e in ended.items())
    fleet = Fleet(model=model, results=results, common=decide({}), seconds=0.0)
    if not fleet.placements:
        with suppress(OSError):  # it holds something
            out.rmdir()
        raise next(r.error for r in results if r.error is not None)
    common = decide(fleet.placements)
    return Fleet(model=model, results=results, common=common, seconds=time.monotonic() - start)


def _one_model(requests: Mapping[str, Request]) -> Path:
    models = list(dict.fromkeys(request.model for request in requests.values()))
    if len(models) != 1:
        told = f"{len(models)} models" if models else "no device"
        raise UsageError(f"there is {told} to place on several devices", hint="Give one model and some devices.")
    return models[0]


def package_folders(names: Mapping[str, object], out: Path) -> dict[str, Path]:
    """Where each device's package goes: a folder of its name in `out`, which is made. PackageError if it cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PackageError(
            f"the folder {out} cannot be made: {error.strerror or error}", hint="Name another folder with --out."
        ) from error
    made: dict[str, Path] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "device"
        number, taken = 1, set(made.values())
        folder = out / plain
        while folder in taken:
            number += 1
            folder = out / f"{plain}-{number}"
        made[name] = folder
    return made
