"""The page in a real Chromium: it draws, asks for nothing, says nothing, and does what one clicks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.placement_kit import placement
from tests.jobs.html.browser import Page, chromium, needs_chromium
from tests.jobs.html.kit import HOSTILE, hostile
from tests.jobs.test_job_documents import EACH, FOUND, OPERATORS, large

from gnomon.jobs.html.page import page

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def opened(browser: Page, folder: Path, *documents: dict[str, Any]) -> Page:
    path = folder / "page.html"
    path.write_text(page(documents, [f"run {k}" for k in range(len(documents))]), encoding="utf-8")
    browser.events.clear()
    browser.open(path)
    assert browser.asked_for() == [path.as_uri()]
    assert browser.said() == []
    assert browser.value("document.documentElement.dataset.errors") == "0"
    return browser


@pytest.mark.parametrize("name", EACH)
def test_every_document_is_drawn_without_a_word(browser: Page, tmp_path: Path, name: str) -> None:
    found = opened(browser, tmp_path, FOUND[name])
    assert found.value("document.querySelectorAll('h1').length") == 1
    ids = "[...document.querySelectorAll('[id]')].map((one) => one.id)"
    assert found.value(f"(() => {{ const all = {ids}; return all.length - new Set(all).size; }})()") == 0
    links = "[...document.querySelectorAll('nav a')].filter((one) => !document.getElementById(one.hash.slice(1)))"
    assert found.value(f"{links}.length") == 0
    torn = "[...document.querySelectorAll('svg.chart path')].filter((one) => /NaN|undefined|None/.test(one.outerHTML))"
    assert found.value(f"{torn}.length") == 0


def test_numbers_that_are_not_known_are_drawn_by_no_script(browser: Page, tmp_path: Path) -> None:
    made = placement().document()
    for row in made["operators"]:
        row["times_s"] = dict.fromkeys(row["times_s"], math.nan)
    for one in made["contenders"]:
        for found in filter(None, (one["measured"], one["cpu"])):
            found |= {"low_s": math.nan, "high_s": math.inf, "p99_s": math.nan}
    for one in made["environments"]:
        one |= {"others_share": math.nan, "steal_share": math.inf}
    found = opened(browser, tmp_path, made)
    assert found.value("/NaN|Infinity|undefined/.test(document.querySelector('main').innerHTML)") is False


def test_what_traces_tell_is_drawn_where_nothing_was_run(browser: Page, tmp_path: Path) -> None:
    name = next(name for name in FOUND if name.startswith("stab"))
    found = opened(browser, tmp_path, FOUND[name])
    heads = "[...document.querySelectorAll('#operators-table thead th')].map((one) => one.textContent.trim())"
    assert found.value(heads)[-2:] == ["cpu", "ruy"]


def test_a_heat_map_is_darker_where_more_is_lost(browser: Page, tmp_path: Path) -> None:
    found = opened(browser, tmp_path, FOUND["analyze by hand"])
    heat = "Number(one.querySelector('rect.heat').getAttribute('fill-opacity'))"
    cells = found.value(
        f"[...document.querySelectorAll('.wide g:has(> rect.heat)')].map((one) => [one.textContent, {heat}])"
    )
    losses = [(float(text.split()[0]), shade) for text, shade in cells if text.startswith("+")]
    assert len(losses) >= 4 and len({shade for _, shade in losses}) > 1
    assert [shade for _, shade in sorted(losses)] == sorted(shade for _, shade in losses)


@pytest.mark.parametrize(("width", "kind"), [(1280, "wide"), (390, "narrow")])
def test_a_window_has_the_charts_of_its_width(browser: Page, tmp_path: Path, width: int, kind: str) -> None:
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    made = placement().document()
    made["doubts"][0]["hint"] = f"Give --option {'onnxruntime:session.set_denormal_as_zero' * 2}=1"
    found = opened(browser, tmp_path, made)
    seen = "[...document.querySelectorAll('svg.chart')].filter((one) => one.getBoundingClientRect().width)"
    assert set(found.value(f"{seen}.map((one) => one.classList[1])")) == {kind}
    assert found.value(f"{seen}.every((one) => one.getBoundingClientRect().width <= {width})")
    assert found.value("document.documentElement.scrollWidth") <= width
    assert found.value("document.querySelector('header').offsetHeight") <= 60
    browser.ask("Emulation.clearDeviceMetricsOverride")


def test_the_last_column_of_the_configurations_is_seen_on_a_desktop(browser: Page, tmp_path: Path) -> None:
    browser.ask("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)
    found = opened(browser, tmp_path, placement().document())
    hidden = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1)"
    assert found.value(f"{hidden}.length") == 0
    browser.ask("Emulation.clearDeviceMetricsOverride")


def test_operators_sort_and_are_searched(browser: Page, tmp_path: Path) -> None:
    found = opened(browser, tmp_path, large())
    rows = "document.querySelectorAll('#operators-table tbody tr')"
    assert found.value(f"{rows}.length") < OPERATORS
    assert found.value(
        f"(() => {{ document.querySelector('#operators-table thead button').click();"
        f"document.querySelector('#operators-table thead button').click();"
        f"return {rows}[0].cells[0].textContent; }})()"
    ) == str(OPERATORS - 1)
    assert found.value("document.querySelector('#operators-table th').getAttribute('aria-sort')") == "descending"
    assert found.value(
        f"(() => {{ const box = document.getElementById('search'); box.value = 'Conv_77 conv';"
        f"box.dispatchEvent(new Event('input')); return [...{rows}].map((r) => r.cells[1].title); }})()"
    ) == [f"/model/layers.{k}/block/Conv_{k}" for k in (779, 778, 777, 776, 775, 774, 773, 772, 771, 770, 77)]


def test_what_comes_into_view_is_drawn(browser: Page, tmp_path: Path) -> None:
    found = opened(browser, tmp_path, large())
    nodes = "document.querySelectorAll('#graph-view .node').length"
    assert 0 < found.value(nodes) < OPERATORS / 4
    found.value("[...document.querySelectorAll('#graph button')].find((one) => one.textContent === 'Whole').click()")
    assert found.value(nodes) == OPERATORS


def test_a_click_joins_row_and_node(browser: Page, tmp_path: Path) -> None:
    found = opened(browser, tmp_path, large())
    chosen = "document.querySelector('#operators-table [aria-selected=true]')?.dataset.k"
    node = "document.querySelector('#graph-view .selected')?.dataset.k"
    press = "dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    assert found.value(f"{chosen} ?? null") is None
    found.value(f"document.querySelector('#graph-view [data-k=\"3\"]').{press}")
    assert (found.value(chosen), found.value(node)) == ("3", "3")
    found.value("document.querySelector('#operators-table tbody tr').click()")
    assert (found.value(chosen), found.value(node)) == ("0", "0")
    found.value(
        "document.getElementById('operators-table').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'}))"
    )
    assert (found.value(chosen), found.value(node)) == ("1", "1")
    assert "Operator 1 /model/layers.1" in found.value("document.getElementById('told').textContent")


def test_what_runs_as_one_has_a_box(browser: Page, tmp_path: Path) -> None:
    found = opened(browser, tmp_path, placement().document())
    assert found.value("document.querySelectorAll('#graph-view .group').length") > 0
    assert found.value("document.querySelectorAll('#timeline .chart.wide, #samples .chart.wide').length") == 2


def test_a_hostile_name_stays_text(browser: Page, tmp_path: Path) -> None:
    found = opened(browser, tmp_path, hostile())
    assert found.value("typeof window.owned") == "undefined"
    assert found.value("document.querySelectorAll('img, iframe, object, b').length") == 0
    shown = found.value("document.querySelector('#operators-table tbody th').title")
    assert shown.startswith("<img src=x onerror=")
    assert "\u202e" not in found.value("document.body.innerText")
    assert HOSTILE[:10] in found.value("document.body.innerText")


def test_the_theme_is_changed_by_a_button(browser: Page, tmp_path: Path) -> None:
    found = opened(browser, tmp_path, placement().document())
    back = "getComputedStyle(document.body).backgroundColor"
    light = found.value(back)
    found.value("document.getElementById('theme').click()")
    assert found.value(back) != light
    assert found.value("document.getElementById('theme').textContent") == "Theme: dark"


def test_of_several_runs_one_is_chosen(browser: Page, tmp_path: Path) -> None:
    first, second = placement().document(), large()
    found = opened(browser, tmp_path, first, second)
    count = "document.querySelectorAll('#graph-view .node').length"
    assert found.value(count) == 4
    rows = "document.querySelectorAll('#operators-table tbody tr').length"
    assert found.value(rows) == 4
    found.value(
        "(() => { const one = document.querySelector('#live select'); one.value = '1';"
        "delete document.documentElement.dataset.drawn; one.dispatchEvent(new Event('change')); })()"
    )
    found.wait_drawn()
    assert found.value(rows) > 4
    assert 4 < found.value(count) < OPERATORS
