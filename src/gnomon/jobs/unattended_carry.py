"""Carrying a search to a device, whole, to run there by itself. docs/unattended.md is the design."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import gnomon
from gnomon.devices.config import DeviceConfig
from gnomon.devices.guard import guarded_folder
from gnomon.devices.opening import opened, visited
from gnomon.devices.ssh_errors import NoPythonError
from gnomon.errors import GnomonError, RuntimeMissingError, UsageError
from gnomon.jobs.equip import equip
from gnomon.jobs.links import link_to
from gnomon.jobs.modelling import check_feeds, place_model, read_model
from gnomon.jobs.objectives import goals_of
from gnomon.jobs.pareto_points import check_bounds
from gnomon.jobs.pareto_records import ParetoRequest
from gnomon.jobs.pareto_search import check_plans
from gnomon.jobs.request import Request
from gnomon.jobs.targets import nothing_runs, probe_runtimes
from gnomon.jobs.unattended_command import Places, command_of
from gnomon.jobs.unattended_device import Keep, jobs_in
from gnomon.jobs.unattended_load import Load, lay_gnomon, load_of, requirements_of
from gnomon.jobs.unattended_records import Carried, Job
from gnomon.measure.link import AgentLink
from gnomon.runtimes.base import Runtime
from gnomon.runtimes.registry import chosen_runtimes

Tell = Callable[[str], None]

_OLDEST = (3, 11)
_TIMEOUT_S = 600.0
_IMPORTS = "import gnomon.cli.unattended_run, gnomon.cli.pareto, gnomon.cli.pareto_document, gnomon.jobs.pareto"


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
        check_feeds(request, place_model(model, read.source, lambda path, name: f"/{name}"))
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
                raise RuntimeMissingError(f"gnomon cannot be brought to {config.name}: {told}", hint=missing[0].hint)
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
    check_plans(asked.plans)
    check_bounds(goals, asked.pick, asked.under)
    if request.device.address.kind != "ssh":
        raise UsageError(
            f"a search is carried to devices that are reached by ssh, and {request.device.name} is not",
            hint="Leave out --unattended; on this machine, systemd-run or nohup keep a command running.",
        )
    return request


def _there(config: DeviceConfig, load: Load) -> Carried | None:
    """The same search where it is on the device already; started again if it was ended from outside."""
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
