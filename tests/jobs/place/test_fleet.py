"""Several devices at once: the lanes, the plan for all, and both with a real runtime."""

from __future__ import annotations

import dataclasses
import itertools
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jobs.place.fleet_kit import INF, device, inside

from gnomon.core.pricing.transfers import Carried, TransferPrices, Wiring
from gnomon.devices.address import parse_address
from gnomon.devices.config import DeviceConfig
from gnomon.errors import DeviceError, GnomonError, PackageError, UsageError
from gnomon.jobs.place import fleet as fleet_module
from gnomon.jobs.place.common_plan import decide, model_of
from gnomon.jobs.place.fleet import CommonProof, package_folders, place_on, prove_common, run_lanes, settled
from gnomon.jobs.place.job import Placement
from gnomon.jobs.place.transfers import TransferResult
from gnomon.measure.effort import Effort
from gnomon.session.model_session import Lab
from gnomon.session.request import Request
from gnomon.system.stopping import Stopped, pause


def board(name: str, host: str = "") -> DeviceConfig:
    return DeviceConfig(name=name, address=parse_address(f"ssh://{host or name}"))


BOARDS = {name: board(name) for name in ("a", "b", "c")}

# The operators of the first are fast on cpu, of the other on ruy; only the second may not run there.
EARLY = [[10e-6, 20e-6], [10e-6, INF], [40e-6, 30e-6], [10e-6, 12e-6]]
LATE = [[30e-6, 10e-6], [10e-6, INF], [30e-6, 10e-6], [10e-6, 10e-6]]


def test_what_ran_everywhere_is_an_option_with_its_measured_regret() -> None:
    placements = {
        "a": device("a", {"cpu": 100, "ruy": 150, "cpu,cpu,ruy,ruy": 80}),
        "b": device("b", {"cpu": 200, "ruy": 110}),
    }
    common = decide(placements)
    assert {o.label for o in common.options} == {"onert:cpu", "onert:ruy"}  # the mix ran on one alone
    assert common.total is not None
    # ruy: 150/80 on a, itself on b. cpu: 100/80 on a, 200/110 on b.
    assert common.total.label == "onert:ruy"
    assert common.total.shares["a"].regret == pytest.approx(150 / 80 - 1, rel=0.02)
    assert common.total.shares["b"].regret == 0.0
    other = common.options[1]
    assert other.label == "onert:cpu" and other.worst == pytest.approx(200 / 110 - 1, rel=0.02)
    share = other.shares["b"]
    assert share.measured and share.regret_low is not None and share.regret_high is not None
    assert share.regret_low <= share.regret <= share.regret_high
    assert common.total.predicted_on == ()


def test_a_mix_that_ran_everywhere_is_an_option_too() -> None:
    times = {"cpu": 100, "cpu,cpu,ruy,ruy": 80}
    common = decide({"a": device("a", times), "b": device("b", times)})
    assert common.total is not None and common.total.label == "onert:cpu,cpu,ruy,ruy"
    assert common.total.worst == 0.0


def test_the_prices_of_all_devices_are_solved_for_one_plan() -> None:
    placements = {
        "a": device("a", {"cpu": 70, "cpu,cpu,ruy,cpu": 60}, EARLY),
        "b": device("b", {"cpu": 80, "ruy,cpu,ruy,ruy": 40}, LATE),
    }
    common = decide(placements)
    prices = {"a": np.array(EARLY), "b": np.array(LATE)}
    own = {"a": 60e-6, "b": 40e-6}
    every = [
        {d: float(prices[d][range(4), c].sum()) / own[d] - 1 for d in prices}
        for c in itertools.product((0, 1), (0,), (0, 1), (0, 1))
    ]
    solved = [o for o in common.options if o.certificate is not None]
    assert solved and all(o.certificate is not None and o.certificate.optimal for o in solved)
    assert common.total is not None
    assert common.total.total == pytest.approx(min(sum(r.values()) for r in every) + 2, abs=0.02)
    for option in solved:
        for name, share in option.shares.items():
            assert share.measured == (name not in option.predicted_on)
            assert (share.regret_low is None) == (not share.measured)


def test_a_backend_that_one_device_has_not_is_no_choice() -> None:
    placements = {
        "a": device("a", {"cpu": 70}, [[10e-6, 1e-6]] * 4),
        "b": device("b", {"cpu": 40}, [[10e-6, INF]] * 4),
    }
    common = decide(placements)
    assert all(set(o.backends.values()) == {"cpu"} for o in common.options)


def test_what_cannot_be_common_is_said() -> None:
    placements = {
        "a": device("a", {"cpu": 70}, [[10e-6, INF]] * 4),
        "b": device("b", {"ruy": 40}, [[INF, 10e-6]] * 4),
    }
    common = decide(placements)
    assert common.options == () and common.total is None
    assert any("onert has no assignment for all devices" in note for note in common.notes)
    one_priced = decide({"a": placements["a"], "b": device("b", {"cpu": 40})})
    assert "onert was not priced on b" in one_priced.notes


