"""`gnomon table`: latency tables of search spaces."""

from __future__ import annotations

from gnomon.cli.declared import DeclaredGroup
from gnomon.options import CommandRow

table = DeclaredGroup(
    module="gnomon.api.table",
    help="Latency tables: what each unit of a search space takes on a device. docs/jobs/table.md describes them.",
    rows={
        "build": CommandRow("build_table", "Measure the units of a space on a device."),
        "spaces": CommandRow("known_spaces", "List the search spaces that are known by name.", html=False),
        "check": CommandRow("check_table", "Say whether a table can be trusted."),
        "diff": CommandRow("compare_tables", "Compare two tables unit by unit."),
        "merge": CommandRow("merge_tables", "Join two tables that were measured in the same way."),
        "import": CommandRow("import_tables", "Make a table of another tool's file."),
        "export": CommandRow("export_table", "Write a table as another tool's file.", html=False),
    },
)
