"""--max-time with real runtimes: the answer is what is known then, and the next run goes on from the record."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bad_days.livekit import matmul_onnx
from tests.jobs.pareto.pareto_kit import Pretended, PretendedSpace, pretend

import gnomon
from gnomon.api import place as api
from gnomon.api.options import model_request
from gnomon.devices.lease import lease, lease_folder
from gnomon.errors import UsageError
from gnomon.jobs.pareto.job import pareto
from gnomon.jobs.pareto.search import ParetoRequest, Plan
from gnomon.jobs.place.report import place_report
from gnomon.measure.campaign import CampaignRunner
from gnomon.measure.effort import Effort, JobTime
from gnomon.report.page import Page
from gnomon.runtimes.base import Configuration
from gnomon.runtimes.onnxruntime import OnnxRuntime
from gnomon.session import targets
from gnomon.session.request import ModelRequest
from gnomon.system.stopping import ANSWERS

GOLDEN = Path(__file__).parents[2] / "models" / "golden"

pytestmark = pytest.mark.usefixtures("short_visits")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(matmul_onnx())
    return path


def how(tmp_path: Path) -> Any:
    return {
        "runtimes": ["onnxruntime"],
        "threads": 1,
        "processes": 1,
        "record": tmp_path / "r.sqlite",
        "max_time_s": 600.0,
    }


def over_from(stage: str, monkeypatch: pytest.MonkeyPatch, *, process: int = 0) -> None:
    """Let the time be over when a process of a stage is to begin."""
    whole, before = CampaignRunner.over, iter(range(process))

    def over(self: CampaignRunner, now: str, *, needs_s: float = 0.0) -> bool:
        if now == stage and self._time is not None and next(before, None) is None:
            self._time.most_s = 0.0
        return whole(self, now, needs_s=needs_s)

    monkeypatch.setattr(CampaignRunner, "over", over)


def test_the_answer_is_what_is_known_by_then_and_the_next_run_goes_on(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over before anything is measured but one group, before the package runs, and never: all of one campaign."""
    for stage in ("profile", "profile, traced", "run the package"):
        with monkeypatch.context() as patched:
            over_from(stage, patched)
            found = api.place(model, out=tmp_path / stage, **how(tmp_path))
        assert found.resumed == (stage != "profile")
        assert found.chosen.failure is None
        assert found.verified.skipped
        [doubt] = [d for d in found.doubts if d.kind == "stopped"]
        assert doubt.message.startswith("stopped by --max-time after ")
        assert repr(stage) in doubt.message
        plan = json.loads((tmp_path / stage / "plan.json").read_text())
        assert plan["proved_with"]["packages"].keys() == {"numpy", "onnxruntime"}
        assert f"onnxruntime=={plan['proved_with']['packages']['onnxruntime']}" in plan["requirements"]
        readme = (tmp_path / stage / "README.txt").read_text()
        assert shown_line("python -m pip install", readme).split()[4:] == plan["requirements"]
        place_report(found, Page())
        assert "ran where planned" not in capsys.readouterr().out
    again = api.place(model, out=tmp_path / "profile, traced", overwrite=True, **how(tmp_path))
    assert (again.resumed, again.campaign) == (True, found.campaign)
    assert again.verified.ok
    assert not [d for d in again.doubts if d.kind == "stopped"]


