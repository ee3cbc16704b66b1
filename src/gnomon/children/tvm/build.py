"""Compiles a layer with a configuration, or the opened network with a configuration for each layer."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.driver import build
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
from tvm.support import cc

from ..frame import Arrays, Facts, Job, Refused, Work
from . import workload as tvm_workload
from .bench import write_arrays
from .model import Opened, signature


def jobs(opened: Opened) -> dict[str, Work]:
    """The jobs. `build` compiles one layer, `network` the opened network."""
    return {"build": _build, "network": lambda job: _network(opened, job)}


def _build(job: Job) -> Facts:
    """Job: layer, workload, trace (null: untuned), target, linker, library; cpu_s, the processor time after which the
    kernel ends this process (if missing: no limit). Facts: outputs.
    """
    signal.setitimer(signal.ITIMER_PROF, job.get("cpu_s", 0))
    try:
        target = tvm_workload.target_of(job["target"])
        workload = tvm_workload.workload_of(job["workload"], job["layer"])
        schedule = tvm_workload.scheduled(workload, job["trace"], target)
        module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod)
        _export(build(module, target=target), job)
        return {"outputs": signature(workload.mod)[1]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _network(opened: Opened, job: Job) -> Facts:
    """Job: records [[layer, workload, trace]..], target, linker, library, seed; layers and inputs: the paths for a
    library of the network's functions, each callable by its name, and for random inputs ("": not written).

    Facts: functions, and how many of them are `scheduled`. Refused if a record matched no function, so that an unused
    configuration is not taken for a used one.
    """
    module, target = opened.ready(), tvm_workload.target_of(job["target"])
    database = ms.database.MemoryDatabase()
    for layer, text, trace in job["records"]:
        workload = tvm_workload.workload_of(text, layer)
        record = tvm_workload.record_of(workload, trace, [1e-3], target)
        own = database.commit_workload(workload.mod)
        database.commit_tuning_record(ms.database.TuningRecord(record.trace, own, [1e-3], target, record.args_info))
    if job["records"]:
        with target, database, tvm.transform.PassContext(opt_level=3):
            module = relax.transform.MetaScheduleApplyDatabase(enable_warning=False)(module)
    functions = [f for f in module.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    done = sum(1 for f in functions if f.attrs is not None and "tirx.is_scheduled" in f.attrs)
    if done < len(job["records"]):
        raise Refused(f"the network has {done} of {len(job['records'])} tuned layers: the records do not belong to it")
    _export(tvm.compile(module, target=target), job)
    if job.get("layers"):
        _export(build(_apart(module), target=target), {**job, "library": job["layers"]})
    if job.get("inputs"):
        _write_inputs(opened, job)
    return {"functions": len(functions), "scheduled": done}


def _apart(module: Any) -> Any:
    """The functions of a network in a separate module, because the executable's own functions cannot be timed one by
    one over RPC.
    """
    functions = {
        name: function.with_attr("global_symbol", name.name_hint)
        for name, function in module.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }
    return RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(tvm.IRModule(functions))


def _export(executable: Any, job: Job) -> None:
    """Write a shared library, either completely or not at all."""
    part = job["library"] + ".part.so"
    try:
        if words := shlex.split(job.get("linker", "")):
            executable.export_library(part, fcompile=cc.cross_compiler(words[0], options=words[1:]))
        else:
            executable.export_library(part)
        Path(part).replace(job["library"])
    finally:
        Path(part).unlink(missing_ok=True)


def _write_inputs(opened: Opened, job: Job) -> None:
    """Write random inputs from a seed, in the order of the network's inputs; integers are 0, which is valid for any
    index.
    """
    rng = np.random.default_rng(job.get("seed", 0))
    arrays: Arrays = {}
    for number, (_, dtype, dims) in enumerate(opened.inputs):
        floating = dtype.startswith("float")
        arrays[f"in_{number}"] = rng.standard_normal(dims).astype(dtype) if floating else np.zeros(dims, dtype)
    arrays["names"] = np.array(json.dumps([name for name, _, _ in opened.inputs]))
    write_arrays(job["inputs"], arrays)
