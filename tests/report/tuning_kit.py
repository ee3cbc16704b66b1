"""Hand-made documents of tuning, of running a network, and of overlays, for the tests of reports and pictures."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from gnomon.jobs.documents import read_document
from gnomon.report.page import Page

Report = Callable[[Any, Page], None]
HOSTILE = "a\x1b[31m\u202e<b>$x_1$</b>\n\x07"
PHONE = {"key": "phone", "target": {"kind": "llvm", "mcpu": "cortex-a72"}, "threads": 4, "linker": "", "name": "phone"}
TABLET = {**PHONE, "key": "tablet", "name": "tablet"}
MODEL = {"name": "mobile", "sha256": "ab" * 32, "dtype": "float32"}
CONDITIONS = {
    "threads": [4],
    "defaults": False,
    "precisions": ["float32"],
    "inputs": [{"name": "x", "shape": [1, 3, 8, 8], "dtype": "float32", "fed": "", "sha256": None}],
    "machine": "cortex-a72",
    "cores": None,
    "date": "2026-01-02",
    "signature": "",
}


def summary(median_s: float, spread: float | None = 0.03) -> dict[str, Any]:
    """A summary; without a spread its interval is unknown."""
    low, high = (None, None) if spread is None else (median_s * (1 - spread), median_s * (1 + spread))
    ends = {"low_s": low, "high_s": high, "p90_s": 1.1 * median_s, "p99_s": 1.3 * median_s}
    return {"median_s": median_s, **ends, "samples": 300, "processes": 3, "blocks": None, "clock": "wall"}


def tune(**changes: Any) -> dict[str, Any]:
    """A network of three layers, of which one could not be tuned and one came out no faster."""
    found = {
        "format": "gnomon-tune",
        "version": 1,
        "model": MODEL,
        "device": PHONE,
        "records": "my tunes/phone.mobile.float32.json",
        "library": "my tunes/phone.mobile.float32.so",
        "seconds": 754.0,
        "stopped": "trials",
        "trials": {"asked": 1024, "measured": 1003, "failed": 21, "before": 64, "relevant": 2},
        "layers": [
            _tuned("fused_dense", 1, 0.02, (2.3e-4, 2.5e-4), "exhausted"),
            _tuned("fused_conv2d_add_relu", 13, 0.94, (8.4e-4, 3.1e-5), "trials"),
            {**_tuned("fused_conv2d1", 1, None, None, "trials"), "failed": 21},
        ],
        "failures": [
            {"stage": "run", "kind": "crash", "count": 3, "message": "signal 11"},
            {"stage": "build", "kind": "hang", "count": 18, "message": "took longer than 20 s"},
        ],
        "network": {
            "untuned": summary(1.16e-2),
            "tuned": summary(6.01e-4),
            "ratio": {"ratio": 19.3, "low": 18.1, "high": 20.2},
            "max_error": 1.49e-8,
            "compared_with": None,
            "scheduled": 2,
            "functions": 3,
            "failure": None,
            "untuned_failure": None,
        },
        "beside": None,
        "doubts": [],
        "notes": ["the tracker was started for this run"],
        "conditions": CONDITIONS,
    }
    return {**found, **changes}


def _tuned(
    name: str, weight: int, share: float | None, times: tuple[float, float] | None, stopped: str
) -> dict[str, Any]:
    untuned, best = (None, None) if times is None else (summary(times[0], None), summary(times[1]))
    return {
        "name": name,
        "layer": "2851170033774213672",
        "weight": weight,
        "share": share,
        "untuned": untuned,
        "best": best,
        "speedup": None if times is None else times[0] / times[1],
        "configuration": None if times is None else "5f0c9a7b1d2e3f40",
        "trials": 341,
        "failed": 0,
        "stopped": stopped,
    }


def network(**changes: Any) -> dict[str, Any]:
    """What the tuned network's ratio and outputs are changed to."""
    return {**tune()["network"], **changes}


def ran(**changes: Any) -> dict[str, Any]:
    """A compiled network that was run, one of whose layers failed."""
    found = {
        "format": "gnomon-exec",
        "version": 1,
        "model": MODEL,
        "device": PHONE,
        "source": "phone.mobile.float32.so",
        "library": None,
        "built_for": {"kind": "llvm", "mcpu": "cortex-a53"},
        "network": summary(6.01e-4),
        "max_error": 0.0,
        "compared_with": "the untuned network on this host",
        "layers": [
            {"name": "fused_dense", "weight": 1, "time": summary(2.5e-5), "share": 0.04, "failure": None},
            {"name": "fused_conv2d", "weight": 13, "time": summary(3.1e-5, None), "share": 0.67, "failure": None},
            {"name": "odd", "weight": 1, "time": None, "share": None, "failure": failure("run", "crash", "signal 11")},
        ],
        "layers_sum_s": 4.28e-4,
        "unaccounted_s": 1.73e-4,
        "failure": None,
        "doubts": [],
        "notes": [],
        "conditions": {**CONDITIONS, "inputs": []},
    }
    return {**found, **changes}


