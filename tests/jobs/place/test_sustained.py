"""Sustained and paced runs: what is asked, what pretended series say, and a real short one on ONNX Runtime."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.drivers.litertkit import tflite
from tests.bad_days.livekit import matmul_onnx
from tests.cli.placement_kit import profiled

from gnomon.api import place as api
from gnomon.core.sample import Failure, Run, Samples
from gnomon.errors import DeviceError, UsageError
from gnomon.jobs.documents import read_document
from gnomon.jobs.place.document import Cooling, ProfileDocument, SustainedPart
from gnomon.jobs.place.report import profile_report
from gnomon.jobs.place.sustained import Sustain, cool, sustained
from gnomon.measure.campaign import CampaignRunner
from gnomon.measure.effort import Effort
from gnomon.report.page import Page


@pytest.mark.parametrize("for_s", [2.0, 60.0, 600.0, 36_000.0])
@pytest.mark.parametrize("call_s", [1e-5, 5e-3, 0.4])
@pytest.mark.parametrize("every_s", [None, 1e-3, 0.033, 1.5])
def test_blocks_fill_the_time_that_is_asked_for(for_s: float, call_s: float, every_s: float | None) -> None:
    effort = Sustain(for_s=for_s, every_s=every_s).effort(call_s, Effort())
    assert abs(effort.rounds * effort.block_s - for_s) <= max(effort.block_s / 2, 1e-6)
    assert effort.rounds <= 3600 and effort.timeout_s > effort.block_s + call_s
    assert effort.block_s >= min(for_s / 2, 2 * call_s)
    if every_s is not None:
        block = effort.request()["block"]
        assert block["slots"] * every_s == pytest.approx(effort.block_s) and block["every_ns"] == round(every_s * 1e9)
    # An inner loop keeps what is recorded of a long run in bounds.
    assert effort.rounds * effort.block_s / effort.sample_s <= 1.01 * 600_000


def test_a_pace_that_does_not_fit() -> None:
    with pytest.raises(UsageError, match=r"every 3 s does not fit into 2 s"):
        Sustain(for_s=2.0, every_s=3.0)
    with pytest.raises(UsageError, match="--every needs --for"):
        api.profile("m.onnx", every_s=0.033)


def runs(
    factors: list[float], *, states: Mapping[int, Mapping[str, Any]] | None = None, opened: tuple[int, ...] = (0,)
) -> list[Run]:
    """A block a factor: a second of calls of 5 ms times the factor, with 1 % of noise."""
    noise = random.Random(3)
    made, clock_s, told = [], 1000.0, dict[str, Any]()
    for block, factor in enumerate(factors):
        if block in opened:
            clock_s += 500
        clock_s += 1.0
        told |= (states or {}).get(block, {})
        wall_ns = tuple(round(5e6 * factor * noise.gauss(1, 0.01)) for _ in range(20))
        facts = {"state": {"monotonic_s": clock_s, **told}, **({"load_ns": 1} if block in opened else {})}
        samples = Samples(wall_ns=wall_ns, cpu_ns=wall_ns)
        made.append(Run(candidate="c", process=0, block=block, started_at_s=0.0, samples=samples, facts=facts))
    return made


def found(factors: list[float], asked: Sustain | None = None, **how: Any) -> SustainedPart:
    return sustained("board", asked or Sustain(for_s=600.0), runs(factors, **how), None, None)


def test_throttling_is_a_change_with_its_time_and_what_the_device_tells() -> None:
    hot = {"frequencies_khz": {"cpu0": [1_200_000, 1, 2_000_000, 2_000_000]}, "slowed_to_cool": {"cpufreq": 3}}
    cold = {"frequencies_khz": {"cpu0": [2_000_000, 1, 2_000_000, 2_000_000]}}
    one = found([1.0] * 190 + [1.25] * 410, states={0: cold, 190: hot})
    (change,) = one.changes
    assert abs(change.since_s - 190) <= 1.5 and change.ratio == pytest.approx(1.25, rel=0.01)
    assert "throttled" in change.seen and change.frequency_ratio == pytest.approx(0.6)
    assert change.cpu_ratio == pytest.approx(1.25, rel=0.01) and one.slower_after_s == change.since_s
    assert one.first is not None and one.last is not None
    assert one.first.median_s == pytest.approx(5e-3, rel=0.01) and one.last.median_s == pytest.approx(6.25e-3, rel=0.01)
    assert 58 <= one.first.seconds <= 60 and 58 <= one.last.seconds <= 61
    faster = found([1.3] * 100 + [1.0] * 100)
    assert len(faster.changes) == 1 and faster.slower_after_s is None


def test_others_are_told_from_the_calls_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    """Calls that only wait for others keep their CPU time."""
    states = {k: {"cpu_busy_s": 0.1 * k + max(0, k - 100) * 1.5, "cpu_total_s": 2.0 * k} for k in range(200)}
    measured = [
        replace(run, samples=replace(run.samples, cpu_ns=(5_000_000,) * 20)) if run.samples is not None else run
        for run in runs([1.0] * 100 + [2.0] * 100, states=states)
    ]
    one = sustained("board", Sustain(for_s=200.0), measured, None, None)
    (change,) = one.changes
    assert change.cpu_ratio == 1.0 and change.seen == ("busy",)
    shares = one.blocks.others_share
    assert shares[0] is None and shares[50] == pytest.approx(0.0, abs=0.01) and shares[150] == pytest.approx(0.75)
    shown = page_of(replace(profiled(), sustained=(one,)), capsys)
    assert "the device reports that other processes were busy; the CPU time of a call hardly changed" in shown


def test_parts_of_an_interrupted_run_are_looked_at_by_themselves() -> None:
    """What another process takes is not a change of the first one's level, nor is the pause between them."""
    one = found([1.0] * 100 + [1.2] * 50 + [1.5] * 50, opened=(0, 100))
    (change,) = one.changes
    assert (change.part, one.parts, one.searched) == (1, 2, True) and one.blocks.part == (0,) * 100 + (1,) * 100
    assert change.since_s == pytest.approx(50, abs=1.5) and change.at_s == pytest.approx(150, abs=2.5)
    assert 190 < one.ran_s < 202


