"""Searches for schedules of layers with MetaSchedule, which proposes candidates and receives their times.

The jobs for a layer are `search` once, and then `ask` and `tell` in turn. Several layers may be searched at the same
time, and one cost model learns from all of them. Other processes measure, build and write the records, so that their
crashes do not affect the search.
"""

from __future__ import annotations

import functools
import statistics
from typing import Any

import numpy as np
from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule as ms

from ..frame import Facts, Job, Refused, Work, absent
from . import carry
from . import workload as tvm_workload

_FAILED_S = 1e10
_WARM_UP = 16
"""The number of measured candidates after which the cost model is used; TVM's default of 100 is too many for a small
budget.
"""

_CARRIED, _TRIED = 2, 8
"""The number of candidates from other layers in a layer's first round, and the number of traces tried for them."""


def jobs() -> dict[str, Work]:
    """The jobs. `search` begins the search for a layer, `ask` returns its next candidates, and `tell` reports their
    results.
    """
    searches: dict[str, _Search] = {}
    model = functools.cache(_cost_model)  # one model for all layers, and none in a child that compiles or measures

    def begin(job: Job) -> Facts:
        searches[job["layer"]] = _Search(job, model(), searches)
        learns = not isinstance(model(), ms.cost_model.RandomModel)
        return {"spaces": searches[job["layer"]].spaces, "learns": learns}

    def begun(job: Job) -> _Search:
        if job["layer"] not in searches:
            raise Refused(f"the search of layer {job['layer']} was not started")
        return searches[job["layer"]]

    return {
        "search": begin,
        "ask": lambda job: begun(job).ask(job.get("most")),
        "tell": lambda job: begun(job).tell(job["times_s"]),
    }


class _Search:
    """The search for one layer."""

    def __init__(self, job: Job, model: Any, others: dict[str, _Search]) -> None:
        """Job: layer, workload, target, strategy, start, trials, per_round, seed, told [[trace, times_s]..].

        `others` are the searches of other layers.
        """
        self._workload = tvm_workload.workload_of(job["workload"], job["layer"])
        self._target = tvm_workload.target_of(job["target"])
        self._strategy = _strategy(job["strategy"], int(job["per_round"]))
        self._context = ms.TuneContext(
            mod=self._workload.mod,
            target=self._target,
            space_generator=space(),
            search_strategy=self._strategy,
            task_name=job["layer"],
            rand_state=int(job["seed"]) % (2**31 - 2) + 1,
            num_threads=1,
        )
        # Until it has learned, the cost model draws its predictions from numpy's global generator.
        np.random.seed(int(job["seed"]) % 2**32)
        self._model = model
        self._database = ms.database.MemoryDatabase()
        self._own = self._database.commit_workload(self._workload.mod)
        self._waiting: list[Any] = []
        self._carried, self._begun, self._others = 0, bool(job["told"]) or not job["start"], others
        self.best: tuple[float, Any] | None = None
        self._recall(job["told"])
        self._designs = self._context.generate_design_space()
        self.spaces = len(self._designs)
        self._strategy.pre_tuning(
            max_trials=int(job["trials"]),
            num_trials_per_iter=int(job["per_round"]),
            design_spaces=self._designs,
            database=self._database,
            cost_model=model,
        )

    def ask(self, most: int | None = None) -> Facts:
        """The traces of the next candidates, at most `most`; none if the search has ended.

        The first candidates of a new layer are derived from the best schedules of the most similar layers.
        """
        if self._waiting:
            raise Refused("the results of the previous candidates were not reported")
        self._waiting = [] if self._begun else self._carried_over()[:most]
        self._carried, self._begun = len(self._waiting), True
        if most is None or len(self._waiting) < most:
            self._waiting += list(self._strategy.generate_measure_candidates() or [])[: most and most - self._carried]
        return {"traces": [tvm_workload.plain(c.sch.trace.as_json()) for c in self._waiting]}

    def tell(self, times_s: list[list[float] | None]) -> Facts:
        """Report the times of the requested candidates, in their order; None for a failed candidate."""
        if len(times_s) != len(self._waiting):
            raise Refused(f"results were reported for {len(times_s)} candidates instead of {len(self._waiting)}")
        results = [_result(times) for times in times_s]
        for candidate, result in zip(self._waiting, results, strict=True):
            self._commit(candidate.sch.trace, result, candidate.args_info)
        if own := self._waiting[self._carried :]:
            self._strategy.notify_runner_results(own, results[self._carried :])
        self._model.update(self._context, self._waiting, results)
        self._waiting = []
        return {}

    def _carried_over(self) -> list[Any]:
        """Candidates derived from the best traces of other layers with the same structure, the nearest in size
        first.
        """
        best = [carry.plain(other.best[1]) for other in self._others.values() if other is not self and other.best]
        traces = [(carry.structure(trace), trace) for trace in best]
        near = [
            (carry.distance(trace, design), trace, design)
            for design in (carry.plain(schedule.trace) for schedule in self._designs)
            for structure, trace in traces
            if structure == carry.structure(design)
        ]
        candidates: dict[str, object] = {}
        for _, trace, design in sorted(near, key=lambda entry: entry[0])[:_TRIED]:
            candidate = carry.candidate(trace, design, self._context)
            if candidate is not None and len(candidates) < _CARRIED:
                candidates.setdefault(str(candidate.sch.trace), candidate)
        return list(candidates.values())

    def _commit(self, trace: Any, result: Any, arguments: Any) -> None:
        seconds = [float(t) for t in result.run_secs or [_FAILED_S]]
        if result.run_secs and (self.best is None or statistics.median(seconds) < self.best[0]):
            self.best = (statistics.median(seconds), trace)
        self._database.commit_tuning_record(
            ms.database.TuningRecord(trace, self._own, seconds, self._target, arguments)
        )

    def _recall(self, history: list[Any]) -> None:
        """Train the cost model on earlier measurements, and add them to the database of the evolutionary search."""
        candidates, results = [], []
        for trace, times in history:
            try:
                record = tvm_workload.record_of(self._own, trace, times or [], self._target)
                candidates.append(record.as_measure_candidate())
            except Exception:  # noqa: S112 - another TVM wrote the trace: it teaches nothing, but stays in the record
                continue
            results.append(_result(times))
            self._commit(record.trace, results[-1], candidates[-1].args_info)
        if candidates:
            self._model.update(self._context, candidates, results)


