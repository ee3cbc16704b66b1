"""An estimator as one Python file that needs only numpy, for search loops in other programs and on other machines."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gnomon.estimate.document import estimator_document
from gnomon.estimate.estimator import Estimator

_TEMPLATE = '''"""A latency estimator, written by gnomon. Needs numpy alone; times are in seconds.

    python estimator.py < nets.json     prints [expected, low, high] of each net of a list

A net is {slot: choice} by the names of its search space, or {unit: how often} by ids, labels or UIDs of units.
"""

import json
import math
import sys

import numpy as np

MODEL = json.loads(r"""
@MODEL@
""")
SPACE = json.loads(r"""
@SPACE@
""")
NAMES = MODEL["columns"]["names"]
COVERAGE = MODEL["noise"]["coverage"]
_INDEX = {name: i for i, name in enumerate(NAMES)}
LABELS = SPACE["labels"] if SPACE else {}
UIDS = SPACE["uids"] if SPACE else {}
_INDEX.update({other: _INDEX[name] for names in (LABELS, UIDS) for name, other in names.items() if other not in _INDEX})
SLOTS = {slot["name"]: slot["choices"] for slot in SPACE["slots"]} if SPACE else {}
_MEAN = np.array([MODEL["bias_s"], *MODEL["coefficients_s"]])
_OWN = np.array(MODEL["covariance"]["own"])
_MORE = np.array(MODEL["covariance"]["more"], dtype=float).reshape(-1, len(_MEAN))
_LESS = np.array(MODEL["covariance"]["less"], dtype=float).reshape(-1, len(_MEAN))
_KNOWN = np.array(MODEL["known"])
_NOISE = MODEL["noise"]


def count(net):
    """How often each unit occurs in a net {slot: choice}: {unit: how often}. KeyError for unknown slots and choices."""
    for name in [name for name in SLOTS if name not in net] + [name for name in net if name not in SLOTS]:
        raise KeyError(f"the net {'has no' if name in SLOTS else 'has the unknown'} slot {name!r}")
    for name, choice in net.items():
        if choice not in SLOTS[name]:
            raise KeyError(f"the slot {name!r} has no choice {choice!r}")
    chosen = [choices.index(net[name]) for name, choices in SLOTS.items()]
    found = dict(SPACE["always"])
    state = 0
    for step in SPACE["steps"]:
        index = 0
        for slot in reversed(step["slots"]):
            index = index * len(SPACE["slots"][slot]["choices"]) + chosen[slot]
        for unit, often in SPACE["rows"][step["row"][state][index]]:
            found[NAMES[unit]] = found.get(NAMES[unit], 0) + often
        state = step["next"][state][index]
    return found


def matrix(nets):
    """The rows of nets. KeyError for a unit, a slot or a choice that the estimator does not know."""
    rows = np.zeros((len(nets), len(NAMES)))
    for row, net in zip(rows, nets):
        if not net:
            raise KeyError("the net is empty: give its slots, or its units including 'overhead'")
        units = count(net) if SLOTS and any(isinstance(choice, str) for choice in net.values()) else net
        for name, often in units.items():
            if name not in _INDEX:
                raise KeyError(f"the estimator does not know the unit {name!r}")
            row[_INDEX[name]] += often
    return rows


def predict(rows, widen=False):
    """Expected times and the ends of the intervals of rows (nets, units): three arrays in seconds.

    KeyError for a unit with neither a sample nor a price, unless `widen` allows wide intervals for it.
    """
    x = np.asarray(rows, dtype=float)
    if x.ndim != 2 or x.shape[1] != len(NAMES) or not np.isfinite(x).all():
        raise ValueError(f"rows of {len(NAMES)} finite values are expected")
    strange = np.flatnonzero(~_KNOWN & (x != 0).any(axis=0))
    if strange.size and not widen:
        raise KeyError(f"there is neither a sample nor a price for {NAMES[strange[0]]!r}")
    mean = x @ _MEAN[1:] + _MEAN[0]
    x1 = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    variance = (x1 * x1) @ _OWN + ((x1 @ _MORE.T) ** 2).sum(axis=1) - ((x1 @ _LESS.T) ** 2).sum(axis=1)
    variance = np.maximum(variance, 0.0)
    mean = np.maximum(mean, 0.01 * MODEL["level_s"])
    variance = variance + _NOISE["relative"] ** 2 * (mean**2 + _NOISE["floor_s"] ** 2)
    half = _NOISE["width"] * np.sqrt(variance)
    return mean, np.maximum(mean - half, 0.0), mean + half


def get_estimation(net, widen=False):
    """The expected time of one net, {slot: choice} or {unit: how often}, in seconds."""
    return float(predict(matrix([net]), widen)[0][0])


def get_interval(net, widen=False):
    """The ends in seconds of the interval that contains a measured time of the net with the probability COVERAGE."""
    _, low, high = predict(matrix([net]), widen)
    return float(low[0]), float(high[0])


if __name__ == "__main__":
    print(json.dumps([list(row) for row in np.stack(predict(matrix(json.load(sys.stdin))), axis=1).tolist()]))
'''


def export_estimator(estimator: Estimator, space: Mapping[str, object] | None = None) -> str:
    """The text of `estimator.py`, which contains the model as JSON, `get_estimation`, `get_interval`, `predict` and
    `count`.

    `space` has the rules for counting a net's units; without it, nets are given as counts of units. Keys: `slots`
    (`name`, `choices`), `always` {column: how often}, `rows` of [number of the column, how often], `steps` (`slots` by
    number, and for each state and choice the numbers of the `row` and of the `next` state), `labels` and `uids`
    {column: name}.
    """
    # JSON never contains three quotes in a row, and ASCII escapes do not depend on the encoding of the file.
    model = json.dumps(estimator_document(estimator), ensure_ascii=True, allow_nan=False)
    counted = json.dumps(space, ensure_ascii=True, allow_nan=False)
    return _TEMPLATE.replace("@SPACE@", counted).replace("@MODEL@", model)
