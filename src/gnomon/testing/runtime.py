"""The contract of `gnomon.runtimes.base.Runtime` as tests, with the real runtime on this machine.

Subclass `RuntimeContract` in a test module and give it a fixture `adapter` (the runtime) and a fixture `path` (a small
model that it loads)::

    class TestMyRuntime(RuntimeContract):
        @pytest.fixture
        def adapter(self):
            return MyRuntime()

        @pytest.fixture
        def path(self, tmp_path):
            return write_small_model(tmp_path)
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from inspect import getattr_static
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from gnomon import wire
from gnomon.core.sample import Failure
from gnomon.devices.local import LocalDevice
from gnomon.errors import UsageError
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink
from gnomon.models.load import load
from gnomon.models.model import Model
from gnomon.runtimes.base import (
    Configuration,
    PlacedModel,
    Probe,
    RunSettings,
    Runtime,
    Support,
    driver_of,
    whole_job,
)

# ruff: noqa: S101, D102 - tests assert, and a test's name is its sentence


_LIMIT_S = 120.0
_probed: dict[tuple[object, ...], wire.Answer | Failure] = {}
"""The answers to probes, by adapter and link: an installation does not change, and each probe takes a process."""
_supported: dict[tuple[type, str], Support] = {}
"""The support of a model in the first configuration, by the model's digest."""


