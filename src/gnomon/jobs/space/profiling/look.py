"""A profile as one document: rankings with their noise, latencies, and the reliability of both."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from gnomon.core.codec import OTHERS_TOO, Must, decode, fields_of, read_json, within
from gnomon.core.strict_json import Complaints, Strict
from gnomon.errors import UsageError, system_errors
from gnomon.formats.aw_nas.config import read_aw_nas_config
from gnomon.jobs.space.document import (
    AccuracyPart,
    FailedNetwork,
    FamilyPart,
    MeasuredNetwork,
    PrimitivePart,
    SelectionDocument,
    SpaceDocument,
    ToolchainPart,
    TrainedPart,
)
from gnomon.jobs.space.profiling.estimates import (
    compare_with_twin,
    held_out,
    latest,
    method_of,
    ranking,
    seen_networks,
    toolchains_of,
    training_noise,
)
from gnomon.jobs.space.profiling.folder import (
    HINT,
    INPUT,
    MANIFEST,
    AccuracyRow,
    LatencyRow,
    read_accuracy,
    read_latency,
    read_question,
)
from gnomon.jobs.space.profiling.study import OF_SPACE, Network, Study, changed, open_study, refused, whole_name
from gnomon.spaces.unit import NetSize
from gnomon.system.files import read_regular

SELECTION = "selection.json"
"""The file of the last selection of primitives."""

_STRICT = Strict(what=SELECTION, hint="Run gnomon space select again.", most_letters=1 << 24)
_MOST_PIXELS = 1 << 16


def study_of(path: Path, blocks: Sequence[str | Path] = ()) -> Study:
    """The study that a profile was made from. UsageError if there is no profile, ProblemError if it is damaged.

    `blocks` are the files of the profile's own primitives. They are Python code that is run, so the caller must name
    them; the names in the profile are not enough.
    """
    question = read_question(path)
    asked = _checked(question)
    try:
        text = (path / INPUT).read_bytes().decode("utf-8")  # with unchanged line endings
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path / INPUT} cannot be read: {error}", hint="Give a complete profile.") from error
    if hashlib.sha256(text.encode()).hexdigest() != asked.config:
        raise changed(f"{path / INPUT}")
    if asked.numbering == OF_SPACE:
        from gnomon.jobs.space.profiling.declared import declared_study, study_of_text

        study: Study = declared_study(blocks[0]) if blocks else study_of_text(text, origin="".join(asked.blocks[:1]))
    else:
        own = read_aw_nas_config(text)[0].gnomon
        named = asked.blocks or [*own.blocks, *(end for end in (own.stem, own.head) if end is not None)]
        if named and not blocks:
            raise refused(path, (f"--blocks {shlex.quote(name)}" for name in named))
        study = open_study(
            text,
            asked.input_shape[1:],
            families=tuple(asked.families),
            numbering=asked.numbering,
            blocks=tuple(map(str, blocks)),
        )
    if any(question.get(name) != value for name, value in json.loads(json.dumps(study.question())).items()):
        raise changed(f"the blocks of {path}")
    return replace(study, images_known=bool(asked.data["digest"]))


def named_blocks(path: Path) -> tuple[str, ...]:
    """The files and functions that a profile names for its own primitives. Raises the errors of `study_of`."""
    return _checked(read_question(path)).blocks


def read_rows(path: Path, study: Study) -> tuple[list[AccuracyRow], list[LatencyRow]]:
    """The lines of both journals, but only the last line for each key.

    ProblemError for lines that are malformed or that are about networks of another study, UsageError for a file that
    cannot be read.
    """
    accuracy = list({row.key: row for row in read_accuracy(path)}.values())
    latency = list({row.key: row for row in read_latency(path)}.values())
    study.check([*accuracy, *latency])
    return accuracy, latency


def network_size(study: Study, network: Network, row: LatencyRow | None) -> NetSize:
    """A network's parameters, operations and memory, from its measured row or else from the study."""
    return study.size(network) if row is None or row.size == NetSize() else row.size


def _checked(question: Mapping[str, object]) -> _Question:
    """The question of a profile, checked. ProblemError lists all errors."""
    complaints = Complaints(what="profile", hint=HINT)
    asked: _Question = decode(_Question, question, complaints, f"{MANIFEST}: $.question")
    complaints.raise_any()
    return asked


