"""A small made-up TFLite model, the product of a matrix and its transpose, as a reference for timing runtimes."""

from __future__ import annotations

from functools import partial

from gnomon.models.tflite.cut import FlatWriter, Maker

_BATCH_MATMUL, _BATCH_MATMUL_OPTIONS = 126, 101
_VERSION = 3  # from the schema, in every file
_MOST_BYTES = 1 << 16


def product_kernel(size: int) -> bytes:
    """A TFLite file: input "x" has the shape (1, size, size), and output "y" is x times its transpose, in float32.

    It has no weights, so it takes only a few hundred bytes; it multiplies size**3 times.
    """
    writer = FlatWriter(b"TFL3", _MOST_BYTES)
    shape = partial(writer.integers, [1, size, size])
    # Both inputs of the operator are x; it transposes the second.
    operator: dict[int, Maker] = {
        1: partial(writer.integers, [0, 0]),
        2: partial(writer.integers, [1]),
        4: partial(writer.table, {0: (1, 0), 1: (1, 1)}, {}),
    }
    return writer.model(
        _VERSION,
        codes=[partial(writer.table, {0: (1, _BATCH_MATMUL), 2: (4, 1), 3: (4, _BATCH_MATMUL)}, {})],
        tensors=[
            partial(writer.table, {1: (1, 0), 2: (4, 0)}, {0: shape, 3: partial(writer.text, name)}) for name in "xy"
        ],
        inputs=[0],
        outputs=[1],
        operators=[partial(writer.table, {0: (4, 0), 3: (1, _BATCH_MATMUL_OPTIONS)}, operator)],
        name="product",
        buffers=[partial(writer.table, {}, {})],
    )
