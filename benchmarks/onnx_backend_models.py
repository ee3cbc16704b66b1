"""How many of ONNX's backend test models, of those that ONNX Runtime runs with their own inputs, gnomon can measure.

The models are made by the onnx package itself; their inputs serve only to find out whether ONNX Runtime runs them. Each
model is profiled through the public API with one process and short blocks: what counts is whether it is measured, not
how fast it is. `--every N` takes each N-th model. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.backend.test.case.node import collect_testcases

import gnomon
from gnomon.errors import GnomonError


def _array(value: Any) -> Any:
    """An operand of a test in the form that ONNX Runtime accepts."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def running() -> list[tuple[str, bytes]]:
    """The name and the file of each test model that ONNX Runtime runs with the inputs of its test."""
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    found: list[tuple[str, bytes]] = []
    for case in collect_testcases(None):
        if case.model is None or not case.data_sets:
            continue
        names = [value.name for value in case.model.graph.input]
        data = case.model.SerializeToString()
        with suppress(Exception):  # for whatever reason, it does not run the model
            fed = {name: _array(value) for name, value in zip(names, case.data_sets[0][0], strict=False)}
            onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, fed)
            found.append((case.name, data))
    return found


def main() -> None:
    """Profile the models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="not used: the models are made here")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take each N-th model")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    measured: list[str] = []
    not_measured: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GNOMON_HOME"] = folder
        for name, data in running()[:: given.every]:
            path = Path(folder) / f"{name}.onnx"
            path.write_bytes(data)
            try:
                gnomon.profile(path, runtimes=("onnxruntime",), processes=1, budget_s=0.5)
                measured.append(name)
            except GnomonError as error:
                not_measured[name] = error.message[:300]
            path.unlink()
    models = len(measured) + len(not_measured)
    print(json.dumps({"models": models, "measured": len(measured), "not_measured": not_measured}, indent=1))


if __name__ == "__main__":
    main()
