"""The main job on several devices at once: each gets its own plan, and all of them the one that is best for all.

The proof of a plan for all: on each device, measured interleaved with that device's own choice.

One lane, a thread, for each machine, as far as there is room for them: what is done on several devices at once, and
ended together.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from gnomon.core.brief import brief
from gnomon.core.stats import summarise
from gnomon.devices.config import DeviceConfig
from gnomon.errors import GnomonError, MeasurementError, PackageError, UsageError
from gnomon.jobs.place.across import AcrossPlacer
from gnomon.jobs.place.common_plan import Common, Option, Share, chosen_of, compared, decide, settle, share_of
from gnomon.jobs.place.inside import InsidePlacer
from gnomon.jobs.place.job import Placement, place
from gnomon.measure.campaign import Measured
from gnomon.measure.progress import Watch
from gnomon.report.answer import Answer
from gnomon.session.contender import Contender, blocks, choose_clock
from gnomon.session.model_session import Lab, open_lab
from gnomon.session.reference import reference
from gnomon.session.request import Request, patiently
from gnomon.session.targets import describe
from gnomon.store.address import RecordAddress
from gnomon.system.limits import allow_files, open_files
from gnomon.system.process import guarded_folder
from gnomon.system.stopping import Stopped, stop_at

T = TypeVar("T")

_PATIENCE_S = 30.0

MOST_LANES = 64
"""At most so many devices at once: each takes about three processes and 12 MB of this machine."""

LANE_FILES = 32
"""So many open files a lane may need: 12 were seen while commands run, and beginning one takes 8 more for a moment
(`benchmarks/lab/many.py`); the rest is for files that are read and written meanwhile."""

_SPARE_FILES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Generic[T]):
    """How a device's part ended: with what it found, or with the error that ended it."""

    found: T | None
    error: GnomonError | None


def run_lanes(
    devices: Mapping[str, DeviceConfig],
    job: Callable[[str], T],
    *,
    patience_s: float = _PATIENCE_S,
    tell: TellOf | None = None,
) -> dict[str, Ended[T]]:
    """Do the job for each device by its name, on different machines at the same time.

    Devices of one machine come one after the other: they would wait for each other's lease. There are as many lanes as
    `lanes_for` finds room for; what is beyond them is told that it waits, and begins as a lane ends. The job runs in a
    thread of its own, where it must open all that it uses. A GnomonError ends that device's part alone. Anything else,
    such as Ctrl-C in the thread that called, ends all: each lane gets `Stopped` once, where it next waits for its
    device (`gnomon.system.stopping`), and up to `patience_s` to clean up there. What is left then ends with the
    process, and the devices clean up by themselves.
    """
    answers: SimpleQueue[tuple[str, Ended[T] | BaseException]] = SimpleQueue()
    ending = threading.Event()
    machines = _by_machine(devices)
    count = lanes_for(len(machines))
    left: SimpleQueue[list[str]] = SimpleQueue()
    for names in machines:
        left.put(names)
    for name in (name for names in machines[count:] for name in names):
        if tell is not None:
            tell(name, f"waits for one of {count} lanes: {len(machines)} machines are more than run at once")

    def lane() -> None:
        stop_at(ending)
        with suppress(Empty):
            while not ending.is_set():
                if not each(left.get_nowait()):
                    return

    def each(names: Sequence[str]) -> bool:
        """Whether the lane may go on to another machine."""
        for name in names:
            if ending.is_set():
                return False
            try:
                answers.put((name, Ended(found=job(name), error=None)))
            except GnomonError as error:
                answers.put((name, Ended(found=None, error=error)))
            except Stopped:
                return False
            except BaseException as error:  # told by the thread that waits, which ends the others
                answers.put((name, error))
                return False
        return True

    threads = [threading.Thread(target=lane, name=f"gnomon-lane-{n}", daemon=True) for n in range(count)]
    ended: dict[str, Ended[T]] = {}
    try:
        for thread in threads:
            thread.start()
        while len(ended) < len(devices):
            try:
                name, answer = answers.get(timeout=1.0)
            except Empty:  # wakes up now and then, so that a signal is seen whatever the platform
                continue
            if isinstance(answer, BaseException):
                raise answer
            ended[name] = answer
    finally:
        ending.set()
        deadline = time.monotonic() + patience_s
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))  # a second Ctrl-C ends the waiting
    return {name: ended[name] for name in devices}


