"""A program: infers the shapes of the ONNX model on its standard input and writes the model to its output.

It runs as a process of its own because shape inference is C++ that a hostile file may crash. Its one argument
is the limit of its address space in bytes. It ends with status 3 where inference refuses the model.
"""

from __future__ import annotations

import resource
import sys


def main() -> None:
    """Reads, infers, writes."""
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import onnx

    model = onnx.ModelProto.FromString(sys.stdin.buffer.read())
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        print(error, file=sys.stderr)
        raise SystemExit(3) from None
    sys.stdout.buffer.write(inferred.SerializeToString())


if __name__ == "__main__":
    main()
