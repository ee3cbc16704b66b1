"""How much of a whole space a reduced one reaches: every network of a small space is trained and measured.

For the truth, each network is trained from scratch with several seeds; its accuracy is the mean over them on the test
part, and its latency is measured on ONNX Runtime in float32. A selection sees none of that. It sees profiles, each with
a balanced design that is trained with separate seeds and judged on the validation part, and with separately measured
latencies of single swaps and of 12 mixed networks per family, as `gnomon space profile` gets them.

Reported for each selection: the share of networks kept; the share of the true hypervolume (latency and error; the
reference is the worst of all networks in both) that the kept networks reach; and the same share for random reduced
spaces with as many primitives per group. `greedy` knows the truth and shows what is possible. `seeds` shows how
reliable the truth is: it is the share of one seed's hypervolume that the front by the other seeds reaches. Target: at
most 10 % of the networks, with at least 95 % of the hypervolume.

    python -m benchmarks.space.reduced --out /tmp/reduced
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.space.whole import GOAL, Whole, at_random, described, greedy, worth
from gnomon.api.options import measure_request
from gnomon.errors import GnomonError
from gnomon.jobs.space.choosing.select import Rule, select_primitives
from gnomon.jobs.space.job import MIXED, measured_networks, trained_networks
from gnomon.jobs.space.profiling.folder import AccuracyRow, ProfileFolder
from gnomon.jobs.space.profiling.images import open_images
from gnomon.jobs.space.profiling.measuring import Measurer
from gnomon.jobs.space.profiling.methods import plan, recipes
from gnomon.jobs.space.profiling.study import Network, Study, open_study
from gnomon.jobs.space.profiling.training import OpenProfile, Training, TrainRequest, train
from gnomon.measure.progress import Progress
from gnomon.spaces.features import Ints
from gnomon.spaces.selection.pareto import ParetoOptions
from gnomon.toolchains.base import chosen_toolchain
from gnomon.training.data.dataset import Dataset

CONFIG = """\
search_space_cfg:
  num_cell_groups: 3
  cell_layout: [0, 1, 2]
  reduce_cell_groups: [0, 1, 2]
  shared_primitives: [{primitives}]
  cell_shared_primitives: null
weights_manager_cfg:
  num_classes: 10
  cell_group_kwargs: [{{C_in: 1, C_out: 8}}, {{C_in: 8, C_out: 16}}, {{C_in: 16, C_out: 32}}]
ss_profiler_cfg:
  first_train_epochs: {epochs}
  first_train_optimizer_cfg: {{type: SGD, lr: 0.03, momentum: 0.9, nesterov: true, weight_decay: 1.0e-4}}
  first_train_scheduler_cfg: {{type: CosineAnnealingLR, T_max: {epochs}, eta_min: 0.0003}}
gnomon_cfg: {{image_size: {size}, batch_size: 32, validation_share: 0.25, test_share: 0.35}}
"""
SPACES = {
    "mixed": [f"{family}block_{k}" for family in ("Mobile", "VGG") for k in range(3)],
    "one family": [f"VGGblock_{k}" for k in range(5)],
}
TOOLCHAIN, TRUTH = "onnxruntime", "truth"
RULES: dict[str, tuple[Rule, ParetoOptions]] = {
    "pareto (default)": ("pareto", ParetoOptions()),
    "published": ("published", ParetoOptions()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A space, its images, and the folder for everything that belongs to it."""

    study: Study
    text: str
    data: Dataset
    folder: Path
    arguments: argparse.Namespace

    @property
    def names(self) -> tuple[str, ...]:
        """The primitives from which each cell group chooses."""
        return tuple(self.study.primitives)

    def profile(self, name: str) -> ProfileFolder:
        """A profile of the space."""
        data = {"name": self.data.name, "digest": self.data.digest}
        question = {**self.study.question(), "blocks": [], "data": data}
        return ProfileFolder(self.folder / name, question, self.text)

    def opened(self, folder: ProfileFolder, seed: int = 0) -> OpenProfile:
        """A profile opened for training and measuring, with its own results database."""
        request = measure_request({"seed": seed, "record": self.folder / f"{folder.path.name}.sqlite"})
        return OpenProfile(
            asked=TrainRequest(request=request, workers=self.arguments.workers),
            folder=folder,
            study=self.study,
            data=self.data,
            watch=_watch if sys.stderr.isatty() else None,
            tell=lambda sentence: None,
        )

    def measure(self, folder: ProfileFolder, networks: Sequence[Network], seed: int) -> None:
        """Measure the latencies of networks into a profile."""
        measurer = Measurer(profile=self.opened(folder, seed), calibration=None)
        measurer.run(chosen_toolchain(TOOLCHAIN), {}, networks)


