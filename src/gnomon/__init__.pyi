from gnomon.api import add_device as add_device
from gnomon.api import clean_device as clean_device
from gnomon.api import list_devices as list_devices
from gnomon.api import pareto as pareto
from gnomon.api import pareto_unattended as pareto_unattended
from gnomon.api import place as place
from gnomon.api import place_on as place_on
from gnomon.api import profile as profile
from gnomon.api import remove_device as remove_device
from gnomon.api import runs as runs
from gnomon.api import solve as solve
from gnomon.api_spaces import profile_space as profile_space
from gnomon.api_spaces import select_primitives as select_primitives
from gnomon.api_spaces import validate_selection as validate_selection
from gnomon.api_tables import build_table as build_table
from gnomon.api_tables import measure_nets as measure_nets
from gnomon.api_tables import suggest_nets as suggest_nets
from gnomon.api_tuning import execute as execute
from gnomon.api_tuning import overlay_analyze as overlay_analyze
from gnomon.api_tuning import overlay_collect as overlay_collect
from gnomon.api_tuning import overlay_deploy as overlay_deploy
from gnomon.api_tuning import tune as tune
from gnomon.api_tuning import tuned_files as tuned_files
from gnomon.jobs.estimators import load_estimator as load_estimator
from gnomon.jobs.unattended import remove_unattended as remove_unattended
from gnomon.jobs.unattended import start_unattended as start_unattended
from gnomon.jobs.unattended import stop_unattended as stop_unattended
from gnomon.jobs.unattended import unattended_job as unattended_job
from gnomon.jobs.unattended import unattended_jobs as unattended_jobs
from gnomon.jobs.unattended_fetch import fetch_unattended as fetch_unattended

__version__: str
__all__: list[str]
