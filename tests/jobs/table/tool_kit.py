"""A tool that measures by itself as tests want it: made-up times of ONNX models, and bad days."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gnomon.core.sample import Failure
from gnomon.devices.base import Device
from gnomon.jobs.table.document import TableDocument
from gnomon.jobs.table.job import TableRequest, build_table
from gnomon.runtimes.base import Probe, Wish
from gnomon.runtimes.snpe import Benched, BenchOrder
from gnomon.session.bench.tool import tool_runtime
from gnomon.session.request import THIS_MACHINE, MeasureRequest
from gnomon.spaces import BlockSpace, Choice, rules
from gnomon.spaces.unit import Symbol

US = {"Conv": 200, "BatchNormalization": 30, "Relu": 40, "Add": 20, "GlobalAveragePool": 60, "Gemm": 80}
"""Whole microseconds of a layer by its operator."""

ABOUT = {
    "ro.product.model": "XQ-AS42",
    "ro.build.version.sdk": "29",
    "Date": "2020-03-18 10:21:07.123456",
    "Devices": "QV714AE41T",
    "SNPE SDK version:": "1.33.1.608",
}


def tiny() -> BlockSpace:
    """Four nets of a convolution, batch normalisation and a ReLU, 1x1 or 3x3, twice."""

    def block(kernel: int) -> Callable[[Symbol], Symbol]:
        return lambda x: x.conv(4, kernel).batch_norm().relu()

    kinds = {"1": block(1), "3": block(3)}
    return BlockSpace(name="tiny", inputs=((1, 4, 8, 8),), parts=(Choice("a", kinds), Choice("b", kinds)))


class MadeUp:
    """Times by `US`, batch normalisation folded, times `speed` at the moment; each model's bad day by `bad`.

    `before` is called with the number of the bench before each; `measured` are the operators of each model.
    """

    name = "madeup"
    formats = frozenset({"onnx"})
    lookup = ("Layers Time", "Avg_Time")
    resolution_s = 1e-6
    usual = "GPU"

    def __init__(self, bad: Callable[[list[str]], str] | None = None) -> None:
        self.speed: Callable[[int], float] = lambda number: 1.0
        self.before: Callable[[int], None] = lambda number: None
        self.bad = bad or (lambda operators: "")
        self.named = True
        self.orders: list[BenchOrder] = []
        self.measured: list[list[str]] = []

    def probe(self) -> Probe:
        return Probe(version="1.33.1.608", backends=("CPU", "GPU"))

    def measure(self, device: Device, model: Path, order: BenchOrder) -> Benched | Failure:
        import onnx

        nodes = onnx.load(str(model)).graph.node
        operators = [node.op_type for node in nodes]
        self.before(len(self.measured))
        speed = self.speed(len(self.measured))
        self.measured.append(operators)
        self.orders.append(order)
        if told := self.bad(operators):
            return Failure(stage="load", kind="crash", transient=False, message=told)
        listed = [n for k, n in enumerate(nodes) if k == 0 or n.op_type != "BatchNormalization"]
        own = {
            f"layer_{k:03d} (Name:{n.name.replace('.', '_') if self.named else k} Type:x)": int(US[n.op_type] * speed)
            for k, n in enumerate(listed)
        }
        layers = {name: dict.fromkeys(("Min_Time", "Avg_Time", "Max_Time"), value) for name, value in own.items()}
        total = float(sum(own.values()))
        figures: dict[str, dict[str, float]] = {
            "Total Inference Time": {"Min_Time": int(total) + 600, "Avg_Time": int(total) + 650, "Max_Time": 3000},
            "Layers Time": {"Min_Time": total - 1, "Avg_Time": total, "Max_Time": total + 5},
        }
        return Benched(
            times_s={"GPU": {k: {s: v / 1e6 for s, v in row.items()} for k, row in figures.items()}},
            figures={"GPU": figures},
            layers_s={"GPU": {k: {s: v / 1e6 for s, v in row.items()} for k, row in layers.items()}},
            told=ABOUT,
        )


def asked(
    out: Path, *, fuse: tuple[str, ...] | None = (), again: bool = False, backends: tuple[str, ...] = ()
) -> TableRequest:
    """A request for a table of the tiny space on this machine."""
    return TableRequest(
        request=MeasureRequest(
            device=THIS_MACHINE,
            wish=Wish(threads=1, backends=backends),
            wait_s=100.0,
            record=out.with_name("record.sqlite"),
        ),
        space=tiny(),
        out=out,
        rules=None if fuse is None else rules(fuse),
        again=again,
    )


def build_with_tool(
    request: TableRequest, tool: MadeUp, said: Mapping[str, str], *, tell: Callable[[str], None] | None = None
) -> TableDocument:
    """A table of the tiny space, measured by a tool."""
    return build_table(replace(request, tool=tool_runtime(tool, request.request, said, tell)), tell=tell)
