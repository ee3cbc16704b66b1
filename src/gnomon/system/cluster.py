"""The way to a Dask cluster: whatever gives work to other machines connects here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gnomon.core.installing import install_line
from gnomon.errors import DeviceError, RuntimeMissingError, UsageError

_CONNECT_S = 20
_SCHEMES = ("tcp://", "tls://")


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of a cluster by its scheduler's address.

    UsageError for another kind of address, RuntimeMissingError without Dask, DeviceError for a scheduler that does not
    answer.
    """
    if not address.startswith(_SCHEMES):
        raise UsageError(f"{address!r} is not a scheduler's address", hint="Addresses are such as tcp://10.0.0.5:8786.")
    try:
        import distributed
    except ImportError as error:
        raise RuntimeMissingError(
            f"Dask cannot be loaded: {error}", hint=install_line("cluster", python=sys.executable)
        ) from error
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
