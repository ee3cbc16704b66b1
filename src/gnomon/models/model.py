"""A loaded model, its package, and the limits of reading.

The module also gives operators unique names, and opens files that may be hostile: only regular files, within a size
limit and within their folder.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gnomon.core.graph import Graph, Operator, Tensor, element_bits
from gnomon.errors import ModelError
from gnomon.system import files
from gnomon.wire import Feed

if TYPE_CHECKING:
    from gnomon.formats.onert.config import ConfigCfg
    from gnomon.formats.onert.manifest import Manifest

MOST_BYTES = 1 << 62
"""The largest size of a tensor: a file that claims more is broken."""
NCNN_MAGIC = b"7767517"
"""The first bytes of an ncnn ``.param`` file."""
OPENVINO_STARTS = (b"<?xml", b"<net", b"<!--", b"\xef\xbb\xbf<")
"""The first bytes of OpenVINO's ``.xml`` files. No other file type that gnomon reads begins with them."""
ARCHIVE = b"PK\x03\x04"
"""The first bytes of PyTorch's archives: exported programs and pickled models."""
PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""The first bytes of pickles."""
PTE_MAGIC = b"ET12"
"""Bytes 4 to 8 of ExecuTorch programs."""
ORT_MAGIC = b"ORTM"
"""Bytes 4 to 8 of ONNX Runtime's own files."""
FLAT_MAGICS = {b"TFL3": "tflite", b"CIR0": "circle"}
"""Bytes 4 to 8 of TFLite and Circle files, and the kind of each."""
GGUF_MAGIC = b"GGUF"
"""The first bytes of GGUF files, which hold language models for llama.cpp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits beyond which a reader refuses a file.

    `max_bytes` bounds each file, `max_memory_bytes` the memory that parsing a file may allocate, and `max_infer_s` the
    time for inferring an ONNX model's shapes.
    """

    max_bytes: int = 8 << 30
    max_memory_bytes: int = 8 << 30
    max_infer_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NnPackage:
    """An nnpackage folder: its manifest, its first config (the only one that onert reads), and its model files.

    `config_name` is the config's file name in ``metadata/``, or None if the manifest names no config.
    """

    folder: Path
    manifest: Manifest
    config: ConfigCfg
    config_name: str | None
    models: tuple[Path, ...]


UNREAD = "file"
"""The format of a file that gnomon does not read, but passes to commands unchanged."""

PACKAGE = "package"
"""The format of a package that `gnomon place` wrote: it runs as its plan says."""
PLAN = "plan.json"
"""The file by which a folder is recognised as a package."""

FORMATS = {
    "onnx": "ONNX",
    "ort": "ONNX Runtime (.ort)",
    "tflite": "TFLite",
    "circle": "Circle",
    "openvino": "OpenVINO (.xml)",
    "ncnn": "ncnn (.param)",
    "pte": "ExecuTorch (.pte)",
    "pt2": "PyTorch (.pt2)",
}
"""The usual names of the formats that are read, by `Graph.format`."""


def is_package(named: str) -> bool:
    """Return True if a word names the folder of a package."""
    return os.path.isfile(os.path.join(named, PLAN))  # noqa: PTH113, PTH118 - they accept words that cannot be the name of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model as it was read. `path` is the path that the user gave; `kind` is one of `FORMATS`, or "nnpackage".

    `package` is set for an nnpackage, whose model file has the format `graph.format`. `size_bytes` is the size of the
    model's file, with its external data; `subgraphs` counts the graphs in a TFLite or Circle file, of which `graph` is
    the first. `signatures` maps the name of each signature to the number of the graph that it runs. `feeds` says how a
    package's inputs were drawn.
    """

    path: Path
    graph: Graph
    kind: str
    package: NnPackage | None
    size_bytes: int
    subgraphs: int = 1
    signatures: Mapping[str, int] = field(default_factory=dict)
    feeds: Mapping[str, Feed] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The file that holds the graph; for an nnpackage, the model in it."""
        return self.package.models[0] if self.package else self.path


def is_known(tensor: Tensor) -> bool:
    """Return True if a tensor's shape is known."""
    return tensor.shape is not None and -1 not in tensor.shape


