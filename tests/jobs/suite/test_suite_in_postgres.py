"""A real suite, and what is asked of its answers, where the record is a database of a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bad_days.livekit import matmul_onnx
from tests.jobs.suite.suitekit import REAL
from tests.store.postgreskit import running_server, why_not

import gnomon
from gnomon.cli.main import run
from gnomon.store.address import record_address
from gnomon.store.base import CELL, CampaignQuery, last_note
from gnomon.store.opening import read_store

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnxruntime]'")


@pytest.mark.usefixtures("short_visits")
def test_a_suite_and_its_answers_are_in_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(matmul_onnx())
    path = tmp_path / "suite.toml"
    path.write_text(REAL.replace("= 2", "= 1").replace("probe = false\n", ""))
    with running_server() as server:
        url = server.url(server.database())
        first, second = (gnomon.run_suite(path, record=url) for _ in range(2))
        assert first.whole and second.whole and first.run != second.run
        assert {part.record for part in second.cells} == {url}
        with read_store(record_address(url)) as store:
            profiles = list(store.query(CampaignQuery(kind="profile")))
            assert len(profiles) == 2
            assert last_note(store, profiles[0].id, CELL)["suite"] == second.run
        monkeypatch.setenv("GNOMON_RECORD", url)
        capsys.readouterr()
        assert run(["suite", "status"]) == 0
        assert "1 of 1 cells done" in capsys.readouterr().out
        assert run(["suite", "compare"]) == 0
        assert "in 1 cell" in capsys.readouterr().out
        assert run(["compare", profiles[1].id, profiles[0].id]) == 0
        assert run(["report", "last~1", "last", "--out", "page.html"]) == 0
        assert profiles[0].id in (tmp_path / "page.html").read_text()
        assert gnomon.answer_of_run(profiles[0].id) is not None
        assert run(["runs", "merge", url, "--out", "all.sqlite"]) == 0
        both = [[row.campaign for row in gnomon.runs(record=record).campaigns] for record in ("all.sqlite", url)]
        assert both[0] == both[1] and len(both[0]) == 5  # two suites, two profiles, a probe
    assert not (tmp_path / "home" / "record.sqlite").exists()
