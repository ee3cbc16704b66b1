"""A small TFLite model that is made up: the product of a matrix with itself, for runtimes to be timed by."""

from __future__ import annotations

from functools import partial

from gnomon.models.tflite.cut import FlatWriter

_BATCH_MATMUL, _BATCH_MATMUL_OPTIONS = 126, 101
_VERSION = 3  # of the schema, in every file
_MOST_BYTES = 1 << 16


def product_kernel(size: int) -> bytes:
    """A TFLite file: input "x" of the shape 1, size, size; output "y" is x times its transpose, in float32.

    It has no weights, so that it is some hundred bytes, and multiplies size**3 times.
    """
    writer = FlatWriter(b"TFL3", _MOST_BYTES)
    return writer.model(
        _VERSION,
        codes=[lambda: writer.table({0: (1, _BATCH_MATMUL), 2: (4, 1), 3: (4, _BATCH_MATMUL)})[0]],
        tensors=[partial(_tensor, writer, name, size) for name in "xy"],
        inputs=[0],
        outputs=[1],
        operators=[partial(_product, writer)],
        name="product",
        buffers=[lambda: writer.table({})[0]],
    )


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