def failure(stage: str, kind: str, message: str) -> dict[str, Any]:
    """A failure as documents hold one."""
    return {"stage": stage, "kind": kind, "transient": False, "message": message}


def view(**changes: Any) -> dict[str, Any]:
    """A folder with a model, two record files and a compiled network."""
    record = {"device": "phone", "model": "mobile", "dtype": "float32", "layers": 12, "trials": 1003, "problem": None}
    found = {
        "format": "gnomon-tuned-files",
        "version": 1,
        "folder": "tunes",
        "models": [{"name": "mobile", "path": "tunes/mobile.onnx", "bytes": 4_500_000}],
        "records": [
            {**record, "path": "tunes/phone.mobile.float32.json", "found_on": "phone"},
            {**record, "path": "tunes/tablet_phone.mobile.float32.json", "device": "tablet", "found_on": "phone"},
        ],
        "libraries": [
            {"path": "tunes/a b.so", "device": "phone", "model": "mobile", "bytes": 2_000_000, "problem": None}
        ],
    }
    return {**found, **changes}


def collect(**changes: Any) -> dict[str, Any]:
    """The phone's configurations on the tablet; a layer's failed there."""
    found = {
        "format": "gnomon-overlay-collect",
        "version": 1,
        "model": MODEL,
        "device": TABLET,
        "host": "phone",
        "records": "tablet_phone.mobile.float32.json",
        "source": "my phone.mobile.float32.json",
        "layers": [
            _carried("fused_conv2d", (16, 15), 3.0e-5, 3.4e-5),
            _carried("fused_dense", (16, 16), 2.5e-5, 2.5e-5),
            _carried("odd", (4, 0), None, None),
        ],
        "failures": [{"stage": "run", "kind": "hang", "count": 5, "message": "took longer than 20 s"}],
        "seconds": 95.0,
        "notes": [],
        "conditions": {**CONDITIONS, "inputs": []},
    }
    return {**found, **changes}


def _carried(name: str, counts: tuple[int, int], best_s: float | None, host_s: float | None) -> dict[str, Any]:
    tried, measured = counts
    found = {"name": name, "layer": "1", "configurations": tried, "measured": measured, "failed": tried - measured}
    return {**found, "best_s": best_s, "host_best_here_s": host_s}


def chosen(name: str, weight: int, share: float, times: dict[str, float], theta: dict[str, float]) -> dict[str, Any]:
    """A layer's choice, from its times and the best times."""
    regret = {device: times[device] / theta[device] - 1 for device in times}
    worst = max(regret, key=lambda device: regret[device])
    total = sum(regret.values())
    return {
        "name": name,
        "layer": "1",
        "weight": weight,
        "share": share,
        "M": total,
        "mean_regret": total / len(times),
        "host": "phone",
        "configuration": "5f0c9a7b1d2e3f40",
        "entity": None,
        "index": {},
        "times": times,
        "theta": theta,
        "regret": regret,
        "estimate": dict.fromkeys(times, 1.0),
        "worst_regret": regret[worst],
        "worst_device": worst,
        "confidence": 0.93,
        "M_low": 0.8 * total,
        "M_high": 1.3 * total,
        "runner_up": {"configuration": "77aa9a7b1d2e3f40", "M": 1.5 * total + 0.01},
        "minimax": None,
        "close": [],
        "configurations": 40,
        "options": [
            {"configuration": "5f0c9a7b1d2e3f40", "host": "phone", "M": total, "regret": regret},
            {
                "configuration": "77aa9a7b1d2e3f40",
                "host": "tablet",
                "M": 1.5 * total + 0.01,
                "regret": {device: 1.5 * one + 0.005 for device, one in regret.items()},
            },
        ],
        "incomplete": [],
        "failed": [],
    }


LATE = {"stage": "run", "kind": "hang", "message": "took longer than 20 s"}


