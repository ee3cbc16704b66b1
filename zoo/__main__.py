"""``python -m zoo NAME.. --out DIR`` builds models of the zoo and prints their paths."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from zoo import NAMES, ZooError, build


def main() -> int:
    """Build the named models, or all of them, and print one path per line."""
    parser = argparse.ArgumentParser(prog="python -m zoo", description="Build models of the zoo.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; default: all")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the built models")
    arguments = parser.parse_args()
    try:
        for name in arguments.names or NAMES:
            print(build(name, arguments.out), flush=True)
    except ZooError as error:
        print(f"zoo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
