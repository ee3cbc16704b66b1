"""How a network is trained, and whether PyTorch can do it: told before anything is trained."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gnomon.core.codec import to_json
from gnomon.core.strict_json import Complaints, is_json, shown
from gnomon.formats.aw_nas.config import Augment
from gnomon.training.network import torch_package

_MOST_EPOCHS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Epochs, batch, optimiser, schedule of the learning rate, and augmentation.

    `optimizer` has a `type`, a class of torch.optim, and the class's arguments; `scheduler` one of
    torch.optim.lr_scheduler, or is None; it is stepped once an epoch. `augment` is "none", "shift" (moved by up to an
    eighth of the height, pixels that come in are black), "crop-flip" (moved so, and mirrored half of the time), or, of
    pictures that are read as they are needed, "resized-crop" (`gnomon.training.data.pictures.fitted`). The loss is the
    cross-entropy. `check` tells whether all this is valid.
    """

    epochs: int
    optimizer: Mapping[str, object] = field(
        default_factory=lambda: {"type": "SGD", "lr": 0.05, "momentum": 0.9, "weight_decay": 3e-4}
    )
    scheduler: Mapping[str, object] | None = None
    batch_size: int = 64
    augment: Augment = "none"

    def canonical(self) -> str:
        """The recipe as JSON: equal for equal recipes."""
        return json.dumps(to_json(self), sort_keys=True)


def check(recipe: Recipe, *, optimizer: str = "optimizer", scheduler: str = "scheduler") -> None:
    """ProblemError with all that is wrong with a recipe, and what is known; RuntimeMissingError without PyTorch.

    `optimizer` and `scheduler` are what errors call these parts: the keys that they were read from. Both are tried on a
    small layer: what they refuse there they would refuse in training.
    """
    complaints = Complaints(what="recipe", hint="Correct the recipe.")
    if type(recipe.epochs) is not int or not 1 <= recipe.epochs <= _MOST_EPOCHS:
        complaints.tell("epochs", f"{recipe.epochs!r} is not a number from 1 to {_MOST_EPOCHS}")
    before = len(complaints.sentences)
    _check_part(optimizer, recipe.optimizer, _optimizers(), complaints)
    if recipe.scheduler is not None:
        _check_part(scheduler, recipe.scheduler, _schedulers(), complaints)
    if len(complaints.sentences) == before:
        _try(recipe, (optimizer, scheduler), complaints)
    complaints.raise_any()


def make_optimizer(recipe: Recipe, parameters: Any) -> tuple[Any, Any]:
    """The optimiser of these parameters and its scheduler (None without one), of a checked recipe."""
    arguments = {name: value for name, value in recipe.optimizer.items() if name != "type"}
    optimizer = _optimizers()[str(recipe.optimizer["type"])](parameters, **arguments)
    if recipe.scheduler is None:
        return optimizer, None
    arguments = {name: value for name, value in recipe.scheduler.items() if name != "type"}
    return optimizer, _schedulers()[str(recipe.scheduler["type"])](optimizer, **arguments)


def _optimizers() -> dict[str, type[Any]]:
    return _classes(torch_package().optim, torch_package().optim.Optimizer)


def _schedulers() -> dict[str, type[Any]]:
    scheduler = torch_package().optim.lr_scheduler
    return _classes(scheduler, scheduler.LRScheduler)


def _classes(module: Any, base: type) -> dict[str, type[Any]]:
    """The public classes of a module that are really below the base."""
    return {
        name: value
        for name, value in sorted(vars(module).items())
        if inspect.isclass(value) and issubclass(value, base) and value is not base and not name.startswith("_")
    }


def _check_part(place: str, part: object, classes: Mapping[str, type[Any]], complaints: Complaints) -> None:
    """The type is known, and its arguments are plain values; whether it takes them PyTorch knows."""
    kind = part.get("type") if isinstance(part, Mapping) else part
    if not isinstance(part, Mapping) or not isinstance(kind, str) or kind not in classes:
        complaints.tell(f"{place}.type", f"{shown(kind)} is not one of {', '.join(classes)}")
    elif not is_json(dict(part)):
        complaints.tell(place, "a value is not a number, text, true, false, null, or list of numbers")


def _try(recipe: Recipe, places: tuple[str, str], complaints: Complaints) -> None:
    """Tells what an optimiser, and then a scheduler, refuse on a small layer."""
    torch = torch_package()
    # The layer is made of global random numbers, which are nobody's business here.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place, tried in zip(places, (replace(recipe, scheduler=None), recipe), strict=True):
            try:
                _two_steps(tried)
            except Exception as error:  # whatever a class does with arguments that it cannot use
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                complaints.tell(place, f"PyTorch refuses it: {reason[:200]}")
                return


def _two_steps(recipe: Recipe) -> None:
    """Classes that need a closure, a metric, or other shapes fail here."""
    torch = torch_package()
    layer = torch.nn.Conv2d(2, 2, 1)
    optimizer, scheduler = make_optimizer(recipe, layer.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        layer(torch.ones(1, 2, 1, 1)).sum().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
