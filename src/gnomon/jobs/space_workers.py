"""Independent pieces of work on several processors: a pool of processes here, or a Dask cluster where one is named.

Both are behind `concurrent.futures.Executor`, and nothing above this file knows which it is.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from gnomon.core.installing import install_line
from gnomon.core.sample import Failure
from gnomon.errors import DeviceError, RuntimeMissingError, UsageError

Found = TypeVar("Found")

_TRIES = 2
"""How often a piece of work may lose its worker while it is alone before it counts as what ends workers."""

_GUARD = "In a script, call it from a function that is called below `if __name__ == '__main__':`."
_CONNECT_S = 20
_SCHEMES = ("tcp://", "tls://")


@contextmanager
def open_executor(workers: int, cluster: str | None) -> Iterator[Executor]:
    """An executor of `workers` processes on this machine, or of a Dask cluster by its scheduler's address.

    What has not begun when it is closed is dropped. UsageError for another kind of address, RuntimeMissingError without
    Dask, DeviceError for a scheduler that does not answer.
    """
    if cluster is None:
        with _pool(workers) as pool:
            yield pool
    else:
        with _dask(cluster) as executor:
            yield executor


def run_all(
    workers: int, cluster: str | None, work: Callable[..., Found], jobs: Mapping[str, tuple[Any, ...]]
) -> Iterator[tuple[str, Found | Failure]]:
    """Do `work(*arguments)` for each job, in no order; yields each with what it returned as soon as it is known.

    `work` is a function of a module, so that a worker can import it. Jobs that were under way when a worker died are
    done again one by one, so that who ends workers is known: it is a Failure "crash" when it did so twice by itself.
    What `work` raises goes on to the caller. At most twice as many jobs as workers are under way.
    """
    suspects: list[str] = []
    todo = list(jobs)
    while todo:
        lost = yield from _done_until_broken(workers, cluster, work, {key: jobs[key] for key in todo})
        suspects += lost.suspects
        todo = lost.untouched
    for key in suspects:
        for _ in range(_TRIES):
            lost = yield from _done_until_broken(1, cluster, work, {key: jobs[key]})
            if not lost.suspects:
                break
        else:
            message = f"its worker ended {_TRIES} times while it was at this alone"
            yield key, Failure(stage="run", kind="crash", transient=False, message=message)


@dataclass(frozen=True, slots=True)
class _Lost:
    """Jobs that were under way when a worker died, and those that had not begun."""

    suspects: list[str]
    untouched: list[str]


def _done_until_broken(
    workers: int, cluster: str | None, work: Callable[..., Found], jobs: Mapping[str, tuple[Any, ...]]
) -> Generator[tuple[str, Found], None, _Lost]:
    """Results as they come, until all are done or a worker is lost."""
    todo, running, suspects = list(jobs), dict[Future[Found], str](), list[str]()
    with open_executor(workers, cluster) as executor:
        room = 2 * _width(executor)
        while todo or running:
            try:
                while todo and not suspects and len(running) < room:
                    running[executor.submit(work, *jobs[todo[0]])] = todo[0]
                    todo.pop(0)
            except RuntimeError as failed:
                if not _worker_lost(failed) or not running:
                    raise
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                key, error = running.pop(future), future.exception()
                if error is None:
                    yield key, future.result()
                elif _worker_lost(error):
                    if isinstance(executor, _Pool) and not executor.begun.is_set():
                        raise UsageError("no worker could begin", hint=_GUARD) from error
                    suspects.append(key)
                else:
                    raise error
    return _Lost(suspects, todo)


def _worker_lost(error: BaseException) -> bool:
    """Whether it says that a worker died: a pool's, or Dask's after its own tries."""
    return type(error).__name__ in {"BrokenProcessPool", "KilledWorker"}


def _width(executor: Executor) -> int:
    """About how many jobs run at once."""
    found = getattr(executor, "_max_workers", None)
    return found if isinstance(found, int) else _dask_width(executor)


class _Pool(ProcessPoolExecutor):
    """A pool that knows whether any of its processes ever came to take work."""

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.begun = context.Event()
        super().__init__(workers, mp_context=context, initializer=_begin, initargs=(os.getpid(), self.begun))


@contextmanager
def _pool(workers: int) -> Iterator[_Pool]:
    if workers < 1:
        raise UsageError(f"{workers} workers are asked for", hint="Give at least 1.")
    if multiprocessing.parent_process() is not None:
        # A worker imports the script that started it; if that starts workers too, there is no end.
        raise UsageError("workers are started while a worker imports this script", hint=_GUARD)
    pool = _Pool(workers)
    try:
        yield pool
    except BaseException:
        # Work under way may take minutes: who interrupts does not wait for it.
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown(wait=True, cancel_futures=True)


def _begin(parent: int, begun: Any) -> None:
    """What a worker does first: it is there, and it ends when who started it is gone."""
    begun.set()
    _end_with(parent)


def _end_with(parent: int) -> None:
    """Let a worker end when who started it is gone, however that ended; an interrupt is not for it to tell of."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise RuntimeMissingError(
            f"Dask cannot be loaded: {error}", hint=install_line("cluster", python=sys.executable)
        ) from error
    return distributed


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    if not address.startswith(_SCHEMES):
        raise UsageError(f"{address!r} is no scheduler's address", hint="Addresses are such as tcp://10.0.0.5:8786.")
    distributed = _distributed()
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise DeviceError(
            f"no Dask scheduler answers at {address}: {error}",
            hint="Start one: dask scheduler --host 127.0.0.1, and workers: dask worker ADDRESS --nthreads 1.",
            transient=True,
        ) from error
    with client:
        executor: Executor = client.get_executor(retries=_TRIES, pure=False)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)


def _dask_width(executor: Executor) -> int:
    client = getattr(executor, "_client", None)
    return max(1, len(client.scheduler_info()["workers"])) if client is not None else 1
