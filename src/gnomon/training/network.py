"""A tagged net as a PyTorch module: the same operators that the ONNX writer writes for it.

Layers with parameters are made one a tag and named by it, so that several nets can be assembled from one set of layers
(weight sharing), and the module's `state_dict` is the net's state. Fresh parameters depend on (seed, tag) alone.
Convolutions: normal with the variance 2 / fan-in (He et al., "Delving deep into rectifiers", 2015); linear layers:
uniform within 1 / sqrt(fan-in); biases 0. Blocks that are modules already begin as what makes them says.

The lazy import of PyTorch: nothing of gnomon loads it before a network is trained.

Parameters and multiply-accumulates of a net, by arithmetic on its layers.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.installing import needed
from gnomon.core.strict_json import Complaints
from gnomon.errors import ProblemError
from gnomon.spaces.cells.space import PARTS, State, TaggedNet, state_prefix
from gnomon.spaces.layers import Layer, Shape, features_of
from gnomon.spaces.unit import Net, shapes


def torch_package(task: str = "training a network") -> Any:
    """The torch package, for a task. RuntimeMissingError where it is not installed, or cannot be loaded."""
    with needed(f"{task} needs the package torch, which cannot be loaded", "torch", python=sys.executable):
        import torch
    return torch


Factory = Callable[..., Any]
"""Makes a `torch.nn.Module` of (N, C, H, W): of C, then of the channels that it makes and its stride; a stem of those
channels alone, a head of the classes."""

Factories = Mapping[str, Factory]
"""What makes the modules of a net's blocks of PyTorch's, by the name of the block."""


def build(tagged: TaggedNet, state: State | None, *, seed: int, factories: Factories | None = None) -> Any:
    """A module that computes the net, in training mode, on the CPU.

    It is called with the net's inputs, (n, channels, height, width) for any n. Parameters that the state has are
    copied from it, the others are fresh ones of (seed, tag). ProblemError for a chain of several layers in a node, for
    a block without its factory, and for parameters of the wrong shape, all named; RuntimeMissingError without PyTorch.
    """
    return assemble(tagged, make_layers((tagged,), state, seed=seed, factories=factories))


def make_layers(
    nets: Iterable[TaggedNet], state: State | None, *, seed: int, factories: Factories | None = None
) -> dict[str, Any]:
    """The layers with parameters of several nets, one a tag, in the order in which tags occur first."""
    made: dict[str, Any] = {}
    complaints = Complaints(what="state", hint="Give the parameters of networks of this space.")
    for tagged in nets:
        for tag, (one, shape) in zip(tagged.tags, _singles(tagged.net), strict=True):
            if _is_layer(one) and tag not in made:
                if one.kind == "Module":
                    made[tag] = _module(one, shape, factories or {}, seed, tag)
                else:
                    made[tag] = _layer(one, shape)
                    _begin(made[tag], one.kind, seed, tag)
                _fill(made[tag], state_prefix(tag), state or {}, complaints, whole=False)
    complaints.raise_any()
    return made


def assemble(tagged: TaggedNet, layers: Mapping[str, Any]) -> Any:
    """A module that computes the net with these layers, which are shared, not copied."""
    return _net_class()(tagged, layers)


def state_of(module: Any) -> dict[str, NDArray[Any]]:
    """A copy of the parameters of a module that `build` or `assemble` made, by the names of its `state_dict`."""
    return {name: np.array(one.cpu().contiguous().numpy(), order="C") for name, one in module.state_dict().items()}


def load_state(module: Any, state: State) -> None:
    """Overwrites the parameters of such a module with those of a state. ProblemError that names what does not fit."""
    complaints = Complaints(what="state", hint="Give the parameters of networks of this space.")
    _fill(module, "", state, complaints, whole=True)
    complaints.raise_any()


def generator(*words: object) -> Any:
    """A random number generator of PyTorch, on the CPU, that depends on these words alone."""
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    return torch_package().Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@contextlib.contextmanager
def seeded(*words: object) -> Iterator[None]:
    """PyTorch's global random numbers depend on these words alone meanwhile, and are afterwards what they were."""
    torch = torch_package()
    with torch.random.fork_rng():
        torch.manual_seed(generator(*words).initial_seed())
        yield


def _is_layer(one: Layer) -> bool:
    """Whether it has parameters of its own."""
    return one.kind in PARTS or one.kind == "Module"


def _singles(net: Net) -> Iterable[tuple[Layer, Shape]]:
    """The layer of each node and the shape of its first input. ProblemError for a chain."""
    for index, node in enumerate(net.nodes):
        if len(node.unit.layers) != 1:
            raise ProblemError(
                f"node {index} is a chain of layers ({node.unit.chain}), and only single layers have a tag",
                hint="Train the net before operators are fused.",
            )
        yield node.unit.layers[0], node.unit.inputs[0]


