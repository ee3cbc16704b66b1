"""One configuration a layer that is good on several devices at once: theta, the metric M, regrets and the choice.

For a layer, configuration c and devices i = 1..N with times t_i(c), theta_i is the least time of all configurations on
i, the regret of c on i is (t_i(c) - theta_i) / theta_i, and M(c) is the sum of its regrets: 0 for what is best
everywhere at once. A configuration without a time on some device is incomplete and not ranked, but counts for theta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats
from gnomon.errors import UsageError

_ROUNDING = 1e-12  # what M may be off, in parts of the sum of t / theta, which is M + N
_CELLS = 1 << 16  # times handled at once, so that what is made of them on the way stays in the processor's cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerTimes:
    """Times of configurations of one layer on several devices.

    `times_s` (configurations, devices) are seconds, NaN for a missing time; infinite values and those not above 0
    count as missing. `hosts` are, for each configuration, the devices that found it. `weight` is how often
    the network calls the layer.
    """

    name: str
    layer: str
    weight: int
    devices: tuple[str, ...]
    configurations: tuple[str, ...]
    hosts: tuple[tuple[str, ...], ...]
    times_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerChoice:
    """The choice for one layer, and the `times` that it was made from.

    `theta_s` (devices,) are the least times, NaN on a device without any. `metric` (configurations,) is M, NaN for
    incomplete ones; `complete` counts the others. `chosen` is an index, None where no configuration is complete; then
    `configuration` is empty, `value`, `mean` and `worst` are NaN, as are `regrets` and `estimates`. `value` is M of the
    choice, `mean` M/N, `worst` its largest regret, `regrets` (devices,) its terms. `estimates` (devices,) place its
    time between the best (1) and the worst (0) that the hosts' own best configurations have there.
    """

    times: LayerTimes
    theta_s: Floats
    metric: Floats
    chosen: int | None
    configuration: str
    hosts: tuple[str, ...]
    value: float
    mean: float
    worst: float
    regrets: Floats
    estimates: Floats
    complete: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NetworkChoice:
    """The choices of a network's layers, weighted by their share of its time.

    The share of a layer is the mean over devices of weight times theta over the sum of that over layers. `shares` sum
    to 1 over the layers that have a choice, and are 0 for the others. `decided` is the share of the former in the time
    of all layers, on the devices that have a time of each; NaN without such a device. `value` is the sum of share times
    M, `mean` that over the number of devices; NaN where no layer has a choice. `regrets` (devices,) are by how much the
    chosen configurations' times together exceed the least times together.
    """

    layers: tuple[LayerChoice, ...]
    shares: tuple[float, ...]
    value: float
    mean: float
    regrets: Floats
    decided: float


def choose(times: LayerTimes) -> LayerChoice:
    """The configuration of least M; of equal ones that of the least worst regret, and of those the first.

    Values that differ by less than rounding are equal, so that the order of devices decides nothing.
    """
    cleaned = _cleaned(np.asarray(times.times_s, dtype=np.float64))
    theta = np.fmin.reduce(cleaned, axis=0, initial=np.nan)
    metric = _metric(cleaned, theta)
    chosen = None if np.isnan(metric).all() else _chosen(cleaned, theta, metric)
    return _choice(times, cleaned, theta, metric, chosen)


def least_worst(choice: LayerChoice) -> LayerChoice:
    """The configuration of least worst regret (minimax), of equal ones the first of least M; else `choice` itself."""
    if choice.chosen is None or choice.worst <= 0:
        return choice
    # What is better on the worst device has an M of at most as many times what the choice loses there.
    times, count = choice.times, len(choice.times.devices)
    most = count * choice.worst
    rows: NDArray[np.intp] = np.flatnonzero(choice.metric <= most + _ROUNDING * (most + count))
    cleaned = _cleaned(np.asarray(times.times_s, dtype=np.float64))
    worst = regrets_of(cleaned[rows], choice.theta_s).max(axis=1)
    least = float(worst.min())
    if least >= choice.worst * (1 - _ROUNDING) - _ROUNDING:
        return choice
    tied = rows[worst <= least + _ROUNDING * (least + 1)]
    row = int(tied[np.argmin(choice.metric[tied])])
    return _choice(times, cleaned, choice.theta_s, choice.metric, row)


def _choice(times: LayerTimes, cleaned: Floats, theta: Floats, metric: Floats, chosen: int | None) -> LayerChoice:
    nothing = np.full(len(times.devices), np.nan)
    regrets = nothing if chosen is None else regrets_of(cleaned[chosen], theta)
    value = np.nan if chosen is None else float(metric[chosen])
    return LayerChoice(
        times=times,
        theta_s=theta,
        metric=metric,
        chosen=chosen,
        configuration="" if chosen is None else times.configurations[chosen],
        hosts=() if chosen is None else times.hosts[chosen],
        value=value,
        mean=value / len(times.devices),
        worst=float(regrets.max()),
        regrets=regrets,
        estimates=nothing if chosen is None else _estimates(cleaned, _own_best(times, cleaned), chosen),
        complete=int(np.count_nonzero(~np.isnan(metric))),
    )


def regrets_of(times_s: Floats, theta_s: Floats) -> Floats:
    """Regrets (..., devices) of times (..., devices): 0.1 is 10 % above the least time; NaN where there is no time."""
    with np.errstate(over="ignore"):
        result: Floats = (times_s - theta_s) / theta_s
    return result


def weigh_layers(choices: Sequence[LayerChoice]) -> NetworkChoice:
    """The network of these choices, which have the same devices. UsageError without any."""
    if not choices:
        raise UsageError("there is no layer to choose for", hint="Give at least one.")
    devices = choices[0].times.devices
    ranked = [k for k, choice in enumerate(choices) if choice.chosen is not None]
    shares, regrets = np.zeros(len(choices)), np.full(len(devices), np.nan)
    if ranked:
        theta = np.array([choices[k].theta_s for k in ranked])
        times = (theta / theta.max(axis=0)) * np.array([[float(choices[k].times.weight)] for k in ranked])
        parts = times / times.sum(axis=0)
        shares[ranked] = parts.mean(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):  # regrets are infinite where floats end
            regrets = (parts * np.array([choices[k].regrets for k in ranked])).sum(axis=0)
    value = sum(float(shares[k]) * choices[k].value for k in ranked) if ranked else np.nan
    return NetworkChoice(
        layers=tuple(choices),
        shares=tuple(shares.tolist()),
        value=value,
        mean=value / len(devices),
        regrets=regrets,
        decided=_decided_share(choices),
    )


def _decided_share(choices: Sequence[LayerChoice]) -> float:
    theta = np.array([choice.theta_s for choice in choices])
    theta = theta[:, ~np.isnan(theta).any(axis=0)]
    if not theta.size:
        return math.nan
    times = (theta / theta.max(axis=0)) * np.array([[float(choice.times.weight)] for choice in choices])
    decided = [choice.chosen is not None for choice in choices]
    return float((times[decided].sum(axis=0) / times.sum(axis=0)).mean())


def _cleaned(times_s: Floats) -> Floats:
    """The times with NaN in place of invalid ones; the same array if all are valid."""
    least = np.fmin.reduce(times_s, axis=None, initial=np.inf)
    most = np.fmax.reduce(times_s, axis=None, initial=0.0)
    if least > 0 and most < np.inf:
        return times_s
    return np.where((times_s <= 0) | np.isinf(times_s), np.nan, times_s)


def _metric(times_s: Floats, theta_s: Floats) -> Floats:
    """M (configurations,); NaN where a time is missing. A few rows at a time."""
    count, devices = times_s.shape
    metric = np.empty(count)
    step = max(_CELLS // devices, 1)
    part = np.empty((min(step, count), devices))
    with np.errstate(over="ignore"):
        for begin in range(0, count, step):
            rows = times_s[begin : begin + step]
            here = np.subtract(rows, theta_s, out=part[: len(rows)])
            np.divide(here, theta_s, out=here)
            here.sum(axis=1, out=metric[begin : begin + step])
    return metric


def _chosen(times_s: Floats, theta_s: Floats, metric: Floats) -> int:
    """Index of the choice, among configurations of which one at least has an M."""
    least = float(np.fmin.reduce(metric))
    tied: NDArray[np.intp] = np.flatnonzero(metric <= least + _ROUNDING * (least + len(theta_s)))
    worst = regrets_of(times_s[tied], theta_s).max(axis=1)
    best = float(worst.min())
    return int(tied[np.flatnonzero(worst <= best + _ROUNDING * (best + 1))[0]])


def _own_best(times: LayerTimes, cleaned: Floats) -> list[int]:
    """Index of each device's own best: of the configurations that it found, the fastest on it."""
    places = {device: i for i, device in enumerate(times.devices)}
    by_host: list[list[int]] = [[] for _ in times.devices]
    for configuration, hosts in enumerate(times.hosts):
        for host in hosts:
            if host in places:
                by_host[places[host]].append(configuration)
    best = []
    for device, rows in enumerate(by_host):
        own = cleaned[rows, device]
        if not np.isnan(own).all():
            best.append(rows[int(np.nanargmin(own))])
    return best


def _estimates(times_s: Floats, own_best: Sequence[int], chosen: int) -> Floats:
    """1 - (t - low) / (high - low), of the times of the hosts' own best and of the choice; 1 where they are equal."""
    carried = times_s[[*own_best, chosen]]
    low, high = np.fmin.reduce(carried, axis=0), np.fmax.reduce(carried, axis=0)
    spread = high - low
    above: Floats = times_s[chosen] - low
    return np.asarray(1.0 - np.divide(above, spread, out=np.zeros_like(above), where=spread > 0))
