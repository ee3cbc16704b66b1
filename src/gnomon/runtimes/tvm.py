"""Apache TVM: a whole ONNX model compiled for the device's processor, with or without tuning records."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.core.stats import median
from gnomon.errors import ModelError, UsageError
from gnomon.models.model import read_regular
from gnomon.runtimes.base import Configuration, Probe, RunSettings, environment_variants
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import TOLERANCE, WholeModelRuntime, labelled

RECORDS = "GNOMON_TVM_RECORDS"
"""The variable that names a file of tuning records on this machine. No process gets the variable; the traces in the
records are sent instead.
"""

_BACKEND = "llvm"
_MOST_BYTES = 256 << 20


class Tvm(WholeModelRuntime):
    """The adapter of TVM. It is tried only if named, because without records it is far slower than other runtimes.

    Compiling also takes seconds, and longer on a small board.
    """

    name = "tvm"
    by_name_only = True
    # Versions of the first two that do not fit together crash in the middle of a job.
    wheels: tuple[str, ...] = ("apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post1", "onnx>=1.17")
    tunings: tuple[Tuning, ...] = (THREADS,)

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """One float32 configuration for each environment; if `RECORDS` names tuning records, the model is compiled with
        them.

        UsageError if a file of records cannot be read, is meant for something other than a processor, or has no usable
        record.
        """
        probe.requested(self.name, settings)
        return tuple(
            _configuration(settings, environment) for _, environment in environment_variants(settings, self.name)
        )


def _configuration(settings: RunSettings, environment: Mapping[str, str]) -> Configuration:
    options: dict[str, object] = {"threads": settings.threads}
    labels = [f"{k}={v}" for k, v in sorted(environment.items()) if k != RECORDS]
    if RECORDS in environment:
        path = Path(environment[RECORDS])
        options["records"] = packed = _packed(path)
        labels.insert(0, f"records={path.stem}#{hashlib.sha256(packed.encode()).hexdigest()[:8]}")
    return Configuration(
        runtime=Tvm.name,
        name=labelled(Tvm.name, *labels),
        backends=(_BACKEND,),
        options=options,
        environment={k: v for k, v in environment.items() if k != RECORDS},
        # Compiled code calls TVM's own library for operations that TVM does not compile (sorting, random numbers).
        reported={_BACKEND: _BACKEND, "extern": _BACKEND},
    )


def _packed(path: Path) -> str:
    """The best trace of each layer in the driver's format, small enough to be sent to any device with the job."""
    try:
        data = read_regular(path, _MOST_BYTES)
    except ModelError as error:
        raise UsageError(
            f"the tuning records: {error.message}", hint=f"Set {RECORDS} to a file that gnomon tune wrote here."
        ) from error
    from gnomon.formats.tuning.logs import kind_problem
    from gnomon.formats.tuning.records import read_tuning_records

    records = read_tuning_records(data)
    if records.tuner != "metaschedule":
        raise UsageError(
            f"{path} holds records of {records.tuner}, but TVM applies only those of metaschedule",
            hint="Create records with gnomon tune.",
        )
    if (problem := kind_problem(records.device.target)) is not None:
        raise UsageError(f"{path} cannot be used: {problem}", hint="Create records with gnomon tune.")
    traces = best_traces(records)
    if not traces:
        raise UsageError(
            f"{path} has no layer that a record makes faster", hint="Tune for longer, or leave the records out."
        )
    text = json.dumps(traces, sort_keys=True, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def best_traces(records: TuningRecords) -> dict[str, object]:
    """By layer: the trace with the lowest median over the samples of all its trials.

    Layers that are fastest untuned have no trace. Trials that failed or gave wrong outputs do not count.
    """
    from gnomon.core.overlay.trials import columns_of

    samples: dict[tuple[str, str], list[float]] = {}
    traces: dict[tuple[str, str], Any] = {}
    columns = columns_of(records.trials)
    for trial in columns.by_wall(columns.without_cpu()):
        if trial.time_s is None or (trial.error or 0.0) > TOLERANCE["float32"]:
            continue
        key = (trial.layer, trial.configuration)
        samples.setdefault(key, []).extend(trial.samples_s)
        traces[key] = trial.trace
    best: dict[str, Any] = {}
    for key in sorted(samples, key=lambda key: median(samples[key])):
        best.setdefault(key[0], traces[key])
    return {layer: trace for layer, trace in sorted(best.items()) if trace is not None}


if TYPE_CHECKING:
    from gnomon.core.overlay.records import TuningRecords
