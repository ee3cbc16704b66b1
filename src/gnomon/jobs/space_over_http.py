"""Networks measured by a server that a compiled model is sent to, such as a board with a DPU."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gnomon.core.sample import Failure
from gnomon.core.strict_json import Strict
from gnomon.devices.dpu_http import DpuReply, DpuServer, check_server, kernel_name_of, measure_by_http
from gnomon.errors import ProblemError, UsageError
from gnomon.formats.dpu_profile import read_dpu_profile
from gnomon.jobs.saving import save_text
from gnomon.jobs.space_folder import LatencyRow, file_stem
from gnomon.jobs.steps import Steps
from gnomon.measure.progress import Watch

_STRICT = Strict(what="reply", hint="The server is none of the kind that is spoken of here.", most_letters=1 << 22)

_MOST_PROCESSES = 1_000_000


def measure_over_http(
    server: DpuServer | None, models: Mapping[str, tuple[LatencyRow, Path]], folder: Path, watch: Watch | None
) -> Iterator[LatencyRow]:
    """Send each model to the server and yield its row with the time that came back, or the reason why none did.

    Replies are kept as they came: `vitis/<id>.latency.txt`. UsageError where no server is named, DeviceError where the
    way to it fails: what was measured until then has been yielded.
    """
    if server is None:
        raise UsageError("this toolchain measures over HTTP, and no server is named", hint="Give --dpu-url URL.")
    check_server(server)
    where = folder / "vitis"
    where.mkdir(exist_ok=True)
    steps = Steps("networks measured over HTTP", watch)
    steps.expect(len(models))
    for name, (row, path) in models.items():
        reply = measure_by_http(server, path, kernel_name_of(name))
        if isinstance(reply, Failure):
            yield replace(row, reason=reply.message, at_s=time.time())
        else:
            save_text(reply.body, where / f"{file_stem(name)}.latency.txt", option="--profile-dir")
            yield _row(row, reply)
        steps.step(1)


def _row(row: LatencyRow, reply: DpuReply) -> LatencyRow:
    """A row with the time of a reply; one that cannot be understood is the reason."""
    try:
        if not reply.is_json:
            return replace(row, call_s=read_dpu_profile(reply.body) * 1e-3, processes=1, at_s=time.time())
        told = _STRICT.object(_STRICT.parse(reply.body), "$")
        times = [_seconds(told.get(name)) for name in ("latency_s", "low_s", "high_s")]
    except ProblemError as error:
        return replace(row, reason=error.message, at_s=time.time())
    latency, low, high = times
    if latency is None:
        return replace(row, reason="the reply has no latency_s above 0", at_s=time.time())
    known = low is not None and high is not None and low <= latency <= high
    processes = told.get("processes")
    return replace(
        row,
        call_s=latency,
        low_s=low if known else None,
        high_s=high if known else None,
        processes=processes if type(processes) is int and 0 < processes <= _MOST_PROCESSES else 1,
        clock=str(told.get("clock", ""))[:20],
        at_s=time.time(),
    )


def _seconds(value: object) -> float | None:
    """A time above 0 that can be meant, else None."""
    return float(value) if type(value) in (int, float) and 0 < value < 1e6 else None  # type: ignore[operator,arg-type]
