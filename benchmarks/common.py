"""What the benchmarks share: arguments, the zoo's models, and a record of their own."""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def parser(description: str | None, models: tuple[str, ...] = ()) -> argparse.ArgumentParser:
    """`--data DIR` (unused where a benchmark needs none), `--models`, and `--out FILE` beside standard output."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", type=Path, help="the folder of reference data, where the benchmark needs it")
    made.add_argument("--models", nargs="*", default=list(models), help="models of the zoo, or files")
    made.add_argument("--out", type=Path, help="also write the JSON here")
    return made


def arguments(description: str | None, models: tuple[str, ...] = ()) -> argparse.Namespace:
    """What was given of the usual arguments (see `parser`)."""
    return parser(description, models).parse_args()


def model_path(name: str) -> Path:
    """A file as given, or a model of the zoo by its name."""
    import zoo

    return Path(name) if Path(name).is_file() else zoo.build(name)


def publish(document: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Print the one JSON document."""
    text = json.dumps({"machine": platform.machine(), "python": platform.python_version(), **document}, indent=1)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)


@contextmanager
def own_record() -> Iterator[Path]:
    """A record in a temporary folder: benchmarks leave no trace in the user's."""
    with tempfile.TemporaryDirectory(prefix="gnomon-benchmark-") as folder:
        yield Path(folder) / "record.sqlite"


def spread(values: list[float]) -> dict[str, float | int]:
    """Median, extremes and count."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return {"median": median, "min": ordered[0], "max": ordered[-1], "n": len(ordered)}
