"""The keeper without SSH: its files, and how it takes a host that speaks nonsense or goes away."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.devices.shell.sshkit import becomes

from gnomon.devices.keeper.keeper import HEAD, MARK
from gnomon.devices.keeper.keeper_files import Pushed, own_folder, remove
from gnomon.devices.shell.ssh_client import SshSettings, opening, ssh_argv

DIGEST = "a" * 64
HOST = SshSettings(name="x", host="x")


@contextlib.contextmanager
def fresh() -> Iterator[Pushed]:
    with tempfile.TemporaryDirectory() as folder:
        yield Pushed(f"{folder}/cache/pushed")


def put(pushed: Pushed, content: bytes, digest: str = DIGEST, name: str = "m") -> str:
    pushed.begin(digest, name, [("", "f", len(content))])
    pushed.write(content)
    return pushed.finish()


def inside(pushed: Pushed) -> set[str]:
    return {p.name for p in Path(pushed.root).iterdir()} if Path(pushed.root).is_dir() else set()


@given(
    contents=st.lists(st.binary(max_size=300), max_size=6),
    cuts=st.lists(st.integers(1, 200), min_size=1, max_size=5),
)
def test_files_arrive_however_the_bytes_are_cut(contents: list[bytes], cuts: list[int]) -> None:
    with fresh() as pushed:
        entries = [("", "d", 0), *((str(i), "x" if i % 2 else "f", len(c)) for i, c in enumerate(contents))]
        pushed.begin(DIGEST, "m", entries)
        data, turn = b"".join(contents), 0
        while data:
            cut = cuts[turn % len(cuts)]
            pushed.write(data[:cut])
            data, turn = data[cut:], turn + 1
        path = Path(pushed.finish())
        assert [(path / str(i)).read_bytes() for i in range(len(contents))] == contents
        assert [bool((path / str(i)).stat().st_mode & stat.S_IXUSR) for i in range(len(contents))] == [
            bool(i % 2) for i in range(len(contents))
        ]
        assert pushed.find(DIGEST, "m") == str(path)
        assert inside(pushed) == {DIGEST, f"{DIGEST}.json"}


@given(size=st.integers(0, 50), sent=st.integers(0, 60))
def test_too_much_or_too_little_never_counts(size: int, sent: int) -> None:
    with fresh() as pushed:
        pushed.begin(DIGEST, "m", [("", "f", size)])
        try:
            pushed.write(b"x" * sent)
            pushed.finish()
            assert sent == size
        except OSError:
            assert sent != size
            pushed.abort()
            assert inside(pushed) == set()
            assert pushed.find(DIGEST, "m") is None


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "a//x", ".", "a/.", "a\0b", "a/"])
def test_no_path_escapes(path: str) -> None:
    with fresh() as pushed:
        for kind in "dfx":
            with pytest.raises((OSError, ValueError)):
                pushed.begin(DIGEST, "m", [("", "d", 0), (path, kind, 0)])
            pushed.abort()
        assert inside(pushed) == set()
        assert [p.name for p in Path(pushed.root).parent.iterdir()] == ["pushed"]


@pytest.mark.parametrize(
    ("digest", "name"), [("../" + "a" * 61, "m"), ("A" * 64, "m"), (DIGEST, ".."), (DIGEST, "a/b")]
)
def test_no_name_escapes(digest: str, name: str) -> None:
    with fresh() as pushed, pytest.raises(OSError, match="name"):
        pushed.find(digest, name)


@pytest.mark.parametrize("record", ["", "{", "[]", "null", '{"name": "m"}', '{"name": "m", "entries": [[1]]}', "\xff"])
def test_a_broken_record_is_no_record(record: str) -> None:
    with fresh() as pushed:
        put(pushed, b"x")
        (Path(pushed.root) / f"{DIGEST}.json").write_bytes(record.encode("latin-1"))
        assert pushed.find(DIGEST, "m") is None
        assert inside(pushed) == set()


def test_what_is_left_half_done_goes_with_the_next() -> None:
    with fresh() as pushed:
        pushed.begin(DIGEST, "m", [("", "f", 2)])
        pushed.write(b"x")
        again = Pushed(pushed.root)  # as if the first had been killed
        assert again.find(DIGEST, "m") is None
        put(again, b"xy")
        assert inside(again) == {DIGEST, f"{DIGEST}.json"}


def test_the_unused_and_the_many_go() -> None:
    with fresh() as pushed:
        digests = [hashlib.sha256(bytes([i])).hexdigest() for i in range(4)]
        now = time.time()
        for age, digest in enumerate(digests):
            put(pushed, b"x" * 100, digest)
            os.utime(f"{pushed.root}/{digest}.json", (now - 1000 * age, now - 1000 * age))
        (Path(pushed.root) / ("b" * 64)).mkdir()
        (Path(pushed.root) / ("c" * 64 + ".json")).write_text("no record")
        pushed.prune(kept_s=2500, kept_bytes=1000)
        assert inside(pushed) == {n for d in digests[:3] for n in (d, d + ".json")}
        pushed.find(digests[2], "m")  # used again: now the youngest
        pushed.prune(kept_s=2500, kept_bytes=250)
        assert inside(pushed) == {n for d in (digests[0], digests[2]) for n in (d, d + ".json")}


def test_locked_folders_can_be_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir(mode=0o755)
    (tmp_path / "kept" / "f").write_text("kept")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "f").write_text("x")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "a" / "b").chmod(0)
    remove(str(tmp_path / "a"))
    remove(str(tmp_path / "absent"))
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "f").read_text() == "kept"
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o755


def test_what_is_not_its_own_stays(tmp_path: Path) -> None:
    root = tmp_path / "data" / "pushed"
    root.mkdir(mode=0o700, parents=True)
    for name in ("thesis.txt", "a" * 63, "notes.json"):
        (root / name).write_text("of somebody", encoding="utf-8")
    Pushed(str(root)).prune()
    assert inside(Pushed(str(root))) == {"thesis.txt", "a" * 63, "notes.json"}


def test_nothing_behind_a_link_is_removed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / DIGEST).mkdir(parents=True)
    (tmp_path / "pushed").symlink_to(home)
    Pushed(str(tmp_path / "pushed")).prune()
    assert (home / DIGEST).is_dir()


def test_what_others_may_have_planted_is_not_found(tmp_path: Path) -> None:
    root = tmp_path / "pushed"
    (root / DIGEST).mkdir(parents=True)
    (root / DIGEST / "agent.pyz").write_text("planted", encoding="utf-8")
    (root / f"{DIGEST}.json").write_text('{"name": "agent.pyz", "bytes": 7, "entries": []}', encoding="utf-8")
    root.chmod(0o700)
    assert Pushed(str(root)).find(DIGEST, "agent.pyz") is not None
    root.chmod(0o777)
    with pytest.raises(OSError, match="others may write"):
        Pushed(str(root)).find(DIGEST, "agent.pyz")


def test_a_folder_must_be_ones_own(tmp_path: Path) -> None:
    own_folder(str(tmp_path / "new" / "one"))
    assert stat.S_IMODE((tmp_path / "new" / "one").stat().st_mode) == 0o700
    (tmp_path / "link").symlink_to(tmp_path / "new")
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for bad in ("link", "file", "open"):
        with pytest.raises(OSError):
            own_folder(str(tmp_path / bad))


# The whole program, over two pipes


@contextlib.contextmanager
def keeper(tmp_path: Path, leases: str = "leases") -> Iterator[subprocess.Popen[bytes]]:
    """A keeper, started by the same shell's line as over SSH."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    line = ssh_argv(HOST)[-1]
    path = f"{sys.base_prefix}/bin:/usr/bin:/bin"  # without slow stand-ins for Python
    places = {
        "PATH": path,
        "TMPDIR": str(tmp_path / "tmp"),
        "HOME": str(tmp_path),
        "GNOMON_LEASES": str(tmp_path / leases),
    }
    with subprocess.Popen(
        ["/bin/sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **places, "PATH": path},
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(opening(HOST))
        process.stdin.flush()
        assert process.stdout.read(len(MARK)) == MARK
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[bytes], **message: Any) -> None:
    data = json.dumps(message).encode()
    assert process.stdin is not None
    process.stdin.write(HEAD.pack(b"J", len(data)) + data)
    process.stdin.flush()


def hear(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    kind, length = HEAD.unpack(process.stdout.read(HEAD.size))
    return kind, process.stdout.read(length)


OPEN: dict[str, Any] = {
    "op": "open", "id": 1, "silence_s": 30.0, "wait_s": 0, "folder": None, "keep": True, "inherited": ["PATH"],
    "environment": {},
}  # fmt: skip
RUN: dict[str, Any] = {
    "op": "run", "id": 2, "argv": ["sleep", "600"], "env": {}, "timeout_s": 600, "stdin_bytes": 0, "stream": False,
    "stdout_bytes": 10, "stderr_bytes": 10,
}  # fmt: skip


@pytest.mark.parametrize(
    "nonsense", [b"J\xff\xff\xff\xff", b"J\0\0\0\1{", b"J\0\0\0\2{}", b"GET / HTTP/1.1\r\n\r\n", b""]
)
def test_nonsense_ends_it_and_leaves_nothing(tmp_path: Path, nonsense: bytes) -> None:
    with keeper(tmp_path) as process:
        say(process, **OPEN)
        answer = json.loads(hear(process)[1])
        assert Path(answer["private"]).is_dir()
        say(process, **RUN)
        assert process.stdin is not None
        process.stdin.write(nonsense)
        process.stdin.close()
        process.wait(timeout=30)
        assert becomes(lambda: not list((tmp_path / "tmp").iterdir()))


def test_silence_ends_it(tmp_path: Path) -> None:
    with keeper(tmp_path) as process:
        say(process, **{**OPEN, "silence_s": 0.3})
        hear(process)
        assert process.wait(timeout=30) == 0
        assert not list((tmp_path / "tmp").iterdir())


def test_a_second_one_waits_and_names_the_first(tmp_path: Path) -> None:
    with keeper(tmp_path) as first, keeper(tmp_path) as second:
        say(first, **OPEN)
        pid = json.loads(hear(first)[1])["pid"]
        assert (tmp_path / "leases" / "lease-local.lock").read_text() == f"{pid}\n"
        say(second, **OPEN)
        told = json.loads(hear(second)[1])
        assert told["event"] == "waiting"
        assert told["owner"].startswith(f"{pid}, since ")
        busy = json.loads(hear(second)[1])
        assert (busy["end"], busy["error"], busy["reason"]) == (1, "busy", told["owner"])


def test_a_linked_folder_of_leases_is_refused(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(tmp_path)
    with keeper(tmp_path, leases="linked") as process:
        say(process, **OPEN)
        refused = json.loads(hear(process)[1])
        assert "lease" in refused["what"]
        assert "link" in refused["reason"]


def test_stop_and_data_of_what_has_ended_are_ignored(tmp_path: Path) -> None:
    with keeper(tmp_path) as process:
        say(process, **OPEN)
        hear(process)
        for number in (2, 3):
            say(process, **{**RUN, "id": number, "argv": ["true"], "stdin_bytes": 5})
            answers = [hear(process) for _ in range(3)]
            assert [kind for kind, _ in answers] == [b"O", b"E", b"J"]
            assert json.loads(answers[-1][1]) == {"end": number, "status": 0, "timed_out": False}
            say(process, op="stop", id=number)
            assert process.stdin is not None
            process.stdin.write(HEAD.pack(b"D", 5) + b"stale")
        say(process, op="ping")
        assert json.loads(hear(process)[1]) == {"event": "pong"}


def test_it_keeps_to_old_syntax_and_the_standard_library() -> None:
    import ast

    for name in ("keeper", "keeper_files", "keeper_place", "keeper_run"):
        text = (Path(__file__).parents[3] / "src" / "gnomon" / "devices" / "keeper" / f"{name}.py").read_text()
        module = ast.parse(text, feature_version=(3, 8))
        for node in ast.walk(module):
            if isinstance(node, ast.Import):
                assert all(a.name in sys.stdlib_module_names for a in node.names)
            if isinstance(node, ast.ImportFrom):
                own = node.level == 1 and str(node.module).startswith("keeper_")
                assert own or node.module in sys.stdlib_module_names or node.module == "collections.abc"
