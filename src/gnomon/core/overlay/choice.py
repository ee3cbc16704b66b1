"""One configuration per layer that is good on several devices at once: theta, the metric M, regrets and the choice.

For a layer, a configuration c and devices i = 1..N with times t_i(c), theta_i is the least time of any configuration on
device i, the regret of c on i is (t_i(c) - theta_i) / theta_i, and M(c) is the sum of the regrets of c. M(c) is 0 if c
is the best on every device. A configuration without a time on some device is incomplete. It is not ranked, but its
times count for theta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats
from gnomon.errors import UsageError

_ROUNDING = 1e-12  # the rounding error of M, relative to the sum of t / theta, which is M + N
_CELLS = 1 << 16  # times processed at once, so that intermediate results stay in the processor's cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerTimes:
    """Times of configurations of one layer on several devices.

    `times_s` (configurations, devices) are seconds, NaN for a missing time; infinite values and values not above 0
    count as missing. `hosts` are, for each configuration, the devices on which it was found. `weight` is the number of
    times that the network calls the layer.
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
    """The choice for one layer, and the `times` on which it is based.

    `theta_s` (devices,) are the least times, NaN on a device without times. `metric` (configurations,) is M, NaN for
    incomplete configurations; `complete` counts the complete ones. `chosen` is the index of the chosen configuration,
    None if none is complete; then `configuration` is empty, and `value`, `mean`, `worst`, `regrets` and `estimates` are
    NaN. `value` is M of the choice, `mean` is M/N, `worst` is its largest regret, and `regrets` (devices,) are its
    regrets. `estimates` (devices,) place its time on each device between the best (1) and the worst (0) of the times
    that this configuration and the hosts' own best configurations have there.
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
    """The choices of a network's layers, weighted by their shares of its time.

    On each device the part of a layer is weight times theta, divided by the sum of these products over the layers. The
    share of a layer is the mean of its parts over the devices. `shares` sum to 1 over the layers that have a choice,
    and are 0 for the others. `decided` is the share of all layers' time that belongs to the layers with a choice, on
    the devices that have a time for each layer; NaN if there is no such device. `value` is the sum of share times M,
    and `mean` is `value` divided by the number of devices; both are NaN if no layer has a choice. `regrets` (devices,)
    are the amounts by which the chosen configurations' total time exceeds the least total time, as shares of the least.
    """

    layers: tuple[LayerChoice, ...]
    shares: tuple[float, ...]
    value: float
    mean: float
    regrets: Floats
    decided: float


def choose(times: LayerTimes) -> LayerChoice:
    """The choice of least M; ties are decided by the least worst regret, and then by the order of configurations.

    Values that differ by no more than rounding count as equal, so that the order of devices decides nothing.
    """
    cleaned = _cleaned(np.asarray(times.times_s, dtype=np.float64))
    theta = np.fmin.reduce(cleaned, axis=0, initial=np.nan)
    metric = _metric(cleaned, theta)
    chosen = None if np.isnan(metric).all() else _chosen(cleaned, theta, metric)
    return _choice(times, cleaned, theta, metric, chosen)


def least_worst(choice: LayerChoice) -> LayerChoice:
    """The choice of least worst regret (minimax); ties are decided by M, and then by the order of configurations.

    `choice` itself is returned if no configuration has a smaller worst regret.
    """
    if choice.chosen is None or choice.worst <= 0:
        return choice
    # M is at most N times the worst regret, so only configurations with an M of at most N times the choice's worst
    # regret can be better.
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
    """Regrets (..., devices) of times (..., devices): 0.1 is 10 % above the least time; NaN without a time."""
    with np.errstate(over="ignore"):
        result: Floats = (times_s - theta_s) / theta_s
    return result


def weigh_layers(choices: Sequence[LayerChoice]) -> NetworkChoice:
    """The network of these choices, which must have the same devices. UsageError if there are no choices."""
    if not choices:
        raise UsageError("there is no layer to choose for", hint="Give at least one layer.")
    devices = choices[0].times.devices
    ranked = [k for k, choice in enumerate(choices) if choice.chosen is not None]
    shares, regrets = np.zeros(len(choices)), np.full(len(devices), np.nan)
    if ranked:
        theta = np.array([choices[k].theta_s for k in ranked])
        times = (theta / theta.max(axis=0)) * np.array([[float(choices[k].times.weight)] for k in ranked])
        parts = times / times.sum(axis=0)
        shares[ranked] = parts.mean(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):  # regrets are infinite if floats overflow
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
    """The times with NaN in place of invalid times; the same array if all are valid."""
    least = np.fmin.reduce(times_s, axis=None, initial=np.inf)
    most = np.fmax.reduce(times_s, axis=None, initial=0.0)
    if least > 0 and most < np.inf:
        return times_s
    return np.where((times_s <= 0) | np.isinf(times_s), np.nan, times_s)


def _metric(times_s: Floats, theta_s: Floats) -> Floats:
    """M (configurations,); NaN if a time is missing. A few rows are computed at a time."""
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
    """The index of the chosen configuration; at least one configuration has an M."""
    least = float(np.fmin.reduce(metric))
    tied: NDArray[np.intp] = np.flatnonzero(metric <= least + _ROUNDING * (least + len(theta_s)))
    worst = regrets_of(times_s[tied], theta_s).max(axis=1)
    best = float(worst.min())
    return int(tied[np.flatnonzero(worst <= best + _ROUNDING * (best + 1))[0]])


def _own_best(times: LayerTimes, cleaned: Floats) -> list[int]:
    """The index of each device's own best configuration: the fastest there among those found on the device."""
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
    """1 - (t - low) / (high - low) for the choice's time t; low and high are the extremes of t and of the times of the
    hosts' own best configurations.

    The result is 1 where low and high are equal.
    """
    carried = times_s[[*own_best, chosen]]
    low, high = np.fmin.reduce(carried, axis=0), np.fmax.reduce(carried, axis=0)
    spread = high - low
    above: Floats = times_s[chosen] - low
    return np.asarray(1.0 - np.divide(above, spread, out=np.zeros_like(above), where=spread > 0))
