"""Searches that run on a device by themselves: what there is, and what to do with it. docs/unattended.md is its design.

Nothing here waits for the device's lease: the jobs themselves hold it while they measure.
"""

from __future__ import annotations

from gnomon.jobs.unattended_device import jobs_in, keep_of
from gnomon.jobs.unattended_records import Job


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
