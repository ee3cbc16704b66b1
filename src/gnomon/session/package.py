"""Deployable packages: everything that a contender needs to run, with the agent as its launcher.

A package is a folder. It contains ``plan.json`` (a job of docs/agent.md, with paths relative to the folder), the
segments' models in their runtimes' formats, ``gnomon-agent.pyz`` (which runs the plan exactly as it was measured), and
``README.txt``. If the runtime reads its settings from the environment, ``environment.sh`` holds them too.

A scheduled nnpackage is the model's own package with the placement in its config and a launcher added.

It is a plain nnpackage with one more folder, ``gnomon/``: ``environment.sh`` holds the settings as shell variables, and
``gnomon-agent.pyz run plan.json`` starts the package with them. onert 0.1.0 applies a package's OP_BACKEND_MAP only
from the second session of a process on, but applies that of the environment immediately.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import gnomon
from gnomon.core.graph import Graph
from gnomon.errors import PackageError, system_errors
from gnomon.installing import pip_line
from gnomon.measure.link import packed_agent
from gnomon.models.load import copy_model
from gnomon.models.model import Model
from gnomon.runtimes.base import PlacedModel, portable, whole_job, whole_segment
from gnomon.runtimes.onert import Onert, variables_of
from gnomon.runtimes.whole import program_of
from gnomon.session.contender import Contender
from gnomon.session.model_session import ModelSession
from gnomon.session.targets import pip_names
from gnomon.system.files import file_digest, read_regular, staged
from gnomon.wire import Packaged, Plan, PlanHead, PlanJob, PlanOperator, Versions

_FORMAT = "gnomon-plan"
_PLAN = "plan.json"
_MOST_PLAN_BYTES = 64 << 20
_AGENT = "gnomon-agent.pyz"
PROGRAM = "use.py"
"""A file of a few lines that run the same model with the same settings through the runtime's own API; not every package
has it.
"""
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""The exceptions that reading a file that is not a plan may raise."""
_README = """This folder was written by gnomon {version}: {label}.

Run it with Python 3.10 or later and the packages that it was {done} with{proved}:

    {install}
    {run} --output out.npz
    {run} --input NAME=FILE.npy --output out.npz

plan.json says which backend runs which operator, with which settings and in which environment. The package
also runs with other versions, and reports them: its times and outputs may then differ.
{outputs}
A package is a program, and so is a model that refers to other code: run only those from people you trust. The agent
of a package that you wrote checks the plan.json of another package before running it.
{more}"""
_USE = f"\n{PROGRAM} is a short stand-alone program with the same settings.\n"
_LIBRARY = "\nThe library of operators {name} (SHA-256 {sha256}), which is code, must be given: --library FILE.\n"


def write_package(session: ModelSession, contender: Contender, destination: Path, *, overwrite: bool) -> Path:
    """Write the package of a contender, completely or not at all, and return its folder.

    PackageError if the folder exists (unless `overwrite` is set and the folder holds a package) or cannot be written.
    """
    check_destination(destination, overwrite=overwrite)
    with _staged(destination) as folder:
        folder.mkdir()
        environment = dict(contender.candidate.environment)
        job: PlanJob = json.loads(json.dumps({**contender.candidate.job, "environment": environment}))
        job["feeds"] = {name: {} if "file" in feed else feed for name, feed in job["feeds"].items()}
        written = [_segment(session, contender, k, folder) for k in range(len(contender.parts))]
        for segment, own in zip(job["segments"], written, strict=True):
            segment["model"], segment["options"] = own["model"], portable(own.get("options", segment["options"]))
        runtimes = {part.target.runtime.name: part.target.runtime for part in contender.parts}
        proved = _proved_with(session, list(runtimes))
        wheels = [wheel for runtime in runtimes.values() for wheel in runtime.wheels]
        requirements = requirements_of(wheels, proved["packages"])
        plan: Plan = {
            **_head(session.read.model.path.name, session.graph.digest),
            "proved_with": proved,
            "requirements": requirements,
            "operators": _operators(contender.graph, contender.backends),
            "files": _digests(folder, ""),
            "job": job,
        }
        _write_program(session, contender, written[0], folder)
        more = written[0].get("readme", "") + (_USE if (folder / PROGRAM).is_file() else "")
        readme = _readme(session, contender, plan, more)
        _write_launcher(folder, plan, readme, written[0].get("variables"))
    return destination


