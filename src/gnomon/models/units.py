"""Units and whole nets of search spaces as ONNX models, with made-up weights.

Weights are drawn so that activations keep their size through any depth: what vanishes becomes denormal numbers, which
slow some processors down, and what explodes becomes infinite. A convolution's and a linear layer's have the variance
1 / fan-in, and each batch normalisation has the variance of what reaches it (He et al., 2015; Ioffe and Szegedy, 2015).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import ModelError, UsageError
from gnomon.models.onnx_submodel import save
from gnomon.models.onnx_types import onnx_package
from gnomon.models.units_layers import Job, Writer, write_layer
from gnomon.spaces.layers import kind_of
from gnomon.spaces.net import Net, layer_name, net_of
from gnomon.spaces.unit import Unit, shapes

if TYPE_CHECKING:
    import onnx

OPSET = 17
"""The operator set that is written: ONNX Runtime, OpenVINO and pnnx read it."""

IR_VERSION = 8
_DTYPES = {"float32": "FLOAT", "float16": "FLOAT16"}


def write_unit(unit: Unit, dest: Path, *, seed: int = 0) -> Path:
    """Writes a unit as an ONNX model and returns its path; see `write_net`."""
    return write_net(net_of(unit), dest, seed=seed)


def write_net(net: Net, dest: Path, *, seed: int = 0, weights: Mapping[str, NDArray[Any]] | None = None) -> Path:
    """Writes a net as an ONNX model and returns its path.

    Inputs are "x0", "x1", .., the output is "y"; operators are named by `gnomon.spaces.net.layer_name`, with a further
    part where a layer takes several. The file depends on the arguments alone. `weights` are arrays by the operator's
    name and their part ("n3.0.Conv.w"); what they lack is made up from the seed. UsageError where the folder is not
    there, ModelError for what ONNX cannot say and for weights that do not fit.
    """
    model = net_model(net, seed=seed, weights=weights)
    if not dest.parent.is_dir():
        raise UsageError(f"there is no folder {dest.parent}", hint="Make it first.")
    save(model, dest)
    return dest


def net_model(net: Net, *, seed: int = 0, weights: Mapping[str, NDArray[Any]] | None = None) -> onnx.ModelProto:
    """The model that `write_net` writes."""
    onnx = onnx_package()
    dtype = _dtype(net)
    kind = getattr(onnx.TensorProto, _DTYPES[dtype])
    writer = Writer(onnx=onnx, dtype=np.dtype(dtype), seed=seed, given=dict(weights or {}))
    names = [f"x{k}" for k in range(len(net.inputs))]
    value_of = {-1 - k: name for k, name in enumerate(names)}
    writer.parts.update({name: {name: 1.0} for name in names})
    for index, node in enumerate(net.nodes):
        value_of[index] = _write_chain(writer, index, node.unit, [value_of[ref] for ref in node.inputs])
    _end_in_y(writer, value_of[net.output])
    if writer.given:
        raise ModelError(
            f"the net has no weights {', '.join(sorted(writer.given))}", hint="Give those of its own layers."
        )
    graph = onnx.helper.make_graph(
        writer.nodes,
        "net",
        [
            onnx.helper.make_tensor_value_info(name, kind, list(shape))
            for name, shape in zip(names, net.inputs, strict=True)
        ],
        [onnx.helper.make_tensor_value_info("y", kind, list(net.shape(net.output)))],
        writer.weights,
    )
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    return onnx.helper.make_model(  # type: ignore[no-any-return]
        graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="gnomon"
    )


def _write_chain(writer: Writer, index: int, unit: Unit, inputs: list[str]) -> str:
    """Writes the layers of a node and returns the name of what the last makes."""
    value, shape = "", unit.inputs[0]
    waiting = list(zip(inputs, unit.inputs, strict=True))
    for position, (one, output) in enumerate(zip(unit.layers, shapes(unit), strict=True)):
        own = kind_of(one.kind).arity - bool(position)
        reads = [(value, shape)] * bool(position) + waiting[:own]
        del waiting[:own]
        job = Job(
            layer=one,
            name=layer_name(index, position, one.kind),
            number=len(writer.nodes),
            inputs=tuple(name for name, _ in reads),
            shapes=tuple(known for _, known in reads),
            output=output,
        )
        value, shape = write_layer(writer, job), output
    return value


def _end_in_y(writer: Writer, value: str) -> None:
    """Names the result "y"; a net without operators gets one that hands its input on."""
    if not writer.nodes or value not in {name for node in writer.nodes for name in node.output}:
        writer.node("Identity", "y", [value])
        return
    for node in writer.nodes:
        for names in (node.input, node.output):
            names[:] = ["y" if name == value else name for name in names]


def _dtype(net: Net) -> str:
    found = {node.unit.dtype for node in net.nodes} or {"float32"}
    if len(found) > 1:
        raise ModelError("the units of the net have several data types", hint="Use one data type.")
    return found.pop()
