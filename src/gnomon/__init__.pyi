from gnomon.api.place import add_device as add_device
from gnomon.api.place import clean_device as clean_device
from gnomon.api.place import list_devices as list_devices
from gnomon.api.place import pareto as pareto
from gnomon.api.place import pareto_unattended as pareto_unattended
from gnomon.api.place import place as place
from gnomon.api.place import place_on as place_on
from gnomon.api.place import profile as profile
from gnomon.api.place import remove_device as remove_device
from gnomon.api.place import runs as runs
from gnomon.api.place import solve as solve
from gnomon.api.space import profile_space as profile_space
from gnomon.api.space import select_primitives as select_primitives
from gnomon.api.space import validate_selection as validate_selection
from gnomon.api.table import build_table as build_table
from gnomon.api.table import measure_nets as measure_nets
from gnomon.api.table import suggest_nets as suggest_nets
from gnomon.api.tune import execute as execute
from gnomon.api.tune import overlay_analyze as overlay_analyze
from gnomon.api.tune import overlay_collect as overlay_collect
from gnomon.api.tune import overlay_deploy as overlay_deploy
from gnomon.api.tune import tune as tune
from gnomon.api.tune import tuned_files as tuned_files
from gnomon.jobs.estimator.job import load_estimator as load_estimator
from gnomon.jobs.unattended.device import fetch_unattended as fetch_unattended
from gnomon.jobs.unattended.job import remove_unattended as remove_unattended
from gnomon.jobs.unattended.job import start_unattended as start_unattended
from gnomon.jobs.unattended.job import stop_unattended as stop_unattended
from gnomon.jobs.unattended.job import unattended_job as unattended_job
from gnomon.jobs.unattended.job import unattended_jobs as unattended_jobs

__version__: str
__all__: list[str]
