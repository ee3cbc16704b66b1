"""Units cut from the user's files, for runtimes that cannot load the models that gnomon writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from gnomon.errors import ModelError
from gnomon.models.cut import Cutter
from gnomon.models.cutters import open_cutter
from gnomon.models.tflite.kernel import product_kernel
from gnomon.session.model import read_model
from gnomon.session.request import ModelRequest
from gnomon.spaces.fuse import FusionRules, fused
from gnomon.spaces.models import ModelSpace
from gnomon.spaces.unit import Unit


def part_writer(space: ModelSpace, rules: FusionRules, stack: ExitStack) -> Callable[[Unit, Path], Path]:
    """A function that writes a unit of these models, cut from the first file that has it, and returns the path.

    The no-op model is a product of two numbers, because a TFLite file needs an operator. Copies of files are removed
    when `stack` closes.
    """
    places: dict[Unit, tuple[str, list[str]]] = {}
    for name, file in space.files.items():
        net, group_of = fused(space.nets[name], rules)
        members: dict[int, list[str]] = defaultdict(list)
        for operator, node in file.nodes.items():
            members[group_of[node]].append(operator)
        for group, operators in members.items():
            places.setdefault(net.nodes[group].unit, (name, operators))

    @cache
    def cutter_of(name: str) -> Cutter:
        file = space.files[name]
        read = read_model(ModelRequest(model=file.path, shapes=dict(file.shapes)), stack)
        return open_cutter(read.source, read.model.graph.format)

    def write(unit: Unit, path: Path) -> Path:
        file = path.with_suffix(".tflite")
        if unit.kinds == ("Identity",):
            file.write_bytes(product_kernel(1))
        elif unit in places:
            name, operators = places[unit]
            cutter = cutter_of(name)
            wanted = {operator.index for operator in cutter.graph.operators if operator.name in set(operators)}
            cutter.part((place for place, index in enumerate(cutter.order) if index in wanted), file)
        else:
            raise ModelError(
                f"none of the models has the unit {unit.label}",
                hint="Also give the models that the table was built from.",
            )
        return file

    return write
