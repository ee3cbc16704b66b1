"""The jobs `space import` and `space export`: the first reads other tools' networks into a profile, the second writes
a profile's networks as csv.

Each imported row has an `origin`, the name of the file that it came from.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnomon.core.codec import fields_of
from gnomon.core.strict_json import Complaints
from gnomon.errors import ProblemError, UsageError, problems_of
from gnomon.formats.aw_nas.config import config_of_tables, read_aw_nas_config
from gnomon.formats.aw_nas.tables import read_accuracies, read_latencies
from gnomon.formats.nets_csv import NetRow, read_nets, write_profiled
from gnomon.jobs.space.document import SpaceDocument, SpaceExportDocument
from gnomon.jobs.space.job import block_files, document_of, read_config, write_tables
from gnomon.jobs.space.profiling.declared import imported_study, is_declared
from gnomon.jobs.space.profiling.estimates import MOST_LEARNED, latest, method_of, seconds, seen_networks, toolchains_of
from gnomon.jobs.space.profiling.folder import (
    IMPORTED,
    METHODS,
    AccuracyRow,
    LatencyRow,
    check_context,
    is_name,
    is_profile,
    read_question,
)
from gnomon.jobs.space.profiling.look import named_blocks, network_size, read_rows, study_of
from gnomon.jobs.space.profiling.study import Network, Study, open_study
from gnomon.jobs.space.profiling.training import open_folder
from gnomon.spaces.cells.primitives import NUMBERINGS
from gnomon.spaces.cells.space import parse_id
from gnomon.spaces.loading import SearchSpace, known_spaces, load_space, text_reader
from gnomon.spaces.unit import NetSize
from gnomon.system.files import read_file, save_text

_MANY = f"The effects of primitives are estimated from {MOST_LEARNED} of the networks, drawn at random."
_SIDE = 32
"""The height and width assumed for images of unknown size; only shapes depend on them."""
_DIGITS = 12
_METHODS = f"Methods: {', '.join((*METHODS, IMPORTED))}."
_MOST_PRIMITIVES = 1000
_GUESSED = (
    "without --config, the numbers in an id are read as the numbers of primitives: Mobile_1_1_3 has Mobileblock_1 and "
    "Mobileblock_3; give --config if the config lists only some primitives of the family"
)
_HINT = "Give an accuracy_table.yaml, a latency_table.yaml, or a csv file in the format of gnomon space export."


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file to import: its name, its digest, and its bytes or, for a table, its values by network."""

    name: str
    digest: str
    csv: bytes = b""
    table: Mapping[str, float] = field(default_factory=dict)
    accuracies: bool = False


def import_networks(
    paths: Sequence[Path],
    profile: Path,
    *,
    config: Path | None = None,
    numbering: str | None = None,
    blocks: Sequence[str] = (),
    trust_config: bool = False,
    method: str | None = None,
    toolchain: str | None = None,
) -> SpaceDocument:
    """Import networks from files into an existing or a new profile; repeating the call changes nothing.

    A new profile needs a `config` unless all files are tables, whose network ids show the families and the cell groups.
    `numbering` and `blocks` take precedence over the config; Python files that the config names are run only with
    `trust_config`. Accuracies count as results of `method`, and latencies as results of `toolchain`. If either is None,
    the file's own name applies, or else "imported".

    UsageError for files of other kinds, for a config that is missing or differs from the profile's, and for accuracies
    or latencies that were obtained differently from the profile's own. ProblemError lists all errors of a file.
    """
    if method not in (None, IMPORTED, *METHODS):
        raise UsageError(f"there is no method {method!r}", hint=_METHODS)
    if toolchain is not None and not is_name(toolchain):
        raise UsageError(f"{toolchain!r} is not a valid name", hint="Use only letters, digits, _, + and -.")
    files = [_opened(path) for path in paths]
    new = not is_profile(profile)
    if new:
        study, question = _new(files, config, numbering, blocks, trust_config)
    else:
        own = blocks or (named_blocks(profile) if trust_config else ())
        study, question = study_of(profile, own), read_question(profile)
        _check_same(profile, study, config, numbering)
    space = _named_space(config)
    nets = [(file, net) for file in files for net in _nets(study, file, space)]
    accuracies, latencies = _accuracy_rows(study, nets, method), _latency_rows(study, nets, toolchain)
    if not accuracies and not latencies:
        raise UsageError(f"{_names(files)}: no network has an accuracy or a latency", hint=_HINT)
    _check_contexts(latencies)  # before a new profile is made
    with open_folder(profile, question, study) as folder:
        if method is None:
            _check_apart(profile, folder.accuracy.values(), accuracies)
        _check_contexts(latencies, folder.latency.values())
        folder.add(
            *(row for row in accuracies if row.key not in folder.accuracy),
            *(row for row in latencies if row.key not in folder.latency),
        )
        notes = (
            *((_GUESSED,) if new and config is None else ()),
            *((_MANY,) if max(len(folder.accuracy), len(folder.latency)) > MOST_LEARNED else ()),
            *_unseen(study, nets),
            *write_tables(folder, study),
        )
    return document_of(folder, study, question["data"]["name"], notes)


