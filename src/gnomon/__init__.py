"""gnomon measures neural networks on the hardware they will run on, and decides what should run where.

The functions are those of `gnomon.api`, and what the commands of the command line call; what they need is imported when
one is first used.
"""

from typing import Any

__version__ = "0.1.0"

_FUNCTIONS = {
    "compare": ("compare", "compare_models"),
    "devices": (
        *(
            "add_device",
            "check_devices",
            "clean_device",
            "list_devices",
            "list_runtimes",
            "probe_device",
            "release_device",
        ),
        "remove_device",
    ),
    "document": ("document_names", "document_schema", "read_document"),
    "estimator": (
        *("count_units", "evaluate_estimator", "explain_net", "export_estimator", "fit_estimator", "import_nets"),
        *("load_estimator", "measure_nets", "predict", "predict_model", "predict_nets", "suggest_nets"),
    ),
    "html": ("write_report",),
    "objectives": ("objectives",),
    "pareto": ("oplist", "pareto"),
    "place": ("place", "place_on", "profile"),
    "runs": (
        *("answer_of_run", "command_of_run", "export_run", "export_run_as", "export_run_files", "import_runs"),
        *("merge_runs", "runs", "show_run"),
    ),
    "solve": ("front", "solve"),
    "space": (
        *("export_networks", "find_front", "import_networks", "open_profile", "profile_space", "select_primitives"),
        *("show_space", "space_network", "validate_selection"),
    ),
    "stab": ("stab",),
    "suite": ("compare_suites", "run_suite", "suite_status"),
    "table": (
        *("build_table", "check_table", "compare_tables", "export_table", "import_tables", "known_spaces"),
        *("merge_tables", "sum_blocks"),
    ),
    "tune": ("execute", "overlay_analyze", "overlay_collect", "overlay_deploy", "tune", "tuned_files"),
}
_PLACES = {name: f"gnomon.api.{module}" for module, names in _FUNCTIONS.items() for name in names}

__all__ = ["__version__", *sorted(_PLACES)]


def __getattr__(name: str) -> Any:
    """The functions: importing gnomon alone imports nothing heavy."""
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'gnomon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
