"""How well cheap accuracies rank networks, compared with fair training: Kendall's tau within each family.

The reference trains every one-change variant from scratch with several seeds, and takes the mean accuracy on the test
part. The published protocol, a single training of each one-change variant, and a balanced design of as many networks
are compared with it by accuracy on the validation part. The latter two are also judged by the beliefs after all
trainings of a family. Costs are shares of the images on which the reference is trained. The tau between the reference's
own halves shows how reliable it is.

    python -m benchmarks.space.ranking --images npz:silhouettes.npz --folder /tmp/ranking
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.stats import bootstrap

from benchmarks import common
from gnomon.api.options import measure_request
from gnomon.core.cost import Floats
from gnomon.jobs.space.profiling.estimates import accuracy_effects, seen_networks
from gnomon.jobs.space.profiling.folder import AccuracyRow, ProfileFolder
from gnomon.jobs.space.profiling.images import open_images
from gnomon.jobs.space.profiling.methods import plan, recipes
from gnomon.jobs.space.profiling.study import Family, Study, open_study
from gnomon.jobs.space.profiling.training import OpenProfile, TrainRequest, train
from gnomon.measure.progress import Progress
from gnomon.spaces.cells.ranks import kendall_tau
from gnomon.training.data.dataset import Dataset

CONFIG = """\
search_space_cfg:
  num_cell_groups: {groups}
  cell_layout: [{layout}]
  reduce_cell_groups: [{layout}]
  shared_primitives: [{primitives}]
  cell_shared_primitives: null
weights_manager_cfg:
  num_classes: 10
  cell_group_kwargs: [{widths}]
ss_profiler_cfg:
  first_train_epochs: {epochs}
  first_train_optimizer_cfg: {{type: SGD, lr: 0.03, momentum: 0.9, nesterov: true, weight_decay: 1.0e-4}}
  first_train_scheduler_cfg: {{type: CosineAnnealingLR, T_max: {epochs}, eta_min: 0.0003}}
  finetune_epochs: 1
  finetune_optimizer_cfg: {{type: SGD, lr: 0.015, momentum: 0.9, nesterov: true, weight_decay: 1.0e-4}}
  finetune_scheduler_cfg: {{type: CosineAnnealingLR, T_max: 1, eta_min: 0.0003}}
