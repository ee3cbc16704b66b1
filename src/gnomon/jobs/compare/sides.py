"""The sides of a comparison: documents of runs, which come from the results database, files, reports or packages."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from gnomon.core.sample import Campaign
from gnomon.core.strict_json import Strict
from gnomon.errors import RecordError, UsageError
from gnomon.jobs.documents import read_document
from gnomon.jobs.runs.answers import answer_of, kept_answer
from gnomon.jobs.runs.job import find_campaign, open_record
from gnomon.models.model import PACKAGE, is_package
from gnomon.report.plain import json_row, many
from gnomon.store.address import RecordAddress
from gnomon.store.base import CampaignQuery, Store
from gnomon.system.files import read_file

if TYPE_CHECKING:
    from gnomon.jobs.place.document import ColumnPart, ContenderPart, PlaceDocument, ProfileDocument

    Compared: TypeAlias = PlaceDocument | ProfileDocument
    Configuration: TypeAlias = ContenderPart | ColumnPart

_MOST_BYTES = 256 << 20
_MOST_EARLIER = 30
_STRICT = Strict(what="run's document", hint="Give the output of --json, or an HTML report.", most_letters=_MOST_BYTES)
_SCRIPT = re.compile(r"<script\b[^<>]*>", re.IGNORECASE)
_END = re.compile(r"</script>", re.IGNORECASE)
_ID = re.compile(r"\bid=[\"']gnomon-document(?:-(?P<number>\d{1,4}))?[\"']", re.IGNORECASE)
_OBJECT = re.compile(r"\s*\{")
_WITHIN = re.compile(r"(?P<path>.+)#(?P<number>[1-9]\d{0,3})")
CONFIGURATIONS = ("gnomon-place", "gnomon-profile")
"""The formats of documents that have configurations to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: its name, its document, and its Python if the runtimes of two Pythons are compared."""

    name: str
    document: Compared
    python: str | None = None

    @property
    def configurations(self) -> dict[str, Configuration]:
        """The configurations that were measured, by label."""
        return {row.label: row for row in rows_of(self.document) if row.runs.samples.process}


def rows_of(document: Compared) -> Sequence[Configuration]:
    """The configurations of a document."""
    return document.contenders if document.format == "gnomon-place" else document.columns


def model_of(named: str, record: RecordAddress | None) -> Path:
    """The path of a model, of a package, or of a run's model. GnomonError if that model is missing or has changed."""
    from gnomon.models.load import is_model, load

    if is_package(named) or is_model(named):
        return Path(named)
    model = read_side(named, record).document.model
    path = Path(model.path)
    packaged = model.format == PACKAGE
    if packaged or not path.exists() or load(path, inferred=False).graph.digest != model.sha256:
        raise UsageError(
            f"{named} cannot be measured next to a model, because its model's file is missing or has changed",
            hint="Give only model files, or only runs.",
        )
    return path


def read_side(named: str, record: RecordAddress | None) -> Side:
    """The side that `named` refers to (see `read_run`).

    GnomonError if nothing matches, or if documents of this format have no configurations to compare.
    """
    document = read_run(named, record)
    if document.format not in CONFIGURATIONS:
        raise UsageError(
            f"{named} is a document of the format {document.format!r}, which has no configurations to compare",
            hint=f"Formats with configurations: {', '.join(CONFIGURATIONS)}.",
        )
    return Side(name=named, document=document)


def read_run(named: str, record: RecordAddress | None, formats: Collection[str] | None = CONFIGURATIONS) -> Any:
    """The document of the run that `named` refers to.

    `named` may be a run's id (or its beginning, "last", or "last~1" for the run before), a file with the output of
    --json, an HTML report (report.html#2: the second run in it), a package, or a results database (its newest run). For
    "last", "last~1" and a database's newest run, only documents of these `formats` count; with None, all do.

    GnomonError if nothing matches, or if the file is not a gnomon document.
    """
    path = Path(named)
    within = _WITHIN.fullmatch(named)
    # Unlike pathlib, os.path accepts names that no file can have, such as names that are too long.
    if os.path.isdir(path):  # noqa: PTH112
        return _of_package(path, record)
    if os.path.isfile(path):  # noqa: PTH113
        return _of_file(path, formats)
    if within and os.path.isfile(within["path"]):  # noqa: PTH113
        return _of_file(Path(within["path"]), formats, int(within["number"]))
    return _of_record(named, record, formats)


