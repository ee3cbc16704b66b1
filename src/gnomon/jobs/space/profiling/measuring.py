"""Measures the networks of a study as a toolchain makes them: each is written, quantised, checked, timed and recorded.

The checks of quantised models show how well they classify, and whether their convolutions really read and return 8-bit
values. A comparison with the rows of the float32 toolchain shows whether quantised models are faster. A command named
by the user can time the toolchain's models in place of a runtime.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.codec import fields_of
from gnomon.core.sample import Failure
from gnomon.errors import GnomonError
from gnomon.jobs.space.profiling.folder import (
    LATENCY,
    MANIFEST,
    PROOF,
    LatencyRow,
    check_context,
    file_stem,
    measuring_context,
    writing,
)
from gnomon.jobs.space.profiling.images import write_calibration, write_validation
from gnomon.jobs.space.profiling.latency import measure_files
from gnomon.jobs.space.profiling.study import Network
from gnomon.jobs.space.profiling.training import OpenProfile, Workers, best_weights
from gnomon.measure.progress import Steps
from gnomon.models.exported import adopt, written_of
from gnomon.models.onnx.quantised import Quantised, read_quantised
from gnomon.models.units import OPSET, write_net
from gnomon.session.request import MeasureRequest
from gnomon.spaces.cells.space import model_weights, shared
from gnomon.system.files import file_digest
from gnomon.system.process import guarded_folder
from gnomon.toolchains.base import Artifact, Toolchain, ToolJob, check_ready
from gnomon.toolchains.evaluate import evaluate
from gnomon.training.export import ExportJob
from gnomon.training.worker import run_export


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurer:
    """Measures networks of a profile with their trained weights.

    An untrained network is measured with made-up weights, and its accuracy is not reported. `calibration` has the
    images that a quantiser sees (None: some training images). With `proof`, new rows are marked as proofs. A marked row
    that is requested again without `proof` loses the mark and counts as evidence from then on. `seconds` has the
    wall-clock seconds that each part of the work took.
    """

    profile: OpenProfile
    calibration: NDArray[np.uint8] | None
    proof: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def _path(self) -> Path:
        return self.profile.folder.path

    def check(self, toolchain: Toolchain, settings: Mapping[str, object]) -> dict[str, str]:
        """The context of a toolchain's measurements with these settings; nothing is measured yet.

        RuntimeMissingError if the toolchain lacks something; UsageError if its networks were measured in another
        context.
        """
        check_ready(toolchain)
        request = self._request(toolchain)
        context = measuring_context(request, settings)
        check_context(self.profile.folder.latency.values(), toolchain.name, context)
        return context

    def _request(self, toolchain: Toolchain) -> MeasureRequest:
        """The request for measuring a toolchain's models by the user's command, or else by its runtime."""
        request = self.profile.asked.request
        return replace(request, runtimes=() if request.settings.commands else (toolchain.runtime,))

    def run(
        self, toolchain: Toolchain, settings: Mapping[str, object], networks: Sequence[Network]
    ) -> dict[str, LatencyRow]:
        """The rows of networks as this toolchain makes them, by id; networks in the journal are not measured again.

        Raises the errors of `check`, of the device and of the connection to it.
        """
        context = self.check(toolchain, settings)
        with self._took("write"):
            models, trained, unwritten = self._models(networks)
        rows, done = dict[str, LatencyRow](), dict[str, LatencyRow]()
        for n in networks:
            key = f"{toolchain.name}/{file_digest(models[n.id])[:12] if n.id in models else 'none'}/{n.id}"
            bare = LatencyRow(
                key=key,
                network=n.id,
                primitives=n.primitives,
                toolchain=toolchain.name,
                at_s=time.time(),
                context=context,
                proof=self.proof,
            )
            if n.id in unwritten:  # tried again in a later call, because the user may have corrected the blocks
                done[n.id] = replace(bare, reason=f"PyTorch cannot export the network: {unwritten[n.id].message}")
                self.profile.folder.add(done[n.id])
            elif (row := self.profile.folder.latency.get(key)) is None:
                rows[n.id] = replace(bare, size=self.profile.study.size(n))
            elif row.proof and not self.proof:
                done[n.id] = replace(row, proof=False)
                self.profile.folder.add(done[n.id])
            else:
                done[n.id] = row
        if not rows:
            return done
        with self._took("make"):
            artifacts = self._make(toolchain, {name: models[name] for name in rows})
        rows = {name: self._with_artifact(row, artifacts[name]) for name, row in rows.items()}
        with self._took("check"):
            rows = self._checked(toolchain, rows, artifacts, trained)
        with self._took("measure"):
            for row in self._timed(toolchain, rows, artifacts):
                self._log(row, "measure", {**_outcome(row), "context": row.context})
                self.profile.folder.add(row)
                done[row.network] = row
        return {n.id: done[n.id] for n in networks}

    def _log(self, row: LatencyRow, step: str, facts: Mapping[str, object]) -> Path:
        """Begin the log of a step for a network with these facts, one per line, and return the log's path."""
        path = self._path / "log_files" / row.toolchain / f"{file_stem(row.network)}.{step}.log"
        lines = {"toolchain": row.toolchain, "network": row.network, "model": row.artifact, **facts}
        if (model := self._path / row.artifact).is_file():
            lines["SHA-256"] = file_digest(model)
        with writing(self._path):
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(f"{name}: {_line(value)}\n" for name, value in lines.items()), encoding="utf-8")
        return path

    @contextmanager
    def _took(self, part: str) -> Iterator[None]:
        """Add the time that the block takes, unless it raises, to the total for a part of the work."""
        start = time.monotonic()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.monotonic() - start

    def _models(self, networks: Sequence[Network]) -> tuple[dict[str, Path], set[str], dict[str, Failure]]:
        """The ONNX files by network id, the ids of trained networks, and the failures to write networks."""
        models, trained = dict[str, Path](), set[str]()
        todo: dict[str, tuple[ExportJob, Path]] = {}
        study, seed = self.profile.study, self.profile.asked.request.seed
        trainings = [row for row in self.profile.folder.accuracy.values() if (row.method == PROOF) == self.proof]
        for network in networks:
            tagged, state = study.tagged(network), best_weights(trainings, self._path, network)
            if state is not None:
                trained.add(network.id)
                state = shared(state, tagged)
            path = self._path / "models" / f"{file_stem(network.id)}.onnx"
            if tagged.modules:
                job = ExportJob(tagged=tagged, state=state or {}, modules=study.origins(tagged), seed=seed, opset=OPSET)
                todo[network.id] = (job, path)
                continue
            weights = None if state is None else model_weights(tagged, state)
            with writing(self._path):
                models[network.id] = write_net(tagged.net, path, seed=seed, weights=weights)
        exported, unwritten = self._exported(todo)
        return models | exported, trained, unwritten

    def _exported(self, jobs: Mapping[str, tuple[ExportJob, Path]]) -> tuple[dict[str, Path], dict[str, Failure]]:
        """The files of networks that PyTorch writes in other processes unless they are up to date, and the failures."""
        digests = {name: job.digest() for name, (job, _) in jobs.items()}
        models = {name: path for name, (_, path) in jobs.items() if written_of(path) == digests[name]}
        todo = {name: job for name, job in jobs.items() if name not in models}
        failed: dict[str, Failure] = {}
        if not todo:
            return models, failed
        steps = Steps("networks written by PyTorch", self.profile.watch)
        steps.expect(len(todo))
        count = min(self.profile.asked.workers_on("cpu"), len(todo))
        with guarded_folder("gnomon-export-") as folder, Workers(count, None) as workers:
            parts = {name: folder / f"{number}.onnx" for number, name in enumerate(todo)}
            work = {name: (job, str(parts[name])) for name, (job, _) in todo.items()}
            for name, failure in workers.run_all(run_export, work):
                if failure is not None:
                    failed[name] = failure
                else:
                    with writing(self._path):
                        models[name] = adopt(parts[name], jobs[name][1], digests[name])
                steps.step(1)
        return models, failed

    def _make(self, toolchain: Toolchain, models: Mapping[str, Path]) -> dict[str, Artifact]:
        where, logs = self._path / "models", self._path / "log_files"
        if toolchain.name != toolchain.runtime:
            where, logs = where / toolchain.name, logs / toolchain.name
            with writing(self._path):
                where.mkdir(exist_ok=True)
                logs.mkdir(exist_ok=True)
                write_calibration(self.profile.data, self.calibration, where / "calibration.npz")
        by_key = {file_stem(name): name for name in models}
        jobs = [
            ToolJob(key=key, model=models[name], folder=where, calibration=where / "calibration.npz", logs=logs)
            for key, name in by_key.items()
        ]
        steps = Steps(f"networks made by {toolchain.name}", self.profile.watch)
        steps.expect(len(jobs))
        artifacts = {}
        for artifact in toolchain.make(jobs):
            artifacts[by_key[artifact.key]] = artifact
            steps.step(1)
        return artifacts

    def _with_artifact(self, row: LatencyRow, artifact: Artifact) -> LatencyRow:
        """A row with the model that a toolchain made, or the reason for its failure."""
        where, path = self._path, artifact.path
        return replace(
            row,
            artifact=str(path.relative_to(where)) if path and path.is_relative_to(where) else "",
            at_s=time.time(),
            reason=f"{artifact.failure.stage}: {artifact.failure.message}" if artifact.failure else "",
        )

    def _checked(
        self, toolchain: Toolchain, rows: Mapping[str, LatencyRow], artifacts: Mapping[str, Artifact], trained: set[str]
    ) -> dict[str, LatencyRow]:
        """Rows with the share of convolutions that are really in 8 bits, and with the accuracy of trained models."""
        checked, data = dict(rows), self.profile.data
        paths = {name: a.path for name, a in artifacts.items() if a.path is not None and a.path.suffix == ".onnx"}
        if toolchain.name != toolchain.runtime:
            for name, path in paths.items():
                checked[name] = _with_bits(checked[name], path)
        if toolchain.runtime not in ("onnxruntime", "openvino"):
            return checked
        with writing(self._path):
            images = write_validation(data, self._path / "models" / "validation.npz")
        models = {name: path for name, path in paths.items() if name in trained}
        begun = {"runtime": toolchain.runtime, "images": str(images.relative_to(self._path))}
        logs = {name: self._log(checked[name], "check", begun) for name in models}
        steps = Steps(f"networks of {toolchain.name} checked", self.profile.watch)
        steps.expect(len(models))
        evaluations = evaluate(models, images, toolchain.runtime, mean=data.mean, std=data.std, logs=logs)
        for name, correct in evaluations if models else ():
            row = checked[name]
            text = correct.message if isinstance(correct, Failure) else f"{int(correct.sum())} of {len(correct)} right"
            with writing(self._path), logs[name].open("a", encoding="utf-8") as log:
                log.write(f"outcome: {_line(text)}\n")
            if isinstance(correct, Failure):
                checked[name] = replace(row, notes=(*row.notes, f"the accuracy is unknown: {correct.message}"))
            else:
                checked[name] = replace(row, correct=float(correct.mean()), images=len(correct))
            steps.step(1)
        return checked

    def _timed(
        self, toolchain: Toolchain, rows: Mapping[str, LatencyRow], artifacts: Mapping[str, Artifact]
    ) -> Iterator[LatencyRow]:
        """Rows with their times, each as soon as it is known."""
        profile = self.profile
        yield from (row for row in rows.values() if row.reason)
        files = {name: artifacts[name].path for name, row in rows.items() if not row.reason}
        paths = {name: path for name, path in files.items() if path is not None}
        if not paths:
            return
        # Predictions depend on the default networks more than on any others.
        defaults = {family.network(family.defaults).id for family in profile.study.families.values()}
        timed, clock = measure_files(
            self._request(toolchain),
            paths,
            subject=self._path.name,
            # A later call with the same question finds these measurements in the results database and adds to them.
            question={"profile": self.profile.folder.id, "toolchain": toolchain.name},
            written=(self._path / MANIFEST, self._path / LATENCY),
            closely=defaults & paths.keys(),
            worked=self._worked(toolchain),
            watch=profile.watch,
            tell=profile.tell,
        )
        for name, timing in timed.items():
            facts: dict[str, Any] = (
                {"reason": timing.reason, "at_s": timing.at_s} if timing.reason else fields_of(LatencyRow, timing)
            )
            yield replace(rows[name], clock=clock, **facts)

    def _worked(self, toolchain: Toolchain) -> Path | None:
        """A model of this toolchain that was measured before; None without such a model."""
        rows = self.profile.folder.latency.values()
        files = (self._path / row.artifact for row in rows if row.toolchain == toolchain.name and row.call_s)
        return next(filter(Path.is_file, files), None)


def _outcome(row: LatencyRow) -> dict[str, object]:
    if row.reason:
        return {"outcome": row.reason}
    return {name: getattr(row, name) for name in ("call_s", "low_s", "high_s", "processes", "drift", "clock")}


def _line(value: Any) -> str:
    """A value on one line: a text as it is, everything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return " ".join(text.split())


def _with_bits(row: LatencyRow, path: Path) -> LatencyRow:
    try:
        quantised: Quantised = read_quantised(path)
    except GnomonError as error:
        return replace(row, notes=(*row.notes, f"the share of 8-bit convolutions is unknown: {error.message}"))
    return replace(row, quantised=quantised.share_8bit)
