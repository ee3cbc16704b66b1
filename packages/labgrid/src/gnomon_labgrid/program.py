"""A program: asks labgrid's coordinator a question a line for gnomon, or gives back what gnomon has of it.

The argument is a JSON object: `coordinator` (HOST[:PORT]), and `give_back`. The session has the name that
labgrid's own variables LG_HOSTNAME and LG_USERNAME give it. The first line on standard output is ``{"state":
"ready"}``, or ``missing`` or ``unreachable`` with a `message`; each line on standard input is an object with `do`, and
is answered by ``{"state": "done", ..}`` or ``{"state": "failed", "message": ..}``.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

_POWER_S = 120.0


def main() -> None:
    """Answers until standard input ends."""
    asked = json.loads(sys.argv[1])
    try:
        from labgrid.remote.client import start_session
    except ImportError as error:
        _say(state="missing", message=str(error))
        sys.exit(3)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # gRPC looks for it there
    try:
        session = start_session(asked["coordinator"], loop=loop)
    except Exception as error:  # labgrid's own, gRPC's, or those of a proxy on the way
        _say(state="unreachable", message=_words(error))
        sys.exit(4)
    lab = _Lab(session, asked["coordinator"])
    if asked["give_back"]:
        loop.run_until_complete(lab.free(f"{session.gethostname()}/{session.getuser()}"))
        return
    _say(state="ready")
    for line in sys.stdin:
        job = json.loads(line)
        try:
            _say(state="done", **loop.run_until_complete(getattr(lab, job.pop("do"))(**job)))
        except Exception as error:  # as above
            _say(state="failed", message=_words(error))


class _Lab:
    """What is asked, each a method that returns values of JSON."""

    def __init__(self, session: Any, coordinator: str) -> None:
        from labgrid.remote.generated import labgrid_coordinator_pb2

        self._session, self._coordinator, self._pb = session, coordinator, labgrid_coordinator_pb2

    async def look(self) -> dict[str, object]:
        """All places: name, tags, and who has each."""
        await self._sync()
        places = self._session.places.values()
        return {
            "places": [
                {"name": p.name, "tags": p.tags, "acquired": p.acquired, "allowed": sorted(p.allowed)} for p in places
            ]
        }

    async def reserve(self, tags: dict[str, str]) -> dict[str, object]:
        """Stand in line for a place with these tags; the place's own name is the tag `name`."""
        filters = {"main": self._pb.Reservation.Filter(filter=tags)}
        made = await self._session.stub.CreateReservation(self._pb.CreateReservationRequest(filters=filters, prio=0.0))
        return self._stands(made.reservation)

    async def poll(self, token: str) -> dict[str, object]:
        """How that stands. Who does not ask for a minute loses it."""
        found = await self._session.stub.PollReservation(self._pb.PollReservationRequest(token=token))
        return self._stands(found.reservation)

    async def acquire(self, place: str) -> dict[str, object]:
        """Take a place."""
        await self._session.stub.AcquirePlace(self._pb.AcquirePlaceRequest(placename=place))
        return {}

    async def free(self, by: str) -> dict[str, object]:
        """Release all that a session's name has, and take it out of all lines; what fails of it ends nothing else."""
        failed: list[str] = []

        async def done(what: str, call: Any) -> Any:
            try:
                return await call
            except Exception as error:  # labgrid's own, or gRPC's
                failed.append(f"{what}: {_words(error)}")

        stub = self._session.stub
        await self._sync()
        for place in self._session.places.values():
            if place.acquired == by:
                released = self._pb.ReleasePlaceRequest(placename=place.name, fromuser=by)
                await done(f"place {place.name}", stub.ReleasePlace(released))
        lines = await done("reservations", stub.GetReservations(self._pb.GetReservationsRequest()))
        for line in lines.reservations if lines else ():
            if line.owner == by:
                cancelled = self._pb.CancelReservationRequest(token=line.token)
                await done(f"reservation {line.token}", stub.CancelReservation(cancelled))
        if failed:
            raise RuntimeError("; ".join(failed))
        return {}

    async def resources(self, place: str) -> dict[str, object]:
        """What an acquired place has: class and parameters of each resource."""
        await self._sync()
        found = []
        for exporter, group, cls, name in self._session.places[place].acquired_resources:
            entry = self._session.resources.get(exporter, {}).get(group, {}).get(name)
            if entry is not None:
                found.append({"cls": cls, "params": entry.args, "extra": entry.extra})
        return {"resources": found}

    async def power(self, place: str, action: str) -> dict[str, object]:
        """Switch the place's power by labgrid's own client, which knows a driver for each switch."""
        client = [sys.executable, "-m", "labgrid.remote.client", "-x", self._coordinator, "-p", place, "power", action]
        done = subprocess.run(
            client, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_POWER_S
        )
        if done.returncode:
            raise RuntimeError((done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}")[-500:])
        return {}

    async def _sync(self) -> None:
        if not await self._session.sync_with_coordinator():
            raise RuntimeError("the coordinator has ended the session")

    def _stands(self, line: Any) -> dict[str, object]:
        """Of a reservation: its token, its state (waiting, allocated, acquired, expired, invalid), and its place."""
        from labgrid.remote.common import ReservationState

        return {
            "token": line.token,
            "standing": ReservationState(line.state).name,
            "place": line.allocations.get("main", ""),
        }


def _words(error: Exception) -> str:
    details = getattr(error, "details", None)  # of gRPC's errors
    return " ".join(str(details() if callable(details) else error).split())[:500] or type(error).__name__


def _say(**said: Any) -> None:
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
