"""What `gnomon check` reports about model files, and how long the whole command takes in a fresh process for each file.

--data DIR holds the files, in any subfolders. Target: at most 2 s per file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.common import arguments, publish

_ENDS = {".onnx", ".ort", ".tflite", ".circle", ".xml", ".param", ".pte", ".pt2"}


def row(file: Path) -> dict[str, object]:
    """One file: its bytes, the seconds of the command, and the kinds of its findings."""
    began_s = time.monotonic()
    command = [sys.executable, "-c", "import sys; from gnomon.cli.main import run; sys.exit(run(sys.argv[1:]))"]
    done = subprocess.run([*command, "check", str(file), "--json"], capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began_s
    document = json.loads(done.stdout) if done.returncode == 0 else {}
    kinds = [finding["kind"] for finding in document.get("findings", ())]
    return {
        "file": file.name,
        "file_bytes": file.stat().st_size,
        "seconds": round(seconds, 2),
        "kinds": kinds,
        "error": done.stderr.strip()[:200],
    }


if __name__ == "__main__":
    given = arguments(__doc__)
    files = [file for file in sorted(given.data.rglob("*")) if file.suffix in _ENDS and file.is_file()]
    rows = [row(file) for file in files]
    slowest_s = max((float(str(made["seconds"])) for made in rows), default=None)
    publish({"benchmark": "checked_files", "files": rows, "slowest_s": slowest_s}, given)