def lanes_for(machines: int) -> int:
    """How many lanes there is room for: one a machine, at most `MOST_LANES`, and within the limit of open files.

    The soft limit is raised as far as that needs, to the hard limit at most. UsageError where there is room for none.
    """
    wanted = min(machines, MOST_LANES)
    held = open_files() + _SPARE_FILES
    allowed = allow_files(held + wanted * LANE_FILES)
    room = (allowed - held) // LANE_FILES
    if wanted and room < 1:
        raise UsageError(
            f"a device needs {LANE_FILES} open files, and of {allowed} that this process may have {held} are taken",
            hint="Raise the limit in the shell that starts gnomon: ulimit -n 4096. The hard one is that of ulimit -Hn.",
        )
    return min(wanted, room)


def _by_machine(devices: Mapping[str, DeviceConfig]) -> list[list[str]]:
    machines: dict[tuple[object, ...], list[str]] = {}
    for name, config in devices.items():
        machines.setdefault(config.address.machine, []).append(name)
    return list(machines.values())


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
class Fleet(Answer):
    """What several devices gave, in the order they were asked, and the plan that is best for all that answered.

    `proofs` are of plans for all that were only predicted, in the order in which they were measured. `record` is the
    results database.
    """

    model: Path
    record: RecordAddress
    results: tuple[DeviceResult, ...]
    common: Common
    seconds: float
    proofs: tuple[CommonProof, ...] = ()

    document_by = "gnomon.jobs.place.document:fleet_document"
    main = "devices"

    __repr__ = Answer.__repr__

    def headline(self) -> tuple[str, str]:
        """The model and the devices, and the plan that is best for all."""
        best = self.common.total
        told = "there is no plan for all" if best is None else f"{best.label} has the least total time"
        return f"{self.model.name} on {', '.join(r.name for r in self.results)}", f"Of all plans {told}."

    @property
    def exit_code(self) -> int:
        """The highest of its placements' exit codes."""
        return max((found.exit_code for found in self.placements.values()), default=0)

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

    ended = run_lanes({name: r.device for name, r in requests.items()}, lane, tell=tell)
    results = tuple(DeviceResult(name=name, placement=e.found, error=e.error) for name, e in ended.items())
    record = next(iter(requests.values())).database
    fleet = Fleet(model=model, record=record, results=results, common=decide({}), seconds=0.0)
    if not fleet.placements:
        with suppress(OSError):  # it holds something
            out.rmdir()
        raise next(r.error for r in results if r.error is not None)
    return replace(fleet, common=decide(fleet.placements), seconds=time.monotonic() - start)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonProof:
    """What the plan for all was measured to be: its share on each device, or why it could not be measured there."""

    label: str
    shares: Mapping[str, Share]
    failed: Mapping[str, str]


def prove_common(
    requests: Mapping[str, Request],
    fleet: Fleet,
    option: Option,
    *,
    watch: WatchOf | None = None,
    tell: TellOf | None = None,
) -> CommonProof:
    """Measure an option on every device that has a placement, beside that device's choice, all at the same time.

    Where the choice is a chain of segments, which would have to be cut again, the best single backend stands in
    for it, and how the two compared when the choice was proven. A device that fails is told of in `failed`.
    """
    placements = fleet.placements

    def lane(name: str) -> Share:
        def once(request: Request) -> Share:
            with ExitStack() as stack:
                question = {"plan": _digest(option)}
                say = (lambda sentence: tell(name, sentence)) if tell else None
                watching = watch(name) if watch else None
                lab = stack.enter_context(open_lab(request, kind="proof", question=question, watch=watching, tell=say))
                folder = stack.enter_context(guarded_folder("gnomon-segments-"))
                return _prove(lab, folder, placements[name], option)

        return patiently(once, requests[name], (lambda sentence: tell(name, sentence)) if tell else None)

    ended = run_lanes({name: requests[name].device for name in placements}, lane, tell=tell)
    return CommonProof(
        label=option.label,
        shares={name: e.found for name, e in ended.items() if e.found is not None},
        failed={name: e.error.message for name, e in ended.items() if e.error is not None},
    )


