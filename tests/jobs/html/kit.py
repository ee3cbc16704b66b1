"""Documents whose texts do what they can to be more than text."""

from __future__ import annotations

from typing import Any

from tests.cli.placement_kit import placement

HOSTILE = "<img src=x onerror=window.owned=1>\"'</script><script>window.owned=1</script><!--{{7*7}}\u202etxt\x1b[2J"


def hostile() -> dict[str, Any]:
    """A placement whose operators, configurations, warnings and failures have such names."""
    made = placement().document()
    for row in made["operators"]:
        row["name"] = row["type"] = HOSTILE
        row["times_s"] = {HOSTILE + key: value for key, value in row["times_s"].items()}
        row["within"] = {HOSTILE + key: value for key, value in row["within"].items()}
    for one in made["contenders"]:
        one["label"] = HOSTILE + one["label"]
        if one["failure"]:
            one["failure"]["message"] = HOSTILE
        if one["runs"]["profile"]:
            one["runs"]["profile"]["name"] = [HOSTILE] * len(one["runs"]["profile"]["name"])
    made["decision"]["chosen"] = HOSTILE + made["decision"]["chosen"]
    made["decision"]["reason"] = HOSTILE
    made["model"]["path"] = f"models/{HOSTILE.replace('/', '')}.onnx"
    made["device"] = HOSTILE
    made["fingerprint"]["cpu_model"] = HOSTILE
    for row in (*made["doubts"], *made["missing"]):
        for key in row:
            row[key] = HOSTILE
    return made