def test_a_quick_answer_is_of_whole_models_and_of_all_numbers_of_threads(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {**how(tmp_path), "threads": "all", "quick": True}
    placed, profiled = api.place(model, out=tmp_path / "out", **asked), api.profile(model, **asked)
    for document in (placed, profiled):
        assert [d.kind for d in document.doubts if d.kind in ("quick", "stopped")] == ["quick"]
        assert all(not row.times_s or set(row.times_s.values()) == {None} for row in document.operators)
    assert placed.verified.ok and placed.chosen.failure is None
    assert all(c.predicted_s is None for c in placed.contenders)  # the profile is the proof
    cores = placed.fingerprint["cores"]
    assert placed.threads[0] == 1 and placed.threads[-1] == cores == max(placed.threads)
    again = api.place(model, out=tmp_path / "out", measure=False, overwrite=True, **asked)
    assert again.decision.chosen == placed.decision.chosen
    asked["processes"] = 2
    with monkeypatch.context() as patched:
        over_from("profile", patched, process=1)
        late = api.place(model, out=tmp_path / "late", **asked, fresh=True)
    assert [d.kind for d in late.doubts if d.kind in ("quick", "stopped")] == ["stopped"]
    assert api.place(model, out=tmp_path / "again", **asked).campaign == late.campaign  # it goes on
    with pytest.raises(UsageError, match="only place and profile take --quick"):
        gnomon.pareto(model, quick=True)  # type: ignore[call-arg]


def test_a_quick_answer_of_a_runtime_that_places_inside_has_its_whole_models(tmp_path: Path) -> None:
    pytest.importorskip("executorch", reason="executorch is not installed: pip install executorch torch")
    asked = {**how(tmp_path), "runtimes": ["executorch"], "quick": True}
    placed = api.place(GOLDEN / "small.pt2", out=tmp_path / "out", **asked)
    assert placed.verified.ok and len(placed.contenders) >= 2
    assert {c.kind for c in placed.contenders} == {"single"}


def test_ctrl_c_at_a_prompt_gives_the_answer_so_far_of_the_run_that_it_ended(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = api.profile(model, **how(tmp_path))
    told: list[str] = []

    def interrupted_at(stage: str, job: Callable[..., Any], **more: Any) -> Any:
        whole = CampaignRunner.measure

        def measure(self: CampaignRunner, now: str, candidates: Any, effort: Any) -> Any:
            if now == stage:
                raise KeyboardInterrupt
            return whole(self, now, candidates, effort)

        with monkeypatch.context() as patched:
            patched.setattr(CampaignRunner, "measure", measure)
            return job(model, on_message=told.append, **more, **how(tmp_path))

    with pytest.raises(KeyboardInterrupt):  # a program that calls gnomon gets its exception
        interrupted_at("profile, traced", api.profile)
    token = ANSWERS.set(True)
    try:
        with pytest.raises(KeyboardInterrupt):  # nothing is known yet
            interrupted_at("profile", api.place, out=tmp_path / "none")
        found = interrupted_at("profile, traced", api.profile)
        placed = interrupted_at("profile, traced", api.place, out=tmp_path / "placed")
    finally:
        ANSWERS.reset(token)
    assert found.campaign != before.campaign
    for document in (found, placed):
        [doubt] = [d for d in document.doubts if d.kind == "stopped"]
        assert doubt.message.startswith("stopped by Ctrl-C after ")
    assert placed.chosen.failure is None and placed.verified.skipped
    assert "mix" not in placed.decision.reason  # none was looked for
    assert sum("answer so far" in line for line in told) == 3
    again = api.profile(model, **how(tmp_path))
    assert (again.resumed, again.campaign) == (True, found.campaign)


def shown_line(start: str, text: str) -> str:
    return next(line.strip() for line in text.splitlines() if line.strip().startswith(start))


def test_runs_of_other_options_or_of_another_adapter_are_not_gone_on_with(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over_from("profile, traced", monkeypatch)
    found = api.profile(model, **how(tmp_path))
    assert [c.label for c in found.columns] == ["onnxruntime"]
    assert found.doubts[0].kind == "stopped"
    assert api.profile(model, **how(tmp_path)).resumed
    usual = OnnxRuntime.configurations

    def unoptimised(*asked: Any) -> tuple[Configuration, ...]:
        return tuple(replace(c, options={**c.options, "optimise": False}) for c in usual(*asked))

    with monkeypatch.context() as patched:
        patched.setattr(OnnxRuntime, "configurations", unoptimised)
        other = api.profile(model, **how(tmp_path))
    monkeypatch.setattr(targets, "adapter_version", lambda runtime: "2.0")
    again = api.profile(model, **how(tmp_path))
    assert not other.resumed and not again.resumed
    assert len({found.campaign, other.campaign, again.campaign}) == 3


def test_no_chains_are_priced_where_too_little_time_is_left(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[str] = []
    whole = CampaignRunner.over

    def over(self: CampaignRunner, stage: str, *, needs_s: float = 0.0) -> bool:
        stages.append(stage)
        assert self._time is not None
        if needs_s:
            self._time.most_s = self._time.used_s + 0.9 * needs_s
        return whole(self, stage, needs_s=needs_s) if needs_s else False

    monkeypatch.setattr(CampaignRunner, "over", over)
    more = {**how(tmp_path), "runtimes": ["onnxruntime", "openvino"]}
    found = api.place(model, out=tmp_path / "out", **more)
    if "price chains" in stages:  # whether mixing may pay at all is a matter of times
        assert "too little of --max-time" in (found.why_not_mixed or "")
        assert found.verified.ok


def test_that_no_mix_was_looked_for_is_not_put_down_to_the_runtimes(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over_from("profile, traced", monkeypatch)
    found = api.place(model, out=tmp_path / "out", **{**how(tmp_path), "runtimes": ["onnxruntime", "openvino"]})
    assert found.why_not_mixed == "the run was stopped before a mix was priced and proved"


def test_a_search_ends_with_what_it_has_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = PretendedSpace(3, ["a", "b"])
    device = Pretended(lambda a: (100.0 - 20 * a[0] + 7 * a[1], 50_000_000 + 300_000_000 * a[0]), space.assignments)
    pretend(monkeypatch, space, device)
    effort = Effort(processes_least=2, processes_most=2, rounds=1)
    request = ModelRequest(model=Path("m"), record=tmp_path / "r.sqlite", effort=effort, max_time_s=600.0)
    asked = ParetoRequest(request=request, plan=Plan(name="random", iterations=8, seed=1))
    left = iter([1.0] * 10)  # a question before each evaluation, and one before each session
    with monkeypatch.context() as patched:
        patched.setattr(JobTime, "left_s", property(lambda self: next(left, -1.0)))
        found = pareto(asked)
    assert len(found.samples) == 5
    assert not found.proved
    assert found.certificate == "heuristic"
    assert "stopped" in [d.kind for d in found.doubts]
    ran = sum(device.opened.values())
    whole = pareto(asked)
    assert whole.proved
    assert (whole.campaign, whole.resumed) == (found.campaign, True)
    assert [sample.code for sample in whole.samples[:5]] == [sample.code for sample in found.samples]
    assert all(device.opened[f"search/{sample.label}"] == 1 for sample in found.samples)
    assert sum(device.opened.values()) > ran


def test_waiting_for_the_device_is_neither_counted_nor_limited(model: Path, tmp_path: Path) -> None:
    released = threading.Event()
    taken = threading.Event()

    def hold() -> None:
        with lease(lease_folder(), "local"):
            taken.set()
            released.wait(60)
            time.sleep(1.0)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(60)
    told: list[str] = []

    def tell(sentence: str) -> None:
        told.append(sentence)
        released.set()

    began_s = time.monotonic()
    found = api.profile(model, on_message=tell, **how(tmp_path))
    whole_s = time.monotonic() - began_s
    holder.join()
    assert any("waiting for it to end" in sentence for sentence in told)
    assert found.waited_s >= 0.9
    assert found.seconds + found.waited_s <= whole_s


def test_other_commands_say_that_they_do_not_heed_it() -> None:
    with pytest.raises(UsageError, match="only place, profile and pareto take max_time_s"):
        model_request("m", {"max_time_s": 5.0})
    with pytest.raises(UsageError, match="max_time_s cannot be 0"):
        model_request("m", {"max_time_s": 0.0}, limited=True)
