"""The recipe for training a network, and a check before training that PyTorch can follow it."""

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

    `optimizer` has a `type`, the name of a class in torch.optim, and that class's arguments. `scheduler` describes a
    class in torch.optim.lr_scheduler in the same way, or is None; it is stepped once per epoch. `augment` is "none",
    "shift" (images are moved by up to an eighth of the height, with a black border), "crop-flip" (also mirrored half of
    the time), or, for pictures that are read as needed, "resized-crop" (`gnomon.training.data.pictures.fitted`). The
    loss is the cross-entropy. `check` raises an error for an invalid number of epochs, optimiser or scheduler.
    """

    epochs: int
    optimizer: Mapping[str, object] = field(
        default_factory=lambda: {"type": "SGD", "lr": 0.05, "momentum": 0.9, "weight_decay": 3e-4}
    )
    scheduler: Mapping[str, object] | None = None
    batch_size: int = 64
    augment: Augment = "none"

    def canonical(self) -> str:
        """The recipe as JSON text; equal recipes give equal texts."""
        return json.dumps(to_json(self), sort_keys=True)


def check(recipe: Recipe, *, optimizer: str = "optimizer", scheduler: str = "scheduler") -> None:
    """Raise ProblemError with all errors in a recipe and the allowed values, or RuntimeMissingError without PyTorch.

    `optimizer` and `scheduler` are the names of these parts in messages: the keys from which they were read. Both parts
    are tried on a small layer, because an error there would also occur in training.
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
    """The optimiser for these parameters and its scheduler (None without one), for a checked recipe."""
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
    """The public classes of a module that are proper subclasses of the base."""
    return {
        name: value
        for name, value in sorted(vars(module).items())
        if inspect.isclass(value) and issubclass(value, base) and value is not base and not name.startswith("_")
    }


def _check_part(place: str, part: object, classes: Mapping[str, type[Any]], complaints: Complaints) -> None:
    """Check that the type is known and its arguments are plain values; PyTorch itself checks whether they are valid."""
    kind = part.get("type") if isinstance(part, Mapping) else part
    if not isinstance(part, Mapping) or not isinstance(kind, str) or kind not in classes:
        complaints.tell(f"{place}.type", f"{shown(kind)} is not one of {', '.join(classes)}")
    elif not is_json(dict(part)):
        complaints.tell(place, "a value is not a number, text, true, false, null, or list of numbers")


def _try(recipe: Recipe, places: tuple[str, str], complaints: Complaints) -> None:
    """Add a complaint if the optimiser alone, or else the optimiser with its scheduler, fails on a small layer."""
    torch = torch_package()
    # Creating the layer draws global random numbers, but the generator's state must not change here.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place, tried in zip(places, (replace(recipe, scheduler=None), recipe), strict=True):
            try:
                _two_steps(tried)
            except Exception as error:  # a class may raise anything for unsuitable arguments
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                complaints.tell(place, f"PyTorch refuses it: {reason[:200]}")
                return


def _two_steps(recipe: Recipe) -> None:
    """Take two training steps; classes that need a closure, a metric, or other shapes fail here."""
    torch = torch_package()
    layer = torch.nn.Conv2d(2, 2, 1)
    optimizer, scheduler = make_optimizer(recipe, layer.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        layer(torch.ones(1, 2, 1, 1)).sum().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
