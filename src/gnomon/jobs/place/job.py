"""The jobs `place`, which finds and proves the fastest assignment of operators, and `profile`, which only measures.

The work within an open session is in `decide.py`, which is imported only once the session is open. docs/jobs/place.md
describes the design.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.devices.base import Device
from gnomon.devices.local import LocalDevice
from gnomon.errors import UsageError
from gnomon.measure.progress import Steps, Tell, Watch
from gnomon.session.model_session import open_device, open_session
from gnomon.session.request import ModelRequest, patiently, timed
from gnomon.system.process import guarded_folder

if TYPE_CHECKING:
    from gnomon.jobs.place.decide import Enough
    from gnomon.jobs.place.document import PlaceDocument, ProfileDocument
    from gnomon.jobs.place.sustained import Sustain


def profile(
    request: ModelRequest,
    *,
    inside: bool = False,
    asked: Sustain | None = None,
    watch: Watch | None = None,
    tell: Tell | None = None,
) -> ProfileDocument:
    """Measure the whole model on every backend, waiting for the device if it disconnects.

    With `inside`, kernels of several operators are taken apart; see `gnomon.jobs.place.derived`. With `asked`, each
    configuration is afterwards called for a long time. Raises GnomonError; the measurements made until then are in the
    results database.
    """
    if asked is not None and request.settings.commands:
        raise UsageError(
            "--for and --every cannot be combined with --command, which makes its own calls",
            hint="Leave out --for and --every, or --command.",
        )
    question: dict[str, Any] = {"inside": True} if inside else {}
    question |= {} if asked is None else {"sustained": asdict(asked)}

    def once(again: ModelRequest) -> ProfileDocument:
        with (
            open_session(again, kind="profile", question=question, watch=watch, tell=tell) as session,
            guarded_folder("gnomon-segments-") as folder,
        ):
            from gnomon.jobs.place.decide import profile_in

            return profile_in(session, folder, inside=inside, asked=asked, tell=tell)

    return patiently(once, timed(request), tell, recalls=asked is None)


def profile_by_turns(
    requests: Sequence[ModelRequest],
    *,
    enough: Enough | None,
    python: str | None = None,
    watch: Watch | None = None,
    tell: Tell | None = None,
) -> list[ProfileDocument]:
    """Measure several models on one device in turn: each turn runs every model in a fresh process.

    Drift of the machine then affects all of them equally. The turns end when `enough`, which is called at each look,
    returns True, or when the effort's budget is used up; without `enough`, they end after the effort's least number of
    processes. Each model is a separate run in the results database. With `python`, another interpreter on this machine
    measures the last model; nothing is installed for it. Raises GnomonError; the measurements made until then are in
    the results database.
    """
    first = timed(requests[0])

    def profiled(again: ModelRequest) -> list[ProfileDocument]:
        steps = Steps("by turns", watch)
        each = [replace(r, time=again.time, fresh=again.fresh) for r in requests]
        with ExitStack() as stack:
            device = stack.enter_context(open_device(again, tell))
            devices: list[Device] = [device] * len(each)
            if python is not None:  # the lease is already held
                other = LocalDevice(again.device.name, python=python, environment=again.device.environment)
                devices[-1] = stack.enter_context(other)
            labs = [
                stack.enter_context(
                    open_session(
                        r,
                        kind="profile",
                        question={"by_turns": turn},
                        watch=steps,
                        tell=tell,
                        device=device,
                        beside=f"turn-{turn}-",
                    )
                )
                for turn, (r, device) in enumerate(zip(each, devices, strict=True))
            ]
            folders = [stack.enter_context(guarded_folder("gnomon-segments-")) for _ in labs]
            from gnomon.jobs.place.decide import profile_turns

            return profile_turns(labs, folders, again.effort, steps, enough)

    return patiently(profiled, first, tell)


def place(
    request: ModelRequest, out: Path, *, overwrite: bool = False, watch: Watch | None = None, tell: Tell | None = None
) -> PlaceDocument:
    """Profile, price, solve, prove, write the winner's package to `out`, and run it.

    `watch` gets the progress, and `tell` gets messages for people. Waits for the device if it disconnects. Raises
    GnomonError; the measurements made until then are in the results database, and the next call with the same request
    continues from there.
    """
    overwrite = overwrite or not out.exists()  # if the folder exists later, this call wrote it

    def check() -> None:
        from gnomon.session.package import check_destination

        check_destination(out, overwrite=overwrite)
        if request.under:
            from gnomon.jobs.place.limits import Limits

            Limits(request.under)

    def once(again: ModelRequest) -> PlaceDocument:
        with (
            open_session(again, kind="place", question={}, watch=watch, tell=tell, check=check) as session,
            guarded_folder("gnomon-segments-") as folder,
        ):
            from gnomon.jobs.place.decide import place_in

            return place_in(session, folder, out, overwrite=overwrite)

    return patiently(once, timed(request), tell, recalls=True)
