"""Entry point of the agent, both as a package and as a zip application."""

from __future__ import annotations

import sys


def main(argv: list[str]) -> int:
    """Start the part of the agent that `argv` names; return its exit status."""
    verb = argv[0] if argv else ""
    if verb == "supervise":
        from .supervisor import supervise

        return supervise()
    if verb == "work":
        from .worker import work

        return work()
    if verb == "run":
        from .deployed import run

        return run(argv[1:])
    sys.stderr.write(
        "usage: agent supervise | work | run PLAN [--allow NAME] [--input NAME=FILE.npy] [--output FILE.npz]\n"
    )
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
