"""Findings about a model's file that matter when the model runs. Only the file itself is needed to make them.

docs/jobs/check.md describes the consequences of each kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnomon.models.load import content_of
from gnomon.models.model import Limits, Model, is_float64, model_errors
from gnomon.models.steering import OF_SHAPES, SIZED
from gnomon.report.plain import listed, many
from gnomon.report.units import share

if TYPE_CHECKING:
    import onnx

    from gnomon.models.gguf import Decoder
    from gnomon.models.onnx.file import OnnxFile

CURE = "session.set_denormal_as_zero"
"""The session option of ONNX Runtime that makes it treat subnormal numbers as 0."""
KINDS = {
    "subnormal": (
        "{0} of the numbers in {1!r} are subnormal{2}; some processors take up to 100 times as long for such numbers",
        "Set them to 0 in the file{3}",
    ),
    "float64": (
        "the model computes in float64, but some runtimes use float32 instead, so their outputs differ",
        "ONNX Runtime and PyTorch compute in float64. Export the model in float32 if that is precise enough.",
    ),
    "unsorted": (
        "its nodes are not in topological order: a node reads the result of a later one, which some runtimes refuse",
        "ONNX forbids this order. ONNX Runtime and OpenVINO run the file; gnomon gives other runtimes a sorted copy.",
    ),
    "equal-names": (
        "several nodes are called {0!r}: ONNX Runtime refuses such a file",
        "gnomon measures a copy with other names. For your own programs, export the model again.",
    ),
    "fixed-batch": (
        "the Reshape {1!r}{2} fixes the batch to {0}, although the model's inputs leave the batch open: with another "
        "batch, runtimes refuse the model or change its outputs in different ways",
        "Export the model with the batch as an open dimension, so that each Reshape has 0 or -1 for the batch.",
    ),
    "functions": (
        "it defines its own functions ({0}), which not every runtime expands",
        "If a runtime refuses the model, expand them with onnx.inliner.inline_local_functions.",
    ),
    "signatures": (
        "it has the signatures {0}; only one is measured at a time, by default the signature of the first subgraph{1}",
        "Choose another signature: gnomon place MODEL --signature NAME",
    ),
    "undelegated": (
        "none of its {0} operators is delegated: they run in ExecuTorch's own kernels, most of which are slow",
        "Export the model again with a partitioner, such as XnnpackPartitioner of executorch.backends.xnnpack.",
    ),
    "outside": (
        "its weights are in other files ({0}), without which the model cannot run",
        "Copy these files together with the model, and keep their names.",
    ),
    "shapes-outside": (
        "shapes are in other files too ({0}), where ONNX Runtime does not look for them",
        "Save the model with onnx.save_model(.., size_threshold=1024), which keeps small tensors inside.",
    ),
    "custom-operators": (
        "some of its operators need an additional library: {0} ({1})",
        "{2}",
    ),
    "dynamic-int8": (
        "it is quantised dynamically, in each call ({0}): runtimes treat this differently, and some refuse it",
        "To run the model in several runtimes, quantise it statically, with calibration samples.",
    ),
    "parts": (
        "it is one of {0} files of a model: its tensors are not all of the model's",
        "Keep all files in one folder, and give programs the first one.",
    ),
    "cache-types": (
        "the keys and values of its context cannot be quantised, as {0} numbers in a head are not blocks of 32",
        "Leave out llama.cpp's --cache-type-k and --cache-type-v.",
    ),
}
"""By kind of finding: its sentence, without the full stop, and the next step; docs/jobs/check.md explains the kinds."""

_SHARE, _LEAST = 1e-3, 16
"""The smallest share and number of subnormal numbers for which a tensor is reported: each subnormal number may take as
long to process as a hundred others.
"""
_BLOCK, _BLOCKS = 1 << 16, 64
"""The number of values in a piece, and the number of pieces: of a large tensor, only evenly spaced pieces are read."""
_CACHE_BLOCK = 32
"""The numbers in a block of the quantised types that llama.cpp offers for keys and values."""
_EXPONENTS = {"float32": (4, 23, 8), "float64": (8, 52, 11), "bfloat16": (2, 7, 8)}
"""Types in which processors compute with subnormal numbers: the size in bytes, the bits of the fraction, and those of
the exponent.
"""
Weights = Iterable[tuple[str, str, bytes | memoryview | np.ndarray[Any, Any]]]
"""Constants: the name, the type (as numpy names it), and the numbers as bytes or as an array."""
_INT8_IN_CALLS = frozenset(
    {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"}
)
_LIBRARIES = {"ai.onnx.contrib": "the package onnxruntime-extensions", "mmdeploy": "the package mmdeploy"}
"""For each domain of operators, the package that contains its library."""
_BUILT_IN = frozenset({"TFLite_Detection_PostProcess"})
"""Custom operators of TFLite that LiteRT contains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding about a file: its kind (one of `KINDS`), a sentence without its full stop, and the next step.

    If the finding is that a Reshape in the file fixes the batch, `batch` is that batch.
    """

    kind: str
    message: str
    hint: str
    batch: int | None = None


def findings_of(model: Model) -> tuple[Finding, ...]:
    """The findings about a model's file. Raises ModelError if the file cannot be read again."""
    with model_errors(model.path):
        if model.graph.format == "onnx":
            from gnomon.models.onnx.file import parse_onnx

            return tuple(_in_onnx(model.path, parse_onnx(model.path, Limits(), whole=False)))
        more: Mapping[str, Callable[[Model], Iterator[Finding]]]
        more = {"tflite": _in_flat, "circle": _in_flat, "openvino": _in_openvino, "pte": _in_pte}
        findings = more[model.graph.format](model) if model.graph.format in more else ()
        return (*findings, *([_finding("float64")] if is_float64(model.graph) else ()))


