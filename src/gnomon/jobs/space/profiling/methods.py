"""The methods for obtaining accuracies: the networks that are trained, their initial weights, and their epochs.

- "published": the default network of each family is trained; every one-change variant begins with the default's weights
  and is fine-tuned. Swapped layers get less training than the others, so the default looks best.
- "fair": every one-change variant is trained from scratch, for the same number of epochs, from one or more seeds.
- "balanced": networks of a balanced design for each family, and of another design over all families, are trained from
  scratch, and effects are estimated from all these networks together. Each network reveals something about every cell
  group, so variants can be told apart at a fraction of the cost of training them all.
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
"""The number of seeds from which a network is trained to estimate how much accuracy depends on the seed."""


def plan(
    name: str,
    study: Study,
    recipes: tuple[Recipe, Recipe],
    *,
    networks: int | None = None,
    seeds: int = 1,
    seed: int = 0,
) -> list[list[Training]]:
    """The trainings of one of METHODS, in rounds.

    The first recipe is for training from scratch, the second for the published method's swaps. `networks` is the number
    of networks of each family (None: as many as it has variants); each is trained from the seeds `seed` to `seed` +
    `seeds` - 1.
    """
    families = tuple(study.families.values())
    if name == PUBLISHED:
        return _published(families, recipes, seed)

    def trainings(chosen: Sequence[Network], *, at_first: bool = False) -> Iterator[Training]:
        """Trainings from scratch; with `at_first`, the first network gets enough seeds to show their effect."""
        for number, network in enumerate(chosen):
            count = max(seeds, _NOISE_SEEDS) if at_first and number == 0 else seeds
            for own in range(seed, seed + count):
                yield Training(method=name, stage="whole", network=network, recipe=recipes[0], seed=own)

    counts = {family.name: networks or len(family.swaps()) for family in families}
    wanted: list[Training] = []
    for family in families:
        # The first network shows how much accuracy depends on the seed; among variants it is the default.
        chosen = family.swaps()
        if name == "balanced":
            design = balanced_design(family.counts, counts[family.name], seed=seed)
            chosen = tuple(family.network(row) for row in design)
        wanted += trainings(chosen, at_first=True)
    if name == "balanced":
        wanted += trainings(across_families(study, max(counts.values()), seed=seed))
    return [wanted]


def across_families(study: Study, count: int, *, seed: int) -> list[Network]:
    """At most `count` networks with primitives of several families, from a balanced design over all primitives.

    Networks of one family show the effect of that family only in all cell groups together, whereas a selection across
    families needs the effect of each family in each group. Empty for a single family or cell group.
    """
    count_of_all, groups = len(study.primitives), study.layout.group_count
    alone = sum((len(family.primitives) / count_of_all) ** groups for family in study.families.values())
    if len(study.families) < 2 or groups < 2 or count < 1:
        return []
    drawn = balanced_design([count_of_all] * groups, math.ceil(count / (1 - alone)), seed=seed)
    networks = map(study.at, drawn.tolist())
    return list({n.id: n for n in networks if not n.family}.values())[:count]


def recipes(study: Study, *, epochs: int | None = None) -> tuple[Recipe, Recipe]:
    """The config's recipes for training from scratch and for fine-tuning; `epochs` replaces the epochs of the first."""
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
    """A recipe with a different number of epochs; a schedule that has an end then ends at the last epoch."""
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