def _write_program(session: ModelSession, contender: Contender, packaged: Packaged, folder: Path) -> None:
    """Write the few lines that call the model through its runtime's own API, if a single runtime runs it and has such
    lines.
    """
    part, *others = contender.parts
    if others or contender.candidate.environment:
        return
    target, file = part.target, packaged["model"]
    program = program_of(target.runtime, target.placed, part.configuration, file, session.request.feeds)
    if program is not None:
        (folder / PROGRAM).write_text(program, encoding="utf-8")


def _head(name: str, digest: str) -> PlanHead:
    """The beginning of every plan, with the name and the digest of the model."""
    return {"format": _FORMAT, "version": 1, "gnomon": gnomon.__version__, "model": {"name": name, "sha256": digest}}


def _operators(graph: Graph, backends: Mapping[int, str]) -> list[PlanOperator]:
    return [
        {"index": op.index, "name": op.name, "type": op.type, "backend": backends.get(op.index)}
        for op in graph.operators
    ]


def _write_launcher(folder: Path, plan: Plan, readme: str, variables: Mapping[str, str] | None) -> None:
    """Write the plan, the agent that runs it, the README, and the variables that other launchers have to set."""
    (folder / _PLAN).write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")
    (folder / _AGENT).write_bytes(packed_agent())
    if variables is not None:
        every = {**plan["job"]["environment"], **variables}
        script = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in every.items())
        (folder / "environment.sh").write_text(script, encoding="utf-8")
    (folder / "README.txt").write_text(readme, encoding="utf-8")


def _plan_in(folder: Path) -> Any:
    """The unchecked content of a folder's plan. Raises OSError, ValueError or RecursionError."""
    return json.loads(read_regular(folder / _PLAN, _MOST_PLAN_BYTES))


def read_plan(folder: Path, *, at: str) -> Plan:
    """The plan of a package whose folder is at the path `at` on a device. PackageError if it is not a package."""
    try:
        plan: Plan = _plan_in(folder)
        if plan["format"] != _FORMAT or plan["version"] != 1:
            raise PackageError(f"{folder} has a plan of another version", hint="Create the package again.")
        for segment in plan["job"]["segments"]:
            if PurePosixPath(segment["model"]).is_absolute() or ".." in PurePosixPath(segment["model"]).parts:
                raise PackageError(f"the plan in {folder} names a model outside it", hint="Create the package again.")
            segment["model"] = str(PurePosixPath(at) / segment["model"])
        run_line(plan["job"])  # raises if the plan's job does not have the parts of a job
        plan["requirements"] = list(map(str, plan["requirements"]))
    except _UNREADABLE as error:
        raise PackageError(f"{folder} is not a package of gnomon: {error}", hint="Give a package's folder.") from error
    return plan