def main() -> int:
    """Train and measure what the folder lacks, and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, help="taken as other benchmarks take it; not needed here")
    parser.add_argument("--images", default="digits", help="a source of images, as gnomon space profile takes it")
    parser.add_argument("--size", type=int, default=16, help="height and width that they are padded to")
    parser.add_argument("--out", type=Path, help="a folder to go on in")
    parser.add_argument("--spaces", nargs="+", default=list(SPACES), choices=list(SPACES))
    parser.add_argument("--primitives", nargs="+", help="another space instead, of these primitives in each group")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3, help="of the truth")
    parser.add_argument("--profiles", type=int, default=5, help="that selections are made from, each from its own seed")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.primitives:
        SPACES["own"] = arguments.primitives
        arguments.spaces = ["own"]
    with tempfile.TemporaryDirectory() as scratch:
        out = arguments.out or Path(scratch)
        told = {name: run(name, arguments, out / name.replace(" ", "-")) for name in arguments.spaces}
        document = {"benchmark": "space_reduced", "images": arguments.images, "goal": GOAL, "spaces": told}
        text = json.dumps(document, indent=1)
        (out / "space_reduced.json").write_text(text + "\n", encoding="utf-8")
        print(text)
    return 0


def run(name: str, arguments: argparse.Namespace, out: Path) -> dict[str, object]:
    """Run everything for one space."""
    text = CONFIG.format(primitives=", ".join(SPACES[name]), epochs=arguments.epochs, size=arguments.size)
    config = open_study(text, (1, arguments.size, arguments.size)).config
    data = open_images(config.gnomon, arguments.images, classes=10)
    assert isinstance(data, Dataset)
    out.mkdir(parents=True, exist_ok=True)
    case = Case(study=open_study(text, data.shape), text=text, data=data, folder=out, arguments=arguments)
    seeds = [100 + 10 * k for k in range(arguments.profiles)]
    for seed in seeds:
        trained(case, seed)
    rows = every(case)
    # Latencies are measured last, and without interruption: nothing else here keeps the processors busy then.
    profiles = [measured(case, seed) for seed in seeds]
    whole = known(case, rows)
    return {
        "primitives": SPACES[name],
        "truth": described(whole),
        "seeds": worth(whole),
        "greedy": greedy(whole),
        "rules": {rule: judged(case, whole, profiles, rule) for rule in RULES},
    }


def trained(case: Case, seed: int) -> None:
    """The trainings of a profile with separate seeds, on the same parts of the images as all others."""
    folder = case.profile(f"profile-{seed}")
    train(case.opened(folder), plan("balanced", case.study, recipes(case.study), seed=seed))
    folder.close()


def measured(case: Case, seed: int) -> Path:
    """A profile whose networks are measured as by `gnomon space profile`."""
    folder = case.profile(f"profile-{seed}")
    networks = measured_networks(case.study, trained_networks(case.study, folder), MIXED, seed)
    case.measure(folder, networks, seed)
    folder.close()
    return folder.path


def networks_of(case: Case) -> tuple[Ints, list[Network]]:
    """All networks, and their choices."""
    choices = np.array(
        list(itertools.product(range(len(case.names)), repeat=case.study.layout.group_count)), dtype=np.intp
    )
    return choices, [case.study.mixed([case.names[k] for k in row]) for row in choices]


def every(case: Case) -> list[AccuracyRow]:
    """Every network, trained with every seed of the truth."""
    recipe, _ = recipes(case.study)
    wanted = [
        Training(method=TRUTH, stage="whole", network=network, recipe=recipe, seed=seed)
        for seed in range(case.arguments.seeds)
        for network in networks_of(case)[1]
    ]

    folder = case.profile(TRUTH)
    train(case.opened(folder), [wanted])
    folder.close()
    return [folder.accuracy[one.key] for one in wanted]


def known(case: Case, rows: Sequence[AccuracyRow]) -> Whole:
    """Every network, measured as well."""
    choices, networks = networks_of(case)
    folder = case.profile(TRUTH)
    case.measure(folder, networks, seed=1)
    folder.close()
    by_seed = {(row.network, row.seed): row.test for row in rows}
    times = {row.network: row.call_s for row in folder.latency.values()}
    accuracies = [[by_seed[n.id, seed] for n in networks] for seed in range(case.arguments.seeds)]
    latencies = [times[n.id] for n in networks]
    if None in latencies or None in itertools.chain(*accuracies):
        raise SystemExit(f"a network failed: see {folder.path}")
    return Whole(
        choices=choices, accuracies=np.array(accuracies, np.float64), latencies=np.array(latencies, np.float64)
    )


def judged(case: Case, whole: Whole, profiles: Sequence[Path], rule: str) -> dict[str, Any]:
    """A rule applied to each profile: the mean, the least and the largest result, and all results."""
    rows: list[dict[str, Any]] = []
    for number, profile in enumerate(profiles):
        try:
            chosen = select_primitives(profile, RULES[rule][0], options=RULES[rule][1])
        except GnomonError as error:
            # The published rule needs a family with enough networks, and the Pareto rule needs enough networks to be
            # left.
            rows.append({"failed": error.message})
            continue
        kept = [[case.names.index(name) for name in names] for names in chosen.groups]
        rows.append(
            {
                "networks": float(whole.inside(kept).mean()),
                "hypervolume": whole.share(kept),
                "expected": (chosen.share_kept or [None])[0],
                "random": at_random(whole, [len(own) for own in kept], seed=number),
                "groups": [list(names) for names in chosen.groups],
            }
        )
    done = [row for row in rows if "failed" not in row]
    told = {name: [row[name] for row in done] for name in ("networks", "hypervolume")}
    return {
        **{name: [float(np.mean(ones)), min(ones), max(ones)] for name, ones in told.items() if ones},
        "reached": sum(row["networks"] <= GOAL[0] and row["hypervolume"] >= GOAL[1] for row in done),
        "of": len(rows),
        "alike": _alike([row["groups"] for row in done]),
        "profiles": rows,
    }


def _alike(groups: Sequence[Sequence[Sequence[str]]]) -> float | None:
    """The mean Jaccard index of two selections."""
    sets = [{(g, name) for g, names in enumerate(one) for name in names} for one in groups]
    pairs = [len(a & b) / len(a | b) for a, b in itertools.combinations(sets, 2)]
    return float(np.mean(pairs)) if pairs else None


def _watch(progress: Progress) -> None:
    print(f"\r{progress.stage} {progress.done}/{progress.total}", end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
