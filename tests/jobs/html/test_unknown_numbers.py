"""What is not known, or not finite, is left out of what a page draws, and no NaN is written anywhere in it."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.placement_kit import placement
from tests.jobs.html.test_page import Elements
from tests.jobs.test_job_documents import EACH, FOUND

from gnomon.errors import RecordError
from gnomon.jobs.documents import read_document
from gnomon.jobs.html.page import page
from gnomon.jobs.html.views import view
from gnomon.jobs.pareto.picture import front_charts
from gnomon.jobs.place.picture import bars_of, placement_charts, profile_charts
from gnomon.report.chart import Chart
from gnomon.report.svg import picture

NO_NUMBER = re.compile(r"[Nn]a[Nn]|[Ii]nf|None")
SHAPES = {"path", "circle", "text", "svg", "rect", "g", "line"}


def numbers(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a document has a number with a fraction. Times of the record are checked when they are written."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, (*at, key)) if not str(key).endswith("at_s") else ()
    elif isinstance(value, list):
        for key, item in enumerate(value):
            yield from numbers(item, (*at, key))
    elif isinstance(value, float):
        yield at


PLACES = {name: found for name, document in FOUND.items() if (found := list(numbers(document)))}


@st.composite
def damaged(draw: st.DrawFn, instead: st.SearchStrategy[float | None]) -> dict[str, Any]:
    """A document of which some numbers are not known."""
    name = draw(st.sampled_from(sorted(PLACES)))
    found = copy.deepcopy(FOUND[name])
    for at in draw(st.lists(st.sampled_from(PLACES[name]), min_size=1, max_size=4)):
        inner: Any = found
        for key in at[:-1]:
            inner = inner[key]
        inner[at[-1]] = draw(instead)
    return found


def refuse(name: str) -> None:
    raise AssertionError(f"{name} in the JSON of the page")


@given(damaged(st.sampled_from([math.nan, math.inf, -math.inf])))
def test_no_shape_and_no_document_of_a_page_has_what_is_no_number(document: dict[str, Any]) -> None:
    elements = Elements(page([document], ["one"]))
    for tag, attributes in elements.found:
        if tag in SHAPES:
            told = {key: value for key, value in attributes.items() if key not in ("class", "aria-label") and value}
            assert not [value for value in told.values() if NO_NUMBER.search(value)]
    for text in elements.texts["script"][:-1]:
        json.loads(text, parse_constant=refuse)


@given(damaged(st.none() | st.sampled_from([math.nan, math.inf, -math.inf])))
def test_charts_leave_out_what_is_not_known(document: dict[str, Any]) -> None:
    draw(document)


def draw(document: dict[str, Any]) -> None:
    """Make all pictures of a document, if it fits its record; none holds what is not a number."""
    drawn: dict[str, Callable[[Any], list[Chart]]] = {
        "gnomon-pareto": front_charts,
        "gnomon-place": placement_charts,
        "gnomon-profile": profile_charts,
    }
    found = [part for section in view(document).sections for part in section.parts if isinstance(part, Chart)]
    with contextlib.suppress(RecordError):
        if document["format"] in drawn:
            found += drawn[document["format"]](read_document(document))
    for tag, attributes in Elements(picture(found)).found:
        if tag in SHAPES:
            told = {key: value for key, value in attributes.items() if key not in ("class", "aria-label") and value}
            assert not [value for value in told.values() if NO_NUMBER.search(value)]


@pytest.mark.parametrize("name", sorted(PLACES.keys() & {*EACH}))
def test_each_number_alone_may_be_unknown(name: str) -> None:
    alike: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for at in PLACES[name]:
        alike.setdefault(tuple(key if isinstance(key, str) else 0 for key in at), []).append(at)
    for at in {end for places in alike.values() for end in (places[0], places[-1])}:
        for instead in (None, math.nan, math.inf, -math.inf):
            found = copy.deepcopy(FOUND[name])
            inner: Any = found
            for key in at[:-1]:
                inner = inner[key]
            inner[at[-1]] = instead
            draw(found)


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_a_configuration_without_a_time_is_no_bar(value: float | None) -> None:
    made = placement()
    first, *others = made.contenders
    assert first.cpu is not None
    time = None if value is None else replace(first.cpu, median_s=value)
    made = replace(made, contenders=(replace(first, cpu=time), *others))
    assert len(placement_charts(made)) == 1
    assert first.label not in [row.label for row in bars_of(made)]
