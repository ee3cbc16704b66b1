"""A tagged net as a PyTorch module, with the same operators as in its ONNX file.

A layer with parameters is named after its tag, so that the module's `state_dict` is the net's state. Fresh parameters
depend only on (seed, tag). The weights of a convolution are normally distributed with the variance 2 / fan-in (He et
al., "Delving deep into rectifiers", 2015), those of a linear layer are uniform within 1 / sqrt(fan-in) of 0, and biases
are 0. Blocks that are modules are initialised by their factories. PyTorch is imported when a network is created, not
before.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.strict_json import Complaints
from gnomon.errors import ProblemError
from gnomon.installing import needed
from gnomon.spaces.cells.space import PARTS, State, TaggedNet, state_prefix
from gnomon.spaces.layers import Layer, Shape, features_of

Factory = Callable[..., Any]
"""A function that creates a `torch.nn.Module` for inputs (N, C, H, W). Its arguments are C and then the output channels
and the stride; for a stem, C and the output channels; for a head, C and the number of classes.
"""

Factories = Mapping[str, Factory]
"""The factories of a net's PyTorch blocks, by the block's name."""


def torch_package(task: str = "training a network") -> Any:
    """The torch package. RuntimeMissingError, with the name of the task, if it is not installed or cannot be loaded."""
    with needed(f"{task} needs the package torch, which cannot be loaded", "torch"):
        import torch
    return torch


def build(tagged: TaggedNet, state: State | None, *, seed: int, factories: Factories | None = None) -> Any:
    """A module that computes the net, in training mode, on the CPU.

    It is called with the net's inputs, (n, channels, height, width) for any n. Parameters in the state are copied; all
    others are generated from (seed, tag). ProblemError that names all parameters of a wrong shape or type;
    RuntimeMissingError without PyTorch.
    """
    layers: dict[str, Callable[..., Any]] = {}
    complaints = Complaints(what="state", hint="Give the parameters of networks of this space.")
    for tag, layer, shape in _tagged_layers(tagged):
        if _has_parameters(layer) and tag not in layers:
            if layer.kind == "Module":
                with seeded(seed, tag):
                    layers[tag] = (factories or {})[str(layer["block"])](shape[1], *layer.numbers("arguments"))
            else:
                layers[tag] = _layer(layer, shape)
                _initialise(layers[tag], layer.kind, seed, tag)
            _fill(layers[tag], state_prefix(tag), state or {}, complaints)
    complaints.raise_any()
    return _net_class()(tagged, layers)


def state_of(module: Any) -> dict[str, NDArray[Any]]:
    """A copy of the parameters of a module created by `build`, by the names in its `state_dict`."""
    state = module.state_dict()
    return {name: np.array(tensor.cpu().contiguous().numpy(), order="C") for name, tensor in state.items()}


def generator(*words: object) -> Any:
    """A PyTorch random number generator, on the CPU, seeded only by these words."""
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    return torch_package().Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@contextlib.contextmanager
def seeded(*words: object) -> Iterator[None]:
    """Seed PyTorch's global random generators with only these words in the block, and restore their states after it."""
    torch = torch_package()
    with torch.random.fork_rng():
        torch.manual_seed(generator(*words).initial_seed())
        yield


def _has_parameters(layer: Layer) -> bool:
    return layer.kind in PARTS or layer.kind == "Module"


def _tagged_layers(tagged: TaggedNet) -> Iterator[tuple[str, Layer, Shape]]:
    """The tag and the layer of each node, and the shape of its first input; each node has one layer."""
    for tag, node in zip(tagged.tags, tagged.net.nodes, strict=True):
        yield tag, node.unit.layers[0], node.unit.inputs[0]


def _layer(layer: Layer, shape: Shape) -> Any:
    """A layer with uninitialised parameters; no global random numbers are drawn."""
    nn = torch_package().nn
    if layer.kind == "Conv":
        return nn.utils.skip_init(
            nn.Conv2d,
            shape[1],
            layer.integer("out_channels"),
            layer.pair("kernel"),
            stride=layer.pair("stride"),
            padding=layer.pair("pad"),
            dilation=layer.pair("dilation"),
            groups=layer.integer("group"),
            bias=bool(layer["bias"]),
        )
    if layer.kind == "Linear":
        return nn.utils.skip_init(
            nn.Linear, features_of(shape), layer.integer("out_features"), bias=bool(layer["bias"])
        )
    if layer.kind == "LayerNormalization":
        return nn.LayerNorm(shape[-1], eps=1e-5)
    return nn.BatchNorm2d(shape[1], eps=1e-5, momentum=0.1)


def _initialise(module: Any, kind: str, seed: int, tag: str) -> None:
    """Give a layer fresh parameters; a normalisation layer already has them."""
    if kind not in ("Conv", "Linear"):
        return
    init, random = torch_package().nn.init, generator(seed, tag)
    fan_in = math.prod(module.weight.shape[1:])
    if kind == "Conv":
        init.normal_(module.weight, std=math.sqrt(2 / fan_in), generator=random)
    else:
        init.uniform_(module.weight, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in), generator=random)
    if module.bias is not None:
        init.zeros_(module.bias)


