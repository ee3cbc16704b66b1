"""Networks that predictions are held against: trained from nothing and measured as the profile measures its own.

What `front` trains and measures goes into the profile's journals, so that it is never done again; it is
marked there as a proof, and is not evidence for a choice, a front or a lookup table unless that is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats
from gnomon.errors import UsageError
from gnomon.jobs.space.profiling.estimates import Known, seen_networks
from gnomon.jobs.space.profiling.folder import PROOF, AccuracyRow, read_question, settings_in
from gnomon.jobs.space.profiling.images import kept_calibration, reopened_images
from gnomon.jobs.space.profiling.measuring import Measurer
from gnomon.jobs.space.profiling.methods import at_once, recipes
from gnomon.jobs.space.profiling.opened import OpenProfile, TrainRequest, open_folder
from gnomon.jobs.space.profiling.study import Network, Study
from gnomon.jobs.space.profiling.training import Training, train
from gnomon.measure.progress import Watch
from gnomon.toolchains.base import Toolchain, chosen_toolchain
from gnomon.training.loop import check_device

_FROM_NOTHING = ("whole", "first")
_FIRST_SEED = 1000
"""Seeds that no method of a profile uses: what was trained for it is not trained the same way again."""


@contextmanager
def proving(
    path: Path, asked: TrainRequest, study: Study, *, watch: Watch | None, tell: Callable[[str], None]
) -> Iterator[OpenProfile]:
    """The profile of a study, open for adding proofs. UsageError where its images are not what they were.

    Of what is asked `epochs` None is: as most networks of the profile were trained, else as the config says; `data` is
    its source of images where that is a function.
    """
    question = read_question(path)
    if not question["data"]["digest"]:
        raise UsageError(
            f"{path} was made of tables alone: nothing is known of the images",
            hint="Make a profile of the config with --accuracy none --no-latency, and import the tables into that.",
        )
    if asked.cluster is None:
        check_device(asked.training_device)
    data = reopened_images(
        study.config.gnomon,
        question["data"],
        asked.data or (question["data"]["name"] if asked.trust_config else None),
        classes=study.config.manager.num_classes,
        download=asked.download,
    )
    with open_folder(path, question, study) as folder:
        yield OpenProfile(asked=asked, folder=folder, study=study, data=data, watch=watch, tell=tell)


def prove(profile: OpenProfile, networks: Sequence[Network], toolchain: str) -> Known:
    """What networks reach and what they take as a toolchain makes them, by id; what is done is not done again.

    A network whose trainings failed has no accuracy, and one that could not be measured a row with the reason.
    """
    folder, study = profile.folder, profile.study
    wanted = list({network.id: network for network in networks}.values())
    rows = folder.latency.values()
    known = next((row for row in rows if row.toolchain == toolchain and row.call_s is not None), None)
    settings = settings_in({} if known is None else known.context)
    chain = chosen_toolchain(toolchain, settings)
    measurer = Measurer(profile=profile, calibration=_calibration(profile, chain), proof=True)
    measurer.check(chain, settings)
    first, _ = recipes(study, epochs=profile.asked.epochs or epochs_of(folder.accuracy.values()))
    seed = study.config.gnomon.seed + _FIRST_SEED
    trainings = [
        Training(method=PROOF, stage="whole", network=network, recipe=first, seed=seed + k)
        for network in wanted
        for k in range(profile.asked.seeds)
    ]
    train(profile, at_once(trainings), len(trainings))
    measured = measurer.run(chain, settings, wanted)
    seen = seen_networks(study, folder.accuracy.values(), PROOF)
    return {n.id: seen[n.id] for n in wanted if n.id in seen}, measured


def _calibration(profile: OpenProfile, toolchain: Toolchain) -> NDArray[np.uint8] | None:
    """The images that the config names for calibration, as the profile's own networks saw them."""
    if toolchain.name == toolchain.runtime or profile.study.config.profiler.calib_data is None:
        return None
    path = profile.folder.path
    images = kept_calibration(path)
    if images is None:
        raise UsageError(
            f"{path} does not hold the images for calibration that its config names",
            hint="Repeat the command that made it, which keeps a copy of them from now on.",
        )
    return images


def epochs_of(rows: Iterable[AccuracyRow]) -> int | None:
    """How long most networks of a profile were trained from nothing here, of each its longest training; None: none was.

    Networks of another length would be held against a promise that nobody made.
    """
    longest: dict[tuple[str, str, int], int] = {}
    for row in rows:
        failed = row.validation is None or bool(row.reason)
        if row.method != PROOF and row.stage in _FROM_NOTHING and row.epochs and not failed and not row.origin:
            training = row.method, row.network, row.seed
            longest[training] = max(longest.get(training, 0), row.epochs)
    most = Counter(longest.values()).most_common(1)
    return most[0][0] if most else None


def inside(measured: Floats, believed: Sequence[Floats] | Floats, errors: Floats) -> float:
    """The share of measured values within the 95 % interval of what one more measurement of such a network shows.

    It is as wide as what is believed (middle, low, high) and the standard error of the measured value itself together.
    """
    middle, low, high = believed
    reach = np.where(measured < middle, middle - low, high - middle)
    return float((np.abs(measured - middle) <= np.hypot(reach, 1.96 * errors)).mean())


def with_proofs(evidence: Known, proofs: Known) -> Known:
    """Evidence with what was measured for a proof beside it, which goes before of the same network."""
    timed = {name: row for name, row in proofs[1].items() if row.call_s is not None}
    return {**evidence[0], **proofs[0]}, {**evidence[1], **timed}
