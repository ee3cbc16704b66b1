"""The packed agent: one file, the same bytes every time, that needs nothing but Python and numpy."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gnomon.measure.link import packed_agent

_WORKER = """
import runpy, sys
import numpy
before = {name.partition(".")[0] for name in sys.modules}
for name in ("gnomon", "onert", "onnxruntime", "openvino", "onnx", "click", "rich", "highspy"):
    sys.modules[name] = None  # importing it is an error
sys.argv = [sys.argv[1], "supervise"]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    after = {name.partition(".")[0] for name, module in sys.modules.items() if module is not None}
    strange = after - before - set(sys.stdlib_module_names) - {"gnomon_agent", "__main__"}
    print(sorted(strange), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    path.write_bytes(packed_agent())
    return path


def test_the_same_bytes_every_time() -> None:
    assert packed_agent() == packed_agent()


def test_it_holds_the_whole_agent_and_nothing_of_this_machine() -> None:
    with zipfile.ZipFile(io.BytesIO(packed_agent())) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
        text = b"".join(archive.read(name) for name in names)
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    folder = Path(__file__).parents[2] / "src" / "gnomon" / "agent"
    assert set(names) == {"__main__.py", *(f"gnomon_agent/{p.relative_to(folder)}" for p in folder.rglob("*.py"))}
    assert os.fsencode(Path.cwd()) not in text


def test_it_starts_with_python_and_numpy_alone(agent: Path) -> None:
    request = {"commands": [], "timeout_s": 10}
    done = subprocess.run(
        [sys.executable, "-I", "-c", _WORKER, str(agent)],
        input=json.dumps(request) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"event": "end"}]
    assert done.stderr.strip() == "[]"


def test_compiled_for_this_python_it_reads_no_source_and_else_the_source(tmp_path: Path) -> None:
    path = tmp_path / "agent.pyz"
    path.write_bytes(packed_agent(compiled=True))
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    compiled = {name for name in held if name.endswith(".pyc")}
    assert {name.removesuffix("c") for name in compiled} == {
        name for name in held if name.startswith("gnomon_agent/") and name.endswith(".py")
    }

    def starts(changed: dict[str, bytes]) -> bool:
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in {**held, **changed}.items():
                archive.writestr(name, data)
        words = [sys.executable, "-I", str(path), "supervise"]
        request = json.dumps({"commands": [], "timeout_s": 10}) + "\n"
        done = subprocess.run(words, input=request, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode == 0 and json.loads(done.stdout) == {"event": "end"}

    sources = {name.removesuffix("c"): b"raise SystemExit(3)\n" for name in compiled}
    other = {name: b"of another" + held[name][10:] for name in compiled}
    assert starts({})
    assert starts(sources)
    assert starts(other)
    assert not starts({**sources, **other})


@pytest.mark.parametrize("arguments", [[], ["dance"]])
def test_a_wrong_verb_gives_the_usage(agent: Path, arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(agent), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "usage" in done.stderr
