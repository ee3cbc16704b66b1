"""A search space of a few small units, an effort that is quick, and a runtime that crashes on units of one's choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnomon.jobs.table.document import TableDocument
from gnomon.jobs.table.folder import read_table
from gnomon.jobs.table.job import TableRequest, build_table
from gnomon.measure.effort import Effort
from gnomon.runtimes.base import RunSettings
from gnomon.session.request import MeasureRequest
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.latency_table import Table
from gnomon.spaces.loading import load_space
from gnomon.spaces.unit import Unit

SPACE_FILE = """
from gnomon.spaces import BlockSpace, Choice, skip

def conv(kernel):
    return lambda x: x.conv(x.channels, kernel).relu()

space = BlockSpace(
    name="tiny",
    inputs=((1, 4, 16, 16),),
    parts=(
        lambda x: x.conv(8, 3, stride=2).relu(),
        Choice("first", {"k3": conv(3), "k5": conv(5), "skip": skip}),
        lambda x: x.global_average_pool().linear(3),
    ),
)
"""

QUICK = Effort(
    rounds=2,
    block_s=0.002,
    warm_s=0.001,
    rewarm_s=0.0005,
    sample_s=2e-4,
    processes_least=1,
    processes_most=1,
    laggard=1e9,
    together=9,
)

_HOOK = """
import os, signal, sys
from importlib.machinery import PathFinder

def spoil(module):
    true = module.InferenceSession

    class Session(true):
        def __init__(self, path, *more, **options):
            if any(name in str(path) for name in os.environ.get("REFUSED", "none such").split()):
                raise RuntimeError("there is no kernel for it")
            self.left = 12 if any(name in str(path) for name in os.environ.get("FATAL", "none such").split()) else -1
            true.__init__(self, path, *more, **options)

        def run_with_iobinding(self, *given):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGSEGV)
            return true.run_with_iobinding(self, *given)

    module.InferenceSession = Session

class Hook:
    def find_spec(self, name, path=None, target=None):
        if name != "onnxruntime":
            return None
        spec = PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            spoil(module)

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Hook())
"""


def space_file(folder: Path) -> Path:
    """The file of the small space."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "space.py").write_text(SPACE_FILE)
    return folder / "space.py"


def units_of(folder: Path) -> tuple[Unit, ...]:
    """All single operators of the small space."""
    return load_space(f"{space_file(folder)}:space").tables(UNFUSED).units


def spoilt(folder: Path, *, refused: str = "", fatal: str = "") -> dict[str, str]:
    """An environment in which ONNX Runtime refuses some units and crashes on others, by their ids."""
    (folder / "hook").mkdir(exist_ok=True)
    (folder / "hook" / "sitecustomize.py").write_text(_HOOK)
    return {"PYTHONPATH": str(folder / "hook"), "REFUSED": refused or "none", "FATAL": fatal or "none"}


def asked(folder: Path, out: Path, *, environment: dict[str, str] | None = None, **changes: Any) -> TableRequest:
    """A request for a table of the small space; `changes` are of TableRequest, or of MeasureRequest."""
    own = {k: changes.pop(k) for k in ("rules", "again", "effort") if k in changes}
    settings = changes.pop("settings", RunSettings(environments=(environment,) if environment else ()))
    request = MeasureRequest(
        **{
            "runtimes": ("onnxruntime",),
            "record": folder / "record.sqlite",
            "settings": settings,
            "wait_s": 0.0,
            **changes,
        },
    )
    space = load_space(f"{space_file(folder)}:space")
    return TableRequest(request=request, space=space, out=out, **{"rules": UNFUSED, "effort": QUICK, **own})


def build(folder: Path, out: Path, **changes: Any) -> TableDocument:
    """A table of the small space, measured."""
    return build_table(asked(folder, out, **changes))


def table_of(built: TableDocument) -> Table:
    """The table that was built."""
    return read_table(Path(built.table))
