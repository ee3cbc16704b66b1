"""Tables by a tool that measures by itself, here a made-up one: what is measured, what is kept, and bad days."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.jobs.table.table_kit import table_of
from tests.jobs.table.tool_kit import ABOUT, US, MadeUp, asked, build_with_tool, tiny

from gnomon.errors import DeviceError, MeasurementError, UsageError
from gnomon.jobs.runs.job import list_campaigns
from gnomon.jobs.table.folder import read_table
from gnomon.jobs.table.fusion import layer_groups
from gnomon.jobs.table.nets import measure_nets
from gnomon.session.bench.tool import ToolLink, said_of, tool_of, tool_runtime
from gnomon.spaces import UNFUSED
from gnomon.spaces.latency_table import Table, complaints
from gnomon.store.base import RunQuery
from gnomon.store.sqlite import SqliteStore

pytest.importorskip("onnx", reason="onnx is not installed")

QUICK = {"runs": "1", "inputs": "1", "benches": "3", "anchor": "2"}
UNITS = tiny().tables(UNFUSED).units
BENCHES = 5 + 3 * -(-len(UNITS) // 2) + 3 * len(UNITS)
"""Those of the anchor at the begin, of the anchor beside each two units, and of the units."""


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GNOMON_LEASES", str(tmp_path / "leases"))
    monkeypatch.setattr(ToolLink, "state", lambda self: {})
    return tmp_path / "tiny.table"


def times_us(table: Table) -> dict[str, float]:
    return {row.unit.chain: round(table.times_s[row.unit] * 1e6, 3) for row in table.rows if row.status != "failed"}


def test_each_unit_gets_a_row_of_separate_benches(out: Path) -> None:
    tool = MadeUp()
    built = build_with_tool(asked(out), tool, QUICK)
    assert {row.unit for row in table_of(built).rows} == set(UNITS)
    assert not complaints(table_of(built), UNITS)
    for row in table_of(built).rows:
        own = US[row.unit.chain]
        assert (row.status, row.processes, row.drift) == ("ok", 3, 1.0)
        assert row.call_s == pytest.approx(own * 1e-6)
        # Three benches agree, and yet it is known no better than the tool's rounding lets it be.
        assert row.relative_half_width == pytest.approx(0.5 / own, rel=1e-6)
        assert row.reported["Layers Time/Avg_Time"] == own
        assert row.reported["Total Inference Time/Min_Time"] == own + 600
        assert all(len(values) == 1 for values in row.samples.values())
    manifest = table_of(built).manifest
    assert (manifest.overhead_s, manifest.clock) == (0.0, "wall")
    assert manifest.context["backend"] == "GPU"
    assert manifest.context["device"]["ro.product.model"] == "XQ-AS42"
    assert manifest.context["version"] == "1.33.1.608"
    assert {order.backends for order in tool.orders} == {("GPU",)}
    # The anchor first, two benches more than others have, then a round of it for each two units.
    assert len(tool.measured) == BENCHES
    with SqliteStore.open(out.with_name("record.sqlite")) as store:
        runs = list(store.query(RunQuery(campaign=built.campaign or "")))
    assert len(runs) == BENCHES
    assert all(run.facts["told"] == ABOUT and run.facts["layers"] for run in runs)
    assert {run.samples.inner for run in runs if run.samples} == {1}


_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.jobs.table.tool_kit import MadeUp, asked, build_with_tool
from gnomon.session.bench.tool import ToolLink
ToolLink.state = lambda self: {}
tool = MadeUp()
tool.before = lambda number: os.kill(os.getpid(), signal.SIGKILL) if number == 12 else None
build_with_tool(asked(Path(sys.argv[1])), tool, {"runs": "1", "inputs": "1", "benches": "3", "anchor": "2"})
"""


