"""`gnomon overlay analyze` without TVM: the metric by hand, the portfolio by trying all, logs of other tuners."""

from __future__ import annotations

import io
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.tune.tunekit import hand_made

from gnomon.api import tune as api
from gnomon.cli.main import run
from gnomon.core.overlay.records import UNTUNED, configuration_id
from gnomon.core.sample import Failure
from gnomon.errors import ProblemError, UsageError
from gnomon.jobs.overlay.document import AnalyzeDocument
from gnomon.jobs.overlay.job import analyze
from gnomon.jobs.overlay.report import analyze_report
from gnomon.jobs.tune.records import write_records
from gnomon.report.page import Page

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "tuning"
CRASH = Failure(stage="run", kind="crash", transient=False, message="signal 11")

Times = Mapping[int | None, Sequence[float | None]]
"""The times of a layer's configurations (None: untuned) on each device; None: not measured."""


def name_of(number: int | None, layer: int = 0) -> str:
    return UNTUNED if number is None else configuration_id(f"7{layer}", [[number], []])


def analysis(
    folder: Path, network: Mapping[str, Times], hosts: Mapping[int, int] | None = None, **asked: Any
) -> AnalyzeDocument:
    """Of devices d0, d1, ..; the number of a configuration says who found it unless `hosts` does."""
    count = len(next(iter(next(iter(network.values())).values())))
    paths = []
    for device, host in itertools.product(range(count), repeat=2):
        said: dict[str, dict[int | None, Any]] = {}
        for name, times in network.items():
            found = (number for number in times if number is not None)
            own = [number for number in found if (hosts or {}).get(number, number % count) == host]
            rows = [*([None] if None in times and host == device else []), *own]
            said[name] = {number: (t,) for number in rows if (t := times[number][device]) is not None}
        records = hand_made(f"d{device}", said, found_on="" if host == device else f"d{host}", weights={"dense": 3})
        path = folder / f"d{device}_d{host}.json"
        write_records(path, records)
        paths.append(path)
    return api.overlay_analyze(paths, write=False, **asked)


def test_a_log_that_seems_to_be_a_copy_is_told(tmp_path: Path) -> None:
    def copied(name: str, times: Times) -> list[str]:
        (tmp_path / name).mkdir()
        return [note for note in analysis(tmp_path / name, {"conv": times}).document()["notes"] if "copy" in note]

    same: Times = {0: (2.0, 2.0), 1: (4.0, 4.0), 2: (3.0, 3.0)}
    assert copied("same", same) == [
        "The times of d0 and d1 are identical to the last digit: is one of the logs a copy?"
    ]
    assert not copied("few", {0: (2.0, 2.0), 1: (4.0, 4.0)})
    assert not copied("lacking", {**same, 3: (5.0, None)})
    assert not copied("other", {**same, 3: (5.0, 5.5)})


