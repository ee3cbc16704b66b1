"""Expected outputs of a network, computed by software other than TVM: ONNX Runtime, LiteRT, or PyTorch itself."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ..frame import Arrays, Facts, Job, Refused, Work, refusing
from ..torch_program import load_program
from .bench import keep_outputs

_TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64"}


def jobs() -> dict[str, Work]:
    """The only job, `reference`, runs a network's file on a file of inputs."""
    return {"reference": _reference}


def _reference(job: Job) -> Facts:
    """Job: path, inputs, keep (the path for outputs). Facts: by. Refused if nothing here can run the file."""
    path = Path(job["path"])
    run = {".onnx": _onnxruntime, ".pt2": _torch, ".tflite": _litert}.get(path.suffix.lower())
    if run is None:
        raise Refused(f"only TVM runs {path.suffix} files here")
    with np.load(job["inputs"], allow_pickle=False) as stored:
        given = {name: stored[f"in_{i}"] for i, name in enumerate(json.loads(str(stored["names"])))}
    by, outputs = run(path, given)
    keep_outputs(job["keep"], outputs)
    return {"by": by}


def _onnxruntime(path: Path, given: Arrays) -> tuple[str, list[Any]]:
    with refusing("ONNX Runtime is not installed", ImportError):
        import onnxruntime as ort
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    # The importer may have changed these names; the order is the same.
    wanted, arrays = session.get_inputs(), list(given.values())
    if len(wanted) != len(arrays):
        raise Refused(f"TVM's network has {len(arrays)} inputs, but the file has {len(wanted)}")
    feeds = {
        end.name: array.astype(_TYPES.get(end.type, array.dtype)) for end, array in zip(wanted, arrays, strict=True)
    }
    return f"ONNX Runtime {ort.__version__}", list(session.run(None, feeds))


def _litert(path: Path, given: Arrays) -> tuple[str, list[Any]]:
    with refusing("LiteRT is not installed", ImportError):
        from ai_edge_litert.interpreter import Interpreter
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    wanted, arrays = interpreter.get_input_details(), list(given.values())
    if [tuple(detail["shape"]) for detail in wanted] != [array.shape for array in arrays]:
        raise Refused("the inputs of TVM's network differ from those of the file")
    for detail, array in zip(wanted, arrays, strict=True):
        interpreter.set_tensor(detail["index"], array.astype(detail["dtype"]))
    interpreter.invoke()
    outputs = [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
    return f"LiteRT {version('ai-edge-litert')}", outputs


def _torch(path: Path, given: Arrays) -> tuple[str, list[Any]]:
    program = load_program(str(path)).module()
    import torch
    from torch.utils import _pytree

    with torch.no_grad():
        outputs = program(*[torch.from_numpy(array) for array in given.values()])
    return f"PyTorch {torch.__version__}", [tensor.detach().numpy() for tensor in _pytree.tree_leaves(outputs)]