def typed_tensor(
    name: str,
    shape: tuple[int, ...] | None,
    dtype: str,
    *,
    other: str = "unknown",
    constant: bool = False,
    dims: tuple[str, ...] = (),
) -> Tensor:
    """A tensor whose size follows from its shape and type; `other` replaces "", the name of an unknown type.

    ModelError for a size that exceeds any memory.
    """
    bits, size = element_bits(dtype), None
    if bits and shape is not None and -1 not in shape:
        size = -(-math.prod(shape) * bits // 8)
        if size > MOST_BYTES:
            raise ModelError(
                f"tensor {name!r} would be larger than any memory", hint="The file is broken: export it again."
            )
    return Tensor(name=name, shape=shape, dtype=dtype or other, size_bytes=size, constant=constant, dims=dims)


def is_float64(graph: Graph) -> bool:
    """Return True if a model computes in float64 throughout: all its floating-point results have this type."""
    computed = {index for operator in graph.operators for index in operator.outputs} | set(graph.outputs)
    dtypes = {graph.tensors[index].dtype for index in computed if index >= 0}
    return {dtype for dtype in dtypes if "float" in dtype} == {"float64"}


def all_known(graph: Graph) -> bool:
    """Return True if the shapes of all tensors between operators of the graph are known."""
    return all(is_known(graph.tensors[index]) for operator in graph.operators for index in operator.outputs)


def dynamic_inputs(graph: Graph) -> tuple[Tensor, ...]:
    """The graph's inputs whose shape the file does not fix, in the graph's order."""
    inputs = (graph.tensors[index] for index in graph.inputs)
    return tuple(tensor for tensor in inputs if not is_known(tensor))


def with_shapes(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> Model:
    """The model with inputs of `shapes`. Only the feeds have these shapes; the file remains unchanged."""
    graph = model.graph
    tensors = tuple(
        replace(t, shape=shapes[t.name]) if k in graph.inputs and t.name in shapes else t
        for k, t in enumerate(graph.tensors)
    )
    return replace(model, graph=replace(graph, tensors=tensors))


def named_shape(tensor: Tensor) -> str:
    """A tensor's shape as text, with the name of each open dimension, or "?" if it has none."""
    names = tensor.dims or ("",) * len(tensor.shape or ())
    sizes = zip(tensor.shape or (), names, strict=True)
    return f"({', '.join((name or '?') if size == -1 else str(size) for size, name in sizes)})"


def image_sides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of height and width if a shape looks like that of images; otherwise none.

    Such a shape has four axes: the second or the last has 1 or 3 channels, and each side has 8 pixels or more, or is
    open.
    """
    for channels, sides in ((1, (2, 3)), (3, (1, 2))):
        if len(shape) == 4 and shape[channels] in (1, 3) and all(shape[k] == -1 or shape[k] >= 8 for k in sides):
            return sides
    return ()


def unique_names(names: Sequence[str], types: Sequence[str]) -> tuple[str, ...]:
    """A unique name for each operator, the same each time the file is read.

    The first operator with a name keeps it. An operator without a name, or with a name that is already used, becomes
    ``<type>_<index>``, with underscores appended until no other operator has that name.
    """
    reserved = set(names)
    used: set[str] = set()
    result = []
    for index, (name, kind) in enumerate(zip(names, types, strict=True)):
        chosen = name
        if not name or name in used:
            chosen = f"{kind}_{index}"
            while chosen in reserved or chosen in used:
                chosen += "_"
        used.add(chosen)
        result.append(chosen)
    return tuple(result)


Row = tuple[str, tuple[int, ...], tuple[int, ...], int | None]
"""An operator without its name: its type, the tensors that it reads and those that it writes, and its
multiply-accumulates.
"""


def named_operators(rows: Sequence[Row], names: Sequence[str]) -> tuple[Operator, ...]:
    """The operators of these rows, each with the unique name that `unique_names` derives from its own name."""
    labels = unique_names(names, [kind for kind, *_ in rows])
    return tuple(
        Operator(index=index, name=label, type=kind, inputs=reads, outputs=writes, macs=macs)
        for index, (label, (kind, reads, writes, macs)) in enumerate(zip(labels, rows, strict=True))
    )


_CHUNK = 1 << 20
_TOO_LARGE = "If you trust the model, raise gnomon.models.Limits.max_bytes."


@contextmanager
def model_errors(path: object) -> Iterator[None]:
    """Turn errors of memory, recursion, text encoding and disk in the block into ModelError."""
    try:
        yield
    except (OSError, MemoryError, RecursionError, UnicodeError) as error:
        raise ModelError(
            f"{path} cannot be read: {type(error).__name__}: {str(error)[:200]}",
            hint="Export or copy the model again, and check that you can trust it.",
        ) from error


def changed(path: Path) -> ModelError:
    """The error for a file that changed while it was read or measured."""
    return ModelError(
        f"{path} changed while it was read or measured, so the results are not those of the file as it is now",
        hint="Wait until the file is written completely, and start the same command again.",
    )


def refuse_pointer(path: Path, head: bytes) -> None:
    """Raise ModelError if the first bytes show a pointer to another file that was not fetched."""
    if head.startswith(b"version https://git-lfs"):
        raise ModelError(
            f"{path} is not the model but a Git LFS pointer to it",
            hint="Fetch the model, from within the repository: git lfs pull",
        )


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """The time, size and inode of a file, which change when the file is written again; None if the file does not
    exist.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def open_regular(path: Path, max_bytes: int, too_large: str = _TOO_LARGE) -> BinaryIO:
    """Open a regular file of at most `max_bytes` for reading. Raises ModelError for anything else.

    `too_large` is the hint for a larger file.
    """
    with _readable(path, too_large):
        return files.open_regular(path, max_bytes)


@contextmanager
def _readable(path: Path, too_large: str) -> Iterator[None]:
    """Turn an OSError in the block into ModelError."""
    try:
        yield
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist", hint="Check the path of the model.") from None
    except OSError as error:
        hints = {errno.EFBIG: too_large, errno.ENOMEM: "Free memory, or read the file on a machine that has more."}
        hint = hints.get(error.errno or 0, "Give a model file that can be read, or an nnpackage folder.")
        raise ModelError(f"{path} cannot be read: {error.strerror}", hint=hint) from error


def read_regular(path: Path, max_bytes: int, too_large: str = _TOO_LARGE) -> bytes:
    """The content of a regular file of at most `max_bytes`. Raises ModelError."""
    with _readable(path, too_large):
        return files.read_regular(path, max_bytes)


def read_text(path: Path, max_bytes: int) -> str:
    """The content of a small UTF-8 file. Raises ModelError."""
    try:
        return read_regular(path, max_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8 text: {error.reason}", hint="Save the file as UTF-8.") from None


def add_to_digest(digest: hashlib._Hash, path: Path, max_bytes: int) -> int:
    """Add a regular file to a digest without holding it in memory; returns its size in bytes. Raises ModelError."""
    total = 0
    with open_regular(path, max_bytes) as file:
        while chunk := file.read(_CHUNK):
            total += len(chunk)
            digest.update(chunk)
    return total


def weights_of(path: Path) -> Path:
    """The file with the weights of an ncnn or OpenVINO model: it has the same name, but ends in ``.bin``."""
    return path.with_suffix(".bin")


def link_file(file: Path, place: Path) -> None:
    """Put a file of a model into another folder: as a hard link if possible, otherwise as a copy. Raises ModelError,
    OSError.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file.resolve(), place)  # a hard link to a symbolic link would lead nowhere from there
    except FileExistsError:
        raise ModelError(
            f"{file} names itself as its external data, so gnomon cannot write a changed copy of it",
            hint="Save it again with onnx.save_model, with the weights inside or in another file.",
        ) from None
    except OSError:  # on another file system
        shutil.copyfile(file, place)


def inside(folder: Path, name: str, what: str, *, or_in: Path | None = None) -> Path:
    """The path of a file in `folder`, from the relative `name` by which another file refers to it.

    `..`, an absolute path and a symbolic link out of the folder raise ModelError; links into the folder `or_in` are the
    only exception.
    """
    hint = f"Correct the name: {what} must name a file in the model's folder."
    if not name or "\0" in name or "\\" in name or not name.isprintable():
        raise ModelError(f"{what} names {name!r}, which is not a file name", hint=hint)
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise ModelError(f"{what} names {name!r}, which leads out of its folder", hint=hint)
    try:
        resolved = (folder / relative).resolve()
        homes = [home.resolve() for home in (folder, or_in) if home is not None]
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(f"{what} names {name!r}, which cannot be found: {error}", hint=hint) from error
    if not any(resolved.is_relative_to(home) for home in homes):
        raise ModelError(f"{what} names {name!r}, a link that leads out of its folder", hint=hint)
    return resolved
