"""Runs whole commands on files that are not what they seem: devices, pipes, sparse files, long TOML keys; and with
little address space.

Each of the 40 commands should end by itself, with an answer or with an error and a hint, within 10 s and 500 MB of
memory of its own process. Prints one JSON document with the commands that did not.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, publish

_GIB = 1 << 30
_MOST_S, _MOST_BYTES, _STOP_S = 10.0, 500_000_000, 60.0
_LOOK_S = 0.02
_DIGITS = Path(__file__).parents[2] / "docs" / "examples" / "digits.onnx"
_ANSWERS = (0, 10, 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A command line in the folder of the files; `address_bytes` is its `ulimit -v`, `stdin` and `stdout` are files."""

    words: str
    address_bytes: int | None = None
    stdin: str = os.devnull
    stdout: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def cases() -> list[Case]:
    """All cases."""
    place = f"place {_DIGITS} --runtime onnxruntime --processes 1 --budget 1 --json --out package --overwrite"
    made = [Case(words=place, address_bytes=n * _GIB) for n in (64, 32, 16, 8, 4)]
    for thing in ("/dev/zero", "pipe"):
        made += [
            Case(words=f"{command} {thing}")
            for command in ("solve", "front", "suite run", "runs import", "profile", "space profile --profile-dir p")
        ]
        made += [
            Case(words=f"overlay analyze {thing}"),
            Case(words=f"serve --runtime onnxruntime --token-file {thing}"),
            Case(words=f"profile {_DIGITS} --input image={thing}"),
            Case(words=f"compare {thing} last"),
            Case(words=f"estimator predict {thing} nets.csv"),
        ]
    made += [
        Case(words="solve -", stdin="/dev/zero"),
        Case(words="solve sparse.json"),
        Case(words="estimator predict sparse.json nets.csv"),
        Case(words="compare sparse.json sparse.json"),
        Case(words="runs import sparse.json"),
        *(Case(words=f"profile sparse{suffix}") for suffix in (".onnx", ".tflite", ".circle", ".pte", ".pt2")),
        Case(words="suite run dots40k.toml"),
        Case(words="suite run dots200k.toml"),
        Case(words="devices list", environment={"GNOMON_HOME": "home"}),
    ]
    return made


def make_files(folder: Path) -> None:
    """Write the input files of the commands."""
    os.mkfifo(folder / "pipe")
    heads = {
        ".json": b"{",
        ".onnx": b"\x08\x08",
        ".tflite": b"\x1c\0\0\0TFL3",
        ".circle": b"\0\0\0\0CIR0",
        ".pte": b"\0\0\0\0ET12",
        ".pt2": b"PK\x03\x04",
    }
    for suffix, head in heads.items():
        with (folder / f"sparse{suffix}").open("wb") as file:
            file.write(head)
            file.truncate((8 if suffix == ".json" else 3) * _GIB)
    key = ".".join(["a"] * 20_000)
    (folder / "dots40k.toml").write_text(f"{key} = 1\n", encoding="utf-8")
    (folder / "dots200k.toml").write_text(f"{'.'.join([key] * 5)} = 1\n", encoding="utf-8")
    (folder / "home").mkdir()
    (folder / "home" / "devices.toml").write_text(f"{key} = 1\n", encoding="utf-8")
    (folder / "nets.csv").write_text("net\n", encoding="utf-8")


def run(case: Case, folder: Path) -> dict[str, Any]:
    """Run a command; return how it ended, how long it took, and the peak memory of its own process."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if case.address_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (case.address_bytes, case.address_bytes))

    command = [sys.executable, "-c", "from gnomon.cli.main import main; main()", *case.words.split()]
    environment = os.environ | {"GNOMON_HOME": str(folder / "own"), "GNOMON_LEASES": str(folder / "leases")}
    began_s, held = time.monotonic(), 0
    with (
        Path(case.stdin).open("rb") as stdin,
        (folder / "out").open("w+b") as out,
        (folder / "err").open("w+b") as err,
        subprocess.Popen(
            command,
            stdin=stdin,
            stdout=out,
            stderr=err,
            cwd=folder,
            env=environment | dict(case.environment),
            preexec_fn=limited,
        ) as process,
    ):
        while process.poll() is None:
            held = max(held, _peak_bytes(process.pid))
            if time.monotonic() - began_s > _STOP_S:
                process.kill()
            time.sleep(_LOOK_S)
        wall_s = time.monotonic() - began_s
    printed = (folder / "out").read_text(encoding="utf-8", errors="replace")
    said = (folder / "err").read_text(encoding="utf-8", errors="replace")
    if process.returncode in _ANSWERS:
        clear = bool(printed.strip())
    else:
        clear = 0 < process.returncode < 70 and "error: " in said and "hint: " in said
    return {
        "command": case.words.replace(str(_DIGITS), _DIGITS.name),
        "address_gib": None if case.address_bytes is None else case.address_bytes // _GIB,
        "exit": process.returncode,
        "wall_s": round(wall_s, 2),
        "peak_mb": round(held / 1e6),
        "clear": clear and "Traceback" not in said,
        "said": (said if process.returncode not in _ANSWERS else "").strip()[-300:],
    }


def _peak_bytes(process: int) -> int:
    """The peak memory of a process so far; 0 if it is no longer known."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return max((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:")), default=0)


def main() -> None:
    """Run all cases and print the results."""
    given = arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="gnomon-robustness-") as made:
        make_files(Path(made))
        rows = []
        for case in cases():
            rows.append(run(case, Path(made)))
            print(json.dumps(rows[-1]), file=sys.stderr)
    slow = [row["command"] for row in rows if row["wall_s"] > _MOST_S]
    large = [row["command"] for row in rows if row["peak_mb"] * 1e6 > _MOST_BYTES]
    unclear = [row["command"] for row in rows if not row["clear"]]
    publish({"commands": len(rows), "unclear": unclear, "slow": slow, "large": large, "rows": rows}, given)


if __name__ == "__main__":
    main()
