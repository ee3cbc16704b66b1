"""What an overlay writes of logs of AutoTVM and Ansor: the lines of the choice, as they stood."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks.tune.overlay_lines import problems
from tests.jobs.overlay.test_overlay_analyze import autotvm_line, reported

from gnomon.api import tune as api
from gnomon.core.overlay.builds import EXACT, best_builds
from gnomon.core.overlay.choice import LayerTimes, choose, weigh_layers
from gnomon.errors import ProblemError
from gnomon.jobs.overlay.carry import carry
from gnomon.jobs.overlay.job import analyze
from gnomon.jobs.tune.folder import tune_folder


@pytest.mark.parametrize("seed", range(1000, 1020))
def test_the_lines_that_are_written_are_those_of_the_best_configurations(seed: int, tmp_path: Path) -> None:
    """By a reader and a search of all that know nothing of gnomon: benchmarks/tune/overlay_lines.py."""
    assert problems(seed, tmp_path) == []


def test_the_report_says_what_was_chosen_and_where_it_is(tmp_path: Path) -> None:
    """Lines that are not written as AutoTVM does stay as they are; the index is the device's own."""
    rows = {"phone": [(7, 1.0), (8, 3.0)], "tablet": [(7, 2.5), (8, 2.0)]}
    lines = {}
    for key, times in rows.items():
        made = [json.loads(autotvm_line("a", k, t)) for k, t in times]
        for one in made:
            one["config"]["index"] += ord(key[0])
        lines[key] = [json.dumps(one, separators=(" ,", " :\t"), sort_keys=True) for one in made]
        (tmp_path / f"{key}.mobile.float32.atvm.json").write_text("# of 2021\n" + "\n".join(lines[key]))
    out = tmp_path / "out"
    logs = sorted(tmp_path.glob("*.json"))
    found = api.overlay_analyze(logs, out=out, plot=tmp_path / "pictures", portfolio=2)
    written = found.written
    for key in rows:
        assert Path(written.lines[key]).read_text() == lines[key][0] + "\n"
    assert Path(written.whole).read_text() == f"{lines['phone'][0]}\n{lines['tablet'][0]}\n"
    (layer,) = found.layers
    assert layer.entity == [["tile", "sp", [-1, 7]]]
    assert layer.index == {"phone": 7 + ord("p"), "tablet": 7 + ord("t")}
    told = reported(found)
    for text in (*written.lines.values(), written.whole, written.selection, f"in {tmp_path / 'pictures'}"):
        assert text in told.replace("\n", "")
    assert '123 on tablet; [["tile", "sp", [-1, 7]]]' in " ".join(told.split())
    assert [row.device for row in api.tuned_files(out).records] == ["phone", "tablet"]


def test_lines_of_a_packed_log_of_version_0_1_with_a_bad_line_are_written(tmp_path: Path) -> None:
    log = tmp_path / "phone.mobile.float32.json.gz"
    lines = [
        json.dumps(
            {
                "i": ["llvm", "dense", [["TENSOR", [1, 8], "float32"]], {}, [], {"i": k, "t": "direct", "e": [k]}],
                "r": [[time_s], 0, 0.5, 1500000000.0],
                "v": 0.1,
            }
        )
        for k, time_s in ((7, 2e-3), (8, 1e-3))
    ]
    log.write_bytes(gzip.compress("\n".join((lines[0], '{"i": [', lines[1])).encode()))
    found = api.overlay_analyze([log], out=tmp_path / "out")
    assert Path(found.written.lines["phone"]).read_text() == lines[1] + "\n"
    assert found.layers[0].index == {"phone": 8}


@pytest.mark.parametrize("change", [lambda log: log.write_bytes(b"# new\n" + log.read_bytes()), Path.unlink])
def test_a_log_that_changed_or_went_since_it_was_read_is_told(change: Callable[[Path], object], tmp_path: Path) -> None:
    log = tmp_path / "phone.mobile.float32.atvm.json"
    log.write_text("\n".join(autotvm_line("a", k, float(k)) for k in (7, 8)))
    found = analyze([log])
    change(log)
    with pytest.raises(ProblemError, match=log.name) as told:
        carry(found, tune_folder(tmp_path / "out"))
    assert "changed since" in told.value.message or not log.exists()
    assert not (tmp_path / "out").exists()


def test_builds_of_many_devices_are_joined() -> None:
    """Two kinds of devices, more than are tried out: each kind has a build."""
    devices = tuple(f"d{k}" for k in range(EXACT + 2))
    times_s = [[1.0 if k % 2 == kind else 3.0 for k in range(len(devices))] for kind in (0, 1)]
    layer = LayerTimes(
        name="conv",
        layer="7",
        weight=1,
        devices=devices,
        configurations=("a", "b"),
        hosts=((), ()),
        times_s=np.array(times_s),
    )
    found = best_builds(weigh_layers([choose(layer)]), 2)
    assert [build.devices for build in found.builds] == [devices[::2], devices[1::2]]
    assert [build.configurations for build in found.builds] == [{"7": "a"}, {"7": "b"}]
    assert (found.value, found.proven) == (0.0, False)