def test_nothing_was_measured() -> None:
    failure = Failure(stage="load", kind="crash", transient=False, message="gone")
    one = sustained("board", Sustain(for_s=60.0), [], None, failure)
    assert one.blocks.block == () and one.first is None and one.last is None and not one.searched


class Cooler:
    """A device that cools by a degree a second, down to a temperature."""

    def __init__(self, begin_c: float, end_c: float) -> None:
        self.now_s, self.begin_c, self.end_c = 0.0, begin_c, end_c

    def state(self) -> dict[str, Any]:
        return {"temperatures_c": {"soc": max(self.end_c, self.begin_c - self.now_s), "case": 30.0}}

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def clock(self) -> float:
        return self.now_s


def cooled(begin_c: float, end_c: float, baseline_c: Mapping[str, float]) -> tuple[Cooling | None, list[str]]:
    device, told = Cooler(begin_c, end_c), list[str]()
    cooling = cool(device.state, baseline_c, most_s=60.0, tell=told.append, wait=device.wait, clock=device.clock)
    return cooling, told


def test_a_device_is_waited_for_until_it_is_as_cool_as_before() -> None:
    cooling, told = cooled(70.0, 40.0, {"soc": 45.0, "case": 30.0})
    assert cooling == Cooling(zone="soc", baseline_c=45.0, from_c=70.0, to_c=45.0, waited_s=25.0, reached=True)
    assert told == ["soc is 25 degrees above its initial temperature: cooling for up to 60 s"]
    cooling, _ = cooled(70.0, 60.0, {"soc": 45.0})  # the wait has an end
    assert cooling is not None and not cooling.reached and cooling.waited_s == 60.0 and cooling.to_c == 60.0
    cooling, told = cooled(46.0, 40.0, {"soc": 45.0})
    assert cooling is not None and cooling.reached and cooling.waited_s == 0 and told == []
    assert cooled(70.0, 40.0, {}) == (None, [])


def page_of(document: ProfileDocument, capsys: pytest.CaptureFixture[str]) -> str:
    profile_report(document, Page(width=120, brief=True))
    return " ".join(capsys.readouterr().out.split())