def test_the_metric_by_hand(tmp_path: Path) -> None:
    """Ferule's: the sum over devices of (t - theta) / theta; all numbers here are worked out on paper."""
    conv: Times = {None: (16.0, 32.0), 0: (2.0, 8.0), 1: (4.0, 4.0), 2: (3.0, 5.0), 3: (8.0, 4.5)}
    dense: Times = {None: (1.0, 1.0), 4: (2.0, 2.0)}
    found = analysis(tmp_path, {"conv": conv, "dense": dense})
    rows = {row["name"]: row for row in found.document()["layers"]}
    row = rows["conv"]
    # theta = (2, 4); M: 0 -> 0 + 1, 1 -> 1 + 0, 2 -> 1/2 + 1/4, 3 -> 3 + 1/8, untuned -> 7 + 7
    assert row["theta"] == {"d0": 2.0, "d1": 4.0}
    assert (row["M"], row["mean_regret"], row["configuration"]) == (0.75, 0.375, name_of(2))
    assert (row["times"], row["regret"]) == ({"d0": 3.0, "d1": 5.0}, {"d0": 0.5, "d1": 0.25})
    assert (row["worst_regret"], row["worst_device"], row["host"]) == (0.5, "d0", "d0")
    # hosts' own best: d0 found 0 and 2 -> 0 (2, 8); d1 found 1 and 3 -> 1 (4, 4)
    assert row["estimate"] == {"d0": 0.5, "d1": 0.75}
    assert row["runner_up"] is None or row["runner_up"]["M"] == 1.0
    assert (row["configurations"], row["incomplete"], row["failed"]) == (5, [], [])
    # no configuration at all is best for the small layer
    assert rows["dense"]["configuration"] == UNTUNED
    assert (rows["dense"]["M"], rows["dense"]["weight"]) == (0.0, 3)
    # shares: weight times theta over the sum: d0 2 of 5, d1 4 of 7
    share = (2 / 5 + 4 / 7) / 2
    assert row["share"] == pytest.approx(share)
    assert found.document()["total"]["M"] == pytest.approx(share * 0.75)
    assert found.document()["total"]["worst_regret"] == 0.5
    # d0's own best everywhere costs M = 1 in conv, d1's 1
    assert found.document()["own"]["d0"]["M"] == pytest.approx(share)
    assert found.document()["own"]["d1"] == {"M": pytest.approx(share), "worst_regret": 1.0}
    chosen = analyze(sorted(tmp_path.glob("*.json")))
    assert chosen.chosen() == {"70": name_of(2), "71": UNTUNED}
    assert chosen.own("d0") == {"70": name_of(0), "71": UNTUNED}


def test_the_least_worst_loss_is_told_beside_that_of_least_m(tmp_path: Path) -> None:
    conv: Times = {0: (2.0, 6.0), 1: (2.6, 5.2), 2: (8.0, 4.0)}  # theta 2, 4: M .5 (worst .5), .6 (.3), 3 (3)
    found = analysis(tmp_path, {"conv": conv, "dense": {4: (2.0, 2.0)}}, portfolio=2)
    rows = {row["name"]: row for row in found.document()["layers"]}
    assert (rows["conv"]["configuration"], rows["conv"]["M"]) == (name_of(0), 0.5)
    assert rows["dense"]["minimax"] is None
    other = rows["conv"]["minimax"]
    assert (other["configuration"], other["host"], other["worst_device"]) in [
        (name_of(1), "d1", "d0"),
        (name_of(1), "d1", "d1"),
    ]
    assert (other["M"], other["worst_regret"]) == (pytest.approx(0.6), pytest.approx(0.3))
    total = found.document()["total"]
    share = rows["conv"]["share"]
    assert (total["M"], total["worst_regret"]) == (pytest.approx(share * 0.5), 0.5)
    assert (total["minimax"]["M"], total["minimax"]["worst_regret"]) == (pytest.approx(share * 0.6), pytest.approx(0.3))
    # d1: dense is called 3 times, so that 4 + 6 s are the best there; 6 + 6 s with the choice, 5.2 + 6 with the other
    assert total["regret"] == {"d0": 0.0, "d1": pytest.approx(0.2)}
    assert total["minimax"]["regret"] == {"d0": pytest.approx(0.6 / 8), "d1": pytest.approx(0.12)}
    portfolio = found.document()["portfolio"]
    assert (portfolio["size"], portfolio["M"]) == (2, 0.0)
    assert portfolio["layers"][0] == {
        "name": "conv",
        "configurations": sorted([name_of(0), name_of(2)]),
        "M": 0.0,
        "proven": True,
        "serves": {"d0": name_of(0), "d1": name_of(2)},
    }


def test_what_the_choice_is_not_sure_between_is_close(tmp_path: Path) -> None:
    said: dict[str, dict[int | None, Any]] = {
        "conv": {1: (1.0, 1.2, 1.1), 2: (1.05, 1.15, 1.1), 3: (9.0,)},
        "dense": {4: (1.0,), 5: (5.0,)},
    }
    write_records(tmp_path / "a.json", hand_made("a", said))
    found = api.overlay_analyze([tmp_path / "a.json"], write=False)
    conv, dense = found.document()["layers"]
    assert conv["confidence"] < 0.9
    assert set(conv["close"]) == {name_of(1), name_of(2)}
    assert (dense["confidence"], dense["close"]) == (None, []), "single samples are sure of nothing"
    assert found.close() == {"70": tuple(conv["close"])}


