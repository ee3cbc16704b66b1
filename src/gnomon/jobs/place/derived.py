"""Times of single operators inside a kernel that computes several, found by cutting instead of profiling.

A runtime reports a single time for operators that it fused or delegated. Therefore, the kernel's operators are cut out
as a separate model, which is measured side by side with its prefixes. The difference between two successive prefixes is
the price of the operators that the longer one adds. This price is *derived*, because the parts ran alone. See
docs/jobs/inside.md.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from gnomon.core.stats import median, student_quantile, values_by_process
from gnomon.errors import MeasurementError, ModelError
from gnomon.jobs.place.across import placed_segment
from gnomon.jobs.place.document import InsidePart, InsideStep, Seconds
from gnomon.measure.campaign import Candidate, Measured
from gnomon.measure.effort import Clock, levels
from gnomon.models.cut import Cutter, Segment
from gnomon.models.cutters import open_cutter
from gnomon.models.model import is_known
from gnomon.session.contender import Contender
from gnomon.session.kernels import Kernel
from gnomon.session.model_session import ModelSession
from gnomon.session.targets import describe
from gnomon.wire import Tensor

Span = tuple[int, int]
"""The operators [first, last) of a kernel, counted in their order of computation."""

Ask = Callable[[int, Sequence[Span]], Mapping[Span, Measured]]
"""Measures the spans of a round side by side; the first argument is the round's number."""

SHORT = 6
"""A kernel of up to this many operators is cut between all of them; a longer kernel is bisected."""

WHOLE = "(the whole model)"
"""The name of the kernel that stands for the whole model if the runtime reports no kernels."""


def contrast(measured: Mapping[Span, Measured], weights: Mapping[Span, int], clock: Clock) -> Seconds:
    """The weighted sum of the times of spans that were measured side by side.

    For each process, the sum is computed from the medians of its blocks, which ran while the machine was in the same
    state. The result is the mean over the processes, with Student's t interval. MeasurementError if no process measured
    all spans.
    """
    by_span = {span: values_by_process(levels(measured[span].runs, clock)) for span in weights}
    shared = sorted(set.intersection(*(set(own) for own in by_span.values())))
    if not shared:
        raise MeasurementError("no process measured all parts", hint="Start the same command again; it resumes.")
    sums = [sum(weight * median(by_span[span][p]) for span, weight in weights.items()) for p in shared]
    count = len(sums)
    mean = sum(sums) / count
    if count < 2:
        return Seconds(value_s=mean, low_s=None, high_s=None, processes=count)
    spread = (sum((value - mean) ** 2 for value in sums) / (count - 1)) ** 0.5
    half = student_quantile(0.975, count - 1) * spread / count**0.5
    return Seconds(value_s=mean, low_s=mean - half, high_s=mean + half, processes=count)


