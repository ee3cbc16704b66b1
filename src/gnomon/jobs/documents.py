"""The documents of all jobs: which there are, their JSON Schemas, and how one is read again."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gnomon.core import codec
from gnomon.core.schema import schema_of
from gnomon.errors import ProblemError, UsageError

DOCUMENTS: Mapping[str, str] = {
    "place": "gnomon.jobs.place.document:PlaceDocument",
    "profile": "gnomon.jobs.place.document:ProfileDocument",
    "fleet": "gnomon.jobs.place.document:FleetDocument",
    "pareto": "gnomon.jobs.pareto.document:ParetoDocument",
    "table": "gnomon.jobs.table.document:TableDocument",
    "nets": "gnomon.jobs.table.nets:NetsDocument",
    "estimator-fit": "gnomon.jobs.estimator.document:FitDocument",
    "estimator-evaluation": "gnomon.jobs.estimator.document:EvaluationDocument",
    "estimator-predictions": "gnomon.jobs.estimator.document:PredictionsDocument",
    "estimator-explanation": "gnomon.jobs.estimator.document:ExplanationDocument",
    "estimator-search": "gnomon.jobs.estimator.document:SearchDocument",
    "model-prediction": "gnomon.jobs.estimator.models:ModelPredictionDocument",
    "run": "gnomon.jobs.runs.job:RunDocument",
    "brought": "gnomon.jobs.runs.joining:BroughtDocument",
    "oplist": "gnomon.jobs.pareto.oplist:OplistDocument",
    "tune": "gnomon.jobs.tune.document:TuneDocument",
    "exec": "gnomon.jobs.tune.document:ExecDocument",
    "overlay-collect": "gnomon.jobs.overlay.document:CollectDocument",
    "solve": "gnomon.jobs.solve.job:SolveDocument",
    "front": "gnomon.jobs.solve.job:FrontDocument",
    "stab": "gnomon.jobs.stab.document:StabDocument",
    "compare": "gnomon.jobs.compare.document:CompareDocument",
    "suite": "gnomon.jobs.suite.document:SuiteDocument",
    "suite-compare": "gnomon.jobs.suite.document:SuiteCompareDocument",
}
"""The record of each document, by what follows "gnomon-" in its `format`."""


def document_record(name: str) -> type[Any]:
    """The record that a document is made of; UsageError where there is none of that name."""
    if name not in DOCUMENTS:
        raise UsageError(f"there is no document {name!r}", hint=f"Documents: {', '.join(DOCUMENTS)}.")
    module, _, record = DOCUMENTS[name].partition(":")
    found: type[Any] = getattr(import_module(module), record)
    return found


def document_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document; UsageError where there is none of that name."""
    return schema_of(document_record(name), title=f"gnomon-{name}")


def read_document(document: Mapping[str, Any]) -> Any:
    """The record of a document that a command printed, by its `format`.

    ProblemError where it is none of gnomon's, RecordError with all that does not fit where it is of another version.
    """
    name = str(document.get("format", "")).removeprefix("gnomon-")
    if name not in DOCUMENTS:
        raise ProblemError(
            f"this is not a document of gnomon: its format is {document.get('format')!r}",
            hint=f"Give what --json printed; formats: {', '.join(f'gnomon-{known}' for known in DOCUMENTS)}.",
        )
    return codec.from_json(document_record(name), document)