def export_networks(
    profile: Path, out: Path, *, method: str | None = None, blocks: Sequence[str | Path] = (), overwrite: bool = False
) -> SpaceExportDocument:
    """Write a profile's networks as csv: a row for each network and toolchain, with one method's accuracies.

    Without `method`, the first available one is used. UsageError for a profile with neither accuracies nor latencies,
    for a method that trained nothing, and, without `overwrite`, for a file that exists.
    """
    if out.exists() and not overwrite:
        raise UsageError(f"{out} already exists", hint="Give --out another path, or replace the file with --overwrite.")
    study = study_of(profile, blocks)
    accuracy, latency = read_rows(profile, study)
    trained = method is not None or any(row.validation is not None and not row.reason for row in accuracy)
    chosen = method_of(accuracy, method) if trained else ""
    seen = seen_networks(study, accuracy, chosen)

    def net(network: Network, timed: LatencyRow | None = None) -> NetRow:
        size = fields_of(NetRow, network_size(study, network, timed))
        row, own = NetRow(assignment=study.space.indices(network.primitives), **size), seen.get(network.id)
        return row if own is None else replace(row, accuracy=own.accuracy, accuracy_error=own.error, method=chosen)

    rows = [
        replace(
            net(study.mixed(row.primitives), row),
            latency_s=row.call_s,
            device=row.context.get("device", ""),
            **fields_of(NetRow, row),
        )
        for toolchain in toolchains_of(latency)
        for row in latest(latency, toolchain).values()
        if row.call_s is not None
    ]
    timed = {row.assignment for row in rows}
    rows += [untimed for s in seen.values() if (untimed := net(s.network)).assignment not in timed]
    if not rows:
        raise UsageError(f"the profile {profile} has no networks", hint="Run gnomon space profile first.")
    save_text(write_profiled(rows, study.space), out)
    return SpaceExportDocument(
        file=str(out),
        rows=len(rows),
        accuracies=sum(row.accuracy is not None for row in rows),
        latencies=sum(row.latency_s is not None for row in rows),
    )


def _opened(path: Path) -> _File:
    """The content of a file; the file's name shows its kind.

    UsageError for a file of unknown kind or one that cannot be read, ProblemError for a damaged table.
    """
    data = read_file(path, hint=_HINT)
    name, digest = path.name.encode(errors="replace").decode(), hashlib.sha256(data).hexdigest()[:_DIGITS]
    if path.suffix == ".csv":
        return _File(name=name, digest=digest, csv=data)
    for kind, read in (("accuracy", read_accuracies), ("latency", read_latencies)):
        if kind in name and path.suffix in (".yaml", ".yml"):
            with problems_of(name):
                return _File(name=name, digest=digest, table=read(data), accuracies=kind == "accuracy")
    raise UsageError(f"the name of {path} does not show what the file contains", hint=_HINT)


def _check_same(profile: Path, study: Study, config: Path | None, numbering: str | None) -> None:
    """Raise UsageError if a profile was made with a different config or numbering."""
    space = _named_space(config)
    text = imported_study(space).text if space else study.text if config is None else read_config(config)
    other = [] if text == study.text else ["another config"]
    other += [] if numbering in (None, study.numbering) else ["another numbering"]
    if other:
        raise UsageError(
            f"the profile {profile} was made with {' and '.join(other)}",
            hint="Leave out --config and --numbering, or give --profile-dir another path.",
        )


