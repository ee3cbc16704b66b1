"""python -m fuzz.kills: kills real jobs with -9 at random moments, resumes them, and checks whether anything was lost.

Each job is a command of gnomon on something small, in a folder with its own results database and leases. After every
kill, all earlier measurements must still be there unchanged; no run may be there twice, no second campaign may have
begun, and no process that gnomon started may be alive. A job that has finished is started again in a new folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzz import seeds as good

_MAIN = "import sys; from gnomon.cli.main import main; sys.exit(main())"
_ENDS_S = 60.0
_FAILED_S = 900.0
_CONFIG = """\
search_space_cfg:
  num_cell_groups: 2
  cell_layout: [0, 1]
  reduce_cell_groups: [0, 1]
  shared_primitives: [VGGblock_0, VGGblock_1, Mobileblock_0]
  cell_shared_primitives: null
weights_manager_cfg:
  num_classes: 3
  cell_group_kwargs: [{C_in: 1, C_out: 4}, {C_in: 4, C_out: 8}]
ss_profiler_cfg:
  first_train_epochs: 2
  first_train_optimizer_cfg: {type: SGD, lr: 0.1, momentum: 0.9}
  first_train_scheduler_cfg: null
  finetune_epochs: 1
  finetune_optimizer_cfg: {type: SGD, lr: 0.05, momentum: 0.9}
  finetune_scheduler_cfg: null
  select_ss_threshold: 2
gnomon_cfg: {batch_size: 16}
"""
_SPACE = """
from gnomon.spaces import BlockSpace, Choice


def conv(kernel):
    return lambda x: x.conv(4, kernel).relu()


