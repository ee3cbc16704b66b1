"""A small TFLite model that is made up: the product of a matrix with itself, for runtimes to be timed by."""

from __future__ import annotations

from functools import partial

from gnomon.models.tflite.cut import FlatWriter, tables

_BATCH_MATMUL, _BATCH_MATMUL_OPTIONS = 126, 101
_VERSION = 3  # of the schema, in every file
_MOST_BYTES = 1 << 16


def product_kernel(size: int) -> bytes:
    """A TFLite file: input "x" of the shape 1, size, size; output "y" is x times its transpose, in float32.

    It has no weights, so that it is some hundred bytes, and multiplies size**3 times.
    """
    writer = FlatWriter(b"TFL3", _MOST_BYTES)
    model, at = writer.table({0: (4, _VERSION), 1: (4, 0), 2: (4, 0), 4: (4, 0)})
    writer.root(model)
    tables(writer, at[1], [lambda: writer.table({0: (1, _BATCH_MATMUL), 2: (4, 1), 3: (4, _BATCH_MATMUL)})[0]])
    graphs, slots = writer.offsets(1)
    writer.point(at[2], graphs)
    graph, own = writer.table(dict.fromkeys((0, 1, 2, 3, 4), (4, 0)))
    writer.point(slots[0], graph)
    tables(writer, own[0], [partial(_tensor, writer, name, size) for name in "xy"])
    writer.point(own[1], writer.integers([0]))
    writer.point(own[2], writer.integers([1]))
    tables(writer, own[3], [partial(_product, writer)])
    writer.point(own[4], writer.text("product"))
    tables(writer, at[4], [lambda: writer.table({})[0]])
    return bytes(writer.data)


def _tensor(writer: FlatWriter, name: str, size: int) -> int:
    position, at = writer.table({0: (4, 0), 1: (1, 0), 2: (4, 0), 3: (4, 0)})
    writer.point(at[0], writer.integers([1, size, size]))
    writer.point(at[3], writer.text(name))
    return position


def _product(writer: FlatWriter) -> int:
    """The operator: both of its inputs are x, of which it turns the second."""
    position, at = writer.table({0: (4, 0), 1: (4, 0), 2: (4, 0), 3: (1, _BATCH_MATMUL_OPTIONS), 4: (4, 0)})
    writer.point(at[1], writer.integers([0, 0]))
    writer.point(at[2], writer.integers([1]))
    writer.point(at[4], writer.table({0: (1, 0), 1: (1, 1)})[0])
    return position
