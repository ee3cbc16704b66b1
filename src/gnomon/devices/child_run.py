"""Many jobs by child programs: each started once, several side by side, and one lost costs the job that it was at."""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.devices.child_process import ChildProcess, Program
from gnomon.devices.guard import Guard

_MOST_STARTS = 2
"""A program that cannot be started twice in a row is not started for the rest either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job for a child program: `message` is what it is sent, `log` gets what it prints, `stage` names its failure."""

    key: str
    message: Mapping[str, Any]
    stage: str
    log: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of an order: facts of a job that was done, or its failure."""

    order: Order
    seconds: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    failure: Failure | None = None


def run_orders(program: Program, orders: Sequence[Order]) -> Iterator[Reply]:
    """Yield a reply for each order as soon as it is there; no process is left when the iterator ends or is closed."""
    if not orders:
        return
    home = Path(tempfile.mkdtemp(prefix="gnomon-child-"))
    guard = Guard(home)
    crew = _Crew(program, orders, home, guard)
    threads = [
        threading.Thread(target=crew.work, name=f"{program.name}-{number}", daemon=True)
        for number in range(min(program.workers, len(orders)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in orders:
            reply = crew.replies.get()
            if isinstance(reply, BaseException):
                raise reply
            yield reply
    finally:
        crew.stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        shutil.rmtree(home, ignore_errors=True)
        guard.close()


class _Crew:
    """The threads' common state: what is to be done, what was done, and whether the program can be used at all."""

    def __init__(self, program: Program, orders: Sequence[Order], home: Path, guard: Guard) -> None:
        self.replies: queue.SimpleQueue[Reply | BaseException] = queue.SimpleQueue()
        self.stop = threading.Event()
        self._program, self._home, self._guard = program, home, guard
        self._waiting = deque(orders)
        self._unusable: Failure | None = None

    def work(self) -> None:
        """Do orders until there are none; what is raised goes to who waits for replies."""
        child: ChildProcess | None = None
        versions: dict[str, Any] = {}
        try:
            while not self.stop.is_set():
                try:
                    order = self._waiting.popleft()
                except IndexError:
                    return
                began_s = time.monotonic()
                if child is None or not child.alive:
                    if child is not None:
                        child.kill()
                    child, versions = self._started()
                    # The start is not a share of the job that happens to be the first.
                    began_s = time.monotonic()
                self.replies.put(self._reply(order, child, versions, began_s))
        except BaseException as error:
            self.replies.put(error)
        finally:
            if child is not None:
                child.kill()

    def _reply(self, order: Order, child: ChildProcess | None, versions: dict[str, Any], began_s: float) -> Reply:
        if child is None:
            return Reply(order=order, seconds=0.0, failure=self._unusable)
        message = {**order.message, "log": str(order.log) if order.log else ""}
        said = child.ask(message, stage=order.stage, timeout_s=self._program.job_timeout_s, log=order.log)
        took_s = time.monotonic() - began_s
        if isinstance(said, Failure):
            return Reply(order=order, seconds=took_s, versions=versions, failure=said)
        return Reply(order=order, seconds=took_s, versions=versions, facts=said)

    def _started(self) -> tuple[ChildProcess | None, dict[str, Any]]:
        """A child that is ready, with the versions that it told; None where the program cannot be used."""
        for _ in range(_MOST_STARTS):
            if self._unusable is not None or self.stop.is_set():
                break
            child = ChildProcess(self._program, self._home, self._guard, self.stop)
            said = child.ready(self._program.start_timeout_s)
            if not isinstance(said, Failure):
                return child, said
            child.kill()
            problem = said
        else:
            self._unusable = problem
        return None, {}
