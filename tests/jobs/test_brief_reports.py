"""What is shown without -v: an answer, what it holds for, a few rows and the next step, in 15 lines."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from tests.cli.placement_kit import placement, profiled
from tests.jobs.space.kits import space_kit
from tests.jobs.test_job_documents import FOUND
from tests.report import tuning_kit

from gnomon.jobs.documents import report_of
from gnomon.report.page import Page

MOST = 15
STAB = "stab --nnpackage net --no-profile --json --quiet"
DOCUMENTS: dict[str, dict[str, Any]] = {
    "place": placement().document(),
    "profile": profiled().document(),
    "stab": FOUND[STAB],
    "stab, proved": FOUND[STAB] | {"proof": placement().document()},
    "space": space_kit.profile(),
    "front": space_kit.front(),
    "selection": space_kit.selection(),
    "published": space_kit.published(),
    "tune": tuning_kit.tune(),
    "exec": tuning_kit.ran(),
    "collect": tuning_kit.collect(),
}


def brief(document: dict[str, Any]) -> str:
    file = io.StringIO()
    report = report_of(document)
    assert report
    report(document, Page(file, width=120, brief=True))
    return file.getvalue()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_brief_report_has_15_lines_and_names_no_placeholder(name: str) -> None:
    told = brief(DOCUMENTS[name])
    assert len(told.splitlines()) <= MOST, told
    assert not re.search(r"gnomon [a-z].* [A-Z][A-Z-]+\b", told), told


def test_what_may_be_wrong_is_warned_of_in_each() -> None:
    doubt = {"kind": "busy", "message": "others worked too", "hint": "h"}
    for name in ("place", "stab", "tune", "exec"):
        assert " - Warning: others worked too." in brief(DOCUMENTS[name] | {"doubts": [doubt]}), name


def test_slots_of_a_space_in_python_are_called_by_their_names() -> None:
    selection = space_kit.selection()
    names = [f"slot-{number}" for number in range(len(selection["groups"]))]
    told = brief(selection | {"slots": names}).splitlines()
    assert all(any(line.startswith(f" {name} ") for line in told) for name in names), told
