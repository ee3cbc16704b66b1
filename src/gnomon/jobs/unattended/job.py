"""Searches that run on a device by themselves: what there is, and what to do with it (docs/jobs/unattended.md).

Nothing here waits for the device's lease: the jobs themselves hold it while they measure.

Carrying a search to a device, whole, to run there by itself. docs/jobs/unattended.md is the design.

What a search takes along to a device: gnomon itself, what it requires, the model with its files, the settings.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gnomon
from gnomon.devices.address import LOCAL, parse_address
from gnomon.devices.config import CONNECT_TIMEOUT_S, DeviceConfig, add_device
from gnomon.devices.opening import opened, visited
from gnomon.devices.pushed import Digests
from gnomon.devices.shell.ssh_client import NoPythonError
from gnomon.errors import GnomonError, RuntimeMissingError, UsageError
from gnomon.jobs.pareto.prove import check_bounds
from gnomon.jobs.pareto.records import ParetoRequest
from gnomon.jobs.pareto.search import check_plans
from gnomon.jobs.unattended.command import Carried, Job, Places, command_of
from gnomon.jobs.unattended.device import Keep, jobs_in, keep_of
from gnomon.measure.link import AgentLink
from gnomon.models.load import files_beside
from gnomon.models.model import Model
from gnomon.runtimes.base import Runtime
from gnomon.runtimes.registry import chosen_runtimes
from gnomon.session.model import check_feeds, read_model
from gnomon.session.objectives import GOALS, goals_of
from gnomon.session.request import Request, link_to
from gnomon.session.targets import equip, nothing_runs, probe_runtimes
from gnomon.system.process import guarded_folder


def unattended_jobs(device: str) -> tuple[Job, ...]:
    """The jobs on a device, the newest first. GnomonError if it cannot be reached."""
    with keep_of(device) as keep:
        return jobs_in(keep.ask("list_all"), keep.config)


def unattended_job(id: str, *, device: str) -> Job:
    """One job, by its id or how that begins, or "last". UsageError if there is no such, DeviceError for all else."""
    with keep_of(device) as keep:
        return keep.job(keep.ask("show", id=id))


def start_unattended(id: str, *, device: str) -> Job:
    """Start a job that has ended or vanished again: it goes on from its record. One that runs is left alone."""
    with keep_of(device) as keep:
        return keep.job(keep.ask("start", id=id))


def stop_unattended(id: str, *, device: str) -> Job:
    """End a job and all its processes; what it has measured stays. One that has ended is left alone."""
    with keep_of(device) as keep:
        return keep.job(keep.ask("stop", id=id))


def remove_unattended(id: str, *, device: str) -> Job:
    """Remove a job with all that it has written there; how it was is returned. UsageError while it runs."""
    with keep_of(device) as keep:
        return keep.job(keep.ask("remove", id=id))


_EVOLUTIONARY = frozenset({"nsga2", "spea2"})
_CARRIED = "carried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A search, ready to be taken along. `carried` is a folder of links to the model and the files of inputs.

    `command` has paths in the job's folder. Equal `digest`s mean the same search of the same model on equal settings;
    equal `subject`s that what one has run may be of use to the other.
    """

    model: str
    carried: Path
    command: tuple[str, ...]
    devices: str
    digest: str
    subject: str


