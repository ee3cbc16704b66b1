"""Latency tables from Python: what `gnomon table` does, as functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from gnomon.errors import UsageError
from gnomon.jobs.table import folder, look
from gnomon.spaces.latency_table import merged
from gnomon.spaces.loading import SearchSpace, load_space

if TYPE_CHECKING:
    from gnomon.api.options import MeasureOptions, PathLike
    from gnomon.jobs.table.job import Built
    from gnomon.measure.progress import Watch


def build_table(
    space: str | SearchSpace | None = None,
    *,
    models: Sequence[PathLike] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    out: PathLike | None = None,
    fuse: Sequence[str] | None = None,
    again: bool = False,
    settings: Mapping[str, str] | None = None,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[MeasureOptions],
) -> Built:
    """Measure every unit of a search space once, into the table at `out` (./SPACE.table).

    `models` are ONNX files in the place of a space: their units are measured, into ./models.table; `shapes` fix
    inputs that they leave open.
    `fuse` are chains of operators that run as one, such as "Conv+Relu"; None: as the runtime itself tells. The same
    call completes a table that was interrupted; `again` measures all of it again. `settings` are for a tool that
    measures by itself, such as snpe (docs/runtimes/snpe.md). Raises GnomonError.
    """
    from gnomon.api.options import measure_request
    from gnomon.jobs.table.job import TableRequest
    from gnomon.jobs.table.job import build_table as build_job
    from gnomon.runtimes.snpe import bench_tools
    from gnomon.session.bench.tool import tool_of, tool_runtime
    from gnomon.spaces.fuse import rules

    if (space is None) == (not models):
        raise UsageError("a table is of a space or of models", hint="Give one of both.")
    if space is None:
        from gnomon.jobs.estimator.models import space_of_models

        fixed = {name: tuple(shape) for name, shape in (shapes or {}).items()}
        found: SearchSpace = space_of_models([Path(model) for model in models], fixed)
    else:
        found = load_space(space) if isinstance(space, str) else space
    asked = TableRequest(
        request=measure_request(options),
        space=found,
        out=Path(out) if out is not None else Path(f"{found.name}.table"),
        rules=None if fuse is None else rules(fuse),
        again=again,
    )
    tool = tool_of(asked.request)
    if tool is not None:
        asked = replace(asked, tool=tool_runtime(tool, asked.request, settings or {}, on_message))
    elif settings:
        known = ", ".join(bench_tools())
        raise UsageError(
            f"{', '.join(settings)}: only tools that measure by themselves have settings", hint=f"Tools: {known}."
        )
    return build_job(asked, watch=on_progress, tell=on_message)


def check_table(path: PathLike, *, space: str | None = None) -> dict[str, Any]:
    """What a table holds, and under "complaints" what speaks against it, as JSON values. Raises GnomonError."""
    return look.look(Path(path), space)


def compare_tables(first: PathLike, second: PathLike) -> dict[str, Any]:
    """How two tables differ: what they were measured with, and each unit that both hold. Raises GnomonError."""
    return look.compare(Path(first), Path(second))


def merge_tables(first: PathLike, second: PathLike, *, out: PathLike) -> None:
    """Join two tables of one context into a new one: of a unit that both hold, what was measured last.

    Raises GnomonError.
    """
    tables = (folder.read_table(Path(path)) for path in (first, second))
    folder.write_table(merged(*tables), Path(out))


def import_table(
    file: PathLike, *, space: str, out: PathLike, runtime: str | None = None, key: str = "Layers Time"
) -> tuple[str, ...]:
    """Make a table of a csv or json of nnabla-nas's SNPE profiler; returns in sentences what of it was left out.

    `runtime` and `key` say which of the file's; None: of each of its runtimes, as `import_tables` does.
    Raises GnomonError.
    """
    return import_tables(file, space=space, out=out, runtime=runtime, key=key)[1]


def import_tables(
    file: PathLike, *, space: str, out: PathLike, runtime: str | None = None, key: str = "Layers Time"
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Make tables of a csv or json of nnabla-nas's SNPE profiler; returns where they are, and what of it was left out.

    Of a file with several runtimes each has its own table, `out`/RUNTIME; one runtime, or the one that is named, makes
    a table at `out` itself. `key` says which of the file's times. Raises GnomonError.
    """
    from gnomon.jobs.table import exchange

    tables, left_out = exchange.import_tables(Path(file), Path(out), space=space, runtime=runtime, key=key)
    return tuple(tables), left_out


def export_table(
    path: PathLike | Sequence[PathLike], out: PathLike, *, nets: PathLike | None = None, space: str | None = None
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Write a table as nnabla-nas's SNPE profiler does; with a csv of `nets` its sum for each of them, into a folder.

    Several tables, of one space and a runtime each, make one file that has all of their runtimes.
    Returns the files, and in sentences what was left out. Raises GnomonError.
    """
    from gnomon.jobs.table import exchange

    paths = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(one) for one in path]
    if nets is not None:
        return exchange.export_sums(paths, Path(nets), Path(out), space), ()
    return exchange.export_table(paths, Path(out), space)


def sum_blocks(file: PathLike, names: Sequence[str] = ()) -> dict[str, Any]:
    """The blocks of a YAML table of the ProxylessNAS or OFA kind, in seconds, and the sum of those named: JSON values.

    Raises GnomonError.
    """
    return look.blocks_document(Path(file), names)