def test_a_kill_loses_no_bench_of_a_unit(out: Path) -> None:
    died = subprocess.run([sys.executable, "-c", _KILLED, str(out)], check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert not read_table(out).rows, "the first two units were under way"
    with SqliteStore.open(out.with_name("record.sqlite")) as store:
        (row,) = list_campaigns(store)
    assert (row.campaign.kind, row.finished, row.running, row.runs) == ("table", False, False, 12)
    tool = MadeUp()
    built = build_with_tool(asked(out), tool, QUICK)
    assert built.campaign == row.campaign.id
    assert len(tool.measured) <= BENCHES - 12 + 3, "three more are the anchor's"
    assert not complaints(table_of(built), UNITS)
    assert "unwatched" in {doubt.kind for doubt in built.doubts or ()}
    assert build_with_tool(asked(out), tool, QUICK).measured == 0
    assert build_with_tool(asked(out, again=True), tool, QUICK).measured == len(UNITS)


def test_a_phone_that_leaves_and_returns_costs_no_bench_twice(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.session.request._FIRST_PAUSE_S", 0.0)
    tool = MadeUp()
    told: list[str] = []
    left: list[int] = []

    def leave(number: int) -> None:
        if number == 12 and not left:
            left.append(number)
            raise DeviceError("the connection to adb://x was lost", hint="", transient=True)

    tool.before = leave
    built = build_with_tool(asked(out), tool, QUICK, tell=told.append)
    assert any("is back" in sentence for sentence in told)
    assert built.measured == len(UNITS)
    assert not complaints(table_of(built), UNITS)
    # The units once each, the anchor's level, its rounds, and three more beside what was left of the part broken off.
    assert len(tool.measured) <= BENCHES + 3


def test_a_converter_that_dies_on_one_unit_is_one_failed_row(out: Path) -> None:
    tool = MadeUp(lambda operators: "snpe-onnx-to-dlc crashed with signal 11" if "Relu" in operators else "")
    built = build_with_tool(asked(out), tool, QUICK)
    assert {row.unit.chain for row in table_of(built).failed} == {"Relu"}
    assert "crash while loading" in table_of(built).failed[0].reason
    assert "signal 11" in table_of(built).failed[0].reason
    assert tool.measured.count(["Relu"]) == 4, "tried as the anchor, then as a unit, each time once more"
    assert times_us(table_of(built)) == {"Conv": 200.0, "BatchNormalization": 30.0}
    with pytest.raises(MeasurementError, match="runs none of"):
        build_with_tool(asked(out.with_name("none")), MadeUp(lambda operators: "the phone lacks it"), QUICK)
    assert not out.with_name("none").exists()


def test_what_breaks_for_all_is_no_failure_of_the_units(out: Path) -> None:
    tool = MadeUp()
    tool.bad = lambda operators: "no room on the phone" if len(tool.measured) > 14 else ""
    with pytest.raises(MeasurementError, match=r"no longer runs the reference kernel.*no room"):
        build_with_tool(asked(out), tool, {**QUICK, "anchor": "1"})
    kept = read_table(out)
    assert len(kept.rows) >= 1
    built = build_with_tool(asked(out), MadeUp(), {**QUICK, "anchor": "1"})
    assert built.measured == len(UNITS) - len(kept.rows)
    assert not table_of(built).failed


def test_a_phone_that_slows_down_is_seen_by_the_anchor(out: Path) -> None:
    steady = table_of(build_with_tool(asked(out), MadeUp(), QUICK))
    for begin, drifts in ((14, {1.0, 0.5}), (10, {0.5})):  # between two rounds, and within one
        slowing = MadeUp()
        slowing.speed = lambda number, begin=begin: 1.0 if number < begin else 2.0  # type: ignore[misc]
        table = table_of(build_with_tool(asked(out.with_name(f"slow-{begin}")), slowing, QUICK))
        assert times_us(table) == pytest.approx(times_us(steady), rel=0.02)
        assert {round(row.drift, 1) for row in table.rows} == drifts
    again = MadeUp()
    again.speed = lambda number: 2.0
    resumed = table_of(build_with_tool(asked(out, again=True), again, QUICK))
    assert times_us(resumed) == pytest.approx(times_us(steady), rel=0.02), "the table's own anchor counts"


def test_one_bench_has_no_interval_so_that_none_is_left_with_it(out: Path) -> None:
    table = table_of(build_with_tool(asked(out), MadeUp(), {**QUICK, "benches": "1"}))
    assert {(row.status, row.processes) for row in table.rows} == {("ok", 2)}


def test_benches_that_disagree_are_unstable(out: Path) -> None:
    tool = MadeUp()
    tool.speed = lambda number: (1.0, 1.3, 1.0, 1.15, 0.9)[number % 5]
    rows = table_of(build_with_tool(asked(out), tool, QUICK)).rows
    assert {row.processes for row in rows if row.status == "unstable"} == {6}, "they had a second chance"


@pytest.mark.parametrize("named", [True, False], ids=["by names", "by times"])
def test_what_the_converter_folds_is_found(out: Path, named: bool) -> None:
    tool = MadeUp()
    tool.named = named
    table = table_of(build_with_tool(asked(out, fuse=None), tool, QUICK))
    assert table.manifest.rules == ("Conv+BatchNormalization",)
    assert times_us(table) == {"Conv+BatchNormalization": 200.0, "Relu": 40.0}
    sources = {one["source"] for one in table.manifest.evidence}
    assert sources == {"layer names" if named else "times"}


def test_names_that_do_not_tell_are_no_evidence() -> None:
    net = tiny().net((0, 0))
    names = [name for name, _, _ in net.layer_names()]
    conv, norm, relu = names[:3]
    listed = [f"layer_{k} (Name:{name} Type:x)" for k, name in enumerate(names) if "BatchNorm" not in name]
    assert layer_groups(net, listed)[0] == [conv, norm]
    assert [relu] in layer_groups(net, listed)
    assert layer_groups(net, [text.replace(".", "_") for text in listed]) == layer_groups(net, listed)
    assert layer_groups(net, listed[2:]) == [], "no layer has two convolutions"
    by_last = [f"layer_{k} (Name:{name})" for k, name in enumerate(names) if "Conv" not in name]
    assert layer_groups(net, by_last)[0] == [conv, norm]
    assert layer_groups(net, ["layer_001 (Name:Conv_0 Type:convolutional)"]) == []
    assert layer_groups(net, []) == []
    assert layer_groups(net, [f"layer_1 (Name:{conv}7)", f"layer_2 (Name:1{relu})"]) == [], "longer names are others"


def test_whole_nets_are_measured_as_the_table_was(out: Path) -> None:
    table = table_of(build_with_tool(asked(out, fuse=None), MadeUp(), {**QUICK, "perf_profile": "burst"}))
    tool = MadeUp()
    tool.speed = lambda number: 2.0
    request = asked(out).request
    rows, document = measure_nets(request, tiny(), table, [(0, 0), (1, 0)], tool=tool)
    assert [row.latency_s for row in rows] == pytest.approx([2 * 240e-6] * 2, rel=0.01)
    assert not document.unlike and not document.failures
    assert {(o.runs, o.settings["perf_profile"]) for o in tool.orders} == {(1, "burst")}
    tool = MadeUp(lambda operators: "too large" if len(operators) > 3 else "")
    with pytest.raises(MeasurementError, match=r"no net ran.*too large"):
        measure_nets(request, tiny(), table, [(0, 0)], tool=tool)
    other = replace(table, manifest=replace(table.manifest, context={"runtime": "onnxruntime"}))
    with pytest.raises(UsageError, match="not measured by madeup"):
        measure_nets(request, tiny(), other, [(0, 0)], tool=tool)


def test_unlike_tables_stay_apart(out: Path) -> None:
    build_with_tool(asked(out), MadeUp(), QUICK)
    for options in ({"perf_profile": "burst"}, {"runs": "7"}):
        with pytest.raises(MeasurementError, match=r"measured otherwise.*protocol"):
            build_with_tool(asked(out), MadeUp(), {**QUICK, **options})
    with pytest.raises(MeasurementError, match="backend: GPU and CPU"):
        build_with_tool(asked(out, backends=("CPU",)), MadeUp(), QUICK)


def test_options_are_checked_before_anything_starts(out: Path) -> None:
    tool = MadeUp()
    for backends, told in ((("CPU", "GPU"), "one backend of madeup, not of CPU, GPU"), (("NPU",), "no backend 'NPU'")):
        with pytest.raises(UsageError, match=told):
            build_with_tool(asked(out, backends=backends), tool, QUICK)
    assert not tool.measured
    said = {"runs": "20", "benches": "2", "perf_profile": "burst"}
    request = asked(out).request
    made = tool_runtime(tool, request, said)
    assert (made.order.runs, made.order.inputs, made.benches, made.anchor) == (20, 10, 2, 8)
    assert made.order.settings == {"perf_profile": "burst"}
    assert said_of(made.protocol) == {**said, "inputs": "10"}
    assert tool_runtime(tool, request, {"timeout": "3000"}).order.timeout_s == 3000
    for wrong in ({"runs": "0"}, {"runs": "many"}, {"timeout": "-1"}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            tool_runtime(tool, request, wrong)
    assert tool_of(replace(request, runtimes=("onnxruntime",))) is None
    assert tool_of(replace(request, runtimes=("snpe",))) is not None
    with pytest.raises(UsageError, match="one runtime"):
        tool_of(replace(request, runtimes=("snpe", "onnxruntime")))
