"""`gnomon table`: latency tables of search spaces."""

from __future__ import annotations

from gnomon.cli.declared import DeclaredGroup
from gnomon.options import CommandRow

table = DeclaredGroup(
    help="Latency tables: what each unit of a search space takes on a device. docs/jobs/table.md describes them.",
    rows={
        "build": CommandRow("gnomon.api.table:build_table", "Measure the units of a space on a device."),
        "spaces": CommandRow(
            "gnomon.api.table:known_spaces", "List the search spaces that are known by name.", html=False
        ),
        "check": CommandRow("gnomon.api.table:check_table", "Say whether a table can be trusted."),
        "diff": CommandRow("gnomon.api.table:compare_tables", "Compare two tables unit by unit."),
        "merge": CommandRow("gnomon.api.table:merge_tables", "Join two tables that were measured in the same way."),
        "import": CommandRow("gnomon.api.table:import_tables", "Make a table of another tool's file."),
        "export": CommandRow("gnomon.api.table:export_table", "Write a table as another tool's file.", html=False),
    },
)
