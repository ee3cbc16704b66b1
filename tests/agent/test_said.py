"""What a runtime printed is read back from the file that a worker's standard error is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import ctypes, os
from gnomon.agent.said import printed, said_since
os.dup2(2, 1)
c = ctypes.CDLL(None)
c.printf(b"of before, kept back\\n")
begun = printed()
c.printf(b"[0 device]\\n\\n one \\ntwo\\nthree\\nfour\\n")
told = said_since(begun)
os.write(0, repr(told).encode())
"""


def test_the_last_lines_are_told_also_those_that_c_keeps_back(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as log, (tmp_path / "told").open("w+b") as told:
        subprocess.run([sys.executable, "-c", SCRIPT], stdin=told, stdout=log, stderr=log, check=True)
        told.seek(0)
        assert told.read() == b"'two; three; four'"


def test_nothing_is_told_where_it_is_no_file() -> None:
    script = "from gnomon.agent.said import printed, said_since; print(repr(said_since(printed())))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "''\n"
