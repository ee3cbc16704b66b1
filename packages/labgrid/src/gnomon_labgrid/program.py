"""A program that puts gnomon's requests to labgrid's coordinator, or releases everything that gnomon has taken.

The argument is a JSON object with `coordinator` (HOST[:PORT]) and `give_back`. The name of the session comes from
labgrid's own variables LG_HOSTNAME and LG_USERNAME. The first line of standard output is ``{"state": "ready"}``, or has
the state ``missing`` or ``unreachable`` and a `message`. Each line of standard input is an object with `do`; the answer
is ``{"state": "done", ..}`` or ``{"state": "failed", "message": ..}``.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

_POWER_S = 120.0


def main() -> None:
    """Answer requests until standard input ends."""
    asked = json.loads(sys.argv[1])
    try:
        from labgrid.remote.client import start_session
    except ImportError as error:
        _say(state="missing", message=str(error))
        sys.exit(3)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # gRPC looks for the loop there
    try:
        session = start_session(asked["coordinator"], loop=loop)
    except Exception as error:  # from labgrid, gRPC, or a proxy
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
    """The requests; each is a method that returns JSON values."""

    def __init__(self, session: Any, coordinator: str) -> None:
        from labgrid.remote.generated import labgrid_coordinator_pb2

        self._session, self._coordinator, self._pb = session, coordinator, labgrid_coordinator_pb2

    async def look(self) -> dict[str, object]:
        """All places, each with its name, its tags and its present owner."""
        await self._sync()
        places = self._session.places.values()
        return {
            "places": [
                {"name": p.name, "tags": p.tags, "acquired": p.acquired, "allowed": sorted(p.allowed)} for p in places
            ]
        }

    async def reserve(self, tags: dict[str, str]) -> dict[str, object]:
        """Queue for a place with these tags; a place's name is its tag `name`."""
        filters = {"main": self._pb.Reservation.Filter(filter=tags)}
        created = await self._session.stub.CreateReservation(
            self._pb.CreateReservationRequest(filters=filters, prio=0.0)
        )
        return self._state_of(created.reservation)

    async def poll(self, token: str) -> dict[str, object]:
        """The state of a reservation, which expires unless it is polled at least once a minute."""
        polled = await self._session.stub.PollReservation(self._pb.PollReservationRequest(token=token))
        return self._state_of(polled.reservation)

    async def acquire(self, place: str) -> dict[str, object]:
        """Take a place."""
        await self._session.stub.AcquirePlace(self._pb.AcquirePlaceRequest(placename=place))
        return {}

    async def free(self, by: str) -> dict[str, object]:
        """Release all places of a session, and cancel its reservations; a failure does not stop the rest."""
        failed: list[str] = []

        async def tried(what: str, call: Any) -> Any:
            try:
                return await call
            except Exception as error:  # from labgrid or gRPC
                failed.append(f"{what}: {_words(error)}")

        stub = self._session.stub
        await self._sync()
        for place in self._session.places.values():
            if place.acquired == by:
                released = self._pb.ReleasePlaceRequest(placename=place.name, fromuser=by)
                await tried(f"place {place.name}", stub.ReleasePlace(released))
        lines = await tried("reservations", stub.GetReservations(self._pb.GetReservationsRequest()))
        for line in lines.reservations if lines else ():
            if line.owner == by:
                cancelled = self._pb.CancelReservationRequest(token=line.token)
                await tried(f"reservation {line.token}", stub.CancelReservation(cancelled))
        if failed:
            raise RuntimeError("; ".join(failed))
        return {}

    async def resources(self, place: str) -> dict[str, object]:
        """The class and the parameters of each resource of an acquired place."""
        await self._sync()
        resources = []
        for exporter, group, cls, name in self._session.places[place].acquired_resources:
            entry = self._session.resources.get(exporter, {}).get(group, {}).get(name)
            if entry is not None:
                resources.append({"cls": cls, "params": entry.args, "extra": entry.extra})
        return {"resources": resources}

    async def power(self, place: str, action: str) -> dict[str, object]:
        """Switch the power of a place with labgrid's own client, which has a driver for each kind of switch."""
        client = [sys.executable, "-m", "labgrid.remote.client", "-x", self._coordinator, "-p", place, "power", action]
        done = subprocess.run(
            client, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_POWER_S
        )
        if done.returncode:
            raise RuntimeError((done.stderr.strip() or done.stdout.strip() or f"status {done.returncode}")[-500:])
        return {}

    async def _sync(self) -> None:
        if not await self._session.sync_with_coordinator():
            raise RuntimeError("the coordinator ended the session")

    def _state_of(self, line: Any) -> dict[str, object]:
        """The token, the state (waiting, allocated, acquired, expired or invalid) and the place of a reservation."""
        from labgrid.remote.common import ReservationState

        return {
            "token": line.token,
            "standing": ReservationState(line.state).name,
            "place": line.allocations.get("main", ""),
        }


def _words(error: Exception) -> str:
    details = getattr(error, "details", None)  # gRPC's errors have this
    return " ".join(str(details() if callable(details) else error).split())[:500] or type(error).__name__


def _say(**said: Any) -> None:
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
