"""A comparison in formats for continuous integration: JUnit, github-action-benchmark and Bencher.

The JUnit XML follows the schema that Jenkins and pytest use (windyroad's). The format for github-action-benchmark is
that of its tool `customSmallerIsBetter`, and the format for Bencher is the Bencher Metric Format (BMF).
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

from gnomon.errors import RecordError, system_errors
from gnomon.jobs.compare.document import CompareDocument, word
from gnomon.jobs.compare.report import power
from gnomon.report import units
from gnomon.report.plain import clean, json_text
from gnomon.report.units import ratio_interval
from gnomon.system.files import write_whole


def write(document: CompareDocument, files: Mapping[str, Path | None]) -> None:
    """Write the comparison in each format for which there is a file; see `CompareDocument.write`."""
    forms = {
        "junit": lambda: junit(document),
        "action_benchmark": lambda: json_text(action_benchmark(document)),
        "bencher": lambda: json_text(bencher(document)),
    }
    for name, path in files.items():
        if path is not None:
            with system_errors(RecordError, f"{path} cannot be written", hint="Name another file."):
                write_whole(forms[name]().encode(), path)


def junit(document: CompareDocument) -> str:
    """A test case for each configuration.

    With a gate, a slower configuration fails, as do a lost configuration and a pair in which nothing can be compared;
    an undecided configuration is an error or is skipped. All other configurations that only one side has are skipped.
    """
    is_gate = document.fail_slower is not None
    undecided = "error" if document.undecided == "fail" else "skipped"
    outcomes = {"slower": "failure", "undecided": undecided, "pass": "", None: ""}
    suite = ElementTree.Element("testsuite", name="gnomon compare")

    def case(name: str, outcome: str = "", message: str = "", took: str = "") -> None:
        element = ElementTree.SubElement(suite, "testcase", classname=clean(side), name=clean(name))
        if took:
            element.set("time", took)
        if outcome:
            ElementTree.SubElement(element, outcome, message=message)

    for pair in document.pairs:
        side = document.sides[pair.side].name
        for text in pair.unlike:
            case(text, "skipped", "cannot be compared")
        for when, labels in (("before", pair.only_before), ("after", pair.only_after)):
            for label in labels:
                lost = is_gate and label in pair.lost
                case(label, "failure" if lost else "skipped", f"measured only {when}")
        if is_gate and not pair.configurations and not pair.lost:
            case("anything", "failure", "nothing could be compared")
        for row in pair.configurations:
            text = f"{units.digits(row.ratio)} {ratio_interval(row.low, row.high)}: {word(row)}. {power([row])}"
            case(row.label, outcomes[row.gate], text, f"{row.after_s:.9f}")
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"), ("tests", "testcase")):
        suite.set(name, str(len(list(suite.iter(tag)))))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def action_benchmark(document: CompareDocument) -> list[dict[str, object]]:
    """The last side's times in the format of github-action-benchmark's customSmallerIsBetter."""
    return [
        {
            "name": row.label,
            "unit": "us",
            "value": round(row.after_s * 1e6, 4),
            "extra": f"ratio {units.digits(row.ratio)} {ratio_interval(row.low, row.high)}: {row.verdict}",
        }
        for row in document.pairs[-1].configurations
    ]


def bencher(document: CompareDocument) -> dict[str, object]:
    """The last side's times in nanoseconds, in the Bencher Metric Format."""
    return {row.label: {"latency": {"value": round(row.after_s * 1e9, 1)}} for row in document.pairs[-1].configurations}
