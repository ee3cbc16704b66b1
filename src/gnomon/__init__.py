"""gnomon measures neural networks on the hardware they will run on, and decides what should run where.

The functions are those of `gnomon.api.place`, `gnomon.api.table`, `gnomon.api.space` and `gnomon.api.tune`, and those
that see to unattended searches; what they need is imported when one is first used.
"""

from typing import Any

__version__ = "0.1.0"

_PLACES = {
    **dict.fromkeys(
        (
            *("add_device", "clean_device", "list_devices", "remove_device", "runs", "solve"),
            *("pareto", "pareto_unattended", "place", "place_on", "profile"),
        ),
        "gnomon.api.place",
    ),
    **dict.fromkeys(("build_table", "measure_nets", "suggest_nets"), "gnomon.api.table"),
    **dict.fromkeys(("profile_space", "select_primitives", "validate_selection"), "gnomon.api.space"),
    **dict.fromkeys(
        ("execute", "overlay_analyze", "overlay_collect", "overlay_deploy", "tune", "tuned_files"), "gnomon.api.tune"
    ),
    **dict.fromkeys(
        ("remove_unattended", "start_unattended", "stop_unattended", "unattended_job", "unattended_jobs"),
        "gnomon.jobs.unattended.job",
    ),
    "fetch_unattended": "gnomon.jobs.unattended.device",
    "load_estimator": "gnomon.jobs.estimator.job",
}

__all__ = ["__version__", *sorted(_PLACES)]


def __getattr__(name: str) -> Any:
    """The functions: importing gnomon alone imports nothing heavy."""
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'gnomon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
