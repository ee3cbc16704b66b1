"""Networks from files: measured in processes that they share, and never measured twice."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.jobs.table.table_kit import QUICK, spoilt

from gnomon.jobs.space.profiling.latency import NETWORK_EFFORT, measure_files, together
from gnomon.models.load import load
from gnomon.models.onnx.graph import load_outline
from gnomon.models.units import write_net
from gnomon.runtimes.base import RunSettings
from gnomon.session.bench.baseline import Timed
from gnomon.session.request import MeasureRequest
from gnomon.spaces.cells.primitives import published_primitives
from gnomon.spaces.cells.space import CellLayout, tagged_net
from gnomon.store.base import CampaignQuery, RunQuery
from gnomon.store.sqlite import SqliteStore

LAYOUT = CellLayout(input_shape=(1, 2, 8, 8), groups=(0, 1), widths=(4, 4), reduces=frozenset({1}), classes=3)
NAMES = ("Mobileblock_0", "Mobileblock_3", "VGGblock_0", "VGGblock_1", "VGGblock_2", "VGGblock_3")


def networks(folder: Path) -> dict[str, Path]:
    """Six tiny networks by name, written."""
    known = published_primitives()
    folder.mkdir(exist_ok=True)
    return {
        name: write_net(tagged_net(LAYOUT, (known[name], known["VGGblock_0"])).net, folder / f"{name}.onnx")
        for name in NAMES
    }


def measure(
    folder: Path, files: Mapping[str, Path], *, environment: dict[str, str] | None = None, **changes: Any
) -> dict[str, Timed]:
    """Measure quickly, with a record of its own."""
    settings = RunSettings(environments=(environment,) if environment else ())
    request = MeasureRequest(runtimes=("onnxruntime",), record=folder / "record.sqlite", settings=settings, wait_s=0.0)
    options = {"question": {"run": 1}, "effort": replace(QUICK, together=3), **changes}
    return measure_files(request, files, subject="tiny", **options)[0]


def visits(folder: Path) -> Counter[tuple[str, str, int, int]]:
    """How often each visit to a network is in the record: by campaign, candidate, process and block."""
    with SqliteStore.open(folder / "record.sqlite") as store:
        runs = [(one.id, run) for one in store.query(CampaignQuery()) for run in store.query(RunQuery(campaign=one.id))]
    return Counter(
        (campaign, run.candidate, run.process, run.block)
        for campaign, run in runs
        if run.samples is not None and run.candidate.startswith("network-")
    )


def test_what_fails_is_a_row_with_its_reason_and_the_others_go_on(tmp_path: Path) -> None:
    files = networks(tmp_path / "nets")
    (tmp_path / "broken.onnx").write_bytes(files["VGGblock_0"].read_bytes()[:400])
    (tmp_path / "junk.onnx").write_bytes(b"\x00junk" * 20)
    bad = {"broken": tmp_path / "broken.onnx", "junk": tmp_path / "junk.onnx", "gone": tmp_path / "gone.onnx"}
    crashing = load(files["VGGblock_1"]).graph.digest[:16]
    environment = spoilt(tmp_path, fatal=crashing)
    found = measure(tmp_path, {**bad, **files}, environment=environment)
    failed = {key for key, one in found.items() if one.reason}
    assert failed == {*bad, "VGGblock_1"}
    assert "does not exist" in found["gone"].reason
    assert "SIGSEGV" in found["VGGblock_1"].reason
    assert list(found) == [*bad, *files]


def test_files_of_equal_content_are_measured_once(tmp_path: Path) -> None:
    files = networks(tmp_path / "nets")
    (tmp_path / "copy.onnx").write_bytes(files["VGGblock_0"].read_bytes())
    found = measure(tmp_path, {"one": files["VGGblock_0"], "other": tmp_path / "copy.onnx"})
    assert found["one"] == found["other"]
    assert len({candidate for _, candidate, _, _ in visits(tmp_path)}) == 1


def test_an_open_campaign_goes_on_beside_the_same_anchor(tmp_path: Path) -> None:
    files = networks(tmp_path / "nets")
    few = {key: files[key] for key in NAMES[:2]}
    first = measure(tmp_path, few)
    before = visits(tmp_path)
    second = measure(tmp_path, files)
    assert len({campaign for campaign, *_ in visits(tmp_path)}) == 1
    assert {key: second[key] for key in few} == first
    assert before.items() <= visits(tmp_path).items() and set(visits(tmp_path).values()) == {1}
    measure(tmp_path, few, question={"run": 2})
    assert len({campaign for campaign, *_ in visits(tmp_path)}) == 2


def test_many_rest_on_a_network_that_is_loaded_several_times(tmp_path: Path) -> None:
    files = {key: path for key, path in networks(tmp_path / "nets").items() if key in NAMES[:3]}
    found = measure(tmp_path, files, closely={NAMES[0]})
    digest = {key: load(path).graph.digest[:16] for key, path in files.items()}
    seen = Counter(next(k for k in files if digest[k] in name) for _, name, process, block in visits(tmp_path))
    assert seen[NAMES[0]] == 4 * seen[NAMES[1]] == 4 * seen[NAMES[2]]
    assert len(found[NAMES[0]].samples) == 4 * len(found[NAMES[1]].samples)


def test_copies_as_one_are_known_better() -> None:
    copies = [
        Timed(call_s=1e-4 * scale, low_s=1e-4 * scale * 0.96, high_s=1e-4 * scale * 1.04, processes=6, samples={})
        for scale in (1.0, 1.1, 1.21, 1.1)
    ]
    one = together(copies)
    assert one.call_s == pytest.approx(1.1e-4)
    assert one.half_width == pytest.approx(0.02, rel=0.01)
    assert together([Timed(reason="no kernel", samples={}), *copies]).reason == "no kernel"
    assert together(copies[:1]) is copies[0]
    unknown = together([replace(copies[0], low_s=None), copies[1]])
    assert unknown.low_s is None and math.isinf(unknown.half_width)
    assert together([replace(copies[0], high_s=0.1), copies[1]]).high_s is None, "wider than a time can tell"


_MEASURE = """
import sys
from pathlib import Path
from tests.jobs.space.profiling.test_space_latency import measure, networks
folder = Path(sys.argv[1])
def note(progress):
    if progress.stage == "networks" and progress.done:
        (folder / "begun").touch()
