"""`gnomon estimator`: latencies of nets that were never measured."""

from __future__ import annotations

from gnomon.cli.declared import DeclaredGroup
from gnomon.options import CommandRow

estimator = DeclaredGroup(
    help="Estimators: the latency of any net of a search space, from a table and whole nets. See "
    "docs/jobs/estimator.md.",
    rows={
        "suggest": CommandRow(
            "gnomon.api.estimator:suggest_nets", "Say which nets to measure, before any is measured.", html=False
        ),
        "measure": CommandRow("gnomon.api.estimator:measure_nets", "Measure whole nets as the table was measured."),
        "fit": CommandRow("gnomon.api.estimator:fit_estimator", "Fit to measured nets."),
        "eval": CommandRow("gnomon.api.estimator:evaluate_estimator", "Compare predictions with nets held out."),
        "predict": CommandRow("gnomon.api.estimator:predict", "Predict nets of a csv, or any model."),
        "explain": CommandRow(
            "gnomon.api.estimator:explain_net", "Show which units a net's time and its uncertainty come from."
        ),
        "export": CommandRow(
            "gnomon.api.estimator:export_estimator", "Write it as a Python file that needs numpy alone.", html=False
        ),
        "import": CommandRow(
            "gnomon.api.estimator:import_nets", "Make a csv of nets of another tool's files.", html=False
        ),
        "count": CommandRow("gnomon.api.estimator:count_units", "Count the units of nets.", html=False),
    },
)
