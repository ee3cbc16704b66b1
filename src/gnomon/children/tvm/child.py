"""Apache TVM as a child program: reads networks, searches schedules, compiles, and measures over RPC or in this
process.

Each part runs in a separate process, so that a crash of one does not affect the others. The modules `model`, `search`,
`build` and `bench` describe the jobs. Values for which TVM has no name are named as in the record file
(docs/jobs/tune.md).
"""

from __future__ import annotations

import os
import sys
import types
from importlib.metadata import PackageNotFoundError, version

from ..frame import Facts, Job, Refused, Settings, Work, absent

NEEDED = ("tvm", "tvm_ffi", "numpy", "onnx")
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "xgboost-cpu")


def setup(settings: Settings) -> tuple[Work, dict[str, str]]:
    """Loads TVM, and tries the part that crashes with incompatible versions before anything depends on it."""
    if settings.get("pin"):
        os.sched_setaffinity(0, settings["pin"])  # before TVM starts its threads, which inherit the setting
    versions = {name: number for name in _PACKAGES if (number := _version(name))}
    with absent("torch"):  # TVM spends two thirds of its start on importing torch, but works without it
        import tvm
        from tvm.s_tir import meta_schedule

    # TuneContext imports this module for its side effect: 15 s of parsing tensor instructions that no schedule here
    # uses.
    sys.modules["tvm.s_tir.tensor_intrin"] = types.ModuleType("tvm.s_tir.tensor_intrin")
    from . import bench as tvm_bench
    from . import build as tvm_build
    from . import model as tvm_model
    from . import reference as tvm_reference
    from . import search as tvm_search

    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    meta_schedule.TuneContext(mod=tvm_search.smallest(), target=target, space_generator=tvm_search.space())
    here = tvm_bench.here()
    model = tvm_model.Opened()
    parts: dict[str, Work] = {
        **tvm_model.jobs(model),
        **tvm_search.jobs(),
        **tvm_build.jobs(model),
        **tvm_bench.jobs(),
        **tvm_reference.jobs(),
        "here": lambda job: here,
    }

    def work(job: Job) -> Facts:
        if job.get("do") not in parts:
            raise Refused(f"no such job: {job.get('do')!r}")
        return parts[job["do"]](job)

    return work, versions


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
