"""Searches that run on a device by themselves, from Python: what `gnomon unattended` does, as functions."""

from __future__ import annotations

from gnomon.jobs.unattended.command import Carried as Carried
from gnomon.jobs.unattended.command import Fetched as Fetched
from gnomon.jobs.unattended.command import Job as Job
from gnomon.jobs.unattended.device import fetch_unattended as fetch_unattended
from gnomon.jobs.unattended.job import remove_unattended as remove_unattended
from gnomon.jobs.unattended.job import start_unattended as start_unattended
from gnomon.jobs.unattended.job import stop_unattended as stop_unattended
from gnomon.jobs.unattended.job import unattended_job as unattended_job
from gnomon.jobs.unattended.job import unattended_jobs as unattended_jobs