def _fill(module: Any, prefix: str, state: State, complaints: Complaints) -> None:
    """Copy the parameters with this prefix from a state."""
    torch = torch_package()
    for name, tensor in module.state_dict().items():
        array = state.get(prefix + name)
        if array is None:
            continue
        if array.shape != tuple(tensor.shape) or array.dtype.kind not in ("f" if tensor.is_floating_point() else "iub"):
            wanted = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            complaints.tell(prefix + name, f"it is {array.dtype}{list(array.shape)}, not {wanted}")
            continue
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(np.array(array, order="C")))


@functools.cache
def _net_class() -> Any:
    """The class of modules, created on first use because its base class is PyTorch's."""
    torch = torch_package()

    class TorchNet(torch.nn.Module):  # type: ignore[misc, name-defined]
        """Runs the nodes of a net in order, and releases each value after its last reader."""

        def __init__(self, tagged: TaggedNet, layers: Mapping[str, Callable[..., Any]]) -> None:
            super().__init__()
            for tag, layer in layers.items():
                *folders, name = tag.split("/")
                parent: Any = self
                for folder in folders:
                    if folder not in parent._modules:
                        parent.add_module(folder, torch.nn.Module())
                    parent = parent._modules[folder]
                parent.add_module(name, layer)
            self.steps = _steps(tagged, layers)
            self.output = tagged.net.output

        def forward(self, *inputs: Any) -> Any:
            """The net's output for its inputs."""
            values = [None] * len(self.steps) + list(reversed(inputs))
            for index, (run, refs, done) in enumerate(self.steps):
                values[index] = run(*[values[ref] for ref in refs])
                for ref in done:
                    values[ref] = None
            return values[self.output]

    return TorchNet


def _steps(
    tagged: TaggedNet, layers: Mapping[str, Callable[..., Any]]
) -> list[tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]]:
    """For each node, the function that it calls, the values that it reads, and the values not needed after it."""
    net = tagged.net
    last = {ref: index for index, node in enumerate(net.nodes) for ref in node.inputs if ref >= 0}
    last.pop(net.output, None)
    steps = []
    for index, (tag, layer, _) in enumerate(_tagged_layers(tagged)):
        refs = net.nodes[index].inputs
        plain = _has_parameters(layer) and layer.kind != "Linear"
        run = layers[tag] if plain else _function(layer, layers.get(tag))
        steps.append((run, refs, tuple(ref for ref in set(refs) if last.get(ref) == index)))
    return steps


def _function(layer: Layer, module: Any) -> Callable[..., Any]:
    """The function of a layer without parameters, or of a linear layer."""
    torch = torch_package()
    functional = torch.nn.functional
    if layer.kind in {"AveragePool", "MaxPool"}:
        return _pool(layer)
    if layer.kind == "Linear":
        return lambda x: module(x if x.dim() == 3 else x.flatten(1))
    if layer.kind == "ChannelShuffle":
        groups = layer.integer("groups")
        return lambda x: x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)
    functions: dict[str, Callable[..., Any]] = {
        "Relu": functional.relu,
        "Relu6": functional.relu6,
        "HardSwish": functional.hardswish,
        "HardSigmoid": functional.hardsigmoid,
        "Sigmoid": torch.sigmoid,
        "Tanh": torch.tanh,
        "Identity": lambda x: x,
        "Zeros": lambda x: x * 0.0,
        "Add": torch.add,
        "Mul": torch.mul,
        "Concat": lambda x, y: torch.cat((x, y), 1),
        "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
        "Swish": functional.silu,
        "Gelu": functional.gelu,
        "Softmax": lambda x: functional.softmax(x, -1),
        "MatMul": torch.matmul,
        "Reshape": lambda x: x.reshape(x.shape[0], *layer.numbers("shape")[1:]),
        "Transpose": lambda x: x.permute(*layer.numbers("perm")),
        "Attention": lambda *given: _attention(*given, heads=layer.integer("heads")),
    }
    if layer.kind not in functions or (layer.kind == "Attention" and layer["past"]):
        raise ProblemError(
            f"{layer.kind} cannot be trained", hint=f"Known: {', '.join(sorted((*functions, *PARTS)))} and pooling."
        )
    return functions[layer.kind]


def _attention(query: Any, key: Any, value: Any, *, heads: int) -> Any:
    split = [x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (query, key, value)]
    attended = torch_package().nn.functional.scaled_dot_product_attention(*split)
    return attended.transpose(1, 2).flatten(2)


def _pool(layer: Layer) -> Callable[..., Any]:
    kernel, pad = layer.pair("kernel"), layer.pair("pad")
    if any(2 * p > k for p, k in zip(pad, kernel, strict=True)):
        raise ProblemError(
            f"the layer {layer.kind} of {kernel} is padded by {pad}, but PyTorch pads by at most half of the kernel",
            hint="Pad by at most half of the kernel.",
        )
    functional = torch_package().nn.functional
    sizes = {"kernel_size": kernel, "stride": layer.pair("stride"), "padding": pad}
    if layer.kind == "MaxPool":
        return functools.partial(functional.max_pool2d, **sizes)
    return functools.partial(functional.avg_pool2d, **sizes, count_include_pad=False)