def test_nothing_is_measured_again_where_every_choice_is_sure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_records(tmp_path / "a.json", hand_made("a", {"conv": {1: (1.0,), 2: (5.0,)}}))
    command = ["overlay", "collect", str(tmp_path / "a.json"), "--close", "--device", "nowhere", "--quiet"]
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["collected"] == []
    assert run(command) == 0
    assert "Every choice is sure" in capsys.readouterr().out
    assert run([*command, "--best", "2"]) == 2
    assert "Leave out --best" in capsys.readouterr().err


def test_it_is_strict_json_and_can_be_reported(tmp_path: Path) -> None:
    found = analysis(tmp_path, {"conv": {0: (2.0, 8.0), 1: (4.0, None)}, "bare": {2: (1.0, None)}}, portfolio=2)
    assert json.loads(json.dumps(found.document(), allow_nan=False)) == found.document()
    assert "bare" in reported(found)


def reported(found: AnalyzeDocument) -> str:
    file = io.StringIO()
    analyze_report(found, Page(file, width=100))
    return " ".join(file.getvalue().split())


def test_a_layer_alone_is_not_told_of_as_the_network(tmp_path: Path) -> None:
    network: dict[str, Times] = {"conv": {0: (1.0, 4.0), 1: (2.0, 2.0)}, "dense": {2: (2.0, 5.0), 3: (3.0, 4.0)}}
    whole, part = (analysis(tmp_path, network, layers=asked) for asked in ((), ("dense",)))
    assert [row["name"] for row in part.document()["layers"]] == ["dense"]
    assert part.document()["total"] == whole.document()["total"]
    assert (part.document()["total"]["worst_regret"], part.document()["total"]["layers"]) == (1.0, 2)
    told = reported(part)
    assert "at worst 100 % in a layer that is not listed here." in told and "1 of 2 layers of" in told
    assert "Each device, by the sum of the layers listed here" in told
    assert "at worst 100 % (layer conv on " in reported(whole)


def test_single_samples_are_sure_of_nothing(tmp_path: Path) -> None:
    """Resampled they would always choose the same, in an interval of no width."""
    found = analysis(tmp_path, {"conv": {0: (1.0, 4.0), 1: (2.0, 2.0)}})
    (row,) = found.document()["layers"]
    assert (row["confidence"], row["M_low"], row["M_high"]) == (None, None, None)
    assert row["runner_up"]["M"] == 1.0
    assert "The confidence is unknown, because each time is a single sample." in reported(found)
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    write_records(one, hand_made("a", {"conv": {1: (1.0, 1.1, 1.2), 2: (5.0,)}}))
    write_records(other, hand_made("b", {"conv": {1: (1.0,), 2: (5.0,)}}, found_on="a"))
    assert api.overlay_analyze([one, other], write=False).layers[0].confidence == 1.0


def test_what_is_incomplete_is_told_and_not_ranked(tmp_path: Path) -> None:
    found = analysis(tmp_path, {"conv": {0: (9.0, 9.0), 1: (1.0, None)}, "dense": {2: (1.0, None), 3: (None, 2.0)}})
    (row,) = found.document()["layers"]
    assert row["configuration"] == name_of(0)
    assert row["theta"] == {"d0": 1.0, "d1": 9.0}  # whoever found it, and however incomplete
    assert row["incomplete"] == [{"configuration": name_of(1), "host": "d1", "missing": ["d1"]}]
    (open_,) = found.document()["undecided"]
    assert open_["name"] == "dense"
    assert "collect" in open_["reason"]
    assert found.document()["total"]["M"] == pytest.approx(8.0)


def test_what_failed_is_told_and_never_chosen(tmp_path: Path) -> None:
    one, other = tmp_path / "a.json", tmp_path / "b.json"
    write_records(one, hand_made("a", {"conv": {1: (1.0,), 2: (5.0,)}}))
    write_records(other, hand_made("b", {"conv": {1: CRASH, 2: (5.0,)}}, found_on="a"))
    found = api.overlay_analyze([one, other], write=False)
    (row,) = found.document()["layers"]
    assert row["configuration"] == name_of(2)
    assert row["failed"] == [
        {"configuration": name_of(1), "device": "b", "stage": "run", "kind": "crash", "message": "signal 11"}
    ]


