"""What a unit works: multiply-adds by sort, bytes, weights, and what a user adds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gnomon.errors import ProblemError
from gnomon.spaces.catalogue.mobilenetv2_cifar10 import mobilenetv2_cifar10
from gnomon.spaces.fuse import fuse, rules
from gnomon.spaces.layers import layer
from gnomon.spaces.unit import Net, Symbol, Trace, Unit, single
from gnomon.spaces.work import WORK, relative_size, size_of, told_work, work


def whole(shape: tuple[int, ...], made: list[str]) -> tuple[Net, Symbol]:
    trace = Trace((shape,))
    x = trace.input()
    for step in made:
        match step.split():
            case ["conv", channels, kernel]:
                x = x.conv(int(channels), int(kernel))
            case ["depthwise", kernel]:
                x = x.depthwise(int(kernel), stride=2)
            case ["linear", features]:
                x = x.linear(int(features))
            case [name]:
                x = getattr(x, name)()
    return trace.net(x), x


def one(shape: tuple[int, ...], *made: str) -> dict[str, float]:
    """The work of what the last step makes, a chain where it follows others in the rules."""
    net, _ = whole(shape, list(made))
    chain = "+".join(net.nodes[n].unit.kinds[0] for n in range(len(net.nodes)))
    fused = fuse(net, rules([chain] if len(made) > 1 else []))
    assert len(fused.nodes) == 1
    return dict(zip(WORK, work([fused.nodes[0].unit])[0].tolist(), strict=True))


def test_multiply_adds_are_told_apart() -> None:
    assert one((1, 8, 10, 10), "conv 16 1")["pointwise"] == 8 * 16 * 100
    assert one((1, 8, 10, 10), "conv 16 3")["dense"] == 8 * 16 * 9 * 100
    assert one((1, 8, 10, 10), "depthwise 5")["depthwise"] == 8 * 25 * 25
    assert one((1, 8, 1, 1), "linear 10")["dense"] == 80
    # A batch is so many times the work, with the same weights.
    batch = one((4, 8, 10, 10), "conv 16 3")
    assert batch["dense"] == 4 * 8 * 16 * 9 * 100 and batch["weights"] == 8 * 16 * 9


def test_bytes_are_what_goes_in_and_out_and_the_weights() -> None:
    found = one((1, 8, 10, 10), "conv 16 3")
    assert found["bytes"] == 4 * (800 + 1600 + 8 * 16 * 9)
    pool = one((1, 8, 10, 10), "global_average_pool")
    assert (pool["pooled"], pool["bytes"], pool["plain"]) == (800, 4 * 808, 0)


def test_what_is_fused_behind_costs_no_traffic() -> None:
    alone, fused = one((1, 8, 10, 10), "conv 16 3"), one((1, 8, 10, 10), "conv 16 3", "batch_norm", "relu")
    assert fused == alone
    assert one((1, 8, 10, 10), "relu")["plain"] == 800


def test_units_of_a_space_all_work() -> None:
    units = mobilenetv2_cifar10().tables(rules(["Conv+BatchNormalization"])).units
    done = work(units)
    assert (done >= 0).all() and (done[:, WORK.index("bytes")] > 0).all() and (done[:, WORK.index("units")] == 1).all()
    sizes = relative_size(done)
    assert (sizes > 0).all() and sizes.mean() == pytest.approx(1)


def test_a_user_adds_what_the_vocabulary_lacks() -> None:
    units = mobilenetv2_cifar10().tables().units[:3]
    found = told_work(units, lambda unit: {"channels": unit.output[1], **({"first": 1} if unit is units[0] else {})})
    np.testing.assert_array_equal(found, [[u.output[1], float(u is units[0])] for u in units])


@pytest.mark.parametrize("value", ["many", None])
def test_what_a_users_function_tells_wrongly_is_told(value: object) -> None:
    def told(unit: Unit) -> dict[str, object]:
        return {"x": value}

    with pytest.raises(ProblemError, match=r"the work of 'Conv .*' cannot be computed"):
        told_work(mobilenetv2_cifar10().tables().units[:1], told)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: single(layer("Conv", out_channels=10**400, kernel=1), ((1, 3, 8, 8),)),
        lambda: single(layer("Conv", out_channels=1, kernel=1, pad=10**400), ((1, 3, 8, 8),)),
        lambda: single(layer("Relu"), ((10**400,),)),
        lambda: single(layer("Relu"), ((2**31,) * 40,)),
    ],
)
def test_what_no_runtime_can_count_is_no_unit(make: Callable[[], Unit]) -> None:
    with pytest.raises(ProblemError):
        make()


def test_the_largest_unit_has_work() -> None:
    largest = single(layer("Conv", out_channels=2**31, kernel=2**31, pad=2**30), ((1, 2**31, 1, 1),))
    assert np.isfinite(work([largest])).all()


def test_a_net_needs_memory_for_what_is_still_read() -> None:
    trace = Trace(((1, 2, 10, 10),))
    x = trace.input()
    y = x.conv(8, 3).batch_norm().relu()
    found = size_of(trace.net((y + y.conv(8, 1)).conv(1, 1)))
    # The first convolution's input goes once it has run, its result is needed again by the addition.
    assert found.peak_bytes == 4 * (800 + 800)
    assert found.parameters == 2 * 8 * 9 + 2 * 8 + 8 * 8 + 8
    assert found.macs == 100 * (2 * 8 * 9 + 8 * 8 + 8)