def _new(
    files: Sequence[_File], path: Path | None, numbering: str | None, blocks: Sequence[str], trust: bool
) -> tuple[Study, dict[str, Any]]:
    """A new study of the config or, without one, of the tables, and the study's question; its images are unknown."""
    if (space := _named_space(path)) is not None:
        declared = imported_study(space)
        return declared, {**declared.question(), "blocks": [], "data": {"name": "", "digest": ""}}
    text = read_config(path) if path else _made_config(files, numbering or NUMBERINGS[0])
    config, _ = read_aw_nas_config(text)
    own = block_files(blocks, path or Path(), config.gnomon, trust=trust)
    side = config.gnomon.image_size or config.gnomon.resize or _SIDE
    # With a stem, the first layer's channels are not the image's; an image then has three channels, as in aw_nas.
    channels = 3 if config.manager.stem or config.gnomon.stem else config.manager.input_channels
    study = open_study(text, (channels, side, side), numbering=numbering, blocks=own)
    return study, {**study.question(), "blocks": list(own), "data": {"name": "", "digest": ""}}


def _named_space(config: Path | None) -> SearchSpace | None:
    """The space given as FILE.py:NAME or by a known name; None for a config of aw_nas."""
    named = config is not None and (is_declared(config) or str(config) in known_spaces())
    return load_space(str(config)) if named else None


def _made_config(files: Sequence[_File], numbering: str) -> str:
    """A config for networks in tables: their families, each with all primitives up to the highest number used."""
    ids = sorted({name for file in files for name in file.table if "+" not in name})
    if any(file.csv for file in files) or not ids:
        raise UsageError(f"{_names(files)}: the search space is unknown", hint="Give the space: --config FILE.")
    # A family's name may end in numbers; a network's id ends in at least as many numbers as it has cell groups.
    groups = min(len(re.findall(r"_[0-9]+(?=_|$)", name)) for name in ids)
    families: dict[str, list[tuple[int, ...]]] = {}
    for name in ids:
        family, assignment = parse_id(name, groups)
        families.setdefault(family, []).append(assignment)
    counts = {name: max(map(max, ones)) + 1 for name, ones in families.items()}
    if sum(counts.values()) > _MOST_PRIMITIVES:
        raise ProblemError(
            f"{_names(files)}: {sum(counts.values())} primitives are more than the limit of {_MOST_PRIMITIVES}",
            hint="Give the config of the space: --config FILE.",
        )
    primitives = [f"{name}block_{k}" for name, count in counts.items() for k in range(count)]
    defaults = {name: f"{name}block_{k}" for name, ones in families.items() if (k := _default(ones)) is not None}
    return config_of_tables(primitives, groups, numbering=numbering, defaults=defaults)


def _default(ones: Sequence[tuple[int, ...]]) -> int | None:
    """The primitive that each network has in all cell groups, or in all but one; None unless it is unique."""
    able = [k for k in set(ones[0]) if all(row.count(k) >= len(row) - 1 for row in ones)]
    return able[0] if len(able) == 1 < len(ones[0]) else None


def _nets(study: Study, file: _File, space: SearchSpace | None) -> list[NetRow]:
    """The networks in a file, as indices in the space of all primitives. ProblemError lists all errors."""
    with problems_of(file.name):
        if file.csv:
            if space is None:
                return list(read_nets(file.csv, study.space, profiled=True))
            return list(read_nets(file.csv, space.space, text_reader(space), profiled=True))  # by the space's own names
        complaints = Complaints(what="table", hint="Give the config that the table was made from: --config FILE.")
        rows = []
        for name, value in file.table.items():
            try:
                assignment = study.space.indices(_network(study, name).primitives)
            except ProblemError as error:
                complaints.tell(name[:60], error.message)
                continue
            row = NetRow(assignment=assignment)
            rows.append(replace(row, accuracy=value) if file.accuracies else replace(row, latency_s=seconds(value)))
        complaints.raise_any()
        return rows


def _network(study: Study, name: str) -> Network:
    """The network with this id. ProblemError if the study has no such network."""
    if "+" in name:
        return study.mixed(name.split("+"))
    family, assignment = parse_id(name, study.layout.group_count)
    own = study.families.get(family)
    if own is None:
        raise ProblemError(f"the config has no family {family}")
    if any(place >= count for place, count in zip(assignment, own.counts, strict=True)):
        raise ProblemError(f"the config has only {len(own.primitives)} primitives of {family}, numbered from 0")
    return own.network(assignment)