class RuntimeContract:
    """The contract of every adapter of a runtime. Tests are skipped if the runtime is not installed."""

    @pytest.fixture(scope="class")
    @classmethod
    def link(cls) -> Iterator[AgentLink]:
        """The agent on this machine, shared by all tests, so that a runtime compiles each model only once."""
        with LocalDevice() as device, AgentLink(device) as opened:
            yield opened

    @pytest.fixture
    def probe(self, link: AgentLink, adapter: Runtime) -> Probe:
        """The agent's probe of the runtime."""
        made_by = (getattr_static(type(self), name, type(self)) for name in ("adapter", "link"))
        asked = *made_by, driver_of(adapter)
        if asked not in _probed:
            _probed[asked] = link.ask({"p": {"do": "probe", "runtime": driver_of(adapter)}}, timeout_s=_LIMIT_S)["p"]
        answer = _probed[asked]
        if isinstance(answer, Failure):
            pytest.skip(f"{adapter.name}: {answer.message}")
        return Probe.of(answer)

    @pytest.fixture
    def model(self, path: Path) -> Model:
        """The model, loaded from its file."""
        return load(path)

    @pytest.fixture
    def placed(self, model: Model) -> PlacedModel:
        """The model on the device, which is this machine."""
        return PlacedModel.of(model.graph, str(model.path))

    @pytest.fixture
    def support(self, adapter: Runtime, probe: Probe, placed: PlacedModel, link: AgentLink) -> Support:
        """The operators of the model that the runtime takes."""
        asked = type(self), placed.graph.digest
        if asked not in _supported:
            _supported[asked] = adapter.support(link.ask, placed, adapter.configurations(probe, RunSettings())[0])
        return _supported[asked]

    def test_it_says_what_it_is(self, adapter: Runtime, model: Model) -> None:
        assert adapter.name
        assert ":" not in adapter.name or driver_of(adapter) == adapter.name
        assert model.graph.format in adapter.formats

    def test_the_clean_configuration_comes_first_and_names_are_unique(self, adapter: Runtime, probe: Probe) -> None:
        settings = RunSettings(environments=({"A": "1"}, {"A": "2", "B": "3"}))
        chosen = adapter.configurations(probe, settings)
        assert len({c.name for c in chosen}) == len(chosen) >= 3
        assert not chosen[0].environment
        assert {tuple(sorted(c.environment.items())) for c in chosen} == {(), (("A", "1"),), (("A", "2"), ("B", "3"))}
        for configuration in chosen:
            assert configuration.runtime == adapter.name
            assert configuration.backends
            assert 0 < configuration.tolerance < 0.2
            json.dumps(dict(configuration.options), allow_nan=False)
        assert chosen == adapter.configurations(probe, settings)

    def test_threads_are_passed_on(self, adapter: Runtime, probe: Probe) -> None:
        first, second = (adapter.configurations(probe, RunSettings(threads=n))[0].options for n in (1, 2))
        assert first != second

    def test_an_unknown_backend_is_refused(self, adapter: Runtime, probe: Probe) -> None:
        with pytest.raises(UsageError, match="warp-drive") as refused:
            adapter.configurations(probe, RunSettings(backends=("warp-drive",)))
        assert refused.value.hint

    def test_support_is_told_of_every_backend(
        self, adapter: Runtime, probe: Probe, placed: PlacedModel, support: Support
    ) -> None:
        configuration = adapter.configurations(probe, RunSettings())[0]
        indices = {op.index for op in placed.graph.operators}
        assert set(support.operators) | set(support.failures) == set(configuration.backends)
        assert all(taken <= indices for taken in support.operators.values())
        assert frozenset[int]().union(*support.operators.values()) == indices

    def test_a_model_that_is_none_is_a_failure_and_no_crash_of_gnomon(
        self, adapter: Runtime, probe: Probe, placed: PlacedModel, link: AgentLink, tmp_path: Path
    ) -> None:
        broken = tmp_path / "broken"
        broken.write_bytes(b"this is not a model" * 100)
        there = PlacedModel(graph=placed.graph, path=str(broken), inputs=placed.inputs, outputs=placed.outputs)
        taken = adapter.support(link.ask, there, adapter.configurations(probe, RunSettings())[0])
        assert not any(taken.operators.values())
        assert all(failure.message for failure in taken.failures.values())

    def test_every_backend_gives_the_same_outputs_and_says_where_it_ran(
        self, adapter: Runtime, probe: Probe, placed: PlacedModel, link: AgentLink, support: Support
    ) -> None:
        configuration = adapter.configurations(probe, RunSettings())[0]
        reference = _reference(link, placed, adapter.segment(placed, configuration, {}), configuration)
        for backend, taken in support.operators.items():
            assignment = _assignment(placed, configuration, support, backend)
            segment = adapter.segment(placed, configuration, assignment)
            json.dumps(segment, allow_nan=False)
            opened, _ = _run(link, placed, segment, configuration, check=reference)
            assert opened["difference"]["relative"] <= configuration.tolerance
            if configuration.reported:
                backends = {str(row["backend"]) for part in opened["where"] for row in part}
                assert backends
                assert backends <= set(configuration.reported)
                continue
            _, block = _run(link, placed, segment, configuration, profiled=True)
            ran_on = {i: row["backend"] for row in block["operators"] for i in row["sources"]}
            assert {i: ran_on.get(i) for i in taken} == dict.fromkeys(taken, backend)

    def test_its_profiler_gives_a_time_to_operators_for_each_call(
        self, adapter: Runtime, probe: Probe, placed: PlacedModel, link: AgentLink
    ) -> None:
        configuration = adapter.configurations(probe, RunSettings())[0]
        segment = adapter.segment(placed, configuration, {})
        _, block = _run(link, placed, segment, configuration, profiled=True)
        rows = block["operators"]
        assert any(row["sources"] for row in rows)
        assert all(isinstance(t, int) and t >= 0 for row in rows for t in row["wall_ns"])
        assert max(len(row["wall_ns"]) for row in rows) <= len(block["wall_ns"])

    def test_a_package_computes_what_was_measured(
        self,
        adapter: Runtime,
        probe: Probe,
        placed: PlacedModel,
        model: Model,
        link: AgentLink,
        support: Support,
        tmp_path: Path,
    ) -> None:
        configuration = adapter.configurations(probe, RunSettings())[0]
        assignment = _assignment(placed, configuration, support, list(support.operators)[-1])
        measured = adapter.segment(placed, configuration, assignment)
        reference = _reference(link, placed, measured, configuration)
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        written = adapter.package(model, configuration, assignment, folder)
        assert written["runtime"] == driver_of(adapter)
        assert not Path(written["model"]).is_absolute()
        there: wire.Segment = {**measured, "model": str(folder / written["model"]), "options": written["options"]}
        opened, _ = _run(link, placed, there, configuration, check=reference)
        assert opened["difference"] == {"absolute": 0.0, "relative": 0.0}

    def test_its_own_default_computes_the_same_and_its_package_sets_nothing(
        self, adapter: Runtime, probe: Probe, placed: PlacedModel, model: Model, link: AgentLink, tmp_path: Path
    ) -> None:
        usual: Callable[[Probe], Configuration | None] | None = getattr(adapter, "usual", None)
        default = usual(probe) if usual is not None else None
        if default is None:
            pytest.skip(f"{adapter.name} has no default configuration")
        chosen = adapter.configurations(probe, RunSettings())
        assert default.name not in {configuration.name for configuration in chosen}
        assert default.usual
        assert not default.serial
        assert not default.environment
        assert "threads" not in default.options
        taken = adapter.support(link.ask, placed, default)
        assert taken.operators == {default.backends[0]: {op.index for op in placed.graph.operators}}, taken.failures
        assignment = _assignment(placed, default, taken, default.backends[0])
        segment = adapter.segment(placed, default, assignment)
        assert segment["options"]["usual"] is True
        reference = _reference(link, placed, adapter.segment(placed, chosen[0], {}), chosen[0])
        opened, _ = _run(link, placed, segment, default, check=reference)
        assert opened["difference"]["relative"] <= default.tolerance
        backends = {str(row["backend"]) for part in opened["where"] for row in part}
        assert not default.reported or backends <= set(default.reported)
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        written = adapter.package(model, default, assignment, folder)
        assert written["options"]["usual"] is True
        there: wire.Segment = {**segment, "model": str(folder / written["model"]), "options": written["options"]}
        opened, _ = _run(link, placed, there, default, check=reference)
        assert opened["difference"]["relative"] <= default.tolerance


