"""gnomon measures neural networks on the hardware they will run on, and decides what should run where.

The functions are those of `gnomon.api`, and what the commands of the command line call; what they need is imported when
one is first used.
"""

from typing import Any

__version__ = "0.1.0"

_PLACES = {
    **dict.fromkeys(("compare", "compare_models"), "gnomon.api.compare"),
    **dict.fromkeys(("compare_suites", "run_suite", "suite_status"), "gnomon.api.suite"),
    **dict.fromkeys(
        (
            *("add_device", "clean_device", "list_devices", "list_runtimes"),
            *("probe_device", "release_device", "remove_device"),
            *(
                "answer_of_run",
                "command_of_run",
                "export_run",
                "export_run_as",
                "export_run_files",
                "front",
                "import_runs",
                "merge_runs",
                "objectives",
                "oplist",
                "runs",
                "show_run",
                "solve",
                "stab",
            ),
            *("pareto", "place", "place_on", "profile"),
        ),
        "gnomon.api.place",
    ),
    "write_report": "gnomon.api.html",
    **dict.fromkeys(("document_names", "document_schema", "read_document"), "gnomon.api.document"),
    **dict.fromkeys(
        (
            *("build_table", "check_table", "compare_tables", "export_table", "merge_tables"),
            *("import_table", "import_tables"),
            *(
                "count_units",
                "evaluate_estimator",
                "explain_net",
                "export_estimator",
                "fit_estimator",
                "import_nets",
                "load_estimator",
                "measure_nets",
                "predict_model",
                "predict_nets",
                "suggest_nets",
                "sum_blocks",
            ),
        ),
        "gnomon.api.table",
    ),
    **dict.fromkeys(
        (
            *("export_networks", "find_front", "import_networks", "open_profile"),
            *("profile_space", "select_primitives", "show_space", "space_network"),
            "validate_selection",
        ),
        "gnomon.api.space",
    ),
    **dict.fromkeys(
        ("execute", "overlay_analyze", "overlay_collect", "overlay_deploy", "tune", "tuned_files"), "gnomon.api.tune"
    ),
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