@given(st.lists(st.lists(st.floats(1e-6, 1e-4), min_size=8, max_size=8), min_size=2, max_size=3))
@settings(max_examples=25)
def test_no_assignment_is_better_for_all_by_the_prices(drawn: list[list[float]]) -> None:
    tables = {f"d{k}": np.array(flat).reshape(4, 2) for k, flat in enumerate(drawn)}
    placements = {d: device(d, {"cpu": 100}, t.tolist()) for d, t in tables.items()}
    common = decide(placements)
    assert common.total is not None
    # The one choice that was measured, cpu alone, is what regret counts from.
    every = [
        [float(t[range(4), c].sum() / t[:, 0].sum()) - 1 for t in tables.values()]
        for c in itertools.product((0, 1), repeat=4)
    ]
    assert common.total.total <= min(sum(r) for r in every) + len(tables) + 1e-9


def test_a_proof_takes_the_place_of_a_prediction() -> None:
    placements = {
        "a": device("a", {"cpu": 70, "cpu,cpu,ruy,cpu": 60}, EARLY),
        "b": device("b", {"cpu": 80, "ruy,cpu,ruy,ruy": 40}, LATE),
    }
    common = decide(placements)
    option = next(o for o in common.options if o.predicted_on)
    slow = {d: replace(s, regret=9.0, measured=True) for d, s in option.shares.items()}
    after = settled(common, option, CommonProof(label=option.label, shares=slow, failed={}))
    assert after.total is not None and after.total.label != option.label and len(after.options) == len(common.options)
    refused = settled(common, option, CommonProof(label=option.label, shares={}, failed={"b": "it crashed"}))
    assert len(refused.options) == len(common.options) - 1
    assert any("it crashed" in note for note in refused.notes)


@pytest.mark.parametrize("chained", [False, True])
def test_a_plan_that_shares_no_block_with_the_choice_is_proven_without_an_interval(chained: bool) -> None:
    placement = device("a", {"cpu": 70, "cpu,cpu,ruy,cpu": 60})
    placement = replace(placement, clock="wall")
    ours, theirs = (found.measured for found in placement.verdict.proved)
    ours = replace(ours, runs=tuple(run for run in ours.runs if run.process == 0))
    theirs = replace(theirs, runs=tuple(run for run in theirs.runs if run.process > 0))
    lab = cast(Lab, None)  # it is asked for nothing where wall time decides
    share = fleet_module._share(lab, placement, ours, theirs, chained=chained)
    assert share.measured and (share.regret_low, share.regret_high) == (None, None)
    assert 1 + share.regret == pytest.approx(70 / 60 * (70 / 60 if chained else 1), rel=0.03)


def test_lanes_run_at_the_same_time_and_keep_their_order() -> None:
    together = threading.Barrier(3, timeout=20)

    def job(name: str) -> str:
        together.wait()
        return name.upper()

    ended = run_lanes(BOARDS, job)
    assert list(ended) == ["a", "b", "c"] and [e.found for e in ended.values()] == ["A", "B", "C"]


def test_devices_of_one_machine_take_turns() -> None:
    inside = threading.Lock()

    def job(name: str) -> None:
        assert inside.acquire(blocking=False)
        time.sleep(0.02)
        inside.release()

    ended = run_lanes({name: board(name, "one") for name in "abc"}, job)
    assert all(e.error is None for e in ended.values())


def test_a_lane_that_fails_leaves_the_others() -> None:
    def job(name: str) -> str:
        if name == "b":
            raise DeviceError("b is gone")
        return name

    ended = run_lanes(BOARDS, job)
    assert isinstance(ended["b"].error, DeviceError) and ended["b"].found is None
    assert ended["a"].found == "a" and ended["c"].found == "c"


def waiting(started: Callable[[], object], cleaned: list[str]) -> Callable[[str], None]:
    def job(name: str) -> None:
        try:
            started()
            while True:
                pause(0.01)
        finally:
            cleaned.append(name)

    return job


def test_ctrl_c_ends_every_lane_in_order() -> None:
    cleaned: list[str] = []
    together = threading.Barrier(4, timeout=20)

    def interrupt() -> None:
        together.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_lanes(BOARDS, waiting(together.wait, cleaned))
    assert sorted(cleaned) == ["a", "b", "c"]


def test_a_defect_in_one_lane_ends_the_others_and_is_told() -> None:
    cleaned: list[str] = []
    ready = threading.Barrier(3, timeout=20)
    wait = waiting(ready.wait, cleaned)

    def job(name: str) -> None:
        if name == "a":
            ready.wait()
            raise ZeroDivisionError("a defect")
        wait(name)

    with pytest.raises(ZeroDivisionError):
        run_lanes(BOARDS, job)
    assert sorted(cleaned) == ["b", "c"]


