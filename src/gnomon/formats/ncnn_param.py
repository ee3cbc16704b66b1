"""The ``.param`` text of an ncnn model: its layers, blobs and parameters, without the weights.

Sources: ``docs/developer-guide/param-and-model-file-structure.md``, ``src/net.cpp`` and ``src/paramdict.cpp`` of ncnn.
The first line is the magic number, the second has the numbers of layers and blobs, and every other line is a layer:
type, name, the numbers of blobs that it reads and writes, their names, and ``key=value`` parameters. An array of n
numbers has the key -23300 - key and the value ``n,a,b,..``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NoReturn

from gnomon.errors import ModelError

MAGIC = "7767517"
MAX_CHARACTERS = 1 << 26
MAX_LAYERS = 1 << 17
MAX_BLOBS = 1 << 20
ARRAY = -23300
FEATURE_MASK = 31
"""The key of the parameter with which a layer can switch off, for itself alone, options of the whole model."""
NO_VULKAN = 16
"""The bit of a feature mask that keeps a layer off Vulkan."""

_WORD = re.compile(r"[!-~\x80-\U0010ffff]{1,255}")  # ncnn reads words of at most 255 bytes
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
_PARAMETER = re.compile(r"(0|-?[1-9][0-9]{0,5})=([!-~]{1,65536})")
_HINT = "Convert the model to ncnn again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer: the names of the blobs that it reads and writes, and its parameters as text."""

    type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[tuple[int, str], ...] = ()

    def text(self, key: int) -> str | None:
        """A parameter as text, or None if it is missing."""
        return next((value for k, value in self.parameters if k == key), None)

    def integer(self, key: int, default: int = 0) -> int:
        """An integer parameter, or the default if it is missing; ModelError if its value is not an integer."""
        value = self.text(key)
        if value is None:
            return default
        if not _INTEGER.fullmatch(value):
            _fail(f"has a layer {self.name!r} whose parameter {key}={value[:40]} is not an integer")
        return int(value)

    def integers(self, key: int) -> tuple[int, ...]:
        """An array of integers, empty if it is missing; ModelError if it holds any other value."""
        value = self.text(ARRAY - key)
        if value is None:
            return ()
        numbers = value.split(",")[1:]
        if not all(_INTEGER.fullmatch(number) for number in numbers):
            _fail(f"has a layer {self.name!r} whose array {key} contains a value that is not an integer")
        return tuple(int(number) for number in numbers)

    def with_integer(self, key: int, value: int) -> Layer:
        """A copy with a new value of a parameter, which is added at the end if the layer lacks it."""
        own = (key, str(value))
        if self.text(key) is None:
            return replace(self, parameters=(*self.parameters, own))
        return replace(self, parameters=tuple(own if k == key else (k, v) for k, v in self.parameters))


@dataclass(frozen=True, slots=True, kw_only=True)
class NcnnParam:
    """The layers of a model in the file's order, which is a valid order of execution."""

    layers: tuple[Layer, ...]

    def masked(self, kept_off: Collection[int]) -> NcnnParam:
        """A copy whose feature masks keep the layers with these indices off Vulkan; other bits are unchanged."""
        return NcnnParam(
            layers=tuple(
                layer.with_integer(FEATURE_MASK, layer.integer(FEATURE_MASK) | NO_VULKAN) if i in kept_off else layer
                for i, layer in enumerate(self.layers)
            )
        )


