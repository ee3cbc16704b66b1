"""The scheduled nnpackage: the model's own package with the placement in its config, and a launcher beside it.

A package is a plain nnpackage with one folder more, ``gnomon/``: ``environment.sh`` holds the settings as shell
variables, and ``gnomon-agent.pyz run plan.json`` starts the package with them. onert 0.1.0 applies a package's own
OP_BACKEND_MAP only from a process's second session on; from the environment it does at once.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gnomon
from gnomon.core.installing import pip_line
from gnomon.errors import PackageError
from gnomon.formats.stab_config import settings_text, with_placement
from gnomon.jobs.packages import requirements_of
from gnomon.measure.pack import packed_agent
from gnomon.models.model import Model
from gnomon.models.nnpackage import CONFIG, MANIFEST, METADATA, read_nnpackage
from gnomon.models.nnpackage_write import write_nnpackage
from gnomon.runtimes.base import PlacedModel, whole_segment
from gnomon.runtimes.onert import Onert

LAUNCHER = "gnomon"
_PLAN = "plan.json"
_FORMAT = "gnomon-plan"
_README = """This nnpackage was scheduled by gnomon {version}: {label}.

metadata/config.cfg holds the placement. onert 0.1.0 does not apply a package's OP_BACKEND_MAP to the first session of a
process: put the same settings into the environment of the process that loads it,

    . ./gnomon/environment.sh

or start it with a Python 3.10 or later:

    {install}
    python gnomon/gnomon-agent.pyz run gnomon/plan.json --output out.npz
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A placement as it is written: onert's settings, the backend of each operator, and what to call it.

    `verbatim` writes the settings alone as the config, as the published scheduler does; else the config's other
    settings stay.
    """

    label: str
    settings: Mapping[str, str]
    placement: Mapping[int, str]
    threads: int
    verbatim: bool = False


def check_scheduled(source: Path, destination: Path, *, overwrite: bool) -> None:
    """PackageError where a scheduled package of `source` cannot go, which is better known before measuring.

    A package that gnomon scheduled before is replaced; with `overwrite` any nnpackage is, and never the source itself.
    """
    here, there = source.resolve(), destination.resolve()
    if here == there or here.is_relative_to(there) or there.is_relative_to(here):
        raise PackageError(
            f"{destination} overlaps {source}, which must stay as it is", hint="Give another folder with --out."
        )
    if not os.path.lexists(destination) or _is_scheduled(destination):
        return
    if overwrite and not destination.is_symlink() and (destination / METADATA / MANIFEST).is_file():
        return
    raise PackageError(
        f"{destination} exists already, and gnomon did not schedule it",
        hint="Give another folder with --out, or --overwrite an nnpackage.",
    )


def write_scheduled(model: Model, schedule: Schedule, destination: Path, *, overwrite: bool = False) -> Path:
    """Write the model's package with a schedule to `destination`, whole or not at all. PackageError if that fails."""
    check_scheduled(model.path, destination, overwrite=overwrite)
    with staged(destination) as folder:
        package = folder / destination.name
        write_nnpackage(model, package, {})
        written = read_nnpackage(package)
        config = package / METADATA / (written.config_name or CONFIG)
        if schedule.verbatim:
            config.write_text(settings_text(schedule.settings), encoding="utf-8", newline="")
        else:
            text = with_placement(written.config, schedule.settings).text
            config.write_text(text, encoding="utf-8", newline="")
        settings = {k: v for k, v in schedule.settings.items() if v and not k.endswith("_THREADS")}
        _add_launcher(package, _plan(model, schedule, settings), schedule.label)
    return destination


def adopt(proved: Path, destination: Path, label: str) -> Path:
    """Make the nnpackage of a package that `place` wrote and proved the scheduled one, its settings as they are."""
    plan = json.loads((proved / _PLAN).read_text(encoding="utf-8"))
    with staged(destination) as folder:
        package = folder / destination.name
        source = proved / plan["job"]["segments"][0]["model"]
        shutil.copytree(source, package)
        plan["job"]["segments"][0]["model"] = ".."
        _add_launcher(package, plan, label)
    return destination


def _plan(model: Model, schedule: Schedule, settings: Mapping[str, str]) -> dict[str, Any]:
    """The plan of docs/agent.md for the whole package, which lies one folder above it."""
    graph = model.graph
    tensors = {}
    for index in (*graph.inputs, *graph.outputs):
        tensor = graph.tensors[index]
        tensors[tensor.name] = {"shape": list(tensor.shape or ()), "dtype": tensor.dtype}
    inputs = tuple(graph.tensors[t].name for t in graph.inputs)
    outputs = tuple(graph.tensors[t].name for t in graph.outputs)
    placed = PlacedModel(graph=graph, path="..", inputs=inputs, outputs=outputs)
    options = {"threads": schedule.threads, "settings": dict(settings)}
    return {
        "format": _FORMAT,
        "version": 1,
        "gnomon": gnomon.__version__,
        "model": {"name": model.path.name, "sha256": graph.digest},
        "requirements": requirements_of(Onert.wheels, {}),
        "operators": [
            {"index": op.index, "name": op.name, "type": op.type, "backend": schedule.placement.get(op.index)}
            for op in graph.operators
        ],
        "job": {
            "tensors": tensors,
            "feeds": {name: {} for name in inputs},
            "outputs": list(outputs),
            "seed": 0,
            "segments": [whole_segment("onert", placed, options)],
            "environment": {},
        },
    }


def _add_launcher(package: Path, plan: dict[str, Any], label: str) -> None:
    folder = package / LAUNCHER
    if folder.is_dir():
        shutil.rmtree(folder)  # the launcher of an earlier schedule, copied with the package
    folder.mkdir()
    job = plan["job"]
    options = job["segments"][0]["options"]
    variables = {**job["environment"], "NUM_THREADS": options.get("threads", 1), **options.get("settings", {})}
    script = "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in variables.items())
    (folder / "environment.sh").write_text(script, encoding="utf-8")
    (folder / _PLAN).write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
    (folder / "gnomon-agent.pyz").write_bytes(packed_agent())
    (folder / "README.txt").write_text(
        _README.format(version=gnomon.__version__, label=label, install=pip_line(plan["requirements"])),
        encoding="utf-8",
    )


def _is_scheduled(folder: Path) -> bool:
    """Whether gnomon scheduled this package, so that it may be replaced."""
    if folder.is_symlink():
        return False
    try:
        plan = json.loads((folder / LAUNCHER / _PLAN).read_text(encoding="utf-8"))
        return bool(plan["format"] == _FORMAT and plan["job"]["segments"][0]["model"] == "..")
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        return False


@contextmanager
def staged(destination: Path) -> Iterator[Path]:
    """A folder beside the destination; what lies in it under the destination's name moves there if all goes well.

    What was at the destination is removed then, and stays otherwise: see `check_scheduled` first.
    """
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
        try:
            yield folder
            _exchange(folder / destination.name, destination, folder / "replaced")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise PackageError(
            f"the package {destination} cannot be written: {error.strerror or error}",
            hint="Check the folder, its rights and the space there.",
        ) from error


def _exchange(made: Path, destination: Path, aside: Path) -> None:
    if not os.path.lexists(destination):
        made.rename(destination)
        return
    destination.rename(aside)
    try:
        made.rename(destination)
    except OSError:
        aside.rename(destination)
        raise