def settled(common: Common, option: Option, proof: CommonProof) -> Common:
    """The options with what the proof measured in place of what was known of that option; the choice is made again.

    An option that failed on a device is none any more.
    """
    kept = [o for o in common.options if o is not option]
    notes = list(common.notes)
    if proof.failed:
        notes += [f"{option.label} cannot be had on {name}: {why}" for name, why in proof.failed.items()]
    else:
        kept.append(replace(option, shares={**option.shares, **proof.shares}))
    return settle(kept, notes)


def _digest(option: Option) -> str:
    """What a proof of the same option has in common with another, and no other proof."""
    told = json.dumps([option.configurations, sorted(option.backends.items())])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _prove(lab: Lab, folder: Path, placement: Placement, option: Option) -> Share:
    reference(lab)
    common = _rebuilt(lab, folder, option.label, option.configurations, option.backends)
    verdict = placement.verdict
    chained = len(verdict.chosen.contender.parts) > 1
    stand_in = verdict.best_single if chained else verdict.chosen
    named = tuple(part.configuration.name for part in stand_in.contender.parts)
    own = _rebuilt(lab, folder, stand_in.contender.label, named, stand_in.contender.backends)
    lab.runner.note("labels", {f"proof/{c.key}": c.label for c in (common, own)})
    candidates = {c.key: replace(c.candidate, key=f"proof/{c.key}") for c in (common, own)}
    found = lab.runner.measure("prove the plan for all", list(candidates.values()), lab.request.effort)
    ours, theirs = found[candidates[common.key].key], found[candidates[own.key].key]
    for contender, measured in ((common, ours), (own, theirs)):
        if not measured.ok:
            raise MeasurementError(
                f"{contender.label} failed: {describe(measured.failure)}", hint="Measure again with --fresh."
            )
    share = _share(lab, placement, ours, theirs, chained=chained)
    lab.runner.finish({"plan": option.label, "regret": share.regret})
    return share


def _rebuilt(
    lab: Lab, folder: Path, label: str, configurations: tuple[str, ...], backends: Mapping[int, str]
) -> Contender:
    """The contender of an assignment inside one configuration, or of the whole model in it, in this lab."""
    target = next((t for t in lab.targets if (t.configuration.name,) == configurations), None)
    if target is None:
        raise MeasurementError(
            f"{' and '.join(configurations)} cannot run the model here as one", hint="Compare another option."
        )
    if len(target.configuration.backends) == 1:
        whole = tuple(t for t in lab.targets if len(t.configuration.backends) == 1)
        return replace(AcrossPlacer(lab, whole, folder).whole(target), label=label)
    placer = InsidePlacer(lab, target)
    count = len(target.placed.graph.operators)
    absent = sorted({backends.get(i, "nothing") for i in range(count)} - set(placer.backends))
    if absent:
        raise MeasurementError(f"there is no backend {absent[0]} on this device", hint="Compare another option.")
    assignment = tuple(placer.backends.index(backends[i]) for i in range(count))
    return placer.contender("plan", label, assignment, None)


def _share(lab: Lab, placement: Placement, ours: Measured, theirs: Measured, *, chained: bool) -> Share:
    clock = choose_clock(lab, (ours, theirs)) if placement.clock == "cpu" else placement.clock
    ratio, low, high = compared(ours, theirs, clock)
    chosen = chosen_of(placement)
    if chained and chosen.against_best is not None:  # the choice took so much of the stand-in's time
        against = chosen.against_best
        ratio, low, high = ratio / against.ratio, low / against.high, high / against.low if against.low > 0 else high
    return share_of(summarise(blocks(ours, clock)), ratio, low, high)


def prove_best(
    requests: Mapping[str, Request], fleet: Fleet, *, watch: WatchOf | None = None, tell: TellOf | None = None
) -> Fleet:
    """Measure the option of least total time where it is only predicted, and choose again.

    Each option is measured once, and at most two are: what then is best may still rest on predictions, and says so.
    """
    for _ in range(2):
        option = fleet.common.total
        if (
            option is None
            or not option.predicted_on
            or any(request.time and request.time.left_s <= 0 for request in requests.values())
        ):
            break
        proof = prove_common(requests, fleet, option, watch=watch, tell=tell)
        fleet = replace(fleet, common=settled(fleet.common, option, proof), proofs=(*fleet.proofs, proof))
    return fleet
