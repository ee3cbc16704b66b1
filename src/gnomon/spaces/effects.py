"""What each primitive of each cell group adds to a price, learned from a few networks, with what is left unknown.

The price of a network is taken as a constant and one effect a cell group. The effect of primitive p in group g is
``scale_g * (family_p + main_p + own_gp)``, all three normal with mean 0: a hierarchical model, in which an effect that
is measured badly is pulled towards that of the same primitive in other groups, and that towards its family's. Their
sizes, a scale of each group among them, are those that make the measurements most likely, under a weak prior that keeps
them finite (empirical Bayes: Efron and Morris, "Data analysis using Stein's estimator and its generalizations", 1975).

Nothing asks for single swaps: any networks will do, and what they leave open shows in the covariance.

Accuracy is modelled on the logit scale: there effects add up without leaving 0 to 1, a gain near 1 is as hard as it is,
and no Pareto front changes, as the logit rises with accuracy. Latency is a sum of its parts, hence additive as it is,
after division by a reference that frees it of its unit; its errors are relative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.space import Space
from gnomon.errors import ProblemError
from gnomon.spaces.effects_likelihood import PARTS, Likelihood, Told

Scale = Literal["plain", "logit"]

_FLOOR = 1e-3  # accuracies nearer to 0 or 1 than this are taken as this: their logit would be anything
_NORMAL_95 = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """Networks (N, groups) as indices of a space's choices, what they cost (N,), and its standard errors (N,).

    ProblemError for shapes that do not fit, values that are not finite, and errors that are not finite or below 0.
    """

    assignments: Ints
    values: Floats
    errors: Floats

    def __post_init__(self) -> None:
        rows, values, errors = np.asarray(self.assignments), np.asarray(self.values), np.asarray(self.errors)
        if rows.ndim != 2 or not len(rows) or values.shape != (len(rows),) or errors.shape != (len(rows),):
            raise ProblemError(
                f"networks of shape {rows.shape} have values of shape {values.shape}, errors of {errors.shape}",
                hint="Give each network one value and one standard error, and at least one network.",
            )
        if not (np.isfinite(values).all() and np.isfinite(errors).all() and (errors >= 0).all()):
            raise ProblemError(
                "a value is not finite, or a standard error is no number from 0",
                hint="Leave out networks that were not measured, and give 0 for what is known exactly.",
            )
        object.__setattr__(self, "assignments", rows.astype(np.intp))
        object.__setattr__(self, "values", values.astype(np.float64))
        object.__setattr__(self, "errors", errors.astype(np.float64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Effects:
    """What is believed of the effects: normal, with `mean` (1 + C,) and `covariance` (1 + C, 1 + C).

    The first is the constant, then come the choices of the first group, of the second, and so on. On the scale that
    `scale` names. `sizes` are the standard deviations of the parts "family", "main", "own" and "misfit", the last of
    which is what no sum of effects explains (0 unless networks that differ in several groups were measured).
    """

    space: Space
    scale: Scale
    mean: Floats
    covariance: Floats
    sizes: dict[str, float]

    def draw(self, count: int, *, seed: int) -> tuple[Floats, ...]:
        """Effects drawn from what is believed, on the scale of the model: an array (count, choices) a group.

        The sum over the groups is a network's price; the constant is spread evenly over them.
        """
        values, vectors = np.linalg.eigh(self.covariance)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        # The symmetric root, and noise that goes by names: the order of groups and choices changes no draw.
        names = [(slot.name, name) for slot in self.space.slots for name in slot.choices]
        order = [0, *(1 + place for place in sorted(range(len(names)), key=names.__getitem__))]
        noise = np.empty((count, len(self.mean)))
        noise[:, order] = np.random.default_rng(seed).standard_normal((count, len(self.mean)))
        return self.tables(self.mean + noise @ root)

    def tables(self, effects: Floats) -> tuple[Floats, ...]:
        """Vectors (K, 1 + C) of constant and effects, as an array (K, choices) a group, the constant spread evenly."""
        ends = np.cumsum([len(slot.choices) for slot in self.space.slots])
        even = effects[:, :1] / len(self.space.slots)
        return tuple(part + even for part in np.split(effects[:, 1:], ends[:-1], axis=1))

    def predict(self, assignments: NDArray[np.integer] | Sequence[Sequence[int]]) -> tuple[Floats, Floats, Floats]:
        """The expected value of networks (N, groups) and the ends of its 95 % interval, on the values' own scale.

        ProblemError for networks outside the space.
        """
        design = design_matrix(self.space, np.asarray(assignments, dtype=np.intp))
        middle = design @ self.mean
        spread = np.einsum("ni,ij,nj->n", design, self.covariance, design) + self.sizes["misfit"] ** 2
        half = _NORMAL_95 * np.sqrt(np.maximum(spread, 0.0))
        if self.scale == "plain":
            return middle, middle - half, middle + half
        return expit(middle), expit(middle - half), expit(middle + half)


def fit_effects(space: Space, evidence: Evidence, *, scale: Scale) -> Effects:
    """The effects of a space's choices on a price; choices are primitives by name, alike where the name is.

    With `scale` "logit" values lie from 0 to 1, and those nearer to an end than 0.001 count as 0.001 from it.
    ProblemError for networks outside the space, and for values that do not fit the scale.
    """
    values, errors = evidence.values, evidence.errors
    if scale == "logit":
        if ((values < 0) | (values > 1)).any():
            raise ProblemError("an accuracy is not from 0 to 1", hint="Give fractions: 0.93 for 93 %.")
        inside = np.clip(values, _FLOOR, 1 - _FLOOR)
        values, errors = np.log(inside / (1 - inside)), errors / (inside * (1 - inside))
    # Everything in units of the spread of the values: the limits and the weak prior then mean the same everywhere.
    unit = float(values.std()) or float(np.abs(values).max()) or 1.0
    center = float(values.mean())
    told = Told(
        design=design_matrix(space, evidence.assignments),
        values=(values - center) / unit,
        errors=errors / unit,
        mixed=_swaps(evidence.assignments) > 1,
    )
    likelihood = Likelihood(space, told)
    sizes = likelihood.best()
    mean, covariance = likelihood.posterior(sizes)
    mean = mean * unit
    mean[0] += center
    found = {name: math.exp(size) * unit for name, size in zip(PARTS, sizes[: likelihood.last], strict=False)}
    found["misfit"] = found["misfit"] if told.mixed else 0.0
    return Effects(space=space, scale=scale, mean=mean, covariance=covariance * unit**2, sizes=found)


def design_matrix(space: Space, assignments: Ints) -> Floats:
    """A one for the constant and for each choice that a network takes: (N, 1 + C). ProblemError outside the space."""
    counts = np.array([len(slot.choices) for slot in space.slots])
    if (
        assignments.ndim != 2
        or assignments.shape[1] != len(counts)
        or (assignments < 0).any()
        or (assignments >= counts).any()
    ):
        raise ProblemError("a network is not one of the space", hint=f"Give {len(counts)} indices of its choices.")
    made = np.zeros((len(assignments), 1 + int(counts.sum())))
    made[:, 0] = 1.0
    places = 1 + np.concatenate([[0], np.cumsum(counts)[:-1]]) + assignments
    np.put_along_axis(made, places, 1.0, axis=1)
    return made


def expit(values: Floats) -> Floats:
    """The inverse of the logit, without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * values)))


def _swaps(assignments: Ints) -> int:
    """The largest number of groups in which a network differs from that one which is nearest to all others."""
    apart = (assignments[:, None, :] != assignments[None, :, :]).sum(axis=2)
    # Of each network's nearest relative: single swaps of a default are one group from it.
    centers = [int(row) for row in np.flatnonzero((apart <= 1).sum(axis=1) > 2)]
    return int(apart[:, centers].min(axis=1).max()) if centers else assignments.shape[1]