def _digests(folder: Path, before: str) -> dict[str, str]:
    """The SHA-256 of each file in a folder, by its path with the prefix `before`."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {before + path.relative_to(folder).as_posix(): file_digest(path) for path in files}


def run_line(job: PlanJob, before: str = "") -> str:
    """The command that runs the package of a job and consents to the settings, commands and libraries that the job
    uses. `before` is the path in front of the launcher.
    """
    options = [portable(segment["options"]) for segment in job["segments"]]
    set_there = [*job["environment"], *(name for own in options for name in own.get("session", ()))]
    allowed = dict.fromkeys(map(shlex.quote, set_there))
    allowed |= dict.fromkeys("command" for own in options if "command" in own)
    libraries = dict.fromkeys(shlex.quote(name) for own in options for name in own.get("libraries", ()))
    given = "".join([*(f" --allow {name}" for name in allowed), *(f" --library {name}" for name in libraries)])
    return f"python {before}{_AGENT} run {before}{_PLAN}{given}"


def _segment(session: ModelSession, contender: Contender, number: int, folder: Path) -> Packaged:
    """Write the model of one part; return its entry from the runtime (`gnomon.runtimes.base.Runtime.package`)."""
    part = contender.parts[number]
    measured = contender.candidate.job["segments"][number]
    if len(contender.parts) > 1:
        source = Path(measured["model"])
        copy_model(session.cut_files[source.name], folder / source.name)
        return {"runtime": measured["runtime"], "model": source.name, "options": measured["options"]}
    return part.target.runtime.package(part.target.model, part.configuration, part.assignment, folder)


def _proved_with(session: ModelSession, runtimes: Sequence[str]) -> Versions:
    """The versions with which a package of these runtimes was measured, as far as the device reported them."""
    packages: dict[str, str] = {}
    for name in runtimes:
        packages |= session.probes[name].details.get("packages", {})
    return {
        "python": session.device.fingerprint.get("python"),
        "processor": session.device.fingerprint.get("cpu_model"),
        "runtimes": {name: session.probes[name].version for name in runtimes},
        "packages": packages,
    }


def requirements_of(wheels: Sequence[str], versions: Mapping[str, str]) -> list[str]:
    """The requirements for pip: numpy and the `wheels`, each pinned to its version if that is known, and otherwise as
    the runtime requires it.
    """
    wanted = dict(zip(pip_names(wheels), ("numpy", *wheels), strict=True))
    return [f"{name}=={versions[name]}" if name in versions else wheel for name, wheel in wanted.items()]


def _readme(session: ModelSession, contender: Contender, plan: Plan, more: str) -> str:
    proved = plan["proved_with"]
    alone = session.sole_judge in proved["runtimes"]
    unproved = (
        "prove nothing" if session.unrepeatable else f"were computed by {session.sole_judge} only; nobody checked them"
    )
    libraries = {n: d for s in plan["job"]["segments"] for n, d in s["options"].get("libraries", {}).items()}
    machine = [f"Python {proved['python']}"] if proved["python"] else []
    machine += [proved["processor"]] if proved["processor"] else []
    return _README.format(
        version=gnomon.__version__,
        label=contender.label,
        done="measured" if alone or session.unrepeatable else "proved",
        outputs=f"\nIts outputs {unproved}.\n" if alone or session.unrepeatable else "",
        proved=f" ({', '.join(machine)})" if machine else "",
        install=pip_line(plan["requirements"]),
        run=run_line(plan["job"]),
        more=more + "".join(_LIBRARY.format(name=name, sha256=digest) for name, digest in libraries.items()),
    )


def _is_package(folder: Path) -> bool:
    """Whether gnomon wrote this folder and may therefore replace it."""
    try:
        return bool(_plan_in(folder)["format"] == _FORMAT) and (folder / _AGENT).is_file()
    except _UNREADABLE:
        return False


def check_destination(destination: Path, *, overwrite: bool) -> None:
    """PackageError if a package cannot be written to a folder; called before measuring, which may take an hour."""
    if destination.exists() and not (overwrite and _is_package(destination)):
        raise PackageError(f"{destination} exists already", hint="Give another --out, or --overwrite a package.")
    there = next(p for p in destination.absolute().parents if p.exists())
    if not os.access(there, os.W_OK):
        raise PackageError(f"{there} cannot be written", hint="Give another folder with --out.")


@contextmanager
def _staged(destination: Path) -> Iterator[Path]:
    """The same as `gnomon.system.files.staged`, but raises PackageError on failure."""
    hint = "Check the folder, its permissions and the free disk space."
    what = f"the package {destination} cannot be written"
    with system_errors(PackageError, what, hint=hint), staged(destination) as package:
        yield package


LAUNCHER = "gnomon"
_PACKAGE_README = """This nnpackage was scheduled by gnomon {version}: {label}.

metadata/config.cfg holds the placement. onert 0.1.0 does not apply a package's OP_BACKEND_MAP to the first session of a
process: put the same settings into the environment of the process that loads it,

    . ./gnomon/environment.sh

or start it with Python 3.10 or later:

    {install}
    {run} --output out.npz