def test_one_device_alone_is_said_to_be_so(tmp_path: Path) -> None:
    write_records(tmp_path / "a.json", hand_made("a", {"conv": {1: (1.0,), 2: (5.0,)}}))
    found = api.overlay_analyze([tmp_path / "a.json"], write=False)
    assert found.document()["layers"][0]["configuration"] == name_of(1)
    assert "one device" in found.document()["notes"][0]


def test_what_was_not_carried_over_is_said(tmp_path: Path) -> None:
    for key in ("a", "b"):
        write_records(tmp_path / f"{key}.json", hand_made(key, {"conv": {ord(key): (1.0,)}}))
    found = api.overlay_analyze([tmp_path / "a.json", tmp_path / "b.json"], write=False)
    assert found.document()["layers"] == []
    assert [
        note for note in found.document()["notes"] if "The configurations that a found were not measured on b" in note
    ]
    assert len(found.document()["undecided"][0]["incomplete"]) == 2


def test_old_logs_with_nothing_in_common_get_a_next_step(tmp_path: Path) -> None:
    text = (GOLDEN / "autotvm-log.json").read_text()
    other = re.sub(r'"tile_([a-z]+)", "sp", \[-1, (\d+)', r'"tile_\1", "sp", [-1, 7\2', text)
    for key, content in (("pc", text), ("pi4", other)):
        (tmp_path / f"{key}.net.float32.json").write_text(content)
    found = analyze([tmp_path / "pc.net.float32.json", tmp_path / "pi4.net.float32.json"]).document
    assert [row.reason.partition(": ")[2] for row in found.undecided[:2]] == [
        "time it there with the TVM that wrote the logs, as pi4_pc.net.float32.json; the layer stays untuned"
    ] * 2


