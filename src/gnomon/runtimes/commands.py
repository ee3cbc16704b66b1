"""A declared command as a runtime: each combination of its choices is a configuration."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from gnomon.errors import UsageError
from gnomon.models.model import FORMATS
from gnomon.runtimes.base import Configuration, Probe, Runtime, Wish, environment_variants
from gnomon.runtimes.declared import FILE, Declaration
from gnomon.runtimes.whole import WholeModelRuntime, labelled
from gnomon.wire import FreshCommand

_MOST_CONFIGURATIONS = 64


class CommandRuntime(WholeModelRuntime):
    """The adapter of a declared command: a configuration for each combination of its choices."""

    driver = "command"
    wheels: tuple[str, ...] = ()

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self.name = declaration.name
        self.formats = frozenset(declaration.formats or (*FORMATS, FILE))
        self.threaded = any("{threads}" in text for text in declaration.texts)

    @property
    def probing(self) -> FreshCommand:
        """What finds the program and its version on the device."""
        options = {"command": self.declaration.spec({})}
        return {"do": "supports", "segment": {"runtime": self.driver, "model": "", "options": options}}

    def configurations(self, probe: Probe, wish: Wish) -> tuple[Configuration, ...]:
        """Each combination of the choices, in each environment."""
        choices = self.declaration.choices
        combinations = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]
        if len(combinations) > _MOST_CONFIGURATIONS:
            raise UsageError(
                f"the choices of {self.name} make {len(combinations)} configurations",
                hint=f"Declare at most {_MOST_CONFIGURATIONS}.",
            )
        return tuple(
            Configuration(
                runtime=self.name,
                name=labelled(self.name, *(f"{key}={value}" for key, value in own.items()), label),
                backends=(self.name,),
                options={"threads": wish.threads, "command": self.declaration.spec(own)},
                environment=environment,
                reported={self.name: self.name},
            )
            for label, environment in environment_variants(wish)
            for own in combinations
        )


if TYPE_CHECKING:
    _: type[Runtime] = CommandRuntime
