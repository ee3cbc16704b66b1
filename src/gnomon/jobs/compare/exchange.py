"""A comparison, or one run, in the forms that continuous integration reads: JUnit, github-action-benchmark, Bencher.

JUnit's XML is that of Jenkins and of pytest (the schema of windyroad); github-action-benchmark's is its tool
`customSmallerIsBetter`; Bencher's is the Bencher Metric Format (BMF).
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import Any

from gnomon.jobs.compare.report import verdict_words
from gnomon.report import units
from gnomon.report.parts import bounds
from gnomon.report.plain import clean


def junit(document: Mapping[str, Any], fail_slower: float | None) -> str:
    """A test case a configuration: what is surely slower by more than `fail_slower` fails, an open one is skipped.

    So do one that was lost, and a pair of which nothing could be compared, where that is given; what else only one side
    has is skipped.
    """
    suite = ElementTree.Element("testsuite", name="gnomon compare")
    counts = {"failures": 0, "skipped": 0, "tests": 0}
    for pair in document["pairs"]:
        side = document["sides"][pair["side"]]["name"]
        for told in pair["unlike"]:
            counts["tests"] += 1
            counts["skipped"] += 1
            case = ElementTree.SubElement(suite, "testcase", classname=clean(side), name=clean(told))
            ElementTree.SubElement(case, "skipped", message="cannot be compared")
        for when, labels in (("before", pair["only_before"]), ("after", pair["only_after"])):
            for label in labels:
                lost = fail_slower is not None and label in pair["lost"]
                counts["tests"] += 1
                counts["failures" if lost else "skipped"] += 1
                case = ElementTree.SubElement(suite, "testcase", classname=clean(side), name=clean(label))
                ElementTree.SubElement(case, "failure" if lost else "skipped", message=f"measured only {when}")
        if fail_slower is not None and not pair["configurations"] and not pair["lost"]:
            counts["tests"] += 1
            counts["failures"] += 1
            case = ElementTree.SubElement(suite, "testcase", classname=clean(side), name="anything")
            ElementTree.SubElement(case, "failure", message="nothing could be compared")
        for row in pair["configurations"]:
            counts["tests"] += 1
            case = ElementTree.SubElement(
                suite, "testcase", classname=clean(side), name=clean(row["label"]), time=f"{row['after_s']:.9f}"
            )
            told = f"{units.digits(row['ratio'])} {bounds(row)}: {verdict_words(row)}"
            if fails(row, fail_slower):
                counts["failures"] += 1
                ElementTree.SubElement(case, "failure", message=told)
            elif row["verdict"] == "unknown":
                counts["skipped"] += 1
                ElementTree.SubElement(case, "skipped", message=told)
    for name, count in counts.items():
        suite.set(name, str(count))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def fails(row: Mapping[str, Any], fail_slower: float | None) -> bool:
    """Whether a configuration is surely slower, and by more than a share (0.03: 3 %); None: nothing fails."""
    return bool(fail_slower is not None and row["verdict"] == "slower" and row["ratio"] - 1 > fail_slower)


def action_benchmark(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The last side's times as github-action-benchmark's customSmallerIsBetter reads them."""
    return [
        {
            "name": row["label"],
            "unit": "us",
            "value": round(row["after_s"] * 1e6, 4),
            "extra": f"ratio {units.digits(row['ratio'])} {bounds(row)}: {row['verdict']}",
        }
        for row in document["pairs"][-1]["configurations"]
    ]


def bencher(document: Mapping[str, Any]) -> dict[str, Any]:
    """The last side's times in the Bencher Metric Format: nanoseconds."""
    return {
        row["label"]: {"latency": {"value": round(row["after_s"] * 1e9, 1)}}
        for row in document["pairs"][-1]["configurations"]
    }