def parse_ncnn_param(text: str) -> NcnnParam:
    """Read a ``.param``. Raises ModelError if it is broken, or larger than any model.

    Every blob must be written once, before it is read, and be read by at most one layer (a ``Split`` layer copies a
    blob for several readers): ncnn relies on this without checking it.
    """
    if len(text) > MAX_CHARACTERS:
        _fail(f"is longer than {MAX_CHARACTERS} characters")
    lines = text.split("\n")
    if lines[0].strip() != MAGIC:
        _fail(f"does not begin with {MAGIC}")
    counts = lines[1].split() if len(lines) > 1 else []
    if len(counts) != 2 or not all(re.fullmatch("[0-9]{1,9}", number) for number in counts):
        _fail("does not state the numbers of layers and blobs in its second line")
    body = [line for line in lines[2:] if line.strip()]
    layers, blobs = int(counts[0]), int(counts[1])
    if not 0 < layers <= MAX_LAYERS or not 0 < blobs <= MAX_BLOBS:
        _fail(f"claims {layers} layers and {blobs} blobs; 1 to {MAX_LAYERS} and 1 to {MAX_BLOBS} are supported")
    if len(body) != layers:
        _fail(f"claims {layers} layers, but has {len(body)}")
    param = NcnnParam(layers=tuple(_layer(line) for line in body))
    _check_blobs(param, blobs)
    return param


def write_ncnn_param(param: NcnnParam) -> str:
    """The text of a ``.param``, in the layout of ncnn's own tools."""
    blobs = sum(len(layer.outputs) for layer in param.layers)
    lines = [MAGIC, f"{len(param.layers)} {blobs}"]
    for layer in param.layers:
        head = f"{layer.type:<24} {layer.name:<24} {len(layer.inputs)} {len(layer.outputs)}"
        values = [f"{key}={value}" for key, value in layer.parameters]
        lines.append(" ".join([head, *layer.inputs, *layer.outputs, *values]))
    return "\n".join(lines) + "\n"


def _layer(line: str) -> Layer:
    words = line.split(" ")
    words = [word for word in (w.strip("\t\r") for w in words) if word]
    shown = line[:60]
    if len(words) < 4 or not all(re.fullmatch("[0-9]{1,7}", number) for number in words[2:4]):
        _fail(f"has a line that is not a layer: {shown!r}")
    reads, writes = int(words[2]), int(words[3])
    if len(words) < 4 + reads + writes:
        _fail(f"has a layer that names fewer blobs than it announces: {shown!r}")
    names = words[4 : 4 + reads + writes]
    if not all(_WORD.fullmatch(word) for word in (*words[:2], *names)):
        _fail(f"has a layer with a name that ncnn cannot read: {shown!r}")
    parameters = tuple(_parameter(word, shown) for word in words[4 + reads + writes :])
    if len({key for key, _ in parameters}) != len(parameters):
        _fail(f"has a layer that sets a parameter twice: {shown!r}")
    return Layer(
        type=words[0], name=words[1], inputs=tuple(names[:reads]), outputs=tuple(names[reads:]), parameters=parameters
    )


def _parameter(word: str, shown: str) -> tuple[int, str]:
    match = _PARAMETER.fullmatch(word)
    if match is None:
        _fail(f"has {word[:40]!r} where key=value is expected: {shown!r}")
    key, value = int(match[1]), match[2]
    if key <= ARRAY:
        count, *numbers = value.split(",")
        if not re.fullmatch("[0-9]{1,6}", count) or int(count) != len(numbers) or "" in numbers:
            _fail(f"has an array {word[:40]!r} whose length differs from the announced length: {shown!r}")
    return key, value


def _check_blobs(param: NcnnParam, claimed: int) -> None:
    written: set[str] = set()
    read: set[str] = set()
    for layer in param.layers:
        for name in layer.inputs:
            if name not in written:
                _fail(f"has a layer {layer.name!r} that reads {name!r}, which no earlier layer writes")
            if name in read:
                _fail(f"has two layers that read {name!r}, but no Split layer that copies it")
            read.add(name)
        for name in layer.outputs:
            if name in written:
                _fail(f"has two layers that write {name!r}")
            written.add(name)
    if len(written) > claimed:
        _fail(f"claims {claimed} blobs, but has {len(written)}")


def _fail(why: str) -> NoReturn:
    raise ModelError(f"the ncnn .param {why}", hint=_HINT)