def findings_of_decoder(decoder: Decoder) -> tuple[Finding, ...]:
    """The findings about the header of a GGUF file."""
    parts = [_finding("parts", decoder.parts)] if decoder.parts > 1 else []
    odd = [size for size in decoder.head_size or () if size % _CACHE_BLOCK]
    return (*parts, *([_finding("cache-types", odd[0])] if odd else ()))


def _finding(kind: str, *values: object, batch: int | None = None) -> Finding:
    message, hint = (text.format(*values) for text in KINDS[kind])
    return Finding(kind=kind, message=message, hint=hint, batch=batch)


def _in_onnx(path: Path, file: OnnxFile) -> Iterator[Finding]:
    from gnomon.models.onnx.file import all_tensors, element_type

    model, graph = file.model, file.model.graph
    yield from _subnormal(_onnx_weights(model, path), f", or in ONNX Runtime: --option onnxruntime:{CURE}=1")
    types = [value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)]
    types += [tensor.data_type for tensor in all_tensors(model) if tensor.dims]
    if {dtype for dtype in map(element_type, types) if "float" in dtype} == {"float64"}:
        yield _finding("float64")
    if file.unsorted:
        yield _finding("unsorted")
    names = Counter(node.name for node in graph.node if node.name)
    if equal := [name for name, count in names.items() if count > 1]:
        yield _finding("equal-names", equal[0])
    yield from _fixed_batch(graph)
    if model.functions:
        yield _finding("functions", _some(function.name for function in model.functions))
    yield from _outside(file)
    yield from _of_domains(model)
    if in_calls := Counter(node.op_type for node in graph.node if node.op_type in _INT8_IN_CALLS):
        yield _finding("dynamic-int8", _some(f"{count} {kind}" for kind, count in in_calls.most_common()))


def _onnx_weights(model: onnx.ModelProto, path: Path) -> Weights:
    from gnomon.models.onnx.file import all_tensors, element_type, external_place

    for tensor in all_tensors(model):
        dtype = element_type(tensor.data_type)
        if dtype not in _EXPONENTS:
            continue
        if tensor.external_data:
            place, _, offset, length = external_place(tensor, path)
            if length != 0 and place.stat().st_size > offset:
                shape = None if length is None else (length,)
                yield tensor.name, dtype, np.memmap(place, np.uint8, "r", offset, shape)
        elif dtype == "float64":
            yield tensor.name, dtype, tensor.raw_data or np.array(tensor.double_data, np.float64)
        else:  # bfloat16 outside raw data is rare and small
            yield tensor.name, dtype, tensor.raw_data or np.array(tensor.float_data, np.float32)


def _subnormal(weights: Weights, cure: str = ".") -> Iterator[Finding]:
    """A finding about the tensor with the most subnormal numbers, with the number of other tensors that have some."""
    shares = {name: part for name, dtype, data in weights if (part := _subnormal_share(data, dtype)) >= _SHARE}
    if shares:
        name = max(shares, key=shares.__getitem__)
        others = f", and some in {many(len(shares) - 1, 'other tensor')}" if len(shares) > 1 else ""
        yield _finding("subnormal", share(shares[name]), name, others, cure)