def _result(times: list[float] | None) -> Any:
    return ms.runner.RunnerResult(times, None) if times else ms.runner.RunnerResult(None, "failed")


def _cost_model() -> Any:
    try:
        with absent("sklearn"):  # importing it would take three quarters of XGBoost's start, and it is not needed
            import xgboost  # noqa: F401
    except ImportError:
        return ms.cost_model.RandomModel(seed=0)
    return ms.cost_model.XGBModel(num_warmup_samples=_WARM_UP, num_tuning_cores=1)


def _strategy(name: str, per_round: int) -> Any:
    """The search strategy with this name.

    The population of the evolution is small: with TVM's own population of 512, a round for a convolution takes 22 s of
    processor time, more than the measurements.
    """
    if name == "evolutionary":
        return ms.search_strategy.EvolutionarySearch(
            population_size=max(32, 4 * per_round), init_min_unmeasured=max(8, per_round), genetic_num_iters=2
        )
    if name == "replay-trace":
        return ms.search_strategy.ReplayTrace()
    if name == "random":
        return ms.search_strategy.ReplayFunc()
    raise Refused(f"there is no search strategy {name!r}; choose evolutionary, replay-trace or random")


def space() -> Any:
    """The design space of a processor: MetaSchedule's own rules for LLVM, without the rules for tensor instructions.

    The rules are chosen by name, because the rules for a target would load tensor instructions, which takes 15 s in
    every process.
    """
    return ms.space_generator.PostOrderApply(sch_rules="llvm", postprocs="llvm", mutator_probs="llvm")


def smallest() -> IRModule:
    """The smallest function that can be searched."""
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    return IRModule({"main": te.create_prim_func([a, b]).with_attr("global_symbol", "main")})