measure(folder, networks(folder / "nets"), watch=note)
"""


def _started(folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    return subprocess.Popen([sys.executable, "-c", _MEASURE, str(folder)], env=environment, start_new_session=True)


def test_killed_and_started_again_it_measures_nothing_twice(tmp_path: Path) -> None:
    process = _started(tmp_path)
    deadline = time.monotonic() + 120
    while not (tmp_path / "begun").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    known = visits(tmp_path)
    assert 2 <= len({name for _, name, _, _ in known}) < len(NAMES)
    assert _started(tmp_path).wait(timeout=120) == 0
    found = visits(tmp_path)
    assert len({name for _, name, _, _ in found}) == len(NAMES)
    assert set(found.values()) == {1} and known.items() <= found.items()
    assert len({campaign for campaign, _, _, _ in found}) == 1


def test_the_outline_of_a_file_is_what_runs(tmp_path: Path) -> None:
    for path in networks(tmp_path / "nets").values():
        outline, whole = load_outline(path), load(path)
        assert outline is not None and outline.graph.digest == whole.graph.digest
        assert [op.name for op in outline.graph.operators] == [op.name for op in whole.graph.operators]
        for one, other in zip(outline.graph.outputs, whole.graph.outputs, strict=True):
            assert outline.graph.tensors[one] == whole.graph.tensors[other]


def test_an_outline_with_an_open_dimension_is_none(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    kind = onnx.TensorProto.FLOAT
    for inputs, outputs in ((["n", 3], [1, 3]), ([1, 3], ["n", 3])):
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", kind, inputs)],
            [onnx.helper.make_tensor_value_info("y", kind, outputs)],
        )
        onnx.save(onnx.helper.make_model(graph), tmp_path / "open.onnx")
        assert load_outline(tmp_path / "open.onnx") is None


def test_the_usual_effort_knows_a_small_network_well_enough(tmp_path: Path) -> None:
    """Every interval that is wider than asked for was seen in twice as many processes."""
    files = {key: path for key, path in networks(tmp_path / "nets").items() if key in NAMES[:4]}
    found = measure(tmp_path, files, effort=NETWORK_EFFORT)
    once = NETWORK_EFFORT.processes_least
    assert all(one.half_width <= NETWORK_EFFORT.half_width or one.processes == 2 * once for one in found.values())
    assert np.isfinite([one.half_width for one in found.values()]).all()
