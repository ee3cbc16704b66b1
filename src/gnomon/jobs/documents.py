"""The documents of all jobs: which there are, their JSON Schemas, and how one is read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

from gnomon import plugins
from gnomon.core import codec
from gnomon.core.schema import schema_of
from gnomon.errors import ProblemError, UsageError

DOCUMENTS: Mapping[str, str] = {
    "place": "gnomon.jobs.place.document:PlaceDocument",
    "profile": "gnomon.jobs.place.document:ProfileDocument",
    "fleet": "gnomon.jobs.place.document:FleetDocument",
    "sweep": "gnomon.jobs.place.document:SweepDocument",
    "pareto": "gnomon.jobs.pareto.document:ParetoDocument",
    "table": "gnomon.jobs.table.document:TableDocument",
    "nets": "gnomon.jobs.table.document:NetsDocument",
    "estimator-fit": "gnomon.jobs.estimator.document:FitDocument",
    "estimator-evaluation": "gnomon.jobs.estimator.document:EvaluationDocument",
    "estimator-predictions": "gnomon.jobs.estimator.document:PredictionsDocument",
    "estimator-explanation": "gnomon.jobs.estimator.document:ExplanationDocument",
    "model-prediction": "gnomon.jobs.estimator.document:ModelPredictionDocument",
    "run": "gnomon.jobs.runs.document:RunDocument",
    "brought": "gnomon.jobs.runs.document:BroughtDocument",
    "oplist": "gnomon.jobs.pareto.oplist:OplistDocument",
    "tune": "gnomon.jobs.tune.document:TuneDocument",
    "exec": "gnomon.jobs.tune.document:ExecDocument",
    "overlay-collect": "gnomon.jobs.overlay.document:CollectDocument",
    "overlay-collected": "gnomon.jobs.overlay.document:CollectedDocument",
    "overlay-analyze": "gnomon.jobs.overlay.document:AnalyzeDocument",
    "space": "gnomon.jobs.space.document:SpaceDocument",
    "space-select": "gnomon.jobs.space.document:SelectionDocument",
    "space-front": "gnomon.jobs.space.document:SpaceFrontDocument",
    "space-validate": "gnomon.jobs.space.document:ValidationDocument",
    "space-export": "gnomon.jobs.space.document:SpaceExportDocument",
    "space-primitives": "gnomon.jobs.space.document:PrimitivesDocument",
    "space-toolchains": "gnomon.jobs.space.document:ToolchainsDocument",
    "solve": "gnomon.jobs.solve.document:SolveDocument",
    "front": "gnomon.jobs.solve.document:FrontDocument",
    "stab": "gnomon.jobs.stab.document:StabDocument",
    "compare": "gnomon.jobs.compare.document:CompareDocument",
    "runs": "gnomon.jobs.runs.document:RunsDocument",
    "tables": "gnomon.jobs.table.document:TablesDocument",
    "table-diff": "gnomon.jobs.table.document:TableDiffDocument",
    "table-spaces": "gnomon.jobs.table.document:SpacesDocument",
    "table-export": "gnomon.jobs.table.document:TableExportDocument",
    "table-blocks": "gnomon.jobs.table.document:BlocksDocument",
    "estimator-export": "gnomon.jobs.estimator.document:ExportDocument",
    "estimator-suggest": "gnomon.jobs.estimator.document:SuggestDocument",
    "estimator-import": "gnomon.jobs.estimator.document:ImportDocument",
    "estimator-count": "gnomon.jobs.estimator.document:CountDocument",
    "tuned": "gnomon.jobs.tune.document:TunedDocument",
    "tuned-files": "gnomon.jobs.tune.document:TunedFilesDocument",
    "devices": "gnomon.jobs.devices.document:DevicesDocument",
    "device-added": "gnomon.jobs.devices.document:DeviceAddedDocument",
    "device-removed": "gnomon.jobs.devices.document:DeviceRemovedDocument",
    "device-cleaned": "gnomon.jobs.devices.document:DeviceCleanedDocument",
    "device-health": "gnomon.jobs.devices.document:DeviceHealthDocument",
    "runtimes": "gnomon.jobs.devices.document:RuntimesDocument",
    "serve": "gnomon.jobs.devices.document:ServeDocument",
    "suite": "gnomon.jobs.suite.document:SuiteDocument",
    "suite-compare": "gnomon.jobs.suite.document:SuiteCompareDocument",
}
"""The record of each document, by what follows "gnomon-" in its `format`."""


REPORTS: Mapping[str, str] = {
    "place": "gnomon.jobs.place.report:place_report",
    "profile": "gnomon.jobs.place.report:profile_report",
    "fleet": "gnomon.jobs.place.report:fleet_report",
    "sweep": "gnomon.jobs.place.report:sweep_report",
    "pareto": "gnomon.jobs.pareto.report:pareto_report",
    "stab": "gnomon.jobs.stab.report:stab_report",
    "table": "gnomon.jobs.table.report:table_report",
    "tables": "gnomon.jobs.table.report:tables_report",
    "table-diff": "gnomon.jobs.table.report:difference_report",
    "table-spaces": "gnomon.jobs.table.report:spaces_report",
    "table-blocks": "gnomon.jobs.table.report:blocks_report",
    "nets": "gnomon.jobs.estimator.report:measured_report",
    "estimator-fit": "gnomon.jobs.estimator.report:estimator_report",
    "estimator-evaluation": "gnomon.jobs.estimator.report:estimator_report",
    "estimator-predictions": "gnomon.jobs.estimator.report:predictions_report",
    "estimator-explanation": "gnomon.jobs.estimator.report:explanation_report",
    "model-prediction": "gnomon.jobs.estimator.report:model_report",
    "oplist": "gnomon.jobs.pareto.report:oplist_report",
    "space": "gnomon.jobs.space.report:profile_report",
    "space-select": "gnomon.jobs.space.report:selection_report",
    "space-front": "gnomon.jobs.space.report:front_report",
    "space-validate": "gnomon.jobs.space.report:validation_report",
    "space-export": "gnomon.jobs.space.report:exported_report",
    "space-primitives": "gnomon.jobs.space.report:primitives_report",
    "space-toolchains": "gnomon.jobs.space.report:toolchains_report",
    "tune": "gnomon.jobs.tune.report:tune_report",
    "exec": "gnomon.jobs.tune.report:exec_report",
    "overlay-analyze": "gnomon.jobs.overlay.report:analyze_report",
    "overlay-collect": "gnomon.jobs.overlay.report:collect_report",
    "solve": "gnomon.jobs.solve.report:solve_report",
    "front": "gnomon.jobs.solve.report:front_report",
    "compare": "gnomon.jobs.compare.report:compare_report",
    "runtimes": "gnomon.jobs.devices.report:runtimes_report",
    "devices": "gnomon.jobs.devices.report:devices_report",
    "device-added": "gnomon.jobs.devices.report:added_report",
    "device-removed": "gnomon.jobs.devices.report:removed_report",
    "device-cleaned": "gnomon.jobs.devices.report:cleaned_report",
    "device-health": "gnomon.jobs.devices.report:health_report",
    "runs": "gnomon.jobs.runs.report:runs_report",
    "brought": "gnomon.jobs.runs.report:brought_report",
    "suite": "gnomon.jobs.suite.report:suite_report",
    "suite-compare": "gnomon.jobs.suite.report:suite_compare_report",
}
"""What writes the report of each document that is told by it alone."""

_OF_RECORDS = frozenset(
    {"solve", "front", "compare", "suite", "suite-compare", "runs", "brought"}
    | {"devices", "device-added", "device-removed", "device-cleaned", "device-health", "runtimes"}
)
"""Documents whose reports take the record; others take its JSON values."""


def report_of(document: Mapping[str, Any]) -> Callable[..., None] | None:
    """What writes the report of a document: report(document, page); None where there is none for its format."""
    name = str(document.get("format")).removeprefix("gnomon-")
    found: Callable[..., None] | None = _found("reports", name)
    return partial(_of_record, found) if found is not None and name in _OF_RECORDS else found


def _of_record(report: Callable[..., None], document: Mapping[str, Any], *rest: Any, **settings: Any) -> None:
    """Write a report that takes the record. Raises what `read_document` does."""
    report(read_document(document), *rest, **settings)


def document_record(name: str) -> type[Any]:
    """The record that a document is made of; UsageError where there is none of that name."""
    found: type[Any] | None = _found("documents", name)
    if found is None:
        raise UsageError(
            f"there is no document {name!r}", hint=f"Documents: {', '.join(document_names())}.{_unusable()}"
        )
    return found


def document_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document; UsageError where there is none of that name."""
    return schema_of(document_record(name), title=f"gnomon-{name}")


