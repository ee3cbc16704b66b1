"""What a declared command finds in its folder, and what is read from there afterwards."""

from __future__ import annotations

import errno
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnomon.agent.arrays import Buffers
from gnomon.agent.driver import Refused
from gnomon.agent.drivers.command.driver import LoadedCommand


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


LIMITS: Any = {"seconds": 0.001, "least": 1, "most": 1, "sample_ns": 1}
WARM: Any = {"warm_count": 0, "warm_s": 0.0}


def loaded(program: str, *words: str, **more: object) -> LoadedCommand:
    """A command that is a program in Python, with the inputs image (1x2) and mask (3)."""
    path = Path("program.py")
    path.write_text(f"import sys\n{program}\n")
    spec = {"name": "stand-in", "run": [sys.executable, str(path.absolute()), *words], **more}
    segment: Any = {
        "model": "net.onnx",
        "options": {"command": spec},
        "inputs": [["image", "a"], ["mask", "b"]],
        "outputs": [],
    }
    buffers: Buffers = {"a": np.array([[1, 2]], np.float32), "b": np.array([3, 4, 5], np.int8)}
    return LoadedCommand(segment, buffers, profiled=False)


def test_all_inputs_are_one_file_of_arrays_and_shapes_as_ncnn_takes_them() -> None:
    command = loaded(
        "import numpy as np\n"
        "with open(sys.argv[1], 'rb') as file:\n"
        "    assert np.load(file).tolist() == [[1, 2]] and np.load(file).tolist() == [3, 4, 5]\n"
        "print(f'{sys.argv[2]} took 2 ms')",
        "{inputs_npy}",
        "{ncnn_shapes}",
        read=r"^\[2,1\],\[3\] took (?P<ms>\d+) ms",
    )
    assert command.take(LIMITS, WARM)["wall_ns"] == [2_000_000]


def test_what_a_program_appends_to_its_file_is_read_once() -> None:
    command = loaded(
        "open('times.csv', 'a').write(f'net,0.00{sys.argv[1]}\\n')",
        "{runs}",
        file="times.csv",
        read="csv:2",
        unit="s",
    )
    command.call()
    assert command.take(LIMITS, WARM)["wall_ns"] == [1_000_000]


def test_the_file_of_an_earlier_process_is_not_that_of_one_that_wrote_none() -> None:
    command = loaded(
        "import os\nif not os.path.exists('ran'): open('ran', 'w'), open('times.csv', 'w').write('net,0.001\\n')",
        "{runs}",
        file="times.csv",
        read="csv:2",
        unit="s",
    )
    command.call()
    with pytest.raises(Refused, match=r"it wrote no file times\.csv"):
        command.take(LIMITS, WARM)


def test_what_is_prepared_is_prepared_once_and_lies_in_each_folder() -> None:
    script = "print('took', open('made').read(), 'ms')"
    counted = Path("count").absolute()
    made = [["sh", "-c", f"printf 7 >made; printf x >>{counted}"]]
    first, second = (loaded(script, prepare=made, read=r"took (?P<ms>\d+) ms") for _ in range(2))
    assert [one.take(LIMITS, WARM)["wall_ns"] for one in (first, second)] == [[7_000_000], [7_000_000]]
    assert counted.read_text() == "x"
    for one in (first, second):
        one.close()
    assert not list(Path().glob("command-*"))


def test_a_full_disk_is_not_the_fault_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    command = loaded("sys.exit('cannot write')", read="json:ms")
    with pytest.raises(Refused, match="cannot write"):
        command.call()
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    with pytest.raises(OSError, match="No space left on device") as full:
        command.call()
    assert full.value.errno == errno.ENOSPC


def test_a_cold_first_call_does_not_decide_how_many_are_asked_for() -> None:
    """The process of one call takes a hundred times as long as each of many."""
    command = loaded(
        "runs = int(sys.argv[1])\nfor _ in range(runs): print('took', 100 if runs == 1 else 1, 'ms')",
        "{runs}",
        read=r"took (?P<ms>\d+) ms",
    )
    command.call()
    longer: Any = {**LIMITS, "seconds": 0.2, "most": 2000}
    facts = command.take(longer, WARM)
    assert len(facts["wall_ns"]) >= 300 and set(facts["wall_ns"]) == {1_000_000}