def _accuracy_rows(study: Study, nets: Sequence[tuple[_File, NetRow]], wanted: str | None) -> list[AccuracyRow]:
    rows: dict[str, AccuracyRow] = {}
    for file, net in nets:
        if net.accuracy is None:
            continue
        network, method = study.at(net.assignment), wanted or net.method or IMPORTED
        if method not in (*METHODS, IMPORTED):
            raise ProblemError(f"{file.name}: there is no method {method!r}", hint=_METHODS)
        row = AccuracyRow(
            key=f"{method}/{IMPORTED}/{file.digest}/{network.id}",
            network=network.id,
            primitives=network.primitives,
            method=method,
            stage=IMPORTED,
            seed=int(file.digest, 16),  # differs from the seeds of this profile's own trainings
            validation=net.accuracy,
            error=net.accuracy_error,
            origin=file.name,
        )
        # A csv repeats a network's accuracy for each toolchain.
        if rows.setdefault(row.key, row) != row:
            raise ProblemError(f"{file.name}: {network.id} has several accuracies", hint="Keep only one of them.")
    return list(rows.values())


def _latency_rows(study: Study, nets: Sequence[tuple[_File, NetRow]], wanted: str | None) -> list[LatencyRow]:
    rows: dict[str, LatencyRow] = {}
    for file, net in nets:
        if net.latency_s is None:
            continue
        network, toolchain = study.at(net.assignment), wanted or net.toolchain or IMPORTED
        row = LatencyRow(
            **fields_of(LatencyRow, net) | {"toolchain": toolchain},
            key=f"{toolchain}/{IMPORTED}/{file.digest}/{network.id}",
            network=network.id,
            primitives=network.primitives,
            call_s=net.latency_s,
            context={**({"device": net.device} if net.device else {}), "measured": "elsewhere"},
            origin=file.name,
            size=NetSize(**fields_of(NetSize, net)),
        )
        if not (net.low_s or 0.0) <= net.latency_s <= (net.latency_s if net.high_s is None else net.high_s):
            raise ProblemError(
                f"{file.name}: the latency of {network.id} is not within its interval", hint="Correct the interval."
            )
        if rows.setdefault(row.key, row) is not row:
            raise ProblemError(
                f"{file.name}: {network.id} has several latencies by {toolchain}",
                hint="Keep one latency for each network and toolchain.",
            )
    return list(rows.values())


def _check_apart(profile: Path, trained: Iterable[AccuracyRow], accuracies: Iterable[AccuracyRow]) -> None:
    """Raise UsageError if the profile's own accuracies and the imported ones have a method in common."""
    own = {row.method for row in trained if not row.origin}
    beside = sorted(own & {row.method for row in accuracies})
    if beside:
        raise UsageError(
            f"the profile {profile} already has accuracies by the method {', '.join(beside)}",
            hint=f"To add the imported accuracies to them: --accuracy {shlex.quote(beside[0])}. To keep them apart: "
            f"--accuracy {IMPORTED}.",
        )


def _check_contexts(latencies: Sequence[LatencyRow], timed: Iterable[LatencyRow] = ()) -> None:
    """Raise UsageError if imported latencies were measured differently from existing ones or from each other."""
    rows = [*timed, *latencies]
    contexts = {(row.toolchain, tuple(sorted(row.context.items()))) for row in latencies}
    for toolchain, context in sorted(contexts):
        check_context(rows, toolchain, dict(context), hint="Give the imported latencies another --toolchain NAME")


def _unseen(study: Study, nets: Sequence[tuple[_File, NetRow]]) -> list[str]:
    """A sentence about the networks in the tables that the published rule ignores, if there are any."""
    single = {network.id for family in study.families.values() for network in family.swaps()}
    ids = {study.at(net.assignment).id for file, net in nets if file.table}
    if not ids - single:
        return []
    return [
        f"{len(ids - single)} of {len(ids)} networks differ from their family's default in several cell groups "
        f"({min(ids - single)}, ..), so the published rule ignores them. If the default is wrong, set "
        "gnomon_cfg.default_primitives in the config"
    ]


def _names(files: Iterable[_File]) -> str:
    return " and ".join(file.name for file in files)