def read_document(document: Mapping[str, Any]) -> Any:
    """The record of a document that a command printed, by its `format`.

    ProblemError where it is none of gnomon's, RecordError with all that does not fit where it is of another version.
    """
    try:
        record = _found("documents", str(document.get("format", "")).removeprefix("gnomon-"))
    except UsageError as error:  # of a package
        raise ProblemError(error.message, hint=error.hint) from error
    if record is None:
        raise ProblemError(
            f"this is not a document of gnomon: its format is {document.get('format')!r}",
            hint=f"Give what --json printed; formats: {', '.join(f'gnomon-{known}' for known in document_names())}."
            f"{_unusable()}",
        )
    return codec.from_json(record, document)


def document_names() -> tuple[str, ...]:
    """The names of all documents, those of jobs that packages add last, without jobs that cannot be loaded."""
    added = [job.documents for job in plugins.jobs().values() if isinstance(job, plugins.Job)]
    return tuple(dict.fromkeys((*DOCUMENTS, *(name for names in added for name in names))))


def _unusable() -> str:
    """A sentence on the jobs of packages that cannot be loaded, as one of them may have what was not found."""
    names = [name for name, job in plugins.jobs().items() if isinstance(job, UsageError)]
    return f" Without jobs that cannot be loaded ({', '.join(names)}): gnomon --help tells why." if names else ""


def _found(part: Literal["documents", "reports"], name: str) -> Any:
    """The record or the report of a document of gnomon's, or of a package's job; None where there is none.

    UsageError where a package's cannot be loaded.
    """
    if name in DOCUMENTS:
        place = (DOCUMENTS if part == "documents" else REPORTS).get(name)
        module, _, attribute = (place or "").partition(":")
        return getattr(import_module(module), attribute) if place else None
    is_record = part == "documents"
    wanted = "a dataclass" if is_record else "a function"

    def fits(found: object) -> bool:
        return isinstance(found, type) and is_dataclass(found) if is_record else callable(found)

    for job in plugins.jobs().values():
        if isinstance(job, plugins.Job) and name in (places := getattr(job, part)):
            return plugins.at(places[name], f"what a package names as the {part[:-1]} {name}", fits, wanted)
    return None
