"""The protocol of search spaces, and how to load them: shipped spaces by name, spaces of packages by entry point, and
users' own spaces by file.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from gnomon.builtin import CONFIGS, NETS
from gnomon.core.space import Space
from gnomon.core.strict_json import shown
from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.plugins import at, is_own, loaded, named
from gnomon.spaces.features import Assignment, CountTables, Ints
from gnomon.spaces.fuse import FusionRules
from gnomon.spaces.unit import Net

GROUP = "gnomon.spaces"
_TRIES = 50
_MOST_LISTED = 1 << 20
_SWEEPS = 3
_STEEPEST = 30.0
_EXAMPLE = "space.py:space"
# The prefix of the names of modules read from users' files. An error with such a module in its traceback is the user's.
_USERS = "gnomon_space_"
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


@runtime_checkable
class SearchSpace(Protocol):
    """A set of nets: slots with choices, and the net of each assignment.

    - `name` is the name by which tables and estimators refer to the space. `space` has the slots, and `space.size` is
      the number of assignments.
    - Results depend on the arguments alone, not on a clock, a file or a random number.
    - The tables for any rules agree with `fuse(net(a), rules).counts()` for every assignment a, and list only units
      that occur in some net. Extras are further counts of the space's nets, each above 0 in some net.
    """

    @property
    def name(self) -> str:
        """A short name."""

    @property
    def space(self) -> Space:
        """The slots and their choices."""

    def net(self, assignment: Assignment) -> Net:
        """The net of an assignment, with one operator in each node. ProblemError for an assignment
        outside the space.
        """

    def tables(self, rules: FusionRules) -> CountTables:
        """All units of the space and how to count them, with operators fused by the rules. This need not write every
        net.
        """


def text_reader(space: SearchSpace) -> Callable[[str], tuple[int, ...]] | None:
    """The function that reads a net from a text, such as an architecture string of NAS-Bench-201; None if there is no
    such function.

    It is the space's method `assignment_of`, if the space has one. It raises ProblemError for a text that does not
    describe a net.
    """
    return getattr(space, "assignment_of", None)


def draw(tables: CountTables, count: int, *, seed: int, distinct: bool = True) -> Ints:
    """Assignments drawn uniformly, of shape (count, slots); with `distinct`, all nets are different.

    Slots without an effect have their first choice. The draw depends only on the seed, the space and the count.
    ProblemError if there are fewer nets than `count`.
    """
    if distinct and count > tables.nets():
        raise ProblemError(f"the space has only {tables.nets()} nets", hint="Draw fewer, or allow repetitions.")
    rng = np.random.default_rng(seed)
    radices = np.array([len(slot.choices) for slot in tables.space.slots], np.int64)
    nets = np.empty((0, len(radices)), np.int64)
    for _ in range(_TRIES):
        missing = count - len(nets)
        if not missing:
            return nets
        more = tables.canonical(rng.integers(0, radices, size=(missing + distinct * missing // 4, len(radices))))
        nets = np.concatenate([nets, more])
        if distinct:
            nets = nets[np.sort(np.unique(nets, axis=0, return_index=True)[1])]
        nets = nets[:count]
    # Nearly the whole space is wanted, so it is listed.
    if tables.space.size > _MOST_LISTED:
        raise ProblemError(f"{count} different nets could not be drawn from this space", hint="Draw fewer.")
    everything = tables.canonical(np.array([tables.space.decode(code) for code in range(tables.space.size)]))
    return rng.permutation(np.unique(everything, axis=0))[:count]


def spread(tables: CountTables, starts: Ints, values: ArrayLike, *, seed: int) -> Ints:
    """Assignments whose sums of `values` (units + extras,) range from the smallest to the largest, with one assignment
    found from each of `starts`.

    No change to a single slot makes the first assignment's sum smaller or the last assignment's sum larger. Each net
    between them is drawn with a probability that falls or grows exponentially with its sum (Gibbs sampling: Geman and
    Geman, 1984).
    """
    rng = np.random.default_rng(seed)
    nets = tables.canonical(starts).copy()
    every = np.arange(len(nets))
    deviation = float(tables.sums(nets, values).std()) or 1.0
    # The slopes are steeper towards both ends, because a step of the slope moves the sum less there.
    tilts = np.linspace(-1.0, 1.0, len(nets)) ** 3 * _STEEPEST / deviation
    if len(nets) > 1:
        tilts[[0, -1]] *= 1e6
    for _ in range(_SWEEPS):
        for slot in rng.permutation(len(tables.space.slots)):
            count = len(tables.space.slots[slot].choices)
            tried = np.repeat(nets, count, axis=0)
            tried[:, slot] = np.tile(np.arange(count), len(nets))
            weights = tables.sums(tried, values).reshape(len(nets), count) * tilts[:, None]
            drawn = rng.gumbel(size=weights.shape)
            nets[every, slot] = np.argmax(weights + drawn, axis=1)
    return tables.canonical(nets)


def known_spaces() -> tuple[str, ...]:
    """The names of all spaces, shipped or added by packages."""
    return tuple(named(GROUP))


def load_space(text: str) -> SearchSpace:
    """The space for this text: the name of a space, the path of a config or a csv of numbers, or ``file.py:attribute``.

    The attribute is a space, or a function that makes a space. While a file runs, its folder comes first on the path,
    as for a script. UsageError for an unknown name, a file that cannot be read or run, a missing attribute, or an
    object that is not a space.
    """
    if text.rpartition(":")[0].endswith(".py"):
        return _space(load_attribute(text), text)
    if text.endswith(".py"):
        raise UsageError(f"{text} does not name a space in the file", hint=f"Name the attribute too, as in {_EXAMPLE}")
    if text.endswith((".yaml", ".yml")):
        return from_aw_nas(text)
    if text.endswith(".csv"):
        return _read_by(NETS)(Path(text))
    entries = named(GROUP)
    if text not in entries:
        raise UsageError(
            f"there is no search space {text!r}",
            hint=f"Known spaces: {', '.join(entries)}. For your own, name a file and an attribute, as in {_EXAMPLE}",
        )
    entry = entries[text]
    return _shipped(entry) if is_own(entry) else _of_entry(entry)


def from_aw_nas(config: str | os.PathLike[str], *, blocks: Sequence[str] = ()) -> SearchSpace:
    """The space of an aw_nas config (docs/jobs/space.md), as a space with units to price, named after its file.

    The config's images determine the input shape. `blocks` are files with the config's own primitives, stem and head;
    their code is run. Blocks that only the config names are refused (UsageError). GnomonError for faults in the config.
    """
    return _read_by(CONFIGS)(Path(config), blocks)


def _read_by(where: str) -> Callable[..., SearchSpace]:
    """The function at this place in a module, which reads files of some kind as spaces."""
    read: Callable[..., SearchSpace] = at(where, "the reader of spaces", callable, "a function")
    return read


@functools.cache
def _shipped(entry: EntryPoint) -> SearchSpace:
    """One of gnomon's own spaces. It is made only once in a process, because it keeps the tables of its units, some of
    which take a while to make.
    """
    return _of_entry(entry)


def _of_entry(entry: EntryPoint) -> SearchSpace:
    return _space(loaded(entry, f"the search space {entry.name!r}"), entry.name)


def space_of(path: Path, name: str, given: str | None, kept: SearchSpace | None = None) -> SearchSpace:
    """The space that a file calls `name`: the `given` space, the space `kept` in the file, or a known space.

    A name in a file never runs Python code, because the origin of the file is unknown. UsageError if the name is
    unknown and no space is given, or if another space is given.
    """
    if given is None and kept is None and name not in known_spaces():
        raise UsageError(
            f"{path} belongs to the space {shown(name)}, which gnomon does not know",
            hint="Name the Python file of the space, which is then run: --space space.py:space",
        )
    loaded = kept if given is None and kept is not None else load_space(given or name)
    if loaded.name != name:
        raise UsageError(
            f"{path} belongs to the space {shown(name)}, not to {loaded.name}",
            hint="Give the file's own space with --space, or leave --space out.",
        )
    return loaded


def load_attribute(text: str) -> Any:
    """The object at ``file.py:attribute`` or ``package.module:attribute``, such as a function.

    UsageError if the object cannot be found, or if its file or module cannot be read, run or imported.
    """
    path, _, attribute = text.rpartition(":")
    module = _imported(path) if _MODULE.fullmatch(path) and not path.endswith(".py") else _run(Path(path))
    if not attribute or not hasattr(module, attribute):
        own = [name for name, value in vars(module).items() if _is_own(value, module.__name__)]
        raise UsageError(
            f"{path} has no {attribute!r}",
            hint=f"Name one of: {', '.join(own)}" if own else f"Name an attribute of the file, as in {_EXAMPLE}",
        )
    return getattr(module, attribute)


def _is_own(value: Any, module: str) -> bool:
    """Return True for a space, and for a function or class that the module itself defines."""
    if callable(value):
        return getattr(value, "__module__", "") == module
    return isinstance(value, SearchSpace)


def _imported(name: str) -> ModuleType:
    """A module of an installed package."""
    hint = "Give the path of a Python file, or install the package that has the module."
    with users_errors(f"the module {name} cannot be imported", hint):
        return importlib.import_module(name)


class _Source(SourceFileLoader):
    """A loader that always reads the file itself, and leaves no compiled file next to it.

    Python considers compiled code valid if the file's time in seconds and its length have not changed, so it might miss
    the second of two edits within a second.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _run(path: Path) -> ModuleType:
    """The module of a user's file."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint="Give the path of an existing Python file.")
    name = f"{_USERS}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Source(name, str(path)))
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file", hint="Give the path of the Python file that has the space.")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    # Dataclasses of the file look up their module by name.
    sys.modules[name] = module
    sys.path.insert(0, folder)
    try:
        with users_errors(f"{path} cannot be run", "Correct the file, or install a module that it lacks."):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(folder)
    return module


def users_line(error: BaseException) -> str:
    """The last line of a user's file in an error's traceback, such as "space.py, line 7"; empty without such a line."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"{error.filename}, line {error.lineno}"
    through = [
        f"{frame.f_code.co_filename}, line {line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).startswith(_USERS)
    ]
    return through[-1] if through else ""


