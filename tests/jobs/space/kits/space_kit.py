"""Hand-made documents of a profile, a selection and a validation, for the tests of reports and pictures."""

from __future__ import annotations

import copy
from typing import Any

HOSTILE = "Res\x1b[31m\u202e<b>$x_1$</b>"


def profile(**changes: Any) -> dict[str, Any]:
    """A look at a profile of two families, two cell groups and two toolchains; a network failed in each part."""
    found = {
        "format": "gnomon-space",
        "version": 1,
        "profile": "p",
        "numbering": "ssprofile",
        "data": "digits",
        "groups": 2,
        "families": {"VGG": _family("VGG", "1x1", "3x3"), "Res": _family("Res", "5x5", "7x7")},
        "accuracy": {
            "method": "balanced",
            "trainings": 9,
            "failed": [{"network": "VGG_0_0", "reason": "out of memory"}],
            "images": 360,
            "noise": 0.0123,
            "cpu_seconds": 754.0,
            "imported": {},
            "without_error": 0,
            "trained": [
                {"id": "VGG_0_0", "family": "VGG", "accuracy": 0.9, "error": 0.01},
                {"id": "Res_0_0", "family": "Res", "accuracy": 0.95, "error": 0.008},
                {"id": "Res_1_1", "family": "Res", "accuracy": 0.93, "error": 0.009},
            ],
            "rankings": [_ranking("VGG", 0.12, 0.88), _ranking("Res", 0.71, 0.94)],
        },
        "latency": [_toolchain("ort", 1.0), {**_toolchain("ort-int8", 0.5), **_quantised()}],
        "seconds": {},
        "notes": [],
        "pictures": [],
    }
    return {**found, **changes}


def _family(name: str, *meanings: str) -> dict[str, Any]:
    return {
        "primitives": [{"name": f"{name}block_{k}", "meaning": told} for k, told in enumerate(meanings)],
        "default": f"{name}block_1",
        "defaults": [],
        "swaps": 3,
        "networks": "4",
    }


def _ranking(family: str, tau: float, best: float) -> dict[str, Any]:
    places = ((0, 1), (1, 1), (1, 0))
    return {
        "family": family,
        "method": "balanced",
        "repeatability": tau,
        "noise": 0.0123,
        "trainings": 4,
        "networks": [
            {
                "id": f"{family}_{a}_{b}",
                "primitives": [f"{family}block_{a}", f"{family}block_{b}"],
                "accuracy": best - 0.01 * k,
                "low": best - 0.01 * k - 0.004,
                "high": best - 0.01 * k + 0.004,
            }
            for k, (a, b) in enumerate(places)
        ],
    }


def network(family: str, a: int, b: int, latency_s: float | None, reason: str = "") -> dict[str, Any]:
    """A line of a toolchain's networks."""
    return {
        "id": f"{family}_{a}_{b}",
        "primitives": [f"{family}block_{a}", f"{family}block_{b}"],
        "latency_s": latency_s,
        "low_s": None if latency_s is None or family == "VGG" else 0.97 * latency_s,
        "high_s": None if latency_s is None or family == "VGG" else 1.03 * latency_s,
        "correct": None,
        "quantised": None,
        "size": {"parameters": 3_400_000, "macs": 301_000_000, "peak_bytes": 4_816_896},
        "reason": reason,
    }


def _toolchain(name: str, factor: float) -> dict[str, Any]:
    times = {(0, 1): 1.1e-3, (1, 1): 1e-3, (1, 0): 1.3e-3, (0, 0): 1.4e-3}
    rows = [network("VGG", a, b, factor * t) for (a, b), t in times.items()]
    rows += [network("Res", a, b, 2 * factor * t) for (a, b), t in times.items() if (a, b) != (1, 0)]
    rows.append(network("Res", 1, 0, None, "no kernel"))
    errors = {"networks": 12, "mean": 0.041, "median": 0.03, "p90": 0.08, "tau": None}
    return {
        "toolchain": name,
        "clock": "cpu",
        "context": {"device": "phone", "threads": "1"},
        "began_s": 1767355200.0,
        "networks": rows,
        "failed": [{"network": "Res_1_0", "reason": "no kernel"}],
        "imported": {},
        "compared": None,
        "least_quantised": None,
        "held_out": {"VGG": errors},
    }


def _quantised() -> dict[str, Any]:
    compared = {"toolchain": "ort-int8", "twin": "ort", "networks": 7, "ratio": 0.5, "low": 0.45, "high": 0.55}
    return {
        "compared": {**compared, "faster": 7, "drop": 0.0051, "worst_drop": 0.0123},
        "least_quantised": 0.96,
    }