def test_a_stopped_lane_goes_to_no_further_device() -> None:
    begun: list[str] = []
    ready = threading.Barrier(2, timeout=20)

    def job(name: str) -> None:
        begun.append(name)
        ready.wait()
        if name == "other":
            raise ZeroDivisionError
        try:
            while True:
                pause(0.01)
        except Stopped:
            raise DeviceError("lost while it was cleaned") from None

    with pytest.raises(ZeroDivisionError):
        run_lanes({"x": board("x", "one"), "y": board("y", "one"), "other": board("other")}, job)
    assert sorted(begun) == ["other", "x"]


def test_folders_of_packages(tmp_path: Path) -> None:
    names = dict.fromkeys(["ssh://me@board:22", "ssh_me_board_22", "..", "ok"])
    folders = package_folders(names, tmp_path / "out")
    assert len(set(folders.values())) == 4
    assert all(f.parent == tmp_path / "out" and f.name not in ("", ".", "..") for f in folders.values())
    (tmp_path / "file").touch()
    with pytest.raises(PackageError):
        package_folders(names, tmp_path / "file")


def requests(tmp_path: Path, *names: str) -> dict[str, Request]:
    return {name: Request(model=tmp_path / "m.onnx", device=board(name)) for name in names}


def test_place_on_tags_what_lanes_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(request: Request, out: Path, **more: object) -> Placement:
        tell = more["tell"]
        if callable(tell):
            tell("hello")
        if request.device.name == "b":
            raise DeviceError("b is gone", hint="Look for it.")
        return device(out.name, {"cpu": 100}, folder=out.parent)

    monkeypatch.setattr(fleet_module, "place", fake)
    told: list[tuple[str, str]] = []
    found = place_on(requests(tmp_path, "a", "b", "c"), tmp_path / "out", tell=lambda n, s: told.append((n, s)))
    assert sorted(told) == [(n, "hello") for n in "abc"]
    assert list(found.placements) == ["a", "c"]
    assert isinstance(found.results[1].error, DeviceError)
    assert found.common.total is not None and set(found.common.total.shares) == {"a", "c"}
    with pytest.raises(DeviceError):
        place_on(requests(tmp_path, "b"), tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(UsageError):
        place_on({}, tmp_path / "none")
    with pytest.raises(GnomonError, match="2 models"):
        two = requests(tmp_path, "a", "b")
        place_on({**two, "a": replace(two["a"], model=tmp_path / "other.onnx")}, tmp_path / "none")


def test_two_names_of_this_machine_for_real(zoo_model: Callable[[str], Path], small: Effort, tmp_path: Path) -> None:
    """The composition on real placements, and the proof of a plan for all: no times are judged."""
    local = parse_address("local")
    asked = {
        name: Request(model=zoo_model("mix.circle"), device=DeviceConfig(name=name, address=local), effort=small)
        for name in ("first", "second")
    }
    found = place_on(asked, tmp_path / "out")
    assert [r.error for r in found.results] == [None, None]
    assert {p.package.name for p in found.placements.values() if p.package} == {"first", "second"}
    common = found.common
    assert common.total is not None
    assert all(len(o.shares) == 2 for o in common.options)
    assert common.total.total <= min(o.total for o in common.options)
    proof = prove_common(asked, found, common.total)
    assert proof.failed == {} and set(proof.shares) == {"first", "second"}
    assert all(share.measured and share.time_s > 0 for share in proof.shares.values())


@pytest.mark.parametrize("backends", [("cpu", "vulkan"), ("cpu",)])
def test_crossings_are_paid_in_the_model_of_a_device(backends: tuple[str, ...]) -> None:
    prices = TransferPrices(
        wiring=Wiring(
            tensors=(
                *(Carried(writer=k, readers=(k + 1,), size=1e6, returned=False) for k in range(3)),
                Carried(writer=3, readers=(), size=8.0, returned=True),
            ),
            written=((1e6,), (1e6,), (1e6,), (8.0,)),
            free=frozenset(),
        ),
        own_s=np.array([[3e-3, 1e-3]] * 4),
        bring_s=((1e-4, 1e-9),),
        fetch_s=((2e-4, 1e-9),),
        base_s=5e-4,
        error=0.0,
    )
    plain = inside([[1e-3] * len(backends)] * 4, backends)
    values = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
    made = TransferResult(**values, transfers=prices)
    model = model_of(made, ("metal", "vulkan", "cpu"))
    names = {"cpu": 0, "vulkan": 1}
    for assignment in itertools.product(range(3), repeat=4):
        chosen = [("metal", "vulkan", "cpu")[k] for k in assignment]
        value = float(model.evaluate([assignment])[0, 0])
        if set(chosen) <= set(backends):
            assert value == pytest.approx(prices.total_s([names[c] for c in chosen]))
        else:
            assert value == INF