def _subnormal_share(data: bytes | memoryview | np.ndarray[Any, Any], dtype: str) -> float:
    """The share of subnormal numbers; 0 for types not in `_EXPONENTS`, or if there are only a few such numbers.

    Only a part of a large tensor is read, so that a file of gigabytes takes at most a second.
    """
    if dtype not in _EXPONENTS:
        return 0.0
    size, fraction, exponent = _EXPONENTS[dtype]
    raw = data.view(np.uint8).reshape(-1) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    numbers = raw[: len(raw) // size * size].view(f"<u{size}")
    if len(numbers) > _BLOCK * _BLOCKS:
        starts = np.linspace(0, len(numbers) - _BLOCK, _BLOCKS, dtype=np.int64)
        numbers = np.concatenate([numbers[start : start + _BLOCK] for start in starts])
    fractions, exponents = (
        np.array(bits, numbers.dtype) for bits in ((1 << fraction) - 1, (1 << exponent) - 1 << fraction)
    )
    count = int(np.count_nonzero(((numbers & exponents) == 0) & ((numbers & fractions) != 0)))
    return count / len(numbers) if count >= _LEAST else 0.0


def _fixed_batch(graph: onnx.GraphProto) -> Iterator[Finding]:
    """A finding about the first Reshape with constant sizes, if the inputs leave the batch of its data open."""
    from gnomon.models.onnx.file import value_shape

    opened = {v.name for v in graph.input if (value_shape(v)[1] or (0,))[0] == -1}
    readers: dict[str, set[str]] = {}
    for node in graph.node:
        for label in node.input:
            readers.setdefault(label, set()).add(node.op_type)
    values = {tensor.name: tensor for tensor in graph.initializer}
    constants = (node for node in graph.node if node.op_type == "Constant")
    values |= {label: a.t for node in constants for label in node.output for a in node.attribute if a.name == "value"}
    fixed: list[tuple[str, int]] = []
    for node in graph.node:
        if node.op_type == "Reshape" and opened.intersection(node.input[:1]):
            shape = [size for label in node.input[1:2] if label in values for size in _whole_numbers(values[label])]
            multiplied = {"Gemm", "MatMul"}.intersection(*(readers.get(label, ()) for label in node.output))
            if shape and (min(shape) > 0 or (shape == [1, -1] and multiplied)):
                fixed.append((node.name or "".join(node.output), shape[0]))
        if node.op_type not in OF_SHAPES and opened.intersection(node.input):
            opened.update(node.output)
    if fixed:
        name, batch = fixed[0]
        more = f" and {len(fixed) - 1} more" if len(fixed) > 1 else ""
        yield _finding("fixed-batch", batch, name, more, batch=batch)


def _whole_numbers(tensor: onnx.TensorProto) -> list[int]:
    """The values of a small tensor of int64; none for any other tensor, or for external data."""
    if tensor.data_type != 7 or tensor.external_data:
        return []
    raw = tensor.raw_data[: len(tensor.raw_data) // 8 * 8]
    return [int(size) for size in np.frombuffer(raw, "<i8")] if raw else list(tensor.int64_data)


def _outside(file: OnnxFile) -> Iterator[Finding]:
    if not file.external:
        return
    graph = file.model.graph
    yield _finding("outside", _some(map(str, file.external)))
    outside = {tensor.name for tensor in graph.initializer if tensor.external_data}
    shapes = [label for node in graph.node if node.op_type in SIZED for label in node.input[1:] if label in outside]
    if shapes:
        yield _finding("shapes-outside", _some(shapes))


def _of_domains(model: onnx.ModelProto) -> Iterator[Finding]:
    """A finding for each domain of operators that neither ONNX nor the file itself defines."""
    from gnomon.models.onnx.file import all_nodes, onnx_package

    own = {(function.domain, function.name) for function in model.functions}
    defined = onnx_package().defs.has
    by_domain: dict[str, list[str]] = {}
    for node in all_nodes(model):
        domain = "" if node.domain == "ai.onnx" else node.domain
        standard = domain in ("", "ai.onnx.ml") and defined(node.op_type, domain)
        if not standard and domain != "com.microsoft" and (node.domain, node.op_type) not in own:
            by_domain.setdefault(node.domain, []).append(node.op_type)
    for domain, types in by_domain.items():
        where = f"domain {domain}" if domain else "unknown to ONNX"
        source = f"Get the library from {_LIBRARIES.get(domain, 'the exporter of the model')}, and name it:"
        yield _finding("custom-operators", _some(types), where, f"{source} --option onnxruntime:library=FILE")


def _in_flat(model: Model) -> Iterator[Finding]:
    """Further findings about a TFLite or Circle file."""
    from gnomon.formats.onert.operators import OPERATOR_NAMES
    from gnomon.models.tflite.graph import flat_weights

    yield from _subnormal(flat_weights(content_of(model.file, Limits())))
    if len(model.signatures) > 1:
        first = next((f", {name}" for name, number in model.signatures.items() if number == 0), "")
        yield _finding("signatures", _some(model.signatures), first)
    builtin = {*OPERATOR_NAMES.values(), *_BUILT_IN}
    custom = [op.type for op in model.graph.operators if op.type not in builtin and not op.type.startswith("BUILTIN_")]
    if custom:
        hint = "Convert the model without SELECT_TF_OPS."
        yield _finding("custom-operators", _some(custom), "unknown to TFLite", hint)


def _in_openvino(model: Model) -> Iterator[Finding]:
    from gnomon.models.openvino import openvino_weights

    yield from _subnormal(openvino_weights(model.path))


def _in_pte(model: Model) -> Iterator[Finding]:
    """A finding about delegation in a program: kernels are called as "aten::add.out", delegates by their names."""
    kernels = [op.type for op in model.graph.operators if "::" in op.type]
    calls = [op.type for op in model.graph.operators if not op.type.startswith("executorch ")]
    if kernels and len(kernels) == len(calls):
        yield _finding("undelegated", len(kernels))


def _some(names: Iterable[str]) -> str:
    return listed(list(dict.fromkeys(map(str, names))), 3)
