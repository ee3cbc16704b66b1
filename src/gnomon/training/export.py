"""Networks with blocks of PyTorch's as ONNX files, by PyTorch's own exporter.

It is the one that traces (`dynamo=False`): it needs no further package and leaves the names of parameters as they are
in the module. The other one needs onnxscript.
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
    """A network to be written, with its weights; those it lacks are made of (seed, tag).

    `modules` are the origins of its blocks (`gnomon.training.modules`), `opset` is the operator set that is written.
    """

    tagged: TaggedNet
    state: State
    modules: Mapping[str, str]
    seed: int
    opset: int

    def digest(self) -> str:
        """SHA-256 of what decides the file: of PyTorch, too, whose exporter may write another one."""
        version = str(torch_package("writing a network").__version__)
        return digest_of(self.tagged, [self.seed, self.opset, version], self.state)


def export(job: ExportJob, path: Path) -> Failure | None:
    """Writes the model: its input is "x0", its output "y"; and returns why it cannot be, if so.

    GnomonError for blocks that are not what they were, and parameters that do not fit.
    """
    factories = load_factories(job.modules, job.tagged)
    module = build(job.tagged, job.state, seed=job.seed, factories=factories).eval()
    return export_module(module, job.tagged.net.inputs[0], path, opset=job.opset)


def export_module(module: Any, shape: Shape, path: Path, *, opset: int) -> Failure | None:
    """Writes a module in evaluation mode for an input of this shape, as `export`."""
    torch = torch_package("writing a network")
    try:
        with warnings.catch_warnings(), torch.no_grad(), plain_attention():
            warnings.simplefilter("ignore")  # of this exporter's age, and of shapes that tracing takes for constant
            torch.onnx.export(
                module,
                (torch.zeros(*shape),),
                str(path),
                input_names=["x0"],
                output_names=["y"],
                opset_version=opset,
                training=torch.onnx.TrainingMode.PRESERVE,  # else it joins convolutions and what follows them
                dynamo=False,
            )
    except GnomonError:
        raise
    except Exception as error:  # whatever an exporter makes of a block
        return Failure(stage="load", kind="refused", transient=False, message=reason(error))
    return None
