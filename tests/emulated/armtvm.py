"""A server of TVM's RPC protocol on the emulated aarch64 machine: TVM's wheels for it, and TVM's own server program.

Nothing of it is changed: the program starts its worker by `sys.executable`, which is the wrapper that emulates.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.devices.shell.sshkit import free_port
from tests.emulated.armkit import Emulated, unpack_wheels
from tests.tuning.tvmkit import LOOPBACK, living

from gnomon.runtimes.tvm import Tvm
from gnomon.system.process import Guard
from gnomon.tuning.tracker import Tracker, address_of

WHEELS = (*Tvm.wheels[:2], "ml_dtypes==0.6.0", "typing_extensions==4.16.0", "psutil==7.2.2", "cloudpickle==3.1.2")
#: 228 of 268 MB, which only a machine that compiles needs.
_COMPILER = "tvm/lib/libtvm_compiler.so"
_PORTS = 64
_START_S = 180.0
_END_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmServer:
    """A server that its tracker lists: its key, HOST:PORT, its process group, what it prints."""

    key: str
    address: str
    group: int
    log: Path

    @property
    def commands(self) -> list[str]:
        """The command lines of its processes that run."""
        return [Path(f"/proc/{n}/cmdline").read_bytes().replace(b"\0", b" ").decode() for n in living(self.group)]


def tvm_packages(arm: Emulated) -> Path:
    """TVM's runtime for the emulated machine, beside its other packages; downloaded if it is not there yet (98 MB)."""
    folder = arm.root / "tvm"
    if not folder.exists():
        building = Path(tempfile.mkdtemp(prefix="tvm.", dir=arm.root))
        try:
            unpack_wheels(WHEELS, building)
            (building / _COMPILER).unlink()
            building.rename(folder)
        except OSError:
            if not folder.exists():  # else somebody else made it meanwhile
                raise
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return folder


@contextlib.contextmanager
def arm_server(arm: Emulated, tracker: Tracker, *, key: str, threads: int) -> Iterator[ArmServer]:
    """A server of the emulated machine at a tracker, ended whole after the block; also if these tests are killed."""
    guard = Guard()
    folder, port = guard.folder("gnomon-arm-server-"), free_port(LOOPBACK)
    log = folder / "log"
    listen = ["--host", LOOPBACK, "--port", str(port), "--port-end", str(min(port + _PORTS, 1 << 16))]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PYTHONPATH": f"{tvm_packages(arm)}:{arm.packages}",
        "TVM_USE_RUNTIME_LIB": "1",
        "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
        "TVM_NUM_THREADS": str(threads),
    }
    with log.open("wb") as written:
        process = guard.start(
            [str(arm.python), "-m", "tvm.exec.rpc_server", *listen, "--tracker", tracker.address, "--key", key],
            stdin=subprocess.DEVNULL,
            stdout=written.fileno(),
            stderr=written,
            env=environment,
            cwd=folder,
        )
    try:
        yield ArmServer(key=key, address=_listed(tracker, key, process, log), group=process.pid, log=log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(_END_S)
        guard.drop(process.pid)
        until_s = time.monotonic() + _END_S
        while (left := living(process.pid)) and time.monotonic() < until_s:
            time.sleep(0.05)
        guard.close()
        assert not left, f"{left} go on"


def _listed(tracker: Tracker, key: str, process: subprocess.Popen[bytes], log: Path) -> str:
    """Its address, once its tracker has it."""
    until_s = time.monotonic() + _START_S
    while not (found := tracker.summary().of(key)):
        told = log.read_text(errors="replace")[-2000:]
        assert process.poll() is None, f"the server ended: {told}"
        assert time.monotonic() < until_s, f"the tracker does not list the server: {told}"
        time.sleep(0.5)
    return address_of(*found[0].addr)
