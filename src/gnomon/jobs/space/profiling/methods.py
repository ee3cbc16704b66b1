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
from dataclasses import replace

from gnomon.core.codec import fields_of
from gnomon.jobs.space.profiling.folder import PUBLISHED
from gnomon.jobs.space.profiling.study import Family, Network, Study
from gnomon.jobs.space.profiling.training import Training
from gnomon.spaces.cells.effects import balanced_design
from gnomon.training.recipe import Recipe

_NOISE_SEEDS = 3
"""How often a network is trained from different seeds to see how much accuracy depends on them."""


def plan(
    name: str,
    study: Study,
    recipes: tuple[Recipe, Recipe],
    *,
    networks: int | None = None,
    seeds: int = 1,
    seed: int = 0,
) -> list[list[Training]]:
    """The trainings of a method, which is one of METHODS, in rounds.

    The first recipe is for training from nothing, the second for the published method's swaps. `networks` are those of
    each family (None: as many as its variants), trained from so many `seeds` each, the first of them `seed`.
    """
    families = tuple(study.families.values())
    if name == PUBLISHED:
        return _published(families, recipes, seed)

    def trainings(chosen: Sequence[Network], *, at_first: bool = False) -> Iterator[Training]:
        """Trainings from nothing; `at_first` the first network from as many seeds as tell their noise."""
        for number, network in enumerate(chosen):
            count = max(seeds, _NOISE_SEEDS) if at_first and number == 0 else seeds
            for own in range(seed, seed + count):
                yield Training(method=name, stage="whole", network=network, recipe=recipes[0], seed=own)

    counts = {family.name: networks or len(family.swaps()) for family in families}
    wanted: list[Training] = []
    for family in families:
        # How much accuracy depends on the seed is seen on the first network: of variants the default one.
        chosen = family.swaps()
        if name == "balanced":
            design = balanced_design(family.counts, counts[family.name], seed=seed)
            chosen = tuple(family.network(row) for row in design)
        wanted += trainings(chosen, at_first=True)
    if name == "balanced":
        wanted += trainings(across_families(study, max(counts.values()), seed=seed))
    return [wanted]


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
    first = Recipe(
        epochs=profiler.first_train_epochs,
        optimizer=profiler.first_train_optimizer_cfg,
        scheduler=profiler.first_train_scheduler_cfg,
        **fields_of(Recipe, own),
    )
    finetune = replace(
        first,
        epochs=profiler.finetune_epochs,
        optimizer=profiler.finetune_optimizer_cfg,
        scheduler=profiler.finetune_scheduler_cfg,
    )
    return first if epochs is None else _longer(first, epochs), finetune


def _longer(recipe: Recipe, epochs: int) -> Recipe:
    """A recipe of other epochs, whose schedule ends with them if it is one that has an end."""
    scheduler = recipe.scheduler
    if scheduler is not None and "T_max" in scheduler:
        scheduler = {**scheduler, "T_max": epochs}
    return replace(recipe, epochs=epochs, scheduler=scheduler)


def _published(families: Sequence[Family], recipes: tuple[Recipe, Recipe], seed: int) -> list[list[Training]]:
    first = Training(method=PUBLISHED, stage="first", network=families[0].swaps()[0], recipe=recipes[0], seed=seed)
    defaults = [replace(first, network=family.swaps()[0]) for family in families]
    tuned = [
        replace(default, stage="finetune", network=network, recipe=recipes[1], begins_with=default)
        for family, default in zip(families, defaults, strict=True)
        for network in family.swaps()[1:]
    ]
    return [defaults, tuned]
