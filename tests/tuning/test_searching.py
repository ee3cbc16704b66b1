"""The search of schedules: asked and told, by every strategy, through lost children, to its end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.tune.tunekit import tiny_net
from tests.processkit import becomes
from tests.tuning.conftest import TARGET, Kit

from gnomon.core.overlay.records import TuningLayer, configuration_id
from gnomon.core.sample import Failure
from gnomon.formats.tuning.metaschedule import tvm_json
from gnomon.tuning.networks import STRATEGIES, Searches, SearchSettings, Source

SETTINGS = SearchSettings(target=TARGET, strategy="random", trials=64, per_round=4, seed=1)


def begun(kit: Kit, layer: TuningLayer, **changed: Any) -> Mapping[str, Any]:
    """Begin the search of a layer in the shared child, again if it was begun before."""
    job = {
        "strategy": "random",
        "start": False,
        "trials": 64,
        "per_round": 4,
        "seed": 3,
        "told": [],
        "target": TARGET,
    } | changed
    return kit.asked(do="search", layer=layer.layer, workload=layer.workload, **job)


def asked(kit: Kit, layer: TuningLayer) -> list[Any]:
    traces: list[Any] = kit.asked(do="ask", layer=layer.layer)["traces"]
    return traces


def told(kit: Kit, layer: TuningLayer, times_s: Sequence[Sequence[float] | None]) -> None:
    assert kit.asked(do="tell", layer=layer.layer, times_s=list(times_s)) == {}


def names(layer: TuningLayer, traces: Sequence[Any]) -> list[str]:
    return [configuration_id(layer.layer, trace) for trace in traces]


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_finds_configurations_that_are_built(kit: Kit, name: str) -> None:
    layer = kit.named("fused_matmul")
    assert begun(kit, layer, strategy=name)["spaces"] >= 1
    first = asked(kit, layer)
    assert 1 <= len(first) <= 4
    begun(kit, layer, strategy=name)
    assert names(layer, asked(kit, layer)) == names(layer, first), "the same seed gives the same first candidates"
    for trace in first:
        # The identity of a configuration is the same after its way through a database of MetaSchedule.
        kept = json.loads(tvm_json(trace))
        assert kept == trace
        assert repr(kept) == repr(trace), "1 is not 1.0, and no true"
    library = kit.path(".so")
    job = {"layer": layer.layer, "workload": layer.workload, "target": TARGET, "linker": "", "library": str(library)}
    assert kit.asked(do="build", trace=first[0], **job)["outputs"] == [3]
    # What failed is told as None; so may be all of them.
    told(kit, layer, [None] * len(first))
    second = asked(kit, layer)
    told(kit, layer, [[1e-3 / (k + 1), 2e-3] if k % 2 else None for k in range(len(second))])


def test_another_seed_gives_others(kit: Kit) -> None:
    layer = kit.heavy
    found = []
    for seed in (0, 2**31 - 2, 2**31, 10**12):
        begun(kit, layer, seed=seed)
        found.append(tuple(names(layer, asked(kit, layer))))
    assert len(set(found)) == len(found) - 1, "the seeds 0 and 2^31 - 2 are one, all others differ"


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_search_comes_to_its_end_and_stays_there(kit: Kit, name: str) -> None:
    layer = kit.named("softmax")
    begun(kit, layer, strategy=name, trials=6, per_round=4)
    seen = 0
    for _ in range(10):
        traces = asked(kit, layer)
        seen += len(traces)
        told(kit, layer, [[1e-3]] * len(traces))
        if not traces:
            break
    assert not traces and 1 <= seen <= 8
    assert asked(kit, layer) == []


def test_jobs_out_of_turn_are_refused(kit: Kit) -> None:
    layer = kit.named("mean")
    begun(kit, layer)
    count = len(asked(kit, layer))
    turns: list[tuple[dict[str, Any], str]] = [
        ({"do": "ask", "layer": layer.layer}, "were not reported"),
        (
            {"do": "tell", "layer": layer.layer, "times_s": [[1.0]] * (count + 1)},
            f"{count + 1} candidates instead of {count}",
        ),
        ({"do": "ask", "layer": "12"}, "was not started"),
        ({"do": "tell", "layer": "12", "times_s": []}, "was not started"),
    ]
    for job, why in turns:
        said = kit.worker.ask("search", job)
        assert isinstance(said, Failure) and said.kind == "refused" and why in said.message, said
    told(kit, layer, [[1e-3]] * count)
    good: dict[str, Any] = {
        "workload": layer.workload,
        "target": TARGET,
        "start": True,
        "trials": 8,
        "per_round": 4,
        "seed": 1,
        "told": [],
    }
    changes: list[tuple[dict[str, Any], str]] = [
        ({"strategy": "luck"}, "no search strategy 'luck'"),
        ({"workload": "AAAA"}, "cannot be read by this TVM"),
        ({"target": {"kind": "llvm", "mcpu": "no-such"}}, "LLVM does not know"),
    ]
    for changed, why in changes:
        said = kit.worker.ask("search", {"do": "search", "layer": layer.layer, "strategy": "random", **good, **changed})
        assert isinstance(said, Failure) and said.kind == "refused" and why in said.message, said


def test_what_another_tvm_wrote_teaches_nothing_and_hinders_nothing(kit: Kit) -> None:
    layer = kit.named("fused_matmul")
    begun(kit, layer)
    good = asked(kit, layer)
    strange = [[["NoSuchInstruction", [], [], []]], []]
    known = [[strange, [1e-3]], [None, [1e-3]], [[], []], [good[0], [1e-4, 2e-4]], [good[1], []]]
    begun(kit, layer, strategy="evolutionary", told=known)
    assert asked(kit, layer)


@pytest.fixture
def like(kit: Kit, tmp_path: Path) -> tuple[TuningLayer, TuningLayer]:
    """Two layers that differ in the channels that come in alone, the smaller one first."""
    model = tmp_path / "two.onnx"
    model.write_bytes(tiny_net())
    small, large = sorted(kit.network(Source(path=model)).layers(TARGET), key=lambda layer: layer.flops or 0)
    return small, large


def searched(searches: Searches, layer: TuningLayer, count: int) -> tuple[Any, ...]:
    """The traces of a layer that a search begins with."""
    assert searches.begin(layer, []) is None
    traces = searches.ask(layer.layer, count)
    assert isinstance(traces, tuple)
    return traces


def test_what_was_best_for_a_like_layer_is_tried_first(kit: Kit, like: tuple[TuningLayer, TuningLayer]) -> None:
    small, large = like
    searches = Searches(kit.pool, SETTINGS)
    known = searched(searches, small, 4)
    assert searches.tell(small.layer, [(trace, (1e-3 if trace is known[-1] else 2e-3,)) for trace in known]) is None
    traces = searched(searches, large, 2)
    assert len(traces) == 2, "as many as are asked for, and no more"
    best, first = known[-1], traces[0]
    assert kinds(first) == kinds(best), "it is scheduled as the best of the other is"
    # Both layers are 3x3 on images of one size: but for the channels that come in, all loops are split alike.
    alike = [mine == theirs for mine, theirs in zip(splits(first), splits(best), strict=True)]
    assert alike.count(False) <= 1
    assert searches.tell(large.layer, [(trace, (1e-3,)) for trace in traces]) is None
    own = searches.ask(large.layer, 4)
    assert isinstance(own, tuple) and len(own) == 4, "then come the search's own"
    searches._worker.close()


def test_what_failed_for_a_like_layer_is_not_carried_over(kit: Kit, like: tuple[TuningLayer, TuningLayer]) -> None:
    small, large = like
    found = []
    for failed in (True, False):
        searches = Searches(kit.pool, SETTINGS)
        if failed:
            known = searched(searches, small, 4)
            assert searches.tell(small.layer, [(trace, ()) for trace in known]) is None
        found.append(searched(searches, large, 8))
        searches._worker.close()
    assert found[0] == found[1], "the search's own candidates, as if nothing were known"


def kinds(trace: Any) -> list[str]:
    """What is done to the loops, in order."""
    named = [kind for kind, *_ in trace[0]]
    return [kind for kind in named[: named.index("EnterPostproc")] if kind != "GetSBlock"]


def splits(trace: Any) -> list[list[int]]:
    """The factors of each split loop."""
    return [factors for _, factors in trace[1] if isinstance(factors, list)]


def test_a_lost_child_knows_what_it_was_told(kit: Kit) -> None:
    """One search of several layers in one child, which is killed between two jobs."""
    dense, soft = kit.named("fused_matmul"), kit.named("softmax")
    settings = SearchSettings(target=TARGET, strategy="replay-trace", trials=64, per_round=4, seed=5)
    searches = Searches(kit.pool, settings)
    worker = searches._worker
    assert searches.begin(dense, []) is None and searches.begin(soft, []) is None
    assert worker.starts == 1
    first = searches.ask(dense.layer, 8)
    assert isinstance(first, tuple) and first
    bad = TuningLayer(layer="1", name="bad", workload="AAAA")
    said = searches.begin(bad, [])
    assert isinstance(said, Failure) and said.kind == "refused"
    unknown = searches.ask("1", 8)
    assert isinstance(unknown, Failure) and "was not started" in unknown.message
    # A layer that cannot be searched any more costs itself, and not the others.
    searches._layers[bad.layer] = bad
    os.kill(worker.start()._program._process.pid, signal.SIGKILL)
    assert becomes(lambda: not worker.alive)
    # TraceTimes before and taught after: this is not a failure, though the child that asked is gone.
    assert searches.tell(dense.layer, [(trace, (1e-3,)) for trace in first]) is None
    assert worker.starts == 2
    second = searches.ask(dense.layer, 8)
    assert isinstance(second, tuple) and second
    assert set(names(dense, second)) != set(names(dense, first)), "it does not begin from the start"
    soft_traces = searches.ask(soft.layer, 8)
    assert isinstance(soft_traces, tuple) and soft_traces and worker.starts == 2
    assert bad.layer not in searches._layers
    assert searches.tell(soft.layer, [(trace, ()) for trace in soft_traces]) is None
    worker.close()