def load_of(asked: ParetoRequest, model: Model, folder: Path) -> Load:
    """Bring together what is asked in a new folder. UsageError for what an unattended search cannot be asked."""
    request = asked.request
    assert request is not None  # noqa: S101 - command_of has said so
    name = request.model.absolute().name or "model"
    carried = folder / _CARRIED
    (carried / "model").mkdir(parents=True)
    (carried / "feeds").mkdir()
    for place, source in _files(model, request.model.absolute()):
        target = carried / "model" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
    feeds: dict[str, str] = {}
    for number, (tensor, path) in enumerate(request.feeds.items()):
        (carried / "feeds" / f"{number}.npy").symlink_to(path.absolute())
        feeds[tensor] = f"{_CARRIED}/feeds/{number}.npy"
    deploys = asked.pick is not None or bool(asked.under)
    for written in (asked.dumpfile, asked.out if deploys else None):
        if written is not None and (written.name.startswith(".") or written.name.endswith(".part")):
            raise UsageError(f"{written} looks like a file that is half written", hint="Give it another name.")
    places = Places(
        model=f"{_CARRIED}/model/{name}",
        feeds=feeds,
        out=f"out/package/{(asked.out or Path(f'{Path(name).stem}.gnomon')).name}" if deploys else None,
        dumpfile=f"out/dump/{asked.dumpfile.name}" if asked.dumpfile is not None else None,
    )
    command = command_of(asked, places)
    devices = _settings(request.device, folder / "devices.toml")
    files = Digests().manifest(carried).digest
    return Load(
        model=name,
        carried=carried,
        command=command,
        devices=devices,
        digest=_digest(*command, files, devices, gnomon.__version__),
        subject=_digest(Digests().manifest(carried / "model").digest, devices, gnomon.__version__),
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _files(model: Model, path: Path) -> list[tuple[Path, Path]]:
    """Where the files of a model lie beside it, and what they are: it and all that it names."""
    beside = {} if model.package else files_beside(path)
    return [(Path(path.name or "model"), path), *beside.items()]


def _settings(config: DeviceConfig, path: Path) -> str:
    """The text of a file of devices in which this machine is set as that device is."""
    own = replace(
        config,
        name=LOCAL,
        address=parse_address(LOCAL),
        python=None,
        folder=None,
        keep=True,
        ssh_options=(),
        connect_timeout_s=CONNECT_TIMEOUT_S,
        threads=None,
        runtimes=(),
        fetch=False,
    )
    return add_device(own, path).read_text(encoding="utf-8")


def requirements_of(asked: ParetoRequest, runtimes: Sequence[Runtime]) -> tuple[str, ...]:
    """What gnomon itself needs there for this search, beside runtimes. RuntimeMissingError if it is not installed."""
    extras = [runtime.name for runtime in runtimes]
    extras += ["search"] if any(plan.strategy in _EVOLUTIONARY for plan in asked.plans) else []
    apart = {canonicalize_name(Requirement(text).name) for runtime in runtimes for text in runtime.wheels}
    found: dict[str, None] = {}
    for text in _installed().requires or ():
        wanted = Requirement(text)
        always = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
        if always or any(wanted.marker and wanted.marker.evaluate({"extra": extra}) for extra in extras):
            wanted.marker = None
            if always or canonicalize_name(wanted.name) not in apart:
                found[str(wanted)] = None
    return tuple(found)


def lay_gnomon(folder: Path) -> Path:
    """A folder from which a Python imports the gnomon that runs here, and finds what it registers."""
    made = folder / "gnomon"
    source = Path(gnomon.__file__).parent
    shutil.copytree(source, made / "gnomon", ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    found = _installed()
    about = made / f"gnomon-{gnomon.__version__}.dist-info"
    about.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (about / name).write_text(found.read_text(name) or "", encoding="utf-8")
    return made


def _installed() -> Distribution:
    try:
        return distribution("gnomon")
    except PackageNotFoundError as error:
        raise RuntimeMissingError(
            "gnomon runs here without being installed, so that it does not know what it requires",
            hint="Install it, such as by: pip install -e .",
        ) from error


Tell = Callable[[str], None]

_OLDEST = (3, 11)
_TIMEOUT_S = 600.0
_IMPORTS = (
    "import gnomon.cli.commands.unattended, gnomon.cli.commands.pareto, "
    "gnomon.jobs.pareto.document, gnomon.jobs.pareto.job"
)


def carry_pareto(asked: ParetoRequest, *, picture: Path | None = None, tell: Tell | None = None) -> Carried:
    """Bring a search to its device with all that it needs, start it there, and leave it alone.

    The same search, if it is there already, is left running, or started again where it was stopped or vanished; one
    that is done stays so, unless it shall be `fresh`. `picture` is kept for whoever fetches. Nothing is started before
    all that it needs was seen to be there. Raises GnomonError.
    """
    request = _checked(asked)
    with ExitStack() as stack:
        read = read_model(request, stack)
        model = read.model
        check_feeds(request, read.placed(lambda path, name: f"/{name}"))
        runtimes = chosen_runtimes(request.runtimes, model.graph.format)
        folder = stack.enter_context(guarded_folder("gnomon-carry-"))
        load = load_of(asked, model, folder)
        try:
            found = None if request.fresh else _there(request.device, load)
        except NoPythonError:
            _check_python(None, request.device)
            raise
        if found is not None:
            return found
        bearer = _Bearer(request=request, load=load, folder=folder, runtimes=runtimes, tell=tell)
        id = bearer.bring(requirements_of(asked, runtimes), _notes(request, picture))
    with visited(request.device) as device:  # the job takes the lease by itself
        keep = Keep(device=device, config=request.device, python=device.describe().python)
        return Carried(job=keep.job(keep.ask("start", id=id)), started=True, made=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bearer:
    """Takes a load to the device of a request. `folder` is for what is put together here."""

    request: Request
    load: Load
    folder: Path
    runtimes: tuple[Runtime, ...]
    tell: Tell | None

    def bring(self, requirements: tuple[str, ...], notes: dict[str, object]) -> str:
        """Make the job there, and see that it can run; returns its id. Nothing of it stays where it cannot."""
        config, tell = self.request.device, self.tell
        with opened(config, on_wait=tell) as device, link_to(device, timeout_s=self.request.effort.timeout_s) as link:
            _check_python(link.info.fingerprint.get("python") if link.info.python else None, config)
            probes, missing = equip(link, self.runtimes, config, tell, more=requirements)
            if not probes:
                raise nothing_runs(link.info.name, self.runtimes, missing)
            if not link.paths:
                told = "; ".join(f"{m.name}: {m.reason}" for m in missing)
                raise RuntimeMissingError(f"gnomon cannot be installed on {config.name}: {told}", hint=missing[0].hint)
            if tell is not None:
                for lacking in missing:
                    tell(f"{lacking.name} stays out: {lacking.reason}")
            parts = {
                "packages": link.paths[0],
                "gnomon": device.push(lay_gnomon(self.folder), "gnomon"),
                "carried": device.push(self.load.carried, self.load.carried.name),
            }
            keep = Keep(device=device, config=config, python=link.info.python)
            return self._made(keep, link, tuple(r for r in self.runtimes if r.name in probes), (parts, notes))

    def _made(
        self,
        keep: Keep,
        link: AgentLink,
        runtimes: tuple[Runtime, ...],
        what: tuple[dict[str, str], dict[str, object]],
    ) -> str:
        load, (parts, notes) = self.load, what
        own = {"model": load.model, "command": load.command, "digest": load.digest, "subject": load.subject}
        id = secrets.token_hex(4)
        made = keep.ask("make", id=id, parts=parts, devices=load.devices, job={**notes, **own})
        try:
            _check_that_it_runs(keep, str(made.get("python")), link, runtimes)
        except BaseException:
            with suppress(GnomonError):
                keep.ask("remove", id=id)
            raise
        return id


def _checked(asked: ParetoRequest) -> Request:
    """The request; UsageError for what is wrong with it, before anything is read or reached."""
    command_of(asked, Places(model="model"))
    request = asked.request
    assert request is not None  # noqa: S101 - command_of has said so
    goals = tuple(goal.name for goal in goals_of(asked.objectives))
    if foreign := [name for name in goals if name not in GOALS]:
        raise UsageError(
            f"the objective {foreign[0]} is of a package, which an unattended search does not bring to its device",
            hint=f"Leave out --unattended, or search for gnomon's own: {', '.join(GOALS)}.",
        )
    check_plans(asked.plans)
    check_bounds(goals, asked.pick, asked.under)
    if request.device.address.kind != "ssh":
        raise UsageError(
            f"a search runs unattended on devices that are reached by ssh, and {request.device.name} is not",
            hint="Leave out --unattended; on this machine, systemd-run or nohup keep a command running.",
        )
    return request


def _there(config: DeviceConfig, load: Load) -> Carried | None:
    """The job of this load, if the device has one already; started again where it was ended from outside."""
    with visited(config) as device:
        keep = Keep(device=device, config=config, python=device.describe().python)
        answer = keep.ask("list_all")
        jobs: dict[str, Job] = {job.id: job for job in jobs_in(answer, config)}
        same = [jobs[told["id"]] for told in answer["jobs"] if told["job"].get("digest") == load.digest]
        for job in same:
            if job.alive or job.state == "done":
                return Carried(job=job, started=False, made=False)
        for job in same:
            if job.state in ("stopped", "vanished"):
                return Carried(job=keep.job(keep.ask("start", id=job.id)), started=True, made=False)
    return None


def _check_python(version: object, config: DeviceConfig) -> None:
    """RuntimeMissingError where the device's Python is too old for gnomon itself."""
    wanted = ".".join(map(str, _OLDEST))
    parts = str(version or "").split(".")
    if len(parts) >= 2 and all(part.isdigit() for part in parts[:2]) and tuple(map(int, parts[:2])) >= _OLDEST:
        return
    has = f"has Python {version}" if version else "has no Python"
    raise RuntimeMissingError(
        f"{config.name} {has}, and a search that runs there by itself needs {wanted}: all of gnomon runs there",
        hint="Name a newer one there by `python` in the file of devices, or leave out --unattended.",
    )


def _check_that_it_runs(keep: Keep, python: str, link: AgentLink, runtimes: tuple[Runtime, ...]) -> None:
    """RuntimeMissingError where gnomon, or a runtime that worked before, does not start in the Python of the job."""
    config = keep.config
    done = keep.device.run([python, "-E", "-s", "-P", "-c", _IMPORTS], env={}, timeout_s=_TIMEOUT_S)
    if not done.ok:
        last = done.stderr.strip().splitlines()[-1:] or ["it did not answer"]
        raise RuntimeMissingError(
            f"gnomon does not start on {config.name}: {last[0][:300]}",
            hint="Install there what is missing, name another Python by `python` in the file of devices, or leave out "
            "--unattended.",
        )
    link.info = replace(link.info, python=python)
    link.paths.clear()
    found, missing = probe_runtimes(link, runtimes)
    if len(found) < len(runtimes):
        told = "; ".join(f"{m.name}: {m.reason}" for m in missing)
        raise RuntimeMissingError(
            f"beside what gnomon needs, a runtime does not start on {config.name}: {told[:600]}",
            hint=f"Choose another: --runtime {next(iter(found), 'NAME')}; or leave out --unattended.",
        )


def _notes(request: Request, picture: Path | None) -> dict[str, object]:
    """What is kept with a job for whoever fetches from it."""
    return {
        "format": "gnomon-unattended",
        "gnomon": gnomon.__version__,
        "fresh": request.fresh,
        "device": request.device.name,
        "source": str(request.model.absolute()),
        "picture": None if picture is None else picture.name,
    }
