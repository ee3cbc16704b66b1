"""Load a model of any kind that gnomon reads; its content, not its name, determines the kind.

Also converts models for runtimes that do not load the user's format, and copies them into packages.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from pathlib import Path

from gnomon.core.graph import Graph, Operator
from gnomon.core.strict_json import is_text
from gnomon.errors import ModelError, PackageError, system_errors
from gnomon.models.model import (
    ARCHIVE,
    FLAT_MAGICS,
    GGUF_MAGIC,
    NCNN_MAGIC,
    OPENVINO_STARTS,
    ORT_MAGIC,
    PICKLES,
    PTE_MAGIC,
    UNREAD,
    Limits,
    Model,
    image_sides,
    model_errors,
    open_regular,
    read_regular,
    weights_of,
)
from gnomon.system.files import file_digest
from gnomon.wire import Feed

_MOST_READ_BYTES = 64 << 20


def load(path: str | Path, limits: Limits | None = None, *, inferred: bool = True) -> Model:
    """Read an ONNX, TFLite, Circle, ONNX Runtime (.ort), OpenVINO (.xml), ncnn (.param), ExecuTorch (.pte) or PyTorch
    (.pt2) file, or an nnpackage folder.

    OpenVINO and ncnn files need their .bin file next to them. With `inferred`, the shapes of all tensors of an ONNX
    model are inferred, in a separate process; otherwise only its inputs and outputs have shapes. Raises ModelError for
    anything wrong with the model, even if it is hostile, and RuntimeMissingError for an ONNX or ONNX Runtime file if
    the package onnx is not installed.
    """
    limits = limits or Limits()
    with model_errors(path):
        source = Path(path)
        if not is_text(str(source)):
            raise ModelError(
                f"the path {str(source)!a} is not UTF-8 text, so the results database and reports cannot hold it",
                hint="Rename it, or make a link to it: ln -s -- FILE model" + source.suffix,
            )
        if not source.is_dir():
            return _load_file(source, limits, inferred=inferred)
        return _load_package(source, limits)


_SUFFIXES = frozenset({".onnx", ".tflite", ".circle", ".xml", ".param", ".pte", ".pt2", ".ort"})


def is_read(path: Path) -> bool:
    """Return True if a file has the ending or the first bytes of a model that gnomon reads. Raises ModelError."""
    if path.suffix in _SUFFIXES or path.is_dir():
        return True
    with model_errors(path), open_regular(path, Limits().max_bytes) as file:
        head = file.read(8)
    return head.startswith((NCNN_MAGIC, *OPENVINO_STARTS)) or _is_alone(head)


def is_model(named: str) -> bool:
    """Return True if a word names a model: a file that gnomon reads, a name with a model's ending, or an nnpackage."""
    if os.path.isdir(named):  # noqa: PTH112 - it accepts words that cannot be the name of a file
        return os.path.isdir(os.path.join(named, "metadata"))  # noqa: PTH112, PTH118
    return named.endswith(tuple(_SUFFIXES)) or (os.path.isfile(named) and is_read(Path(named)))  # noqa: PTH113


def load_unread(path: Path) -> Model:
    """A file that gnomon cannot read, as a model with a single operator that has no inputs or outputs. Raises
    ModelError.
    """
    with model_errors(path), open_regular(path, Limits().max_bytes) as file:
        size = os.fstat(file.fileno()).st_size
    whole = Operator(index=0, name="model", type="model", inputs=(), outputs=(), macs=None)
    graph = Graph(
        name=path.stem, format=UNREAD, digest=file_digest(path), tensors=(), operators=(whole,), inputs=(), outputs=()
    )
    return Model(path=path, graph=graph, kind=UNREAD, package=None, size_bytes=size)


def _load_package(source: Path, limits: Limits) -> Model:
    from gnomon.models.nnpackage import read_nnpackage

    package = read_nnpackage(source)
    if len(package.models) > 1:
        names = ", ".join(file.name for file in package.models)
        raise ModelError(
            f"the nnpackage {source} has {len(package.models)} models ({names}), but gnomon reads one at a time",
            hint=f"Give one of its files, such as {package.models[0]}",
        )
    inner = _load_file(package.models[0], limits, inferred=True)
    if inner.kind not in {"tflite", "circle"}:
        raise ModelError(
            f"the model in the nnpackage {source} has the format {inner.kind}, which nnpackages do not hold",
            hint="Give a package with a TFLite or Circle model.",
        )
    return replace(inner, path=source, kind="nnpackage", package=package)