def test_the_document_and_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    hot = {"slowed_to_cool": {"cpufreq": 3}, "temperatures_c": {"soc": 81.0}}
    throttled = found([1.0] * 300 + [1.5] * 300, states={300: hot})
    warm = Cooling(zone="soc", baseline_c=45.0, from_c=80.0, to_c=60.0, waited_s=300.0, reached=False)
    quiet = replace(found([1.0] * 50, opened=(0, 25)), label="other", cooling=warm)
    document = replace(profiled(), sustained=(throttled, quiet))
    json.dumps(document.document(), allow_nan=False)
    part = read_document(document.document()).sustained[0]
    assert part == throttled
    assert part.slower_after_s == pytest.approx(300, abs=1.5) and part.samples == part.calls == 12_000
    assert {len(column) for column in document.document()["sustained"][0]["blocks"].values()} == {600}
    assert part.blocks.temperature_c[-1] == 81.0 and part.blocks.temperature_c[0] is None
    shown = page_of(document, capsys)
    assert "Called for 10 min 0 s, in one fresh process each" in shown
    told = r"board: after 4 min 59 s, calls took (49|50)\.\d % longer \(.*; the device reports that it was throttled\."
    assert re.search(told, shown)
    assert (
        "other ran in 2 processes due to interruptions" in shown
        and "other began warm: soc was at 60 degrees Celsius" in shown
    )
    assert "other: no change of level in 50 blocks." in shown


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(matmul_onnx())
    return path


def how(tmp_path: Path) -> Any:
    return {"runtimes": ["onnxruntime"], "threads": 1, "processes": 1, "record": tmp_path / "r.sqlite"}


def test_a_real_run_that_is_interrupted_goes_on(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two seconds at a pace on ONNX Runtime: what was measured before the device vanished is not measured again."""
    pytest.importorskip("onnxruntime")
    whole, left = CampaignRunner._append, iter(range(10))

    def append(self: CampaignRunner, run: Run) -> None:
        if run.candidate.endswith("/sustained") and next(left, None) is None:
            raise DeviceError("the way to the device is gone", hint="again", transient=False)
        whole(self, run)

    with monkeypatch.context() as patched:
        patched.setattr(CampaignRunner, "_append", append)
        with pytest.raises(DeviceError):
            api.profile(model, for_s=2.0, every_s=0.01, **how(tmp_path))
    again = api.profile(model, for_s=2.0, every_s=0.01, **how(tmp_path))
    (one,) = again.sustained
    blocks = one.blocks
    assert again.resumed and one.failure is None and blocks.block == tuple(range(len(blocks.block)))
    assert blocks.part == (0,) * 10 + (1,) * (len(blocks.part) - 10) and len(blocks.block) > 20
    # Every slot of the grid had a call, or is told to have had none.
    assert one.paced is not None and one.calls + one.paced.skipped >= 200 and one.paced.every_s == 0.01
    assert all(load is not None for load in blocks.load_average_1m)
    assert "a call every 10.0 ms" in page_of(again, capsys)


def test_a_real_run_without_a_pace(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (one,) = api.profile(model, for_s=2.0, **how(tmp_path)).sustained
    assert one.failure is None and one.searched and one.first is not None and len(one.blocks.block) >= 50


def test_several_calls_at_once_are_throughput_and_their_latencies(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    pytest.importorskip("ai_edge_litert")
    pytest.importorskip("MNN")
    flat = tmp_path / "m.tflite"
    flat.write_bytes(tflite("conv", "softmax"))
    short: Any = {"threads": 1, "processes": 1, "record": tmp_path / "r.sqlite", "streams": 2, "for_s": 0.3}
    named = ["onnxruntime", "openvino", "mnn"]
    found = {one.label: one for one in api.profile(model, runtimes=named, **short).sustained}
    lite = api.profile(flat, runtimes=["litert"], **short)
    for one in (found["onnxruntime"], found["openvino"], *lite.sustained):
        assert one.failure is None and (one.streams, one.parts) == (2, 3) and one.paced is None
        assert one.request is not None and one.request.processes == 3 and one.p50_s and one.p99_s
        assert one.request.median_s > 0 and one.p50_s <= one.p99_s and one.calls == sum(one.blocks.calls)
    assert found["mnn"].failure is not None and "several requests at once" in found["mnn"].failure.message
    shown = page_of(lite, capsys)
    assert "Called for 300 ms, 2 requests at once" in shown and "requests/s" in shown and "interrupted" not in shown
    with pytest.raises(UsageError, match="cannot be combined with --streams"):
        api.profile(model, every_s=0.01, **short)