def _assignment(placed: PlacedModel, configuration: Configuration, support: Support, backend: str) -> dict[int, str]:
    """The assignment of each operator to the backend if the backend takes it, otherwise to the first backend that
    does.
    """
    order = (backend, *configuration.backends)
    return {
        op.index: next(b for b in order if op.index in support.operators.get(b, ())) for op in placed.graph.operators
    }


def _reference(link: AgentLink, placed: PlacedModel, segment: wire.Segment, configuration: Configuration) -> str:
    """The file with a segment's outputs on the link's device."""
    name = f"contract-{hashlib.sha256(json.dumps(segment, sort_keys=True).encode()).hexdigest()[:16]}.npz"
    _run(link, placed, segment, configuration, save=name)
    return name


_seen: WeakKeyDictionary[AgentLink, dict[str, dict[str, Any]]] = WeakKeyDictionary()
"""The events of each request that a link has sent, by kind."""


def _run(
    link: AgentLink,
    placed: PlacedModel,
    segment: wire.Segment,
    configuration: Configuration,
    *,
    save: str = "",
    check: str = "",
    profiled: bool = False,
) -> tuple[wire.OpenedEvent, wire.BlockEvent]:
    """Run a segment in a fresh process, unless the same request has been run before; return the event of its opening
    and the event of its block.

    The segment's outputs are saved to a file, or checked against the outputs in a file.
    """
    opening: wire.Opening = {"job": whole_job(placed.graph, segment), "profiled": profiled, "seeds": [0, 1]}
    if save:
        opening["save"] = save
    if check:
        opening["check"] = check
    candidate: wire.Candidate = {
        "key": "contract",
        "environment": dict(configuration.environment),
        "tolerance": 1e9,
        "calls_least": 60,
        "open": opening,
        "visits": [] if save else [0],
    }
    effort = Effort(rounds=1, block_s=0.01, warm_s=0.0, timeout_s=_LIMIT_S)
    request: wire.MeasuringRequest = {**effort.request(), "seed": 0, "candidates": [candidate]}
    seen = _seen.setdefault(link, {}).setdefault(json.dumps(request, sort_keys=True), {})
    if not seen:
        link.request(request, lambda event: seen.__setitem__(event["event"], event), timeout_s=3 * _LIMIT_S)
    assert "failure" not in seen, seen["failure"]
    return seen["opened"], seen.get("block", {})
