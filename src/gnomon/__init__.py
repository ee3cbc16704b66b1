"""gnomon measures neural networks on the hardware they will run on, and decides what should run where.

The functions are those of `gnomon.api`, `gnomon.api_tables`, `gnomon.api_spaces` and `gnomon.api_tuning`, and those
that see to unattended searches; what they need is imported when one is first used.
"""

from typing import Any

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "add_device",
    "build_table",
    "clean_device",
    "devices",
    "execute",
    "fetch_unattended",
    "load_estimator",
    "measure_nets",
    "overlay_analyze",
    "overlay_collect",
    "overlay_deploy",
    "pareto",
    "pareto_unattended",
    "place",
    "place_on",
    "profile",
    "profile_space",
    "remove_device",
    "remove_unattended",
    "runs",
    "select_primitives",
    "solve",
    "start_unattended",
    "stop_unattended",
    "suggest_nets",
    "tune",
    "tuned_files",
    "unattended_job",
    "unattended_jobs",
    "validate_selection",
]

_PLACES = {
    "fetch_unattended": "gnomon.jobs.unattended_fetch",
    "load_estimator": "gnomon.jobs.estimators",
    **dict.fromkeys(("build_table", "measure_nets", "suggest_nets"), "gnomon.api_tables"),
    **dict.fromkeys(("profile_space", "select_primitives", "validate_selection"), "gnomon.api_spaces"),
    **dict.fromkeys(
        ("execute", "overlay_analyze", "overlay_collect", "overlay_deploy", "tune", "tuned_files"), "gnomon.api_tuning"
    ),
    **dict.fromkeys(
        ("remove_unattended", "start_unattended", "stop_unattended", "unattended_job", "unattended_jobs"),
        "gnomon.jobs.unattended",
    ),
}


def __getattr__(name: str) -> Any:
    """The functions: importing gnomon alone imports nothing heavy."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(_PLACES.get(name, "gnomon.api")), name)
    raise AttributeError(f"module 'gnomon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
