"""Made-up graphs of about 2,012 operators, for the benchmarks of fronts: the training of two kinds of nets, and a
tangle.

Training consists of a forward pass, a backward pass and updates. For each operator of the forward pass, the backward
pass has one that needs the gradients of its readers and the inputs of the forward operator; each parameter has an
update. So gradients depend on activations from one end of the graph to the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.solver.speed import partial_tree
from gnomon.core.cost import Charge, CostModel, Objective, PairCost
from gnomon.core.space import Slot, Space

_TOTAL = 1e6
_SPEED_UP = 20.0  # speed of the accelerator relative to the processor, for operators with much work


@dataclass
class Tape:
    """Operators with their work (FLOP), their output (bytes), and their inputs."""

    rng: np.random.Generator
    work: list[float] = field(default_factory=list)
    size: list[float] = field(default_factory=list)
    reads: list[tuple[int, ...]] = field(default_factory=list)
    parameter: list[bool] = field(default_factory=list)

    def add(self, work: float, size: float, *reads: int, parameter: bool = False) -> int:
        """Add an operator and return its number."""
        self.work.append(work)
        self.size.append(size)
        self.reads.append(reads)
        self.parameter.append(parameter)
        return len(self.work) - 1

    def weight(self, size: float) -> int:
        """A parameter."""
        return self.add(0.0, size, parameter=True)

    def dense(self, x: int, work: float, size: float, weights: float, *, bias: bool = True) -> int:
        """A matrix product or convolution, and its bias."""
        y = self.add(work, size, x, self.weight(weights))
        return self.add(size / 4, size, y, self.weight(size**0.5)) if bias else y

    def backward(self, most: int) -> None:
        """Add the gradients from the last operator on, and the updates; stop at `most` operators in total."""
        count = len(self.work)
        users: dict[int, list[int]] = {}
        for i in range(count - 1, -1, -1):
            if len(self.work) >= most:
                return
            flows = users.pop(i, [])
            if not flows and i != count - 1:
                continue
            grad = flows[0] if flows else i
            for other in flows[1:]:
                grad = self.add(self.size[i] / 4, self.size[i], grad, other)
            if self.parameter[i]:
                self.add(3 * self.size[i] / 4, 0.0, grad, i)
                continue
            heavy = len(self.reads[i]) > 1 and self.work[i] > self.size[i]
            for x in self.reads[i] if heavy else self.reads[i][:1]:
                others = [o for o in self.reads[i] if o != x] if heavy else [i]
                g = self.add(self.work[i], self.size[x], grad, *others)
                users.setdefault(x, []).append(g)
            if not heavy:
                for x in self.reads[i][1:]:
                    users.setdefault(x, []).append(grad)


def transformer(rng: np.random.Generator, layers: int = 12, most: int = 2012) -> Tape:
    """A transformer with an attention mask that every layer reads."""
    tape = Tape(rng)
    tokens, hidden = 128 * 8, int(rng.choice([512, 768, 1024]))
    a, heads = 4.0 * tokens * hidden, 4.0 * tokens * 128 * 12
    mask = tape.add(tokens, 4.0 * tokens)
    table = tape.weight(4.0 * 30000 * hidden)
    x = tape.add(tokens * hidden, a, table)
    square = 2.0 * tokens * hidden * hidden
    for _ in range(layers):
        q, k, v = (_chain(tape, tape.dense(x, square, a, 4.0 * hidden**2), a, 4) for _ in range(3))
        s = tape.add(heads / 4, heads, _chain(tape, tape.add(heads * hidden / 24, heads, q, k), heads, 1), mask)
        s = _chain(tape, tape.add(heads, heads, s), heads, 1)
        c = _chain(tape, tape.add(heads * hidden / 24, a, s, v), a, 4)
        c = _chain(tape, tape.dense(c, square, a, 4.0 * hidden**2), a, 1)
        x = _normed(tape, tape.add(a / 4, a, c, x), a)
        f = tape.dense(x, 4 * square, 4 * a, 16.0 * hidden**2)
        f = tape.add(2 * a, 4 * a, _chain(tape, f, 4 * a, 6), f)
        f = _chain(tape, tape.dense(f, 4 * square, a, 16.0 * hidden**2), a, 1)
        x = _normed(tape, tape.add(a / 4, a, f, x), a)
    out = tape.dense(x, 2.0 * tokens * hidden * 30000, 4.0 * tokens * 30000, 4.0 * 30000 * hidden)
    tape.add(tokens * 30000, 4.0, out)
    tape.backward(most)
    return tape


def _chain(tape: Tape, x: int, size: float, count: int) -> int:
    """A row of cheap operators, such as reshapes and the steps of an activation."""
    for _ in range(count):
        x = tape.add(size / 4, size, x)
    return x


def _normed(tape: Tape, x: int, a: float) -> int:
    mean = tape.add(a / 4, a / 512, x)
    centred = tape.add(a / 4, a, x, mean)
    deviation = tape.add(a / 4, a / 512, tape.add(a / 2, a / 512, centred))
    scaled = tape.add(a / 4, a, tape.add(a / 4, a, centred, deviation), tape.weight(3072.0))
    return tape.add(a / 4, a, scaled, tape.weight(3072.0))


def inception(rng: np.random.Generator, most: int = 2012) -> Tape:
    """Modules of four branches of normalised convolutions, with a shortcut around each module."""
    tape = Tape(rng)
    pixels, channels = 112.0 * 112 * 8, 64.0
    x = tape.add(pixels, 4 * pixels * 3)
    while 2.35 * len(tape.work) < most:
        if rng.random() < 0.2:
            pixels, channels = max(pixels / 4, 400.0), min(channels * 1.5, 2048.0)
        ends = []
        for length in rng.integers(1, 4, size=4).tolist():
            y = x
            for _ in range(length):
                wide = channels / 4 * rng.uniform(0.5, 2)
                size, kernel = 4 * pixels * wide, float(rng.choice([1, 7, 9]))
                y = tape.dense(y, 2 * pixels * wide * wide * kernel, size, 4 * wide * wide * kernel, bias=False)
                y = tape.add(size, size, tape.add(size, size, y, tape.weight(8 * wide)))
            ends.append(y)
        x = tape.add(pixels * channels, 4 * pixels * channels, *ends, x)
    tape.add(1e6, 4.0, tape.dense(x, 2e6 * channels, 4000.0, 4000.0 * channels))
    tape.backward(most)
    return tape


def tangled(rng: np.random.Generator, most: int = 2012) -> Tape:
    """Operators of very different sizes on a random part of a random tree of cliques of eight."""
    edges = partial_tree(rng, most)
    tape, heavy = Tape(rng), rng.random(most) < 0.5
    for i in range(most):
        size = 1e6 * rng.lognormal(0, 2.5) if heavy[i] else 2e4 * rng.lognormal(0, 1)
        work = 30 * size * rng.lognormal(0, 1) if rng.random() < 0.6 else 0.0
        tape.add(work, size)
    for a, b in edges:
        tape.reads[b] = (*tape.reads[b], a)
    return tape


def training_model(tape: Tape, backends: int, *, charged: bool, seed: int = 0) -> CostModel:
    """Latency and memory in whole numbers; all on the first backend, the processor, cost a million.

    The second backend is an accelerator. The others support 85 % of the operators, and take the geometric mean of both
    times multiplied by a lognormal factor of 0.7. Memory is the output multiplied by 1, 2.5, 3, .. for the backends in
    order, and by a lognormal factor of 0.2. With `charged`, each backend but the first takes 3 to 10 % of the memory as
    soon as it is used, and up to 1 % of the latency.
    """
    rng = np.random.default_rng(seed)
    work, size = np.array(tape.work), np.array(tape.size)
    count = len(work)
    cpu = (work / 2e10 + size / 2e10) * rng.lognormal(0, 0.3, count) * 1e3
    fast = cpu / _SPEED_UP * rng.lognormal(0, 0.1, count)
    times = [cpu, np.where(rng.random(count) < 0.97, fast, np.inf)]
    for _ in range(2, backends):
        between = np.sqrt(np.maximum(cpu, 1e-9) * np.maximum(fast, 1e-9)) * rng.lognormal(0, 0.7, count)
        times.append(np.where(rng.random(count) < 0.85, between, np.inf))
    memory = [size * (1.0 if b == 0 else 2.0 + 0.5 * b) * rng.lognormal(0, 0.2, count) for b in range(backends)]
    unit = _TOTAL / cpu.sum()
    latency, held = np.rint(np.stack(times, 1) * unit), np.rint(np.stack(memory, 1) * (_TOTAL / memory[0].sum()))
    held = np.where(np.isinf(latency), np.inf, held)
    unlike = np.stack([1.0 - np.eye(backends), np.zeros((backends, backends))], axis=-1)
    pairs = {(x, i): round(size[x] / 2.1e6 * unit) for i, reads in enumerate(tape.reads) for x in reads if x != i}
    names = tuple(f"b{b}" for b in range(backends))
    load = [(rng.uniform(0, 0.01), rng.uniform(0.03, 0.1)) for _ in names[1:]]
    charges = [Charge(n, np.rint(np.array(part) * _TOTAL)) for n, part in zip(names[1:], load, strict=True)]
    return CostModel(
        Space(tuple(Slot(f"s{i}", names) for i in range(count))),
        (Objective("latency"), Objective("memory")),
        tuple(np.stack([latency, held], axis=-1)),
        tuple(PairCost(a, b, unlike * cost) for (a, b), cost in pairs.items()),
        tuple(charges) if charged else (),
    )