def test_of_equals_neither_the_order_of_files_nor_of_lines_decides(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = {key: {number: (float(rng.randint(1, 2)),) for number in range(8)} for key in ("a", "b", "c")}
    found = []
    for turned in (False, True):
        paths = []
        for key, times in sorted(rows.items(), reverse=turned):
            path = tmp_path / f"{key}.json"
            write_records(path, hand_made(key, {"conv": dict(sorted(times.items(), reverse=turned))}))
            paths.append(path)
        document = api.overlay_analyze(paths, write=False, portfolio=2).document()
        found.append((document["layers"], document["portfolio"]))
    assert found[0] == found[1]


def test_more_configurations_than_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--portfolio 99 is more than the number of devices, 2") as told:
        analysis(tmp_path, {"conv": {0: (1.0, 2.0), 1: (2.0, 1.0)}}, portfolio=99)
    assert "or leave it out" in told.value.hint, "one device has no portfolio at all"


def test_old_logs_are_not_said_to_lack_what_they_have(tmp_path: Path) -> None:
    """Both searched the same grid, but for one configuration each of the second layer."""
    for key, more in (("phone", 2), ("tablet", 3)):
        rows = [autotvm_line("a", k, 1.0 + k) for k in range(3)] + [autotvm_line("b", k, 1.0) for k in (1, more)]
        (tmp_path / f"{key}.mobile.float32.atvm.json").write_text("".join(f"{row}\n" for row in rows))
    found = api.overlay_analyze(sorted(tmp_path.glob("*.json")), write=False)
    assert not [note for note in found.document()["notes"] if "was not measured" in note]
    assert found.document()["layers"][1]["incomplete"]
    assert "collect" not in reported(found)


def autotvm_line(task: str, number: int, time_s: float, target: str = "llvm -mcpu=cortex-a72") -> str:
    config = {"index": number, "code_hash": None, "entity": [["tile", "sp", [-1, number]]]}
    tensors = [["TENSOR", [1, 8], "float32"], ["TENSOR", [4, 8], "float32"]]
    line = {"input": [target, task, tensors, {}], "config": config, "result": [[time_s], 0, 1.0, 1.6e9]}
    return json.dumps({**line, "version": 0.2, "tvm_version": "0.8.0"})


def test_layers_without_a_choice_are_in_the_answer(tmp_path: Path) -> None:
    found = analysis(tmp_path, {"conv": {0: (1.0, 1.0), 1: (2.0, 3.0)}, "dense": {2: (1.0, None), 3: (None, 1.0)}})
    assert found.document()["total"]["decided_share"] == pytest.approx(1 / 4)  # dense is called three times
    told = " ".join(reported(found).split())
    assert told.startswith(
        "1 of 2 layers decided for 2 devices, 25 % of the time; the other stays untuned. In the decided layers, "
        "each choice is the fastest configuration on every device."
    )


def test_logs_of_other_tuners_are_analyzed_without_tvm(tmp_path: Path) -> None:
    """In a process that cannot import TVM, and cannot start another one."""
    for key in ("phone", "tablet"):
        shutil.copyfile(GOLDEN / "autotvm-log.json", tmp_path / f"{key}.mobile.float32.json")
    script = (
        "import json, subprocess, sys\n"
        "for name in ('tvm', 'tvm_ffi', 'torch', 'xgboost'): sys.modules[name] = None\n"
        "def refuse(*a, **k): raise AssertionError('a child is started')\n"
        "subprocess.Popen.__init__ = refuse\n"
        "from gnomon.cli.main import run\n"
        "sys.exit(run(['overlay', 'analyze', '--json', '--quiet', *sys.argv[1:]]))\n"
    )
    logs = [str(path) for path in sorted(tmp_path.glob("*.json"))]
    done = subprocess.run(
        [sys.executable, "-c", script, *logs, "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["devices"] == ["phone", "tablet"]
    assert document["layers"]
    assert all(row["M"] == 0 for row in document["layers"])  # the same log twice
    assert any("No network was compiled" in note for note in document["notes"])
    assert sorted(document["written"]["lines"]) == ["phone", "tablet"]


def test_lines_that_are_no_trials_are_told_of(tmp_path: Path) -> None:
    log = tmp_path / "phone.mobile.float32.json"
    text = (GOLDEN / "autotvm-log.json").read_text()
    log.write_text(text + "\0\0\0\n" + text[-60:] + text[:-40])
    notes = analyze([log]).document.notes
    assert "Skipped 3 lines in a log of phone: cut off, or not a trial." in notes


def test_logs_of_other_tuners_cannot_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "phone.mobile.float32.json"
    shutil.copyfile(GOLDEN / "ansor-log.json", path)
    for call in (
        lambda: api.execute(path),
        lambda: api.overlay_collect([path]),
    ):
        with pytest.raises(ProblemError, match="today's TVM has no") as raised:
            call()
        assert "overlay analyze" in raised.value.hint
    with pytest.raises(UsageError, match="cannot be compiled"):
        api.overlay_analyze([path], prove=True, out=tmp_path / "out")


def test_records_that_do_not_belong_together(tmp_path: Path) -> None:
    one = hand_made("a", {"conv": {1: (1.0,)}})
    other = replace(one, device=replace(one.device, key="b"), model=replace(one.model, name="other", sha256="cd" * 32))
    write_records(tmp_path / "a.json", one)
    write_records(tmp_path / "b.json", other)
    with pytest.raises(ProblemError, match=r"b\.json is for another model"):
        api.overlay_analyze([tmp_path / "a.json", tmp_path / "b.json"])
    with pytest.raises(UsageError, match="several logs have configurations of a"):
        api.overlay_collect([tmp_path / "a.json", tmp_path / "a.json"])
    with pytest.raises(UsageError, match="no records"):
        api.overlay_analyze([])


def test_layers_can_be_picked(tmp_path: Path) -> None:
    layers: dict[str, Times] = {"conv": {0: (1.0, 2.0)}, "dense": {0: (1.0, 2.0)}}
    assert [row["name"] for row in analysis(tmp_path, layers, layers=["1"]).document()["layers"]] == ["dense"]
    assert [row["name"] for row in analysis(tmp_path, layers, layers="con").document()["layers"]] == ["conv"]
