"""The process of a job on a device: waits until the device is free, then does what `gnomon` would do there.

Started by `gnomon.devices.unattended_program` with the job's folder and the open lock of it, which it holds to its end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

_RETRY_S = 1.0
_DEVICE_FAILED = 6
_DEFECT = 70
_TERMINATED = 143


class Ended(BaseException):
    """SIGTERM came while nothing ran yet."""


def main(arguments: Sequence[str]) -> int:
    """Do the job in a folder; its exit code also goes into the file exit.json, which says that it has ended."""
    folder, lock = Path(arguments[0]), int(arguments[1])
    os.set_inheritable(lock, False)
    signal.signal(signal.SIGTERM, _ended)
    code = _DEFECT
    try:
        command = json.loads((folder / "job.json").read_text(encoding="utf-8"))["command"]
        code = _done(folder, command)
    except (Ended, KeyboardInterrupt):
        code = _TERMINATED
    except BaseException:
        traceback.print_exc()
    finally:
        part = folder / "exit.json.part"
        part.write_text(json.dumps({"code": code, "at_s": time.time()}), encoding="utf-8")
        part.replace(folder / "exit.json")
    return code


def _done(folder: Path, command: Sequence[str]) -> int:
    """Run the command with its standard output in out/document.json, again if another was quicker to the device."""
    from gnomon.cli.main import run

    part = folder / "out" / "document.json.part"
    while True:
        _wait_for_device()
        with part.open("wb") as file:
            os.dup2(file.fileno(), 1)
        code = run(command)
        sys.stdout.flush()
        if code != _DEVICE_FAILED or _holder() is None:
            break
    part.replace(folder / "out" / "document.json")
    return code


def _wait_for_device() -> None:
    """Until nobody else measures here, however long that takes: nobody waits for this job either."""
    from gnomon.cli.progress_file import ProgressFile
    from gnomon.devices.unattended_state import WAITING

    file = ProgressFile.named()
    told = ""
    while (holder := _holder()) is not None:
        if holder != told:
            told = holder
            file.write(WAITING, 0, 1, why=f"process {holder.partition(',')[0]} measures there")
        time.sleep(_RETRY_S)
    if told:
        file.write("look at the model and the runtimes", 0, 1)


def _holder() -> str | None:
    from gnomon.devices.address import LOCAL
    from gnomon.devices.lease import lease_folder, lease_holder

    return lease_holder(lease_folder(), LOCAL)


def _ended(number: int, frame: FrameType | None) -> None:
    raise Ended