gnomon_cfg: {{image_size: 32, batch_size: 32, validation_share: {validation}, test_share: {test}}}
"""
_COUNTS = {"Mobile": 9, "Res": 9, "VGG": 13}


def config(arguments: argparse.Namespace) -> str:
    """The space: one layer per group, each of which reduces, and is twice as wide as the one before."""
    names = [f"{family}block_{k}" for family, n in _COUNTS.items() for k in range(min(n, arguments.primitives))]
    widths = [1, *(8 << k for k in range(arguments.groups))]
    return CONFIG.format(
        groups=arguments.groups,
        layout=", ".join(map(str, range(arguments.groups))),
        primitives=", ".join(names),
        widths=", ".join(f"{{C_in: {a}, C_out: {b}}}" for a, b in pairwise(widths)),
        epochs=arguments.epochs,
        validation=arguments.validation,
        test=round(1 - arguments.validation - arguments.train, 6),
    )


def main() -> int:
    """Train what the folder lacks, and print the scores."""
    parser = common.parser(__doc__)
    parser.add_argument("--images", default="mnist-5k", help="a source of images, as gnomon space profile takes it")
    parser.add_argument("--folder", type=Path, help="where trainings are kept, to go on in")
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--primitives", type=int, default=13, help="of each family at most")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--train", type=float, default=0.15, help="share of the images")
    parser.add_argument("--validation", type=float, default=0.2)
    parser.add_argument("--seeds", type=int, default=4, help="of the reference")
    parser.add_argument("--repeats", type=int, default=2, help="of each cheap way, from a seed of its own")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        common.publish(run(arguments, arguments.folder or Path(scratch) / "ranking"), arguments)
    return 0


def run(arguments: argparse.Namespace, out: Path) -> dict[str, object]:
    """Run all trainings; return the results."""
    text = config(arguments)
    study_config = open_study(text, (1, 32, 32)).config
    data = open_images(study_config.gnomon, arguments.images, classes=10)
    assert isinstance(data, Dataset)
    study = open_study(text, data.shape)
    folder = ProfileFolder(out, {**study.question(), "data": data.digest}, text)
    profile = OpenProfile(
        asked=TrainRequest(request=measure_request({}), workers=arguments.workers),
        folder=folder,
        study=study,
        data=data,
        watch=_watch if sys.stderr.isatty() else None,
        tell=lambda sentence: None,
    )
    reference = [row for seed in range(arguments.seeds) for row in trained(profile, "fair", seed)]
    ways: dict[str, list[list[AccuracyRow]]] = {}
    for repeat in range(arguments.repeats):
        seed = 100 + 10 * repeat
        ways.setdefault("published", []).append(trained(profile, "published", seed))
        ways.setdefault("one training each", []).append(trained(profile, "fair", seed))
        ways.setdefault("balanced", []).append(trained(profile, "balanced", seed))
    folder.close()
    failed = sum(bool(row.reason) for row in reference)
    parts = {"train": len(data.train), "validation": len(data.validation), "test": len(data.test)}
    return {
        "images": {"source": arguments.images, **parts},
        "reference": {"seeds": arguments.seeds, "epochs": arguments.epochs, "failed": failed},
        "families": {name: scored(study, family, reference, ways) for name, family in study.families.items()},
    }


def trained(profile: OpenProfile, name: str, seed: int) -> list[AccuracyRow]:
    """The rows of a method with this seed."""
    train(profile, plan(name, profile.study, recipes(profile.study), seed=seed))
    return [row for row in profile.folder.accuracy.values() if row.method == name and row.seed == seed]


def scored(
    study: Study, family: Family, reference: Iterable[AccuracyRow], ways: dict[str, list[list[AccuracyRow]]]
) -> dict[str, object]:
    """The tau of each way against the reference, in one family."""
    names = [n.id for n in family.swaps()]
    by_network = {name: [r.test for r in reference if r.network == name and r.test is not None] for name in names}
    kept = [name for name in names if by_network[name]]
    truth = np.array([np.mean(by_network[name]) for name in kept])
    halves = [[np.mean(by_network[name][k::2]) for name in kept if len(by_network[name]) > 1] for k in (0, 1)]
    cost = sum(r.samples for r in reference if r.network in by_network)
    found: dict[str, object] = {
        "networks": len(kept),
        "between": float(truth.std(ddof=1)),
        "within": float(np.mean([np.std(ones, ddof=1) for ones in by_network.values() if len(ones) > 1])),
        "halves_tau": kendall_tau(np.array(halves[0]), np.array(halves[1])) if len(halves[0]) > 1 else None,
    }
    for way, repeats in ways.items():
        for smooth in (False, True):
            if way == ("balanced" if not smooth else "published"):
                continue
            told = [one(study, family, rows, (kept, truth), smooth) for rows in repeats]
            mine = [[r for r in rows if study.mixed(r.primitives).family == family.name] for rows in repeats]
            found[f"{way}{', all seen together' if smooth else ''}"] = {
                "tau": [t[0] for t in told],
                "interval": [t[1] for t in told],
                "share_of_cost": [sum(r.samples for r in rows) / cost for rows in mine],
            }
    return found


def one(
    study: Study, family: Family, rows: list[AccuracyRow], reference: tuple[list[str], Floats], smooth: bool
) -> tuple[float, tuple[float, float]]:
    """The tau and its interval for one repetition."""
    names, truth = reference
    seen = seen_networks(study, rows, rows[0].method)
    if smooth:
        effects = accuracy_effects(family, seen)
        assert effects is not None
        chosen = {n.id: n.assignment for n in family.swaps()}
        values = effects.predict([chosen[name] for name in names])[0]
    else:
        values = np.array([seen[name].accuracy if name in seen else 0.0 for name in names])
    pairs, rng = (values, truth), np.random.default_rng(0)
    drawn = bootstrap(pairs, kendall_tau, paired=True, vectorized=False, n_resamples=500, method="percentile", rng=rng)
    return kendall_tau(values, truth), (float(drawn.confidence_interval.low), float(drawn.confidence_interval.high))


def _watch(progress: Progress) -> None:
    print(f"\r{progress.stage} {progress.done}/{progress.total}", end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