space = BlockSpace(
    name="small",
    inputs=((1, 4, 8, 8),),
    parts=tuple(Choice(name, {"1": conv(1), "3": conv(3), "5": conv(5)}) for name in "ab"),
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command that resumes where it was, the files that it needs in its folder, and roughly how long it takes."""

    words: str
    prepare: Callable[[Path], object]
    span_s: float


def _model(folder: Path) -> None:
    (folder / "m.onnx").write_bytes(_matmul())


def _matmul() -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy")
    weights = numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], "product"), helper.make_node("Tanh", ["m"], ["y"], "squash")]
    graph = helper.make_graph(nodes, "g", [x], [y], [weights])
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


def _circle(folder: Path) -> None:
    from zoo.mix import mix_circle

    (folder / "m.circle").write_bytes(mix_circle())


def _space(folder: Path) -> None:
    (folder / "space.py").write_text(_SPACE, encoding="utf-8")


def _measured(folder: Path) -> None:
    """A table of the space, and nets to measure."""
    _space(folder)
    _run(folder, "table build space.py:space --runtime onnxruntime --fuse none --out t.table --quiet").wait(_FAILED_S)
    (folder / "nets.csv").write_text("a,b\n1,1\n1,3\n3,1\n3,3\n", encoding="utf-8")


def _config(folder: Path) -> None:
    (folder / "config.yaml").write_text(_CONFIG, encoding="utf-8")
    x, y = np.random.default_rng(0).integers(0, 255, (90, 1, 8, 8)).astype(np.uint8), np.arange(90) % 3
    (folder / "images.npz").write_bytes(good.npz(x=x, y=y))


JOBS: Mapping[str, Job] = {
    "place": Job(
        words="place m.onnx --runtime onnxruntime --processes 2 --budget 5 --out out --overwrite --quiet",
        prepare=_model,
        span_s=6,
    ),
    "pareto": Job(
        words="pareto m.circle --runtime onert --search random --iterations 12 --processes 1 --budget 5 --quiet",
        prepare=_circle,
        span_s=8,
    ),
    "table": Job(
        words="table build space.py:space --runtime onnxruntime --fuse none --out t.table --quiet",
        prepare=_space,
        span_s=6,
    ),
    "estimator": Job(
        words="estimator measure nets.csv --table t.table --space space.py:space --runtime onnxruntime --quiet",
        prepare=_measured,
        span_s=6,
    ),
    "space": Job(
        words="space profile config.yaml --profile-dir p --data npz:images.npz --workers 1 --mixed 2 --quiet",
        prepare=_config,
        span_s=15,
    ),
    "tune": Job(
        words="tune m.onnx --trials 4 --per-round 2 --search replay-trace --out tuned --quiet",
        prepare=_model,
        span_s=30,
    ),
}


def _environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "GNOMON_HOME": str(folder / "home"),
        "GNOMON_LEASES": str(folder / "leases"),
        "TMPDIR": str(folder / "tmp"),
    }


def _run(folder: Path, words: str) -> subprocess.Popen[bytes]:
    for name in ("home", "leases", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", _MAIN, *words.split()], cwd=folder, env=_environment(folder),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def _left(folder: Path) -> list[int]:
    """The processes that were started for this folder and are still alive."""
    wanted, found = f"GNOMON_HOME={folder / 'home'}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _seen(folder: Path) -> tuple[dict[Any, Any], dict[str, list[str]]]:
    """Everything that was measured: runs of the results database and lines of journals by their keys; campaigns by
    their requests.
    """
    runs: dict[Any, Any] = {}
    campaigns: dict[str, list[str]] = {}
    record = folder / "home" / "record.sqlite"
    if record.exists():
        with contextlib.closing(sqlite3.connect(record, timeout=30)) as db:
            for id_, key in db.execute("SELECT id, kind || ' ' || key FROM campaigns"):
                campaigns.setdefault(key, []).append(id_)
            rows = db.execute(
                "SELECT c.id, r.candidate, r.process, r.block, r.profiled, r.wall_ns, r.failure"
                " FROM runs r JOIN campaigns c ON c.seq = r.campaign"
            )
            for *place, wall_ns, failure in rows:
                key = tuple(place)
                if key in runs:
                    raise AssertionError(f"the run {key} is there twice")
                runs[key] = (wall_ns, failure)
    journals = [p for pattern in ("*/*.jsonl", "tuned/records/*.json") for p in folder.glob(pattern)]
    for journal in journals:
        lines = journal.read_bytes().split(b"\n")[:-1]  # the last one has no end, or is empty
        for line, count in Counter(lines).items():
            with contextlib.suppress(ValueError):
                json.loads(line)  # a line that was truncated and then continued is not JSON
                runs[journal.name, line] = count
    return runs, campaigns


@dataclass(slots=True)
class Tally:
    """The results of killing one job."""

    kills: int = 0
    ends: int = 0
    runs: int = 0
    wrong: list[str] = field(default_factory=list)


def attack(name: str, job: Job, draw: Random, folder: Path, kills: int, ends_s: float) -> Tally:
    """Kill, check and resume, and after some kills let the job finish; stop after this many kills, or when the time is
    over.
    """
    tally, round_ = Tally(), 0
    while tally.kills < kills and time.monotonic() < ends_s:
        round_ += 1
        place = folder / f"{name}-{round_}"
        place.mkdir()
        job.prepare(place)
        before: dict[Any, Any] = {}
        known: dict[str, list[str]] = {}
        for _ in range(12):
            process = _run(place, job.words)
            status = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(draw.uniform(0.1, job.span_s))
            if status is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                tally.kills += 1
            before, known = _looked(place, before, known, tally, name)
            if status is not None or tally.kills >= kills or time.monotonic() > ends_s:
                break
        else:
            status = _run(place, job.words).wait(_FAILED_S)
            before, known = _looked(place, before, known, tally, name)
        tally.runs += len(before)
        if status is not None:
            tally.ends += 1
            if status:
                said = (place / "log").read_text(encoding="utf-8", errors="replace")[-600:]
                tally.wrong.append(f"{place}: ended with {status}: {said}")
        print(
            f"{name}: {tally.kills} kills, {tally.ends} ends, {tally.runs} runs, {len(tally.wrong)} wrong", flush=True
        )
    return tally


def _looked(
    place: Path, before: dict[Any, Any], known: dict[str, list[str]], tally: Tally, name: str
) -> tuple[dict[Any, Any], dict[str, list[str]]]:
    until_s = time.monotonic() + _ENDS_S
    while (left := _left(place)) and time.monotonic() < until_s:
        time.sleep(0.05)
    if left:
        tally.wrong.append(f"{place}: the processes {left} live on")
    try:
        now, campaigns = _seen(place)
    except (AssertionError, sqlite3.Error) as error:
        tally.wrong.append(f"{place}: {error}")
        return before, known
    lost = [key for key, value in before.items() if now.get(key) != value]
    if lost:
        tally.wrong.append(f"{place}: {len(lost)} of {len(before)} are lost or changed, such as {str(lost[0])[:200]}")
    twice = [key for key, ids in campaigns.items() if len(ids) > 1]
    if twice:
        tally.wrong.append(f"{place}: a second campaign of {twice[0][:100]} was begun")
    return now, campaigns


def main() -> int:
    """Read the command line, attack, and report."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.kills", description="Kill jobs with -9 and resume them.")
    parser.add_argument("--kills", type=int, default=20, help="of each job (default: 20)")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most so long for each job (default: 600)")
    parser.add_argument("--job", action="append", choices=list(JOBS), help="one of them (may be repeated)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to work (default: a new temporary folder)")
    given = parser.parse_args()
    folder = given.out or Path(tempfile.mkdtemp(prefix="gnomon-kills-"))
    folder.mkdir(parents=True, exist_ok=True)
    found = {
        name: attack(
            name, JOBS[name], Random(f"{given.seed}/{name}"), folder, given.kills, time.monotonic() + given.seconds
        )
        for name in given.job or JOBS
    }
    for name, tally in found.items():
        measured = f"{tally.ends:3} ends {tally.runs:5} runs measured"
        print(f"{name:10} {tally.kills:4} kills {measured}, {len(tally.wrong)} wrong")
        print("".join(f"    {told}\n" for told in tally.wrong), end="")
    return 1 if any(tally.wrong for tally in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
