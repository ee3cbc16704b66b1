"""The documents of all jobs: which there are, their JSON Schemas, and how one is read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

from gnomon import plugins
from gnomon.core import codec
from gnomon.errors import ProblemError, UsageError

DOCUMENTS: Mapping[str, tuple[str, str]] = {
    "place": ("place.document:PlaceDocument", "place.report:place_report"),
    "profile": ("place.document:ProfileDocument", "place.report:profile_report"),
    "fleet": ("place.document:FleetDocument", "place.report:fleet_report"),
    "sweep": ("place.document:SweepDocument", "place.report:sweep_report"),
    "pareto": ("pareto.document:ParetoDocument", "pareto.report:pareto_report"),
    "table": ("table.document:TableDocument", "table.report:table_report"),
    "nets": ("table.document:NetsDocument", "estimator.report:measured_report"),
    "estimator-fit": ("estimator.document:FitDocument", "estimator.report:estimator_report"),
    "estimator-evaluation": ("estimator.document:EvaluationDocument", "estimator.report:estimator_report"),
    "estimator-predictions": ("estimator.document:PredictionsDocument", "estimator.report:predictions_report"),
    "estimator-explanation": ("estimator.document:ExplanationDocument", "estimator.report:explanation_report"),
    "model-prediction": ("estimator.document:ModelPredictionDocument", "estimator.report:model_report"),
    "run": ("runs.document:RunDocument", ""),
    "brought": ("runs.document:BroughtDocument", "runs.report:brought_report"),
    "oplist": ("pareto.oplist:OplistDocument", "pareto.oplist_report:oplist_report"),
    "tune": ("tune.document:TuneDocument", "tune.report:tune_report"),
    "exec": ("tune.document:ExecDocument", "tune.report:exec_report"),
    "overlay-collect": ("overlay.document:CollectDocument", "overlay.report:collect_report"),
    "overlay-collected": ("overlay.document:CollectedDocument", ""),
    "overlay-analyze": ("overlay.document:AnalyzeDocument", "overlay.report:analyze_report"),
    "space": ("space.document:SpaceDocument", "space.report:profile_report"),
    "space-select": ("space.document:SelectionDocument", "space.report:selection_report"),
    "space-front": ("space.document:SpaceFrontDocument", "space.report:front_report"),
    "space-validate": ("space.document:ValidationDocument", "space.report:validation_report"),
    "space-export": ("space.document:SpaceExportDocument", "space.report:exported_report"),
    "space-primitives": ("space.document:PrimitivesDocument", "space.report:primitives_report"),
    "space-toolchains": ("space.document:ToolchainsDocument", "space.report:toolchains_report"),
    "solve": ("solve.document:SolveDocument", "solve.report:solve_report"),
    "front": ("solve.document:FrontDocument", "solve.report:front_report"),
    "stab": ("stab.document:StabDocument", "stab.report:stab_report"),
    "compare": ("compare.document:CompareDocument", "compare.report:compare_report"),
    "runs": ("runs.document:RunsDocument", "runs.report:runs_report"),
    "tables": ("table.document:TablesDocument", "table.report:tables_report"),
    "table-diff": ("table.document:TableDiffDocument", "table.report:difference_report"),
    "table-spaces": ("table.document:SpacesDocument", "table.report:spaces_report"),
    "table-export": ("table.document:TableExportDocument", "table.report:exported_report"),
    "table-blocks": ("table.document:BlocksDocument", "table.report:blocks_report"),
    "estimator-export": ("estimator.document:ExportDocument", "estimator.report:file_report"),
    "estimator-suggest": ("estimator.document:SuggestDocument", "estimator.report:suggested_report"),
    "estimator-import": ("estimator.document:ImportDocument", "estimator.report:imported_report"),
    "estimator-count": ("estimator.document:CountDocument", "estimator.report:file_report"),
    "tuned": ("tune.document:TunedDocument", ""),
    "tuned-files": ("tune.document:TunedFilesDocument", "tune.report:view_report"),
    "devices": ("devices.document:DevicesDocument", "devices.report:devices_report"),
    "device-added": ("devices.document:DeviceAddedDocument", "devices.report:added_report"),
    "device-removed": ("devices.document:DeviceRemovedDocument", "devices.report:removed_report"),
    "device-cleaned": ("devices.document:DeviceCleanedDocument", "devices.report:cleaned_report"),
    "device-health": ("devices.document:DeviceHealthDocument", "devices.report:health_report"),
    "runtimes": ("devices.document:RuntimesDocument", "devices.report:runtimes_report"),
    "serve": ("devices.document:ServeDocument", ""),
    "suite": ("suite.document:SuiteDocument", "suite.report:suite_report"),
    "suite-compare": ("suite.document:SuiteCompareDocument", "suite.report:suite_compare_report"),
}
"""By what follows "gnomon-" in a document's `format`, its record, and what writes its report ("": its command does so
by itself): "module:attribute", below `gnomon.jobs`.
"""

_OF_RECORDS = frozenset(
    {"place", "profile", "fleet", "sweep", "pareto", "oplist", "stab"}
    | {"solve", "front", "compare", "suite", "suite-compare", "runs", "brought"}
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
    return codec.schema_of(document_record(name), title=f"gnomon-{name}")


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
        module, _, attribute = DOCUMENTS[name][part == "reports"].partition(":")
        return getattr(import_module(f"gnomon.jobs.{module}"), attribute) if module else None
    is_record = part == "documents"
    wanted = "a dataclass" if is_record else "a function"

    def fits(found: object) -> bool:
        return isinstance(found, type) and is_dataclass(found) if is_record else callable(found)

    for job in plugins.jobs().values():
        if isinstance(job, plugins.Job) and name in (places := getattr(job, part)):
            return plugins.at(places[name], f"what a package names as the {part[:-1]} {name}", fits, wanted)
    return None
