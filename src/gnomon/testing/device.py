"""The contract of `gnomon.devices.base.Device` as tests.

Subclass `DeviceContract` in a test module and give it a fixture `device` that yields an open device whose
machine has a POSIX shell and its usual small programs::

    class TestMyDevice(DeviceContract):
        @pytest.fixture
        def device(self):
            with MyDevice("board-7") as device:
                yield device
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnomon.devices.base import Device
from gnomon.errors import DeviceError, UsageError

# ruff: noqa: S101, D102 - tests assert, and a test's name is its sentence


_LIMIT_S = 60.0


def _shell(device: Device, script: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    completed = device.run(["sh", "-c", script, "sh", *arguments], env=env or {}, timeout_s=_LIMIT_S)
    assert completed.ok, completed
    return completed.stdout


class DeviceContract:
    """The contract of every device."""

    def test_status_and_streams_are_told_apart(self, device: Device) -> None:
        completed = device.run(["sh", "-c", "echo out; echo err >&2; exit 3"], env={}, timeout_s=_LIMIT_S)
        assert (completed.returncode, completed.signal, completed.timed_out) == (3, None, False)
        assert (completed.stdout, completed.stderr) == ("out\n", "err\n")

    def test_death_by_a_signal_is_told(self, device: Device) -> None:
        completed = device.run(["sh", "-c", "kill -SEGV $$"], env={}, timeout_s=_LIMIT_S)
        assert (completed.returncode, completed.signal) == (None, 11)

    def test_arguments_pass_unchanged(self, device: Device) -> None:
        arguments = ["a b", "$HOME", "'", '"', "\\", "*", "", "ü 你好 🦄", "new\nline", "; echo no", "-n"]
        printed = _shell(device, 'for x; do printf "%s\\000" "$x"; done', *arguments)
        assert printed.split("\0")[:-1] == arguments

    def test_environment_is_what_is_given(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("OMP_NUM_THREADS", "RUY_PATHS", "OP_BACKEND_MAP", "TRACING_MODE"):
            monkeypatch.setenv(name, "stray")
        seen = _shell(device, "env", env={"GIVEN": "a 'b' $c"})
        assert "GIVEN=a 'b' $c\n" in seen
        assert "=stray" not in seen

    def test_standard_input_arrives_and_ends(self, device: Device) -> None:
        completed = device.run(["wc", "-c"], env={}, stdin=b"x" * 3_000_000, timeout_s=_LIMIT_S)
        assert completed.stdout.split() == ["3000000"]

    def test_input_that_is_not_read_does_not_block(self, device: Device) -> None:
        assert device.run(["true"], env={}, stdin=b"x" * 3_000_000, timeout_s=_LIMIT_S).returncode == 0

    def test_lines_come_one_by_one(self, device: Device) -> None:
        lines: list[str] = []
        script = "printf 'one\\n\\nthr'; printf 'ee \\303\\251\\nlast'"
        device.run(["sh", "-c", script], env={}, timeout_s=_LIMIT_S, on_line=lines.append)
        assert lines == ["one", "", "three é", "last"]

    def test_an_error_of_the_listener_ends_the_command(self, device: Device) -> None:
        def refuse(line: str) -> None:
            raise ZeroDivisionError(line)

        with pytest.raises(ZeroDivisionError, match="go"):
            device.run(["sh", "-c", "echo go; sleep 600"], env={}, timeout_s=_LIMIT_S, on_line=refuse)

    def test_the_time_limit_ends_the_command(self, device: Device) -> None:
        completed = device.run(["sh", "-c", "echo begun; sleep 600"], env={}, timeout_s=1.0)
        assert completed.timed_out
        assert not completed.ok
        assert completed.stdout == "begun\n"

    def test_a_missing_program_is_an_error_or_status_127(self, device: Device) -> None:
        try:
            completed = device.run(["/no/such/program"], env={}, timeout_s=_LIMIT_S)
        except DeviceError as error:
            assert error.hint
        else:
            assert completed.returncode == 127

    def test_push_and_pull_keep_the_bytes(self, device: Device, tmp_path: Path) -> None:
        content = bytes(range(256)) * 1000
        local = tmp_path / "a file"
        local.write_bytes(content)
        remote = device.push(local, "wanted name.bin")
        assert remote.rsplit("/", 1)[-1] == "wanted name.bin"
        _shell(device, 'cat "$1" > copy', remote)
        device.pull("copy", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == content

    def test_pushed_again_after_a_change_the_new_content_is_there(self, device: Device, tmp_path: Path) -> None:
        local = tmp_path / "m"
        for content in ("first", "second", "second"):
            local.write_text(content)
            assert _shell(device, 'cat "$1"', device.push(local, "m")) == content

    def test_folders_can_be_pushed(self, device: Device, tmp_path: Path) -> None:
        (tmp_path / "package" / "sub").mkdir(parents=True)
        (tmp_path / "package" / "sub" / "f").write_text("deep")
        assert _shell(device, 'cat "$1/sub/f"', device.push(tmp_path / "package", "other")) == "deep"

    def test_a_folder_of_many_small_files_is_the_same_there(self, device: Device, tmp_path: Path) -> None:
        folder = tmp_path / "many"
        names = [*(f"{number % 7}/{number}" for number in range(60)), "it's $HOME", "-rf", "a\\b", "n\nl", "é " * 60]
        for number, name in enumerate(names):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name * number)
            (folder / name).chmod(0o644)
        (folder / "-rf").chmod(0o755)
        remote = device.push(folder, "many")
        assert _shell(device, 'cd "$1" && find . -type f | wc -l', remote).strip() == str(len(names) + 1)
        for number, name in list(enumerate(names))[-7:]:
            assert _shell(device, 'cat "$1"', f"{remote}/{name}") == name * number
        which = 'for f; do case $(ls -l "$f") in -??x*) echo program;; *) echo file;; esac; done'
        assert _shell(device, which, f"{remote}/-rf", f"{remote}/a\\b").split() == ["program", "file"]

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\0b", "x" * 300])
    def test_names_are_plain(self, device: Device, tmp_path: Path, name: str) -> None:
        (tmp_path / "f").write_text("")
        with pytest.raises(UsageError):
            device.push(tmp_path / "f", name)

    def test_what_is_not_there_cannot_be_moved(self, device: Device, tmp_path: Path) -> None:
        with pytest.raises(DeviceError) as pushed:
            device.push(tmp_path / "absent", "absent")
        (tmp_path / "kept").write_text("kept")
        with pytest.raises(DeviceError) as pulled:
            device.pull("absent", tmp_path / "kept")
        assert pushed.value.hint
        assert pulled.value.hint
        assert (tmp_path / "kept").read_text() == "kept"

    def test_the_fingerprint_is_stable_json(self, device: Device) -> None:
        first, second = device.describe(), device.describe()
        assert first == second
        assert json.loads(json.dumps(dict(first.fingerprint))) == first.fingerprint
        assert {"machine", "cpu_model", "cores", "memory_bytes", "os", "kernel"} <= first.fingerprint.keys()

    def test_its_python_starts(self, device: Device) -> None:
        completed = device.run(
            [device.describe().python, "-c", "import sys; print(sys.version_info >= (3, 11))"],
            env={},
            timeout_s=_LIMIT_S,
        )
        assert completed.stdout.strip() == "True"