def _load_file(path: Path, limits: Limits, *, inferred: bool) -> Model:
    with open_regular(path, limits.max_bytes) as file:
        head = file.read(8)
    if head.startswith(NCNN_MAGIC):
        from gnomon.models.ncnn.model import load_ncnn

        return load_ncnn(path, limits)
    if head.startswith(OPENVINO_STARTS):
        from gnomon.models.openvino import load_openvino

        return load_openvino(path, limits)
    if head.startswith(GGUF_MAGIC):
        raise ModelError(
            f"{path} is a GGUF file, of which gnomon reads only the header",
            hint=f"To measure it: {shlex.join(('gnomon', 'profile', str(path), '--command', 'llama-bench'))}",
        )
    if not _is_alone(head):
        from gnomon.models.onnx.graph import load_onnx

        return load_onnx(path, limits, inferred=inferred)
    from gnomon.models.onnx.ort import read_ort
    from gnomon.models.pytorch.pt2 import read_pt2, refuse_pickle
    from gnomon.models.pytorch.pte import read_pte
    from gnomon.models.tflite.graph import read_flat, signatures_of

    if head[4:8] == ORT_MAGIC and path.suffix != ".ort":
        raise ModelError(
            f"{path} is in ONNX Runtime's own format, which ONNX Runtime recognises only by the ending .ort",
            hint=f"Rename it: {shlex.join(('mv', '--', str(path), str(path.with_suffix('.ort'))))}",
        )
    if head[:2] in PICKLES:
        raise refuse_pickle()
    data = content_of(path, limits)
    readers = {PTE_MAGIC: read_pte, ORT_MAGIC: read_ort, **dict.fromkeys(FLAT_MAGICS, read_flat)}
    graph, count = readers.get(head[4:8], read_pt2)(data, path.stem)
    model = Model(path=path, graph=graph, kind=graph.format, package=None, size_bytes=len(data), subgraphs=count)
    return replace(model, signatures=signatures_of(data)) if head[4:8] in FLAT_MAGICS else model


class _Mapped(mmap):
    """The mapped bytes of a large file; only the parts that are read take memory."""

    def seekable(self) -> bool:
        """True, as for a file; mmap has this method from Python 3.13 on."""
        return True


def content_of(path: Path, limits: Limits) -> bytes | mmap:
    """The content of a file. Only a large file is mapped: if a mapped file is truncated, the process dies of SIGBUS."""
    with open_regular(path, limits.max_bytes) as file:
        if os.fstat(file.fileno()).st_size > _MOST_READ_BYTES:
            return _Mapped(file.fileno(), 0, access=ACCESS_READ)
    return read_regular(path, _MOST_READ_BYTES)


def _is_alone(head: bytes) -> bool:
    """Return True if a file begins like those of TFLite, Circle, ONNX Runtime or PyTorch, which need no other files."""
    return head[:4] == ARCHIVE or head[:2] in PICKLES or head[4:8] in {PTE_MAGIC, ORT_MAGIC, *FLAT_MAGICS}


def plausible_feeds(model: Model) -> dict[str, Feed]:
    """The feeds of inputs that need particular numbers, as described in docs/agent.md. Raises ModelError."""
    return _pixels(model.graph) | _ruled(model)


def _pixels(graph: Graph) -> dict[str, Feed]:
    """Pixels for inputs that look like images: floats from 0 to 1, or bytes from the whole range of their type."""
    feeds: dict[str, Feed] = {}
    for tensor in (graph.tensors[index] for index in graph.inputs):
        ends = (0, 1) if tensor.dtype.startswith(("float", "bfloat")) else _BYTES.get(tensor.dtype)
        if ends is not None and image_sides(tensor.shape or ()):
            feeds[tensor.name] = {"least": ends[0], "most": ends[1]}
    return feeds