def take_apart(kernel: Kernel, operators: Sequence[int], ask: Ask, clock: Clock) -> InsidePart:
    """The prices of a kernel's operators, which are given in their order of computation.

    A short kernel is cut between all its operators at once. A longer one is halved, and each further round halves the
    most expensive step that has several operators; the number of rounds is at most the binary logarithm of the number
    of operators, rounded up. If `ask` cannot measure something, the search ends with the results so far.
    """
    count = len(operators)
    steps: dict[Span, InsideStep] = {}
    together: Seconds | None = None
    saved: Seconds | None = None
    why: str | None = None
    for number in range(1 if count <= SHORT else (count - 1).bit_length()):
        wide = [span for span in steps if span[1] - span[0] > 1]
        if steps and not wide:
            break
        first, last = max(wide, key=lambda span: steps[span].derived.value_s) if steps else (0, count)
        inner = range(first + 1, last) if count <= SHORT else [(first + last) // 2]
        cuts = (first, *inner, last)
        wanted = [*pairwise(cuts), *((0, end) for end in cuts if end)]
        try:
            measured = ask(number, list(dict.fromkeys(wanted)))
            failed = next((measured[span].failure for span in wanted if not measured[span].ok), None)
            if failed is not None:
                raise MeasurementError(describe(failed), hint="The kernel is not taken apart.")
            priced = {}
            for a, b in pairwise(cuts):
                weights = {(0, b): 1, (0, a): -1} if a else {(0, b): 1}
                priced[a, b] = InsideStep(
                    operators=tuple(operators[a:b]),
                    derived=contrast(measured, weights, clock),
                    alone=contrast(measured, {(a, b): 1}, clock),
                )
            if together is None:
                together = contrast(measured, {(0, count): 1}, clock)
                saved = contrast(measured, {**dict.fromkeys(pairwise(cuts), 1), (0, count): -1}, clock)
        except (ModelError, MeasurementError) as error:  # an error of the device ends the job
            why = f"not cut: {error.message}"
            break
        steps.pop((first, last), None)
        steps.update(priced)
    return InsidePart(
        kernel=kernel.name,
        operators=kernel.operators,
        together=together,
        steps=tuple(steps[span] for span in sorted(steps)),
        saved=saved,
        why=why,
    )


class Insides:
    """Takes apart the kernels of a session's contenders until the effort's budget is used up.

    `folder` receives the files of the parts and must outlive their use.
    """

    def __init__(self, session: ModelSession, folder: Path, clock: Clock) -> None:
        self.session, self.folder, self.clock = session, folder, clock
        self._until_s = time.monotonic() + session.request.effort.budget_s
        self._waiting = 1
        self._cutter: Cutter | ModelError | None = None
        self._segments: dict[tuple[int, ...], tuple[Segment, str]] = {}

    def of(self, contender: Contender, kernels: Sequence[Kernel]) -> tuple[InsidePart, ...]:
        """The contender's kernels of several operators, the most expensive first, taken apart within the budget."""
        wide = sorted((k for k in kernels if len(k.operators) > 1), key=lambda k: -k.time_s)
        parts: list[InsidePart] = []
        for number, kernel in enumerate(wide):
            self._waiting = len(wide) - number
            parts.append(self._part(contender, kernel))
        return tuple(parts)

    def _part(self, contender: Contender, kernel: Kernel) -> InsidePart:
        def whole(why: str) -> InsidePart:
            return InsidePart(kernel=kernel.name, operators=kernel.operators, why=f"not cut: {why}")

        target = contender.parts[0].target
        if len(target.configuration.backends) > 1:
            return whole("the runtime places its operators one by one")
        if target.placed.graph is not self.session.graph:
            return whole("the runtime converts the model")
        if self._cutter is None:
            try:
                self._cutter = open_cutter(self.session.read.source, self.session.graph.format)
            except ModelError as error:
                self._cutter = error
        cutter = self._cutter
        if isinstance(cutter, ModelError):
            return whole(cutter.message)
        moving = [index for index in cutter.order if index in kernel.operators]
        if len(moving) < 2:
            return whole("only one of its operators depends on the inputs")

        def ask(number: int, spans: Sequence[Span]) -> Mapping[Span, Measured]:
            left_s = self._until_s - time.monotonic()
            candidates = {span: self._candidate(contender, cutter, moving, span, number) for span in spans}
            recorded = all(self.session.runner.known(c.key).runs for c in candidates.values())
            if self.session.runner.over("inside kernels") or (left_s <= 0 and not recorded):
                raise MeasurementError("the time ran out", hint="Give a longer --budget or --max-time.")
            # No span is stopped early for being slow, because a prefix is always faster than the whole. Each kernel
            # gets more than the least number of processes only within an equal share of the remaining time, so that the
            # others get some.
            share_s = max(left_s, 0.0) / self._waiting
            effort = replace(self.session.request.effort, laggard=1e9, budget_s=share_s)
            measured = self.session.runner.measure("inside kernels", list(candidates.values()), effort)
            return {span: measured[candidate.key] for span, candidate in candidates.items()}

        return take_apart(kernel, moving, ask, self.clock)

    def _candidate(
        self, contender: Contender, cutter: Cutter, moving: Sequence[int], span: Span, number: int
    ) -> Candidate:
        """A part of the kernel as a separate model, in the contender's configuration."""
        target = contender.parts[0].target
        segment, path = self._cut(cutter, tuple(moving[span[0] : span[1]]))
        placed = placed_segment(self.session.graph, segment, path)
        job = self.session.job([target.runtime.segment(placed, target.configuration, {})])
        tensors: dict[str, Tensor] = {
            t.name: {"shape": list(t.shape or ()) if is_known(t) else None, "dtype": t.dtype}
            for t in (*segment.inputs, *segment.outputs)
        }
        feeds = {name: job["feeds"].get(name, {}) for name in placed.inputs}
        job |= {"tensors": tensors, "feeds": feeds, "outputs": list(placed.outputs)}
        identity = json.dumps([contender.key, list(moving), span, number])
        return Candidate(
            key=f"inside/{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
            job=job,
            environment=target.configuration.environment,
            check=False,  # the reference holds only the whole model's outputs
        )

    def _cut(self, cutter: Cutter, operators: tuple[int, ...]) -> tuple[Segment, str]:
        """The part with these operators and its path on the device. ModelError if they cannot be cut out."""
        if operators not in self._segments:
            place = {index: k for k, index in enumerate(cutter.order)}
            path = self.folder / f"part-{len(self._segments)}.{self.session.graph.format}"
            segment = cutter.part([place[index] for index in operators], path)
            hidden = next((t.name for t in segment.inputs if not is_known(t)), None)
            if hidden is not None:
                raise ModelError(f"the shape of {hidden!r} is unknown", hint="Fix the model's shapes with --shape.")
            self._segments[operators] = (segment, self.session.push(path, path.name))
        return self._segments[operators]
