"""Tables that are really measured: of a few small units, on the runtimes that are there, on days good and bad."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.agent.drivers.litertkit import tflite
from tests.bad_days.boardkit import python_with, running_board
from tests.devices.shell.sshkit import missing
from tests.jobs.table.table_kit import QUICK, asked, build, space_file, spoilt, table_of, units_of
from tests.models.test_net import quantised

from gnomon.errors import DeviceError, GnomonError, MeasurementError, ModelError, RecordError, UsageError
from gnomon.jobs.estimator.job import described, fit_estimator
from gnomon.jobs.estimator.models import predict_model, space_of_models
from gnomon.jobs.table import job as table_build
from gnomon.jobs.table import nets as table_nets
from gnomon.jobs.table.document import TableDocument
from gnomon.jobs.table.folder import ROWS, read_table, write_table
from gnomon.jobs.table.in_place import prices, without_added
from gnomon.jobs.table.job import build_table
from gnomon.jobs.table.traces import PlacedNet, TracedKernel, TracedNet, Traces
from gnomon.models.units import write_net
from gnomon.runtimes.base import RunSettings
from gnomon.session.bench.baseline import by_size, placed_unit
from gnomon.session.nets import read_net
from gnomon.spaces.blocks import BlockSpace, Choice
from gnomon.spaces.fuse import UNFUSED, rules
from gnomon.spaces.latency_table import Row, Table
from gnomon.spaces.layers import layer
from gnomon.spaces.unit import Symbol, Trace, net_of, single

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("table")


@pytest.fixture(scope="module")
def built(home: Path, tmp_path_factory: pytest.TempPathFactory) -> TableDocument:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNOMON_LEASES", str(tmp_path_factory.mktemp("leases")))
        return build(home, home / "t")


def copied(built: TableDocument, path: Path, **changes: Any) -> Path:
    write_table(replace(table_of(built), **changes), path)
    return path


def test_nothing_is_measured_for_a_table_that_cannot_be(home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(UsageError, match="is not a table"):
        build_table(asked(home, tmp_path / "mine", record=tmp_path / "record"))
    with pytest.raises(RecordError, match="cannot be written"):
        build_table(asked(home, tmp_path / "mine" / "notes.txt" / "t.table", record=tmp_path / "record"))
    assert not (tmp_path / "record").exists()


def test_every_unit_has_a_row_with_all_that_was_seen(built: TableDocument, home: Path) -> None:
    table, units = table_of(built), units_of(home)
    assert built.measured == len(units) == 6
    assert {row.unit for row in table.rows} == set(units)
    assert table.failed == ()
    for row in table.rows:
        assert row.status in ("ok", "unstable")
        assert row.call_s is not None and row.low_s is not None and row.high_s is not None
        assert 0 < row.low_s <= row.call_s <= row.high_s
        assert len(row.samples) == 2 * row.processes  # two visits in each
        assert (row.status == "ok") == (row.relative_half_width <= 0.03)
        assert row.processes == 2  # one process tells no interval, so that none is left with it
    manifest = table.manifest
    assert 0 < manifest.overhead_s < max(row.call_s or 0 for row in table.rows)
    assert manifest.anchor in {unit.id for unit in units}
    assert len(manifest.anchor_calls_s) == 3
    assert manifest.context["runtime"] == "onnxruntime"
    assert manifest.context["options"]["threads"] == 1
    assert manifest.rules == ()
    assert manifest.evidence == ({"source": "the user"},)
    document = built.document()
    assert document["counts"]["failed"] == 0
    assert [u["time_s"] for u in document["units"]] == sorted((u["time_s"] for u in document["units"]), reverse=True)


def test_the_same_command_measures_nothing_twice(built: TableDocument, home: Path) -> None:
    before = (Path(built.table) / ROWS).read_bytes()
    again = build(home, Path(built.table))
    assert again.measured == 0
    assert (Path(again.table) / ROWS).read_bytes() == before


def test_what_a_table_lacks_is_added_at_the_speed_at_which_it_was_begun(
    built: TableDocument, home: Path, tmp_path: Path
) -> None:
    # As if the machine had been a thousand times as slow, which no noise explains: what is added is brought to that.
    manifest = table_of(built).manifest
    slow = replace(
        manifest,
        overhead_s=1000 * manifest.overhead_s,
        anchor_calls_s=tuple(1000 * s for s in manifest.anchor_calls_s),
    )
    largest = max(table_of(built).rows, key=lambda row: row.call_s or 0)
    others = tuple(row for row in table_of(built).rows if row != largest)
    path = copied(built, tmp_path / "t", manifest=slow, rows=others)
    found = build(home, path, record=tmp_path / "other.sqlite")
    assert found.measured == 1
    assert table_of(found).manifest == slow
    row = next((row for row in table_of(found).rows if row.unit == largest.unit), None)
    assert row is not None and row.call_s is not None and largest.call_s is not None
    assert 300 < row.drift < 3000
    assert row.call_s / largest.call_s > 300


def test_nets_are_measured_beside_a_reference_net(
    built: TableDocument, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_nets, "NET_EFFORT", replace(QUICK, together=4))
    request = asked(home, tmp_path / "none", record=tmp_path / "nets.sqlite")
    nets = [(0,), (1,), (2,)]
    assert table_nets.reference_net(request.space, table_of(built)) in [(0,), (1,)]  # and not the one that skips
    rows, document = table_nets.measure_nets(request.request, request.space, table_of(built), nets)
    assert [row.assignment for row in rows] == nets
    assert all(row.reference_s is not None and row.reference_s > 0 for row in rows)
    assert document.nets[0].reference_s == rows[0].reference_s
    made = fit_estimator(described(Path(built.table), f"{space_file(home)}:space"), rows)
    beside = sorted(row.reference_s or 0 for row in rows)
    assert made.context["reference_s"] == beside[1]


def test_all_is_measured_anew_if_asked_for(built: TableDocument, home: Path, tmp_path: Path) -> None:
    path = copied(built, tmp_path / "t")
    found = build(home, path, again=True)
    assert found.measured == 6
    assert {r.unit for r in table_of(found).rows} == {r.unit for r in table_of(built).rows}
    newest = max(row.at_s for row in table_of(built).rows)
    assert all(row.at_s > newest for row in table_of(found).rows)  # and not taken from the record
    assert table_of(found).manifest == table_of(built).manifest


def test_unlike_contexts_are_refused_before_anything_is_measured(
    built: TableDocument, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_gauge(*_: object) -> None:
        raise AssertionError("it measures")

    monkeypatch.setattr(table_build, "gauge_of", no_gauge)
    before = table_of(built)
    unlike: list[tuple[dict[str, Any], str]] = [
        ({"settings": RunSettings(threads=2)}, "options.threads: 1 and 2"),
        ({"rules": rules(["Conv+Relu"])}, "fused chains: none and Conv+Relu"),
        ({"effort": replace(QUICK, rounds=3)}, "protocol.rounds: 2 and 3"),
    ]
    for changes, told in unlike:
        with pytest.raises(MeasurementError) as refused:
            build(home, Path(built.table), **changes)
        assert told in refused.value.message
        assert "--out" in refused.value.hint
    assert table_of(built) == before


def test_units_that_crash_or_are_refused_lose_nobody_else(home: Path, tmp_path: Path) -> None:
    units = units_of(home)
    by_chain = {unit.label: unit for unit in units}
    fatal = next(unit for label, unit in by_chain.items() if label.startswith("Conv 5x5"))
    refused = next(unit for label, unit in by_chain.items() if label.startswith("Linear"))
    environment = spoilt(tmp_path, fatal=f"unit-{fatal.id}", refused=f"unit-{refused.id}")
    found = build(home, tmp_path / "t", environment=environment)
    failed = {row.unit: row.reason for row in table_of(found).failed}
    assert set(failed) == {fatal, refused}
    assert "SIGSEGV" in failed[fatal]
    assert "no kernel" in failed[refused]
    assert all(row.processes == 2 for row in table_of(found).rows if row.status != "failed")
    assert len([row for row in table_of(found).rows if row.status != "failed"]) == 4
    assert [c for c in found.complaints if "2 units failed" in c]
    assert set(table_of(found).times_s) == set(units) - {fatal, refused}


def test_without_its_anchor_nothing_is_built(home: Path, tmp_path: Path) -> None:
    environment = spoilt(tmp_path, refused="empty")
    with pytest.raises(MeasurementError, match=r"the no-op model could not be measured.*no kernel") as refused:
        build(home, tmp_path / "t", environment=environment)
    assert refused.value.hint
    assert not (tmp_path / "t").exists()


def test_an_anchor_that_does_not_run_has_the_next_one_in_its_place(home: Path, tmp_path: Path) -> None:
    middle = by_size(units_of(home))[3]
    found = build(home, tmp_path / "t", environment=spoilt(tmp_path, refused=f"anchor-{middle.id}"))
    assert table_of(found).manifest.anchor in {unit.id for unit in units_of(home)} - {middle.id}
    assert not table_of(found).failed


def test_what_a_space_has_wrong_is_said_before_the_device_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waited(*_: Any, **__: Any) -> Any:
        raise AssertionError("the device was opened first")

    monkeypatch.setattr("gnomon.jobs.table.job.open_bench", waited)
    broken = BlockSpace(name="broken", inputs=((1, 3, 8, 8),), parts=(lambda x: x.conv(4, 3, group=2),))
    with pytest.raises(GnomonError, match="group"):
        build_table(replace(asked(tmp_path, tmp_path / "t"), space=broken))


def test_a_unit_that_cannot_be_written_fails_alone_and_a_device_that_leaves_fails_none(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pools(bench: Any, unit: Any, key: str) -> Any:
        if unit.chain == "GlobalAveragePool" and key.startswith("unit-"):
            raise ModelError("no converter for it", hint="None.")
        return placed_unit(bench, unit, key)

    monkeypatch.setattr(table_build, "placed_unit", no_pools)
    found = build(home, tmp_path / "t")
    assert [(row.unit.chain, row.reason) for row in table_of(found).failed] == [
        ("GlobalAveragePool", "no converter for it")
    ]

    def leaves(bench: Any, unit: Any, key: str) -> Any:
        raise DeviceError("the phone left", hint="Plug it in.", transient=True)

    monkeypatch.setattr(table_build, "placed_unit", leaves)
    with pytest.raises(DeviceError, match="the phone left"):
        build(home, tmp_path / "u")
    assert read_table(tmp_path / "u").rows == ()


_BUILD = """
import sys
from pathlib import Path
from types import SimpleNamespace
from dataclasses import replace
from tests.jobs.table.table_kit import QUICK, build
build(Path(sys.argv[1]), Path(sys.argv[2]), effort=replace(QUICK, together=3))
"""


def test_a_killed_build_is_completed_by_the_same_command(tmp_path: Path) -> None:
    home, out = tmp_path, tmp_path / "t"
    space_file(home)
    process = subprocess.Popen(
        [sys.executable, "-c", _BUILD, str(home), str(out)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        start_new_session=True,
    )
    rows = out / ROWS
    deadline = time.monotonic() + 60
    while not (rows.exists() and rows.read_bytes().count(b"\n") >= 2):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = read_table(out)
    assert 2 <= len(before.rows) < 6
    found = build(home, out, effort=replace(QUICK, together=3))
    assert sorted(row.unit.id for row in table_of(found).rows) == sorted(unit.id for unit in units_of(home))
    assert table_of(found).manifest == before.manifest
    for row in before.rows:
        kept = next((one for one in table_of(found).rows if one.unit == row.unit), None)
        assert kept == row or (row.status == "unstable" and kept is not None and kept.processes > row.processes)


def test_the_runtimes_own_trace_tells_what_is_fused(home: Path, tmp_path: Path) -> None:
    told: list[str] = []
    found = build_table(asked(home, tmp_path / "t", rules=None), tell=told.append)
    assert any("(Conv+Relu); to export the table to nnabla-nas" in sentence for sentence in told)
    manifest = table_of(found).manifest
    assert manifest.rules == ("Conv+Relu",)  # ONNX Runtime runs them as one
    (conv,) = (e for e in manifest.evidence if e["chain"] == "Conv+Relu")
    assert (conv["verdict"], conv["source"]) == ("fused", "graph")
    assert conv["seen"] >= conv["fused"] >= 1
    assert {row.unit.chain for row in table_of(found).rows} == {"Conv+Relu", "GlobalAveragePool", "Linear"}
    assert built_rules(table_of(found)) == {"Conv+Relu"}
    # The table's own chains hold when it is completed: nothing is traced again.
    again = build(home, tmp_path / "t", rules=None)
    assert again.measured == 0


def test_units_are_priced_in_nets_that_show_them_and_alone_where_the_user_says_what_is_one(
    home: Path, tmp_path: Path
) -> None:
    def block(kernel: int) -> Callable[[Symbol], Symbol]:
        return lambda x: x.conv(8, kernel).relu()

    slots = tuple(Choice(name, {"k3": block(3), "k5": block(5)}) for name in ("first", "second"))
    parts = (lambda x: x.conv(8, 3, stride=2).relu(), *slots, lambda x: x.global_average_pool().linear(3))
    space = BlockSpace(name="nets", inputs=((1, 4, 32, 32),), parts=parts)
    found = table_of(build_table(replace(asked(home, tmp_path / "t", rules=None), space=space)))
    assert len(found.rows) == 5 and all(row.nets == 2 and not row.processes for row in found.rows)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Traces, "trace", lambda *given: None)  # as of a runtime that leaves no trace
        untraced = table_of(build_table(replace(asked(home, tmp_path / "v", rules=None), space=space)))
    assert all(not row.nets for row in untraced.rows)
    assert [one["source"] for one in untraced.manifest.evidence] == ["no trace"]
    alone = table_of(build_table(replace(asked(home, tmp_path / "u", rules=rules(["Conv+Relu"])), space=space)))
    assert all(not row.nets and row.processes for row in alone.rows)


def test_the_prices_of_a_nets_units_add_up_to_the_net() -> None:
    trace = Trace(((1, 4, 8, 8),))
    x = trace.input().conv(8, 3)
    net = trace.net(x.conv(8, 3).conv(8, 3).relu().reshape(1, 512))
    first, again, last = net.nodes[0].unit, net.nodes[1].unit, net.nodes[3].unit
    assert net.nodes[2].unit == again

    def traced(*kernels: tuple[tuple[int, ...], float], interrupted: bool = False) -> TracedNet:
        made = (TracedKernel(nodes=nodes, added=not nodes, time_s=time_s) for nodes, time_s in kernels)
        on_device = PlacedNet(net=net, placed=None, nodes={}, others=1)  # type: ignore[arg-type]
        return TracedNet(on_device=on_device, kernels=tuple(made), interrupted=interrupted)

    seen = traced(((), 1e-6), ((0,), 1e-6), ((1,), 3e-6), ((2, 3), 5e-6), ((4,), 1e-6), ((), 1e-6))
    for whole_s in (5e-6, 11e-6, 14e-6):  # where the profiler made all longer, as it says, with gaps between
        found, other_s = prices(seen, UNFUSED, whole_s)
        assert found[first] + 2 * found[again] + found[last] + (other_s or 0.0) == pytest.approx(whole_s)
        assert found[last] < found[first] < found[again]
    assert prices(traced(((), 1e-6)), UNFUSED, 1e-6) == ({}, 0.0)  # a trace that names no operator
    # Two products in one kernel, and a long one that was interrupted, tell nothing.
    assert set(prices(traced(((0,), 2e-6), ((1, 2), 8e-6)), UNFUSED, 1e-5)[0]) == {first}
    assert set(prices(traced(((0,), 2e-6), ((1,), 8e-3), interrupted=True), UNFUSED, 1e-2)[0]) == {first}


def test_units_of_models_are_priced_in_the_users_own_files(home: Path, tmp_path: Path) -> None:
    trace = Trace(((1, 4, 16, 16),))
    x = trace.input().conv(8, 3, bias=True).relu().conv(8, 3, stride=2, bias=True).relu()
    net = trace.net(x.global_average_pool().linear(3))
    space = space_of_models([write_net(net, tmp_path / "own.onnx")], {})
    found = table_of(build_table(replace(asked(home, tmp_path / "t", rules=None), space=space)))
    assert {row.unit.chain for row in found.rows} == {"Conv+Relu", "GlobalAveragePool", "Linear"}
    assert all(row.nets == 1 and not row.processes for row in found.rows)
    other = space_of_models([write_net(net, tmp_path / "other.onnx", seed=1)], {})
    with ExitStack() as stack:
        bench = SimpleNamespace(put=lambda key, *given, **named: key)
        keys = {Traces(bench=bench, space=one, stack=stack).place([[0]])[0].placed for one in (space, space, other)}  # type: ignore[arg-type]
    assert len(keys) == 2  # the first model of another command is another one


def test_operators_on_whole_numbers_are_measured_inside_of_a_model_and_alone(home: Path, tmp_path: Path) -> None:
    path = quantised(tmp_path, ["QLinearConv", "DynamicQuantizeLinear", "ConvInteger"], 8)
    space, net = space_of_models([path], {}), read_net(path, {}).net
    request = asked(home, tmp_path / "alone", rules=UNFUSED, runtimes=("onnxruntime",))
    alone = table_of(build_table(replace(request, space=space)))
    assert {row.unit for row in alone.rows} == set(net.counts())
    assert alone.failed == () and all(row.processes and not row.nets for row in alone.rows)
    inside = table_of(build_table(replace(request, space=space, rules=None, out=tmp_path / "inside")))
    assert inside.failed == () and sum(row.nets for row in inside.rows) > len(inside.rows) / 2
    told = predict_model(path, tables=[tmp_path / "inside"])
    assert told.left_out == () and told.guessed_s == 0
    assert {one.source for one in told.units} == {"measured"}


@pytest.mark.skipif(find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed")
def test_units_of_tflite_models_are_priced_in_them_and_else_cut_out_of_them(home: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.tflite" for name in "abc"]
    for file, count in zip(files, (2, 4, 3), strict=True):
        chain = ["conv", "floor_mod", "softmax", "log_softmax"] * count
        file.write_bytes(tflite(*chain, shape=(1, 16, 16, 8 * count)))
    space = space_of_models(files[:2], {})
    request = asked(home, tmp_path / "inside", rules=None, runtimes=("litert",))
    inside = table_of(build_table(replace(request, space=space)))
    assert inside.manifest.models == ("a.tflite", "b.tflite")
    assert inside.failed == () and all(row.nets == 1 and not row.processes for row in inside.rows)
    alone = table_of(build_table(replace(request, space=space, rules=UNFUSED, out=tmp_path / "alone")))
    assert alone.failed == () and all(row.processes and not row.nets for row in alone.rows)
    assert {row.unit for row in alone.rows} == {unit for net in space.nets.values() for unit in net.counts()}
    told = predict_model(files[2], tables=[tmp_path / "inside"])
    assert {one.source for one in told.units} == {"like measured ones"} and told.guessed_s == 0
    assert told.low_s < told.mean_s < told.high_s
    known = predict_model(files[0], tables=[tmp_path / "inside"])
    assert {one.source for one in known.units} == {"measured"}
    # A third model completes the table, and what is of ONNX models prices none of these.
    with pytest.raises(UsageError, match="none of these models has the reference kernel"):
        build_table(replace(request, space=space_of_models([files[2]], {})))
    grown = table_of(build_table(replace(request, space=space_of_models(files, {}))))
    assert grown.manifest.models == ("a.tflite", "b.tflite", "c.tflite")
    assert len(grown.rows) == len(inside.rows) + 4
    with pytest.raises(UsageError, match="units of TFLite models and units of other models"):
        predict_model(write_net(net_of(single(layer("Relu"), ((1, 2),))), tmp_path / "m.onnx"), [tmp_path / "inside"])
    with pytest.raises(UsageError, match="units of TFLite models and units of other models"):
        build_table(replace(request, space=space_of_models([files[0], tmp_path / "m.onnx"], {})))


def test_conversions_around_a_unit_that_ran_alone_are_left_out() -> None:
    unit = single(layer("Relu"), ((1, 8, 4, 4),))
    added, own = TracedKernel(nodes=(), added=True, time_s=1e-6), TracedKernel(nodes=(0,), added=False, time_s=2e-6)
    on_device = PlacedNet(net=net_of(unit), placed=None, nodes={}, others=0)  # type: ignore[arg-type]
    traced = TracedNet(on_device=on_device, kernels=(added, own, added), interrupted=False)
    traces = SimpleNamespace(alone=lambda unit: on_device, trace=lambda one, processes: traced)
    row = Row(unit=unit, status="ok", at_s=0.0, call_s=5e-6, low_s=4.8e-6, high_s=5.4e-6)
    kept = without_added(row, traces, 1e-6)  # type: ignore[arg-type]
    found = {name: getattr(kept, name) for name in ("added", "low_s", "call_s", "high_s")}
    assert found == pytest.approx({"added": 0.5, "low_s": 2.9e-6, "call_s": 3e-6, "high_s": 3.2e-6})


def built_rules(table: Table) -> set[str]:
    return {row.unit.chain for row in table.rows if len(row.unit.layers) > 1}


def test_over_ssh(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    if what := missing():
        pytest.skip(what)
    python = python_with(tmp_path / "python", ("numpy", "onnxruntime"))
    with running_board(tmp_path_factory.mktemp("board")) as board:
        device = replace(board, python=python).config()
        found = build_table(asked(tmp_path, tmp_path / "t", device=device, rules=UNFUSED))
        assert table_of(found).failed == ()
        assert len(table_of(found).rows) == 6
        assert board.clean()