A package is a program: gnomon-agent.pyz does whatever the author of the folder made it do. Run only packages from
people you trust.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A placement to be written: onert's settings, the backend of each operator, and a label.

    With `verbatim`, the config contains only these settings, as with the published scheduler; otherwise the config's
    other settings are kept.
    """

    label: str
    settings: Mapping[str, str]
    placement: Mapping[int, str]
    threads: int
    verbatim: bool = False


def check_scheduled(source: Path, destination: Path, *, overwrite: bool) -> None:
    """PackageError if a scheduled package of `source` cannot be written to `destination`; called before measuring.

    A package that gnomon scheduled before is replaced. With `overwrite`, any nnpackage is replaced, except the source
    itself.
    """
    from gnomon.models.nnpackage import MANIFEST, METADATA, check_apart

    check_apart(source, destination)
    if not os.path.lexists(destination) or _is_scheduled(destination):
        return
    if overwrite and not destination.is_symlink() and (destination / METADATA / MANIFEST).is_file():
        return
    raise PackageError(
        f"{destination} exists already, and gnomon did not schedule it",
        hint="Give another folder with --out, or --overwrite an nnpackage.",
    )


def write_scheduled(model: Model, schedule: Schedule, destination: Path, *, overwrite: bool = False) -> Path:
    """Write the model's package with a schedule to `destination`, completely or not at all. PackageError on failure."""
    from gnomon.formats.onert.config import settings_text, with_placement
    from gnomon.models.nnpackage import CONFIG, METADATA, read_nnpackage, write_nnpackage

    check_scheduled(model.path, destination, overwrite=overwrite)
    with _staged(destination) as package:
        write_nnpackage(model, package, {})
        written = read_nnpackage(package)
        config = package / METADATA / (written.config_name or CONFIG)
        own = schedule.settings
        text = settings_text(own) if schedule.verbatim else with_placement(written.config, own).text
        config.write_text(text, encoding="utf-8", newline="")
        settings = {k: v for k, v in own.items() if v and not k.endswith("_THREADS")}
        _add_launcher(package, _plan(model, schedule, settings), schedule.label)
    return destination


def adopt(proved: Path, destination: Path, label: str) -> Path:
    """Turn the nnpackage in a package that `place` wrote and proved into the scheduled one, with unchanged settings."""
    plan = _plan_in(proved)
    with _staged(destination) as package:
        source = proved / plan["job"]["segments"][0]["model"]
        shutil.copytree(source, package)
        plan["job"]["segments"][0]["model"] = ".."
        _add_launcher(package, plan, label)
    return destination


def _plan(model: Model, schedule: Schedule, settings: Mapping[str, str]) -> Plan:
    """The plan (docs/agent.md) for the whole package, which is one folder above the plan."""
    graph = model.graph
    placed = PlacedModel.of(graph, "..")
    options = {"threads": schedule.threads, "settings": dict(settings)}
    return {
        **_head(model.path.name, graph.digest),
        "requirements": requirements_of(Onert.wheels, {}),
        "operators": _operators(graph, schedule.placement),
        "job": {**whole_job(graph, whole_segment("onert", placed, options)), "environment": {}},
        "files": {},
    }


def _add_launcher(package: Path, plan: Plan, label: str) -> None:
    folder = package / LAUNCHER
    if folder.is_dir():
        shutil.rmtree(folder)  # the launcher of an earlier schedule, copied with the package
    folder.mkdir()
    plan["files"] = _digests(package, "../")
    install, run = pip_line(plan["requirements"]), run_line(plan["job"], f"{LAUNCHER}/")
    readme = _PACKAGE_README.format(version=gnomon.__version__, label=label, install=install, run=run)
    _write_launcher(folder, plan, readme, variables_of(plan["job"]["segments"][0]["options"]))


def _is_scheduled(folder: Path) -> bool:
    """Whether gnomon scheduled this package and may therefore replace it."""
    if folder.is_symlink():
        return False
    try:
        plan = _plan_in(folder / LAUNCHER)
        return bool(plan["format"] == _FORMAT and plan["job"]["segments"][0]["model"] == "..")
    except _UNREADABLE:
        return False
