"""A small made-up space, a table of it and measured nets, for the tests of estimators; nothing is really measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnomon.formats.nets_csv import NetRow, write_nets
from gnomon.jobs.estimator.job import Described, described
from gnomon.jobs.table.folder import write_table
from gnomon.spaces import Block, BlockSpace, Choice, Stage, Symbol, rules, skip
from gnomon.spaces.latency_table import Manifest, Row, Table
from gnomon.spaces.loading import draw
from gnomon.spaces.unit import Unit

OVERHEAD_S = 2e-6

SOURCE = """
from tests.jobs.estimator.estimator_kit import small_space, other_space
space = small_space
other = other_space
changed = other_space("small")
"""


def conv(channels: int, kernel: int = 3) -> Block:
    return lambda x: x.conv(channels, kernel).relu()


def last(x: Symbol) -> Symbol:
    return x.global_average_pool().linear(3)


def small_space() -> BlockSpace:
    """Two resolutions, a stage of variable depth and three choices: 2 * (1 + 2 + 4) * 3 * 2 nets."""
    return BlockSpace(
        name="small",
        inputs=((1, 3, 16, 16), (1, 3, 20, 20)),
        parts=(
            conv(8),
            Choice("a", {"wide": conv(16), "narrow": conv(8, 1), "skip": skip}),
            conv(8, 1),
            Stage(
                "s",
                (0, 1, 2),
                (
                    Choice("s0", {"k3": conv(8), "k5": conv(8, 5)}),
                    Choice("s1", {"k3": conv(8), "k1": conv(8, 1)}),
                ),
            ),
            Choice("b", {"k1": conv(12, 1), "k5": conv(12, 5)}),
            last,
        ),
    )


def other_space(name: str = "other") -> BlockSpace:
    return BlockSpace(name=name, inputs=((1, 3, 8, 8),), parts=(Choice("a", {"conv": conv(4), "skip": skip}), last))


def price_s(unit: Unit) -> float:
    """What a unit adds to a net on the made-up device."""
    work = float(np.prod(unit.output))
    for one in unit.layers:
        if one.kind == "Conv":
            work *= unit.inputs[0][1] * one.pair("kernel")[0] * one.pair("kernel")[1]
    return 1e-6 + 1e-10 * work


def made_table(space: BlockSpace, *, lacking: bool = False, chains: tuple[str, ...] = ("Conv+Relu",)) -> Table:
    """A table of the space; where it is lacking, the two units of choice k5 of slot b failed."""
    units = space.tables(rules(chains)).units
    rows = [
        Row(unit=u, status="failed", at_s=1.0, reason="it does not run")
        if lacking and u.label.startswith("Conv 5x5 12")
        else Row(unit=u, status="ok", at_s=1.0, call_s=price_s(u) + OVERHEAD_S)
        for u in units
    ]
    context = {"device": {"machine": "made-up"}, "runtime": "onnxruntime", "dtype": "float32"}
    manifest = Manifest(space=space.name, context=context, clock="cpu", overhead_s=OVERHEAD_S, rules=chains)
    return Table(manifest=manifest, rows=tuple(rows))


def kit(folder: Path, *, lacking: bool = False) -> tuple[Described, Path, str]:
    """The described space with its table, the table's folder, and how a command names the space."""
    file = folder / "space.py"
    file.write_text(SOURCE, encoding="utf-8")
    path = folder / "t.table"
    write_table(made_table(small_space(), lacking=lacking), path)
    name = f"{file}:space"
    return described(path, name), path, name


def measured(
    found: Described, count: int, *, scale: float = 1.1, bias_s: float = 5e-6, noise: float = 0.01, seed: int = 1
) -> list[NetRow]:
    """Nets with times: a scale and a bias away from the table's sum, with noise and its intervals."""
    rng = np.random.default_rng(seed)
    chosen = draw(found.tables, count, seed=seed)
    prices = np.array([OVERHEAD_S, *(price_s(unit) for unit in found.tables.units)])
    times = (scale * (found.rows(chosen) @ prices) + bias_s) * (1 + noise * rng.standard_normal(count))
    half = 1.96 * noise
    return [
        NetRow(assignment=tuple(net), latency_s=float(t), low_s=float(t * (1 - half)), high_s=float(t * (1 + half)))
        for net, t in zip(chosen.tolist(), times, strict=True)
    ]


def save(rows: list[NetRow], found: Described, path: Path) -> Path:
    path.write_text(write_nets(rows, found.space.space, measured=True), encoding="utf-8")
    return path
