"""Where a record is: what `--record` and `GNOMON_RECORD` may name, and what they may not hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.contract import sample_campaign
from tests.store.postgreskit import running_server, why_not

from gnomon.cli.main import run
from gnomon.errors import RecordError
from gnomon.store.address import DatabaseAddress, default_record, record_address, whole
from gnomon.store.opening import open_store, read_store
from gnomon.store.sqlite import SqliteStore


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bench@db.lab:5433/lab?sslmode=require",
        "postgres://db/lab",
        "postgresql:///lab?host=/run/postgresql",
    ],
)
def test_an_address_of_a_server_stays_as_it_is(url: str) -> None:
    assert record_address(url) == DatabaseAddress(url=url)
    assert str(whole(record_address(url))) == url


def test_without_the_package_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.store.opening.named", lambda group: {})
    with pytest.raises(RecordError, match="of the kind 'postgresql'") as refused:
        read_store(record_address("postgresql://db/lab"))
    assert refused.value.hint.endswith("-m pip install ./packages/postgres")
    with pytest.raises(RecordError, match="of the kind 'no'") as refused:
        open_store(record_address("no://db/lab"))
    assert refused.value.hint == "Known kinds: none. Or give the path of a file."


def test_all_else_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert record_address("a/record.sqlite") == Path("a/record.sqlite")
    assert whole(record_address("a")) == tmp_path.resolve() / "a"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bench:sesame@db.lab/lab",
        "postgresql://db.lab/lab?user=bench&password=sesame",
        "postgresql://db.lab/lab?sslpassword=sesame",
        "postgresql://bench:sesame@[db.lab/lab",
        "postgresql://bench:p?sesame@db.lab/lab",
        "postgresql://bench:p/sesame@db.lab/lab",
        "postgresql://db.lab/lab?application_name=x#&password=sesame",
    ],
)
def test_no_password_is_taken_or_told(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RecordError) as refused:
        record_address(url)
    assert "sesame" not in f"{refused.value.message} {refused.value.hint}"
    assert run(["runs", "--record", url]) == RecordError.exit_code
    monkeypatch.setenv("GNOMON_RECORD", url)
    assert run(["runs"]) == RecordError.exit_code
    told = capsys.readouterr()
    assert "sesame" not in told.out + told.err


def test_the_user_s_own_is_what_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    assert default_record() == tmp_path / "record.sqlite"
    monkeypatch.setenv("GNOMON_RECORD", str(tmp_path / "other.sqlite"))
    with open_store(None) as store:
        assert isinstance(store, SqliteStore)
        assert store.path == tmp_path / "other.sqlite"
    monkeypatch.setenv("GNOMON_RECORD", "postgresql://db/lab")
    assert default_record() == DatabaseAddress(url="postgresql://db/lab")


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_commands_take_a_database_of_a_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_server() as server:
        url = server.url(server.database())
        assert run(["runs", "--record", url]) == 0
        assert "empty" in capsys.readouterr().out
        with open_store(record_address(url)) as store:
            store.open_campaign(sample_campaign("abcdef"))
        with read_store(record_address(url)) as store:
            assert store.address == record_address(url)
        monkeypatch.setenv("GNOMON_RECORD", url)
        assert run(["runs", "show", "last"]) == 0
        assert "abcdef" in capsys.readouterr().out
        assert run(["runs", "show", "last", "--record", url, "--json"]) == 0
