"""The connection to a Dask cluster, for everything that gives work to other machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gnomon.errors import DeviceError, UsageError
from gnomon.installing import needed

_CONNECT_S = 20
_MANY_THREADS = 8
UNPROFILED = "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False"
"""The variable for starting a worker without Dask's profiler, which samples all of its threads continuously."""

_SCHEMES = ("tcp://", "tls://")


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the cluster with this scheduler address.

    UsageError for any other kind of address, RuntimeMissingError if Dask is missing, and DeviceError if the scheduler
    does not answer.
    """
    if not address.startswith(_SCHEMES):
        raise UsageError(f"{address!r} is not a scheduler's address", hint="Write it like tcp://10.0.0.5:8786.")
    with needed("Dask cannot be loaded", "cluster"):
        import distributed
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise DeviceError(
            f"no Dask scheduler answers at {address}: {error}",
            hint="Start one: dask scheduler --host 127.0.0.1, and workers: dask worker ADDRESS --nthreads 1.",
            transient=True,
        ) from error
    with client:
        yield client


def profiled(client: Any) -> str:
    """A sentence about Dask's profiler if a worker with many threads runs it, otherwise "".

    The profiler is switched on or off when a worker starts, and gnomon does not change that.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    many = [address for address, worker in workers.items() if worker["nthreads"] > _MANY_THREADS]
    if not many or not any(client.run(_profiles, workers=many[:1]).values()):
        return ""
    threads = workers[many[0]]["nthreads"]
    return f"Dask's profiler samples {threads} threads of a worker 100 times a second: start workers with {UNPROFILED}"


def _profiles() -> bool:
    """Return True if this worker has Dask's profiler on."""
    import dask

    return bool(dask.config.get("distributed.worker.profile.enabled", default=True))
