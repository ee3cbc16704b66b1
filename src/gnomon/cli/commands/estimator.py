"""`gnomon estimator`: latencies of nets that were never measured."""

from __future__ import annotations

from gnomon.cli.declared import DeclaredGroup
from gnomon.options import CommandRow

estimator = DeclaredGroup(
    module="gnomon.api.estimator",
    help="Estimators: the latency of any net of a search space, from a table and whole nets. See "
    "docs/jobs/estimator.md.",
    rows={
        "suggest": CommandRow("suggest_nets", "Say which nets to measure, before any is measured.", html=False),
        "measure": CommandRow("measure_nets", "Measure whole nets as the table was measured."),
        "fit": CommandRow("fit_estimator", "Fit to measured nets."),
        "eval": CommandRow("evaluate_estimator", "Compare predictions with nets held out."),
        "predict": CommandRow("predict", "Predict nets of a csv, or any model."),
        "explain": CommandRow("explain_net", "Show which units a net's time and its uncertainty come from."),
        "export": CommandRow("export_estimator", "Write it as a Python file that needs numpy alone.", html=False),
        "import": CommandRow("import_nets", "Make a csv of nets of another tool's files.", html=False),
        "count": CommandRow("count_units", "Count the units of nets.", html=False),
    },
)
