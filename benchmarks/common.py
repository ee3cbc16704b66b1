"""The common parts of the benchmarks: arguments, the zoo's models, kept rows, and their own results database."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def parser(description: str | None, models: tuple[str, ...] = ()) -> argparse.ArgumentParser:
    """A parser for `--data DIR` (ignored by benchmarks that need no data), `--models`, and `--out FILE`."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", type=Path, help="the folder of reference data, where the benchmark needs it")
    made.add_argument("--models", nargs="*", default=list(models), help="models of the zoo, or files")
    made.add_argument("--out", type=Path, help="also write the JSON here")
    return made


def arguments(description: str | None, models: tuple[str, ...] = ()) -> argparse.Namespace:
    """The parsed common arguments (see `parser`)."""
    return parser(description, models).parse_args()


def model_path(name: str) -> Path:
    """The path of a file, or of the zoo's model with this name."""
    import zoo

    return Path(name) if Path(name).is_file() else zoo.build(name)


def publish(document: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Print the JSON document, and write it to --out if that is given."""
    text = json.dumps({"machine": platform.machine(), "python": platform.python_version(), **document}, indent=1)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)


def row_parser(description: str | None) -> argparse.ArgumentParser:
    """The `parser` of a benchmark that makes its rows with `kept_rows`."""
    made = parser(description)
    made.add_argument("--only", nargs="+", metavar="NAME", help="measure these alone, also those that --out has")
    return made


def kept_rows(
    benchmark: str, names: Iterable[str], row: Callable[[str], dict[str, Any]], given: argparse.Namespace
) -> list[dict[str, Any]]:
    """Make a row for each name, and write it to --out at once; running the same command again adds the missing rows.

    A failure becomes a row with an `error`. Returns all rows that --out then contains.
    """
    out: Path | None = given.out
    known: dict[str, dict[str, Any]] = {}
    if out is not None and out.is_file():
        known = {found["name"]: found for found in json.loads(out.read_text(encoding="utf-8"))["rows"]}
    order = list(names)
    if strange := set(given.only or ()) - set(order):
        raise SystemExit(f"not known: {', '.join(sorted(strange))}; there are {', '.join(order)}")
    for name in given.only or [name for name in order if name not in known]:
        print(f"{benchmark}: {name}", file=sys.stderr)
        try:
            known[name] = {"name": name, **row(name)}
        except Exception as error:  # whatever happens with one model, the others are measured
            known[name] = {"name": name, "error": f"{type(error).__name__}: {error}"}
        if out is not None:
            text = json.dumps({"benchmark": benchmark, "rows": list(known.values())}, indent=1)
            out.write_text(text + "\n", encoding="utf-8")
    return list(known.values())


@contextmanager
def own_record() -> Iterator[Path]:
    """A results database in a temporary folder, so that benchmarks leave no trace in the user's own."""
    with tempfile.TemporaryDirectory(prefix="gnomon-benchmark-") as folder:
        yield Path(folder) / "record.sqlite"


def spread(values: list[float]) -> dict[str, float | int]:
    """The median, the extremes and the count."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return {"median": median, "min": ordered[0], "max": ordered[-1], "n": len(ordered)}
