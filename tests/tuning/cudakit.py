"""A CUDA card that is a program (`played_cuda/runtime.cpp`), compiled once a run, and the card of this machine if any.

What it proves is all but the card: that inputs are brought, that is waited for what was asked, that outputs are
fetched, and which kernels ran. Its times say nothing, and its `nvcc` is not NVIDIA's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.errors import GnomonError
from gnomon.tuning.cards import Card, find_card
from gnomon.tuning.tvm import passed_on

_SOURCES = Path(__file__).parent / "played_cuda"
_NAMES = "libcudart.so.13 { global: cu*; played_*; local: *; };\n"
NAME = "A CUDA card that is a program"


class PlayedCard:
    """The folder of the program's libraries and of its `nvcc`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._log = folder, folder / "kernels.log"
        shutil.copytree(_SOURCES, folder, dirs_exist_ok=True)
        names = folder / "names.map"
        names.write_text(_NAMES)
        made = folder / "libcuda.so.1"
        flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f'-DPLAYED_LOG="{self._log}"']
        linked = ["-Wl,-soname,libcuda.so.1", f"-Wl,--version-script,{names}"]
        subprocess.run(["g++", *flags, *linked, "-o", str(made), str(folder / "runtime.cpp"), "-ldl"], check=True)
        (folder / "libcudart.so.13").symlink_to(made.name)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find it."""
        return {
            name: os.pathsep.join(filter(None, [str(self.folder), os.environ.get(name)]))
            for name in ("LD_LIBRARY_PATH", "PATH")
        } | {"TVM_CUDA_COMPILE_MODE": "nvcc"}

    def kernels(self) -> list[str]:
        """The names of the kernels that ran since it was asked last."""
        found = self._log.read_text().split() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return found


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlayedCard]:
    """The program, which no process finds by itself."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++, which compiles the program that plays a CUDA card")
    yield PlayedCard(tmp_path_factory.mktemp("played"))


@pytest.fixture
def played_card(played: PlayedCard, monkeypatch: pytest.MonkeyPatch) -> PlayedCard:
    """The program as the card of this machine, for what the test starts."""
    for name, value in played.environment.items():
        monkeypatch.setenv(name, value)
    played.kernels()
    return played


def real_card() -> Card:
    """The card of this machine; skips, and says why, where none can be tuned for."""
    try:
        return find_card(passed_on({}))
    except GnomonError as error:
        pytest.skip(f"{error.message}: scripts/on_gpu runs this on a machine with a card")
