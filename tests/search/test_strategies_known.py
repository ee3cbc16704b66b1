from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from tests.search.searchkit import space_of

from gnomon import plugins
from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.search import driver as registry
from gnomon.search.driver import make_strategy
from gnomon.search.simple import RandomSearch

SPACE = space_of(2, 3)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="'annealing'") as refused:
        make_strategy("annealing", SPACE)
    assert "hlps" in refused.value.hint


def test_options_reach_the_strategy_and_unknown_ones_are_refused() -> None:
    assert len(make_strategy("hlps", SPACE, samples=3).ask(4)) == 1
    with pytest.raises(UsageError, match="'samples'"):
        make_strategy("random", SPACE, samples=1)


def test_a_third_partys_strategy_comes_by_the_same_door(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        EntryPoint(name="mine", value=f"{__name__}:RandomSearch", group=registry.GROUP),
        EntryPoint(name="hlps", value=f"{__name__}:RandomSearch", group=registry.GROUP),
        EntryPoint(name="gone", value="no.such.module:Thing", group=registry.GROUP),
    ]
    own = plugins.entry_points(group=registry.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [*entries, *own])
    assert isinstance(make_strategy("mine", SPACE), RandomSearch)
    assert not isinstance(make_strategy("hlps", SPACE), RandomSearch)
    with pytest.raises(UsageError, match=r"'gone' cannot be loaded: ModuleNotFoundError") as refused:
        make_strategy("gone", SPACE)
    assert "no.such.module:Thing" in refused.value.hint


def test_without_pymoo_the_hint_is_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gnomon.search.nsga2", raising=False)
    for name in [m for m in sys.modules if m.split(".")[0] == "pymoo"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pymoo", None)
    with pytest.raises(RuntimeMissingError) as missing:
        make_strategy("nsga2", SPACE)
    assert missing.value.hint == f"{sys.executable} -m pip install 'pymoo>=0.6.1'"


def test_pymoo_is_loaded_by_those_alone_that_need_it() -> None:
    code = (
        "import sys\n"
        "from gnomon.core.space import Slot, Space\n"
        "from gnomon.search.driver import known_strategies, make_strategy\n"
        "space = Space((Slot('a', ('x', 'y')),))\n"
        "known_strategies(); make_strategy('hlps', space); make_strategy('random', space)\n"
        "print('pymoo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"