Side = Annotated[int, within(1, _MOST_PIXELS, f"a size from 1 to {_MOST_PIXELS}")]
Texts = Mapping[str, str]
Block = Annotated[
    str,
    Must(be="an absolute path, or a function of a module", fits=lambda text: text == whole_name(text, Path())),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """The fields of a profile's question. `families` has the digests of the primitives by family."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    config: str
    numbering: str
    input_shape: tuple[Literal[1], Side, Side, Side]
    families: Annotated[Mapping[str, Texts], Must(be="digests of primitives by family", fits=bool)]
    defaults: Texts
    blocks: tuple[Block, ...]
    data: Annotated[Texts, Must(be="a name and a digest", fits=lambda data: {"name", "digest"} <= data.keys())]


def look(path: Path, method: str | None = None, blocks: Sequence[str | Path] = ()) -> SpaceDocument:
    """A profile as a document, with a method's accuracies (None: the first method's); for `blocks` see `study_of`.

    UsageError for a method that trained nothing.
    """
    study = study_of(path, blocks)
    return space_document(path, study, read_question(path)["data"]["name"], read_rows(path, study), method)


def space_document(
    path: Path,
    study: Study,
    data: str,
    rows: tuple[Sequence[AccuracyRow], Sequence[LatencyRow]],
    method: str | None = None,
) -> SpaceDocument:
    """The document of a profile whose images are named `data`, from the lines of both journals."""
    accuracy, latency = rows
    return SpaceDocument(
        profile=str(path),
        numbering=study.numbering,
        data=data,
        groups=study.layout.group_count,
        families={
            name: FamilyPart(
                primitives=tuple(PrimitivePart(name=block.name, meaning=block.meaning) for block in family.primitives),
                default=family.default_names[0],
                defaults=family.default_names if len(set(family.default_names)) > 1 else (),
                swaps=len(family.swaps()),
                networks=str(family.space.size),
            )
            for name, family in study.families.items()
        },
        accuracy=_accuracy(study, accuracy, method),
        latency=tuple(_toolchain(study, latency, name) for name in toolchains_of(latency)),
        seconds={},
        notes=(),
        pictures=(),
    )


def _accuracy(study: Study, rows: Sequence[AccuracyRow], wanted: str | None) -> AccuracyPart | None:
    try:
        method = method_of(rows, wanted)
    except UsageError:
        if wanted is not None:
            raise
        return None
    mine = [row for row in rows if row.method == method]
    seen = seen_networks(study, mine, method)
    noise = training_noise(mine)
    rankings = (ranking(family, seen, method, noise) for family in study.families.values())
    return AccuracyPart(
        method=method,
        trainings=len(mine),
        failed=_failed(mine),
        images=max((row.images for row in mine), default=0),
        noise=noise,
        cpu_seconds=sum(row.cpu_seconds for row in mine),
        imported=imported(mine),
        without_error=sum(bool(row.origin) and row.error is None and not row.reason for row in mine),
        trained=tuple(
            TrainedPart(id=row.network.id, family=row.network.family, accuracy=row.accuracy, error=row.error)
            for row in seen.values()
        ),
        rankings=tuple(ranking for ranking in rankings if ranking is not None),
    )


def _toolchain(study: Study, rows: Sequence[LatencyRow], name: str) -> ToolchainPart:
    mine = latest(rows, name)
    quantised = [row.quantised for row in mine.values() if row.quantised is not None]
    return ToolchainPart(
        toolchain=name,
        clock=next((row.clock for row in mine.values() if row.clock), ""),
        context=next((row.context for row in mine.values() if row.call_s is not None), {}),
        began_s=min((row.at_s for row in mine.values() if row.call_s is not None), default=None),
        networks=tuple(
            MeasuredNetwork(
                **fields_of(MeasuredNetwork, row) | {"size": network_size(study, study.mixed(row.primitives), row)},
                id=row.network,
                latency_s=row.call_s,
            )
            for row in mine.values()
        ),
        failed=_failed(mine.values()),
        imported=imported(mine.values()),
        compared=compare_with_twin(rows, name),
        least_quantised=min(quantised) if quantised else None,
        held_out=held_out(study, mine),
    )


def _failed(rows: Iterable[AccuracyRow | LatencyRow]) -> tuple[FailedNetwork, ...]:
    return tuple(FailedNetwork(network=row.network, reason=row.reason) for row in rows if row.reason)


def imported(rows: Iterable[AccuracyRow | LatencyRow]) -> dict[str, int]:
    """The number of rows that were imported from each file."""
    return dict(Counter(row.origin for row in rows if row.origin))


def beside(output: Path, what: str) -> Path:
    """A file next to a config with a selection: `mixed.lookup.txt` for `mixed.yaml`."""
    return output.with_name(f"{output.name.removesuffix('.yaml')}.{what}")


def read_selection(output: Path) -> SelectionDocument | None:
    """The selection that was written next to a config; None if it does not exist.

    ProblemError, with all errors, for a damaged file; UsageError for a file that cannot be read.
    """
    path = beside(output, SELECTION)
    if not path.exists():
        return None
    with system_errors(UsageError, f"{path} cannot be read", hint=_STRICT.hint):
        document = read_regular(path, _STRICT.most_letters)
    return read_json(SelectionDocument, document, _STRICT)