def _of_file(path: Path, formats: Collection[str] | None, number: int = 1) -> Any:
    content = read_file(path, hint="Give a report, a document or a package.", most_bytes=_MOST_BYTES)
    if content.startswith(b"SQLite format 3\0"):
        return _of_record("last", path, formats)
    text = content.decode("utf-8", "replace")
    places = {} if _OBJECT.match(text) else _embedded_in(text)
    if number in places:
        text = text[places[number]]
    elif number > 1:
        raise UsageError(f"{path} has no run {number}", hint=f"It has {many(len(places), 'run')}.")
    return read_document(_STRICT.object(_STRICT.parse(text), "$"))


def _embedded_in(page: str) -> dict[int, slice]:
    """The places where `embedded` wrote documents in a page, by number; of two with one number, the first counts."""
    places: dict[int, slice] = {}
    at = 0
    # Each step continues where the last one ended, because a page may have any number of unclosed elements.
    while script := _SCRIPT.search(page, at):
        at = script.end()
        if named := _ID.search(script[0]):
            end = _END.search(page, at)
            if end is None:
                break
            places.setdefault(int(named["number"] or 1), slice(at, end.start()))
            at = end.end()
    return places


def _of_package(path: Path, record: RecordAddress | None) -> Any:
    if not (path / "plan.json").is_file():
        raise UsageError(f"{path} is not a package of gnomon: it has no plan.json")
    whole = path.resolve()
    with open_record(record) as store:
        for document in _answers(store, CONFIGURATIONS, CampaignQuery(kind="place")):
            package = getattr(document, "package", None)
            if package and "\0" not in package and Path(package).resolve() == whole:
                return document
    raise RecordError(
        f"the results database has no run that wrote {path}",
        hint=f"Name the database with --record, or measure both by turns: gnomon compare {path} OTHER",
    )


def _of_record(named: str, record: RecordAddress | None, formats: Collection[str] | None) -> Any:
    with open_record(record) as store:
        if last := re.fullmatch(r"last(?:~(\d{1,4}))?", named):
            before = int(last[1] or 0)
            campaign = next(itertools.islice(_answered(store, formats, CampaignQuery()), before, None), None)
            if campaign is None and before:
                raise RecordError(f"fewer than {before + 1} runs have an answer", hint="gnomon runs lists all runs.")
        else:
            campaign = find_campaign(store, named)
        document = None if campaign is None else answer_of(store, campaign)
    if document is None:
        raise RecordError(f"the run {named} has no answer", hint="Repeat its command with --fresh.")
    return document


def _answered(store: Store, formats: Collection[str] | None, query: CampaignQuery) -> Iterator[Campaign]:
    """The campaigns with answers in these formats, the newest first."""
    for campaign in store.query(query):
        # A damaged answer is reported when its run is named, but does not end the search here.
        with suppress(RecordError):
            document = kept_answer(store, campaign)
            if document is not None and (formats is None or str(document.get("format")) in formats):
                yield campaign


def _answers(store: Store, formats: Collection[str] | None, query: CampaignQuery) -> Iterator[Any]:
    """The documents of the answers that can be read."""
    for campaign in _answered(store, formats, query):
        with suppress(RecordError):
            yield answer_of(store, campaign)


def earlier_runs(sides: Sequence[Side], record: RecordAddress | None, *, of_models: bool = True) -> list[Side]:
    """The newest runs of each of the sides' models in the results database, without the sides themselves.

    Without `of_models`, the newest runs of other models instead.
    """
    models = dict.fromkeys(side.document.model.sha256 for side in sides)
    own = {side.document.campaign for side in sides}
    read = {side.document.format for side in sides}
    runs: list[Side] = []
    with open_record(record) as store:
        for digest in models if of_models else [None]:
            earlier = (
                Side(name=document.campaign, document=document)
                for document in _answers(store, read, CampaignQuery(model_digest=digest))
                if document.campaign not in own and (of_models or document.model.sha256 not in models)
            )
            runs += itertools.islice(earlier, _MOST_EARLIER)
    return runs


def embedded(document: Mapping[str, object], number: int = 1) -> str:
    """The HTML element that holds a page's first document, or another by `number`, so that it can be read again."""
    text = json_row(document, separators=(",", ":")).replace("<", "\\u003c")
    which = "" if number == 1 else f"-{number}"
    return f'<script type="application/json" id="gnomon-document{which}">{text}</script>'