def analyze(**changes: Any) -> dict[str, Any]:
    """Two devices and three layers, of which one has no choice; the whole network was measured."""
    conv = chosen(
        "fused_conv2d", 13, 0.85, {"phone": 3.1e-5, "tablet": 2.2e-5}, {"phone": 2.967e-5, "tablet": 2.189e-5}
    )
    conv["incomplete"] = [{"configuration": "c1", "host": "phone", "missing": ["tablet"]}]
    conv["failed"] = [{"configuration": "c1", "device": "tablet", **LATE}]
    conv["minimax"] = {
        "configuration": "77aa9a7b1d2e3f40",
        "host": "tablet",
        "M": 0.06,
        "mean_regret": 0.03,
        "regret": {"phone": 0.03, "tablet": 0.03},
        "worst_regret": 0.03,
        "worst_device": "phone",
    }
    dense = {
        **chosen("fused_dense", 1, 0.15, dict.fromkeys(("phone", "tablet"), 2.5e-5), {"phone": 2.5e-5, "tablet": 2e-5}),
        "confidence": 0.55,
        "close": ["5f0c9a7b1d2e3f40", "77aa9a7b1d2e3f40"],
        "runner_up": None,
        "M_low": None,
        "M_high": None,
        "host": "tablet",
    }
    found = {
        "format": "gnomon-overlay-analyze",
        "version": 1,
        "devices": ["phone", "tablet"],
        "hosts": ["phone", "tablet"],
        "logs": ["phone.json", "tablet.json"],
        "replayable": True,
        "model": MODEL,
        "layers": [dense, conv],
        "undecided": [
            {
                "name": "odd",
                "layer": "3",
                "reason": "no configuration has a time on every device",
                "incomplete": [],
                "failed": [],
            }
        ],
        "total": {
            "M": 0.08,
            "mean_regret": 0.04,
            "worst_regret": 0.25,
            "regret": {"phone": 0.038, "tablet": 0.042},
            "layers": 2,
            "undecided": 0,
            "decided_share": None,
            "minimax": {
                "M": 0.09,
                "mean_regret": 0.045,
                "worst_regret": 0.25,
                "regret": {"phone": 0.03, "tablet": 0.041},
            },
        },
        "own": {"phone": {"M": 0.31, "worst_regret": 0.9}, "tablet": {"M": 1.21, "worst_regret": 10.2}},
        "portfolio": {
            "size": 2,
            "layers": [
                {
                    "name": "fused_conv2d",
                    "configurations": ["5f0c9a7b1d2e3f40", "77aa9a7b1d2e3f40"],
                    "M": 0.0,
                    "proven": True,
                    "serves": {"phone": "5f0c9a7b1d2e3f40", "tablet": "77aa9a7b1d2e3f40"},
                }
            ],
            "M": 0.01,
            "builds": [],
            "M_builds": None,
            "builds_proven": False,
        },
        "written": {
            "records": {"phone": "overlay.mobile.float32.json"},
            "databases": {"phone": "overlay.database"},
            "libraries": {"tablet": "tablet.so", "phone": "my phone.so"},
            "lines": {},
            "whole": "",
            "selection": "",
            "module": "",
        },
        "network": [
            *proved("phone", {"overlay": 6.12e-4, "own:phone": 6.0e-4, "untuned": 1.16e-2}),
            *proved("tablet", {"overlay": 4.9e-4, "own:tablet": 4.5e-4, "untuned": 9.1e-3}),
            *proved("phone", {"own:tablet": None}, dead=failure("build", "error", "no linker")),
        ],
        "doubts": [],
        "notes": [],
        "pictures": [],
    }
    return {**found, **changes}


def proved(
    device: str, times_s: Mapping[str, float | None], spread: float | None = 0.02, dead: Any = None
) -> list[dict[str, Any]]:
    """The rows of a device whose network was measured under each choice; what has no time failed."""
    return [
        {
            "device": device,
            "choice": choice,
            "time": None if time_s is None else summary(time_s, spread),
            "to_own": _over(choice, f"own:{device}", times_s, spread),
            "to_overlay": _over(choice, "overlay", times_s, spread),
            "max_error": 1.5e-8,
            "failure": None if time_s is not None else dead or failure("run", "hang", "slow"),
        }
        for choice, time_s in times_s.items()
    ]


def _over(choice: str, other: str, times_s: Mapping[str, float | None], spread: float | None) -> dict[str, Any] | None:
    mine, its = times_s[choice], times_s.get(other)
    if mine is None or its is None or other == choice:
        return None
    ends = (None, None) if spread is None else (mine / its * (1 - spread), mine / its * (1 + spread))
    return {"ratio": mine / its, "low": ends[0], "high": ends[1]}


def hostile(value: Any) -> Any:
    """The record with text that wants to steer a terminal in every place where text may stand."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: hostile(getattr(value, field.name)) for field in fields(value)})
    if isinstance(value, dict):
        return {key: hostile(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map(hostile, value))
    return value + HOSTILE if isinstance(value, str) else value


def text_of(report: Report, document: Any, width: int = 80) -> str:
    """What a report says of a document, or of its JSON values, at a width."""
    file = io.StringIO()
    report(read_document(document) if isinstance(document, dict) else document, Page(file, width=width))
    return file.getvalue()


def words_of(report: Report, document: Any) -> str:
    """The same in one line."""
    return " ".join(text_of(report, document).split())
