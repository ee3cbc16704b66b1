"""The job `space profile`: trains and measures networks of a search space, and writes tables in the published format.

A network is measured with the weights of its best training, judged by validation accuracy. See docs/jobs/space.md.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.codec import check_fields
from gnomon.core.strict_json import not_utf8
from gnomon.errors import MeasurementError, UsageError
from gnomon.formats.aw_nas.config import GnomonConfig, SpaceConfig, read_aw_nas_config
from gnomon.formats.aw_nas.tables import write_flat_table
from gnomon.jobs.space.document import SpaceDocument
from gnomon.jobs.space.profiling.declared import declared_study, is_declared
from gnomon.jobs.space.profiling.estimates import (
    latest,
    method_of,
    milliseconds,
    seen_networks,
    swap_accuracies,
    toolchains_of,
)
from gnomon.jobs.space.profiling.folder import METHODS, PROOF, ProfileFolder
from gnomon.jobs.space.profiling.images import keep_calibration, open_calibration, open_images
from gnomon.jobs.space.profiling.look import space_document
from gnomon.jobs.space.profiling.measuring import Measurer
from gnomon.jobs.space.profiling.methods import across_families, plan, recipes
from gnomon.jobs.space.profiling.study import Network, Study, given_as, open_study, refused, whole_name
from gnomon.jobs.space.profiling.training import OpenProfile, TrainRequest, open_folder, train
from gnomon.measure.progress import Watch
from gnomon.report.plain import many
from gnomon.spaces.cells.effects import balanced_design
from gnomon.system.files import read_file, save_text
from gnomon.toolchains.base import Toolchain, chosen_toolchain
from gnomon.training.data.dataset import Dataset
from gnomon.training.data.streamed import Streamed
from gnomon.training.loop import check_device
from gnomon.training.recipe import check

ACCURACIES, LATENCIES = "accuracy_table.yaml", "latency_table.yaml"

MIXED = 12
"""The default number of mixed networks measured for each family; they show whether the costs of layers add up."""

ACROSS = 2
"""How many mixed networks of several families are measured for each mixed network of a single family. They show what
each primitive costs next to primitives of other families.
"""

_DESIGNS = 50  # the most designs drawn; small spaces yield mostly one-change variants, which do not count


def write_tables(folder: ProfileFolder, study: Study) -> list[str]:
    """Write the tables from the journals, and return sentences about missing values.

    `accuracy_table.yaml` has the accuracy of each one-change variant as a share of images: measured if all variants
    were trained, and estimated otherwise. It is not written if no network was trained. `latency_table.yaml` has the
    variants' milliseconds by the first toolchain, and each other toolchain has a `latency_table.<toolchain>.yaml`.
    """
    variants = [network for family in study.families.values() for network in family.swaps()]
    notes, swaps = _accuracies(folder, study, variants), [network.id for network in variants]
    for number, toolchain in enumerate(toolchains_of(folder.latency.values())):
        rows = latest(folder.latency.values(), toolchain)
        table = {name: milliseconds(row.call_s) for name in swaps if (row := rows.get(name)) and row.call_s is not None}
        failed = [name for name in swaps if name not in table]
        if failed:
            notes.append(
                f"{toolchain}: {len(failed)} of {len(swaps)} one-change variants have no latency ({failed[0]}, ..)"
            )
        if table:
            name = f"latency_table.{toolchain}.yaml" if number else LATENCIES
            save_text(write_flat_table(table), folder.path / name, option="--profile-dir")
    return notes


def _accuracies(folder: ProfileFolder, study: Study, variants: Sequence[Network]) -> list[str]:
    try:
        method = method_of(folder.accuracy.values(), None)
    except UsageError:
        return ["no network was trained, so there is no table of accuracies"]
    seen = seen_networks(study, folder.accuracy.values(), method)
    table, _ = swap_accuracies(study, seen, variants)
    if table and all(math.isfinite(value) for value in table.values()):
        save_text(write_flat_table(table), folder.path / ACCURACIES, option="--profile-dir")
    failed = [row for row in folder.accuracy.values() if row.method == method and row.reason]
    return [f"{many(len(failed), 'training')} failed: {failed[0].network}, {failed[0].reason}"] if failed else []


def profile_space(
    given: Any,
    out: Path,
    asked: TrainRequest,
    *,
    families: Sequence[str] = (),
    numbering: str | None = None,
    method: str | None = "balanced",
    networks: int | None = None,
    toolchains: Mapping[str, Mapping[str, str]],
    mixed: int = MIXED,
    watch: Watch | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> SpaceDocument:
    """Train and measure the networks that are missing from the profile `out`; each is saved as soon as it is done.

    `given` is the path of a config, or a space in Python, as FILE.py:NAME or as an object.

    `families` are the families to consider (none: all). `numbering` and the blocks of the request take precedence over
    the config. `method` is the way to obtain accuracies (None: no accuracies); it trains `networks` networks of each
    family (None: the method's default). `toolchains` has the settings of each toolchain that measures
    the networks; without toolchains, nothing is measured. `measured_networks` chooses the networks to measure, with
    `mixed` mixed networks of each family.

    After an interruption, the same call continues where it stopped. MeasurementError if no network could be measured by
    any toolchain; trained networks are kept. All errors are GnomonErrors.
    """
    check_fields(asked)
    for name, count, least in (("networks", networks, 1), ("mixed", mixed, 0)):
        if count is not None and count < least:
            raise UsageError(f"{name} is {count}", hint=f"Give a whole number of at least {least}.")
    if method is not None and asked.cluster is None:
        check_device(asked.training_device)
    declared = declared_study(given) if is_declared(given) else None
    if declared is None:
        path = Path(given)
        text = read_config(path)
        config, _ = read_aw_nas_config(text)
        blocks = block_files(asked.blocks, path, config.gnomon, trust=asked.trust_config)
    else:
        path, config, blocks = Path(), declared.config, (declared.origin,)
    source = asked.data or (config.gnomon.data if asked.trust_config else None)
    data = open_images(config.gnomon, source, classes=config.manager.num_classes, download=asked.download)
    if declared is not None and declared.layout.input_shape[1:] != tuple(data.shape):
        raise UsageError(
            f"{data.name} has images of the shape {tuple(data.shape)}, but the space takes images of the shape "
            f"{declared.layout.input_shape[1:]}",
            hint="Change the input of the space, or give other images with --data.",
        )
    study: Study = declared or open_study(text, data.shape, families=families, numbering=numbering, blocks=blocks)
    chains = [chosen_toolchain(name, settings) for name, settings in toolchains.items()]
    if method is not None and method not in METHODS:
        raise UsageError(f"there is no method {method!r}", hint=f"Methods: {', '.join(METHODS)}.")
    trainings = recipes(study, epochs=asked.epochs)
    if method is not None:
        for name, recipe in zip(("first_train", "finetune"), trainings, strict=True):
            key = f"ss_profiler_cfg.{name}"
            check(recipe, optimizer=f"{key}_optimizer_cfg", scheduler=f"{key}_scheduler_cfg")
    question = {**study.question(), "blocks": list(blocks), "data": {"name": data.name, "digest": data.digest}}
    with open_folder(out, question, study) as folder:
        profile = OpenProfile(asked=asked, folder=folder, study=study, data=data, watch=watch, tell=tell)
        calibration = _calibration(config, path.parent, chains, data, folder.path)
        measurer = Measurer(profile=profile, calibration=calibration)
        for chain in chains:
            measurer.check(chain, toolchains[chain.name])
        start = time.monotonic()
        if method is not None:
            models = len(measured_networks(study, (), mixed, asked.request.seed)) * len(chains)
            planned = plan(method, study, trainings, networks=networks, seeds=asked.seeds, seed=config.gnomon.seed)
            train(profile, planned, models=models)
        seconds = {"train": time.monotonic() - start}
        measured = measured_networks(study, trained_networks(study, folder), mixed, asked.request.seed)
        for chain in chains:
            measurer.run(chain, toolchains[chain.name], measured)
        notes = write_tables(folder, study)
        _check_measured(folder, list(toolchains))
    notes = [*config.warnings, *data.notes, *study.notes(), *notes]
    return replace(document_of(folder, study, data.name, notes), seconds=seconds | measurer.seconds)


def document_of(folder: ProfileFolder, study: Study, data: str, notes: Sequence[str]) -> SpaceDocument:
    """The document of a profile whose images are named `data`, with notes."""
    rows = list(folder.accuracy.values()), list(folder.latency.values())
    return replace(space_document(folder.path, study, data, rows), notes=tuple(notes))


def _calibration(
    config: SpaceConfig, beside: Path, toolchains: Sequence[Toolchain], data: Dataset | Streamed, profile: Path
) -> NDArray[np.uint8] | None:
    """The images that the config names for calibration, if a toolchain needs any; the profile keeps a copy."""
    if all(toolchain.name == toolchain.runtime for toolchain in toolchains):
        return None
    images = open_calibration(config.profiler.calib_data, beside, data, config.gnomon.resize)
    keep_calibration(images, profile)
    return images


def _check_measured(folder: ProfileFolder, toolchains: Sequence[str]) -> None:
    """Raise MeasurementError if there are toolchains but none of them measured a network."""
    rows = [row for name in toolchains for row in latest(folder.latency.values(), name).values()]
    if rows and all(row.call_s is None for row in rows):
        reasons = "; ".join(dict.fromkeys(row.reason for row in rows if row.reason))
        raise MeasurementError(
            f"no network could be measured by {', '.join(toolchains)}: {many(len(rows), 'network')} failed "
            f"({reasons[:400]})",
            hint=f"Correct the cause, and repeat the command. Trained networks are kept; to list them: "
            f"gnomon space show {shlex.quote(str(folder.path))}",
        )


def read_config(path: Path) -> str:
    """The text of a config. UsageError if it cannot be read."""
    data = read_file(path, hint="Give the path of a config, or a space in Python as FILE.py:NAME.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is {not_utf8(data, error)}", hint="Save the file as UTF-8.") from error


def measured_networks(study: Study, trained: Sequence[Network], mixed: int, seed: int) -> list[Network]:
    """The one-change variants of all families, `mixed` mixed networks of each, and `ACROSS` times as many across them.

    Mixed networks that were trained are preferred to others.
    """
    networks: list[Network] = []
    several = ACROSS * mixed * len(study.families)
    for family in study.families.values():
        single = family.swaps()
        ids = {n.id for n in single}
        more = {n.id: n for n in trained if n.family == family.name and n.id not in ids}
        wanted = min(mixed, family.space.size - len(single))
        for number in range(_DESIGNS):
            if len(more) >= wanted:
                break
            drawn = (family.network(row) for row in balanced_design(family.counts, wanted, seed=seed + number))
            more |= {n.id: n for n in drawn if n.id not in ids and n.id not in more}
        networks += [*single, *list(more.values())[:wanted]]
    across = [*(n for n in trained if not n.family), *across_families(study, several, seed=seed)]
    return [*networks, *list({n.id: n for n in across}.values())[:several]]


def trained_networks(study: Study, folder: ProfileFolder) -> list[Network]:
    """The trained networks in the journal, each once, without proofs, in the order of their first lines."""
    rows = [
        row for row in folder.accuracy.values() if row.validation is not None and not row.reason and row.method != PROOF
    ]
    return list({row.network: study.mixed(row.primitives) for row in rows}.values())


def block_files(asked: Sequence[str], config: Path, own: GnomonConfig, *, trust: bool) -> tuple[str, ...]:
    """The files and functions that define blocks: the requested ones, or else the config's own, relative to its file.

    The config's stem and head are always included. Without `trust`, UsageError if the config names any file or function
    that was not requested.
    """
    ends = [end for end in (own.stem, own.head) if end is not None]
    given = [whole_name(name, Path()) for name in asked]
    named = [] if given else [whole_name(name, config.parent) for name in own.blocks]
    named += [whole_name(end, config.parent) for end in ends if given_as(end, [*given, *named]) is None]
    if named and not trust:
        raise refused(config, (f"--blocks {shlex.quote(name)}" for name in (*asked, *named)))
    return tuple(dict.fromkeys([*given, *named]))
