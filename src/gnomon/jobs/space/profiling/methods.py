"""How accuracies are got: which networks are trained, from what, and for how long.

- "published": the default network of each family is trained; every one-change variant begins with its weights and is
  tuned. As published; swapped layers have had less training than the others, so that the default looks best.
- "fair": every one-change variant is trained from nothing, each as long as the others, from one or several seeds.
- "balanced": networks of a balanced design of each family, and of one over all families, are trained from nothing, and
  effects are found from all of them together. As each says something of every cell group, it separates the variants
  at a fraction of the cost of training them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gnomon.jobs.space.profiling.folder import PUBLISHED
from gnomon.jobs.space.profiling.study import Family, Network, Study
from gnomon.jobs.space.profiling.training import Method, Training
from gnomon.spaces.cells.effects import balanced_design
from gnomon.training.recipe import Recipe

_NOISE_SEEDS = 3
"""How often a network is trained from different seeds to see how much accuracy depends on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much is trained. `networks` is for each family, None as many as its variants; `seeds` are trainings each.

    `recipe` is for training from nothing, `finetune` for the published method's swaps.
    """

    recipe: Recipe
    finetune: Recipe
    networks: int | None = None
    seeds: int = 1
    seed: int = 0


def plan(name: str, study: Study, budget: Budget) -> tuple[Method, int]:
    """The trainings of a method, which is one of METHODS, in rounds; and how many they are."""
    families = tuple(study.families.values())
    if name == PUBLISHED:
        return _published(families, budget), sum(len(family.swaps()) for family in families)
    wanted: list[Training] = []
    for family in families:
        # How much accuracy depends on the seed is seen on the first network: of variants the default one.
        networks = family.swaps()
        if name == "balanced":
            design = balanced_design(family.counts, _networks(family, budget), seed=budget.seed)
            networks = tuple(family.network(row) for row in design)
        wanted += _trainings(name, networks, budget, at_first=True)
    if name == "balanced":
        across = across_families(study, max(_networks(family, budget) for family in families), seed=budget.seed)
        wanted += _trainings(name, across, budget)
    return _at_once(wanted), len(wanted)


def _at_once(wanted: Sequence[Training]) -> Method:
    yield wanted


def across_families(study: Study, count: int, *, seed: int) -> list[Network]:
    """So many networks of primitives of several families, from a balanced design over all primitives.

    Networks of one family tell what that family does in all cell groups together; where a selection puts families side
    by side, it has to know what each does in each group. None where there is one family, or one cell group.
    """
    count_of_all, groups = len(study.primitives), study.layout.group_count
    alone = sum((len(family.primitives) / count_of_all) ** groups for family in study.families.values())
    if len(study.families) < 2 or groups < 2 or count < 1:
        return []
    drawn = balanced_design([count_of_all] * groups, math.ceil(count / (1 - alone)), seed=seed)
    networks = map(study.at, drawn.tolist())
    return list({n.id: n for n in networks if not n.family}.values())[:count]


def recipes(study: Study, *, epochs: int | None = None) -> tuple[Recipe, Recipe]:
    """The config's recipes for training from nothing and for fine-tuning; `epochs` goes before those of the first."""
    own, profiler = study.config.gnomon, study.config.profiler
    made = []
    for training in (profiler.first_train, profiler.finetune):
        scheduler = None if training.scheduler is None else dict(training.scheduler)
        made.append(
            Recipe(
                epochs=training.epochs,
                optimizer=dict(training.optimizer),
                scheduler=scheduler,
                batch_size=own.batch_size,
                augment=own.augment,
            )
        )
    if epochs is not None:
        made[0] = _longer(made[0], epochs)
    return made[0], made[1]


def _longer(recipe: Recipe, epochs: int) -> Recipe:
    """A recipe of other epochs, whose schedule ends with them if it is one that has an end."""
    scheduler = recipe.scheduler
    if scheduler is not None and "T_max" in scheduler:
        scheduler = {**scheduler, "T_max": epochs}
    return replace(recipe, epochs=epochs, scheduler=scheduler)


def _published(families: Sequence[Family], budget: Budget) -> Method:
    defaults = {
        family.name: Training(
            method="published", stage="first", network=family.swaps()[0], recipe=budget.recipe, seed=budget.seed
        )
        for family in families
    }
    rows = yield list(defaults.values())
    trained = [family for family in families if not rows[defaults[family.name].key].reason]
    yield [
        Training(
            method="published",
            stage="finetune",
            network=network,
            recipe=budget.finetune,
            seed=budget.seed,
            begins_with=defaults[family.name],
        )
        for family in trained
        for network in family.swaps()[1:]
    ]


def _trainings(
    method: str, networks: Sequence[Network], budget: Budget, *, at_first: bool = False
) -> Iterator[Training]:
    """Trainings from nothing, from the seeds of the budget; `at_first` the first from as many as tell their noise."""
    for number, network in enumerate(networks):
        seeds = max(budget.seeds, _NOISE_SEEDS) if at_first and number == 0 else budget.seeds
        for seed in range(budget.seed, budget.seed + seeds):
            yield Training(method=method, stage="whole", network=network, recipe=budget.recipe, seed=seed)


def _networks(family: Family, budget: Budget) -> int:
    return budget.networks or len(family.swaps())