def _layer(one: Layer, shape: Shape) -> Any:
    """A layer with uninitialised parameters; the global random numbers stay untouched."""
    torch = torch_package()
    made: Any
    if one.kind == "Conv":
        made = torch.nn.utils.skip_init(
            torch.nn.Conv2d,
            shape[1],
            one.integer("out_channels"),
            one.pair("kernel"),
            stride=one.pair("stride"),
            padding=one.pair("pad"),
            dilation=one.pair("dilation"),
            groups=one.integer("group"),
            bias=bool(one["bias"]),
        )
    elif one.kind == "Linear":
        features = one.integer("out_features")
        made = torch.nn.utils.skip_init(torch.nn.Linear, features_of(shape), features, bias=bool(one["bias"]))
    elif one.kind == "LayerNormalization":
        made = torch.nn.LayerNorm(shape[-1], eps=1e-5)
    else:
        made = torch.nn.BatchNorm2d(shape[1], eps=1e-5, momentum=0.1)
    return made


def _module(one: Layer, shape: Shape, factories: Factories, seed: int, tag: str) -> Any:
    """A block that is a module, as its factory makes it of (seed, tag)."""
    name = str(one["block"])
    if name not in factories:
        raise ProblemError(f"the net has a block {name} that nothing makes", hint="Give the blocks of the space.")
    with seeded(seed, tag):
        return factories[name](shape[1], *one.numbers("arguments"))


def _begin(made: Any, kind: str, seed: int, tag: str) -> None:
    """Gives a layer fresh parameters."""
    torch = torch_package()
    random = generator(seed, tag)
    for own, part in PARTS[kind].items():
        tensor = getattr(made, own)
        if tensor is not None:
            turned = kind == "Linear" and part == "w"  # drawn as (in, out)
            value = _fresh(kind, part, tuple(reversed(tensor.shape)) if turned else tuple(tensor.shape), random)
            with torch.no_grad():
                tensor.copy_(value.T if turned else value)


def _fill(made: Any, prefix: str, state: State, complaints: Complaints, *, whole: bool) -> None:
    """Copies parameters from a state, where they have this prefix; `whole` tells those that it lacks."""
    torch = torch_package()
    for own, tensor in made.state_dict().items():
        given = state.get(prefix + own)
        if given is None:
            if whole:
                complaints.tell(prefix + own, "it is missing")
            continue
        floats = "f" if tensor.is_floating_point() else "iub"
        if given.shape != tuple(tensor.shape) or given.dtype.kind not in floats:
            wanted = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            complaints.tell(prefix + own, f"it is {given.dtype}{list(given.shape)}, not {wanted}")
            continue
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(np.array(given, order="C")))


def _fresh(kind: str, part: str, shape: tuple[int, ...], random: Any) -> Any:
    torch = torch_package()
    if part == "w" and kind == "Conv":
        return torch.randn(shape, generator=random) * math.sqrt(2 / math.prod(shape[1:]))
    if part == "w":
        return (torch.rand(shape, generator=random) * 2 - 1) / math.sqrt(shape[0])
    return torch.ones(shape) if part in {"scale", "var"} else torch.zeros(shape)


@functools.cache
def _net_class() -> Any:
    """The class of modules; made at its first use, for its base is PyTorch's."""
    torch = torch_package()

    class TorchNet(torch.nn.Module):  # type: ignore[misc, name-defined]
        """Runs the nodes of a net in their order, and lets go of each value after its last reader.

        `watch` is called with the number of each node and what it made.
        """

        def __init__(self, tagged: TaggedNet, layers: Mapping[str, Any]) -> None:
            super().__init__()
            self.tagged = tagged
            self.by_tag = {tag: layers[tag] for tag, (one, _) in _tagged(tagged) if _is_layer(one)}
            for tag, layer in self.by_tag.items():
                *folders, name = tag.split("/")
                where: Any = self
                for folder in folders:
                    if folder not in where._modules:
                        where.add_module(folder, torch.nn.Module())
                    where = where._modules[folder]
                where.add_module(name, layer)
            self.steps = _steps(tagged, self.by_tag)
            self.watch: Callable[[int, Any], None] | None = None

        def forward(self, *inputs: Any) -> Any:
            """The net's output for its inputs."""
            values = [None] * len(self.steps) + list(reversed(inputs))
            for index, (run, refs, done) in enumerate(self.steps):
                values[index] = run(*[values[ref] for ref in refs])
                if self.watch is not None:
                    self.watch(index, values[index])
                for ref in done:
                    values[ref] = None
            return values[self.tagged.net.output]

    return TorchNet


