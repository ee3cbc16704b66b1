"""Backends for the operators of an nnpackage: what `gnomon stab` does, as a function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from gnomon.api.options import Options, PathLike, model_request
from gnomon.jobs.stab import job
from gnomon.measure.progress import Watch


def stab(
    nnpackage: PathLike,
    *,
    traces: PathLike = "traces",
    out: PathLike | None = None,
    measure: bool = True,
    compat: bool = False,
    overwrite: bool = False,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    step: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> job.Scheduled:
    """Choose onert's backend for each operator of an nnpackage, and write the nnpackage with it to `out`.

    Without `measure` it decides from the files in `traces` alone. `compat` writes what ONE's stab would decide. `step`
    hears of each step. Raises GnomonError.
    """
    request = job.StabRequest(
        measuring=model_request(nnpackage, options),
        traces=Path(traces),
        out=Path("nnpkg_sched") / job.package_name(Path(nnpackage)) if out is None else Path(out),
        profile=measure,
        compat=compat,
        overwrite=overwrite,
    )
    return job.stab(request, watch=on_progress, tell=on_message, step=step)