def selection(**changes: Any) -> dict[str, Any]:
    """A selection by the rule pareto among the primitives of `profile`."""
    names = ["VGGblock_0", "VGGblock_1", "Resblock_0", "Resblock_1"]
    often = ((0.02, 0.0, 0.95, 0.4), (0.6, 0.1, 1.0, 0.05))
    groups = [["VGGblock_0", "Resblock_0"], ["VGGblock_0", "Resblock_0", "Resblock_1"]]
    found = {
        "format": "gnomon-space-select",
        "version": 1,
        "profile": "p",
        "rule": "pareto",
        "method": "balanced",
        "toolchain": "ort",
        "imported": {},
        "images_known": True,
        "proofs": [],
        "numbering": "ssprofile",
        "family": None,
        "groups": groups,
        "meanings": {"VGGblock_0": "1x1", "VGGblock_1": "3x3", "Resblock_0": "5x5", "Resblock_1": "7x7"},
        "unlike_aw_nas": ["Resblock_1"],
        "networks_before": "16",
        "slots": [],
        "networks_after": "6",
        "output": "p/output.yaml",
        "lookup": "p/output.lookup.txt",
        "lookup_model": {
            "model": "costs of all networks",
            "why": "their sums were off by 2.0 % on average for 12 mixed networks outside the fit",
            "held_out": {"costs of all networks": {"networks": 12, "mean": 0.02, "worst": 0.041}},
        },
        "latency_file": False,
        "share_kept": [0.97, 0.91, 0.999],
        "stability": 0.71,
        "primitives": [
            [
                {
                    "name": n,
                    "frequency": f,
                    "low": 0.9 * f,
                    "high": min(1.0, 1.1 * f),
                    "stays": n in groups[g],
                    "again": f,
                }
                for n, f in zip(names, often[g], strict=True)
            ]
            for g in (0, 1)
        ],
        **dict.fromkeys(("networks", "counts", "accuracies")),
    }
    return {**found, **changes}


def published(**changes: Any) -> dict[str, Any]:
    """A selection by the published rule, which knows no frequencies."""
    found = selection(rule="published", family="Res", groups=[["Resblock_0"], ["Resblock_0", "Resblock_1"]])
    found |= dict.fromkeys(("share_kept", "stability", "primitives"))
    walked = [{"id": f"Res_{k}", "cost": 0.9 + 0.01 * k} for k in range(10)]
    return {
        **found,
        "networks": walked,
        "counts": {"VGG": 0, "Res": 10},
        "lookup": None,
        "accuracies": {"kind": "believed", "trained": 2, "networks": 10},
        **changes,
    }


def front(*, measured: bool = True, **changes: Any) -> dict[str, Any]:
    """A front of four networks, of which the last could not be measured."""
    rows = []
    for k, name in enumerate(("VGG_0_0", "VGG_0_1", "Res_1_1", "Resblock_0+VGGblock_1")):
        right, took = 0.9 + 0.02 * k, 1e-3 * (1 + 0.3 * k)
        known = measured and k < 3
        rows.append(
            {
                "id": name,
                "primitives": ["VGGblock_0", "VGGblock_1"],
                "on_front": k != 1,
                "size": {"parameters": 1_000_000 * (k + 1), "macs": 30_000_000 * (k + 1), "peak_bytes": 802_816},
                "round": 1 + k // 2,
                "chance": 0.4,
                "meets": 0.9,
                "predicted": {
                    "accuracy": [right, right - 0.02, right + 0.015],
                    "latency_s": [took, 0.96 * took, 1.05 * took],
                },
                "measured": {
                    "accuracy": [right - 0.004, right - 0.02, right + 0.012] if known else None,
                    "latency_s": [1.01 * took, took, 1.02 * took] if known else None,
                    "reason": "" if known else "run: no kernel",
                }
                if measured
                else None,
                "best": known,
            }
        )
    held = {
        "networks": 3,
        "best": 3,
        "hypervolume": {"predicted": 0.5, "measured": 0.49},
        "share": [0.981, 0.955, 0.996],
        "accuracy": {"mean_error": 0.004, "inside": 1.0, "tau": 1.0},
        "latency": {"mean_error": 0.01, "worst_error": 0.02, "inside": 0.667, "tau": 1.0},
    }
    found = {
        "format": "gnomon-space-front",
        "version": 1,
        "profile": "p",
        "method": "balanced",
        "toolchain": "ort",
        "latency_bound_s": 2e-3,
        "measure": measured,
        "proofs": False,
        "kept": False,
        "space": "1000000000000",
        "on_front": 71,
        "rounds": 2 if measured else 1,
        "share": [0.97, 0.92, 0.99],
        "latency_model": {"networks": 12, "mean": 0.02, "worst": 0.041},
        "networks": rows,
        "measured": held if measured else None,
    }
    return {**found, **changes}


def hostile() -> dict[str, Any]:
    """The profile with names and reasons that want to steer a terminal or a picture."""
    found = copy.deepcopy(profile(notes=["a\x07note"]))
    found["families"][HOSTILE] = found["families"].pop("Res")
    found["accuracy"]["rankings"][1]["family"] = HOSTILE
    for one in found["latency"]:
        one["toolchain"] = f"../{one['toolchain']}\x1b[0m"
        one["networks"][4]["id"] = HOSTILE
        one["failed"][0]["reason"] = "\x1b]0;title\x07 no\u202ekernel"
        one["held_out"][HOSTILE] = one["held_out"].pop("VGG")
    found["latency"][1]["compared"]["twin"] = found["latency"][0]["toolchain"]
    found["accuracy"]["rankings"][1]["networks"][0]["id"] = HOSTILE
    return found
