"""Networks that predictions are held against: trained from nothing and measured as the profile measures its own.

What `validate` and `front` train and measure goes into the profile's journals, so that it is never done again; it is
marked there as a proof, and is not evidence for a choice, a front or a lookup table unless that is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats
from gnomon.errors import UsageError
from gnomon.jobs.space.job import TrainRequest, open_trainer, trained_weights, workers_of
from gnomon.jobs.space.profiling.estimates import Known, seen_networks
from gnomon.jobs.space.profiling.folder import PROOF, AccuracyRow, ProfileFolder, read_question, settings_in
from gnomon.jobs.space.profiling.images import kept_calibration, reopened_images
from gnomon.jobs.space.profiling.measuring import Measurer
from gnomon.jobs.space.profiling.methods import recipes
from gnomon.jobs.space.profiling.study import Network, Study
from gnomon.jobs.space.profiling.training import Method, Training
from gnomon.measure.progress import Watch
from gnomon.spaces.cells.costs import kendall_tau
from gnomon.toolchains.base import Toolchain, chosen_toolchain
from gnomon.training.data.dataset import Dataset
from gnomon.training.data.streamed import Streamed
from gnomon.training.loop import check_device

_FROM_NOTHING = ("whole", "first")
_FIRST_SEED = 1000
"""Seeds that no method of a profile uses: what was trained for it is not trained the same way again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRequest(TrainRequest):
    """How networks of a profile are trained and measured to hold predictions against.

    `epochs` None: as most networks of the profile were trained, else as the config says. `blocks` are the files of own
    primitives of the profile, `data` its source of images where that is a function.
    """

    profile: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Prover:
    """A profile that is open for adding proofs. Made by `proving`."""

    asked: ProofRequest
    study: Study
    folder: ProfileFolder
    data: Dataset | Streamed
    watch: Watch | None
    tell: Callable[[str], None]

    def prove(self, networks: Sequence[Network], toolchain: str) -> Known:
        """What networks reach and what they take as a toolchain makes them, by id; what is done is not done again.

        A network whose trainings failed has no accuracy, and one that could not be measured a row with the reason.
        """
        wanted = list({network.id: network for network in networks}.values())
        rows = self.folder.latency.values()
        known = next((r for r in rows if r.toolchain == toolchain and r.call_s is not None), None)
        settings = settings_in({} if known is None else known.context)
        chain = chosen_toolchain(toolchain, settings)
        measurer = Measurer(
            folder=self.folder,
            study=self.study,
            request=self.asked.request,
            weights=trained_weights(self.folder, proof=True),
            data=self.data,
            calibration=self._calibration(chain),
            server=self.asked.server,
            proof=True,
            workers=workers_of(self.asked.workers, "cpu"),
            watch=self.watch,
            tell=self.tell,
        )
        measurer.check(chain, settings)
        self._train(wanted)
        found = measurer.run(chain, settings, wanted)
        seen = seen_networks(self.study, self.folder.accuracy.values(), PROOF)
        return {n.id: seen[n.id] for n in wanted if n.id in seen}, found

    def _train(self, networks: Sequence[Network]) -> None:
        with open_trainer(self.asked, self.folder, self.study, self.data, self.watch, self.tell) as trainer:
            trainer.run(self._trainings(networks), len(networks) * self.asked.seeds)

    def _trainings(self, networks: Sequence[Network]) -> Method:
        epochs = self.asked.epochs or epochs_of(self.folder.accuracy.values())
        first, _ = recipes(self.study, epochs=epochs)
        seed = self.study.config.gnomon.seed + _FIRST_SEED
        yield [
            Training(method=PROOF, stage="whole", network=network, recipe=first, seed=seed + k)
            for network in networks
            for k in range(self.asked.seeds)
        ]

    def _calibration(self, toolchain: Toolchain) -> NDArray[np.uint8] | None:
        """The images that the config names for calibration, as the profile's own networks saw them."""
        if toolchain.name == toolchain.runtime or self.study.config.profiler.calib_data is None:
            return None
        found = kept_calibration(self.folder.path)
        if found is None:
            raise UsageError(
                f"{self.folder.path} does not hold the images for calibration that its config names",
                hint="Repeat the command that made it, which keeps a copy of them from now on.",
            )
        return found


@contextmanager
def proving(asked: ProofRequest, study: Study, *, watch: Watch | None, tell: Callable[[str], None]) -> Iterator[Prover]:
    """A profile of a study, open for adding proofs. UsageError where its images are not what they were."""
    question = read_question(asked.profile)
    if not question["data"]["digest"]:
        raise UsageError(
            f"{asked.profile} was made of tables alone: nothing is known of the images",
            hint="Make a profile of the config with --accuracy none --no-latency, and import the tables into that.",
        )
    if asked.cluster is None:
        check_device(asked.training_device)
    data = reopened_images(
        study.config.gnomon, question["data"], asked.data, classes=study.config.classes, download=asked.download
    )
    folder = ProfileFolder(asked.profile, question, study.text)
    try:
        study.check([*folder.accuracy.values(), *folder.latency.values()])
        yield Prover(asked=asked, study=study, folder=folder, data=data, watch=watch, tell=tell)
    finally:
        folder.close()


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


def inside(measured: Floats, believed: tuple[Floats, Floats, Floats], errors: Floats) -> float:
    """The share of measured values within the 95 % interval of what one more measurement of such a network shows.

    It is as wide as what is believed (low, middle, high) and the standard error of the measured value itself together.
    """
    low, middle, high = believed
    reach = np.where(measured < middle, middle - low, high - middle)
    return float((np.abs(measured - middle) <= np.hypot(reach, 1.96 * errors)).mean())


def tau(predicted: Floats, measured: Floats) -> float | None:
    """Kendall's tau of predicted and measured values; None for one alone."""
    return kendall_tau(predicted, measured) if len(measured) > 1 else None


def with_proofs(evidence: Known, proofs: Known) -> Known:
    """Evidence with what was measured for a proof beside it, which goes before of the same network."""
    timed = {name: row for name, row in proofs[1].items() if row.call_s is not None}
    return {**evidence[0], **proofs[0]}, {**evidence[1], **timed}
