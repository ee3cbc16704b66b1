"""One `gnomon place` on many boards at the same time: the cost of a board for the machine that drives it.

Loopback SSH servers, each with its own home, stand for the boards. The model is a chain of small matrix products, and
each board has ONNX Runtime. The command runs with a soft limit of `--soft` open files (most systems give 1,024). It is
observed from outside every 50 ms: its open descriptors and threads, the processes that it has started, and their total
memory (proportional set size). Processor time is that of the command and its children, without the boards'.

Targets: no error for 5, 20 and 50 boards, and a cost per board that does not grow with their number.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import parser, publish

LOOK_S = 0.05


def tiny_model(path: Path) -> Path:
    """Four products of 64 x 64 matrices, each followed by a Relu."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for number in range(4):
        matrix = random.normal(size=(64, 64)).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{number}"], [f"p{number}"]))
        nodes.append(helper.make_node("Relu", [f"p{number}"], [f"y{number}"]))
        last = f"y{number}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "tiny", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return path


def stat_of(pid: int) -> list[str]:
    """The fields of a process's stat after its name; OSError if the process has ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def processes_below(root: int) -> list[int]:
    """The process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            parents.setdefault(int(stat_of(int(stat.name))[1]), []).append(int(stat.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def _pss_bytes(pid: int) -> int:
    with suppress(OSError):
        told = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
        return 1024 * int(told[1]) if told else 0
    return 0


def watched(argv: list[str], env: dict[str, str], limits: tuple[int, int], folder: Path) -> dict[str, Any]:
    """Run a command and observe it until it ends; return the maximum of each figure."""
    most = {"descriptors": 0, "threads": 0, "processes": 0, "pss_bytes": 0}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s, looked_s = time.monotonic(), 0.0
    with (folder / "out").open("wb") as out, (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", _LIMITED, *map(str, limits), *argv], env=env, stdout=out, stderr=errors
        )
        while process.poll() is None:
            with suppress(OSError):
                root = Path(f"/proc/{process.pid}")
                most["descriptors"] = max(most["descriptors"], len(list((root / "fd").iterdir())))
                most["threads"] = max(most["threads"], len(list((root / "task").iterdir())))
                if time.monotonic() - looked_s > 20 * LOOK_S:  # all of /proc is read
                    pids = processes_below(process.pid)
                    most["processes"] = max(most["processes"], len(pids) - 1)
                    most["pss_bytes"] = max(most["pss_bytes"], sum(map(_pss_bytes, pids)))
                    looked_s = time.monotonic()
            time.sleep(LOOK_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "exit_code": process.returncode,
        "seconds": time.monotonic() - began_s,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        **most,
        "last_words": (folder / "errors").read_text(errors="replace")[-600:],
    }


_LIMITED = """
import resource, sys
soft, hard, *sys.argv[1:] = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), int(hard)))
from gnomon.cli.main import main
main()
"""


def many(count: int, limits: tuple[int, int], more: list[str]) -> dict[str, Any]:
    """One `place` on this many boards."""
    from tests.devices.shell.sshkit import ssh_server, user

    with tempfile.TemporaryDirectory(prefix="gnomon-many-") as made, ExitStack() as stack:
        folder = Path(made)
        lines = []
        for number in range(count):
            root = folder / f"b{number}"
            inherited = {n: v for n, v in os.environ.items() if n in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
            server = stack.enter_context(ssh_server(root, environment=inherited))
            options = [
                f"IdentityFile={root}/user_key",
                "IdentitiesOnly=yes",
                f"UserKnownHostsFile={root}/known_hosts",
                "StrictHostKeyChecking=yes",
            ]
            lines += [
                f"[devices.b{number}]",
                f'address = "ssh://{user()}@{server.address}:{server.port}"',
                f'python = "{sys.executable}"',
                f"ssh_options = {json.dumps(options)}",
            ]
        (folder / "devices.toml").write_text("\n".join(lines) + "\n")
        model = tiny_model(folder / "tiny.onnx")
        devices = [word for number in range(count) for word in ("--device", f"b{number}")]
        argv = [
            "place",
            str(model),
            *devices,
            "--record",
            str(folder / "record.sqlite"),
            "--out",
            str(folder / "out.d"),
        ]
        argv += ["--runtime", "onnxruntime", "--processes", "1", "--json", "--quiet", *more]
        env = {**os.environ, "GNOMON_HOME": str(folder)}
        seen = watched(argv, env, limits, folder)
        placed = 0
        with suppress(OSError, ValueError, KeyError):
            found = json.loads((folder / "out").read_text())
            placed = sum(each["placement"] is not None for each in found["devices"])
        each = {name: seen[name] / count for name in ("cpu_s", "descriptors", "threads", "processes", "pss_bytes")}
        return {"boards": count, "placed": placed, "limits": list(limits), **seen, "a_board": each}


def main() -> None:
    """Measure each number of boards in turn."""
    from tests.devices.shell.sshkit import missing

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    made = parser(__doc__)
    made.add_argument("--boards", type=int, nargs="+", default=[5, 20, 50])
    made.add_argument("--soft", type=int, default=1024, help="the soft limit of open files of the command")
    made.add_argument("--hard", type=int, default=hard, help="its hard limit")
    made.add_argument("--more", nargs="*", default=[], help="more options of `gnomon place`")
    asked = made.parse_args()
    if what := missing():
        raise SystemExit(what)
    publish({"benchmark": "many", "runs": [many(n, (asked.soft, asked.hard), asked.more) for n in asked.boards]}, asked)


if __name__ == "__main__":
    main()
