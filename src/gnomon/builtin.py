"""Gnomon's own jobs, declared in the same way as the jobs of packages (`gnomon.plugins.Job`).

A job has commands, documents with their records and reports, and Python functions that belong to no command.
"""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.options import CommandRow, GroupRow
from gnomon.plugins import Job

CONFIGS = "gnomon.jobs.space.configs:space_of_config"
NETS = "gnomon.jobs.estimator.job:space_of_numbers"
"""The functions that read the configs of other searches, and a csv of nets described by numbers, as spaces."""


def _documents(folder: str, **names: str) -> dict[str, tuple[str, str]]:
    """The documents of a job by name. Each value is the name of the record and, after a space, that of the report.

    Records and reports are in the modules `document` and `report` of the job's folder.
    """
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
        commands={"check": CommandRow("gnomon.api.check:check", "Look at a model's file before anything runs.")},
        documents=_documents("check", check="CheckDocument check_report"),
    ),
    "where": Job(
        commands={
            "where": CommandRow("gnomon.api.where:where", "Show within seconds which operator runs where, and why.")
        },
        documents=_documents("where", where="WhereDocument where_report"),
    ),
    "commands": Job(
        commands={
            "commands": CommandRow(
                "gnomon.api.commands:list_commands",
                "List the programs that can be measured like runtimes.",
                html=False,
            )
        },
        documents=_documents("commands", commands="CommandsDocument commands_report"),
    ),
    "place": Job(
        commands={
            "place": CommandRow(
                "gnomon.api.place:place",
                "Find the fastest way to run a model, and write it as a package.",
            ),
            "profile": CommandRow(
                "gnomon.api.place:profile", "Measure a model on every runtime, end to end and per operator."
            ),
            "deploy": CommandRow(
                "gnomon.api.place:deploy", "Copy a package to a device permanently, and run it there once.", html=False
            ),
        },
        documents=_documents(
            "place",
            place="PlaceDocument place_report",
            deployed="DeployDocument deploy_report",
            profile="ProfileDocument profile_report",
            fleet="FleetDocument fleet_report",
            sweep="SweepDocument sweep_report",
        ),
        functions=_functions("place", "place_on"),
    ),
    "pareto": Job(
        commands={
            "pareto": CommandRow(
                "gnomon.api.pareto:pareto", "Find and prove the front of latency, peak memory and other objectives."
            )
        },
        documents=_documents("pareto", pareto="ParetoDocument pareto_report"),
        functions=_functions("objectives", "objectives"),
    ),
    "stab": Job(
        commands={
            "stab": CommandRow(
                "gnomon.api.stab:stab",
                "Schedule backends for an nnpackage's operators, as ONE's stab does, and prove the schedule.",
            )
        },
        documents=_documents("stab", stab="StabDocument stab_report"),
    ),
    "oplist": Job(
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
    ),
    "solve": Job(
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
    ),
    "table": Job(
        commands={
            "table": GroupRow(
                "gnomon.api.table",
                "Measure every unit of a search space once, and write a table.",
                help="Latency tables: the time of each unit of a search space on a device. See docs/jobs/table.md.",
                rows={
                    "build": CommandRow("build_table", "Measure the units of a space on a device."),
                    "spaces": CommandRow("known_spaces", "List the search spaces that are known by name.", html=False),
                    "check": CommandRow("check_table", "Check whether a table can be trusted."),
                    "diff": CommandRow("compare_tables", "Compare two tables unit by unit."),
                    "merge": CommandRow("merge_tables", "Join two tables that were measured in the same way."),
                    "import": CommandRow("import_tables", "Convert another tool's file into a table."),
                    "export": CommandRow("export_table", "Write a table as another tool's file.", html=False),
                },
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
    ),
    "estimator": Job(
        commands={
            "estimator": GroupRow(
                "gnomon.api.estimator",
                "Predict the latency of nets that were never measured.",
                help="Estimators: the latency of any net of a search space, from a table and whole nets. See "
                "docs/jobs/estimator.md.",
                rows={
                    "suggest": CommandRow(
                        "suggest_nets", "Suggest nets to measure, before any is measured.", html=False
                    ),
                    "measure": CommandRow("measure_nets", "Measure whole nets in the same way as the table."),
                    "fit": CommandRow("fit_estimator", "Fit an estimator to measured nets."),
                    "eval": CommandRow("evaluate_estimator", "Compare predictions with the times of held-out nets."),
                    "predict": CommandRow("predict", "Predict the latency of the nets in a csv, or of any model."),
                    "explain": CommandRow(
                        "explain_net", "Show which units a net's time and its uncertainty come from."
                    ),
                    "export": CommandRow(
                        "export_estimator", "Write an estimator as a Python file that needs only numpy.", html=False
                    ),
                    "import": CommandRow("import_nets", "Convert another tool's files into a csv of nets.", html=False),
                    "count": CommandRow("count_units", "Count the units of nets.", html=False),
                    "verify": CommandRow("verify_net", "Check whether a model is a network of a space.", html=False),
                },
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
            estimator_verification="VerificationDocument verification_report",
        )
        | {"nets": ("gnomon.jobs.table.document:NetsDocument", "gnomon.jobs.estimator.report:measured_report")},
        functions=_functions("estimator", "load_estimator", "predict_model"),
    ),
    "space": Job(
        commands={
            "space": GroupRow(
                "gnomon.api.space",
                "Choose the primitives worth searching on a device, from accuracy and latency.",
                help="Find which primitives of a search space are worth searching on a device. See docs/jobs/space.md.",
                rows={
                    "profile": CommandRow(
                        "profile_space",
                        "Train and measure the networks of a search space.",
                        gone={  # options of ssprofile's profiler
                            "--gpu": "Give --train-on cuda, and set CUDA_VISIBLE_DEVICES=N to choose the GPU.",
                            "--arch-file": "Give --toolchain quark-xint8 --command vitis:url=URL,arch=FILE.",
                        },
                    ),
                    "select": CommandRow(
                        "select_primitives", "Choose primitives from a profile, without measuring anything."
                    ),
                    "front": CommandRow("find_front", "Find the best networks, then train and measure them."),
                    "show": CommandRow("show_space", "Show what a profile holds."),
                    "import": CommandRow("import_networks", "Import accuracies and latencies into a profile."),
                    "export": CommandRow("export_networks", "Write a profile's networks as csv.", html=False),
                    "primitives": CommandRow(
                        "list_primitives", "List the known primitives, and what they are made of.", html=False
                    ),
                    "toolchains": CommandRow(
                        "list_toolchains", "List the toolchains, and what they lack here.", html=False
                    ),
                },
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
        functions=_functions("space", "open_profile", "space_network"),
    ),
    "tune": Job(
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
        functions=_functions("tune", "execute", "overlay_analyze", "overlay_collect", "tune"),
    ),
    "overlay": Job(
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
        commands={
            "runs": GroupRow(
                "gnomon.api.runs",
                "List, show, export, join and resume what was measured.",
                default="list",
                help="List, show, export, join and resume what was measured. Without a subcommand: list.\n\n"
                "Nothing in the record is ever changed or removed; docs/record.md describes the file.",
                rows={
                    "list": CommandRow("runs", "List the campaigns, the newest first.", html=False),
                    "import": CommandRow(
                        "import_runs", "Add the runs of other files to the results database.", html=False
                    ),
                    "merge": CommandRow("merge_runs", "Join results databases into a new one.", html=False),
                    "export": CommandRow(
                        "gnomon.cli.commands.runs:export", "Write one campaign in full, for other tools."
                    ),
                    "resume": CommandRow("gnomon.cli.commands.runs:resume", "Resume an interrupted campaign."),
                    "show": CommandRow("gnomon.cli.commands.runs:show", "Show one campaign."),
                },
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
            "show_run",
        ),
    ),
    "compare": Job(
        commands={
            "compare": CommandRow(
                "gnomon.api.compare:compare", "Compare runs: what got faster, slower, or stayed the same."
            )
        },
        documents=_documents("compare", compare="CompareDocument compare_report"),
    ),
    "suite": Job(
        commands={
            "suite": GroupRow(
                "gnomon.api.suite",
                "Measure many models on many devices, from one file.",
                help="Measure many models on many devices by several jobs, from one file, and compare one run with "
                "another.",
                rows={
                    "status": CommandRow("suite_status", "Show the progress of a suite's run."),
                    "compare": CommandRow("compare_suites", "Compare two runs of a suite, cell by cell."),
                    "run": CommandRow("gnomon.cli.commands.suite:run", "Run the suite in a file, or resume it."),
                },
            )
        },
        documents=_documents(
            "suite",
            suite="SuiteDocument suite_report",
            suite_compare="SuiteCompareDocument suite_compare_report",
        ),
        functions=_functions("suite", "run_suite"),
    ),
    "report": Job(
        commands={
            "report": CommandRow(
                "gnomon.cli.commands.report:report", "Write one HTML page that shows and compares runs."
            )
        },
        functions=_functions("html", "write_report"),
    ),
    "devices": Job(
        commands={
            "runtimes": CommandRow(
                "gnomon.api.devices:list_runtimes",
                "List the runtimes that are installed here, and how to add the others.",
                html=False,
            ),
            "devices": GroupRow(
                "gnomon.api.devices",
                "List, check and name the machines to measure on.",
                default="list",
                help="List, check and name the machines that models can be measured on. Without a subcommand: list.\n\n"
                "A device is this machine (local), or one that ssh, adb, sdb or labgrid reaches. The file of devices "
                "gives it a name and settings; docs/devices/devices.md describes it.",
                rows={
                    "list": CommandRow("list_devices", "List the devices and what they have.", html=False),
                    "check": CommandRow("check_devices", "Check devices in detail.", html=False),
                    "add": CommandRow("add_device", "Check a device, and give it a name.", html=False),
                    "remove": CommandRow("remove_device", "Remove a device's name from the file.", html=False),
                    "clean": CommandRow("clean_device", "Remove gnomon's files from a device.", html=False),
                    "probe": CommandRow(
                        "probe_device", "Check whether a device is the same board, and as fast as before.", html=False
                    ),
                    "release": CommandRow("release_device", "End the quarantine of a device.", html=False),
                    "noise": CommandRow("noise_of_device", "Show the slow-downs detectable on a device.", html=False),
                },
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
    ),
    "serve": Job(
        commands={
            "serve": CommandRow(
                "gnomon.cli.commands.serve:serve", "Measure models that are sent over HTTP, for search-space profilers."
            )
        },
        documents={"serve": ("gnomon.jobs.devices.document:ServeDocument", "")},
    ),
    "schema": Job(
        commands={
            "schema": CommandRow(
                "gnomon.cli.commands.schema:schema", "Print the JSON Schema of a job's document, or list all documents."
            )
        },
        functions=_functions("document", "document_names", "document_schema", "read_document"),
    ),
    "new": Job(
        commands={
            "new": CommandRow(
                "gnomon.api.new:new_package",
                "Write a package that adds a job, a runtime or a kind of device.",
                html=False,
            )
        },
        documents=_documents("new", new="NewDocument new_report"),
    ),
}
"""The jobs by name."""


def public_functions() -> dict[str, str]:
    """The public Python functions by name: those of commands, and the `functions` of jobs."""
    places = [place for job in JOBS.values() for place in job.functions.values()]
    for row in (row for job in JOBS.values() for row in job.commands.values()):
        rows = row.commands().values() if isinstance(row, GroupRow) else [row]
        places += [command.place for command in rows]
    return {place.partition(":")[2]: place for place in places if place.startswith("gnomon.api.")}
