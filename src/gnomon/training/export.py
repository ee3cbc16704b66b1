"""Writes networks with PyTorch blocks as ONNX files, using PyTorch's own exporter.

The tracing exporter (`dynamo=False`) is used: it needs no additional package and keeps the module's parameter names.
The other exporter needs onnxscript.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.errors import GnomonError
from gnomon.spaces.cells.space import State, TaggedNet
from gnomon.spaces.layers import Shape
from gnomon.spaces.loading import reason
from gnomon.training.loop import digest_of
from gnomon.training.modules import load_factories, plain_attention
from gnomon.training.network import build, torch_package


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExportJob:
    """A network to be written, with its weights; missing weights are generated from (seed, tag).

    `modules` has the origins of its PyTorch blocks by name (see `gnomon.training.modules`), and `opset` is the version
    of the file's operator set.
    """

    tagged: TaggedNet
    state: State
    modules: Mapping[str, str]
    seed: int
    opset: int

    def digest(self) -> str:
        """SHA-256 of everything that determines the file, including PyTorch's version, because the exporter of another
        version may write a different file.
        """
        version = str(torch_package("writing a network").__version__)
        return digest_of(self.tagged, [self.seed, self.opset, version], self.state)


def export(job: ExportJob, path: Path) -> Failure | None:
    """Write the model with the input "x0" and the output "y"; return a failure if that is not possible.

    GnomonError for blocks that have changed, and for parameters that do not fit.
    """
    factories = load_factories(job.modules, job.tagged)
    module = build(job.tagged, job.state, seed=job.seed, factories=factories).eval()
    return export_module(module, job.tagged.net.inputs[0], path, opset=job.opset)


def export_module(module: Any, shape: Shape, path: Path, *, opset: int) -> Failure | None:
    """Write a module in evaluation mode for an input of this shape, like `export`."""
    torch = torch_package("writing a network")
    try:
        with warnings.catch_warnings(), torch.no_grad(), plain_attention():
            # PyTorch warns about this exporter's age, and about shapes that tracing treats as constant.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                (torch.zeros(*shape),),
                str(path),
                input_names=["x0"],
                output_names=["y"],
                opset_version=opset,
                training=torch.onnx.TrainingMode.PRESERVE,  # otherwise convolutions are merged with later layers
                dynamo=False,
            )
    except GnomonError:
        raise
    except Exception as error:  # an exporter may raise anything for a block
        return Failure(stage="load", kind="refused", transient=False, message=reason(error))
    return None