def reason(error: BaseException) -> str:
    """The kind of an error, its message in one line, and the line of a user's file in its traceback, if any."""
    line = users_line(error)
    message = " ".join(str(error).split())[:400]  # PyTorch's messages have many lines
    return f"{type(error).__name__}: {message}" + (f" ({line})" if line else "")


@contextmanager
def users_errors(what: str, hint: str, kind: type[GnomonError] = UsageError) -> Iterator[None]:
    """Turn any error of a user's code in the block into this kind of error, which names the failure and the line."""
    try:
        yield
    except GnomonError:
        raise
    except (Exception, SystemExit) as error:  # a user's code may raise any error
        raise kind(f"{what}: {reason(error)}", hint=hint) from error


def called(function: Callable[[], Any], text: str, hint: str = "") -> Any:
    """The result of a user's function. UsageError, with `hint` at the end of its hint, if the function fails."""
    with users_errors(f"{text} cannot be called", f"It is called without arguments.{hint}"):
        return function()


def _space(target: Any, text: str) -> SearchSpace:
    """The space itself, or the result of a function or class that makes one."""
    if isinstance(target, type) or (callable(target) and not isinstance(target, SearchSpace)):
        target = called(target, text)
    if not isinstance(target, SearchSpace):
        raise UsageError(
            f"{text} is not a search space but a {type(target).__name__}",
            hint="Make a gnomon.spaces.BlockSpace, or any object with name, space, net and tables.",
        )
    return target