_BYTES = {"uint8": (0, 255), "int8": (-128, 127)}


def _ruled(model: Model) -> dict[str, Feed]:
    """The feeds of inputs that must hold particular numbers for the operators that read them. Raises ModelError."""
    if model.graph.format == "onnx":
        from gnomon.models.onnx.feeds import onnx_feeds

        return onnx_feeds(model)
    if model.graph.format == "openvino":
        from gnomon.models.openvino import openvino_feeds

        return openvino_feeds(model)
    return {} if model.graph.format == "ncnn" else _rows_of_tables(model.graph)


def steering_inputs(model: Model) -> dict[str, list[str]]:
    """The inputs whose values decide how much work the model does, with these decisions. Raises ModelError."""
    from gnomon.models.steering import graph_steps, steered_by

    steps = list(graph_steps(model.graph))
    if model.graph.format == "onnx" and any(step.decided for step in steps):
        from gnomon.models.onnx.feeds import onnx_steps

        steps = onnx_steps(model)
    return steered_by(steps, [model.graph.tensors[index].name for index in model.graph.inputs])


_TABLES = {
    "EMBEDDING_LOOKUP": (1, 0),
    "GATHER": (0, 1),
    "aten.embedding.default": (0, 1),
    "aten::embedding.out": (0, 1),
}
"""For each operator of TFLite, Circle or PyTorch: the place of the table among its operands, and the place of the row
numbers.
"""


def _rows_of_tables(graph: Graph) -> dict[str, Feed]:
    """Feeds for inputs that hold row numbers of a table; tables are constants, with their rows along the first axis."""
    computed = {tensor for op in graph.operators for tensor in op.outputs}
    feeds: dict[str, Feed] = {}
    for op in graph.operators:
        if op.type not in _TABLES or len(op.inputs) < 2:
            continue
        table, rows = (op.inputs[place] for place in _TABLES[op.type])
        shape = graph.tensors[table].shape
        if rows in graph.inputs and table not in computed | {*graph.inputs} and shape and shape[0] > 0:
            feeds[graph.tensors[rows].name] = {"least": 0, "most": shape[0] - 1}
    return feeds


_MADE_FROM = {"onnx": frozenset({"ncnn"})}


def reachable(model_format: str) -> frozenset[str]:
    """The formats in which a model can be given to a runtime: its own, and those to which it can be converted."""
    return frozenset({model_format}) | _MADE_FROM.get(model_format, frozenset())


def convert(model: Model, source: Path, wanted: str, folder: Path) -> Model:
    """Convert the model in the file `source` to another format, with the input shapes of its graph, and write the
    result into `folder`.

    Raises ModelError if it cannot be converted, RuntimeMissingError if the converter is not installed.
    """
    if (model.graph.format, wanted) == ("onnx", "ncnn"):
        from gnomon.models.ncnn.convert import convert_onnx

        return convert_onnx(model, source, folder)
    raise ValueError(f"nothing converts {model.graph.format} to {wanted}")


def files_beside(path: Path) -> Mapping[Path, Path]:
    """The files that a model's own file needs, by their paths relative to its folder. Raises ModelError."""
    limits = Limits()
    with open_regular(path, limits.max_bytes) as file:
        head = file.read(8)
    if head.startswith((NCNN_MAGIC, *OPENVINO_STARTS)):
        weights = weights_of(path)
        return {Path(weights.name): weights} if weights.exists() else {}
    if _is_alone(head):
        return {}
    from gnomon.models.onnx.file import LOCATION, parse_onnx

    # Searching the bytes for the key that names such files is much faster than parsing.
    if LOCATION not in read_regular(path, limits.max_bytes):
        return {}
    try:
        return parse_onnx(path, limits).external
    except ModelError:  # only a command reads this file: an ONNX model would have been refused earlier
        return {}


def copy_model(source: Path, target: Path) -> None:
    """Copy a model's file and the files that it needs. PackageError if that fails."""
    with system_errors(
        PackageError, f"{source} cannot be copied to {target}", hint="Check the folder, its permissions and its space."
    ):
        shutil.copyfile(source, target)
        for name, file in files_beside(source).items():
            place = target.parent / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