def _tagged(tagged: TaggedNet) -> Iterable[tuple[str, tuple[Layer, Shape]]]:
    return zip(tagged.tags, _singles(tagged.net), strict=True)


def _steps(
    tagged: TaggedNet, layers: Mapping[str, Any]
) -> list[tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]]:
    """For each node what it calls, what it reads, and which values nobody reads after it."""
    net = tagged.net
    last = {ref: index for index, node in enumerate(net.nodes) for ref in node.inputs if ref >= 0}
    last.pop(net.output, None)
    steps = []
    for index, (tag, (one, _)) in enumerate(_tagged(tagged)):
        refs = net.nodes[index].inputs
        run = layers[tag] if _is_layer(one) and one.kind != "Linear" else _function(one, layers.get(tag))
        steps.append((run, refs, tuple(ref for ref in set(refs) if last.get(ref) == index)))
    return steps


def _function(one: Layer, layer: Any) -> Callable[..., Any]:
    """What a layer without parameters calls, and a linear layer."""
    torch = torch_package()
    functional = torch.nn.functional
    if one.kind in {"AveragePool", "MaxPool"}:
        return _pool(one)
    if one.kind == "Linear":
        return lambda x: layer(x if x.dim() == 3 else x.flatten(1))
    if one.kind == "ChannelShuffle":
        groups = one.integer("groups")
        return lambda x: x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)
    known: dict[str, Callable[..., Any]] = {
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
        "Reshape": lambda x: x.reshape(x.shape[0], *one.numbers("shape")[1:]),
        "Transpose": lambda x: x.permute(*one.numbers("perm")),
        "Attention": lambda *given: _attention(*given, heads=one.integer("heads")),
    }
    if one.kind not in known or (one.kind == "Attention" and one["past"]):
        raise ProblemError(
            f"a {one.kind} cannot be trained", hint=f"Known: {', '.join(sorted((*known, *PARTS)))} and pooling."
        )
    return known[one.kind]


def _attention(query: Any, key: Any, value: Any, *, heads: int) -> Any:
    split = [x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (query, key, value)]
    made = torch_package().nn.functional.scaled_dot_product_attention(*split)
    return made.transpose(1, 2).flatten(2)


def _pool(one: Layer) -> Callable[..., Any]:
    kernel, pad = one.pair("kernel"), one.pair("pad")
    if any(2 * p > k for p, k in zip(pad, kernel, strict=True)):
        raise ProblemError(
            f"a {one.kind} of {kernel} is padded by {pad}, more than half of it, which PyTorch does not do",
            hint="Pad by half of the kernel at most.",
        )
    functional = torch_package().nn.functional
    sizes = {"kernel_size": kernel, "stride": one.pair("stride"), "padding": pad}
    if one.kind == "MaxPool":
        return functools.partial(functional.max_pool2d, **sizes)
    return functools.partial(functional.avg_pool2d, **sizes, count_include_pad=False)


def params(net: Net) -> int:
    """Trained numbers: weights, biases, and the scale and bias of batch normalisations, not their statistics."""
    total = 0
    for one, source, _ in _layers(net):
        if one.kind == "Conv":
            out = one.integer("out_channels")
            total += out * (source[1] // one.integer("group") * math.prod(one.pair("kernel")) + bool(one["bias"]))
        elif one.kind == "Linear":
            total += one.integer("out_features") * (features_of(source) + bool(one["bias"]))
        elif one.kind == "LayerNormalization":
            total += 2 * source[-1]
        elif one.kind == "BatchNormalization":
            total += 2 * source[1]
        elif one.kind == "Module":
            total += one.integer("params")
    return total


def macs(net: Net) -> int:
    """Multiply-accumulates of convolutions and linear layers, for the batch that the net is written down with."""
    total = 0
    for one, source, made in _layers(net):
        if one.kind == "Conv":
            total += math.prod(made) * source[1] // one.integer("group") * math.prod(one.pair("kernel"))
        elif one.kind == "Linear":
            total += math.prod(made) * features_of(source)
        elif one.kind == "Module":
            total += made[0] * one.integer("macs")
    return total


def _layers(net: Net) -> Iterator[tuple[Layer, Shape, Shape]]:
    """Each layer, the shape of its first input, and that of its output."""
    for node in net.nodes:
        source = node.unit.inputs[0]
        for one, made in zip(node.unit.layers, shapes(node.unit), strict=True):
            yield one, source, made
            source = made
