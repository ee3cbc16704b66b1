"""Runs a function of the agent in another process, so that it uses none of the worker's memory and a crash does not end
the worker.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

_ANSWER = "gnomon-answer: "
_SCRIPT = (
    "import importlib, sys; sys.path.insert(0, sys.argv[1]); "
    "getattr(importlib.import_module(sys.argv[2]), sys.argv[3])(*sys.argv[4:])"
)


def run_function(
    module: str,
    function: str,
    *arguments: str,
    given: str | None = None,
    folder: str | None = None,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a function of the agent's `module` in a fresh process; return how it ended and its output.

    The function should begin by calling `die_with_parent`. `given` is the text for its standard input, and `folder` is
    its working folder. Raises OSError if no process can be started, and subprocess.TimeoutExpired if the function takes
    longer than `timeout_s`.
    """
    root = os.path.abspath(__file__)  # inside the zip application, if the agent is packed
    for _ in __name__.split("."):
        root = os.path.dirname(root)
    return subprocess.run(
        [sys.executable, "-c", _SCRIPT, root, module, function, *arguments],
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


def tell(answer: object) -> None:
    """Print a function's answer so that `answer_of` can read it."""
    print(_ANSWER + json.dumps(answer), flush=True)


def answer_of(done: subprocess.CompletedProcess[str]) -> Any:
    """The answer that the function of a finished process printed with `tell`; None if the process ended without an
    answer.
    """
    lines = [line for line in done.stdout.splitlines() if line.startswith(_ANSWER)]
    return json.loads(lines[-1].removeprefix(_ANSWER)) if lines else None


def how_it_ended(done: subprocess.CompletedProcess[str]) -> str:
    """How a finished process ended (its status or its signal), worded as the end of a sentence."""
    if done.returncode < 0:
        return f"was killed by signal {-done.returncode}"
    return f"ended with status {done.returncode}"
