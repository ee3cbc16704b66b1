"""Measures a device behind SSH: the overhead of a command, and the speed of pushing a new and an unchanged file.

Starts an SSH server on this machine, so the network is the loopback interface, and the device's disk is this machine's.
For comparison, `true` is run alternately on a local device. Prints one JSON document.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, publish, spread
from gnomon.devices.base import Device
from gnomon.devices.local import LocalDevice
from gnomon.devices.shell.ssh import SshDevice

RUNS = 300
PUSHES = 5
SIZE_BYTES = 100_000_000


def _true_ms(device: Device) -> float:
    start = time.perf_counter()
    done = device.run(["true"], env={}, timeout_s=60)
    assert done.ok
    return 1e3 * (time.perf_counter() - start)


def _push_bytes_per_s(device: Device, path: Path) -> float:
    start = time.perf_counter()
    device.push(path, path.name)
    return SIZE_BYTES / (time.perf_counter() - start)


def measure(folder: Path) -> dict[str, Any]:
    """Open the device, run commands, and push; return all figures with their spread."""
    from tests.devices.shell.sshkit import ssh_server  # found by what `common` adds to the path

    os.environ["GNOMON_LEASES"] = str(folder / "leases")
    with ssh_server(folder / "server") as server:
        start = time.perf_counter()
        with SshDevice(server.settings()) as device, LocalDevice() as local:
            open_ms = 1e3 * (time.perf_counter() - start)
            first_ms = _true_ms(device)
            far, near = zip(*((_true_ms(device), _true_ms(local)) for _ in range(RUNS)), strict=True)
            new, unchanged, unchanged_known = [], [], []
            for number in range(PUSHES):
                path = folder / f"file{number}"
                path.write_bytes(os.urandom(SIZE_BYTES))
                new.append(_push_bytes_per_s(device, path))
                unchanged.append(_push_bytes_per_s(device, path))  # too new for its digest to be cached
                time.sleep(2.5)
                _push_bytes_per_s(device, path)
                unchanged_known.append(_push_bytes_per_s(device, path))
        return {
            "open_and_local_open_ms": open_ms,
            "first_true_ms": first_ms,
            "true_ms": spread(list(far)),
            "true_p90_ms": sorted(far)[int(0.9 * RUNS)],
            "local_true_ms": spread(list(near)),
            "push_bytes": SIZE_BYTES,
            "push_new_bytes_per_s": spread(new),
            "push_unchanged_bytes_per_s": spread(unchanged),
            "push_unchanged_and_known_bytes_per_s": spread(unchanged_known),
        }


def main() -> None:
    """Parse the arguments, measure, and print."""
    from tests.devices.shell.sshkit import missing

    asked = arguments(__doc__)
    if what := missing():
        raise SystemExit(what)
    with tempfile.TemporaryDirectory(prefix="gnomon-benchmark-") as folder:
        publish(measure(Path(folder)), asked)


if __name__ == "__main__":
    main()
