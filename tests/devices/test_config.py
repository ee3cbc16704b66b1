"""The file of devices: all errors at once, hostile files, and edits that lose nothing."""

from __future__ import annotations

import os
import threading
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnomon.devices.address import Address, parse_address
from gnomon.devices.config import DeviceConfig, add_device, devices_path, load_devices, remove_device
from gnomon.errors import UsageError
from gnomon.system.locks import changing

WHOLE = """
# my devices
[devices.board]
address = "ssh://odroid@board:2222"    # in the cellar
python = "/opt/py/bin/python3"
folder = "/data/gnomon"
keep = false
environment = { LD_LIBRARY_PATH = "/opt/one/lib" }
ssh_options = ["IdentityFile=/home/me/.ssh/board"]
connect_timeout_s = 3
threads = 4
runtimes = ["onert"]
pin = [4, 5]
governor = "performance"
fetch = true
"""
BOARD = DeviceConfig(
    name="board",
    address=Address(kind="ssh", user="odroid", host="board", port=2222),
    python="/opt/py/bin/python3",
    folder="/data/gnomon",
    keep=False,
    environment={"LD_LIBRARY_PATH": "/opt/one/lib"},
    ssh_options=("IdentityFile=/home/me/.ssh/board",),
    connect_timeout_s=3.0,
    threads=4,
    runtimes=("onert",),
    pin=(4, 5),
    governor="performance",
    fetch=True,
)
OTHER = DeviceConfig(name="other", address=parse_address("ssh://other"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "devices.toml"


def told(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as raised:
        load_devices(path)
    assert raised.value.hint
    return raised.value.message


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_every_key_is_read(path: Path, encoding: str) -> None:
    path.write_text(WHOLE, encoding=encoding)
    assert load_devices(path) == {"board": BOARD}


def test_the_file_of_the_documents_is_right(path: Path) -> None:
    document = Path(__file__).parents[2] / "docs" / "devices" / "devices.md"
    text = document.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    path.write_text(text, encoding="utf-8")
    assert load_devices(path)["board"].pin == (4, 5, 6, 7)
    keys = set(tomllib.loads(text)["devices"]["board"])
    assert keys == {f.name for f in fields(DeviceConfig)} - {"name"}


def test_the_file_is_in_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    assert devices_path() == tmp_path / "devices.toml"
    monkeypatch.delenv("GNOMON_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert devices_path() == tmp_path / "data" / "gnomon" / "devices.toml"


def test_all_errors_are_told_at_once_with_their_paths(path: Path) -> None:
    message = told(
        path,
        """
        extra = 1
        [devices.a]
        adress = "local"
        environment = { "a b" = "x", C = 3 }
        [devices.b]
        address = "ssh://x"
        pin = [1, 2, 1]
        name = "f"
        [devices.local]
        address = "ssh://x"
        [devices.c]
        address = "local"
        ssh_options = ["A=b"]
        folder = "/x"
        [devices."d e"]
        address = "local"
        """,
    )
    for part in (
        "extra:",
        "devices.a.adress: there is no such field. Did you mean 'address'?",
        "devices.a.address: missing",
        "devices.a.environment.'a b':",
        "devices.a.environment.C:",
        "devices.b.pin[2]: 1 is given twice",
        "devices.b.name: there is no such key",
        "devices.local.address:",
        "devices.c.ssh_options:",
        "devices.c.folder:",
        "devices.'d e'",
    ):
        assert part in message


@pytest.mark.parametrize("name", [f.name for f in fields(DeviceConfig) if f.name != "name"])
@pytest.mark.parametrize("value", ["1979-05-27", "''", "nan", "10000000000000000000"])
def test_a_wrong_value_names_its_key(path: Path, name: str, value: str) -> None:
    address = "" if name == "address" else 'address = "ssh://x"\n'
    assert f"devices.x.{name}" in told(path, f"[devices.x]\n{address}{name} = {value}\n")


@pytest.mark.parametrize("text", ["devices = 3", "a = [" * 20000, "x = " + "9" * 5000, "[a", "a=1\0"], ids=range(5))
def test_what_is_no_such_file_is_one_error(path: Path, text: str) -> None:
    assert len(told(path, text)) < 2000


def test_hostile_files_are_refused(path: Path) -> None:
    assert load_devices(path) == {}, "it need not exist"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="UTF-8"):
        load_devices(path)
    path.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(UsageError, match="more than the limit of 1048576"):
        load_devices(path)
    path.write_text(WHOLE)
    path.chmod(0o666)
    with pytest.raises(UsageError, match="every user"):
        load_devices(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UsageError, match="regular"):
        load_devices(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UsageError):
        load_devices(path)


CONFIGS = st.builds(
    DeviceConfig,
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True).filter(lambda n: n != "local"),
    address=st.just(parse_address("ssh://me@host:2")),
    python=st.none() | st.just("/a b/python"),
    keep=st.booleans(),
    environment=st.dictionaries(
        st.from_regex(r"[A-Z_]{1,5}", fullmatch=True), st.text(max_size=9).filter(lambda t: "\0" not in t), max_size=3
    ),
    pin=st.lists(st.integers(0, 200), unique=True, max_size=4).map(tuple),
    connect_timeout_s=st.floats(0.1, 3600),
)
FILES = st.sampled_from(
    ["", WHOLE, 'devices.x.address = "local"\n', '[devices]\nx = {address="local"}\n# end', WHOLE + "\n\n# end\n"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CONFIGS, FILES)
def test_adding_and_removing_lose_nothing(path: Path, config: DeviceConfig, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    before = load_devices(path)
    if config.name in before:
        return
    add_device(config, path)
    assert load_devices(path) == {**before, config.name: config}
    assert all(line in path.read_text(encoding="utf-8") for line in text.splitlines())
    try:
        remove_device(config.name, path)
    except UsageError as error:  # a table spread over the file: nothing is better than half of it
        assert text.startswith("devices.x.address") and "by hand" in error.hint
        assert load_devices(path) == {**before, config.name: config}
        return
    assert load_devices(path) == before
    assert all(line in path.read_text(encoding="utf-8") for line in text.splitlines())


def test_a_file_that_cannot_be_edited_stays(path: Path) -> None:
    text = 'devices = { x = { address = "local" } }\n'
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="without losing a part of it") as told:
        add_device(OTHER, path)
    assert "by hand" in told.value.hint and path.read_text(encoding="utf-8") == text


def test_adding_twice_and_removing_nothing_are_errors(path: Path) -> None:
    add_device(OTHER, path)
    with pytest.raises(UsageError, match="already"):
        add_device(OTHER, path)
    with pytest.raises(UsageError, match="no device"):
        remove_device("x", path)
    assert load_devices(path) == {"other": OTHER}
    assert [p.name for p in path.parent.iterdir() if p.name.startswith(".devices")] == []


def test_many_at_once_are_all_added(path: Path) -> None:
    configs = [DeviceConfig(name=f"d{n}", address=parse_address(f"ssh://h{n}")) for n in range(5)]
    threads = [threading.Thread(target=add_device, args=(config, path)) for config in configs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert load_devices(path) == {c.name: c for c in configs}


def test_where_nothing_can_be_written_nothing_is_lost(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        add_device(OTHER, blocked / "devices.toml")


def test_a_file_that_another_keeps_locked_is_waited_for_and_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.system.locks._CHANGES_S", 0.0)
    told = f"cannot be written: process {os.getpid()} is changing the file"
    with changing(path), pytest.raises(UsageError, match=told):
        add_device(OTHER, path)
    add_device(OTHER, path)
    with pytest.raises(UsageError, match="there is no device"):
        remove_device("none", path)
    remove_device(OTHER.name, path)  # what was refused has let go of the lock
