"""What is asked becomes words that the command line reads back as the same; else it is refused."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.api.place import pareto_request
from gnomon.cli.commands.pareto import _asked as read
from gnomon.cli.commands.pareto import pareto
from gnomon.errors import UsageError
from gnomon.jobs.pareto.records import ParetoRequest
from gnomon.jobs.pareto.search import Plan
from gnomon.jobs.unattended.command import Places, command_of
from gnomon.measure.effort import Effort
from gnomon.runtimes.base import Wish
from gnomon.session.objectives import GOALS
from gnomon.session.request import Request

NAMES = st.text(st.characters(exclude_characters="\0=,", exclude_categories=["Cs"]), min_size=1, max_size=12)
PLAIN = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_./: -]{0,10}", fullmatch=True)
WORDS = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
SECONDS = st.floats(1e-6, 1e6)
VARIABLES = st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,6}", fullmatch=True), PLAIN, min_size=1, max_size=3)


@st.composite
def requests(draw: st.DrawFn) -> ParetoRequest:
    """Anything that the command line could have asked."""
    processes = draw(st.none() | st.integers(1, 9))
    number: dict[str, Any] = {} if processes is None else {"processes_least": processes, "processes_most": processes}
    seed, iterations = draw(st.integers(0, 2**31 - 2)), draw(st.none() | st.integers(1, 10**7))
    plans = [Plan(name=n, seed=seed, iterations=iterations) for n in draw(st.lists(WORDS, min_size=1, max_size=3))]
    options = draw(st.dictionaries(WORDS, st.lists(WORDS, max_size=2).map(tuple), max_size=2))
    dumpfile = draw(st.none() | st.just(Path("d.json")))
    all_cores = dumpfile is None and "threads" not in options and draw(st.booleans())
    request = Request(
        model=Path("model"),
        runtimes=tuple(draw(st.lists(WORDS, max_size=2))),
        wish=Wish(
            threads=1 if all_cores else draw(st.integers(1, 1024)),
            backends=tuple(draw(st.lists(NAMES, max_size=2))),
            precisions=tuple(draw(st.lists(WORDS, max_size=2))),
            environments=tuple(draw(st.lists(VARIABLES, max_size=2))),
        ),
        shapes=draw(st.dictionaries(NAMES, st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple), max_size=2)),
        feeds={name: Path(f"f/{k}.npy") for k, name in enumerate(draw(st.sets(NAMES, max_size=2)))},
        effort=Effort(**number, budget_s=draw(SECONDS), timeout_s=draw(SECONDS)),
        seed=seed,
        max_time_s=draw(st.none() | SECONDS),
    )
    return ParetoRequest(
        request=request,
        objectives=tuple(draw(st.lists(st.sampled_from(list(GOALS)), min_size=1, max_size=3))),
        counters=tuple(draw(st.lists(NAMES, max_size=2))),
        by=draw(st.sampled_from(["type", "group", "operator"])),
        options=options,
        all_cores=all_cores,
        plan=plans[0],
        others=tuple(plans[1:]),
        pick=draw(st.none() | st.integers(1, 9)),
        under=draw(st.dictionaries(st.sampled_from(list(GOALS)), st.floats(0, 1e12), max_size=2)),
        out=Path("out"),
        overwrite=True,
        dumpfile=dumpfile,
    )


@given(requests())
def test_the_command_reads_back_as_the_request(asked: ParetoRequest) -> None:
    assert asked.request is not None
    feeds = {name: str(path) for name, path in asked.request.feeds.items()}
    places = Places(model="model", feeds=feeds, out="out", dumpfile=str(asked.dumpfile) if asked.dumpfile else None)
    command, *words = command_of(asked, places)
    assert command == "pareto"
    values: dict[str, Any] = dict(pareto.make_context("pareto", list(words)).params)
    assert values.pop("as_json")
    for name in ("quiet", "picture", "unattended", "html"):
        assert not values.pop(name)
    model, measure, out, overwrite = (values.pop(name) for name in ("model", "measure", "out", "overwrite"))
    assert pareto_request(model, read(model, values), out=out, overwrite=overwrite, measure=measure) == asked


def test_a_model_that_looks_like_an_option_stays_a_model() -> None:
    words = command_of(ParetoRequest(request=Request(model=Path("-x"))), Places(model="--help"))
    assert words[-2:] == ("--", "--help")


@pytest.mark.parametrize(
    "request_",
    [
        Request(model=Path("m"), measure=False),
        Request(model=Path("m"), record=Path("r")),
        Request(model=Path("m"), effort=Effort(rounds=2)),
        Request(model=Path("m"), effort=Effort(processes_least=1)),
        Request(model=Path("m"), wish=Wish(environments=({"A": "1,B=2"},))),
        Request(model=Path("m"), wish=Wish(environments=({},))),
        Request(model=Path("m"), feeds={"a=b": Path("f")}),
    ],
)
def test_what_has_no_form_is_refused(request_: Request) -> None:
    with pytest.raises(UsageError) as refused:
        command_of(ParetoRequest(request=request_), Places(model="m", feeds=dict.fromkeys(request_.feeds, "f")))
    assert refused.value.hint


def test_a_search_that_is_none_of_a_model_is_refused() -> None:
    asked = ParetoRequest(request=Request(model=Path("m")))
    different = (Plan(name="random", iterations=1),)
    for change in ({"request": None}, {"source": Path("d")}, {"backends": ("cpu",)}, {"others": different}):
        with pytest.raises(UsageError):
            command_of(replace(asked, **change), Places(model="m"))


def test_every_field_is_either_said_or_refused() -> None:
    """A field that is new in a request must not get lost on the way."""
    said = set(ParetoRequest.__annotations__) - {"source", "backends"}
    assert {f.name for f in fields(ParetoRequest)} - {"source", "backends"} == said
    from gnomon.jobs.unattended import command

    assert said == command._CARRIED
    assert {f.name for f in fields(Request)} == command._CARRIED_OF_REQUEST | {"measure", "record", "time"}
