"""Placement on several devices at once, with a lane (a thread) for each machine; and sweeps over sizes or inputs."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from gnomon.devices.config import DeviceConfig
from gnomon.errors import GnomonError, PackageError, UsageError, system_errors
from gnomon.jobs.place.document import (
    DevicePart,
    FleetDocument,
    PlaceDocument,
    ProfileDocument,
    SweepDocument,
    SweepPart,
    error_part,
)
from gnomon.measure.progress import Tell, TellOf, Watch, WatchOf
from gnomon.report.plain import untaken
from gnomon.session.request import ModelRequest
from gnomon.system.limits import allow_files, open_files
from gnomon.system.stopping import ANSWERS, Stopped, stop_at

T = TypeVar("T")

_PATIENCE_S = 30.0

MOST_LANES = 64
"""The maximum number of lanes; each takes about three processes and 12 MB on this machine."""

LANE_FILES = 32
"""The number of open files that a lane may need. A running command was measured to use 12, and starting a command
briefly takes 8 more (`benchmarks/lab/many.py`). The rest is for files that are read or written at the same time.
"""

_SPARE_FILES = 64


def run_lanes(
    devices: Mapping[str, DeviceConfig],
    job: Callable[[str], T],
    *,
    patience_s: float = _PATIENCE_S,
    within_s: float = math.inf,
    tell: TellOf | None = None,
) -> dict[str, T | GnomonError]:
    """Run the job for each device, given by name, in parallel on different machines; return the results and errors.

    Devices of the same machine are handled one after the other, because they would wait for each other's lease.
    `lanes_for` determines the number of lanes; the devices of further machines are reported as waiting, and start when
    a lane becomes free. The job runs in the lane's thread and must open everything it uses there. A GnomonError ends
    only its own device's job. Anything else, such as Ctrl-C in the calling thread, ends all lanes: each gets `Stopped`
    once, when it next waits for its device (`gnomon.system.stopping`), and then has up to `patience_s` to clean up
    there. Lanes that are still running then end with the process, and the devices clean up on their own. The same holds
    for jobs that are not done after `within_s`; their devices are left out of the result.
    """
    answers: SimpleQueue[tuple[str, T | BaseException]] = SimpleQueue()
    ending = threading.Event()
    machines = _by_machine(devices)
    lanes = lanes_for(len(machines))
    left: SimpleQueue[list[str]] = SimpleQueue()
    for names in machines:
        left.put(names)
    for name in (name for names in machines[lanes:] for name in names):
        if tell is not None:
            tell(name, f"waits for its turn: only {lanes} of the {len(machines)} machines are used at once")

    def lane() -> None:
        stop_at(ending)
        with suppress(Empty):
            while True:
                for name in left.get_nowait():
                    if ending.is_set():
                        return
                    try:
                        answers.put((name, job(name)))
                    except GnomonError as error:
                        answers.put((name, error))
                    except Stopped:
                        return
                    except BaseException as error:  # the waiting thread raises it and ends the others
                        answers.put((name, error))
                        return

    threads = [threading.Thread(target=lane, name=f"gnomon-lane-{n}", daemon=True) for n in range(lanes)]
    ended: dict[str, T | GnomonError] = {}
    until_s = time.monotonic() + within_s
    try:
        for thread in threads:
            thread.start()
        while len(ended) < len(devices) and (left_s := until_s - time.monotonic()) > 0:
            try:
                name, answer = answers.get(timeout=min(1.0, left_s))
            except Empty:  # wakes up now and then, so that a signal is seen on every platform
                continue
            if isinstance(answer, BaseException) and not isinstance(answer, GnomonError):
                raise answer
            ended[name] = answer
    finally:
        ending.set()
        deadline = time.monotonic() + patience_s
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))  # a second Ctrl-C ends the wait
    return {name: ended[name] for name in devices if name in ended}


def lanes_for(machines: int) -> int:
    """The number of possible lanes: one per machine, at most `MOST_LANES`, within the limit on open files.

    The soft limit is raised as far as necessary, at most to the hard limit. UsageError if not even one lane is
    possible.
    """
    wanted = min(machines, MOST_LANES)
    held = open_files() + _SPARE_FILES
    allowed = allow_files(held + wanted * LANE_FILES)
    room = (allowed - held) // LANE_FILES
    if wanted and room < 1:
        raise UsageError(
            f"a device needs {LANE_FILES} open files, but gnomon needs {held} of the {allowed} that it may open",
            hint="Raise the limit in the shell that starts gnomon: ulimit -n 4096. ulimit -Hn shows the hard limit.",
        )
    return min(wanted, room)


def _by_machine(devices: Mapping[str, DeviceConfig]) -> list[list[str]]:
    machines: dict[tuple[object, ...], list[str]] = {}
    for name, config in devices.items():
        machines.setdefault(config.address.machine, []).append(name)
    return list(machines.values())


Place = Callable[[ModelRequest, Path | None, Watch | None, Callable[[str], None] | None], PlaceDocument]
"""Places a model on one device, given the request, the folder for the package (None: not kept) and two listeners."""


def place_on(
    requests: Mapping[str, ModelRequest],
    out: Path | None,
    place: Place,
    *,
    watch: WatchOf | None = None,
    tell: TellOf | None = None,
) -> FleetDocument:
    """Place the same model on several devices at once, given by name; packages go to `out`/NAME if `out` is given.

    A device that fails is listed with its error. Raises the first device's error if all fail, and UsageError if
    `requests` is empty. After Ctrl-C, every device is left clean, and measurements are kept.
    """
    start = time.monotonic()
    if not requests:
        raise UsageError("there is no device to place on", hint="Give at least one device.")
    folders = {} if out is None else package_folders(requests, out)

    def lane(name: str) -> PlaceDocument:
        own_watch, own_tell = watch(name) if watch else None, partial(tell, name) if tell else None
        return place(requests[name], folders.get(name), own_watch, own_tell)

    ended = run_lanes({name: r.device for name, r in requests.items()}, lane, tell=tell)
    errors = [end for end in ended.values() if isinstance(end, GnomonError)]
    if len(errors) == len(ended):
        with suppress(OSError):  # the folder is not empty
            if out is not None:
                out.rmdir()
        raise errors[0]
    first = next(iter(requests.values()))
    return FleetDocument(
        model=str(first.model),
        devices=tuple(
            DevicePart(name=name, placement=None, error=error_part(end))
            if isinstance(end, GnomonError)
            else DevicePart(name=name, placement=end, error=None)
            for name, end in ended.items()
        ),
        record=str(first.database),
        seconds=time.monotonic() - start,
    )


def package_folders(names: Mapping[str, object], out: Path) -> dict[str, Path]:
    """The folders for the devices' packages, each named after its device. They are in `out`, which is created;
    PackageError if that fails.
    """
    with system_errors(PackageError, f"the folder {out} cannot be created", hint="Name another folder with --out."):
        out.mkdir(parents=True, exist_ok=True)
    plain = {name: re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "device" for name in names}
    taken: set[str] = set()
    return {name: out / untaken(folder, taken) for name, folder in plain.items()}


Ask = Callable[[], PlaceDocument | ProfileDocument]
"""Computes the answer for a part."""


def sweep(model: Path, asked: Sequence[tuple[Mapping[str, str], Ask]], tell: Tell | None) -> SweepDocument:
    """Compute the answers for all parts, one after the other; each part is identified by its values.

    A GnomonError ends only its own part. If all parts end in errors, the first is raised.
    """
    began_s = time.monotonic()
    ANSWERS.set(False)  # Ctrl-C ends all parts, not only the current one
    parts: list[SweepPart] = []
    errors: list[GnomonError] = []
    for number, (values, ask) in enumerate(asked, 1):
        part = SweepPart(values=values, answer=None, error=None)
        if tell is not None:
            tell(f"{part.label}: {number} of {len(asked)}")
        try:
            part = replace(part, answer=ask())
        except GnomonError as error:
            errors.append(error)
            part = replace(part, error=error_part(error))
        parts.append(part)
    if len(errors) == len(parts):
        raise errors[0]
    return SweepDocument(model=str(model), parts=tuple(parts), seconds=time.monotonic() - began_s)
