"""The same suite on a real Dask cluster, whose workers have devices as resources."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.bad_days.livekit import matmul_onnx
from tests.jobs.space.kits.daskkit import dask_cluster
from tests.jobs.suite.suitekit import REAL, calls, laid_out, measure

import gnomon
from gnomon.errors import DeviceError, UsageError
from gnomon.jobs.suite.job import SuiteRequest, run_suite
from gnomon.store.base import CELL, CampaignQuery, last_note
from gnomon.store.opening import read_store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SuiteRequest:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    return laid_out(tmp_path, "abcd", 5)


def resources(number: int) -> list[str]:
    mine = ("ab", "cd")[number]
    return ["--nthreads", "2", "--resources", " ".join(f"gnomon-{name}=1" for name in mine)]


def test_a_worker_that_dies_is_replaced_and_all_cells_end_once(session: SuiteRequest, tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("0.3")
    (tmp_path / "dead").write_text("d")

    def kill_one() -> None:
        # Dask's nanny starts a worker again that it has seen running, and none that dies before: so in its fourth cell.
        while not (often := [pid for pid, n in Counter(pid for _, _, pid in calls(tmp_path)).items() if n >= 4]):
            time.sleep(0.01)
        os.kill(often[0], signal.SIGKILL)

    with dask_cluster(tmp_path, workers=2, options=resources) as address:
        threading.Thread(target=kill_one, daemon=True).start()
        found = run_suite(
            SuiteRequest(path=session.path, record=session.record, out=tmp_path, cluster=address), measure
        )
    assert not [(part.device, part.error) for part in found.cells if part.error]
    assert found.whole and found.done == 20 and "d" not in {part.device for part in found.cells}
    ended = (tmp_path / "ended").read_text().split()
    assert set(ended) == {part.id for part in found.cells}
    assert len({pid for _, _, pid in calls(tmp_path)}) == 3  # one has died, and another one came
    at_once = Counter(device for _, device, _ in calls(tmp_path))
    assert set(at_once) == set("abcd")


def test_a_device_that_no_worker_offers_gets_no_cells(session: SuiteRequest, tmp_path: Path) -> None:
    with dask_cluster(tmp_path, workers=1, options=resources) as address:
        asked = SuiteRequest(path=session.path, record=session.record, out=tmp_path, cluster=address, wait_s=1.0)
        found = run_suite(asked, measure)
    assert found.whole and {part.device for part in found.cells} == {"a", "b"}


def test_real_jobs_are_measured_by_a_worker_and_compared_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "m.onnx").write_bytes(matmul_onnx())
    path = here / "suite.toml"
    path.write_text(REAL)
    told: list[str] = []
    monkeypatch.setenv("GNOMON_HOME", str(there))

    def options(number: int) -> list[str]:
        return ["--nthreads", "9", "--resources", "gnomon-local=1"]

    with dask_cluster(tmp_path, workers=1, options=options) as address:
        monkeypatch.setenv("GNOMON_HOME", str(here))
        for _ in range(2):
            found = gnomon.run_suite(
                path, cluster=address, on_message=lambda name, sentence: told.append(f"{name}: {sentence}")
            )
            assert found.whole and found.done == 2, found.cells
    with read_store(there / "record.sqlite") as store:
        cells = [last_note(store, c.id, CELL)["cell"] for c in store.query(CampaignQuery(kind="profile"))]
    assert Counter(cells) == {part.id: 2 for part in found.cells}  # once in each run
    assert any(line.startswith("cluster: Dask's profiler samples 9 threads of a worker") for line in told)
    compared = gnomon.compare_suites()
    assert len(compared.cells) == 2 and all(cell.comparison for cell in compared.cells)


def test_an_address_that_is_none_is_refused(session: SuiteRequest, tmp_path: Path) -> None:
    with pytest.raises((UsageError, DeviceError), match="scheduler"):
        run_suite(SuiteRequest(path=session.path, record=session.record, out=tmp_path, cluster="http://x"), measure)
