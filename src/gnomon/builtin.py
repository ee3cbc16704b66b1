"""The jobs of gnomon itself, as the rows that a package adds for its own (`gnomon.plugins.Job`).

Of each: its commands, its documents with their records and reports, and its functions of Python.
"""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.options import CommandRow
from gnomon.plugins import Job

PLACING = "What should run where"
PREDICTING = "Networks that were never measured"
TUNING = "Tuned kernels"
RESULTS = "Results, runtimes and machines"


def _documents(folder: str, **names: str) -> dict[str, tuple[str, str]]:
    """Documents by their names, of the record and the report that are named: those of the job's folder."""
    documents = {}
    for name, value in names.items():
        record, _, report = value.partition(" ")
        places = [
            f"gnomon.jobs.{folder}.{module}:{part}" for module, part in (("document", record), ("report", report))
        ]
        documents[name.replace("_", "-")] = (places[0], places[1] if report else "")
    return documents


def _functions(module: str, *names: str) -> dict[str, str]:
    return {name: f"gnomon.api.{module}:{name}" for name in names}


JOBS: Mapping[str, Job] = {
    "check": Job(
        section=PLACING,
        commands={
            "check": CommandRow(
                "gnomon.api.check:check", "Look at a model's file for what will matter, before anything runs."
            )
        },
        documents=_documents("check", check="CheckDocument check_report"),
        functions=_functions("check", "check"),
    ),
    "commands": Job(
        section=RESULTS,
        commands={
            "commands": CommandRow(
                "gnomon.api.commands:list_commands",
                "List the programs that are measured as runtimes are.",
                html=False,
            )
        },
        documents=_documents("commands", commands="CommandsDocument commands_report"),
        functions=_functions("commands", "list_commands"),
    ),
    "place": Job(
        section=PLACING,
        commands={
            "place": CommandRow(
                "gnomon.api.place:place",
                "Find the fastest way to run a model here, prove it, and write it as a package.",
            ),
            "profile": CommandRow(
                "gnomon.api.place:profile", "Measure a model whole on every backend, end to end and per operator."
            ),
        },
        documents=_documents(
            "place",
            place="PlaceDocument place_report",
            profile="ProfileDocument profile_report",
            fleet="FleetDocument fleet_report",
            sweep="SweepDocument sweep_report",
        ),
        functions=_functions("place", "place", "place_on", "profile"),
    ),
    "pareto": Job(
        section=PLACING,
        commands={
            "pareto": CommandRow(
                "gnomon.api.pareto:pareto", "Find the front of latency, peak memory and other objectives, and prove it."
            )
        },
        documents=_documents("pareto", pareto="ParetoDocument pareto_report"),
        functions=_functions("pareto", "pareto") | _functions("objectives", "objectives"),
    ),
    "stab": Job(
        section=PLACING,
        commands={
            "stab": CommandRow(
                "gnomon.api.stab:stab",
                "Schedule backends for an nnpackage's operators, as ONE's stab does, and prove it.",
            )
        },
        documents=_documents("stab", stab="StabDocument stab_report"),
        functions=_functions("stab", "stab"),
    ),
    "oplist": Job(
        section=PLACING,
        commands={
            "oplist": CommandRow(
                "gnomon.api.pareto:oplist",
                "Show what the digits of a model's codes mean, and write ONE's oplist.json.",
                html=False,
            )
        },
        documents={
            "oplist": ("gnomon.jobs.pareto.oplist:OplistDocument", "gnomon.jobs.pareto.oplist_report:oplist_report"),
        },
        functions=_functions("pareto", "oplist"),
    ),
    "solve": Job(
        section=PLACING,
        commands={
            "solve": CommandRow("gnomon.api.solve:solve", "Solve a placement problem that is given as JSON."),
            "front": CommandRow(
                "gnomon.api.solve:front", "Find the Pareto front of a placement problem that is given as JSON."
            ),
        },
        documents=_documents(
            "solve",
            solve="SolveDocument solve_report",
            front="FrontDocument front_report",
        ),
        functions=_functions("solve", "front", "solve"),
    ),
    "table": Job(
        section=PREDICTING,
        commands={
            "table": CommandRow(
                "gnomon.cli.commands.table:table", "Measure every unit of a search space once, as a table."
            )
        },
        documents=_documents(
            "table",
            table="TableDocument table_report",
            tables="TablesDocument tables_report",
            table_diff="TableDiffDocument difference_report",
            table_spaces="SpacesDocument spaces_report",
            table_export="TableExportDocument exported_report",
        ),
        functions=_functions(
            "table",
            "build_table",
            "check_table",
            "compare_tables",
            "export_table",
            "import_tables",
            "known_spaces",
            "merge_tables",
        ),
    ),
    "estimator": Job(
        section=PREDICTING,
        commands={
            "estimator": CommandRow(
                "gnomon.cli.commands.estimator:estimator", "Predict the latency of nets that were never measured."
            )
        },
        documents=_documents(
            "estimator",
            estimator_fit="FitDocument estimator_report",
            estimator_evaluation="EvaluationDocument estimator_report",
            estimator_predictions="PredictionsDocument predictions_report",
            estimator_explanation="ExplanationDocument explanation_report",
            model_prediction="ModelPredictionDocument model_report",
            estimator_export="ExportDocument file_report",
            estimator_suggest="SuggestDocument suggested_report",
            estimator_import="ImportDocument imported_report",
            estimator_count="CountDocument file_report",
        )
        | {"nets": ("gnomon.jobs.table.document:NetsDocument", "gnomon.jobs.estimator.report:measured_report")},
        functions=_functions(
            "estimator",
            "count_units",
            "evaluate_estimator",
            "explain_net",
            "export_estimator",
            "fit_estimator",
            "import_nets",
            "load_estimator",
            "measure_nets",
            "predict",
            "predict_model",
            "suggest_nets",
        ),
    ),
    "space": Job(
        section=PREDICTING,
        commands={
            "space": CommandRow(
                "gnomon.cli.commands.space:space",
                "Choose the primitives worth searching on a device, from accuracy and latency.",
            )
        },
        documents=_documents(
            "space",
            space="SpaceDocument profile_report",
            space_select="SelectionDocument selection_report",
            space_front="SpaceFrontDocument front_report",
            space_export="SpaceExportDocument exported_report",
            space_primitives="PrimitivesDocument primitives_report",
            space_toolchains="ToolchainsDocument toolchains_report",
        ),
        functions=_functions(
            "space",
            "export_networks",
            "find_front",
            "import_networks",
            "list_primitives",
            "list_toolchains",
            "open_profile",
            "profile_space",
            "select_primitives",
            "show_space",
            "space_network",
        ),
    ),
    "tune": Job(
        section=TUNING,
        commands={
            "tune": CommandRow("gnomon.cli.commands.tune:tune", "Tune a network's kernels on a device, with TVM."),
            "tune list": CommandRow(
                "gnomon.api.tune:tuned_files", "List tuned models, records and libraries.", html=False
            ),
            "exec": CommandRow(
                "gnomon.cli.commands.tune:exec_", "Measure a compiled network, or tuned records, on any device."
            ),
        },
        documents=_documents(
            "tune",
            tune="TuneDocument tune_report",
            exec="ExecDocument exec_report",
            tuned="TunedDocument tuned_report",
            tuned_files="TunedFilesDocument view_report",
        ),
        functions=_functions("tune", "execute", "overlay_analyze", "overlay_collect", "tune", "tuned_files"),
    ),
    "overlay": Job(
        section=TUNING,
        commands={
            "overlay": CommandRow(
                "gnomon.cli.commands.overlay:overlay", "Choose tuned configurations that are good on several devices."
            )
        },
        documents=_documents(
            "overlay",
            overlay_collect="CollectDocument collect_report",
            overlay_collected="CollectedDocument collected_report",
            overlay_analyze="AnalyzeDocument analyze_report",
        ),
    ),
    "runs": Job(
        section=RESULTS,
        commands={
            "runs": CommandRow(
                "gnomon.cli.commands.runs:runs", "List, show, export, join and resume what was measured."
            )
        },
        documents=_documents(
            "runs",
            run="RunDocument",
            runs="RunsDocument runs_report",
            brought="BroughtDocument brought_report",
        ),
        functions=_functions(
            "runs",
            "answer_of_run",
            "command_of_run",
            "export_run",
            "export_run_as",
            "export_run_files",
            "import_runs",
            "merge_runs",
            "runs",
            "show_run",
        ),
    ),
    "compare": Job(
        section=RESULTS,
        commands={
            "compare": CommandRow(
                "gnomon.api.compare:compare", "Compare runs: what got faster, slower, or stayed the same."
            )
        },
        documents=_documents("compare", compare="CompareDocument compare_report"),
        functions=_functions("compare", "compare"),
    ),
    "suite": Job(
        section=RESULTS,
        commands={
            "suite": CommandRow(
                "gnomon.cli.commands.suite:suite", "Many models on many devices by several jobs: run, look, compare."
            )
        },
        documents=_documents(
            "suite",
            suite="SuiteDocument suite_report",
            suite_compare="SuiteCompareDocument suite_compare_report",
        ),
        functions=_functions("suite", "compare_suites", "run_suite", "suite_status"),
    ),
    "report": Job(
        section=RESULTS,
        commands={
            "report": CommandRow(
                "gnomon.cli.commands.report:report", "Write one page in HTML that shows runs, and compares them."
            )
        },
        functions=_functions("html", "write_report"),
    ),
    "devices": Job(
        section=RESULTS,
        commands={
            "runtimes": CommandRow(
                "gnomon.api.devices:list_runtimes",
                "List the runtimes that are installed here, and how to add the others.",
                html=False,
            ),
            "devices": CommandRow(
                "gnomon.cli.commands.devices:devices", "List, check and name the machines to measure on."
            ),
        },
        documents=_documents(
            "devices",
            devices="DevicesDocument devices_report",
            device_added="DeviceAddedDocument added_report",
            device_removed="DeviceRemovedDocument removed_report",
            device_cleaned="DeviceCleanedDocument cleaned_report",
            device_health="DeviceHealthDocument health_report",
            runtimes="RuntimesDocument runtimes_report",
        ),
        functions=_functions(
            "devices",
            "add_device",
            "check_devices",
            "clean_device",
            "list_devices",
            "list_runtimes",
            "probe_device",
            "release_device",
            "remove_device",
        ),
    ),
    "serve": Job(
        section=RESULTS,
        commands={
            "serve": CommandRow(
                "gnomon.cli.commands.serve:serve", "Measure models that are sent over HTTP, for search-space profilers."
            )
        },
        documents={"serve": ("gnomon.jobs.devices.document:ServeDocument", "")},
    ),
    "schema": Job(
        section=RESULTS,
        commands={
            "schema": CommandRow(
                "gnomon.cli.commands.schema:schema", "Print the JSON Schema of a job's document, or the names of all."
            )
        },
        functions=_functions("document", "document_names", "document_schema", "read_document"),
    ),
    "new": Job(
        section=RESULTS,
        commands={
            "new": CommandRow(
                "gnomon.api.new:new_package",
                "Write a package that adds a job, a runtime or a kind of device.",
                html=False,
            )
        },
        documents=_documents("new", new="NewDocument new_report"),
        functions=_functions("new", "new_package"),
    ),
}
"""By name, in the order of the help."""
