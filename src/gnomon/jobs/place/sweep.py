"""The same question for several sizes of a dimension, or several inputs: an answer each, and how the choice moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from gnomon.core import codec
from gnomon.errors import GnomonError
from gnomon.jobs.place.document import ErrorPart, PlaceDocument, ProfileDocument, error_part
from gnomon.report import units
from gnomon.report.answer import Answer
from gnomon.report.page import Column, Page
from gnomon.report.parts import doubts, first_warnings, listed

Kind = Literal["place", "profile"]
_FIELDS: Mapping[Kind, str] = {"place": "placement", "profile": "profile"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPart:
    """The answer for the `values` of one part, by dimension or input, or the error that ended it."""

    values: Mapping[str, str]
    placement: PlaceDocument | None = None
    profile: ProfileDocument | None = None
    error: ErrorPart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepDocument:
    """What `gnomon place` or `profile` (`kind`) answered for each of several sizes or inputs."""

    format: Literal["gnomon-sweep"]
    version: Literal[1]
    kind: Kind
    model: str
    parts: tuple[SweepPart, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The answer for the `values` of one part: its document, and the result where it was found now; or its error."""

    values: Mapping[str, str]
    document: Mapping[str, Any] | None = None
    result: Any = None
    error: GnomonError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Answer):
    """What `place` or `profile` (`kind`) found for several sizes of a dimension, or several inputs, in `seconds`."""

    kind: Kind
    model: Path
    parts: tuple[Swept, ...]
    seconds: float

    document_by = "gnomon.jobs.place.sweep:sweep_document"
    main: ClassVar[str] = "parts"

    __repr__ = Answer.__repr__

    def headline(self) -> tuple[str, str]:
        """The model, and how the choice depends on the values."""
        return self.model.name, _headline(self.document())


def sweep(
    kind: Kind,
    model: Path,
    asked: Sequence[tuple[Mapping[str, str], Callable[[], Any]]],
    tell: Callable[[str], None] | None,
) -> Sweep:
    """Ask for each part, by its values, one after the other: for a result, or the document of an earlier answer.

    A GnomonError ends its own part alone; raises the first where all end so.
    """
    began_s = time.monotonic()
    parts = []
    for number, (values, ask) in enumerate(asked, 1):
        if tell is not None:
            tell(f"{label_of(values)}: {number} of {len(asked)}")
        try:
            found = ask()
        except GnomonError as error:
            parts.append(Swept(values=values, error=error))
            continue
        known = isinstance(found, Mapping)
        document = found if known else found.document()
        parts.append(Swept(values=values, document=document, result=None if known else found))
    errors = [part.error for part in parts if part.error is not None]
    if len(errors) == len(parts):
        raise errors[0]
    return Sweep(kind=kind, model=model, parts=tuple(parts), seconds=time.monotonic() - began_s)


def label_of(values: Mapping[str, str]) -> str:
    """The values of a part as text: "seq=16, batch=1"."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def sweep_document(found: Sweep) -> dict[str, Any]:
    """All that was found, in JSON values; each answer is the document of its own job."""
    parts = [
        SweepPart(values=part.values, error=None if part.error is None else error_part(part.error))
        for part in found.parts
    ]
    document = codec.document(
        SweepDocument(
            format="gnomon-sweep",
            version=1,
            kind=found.kind,
            model=str(found.model),
            parts=tuple(parts),
            seconds=found.seconds,
        )
    )
    for made, part in zip(document["parts"], found.parts, strict=True):
        made[_FIELDS[found.kind]] = part.document
    return document


def answers_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The documents of the answers in a sweep's document; of another document itself."""
    if document["format"] != "gnomon-sweep":
        return [cast("dict[str, Any]", document)]
    return [part[_FIELDS[document["kind"]]] for part in document["parts"] if not part["error"]]


def worst_code(document: Mapping[str, Any]) -> int:
    """The exit code: that of a sweep is the highest of its parts, 0 where each has an answer."""
    return max((part["error"]["exit_code"] for part in document.get("parts", ()) if part["error"]), default=0)


def _choice(kind: Kind, answer: Mapping[str, Any]) -> tuple[str, dict[str, Any], float | None]:
    """The choice of an answer, its summary, and how many times as fast as the next it is (None: alone)."""
    if kind == "place":
        rows, chosen, against = answer["contenders"], answer["decision"]["chosen"], "against_best"
        wall = "measured"
    else:
        rows, chosen, against, wall = answer["columns"], answer["fastest"], "against_fastest", "wall"
    alive = {row["label"]: row for row in rows if row.get("failure") is None and row[wall]}
    own = alive[chosen]
    ratios = {label: row[against]["ratio"] if row[against] else 1.0 for label, row in alive.items()}
    others = [ratio / ratios[chosen] for label, ratio in ratios.items() if label != chosen]
    return chosen, own["cpu"] if answer["clock"] == "cpu" and own["cpu"] else own[wall], min(others, default=None)


def _headline(document: Mapping[str, Any]) -> str:
    field, by_choice = _FIELDS[document["kind"]], dict[str, list[str]]()
    for part in document["parts"]:
        if not part["error"]:
            by_choice.setdefault(_choice(document["kind"], part[field])[0], []).append(label_of(part["values"]))
    count = len(document["parts"])
    if len(by_choice) == 1 and len(next(iter(by_choice.values()))) == count:
        return f"{next(iter(by_choice))} for each of {count} values."
    return f"{'; '.join(f'{choice} for {listed(labels)}' for choice, labels in by_choice.items())}."


def sweep_report(document: dict[str, Any], page: Page, **settings: Any) -> None:
    """Write the report: each answer's own where all is asked for, and last a row for each."""
    from gnomon.jobs.place.report import place_report, profile_report

    kind = document["kind"]
    answers = answers_of(document)
    if not page.brief:
        for part in document["parts"]:
            if not part["error"]:
                page.heading(label_of(part["values"]))
                (place_report if kind == "place" else profile_report)(part[_FIELDS[kind]], page, **settings)
    page.headline(_headline(document))
    warnings = list({row["message"]: row for answer in answers for row in answer["doubts"]}.values())
    first_warnings(warnings, page)
    rows = []
    for part in document["parts"]:
        values = list(part["values"].values())
        if part["error"]:
            rows.append([*values, "no answer", "-", "", "-"])
            continue
        chosen, summary, ratio = _choice(kind, part[_FIELDS[kind]])
        interval = units.interval(summary["low_s"], summary["high_s"], summary["median_s"])
        rows.append([*values, chosen, units.time(summary["median_s"]), interval, units.digits(ratio) if ratio else "-"])
    columns = [Column(title=name, number=False) for name in document["parts"][0]["values"]]
    columns += [
        Column(title="choice", number=False, least=16),
        Column(title="time"),
        Column(title="[95 % interval]", number=False, least=16),
        Column(title="times as fast as the next"),
    ]
    page.table(columns, rows)
    for part in document["parts"]:
        if part["error"]:
            page.item(f"{label_of(part['values'])}: {part['error']['message']}", part["error"]["hint"])
    if page.brief:
        doubts(warnings, page)
    for answer in answers:
        if answer.get("package"):
            page.path("package", answer["package"])
    page.line(f"Elapsed: {units.duration(document['seconds'])}.", indent=2)
