"""Blocks that are PyTorch modules: functions that create, try and identify them.

In a net, such a block is one layer of the kind `Module`, with the block's name, digest and output shape. The block is
created by a function, which other processes find by its origin (see `gnomon.spaces.cells.space`).

The digest covers a module's calls to PyTorch, with their numbers and shapes, the names and shapes of its parameters,
and its printed form. Each is taken for several numbers of channels and strides. A different activation, width or
dropout rate gives a different digest; a different variable name does not.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.errors import ProblemError
from gnomon.spaces.blocks import BlockSpace
from gnomon.spaces.cells.primitives import HEAD, STEM, Primitive, digest_of
from gnomon.spaces.cells.space import TaggedNet, known_primitives, module_of
from gnomon.spaces.layers import Shape
from gnomon.spaces.loading import load_attribute, load_space, users_errors
from gnomon.spaces.sources import OF_PYTHON, Source
from gnomon.spaces.unit import Symbol
from gnomon.training.network import Factory, seeded, torch_package

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
Places = tuple[tuple[Shape, tuple[int, ...]], ...]
_TRIED_AT: dict[str, Places] = {
    STEM: (((3, 16, 16), (16,)),),
    HEAD: (((64, 16, 16), (10,)),),
    "": (((64, 16, 16), (64, 1)), ((64, 16, 16), (128, 2))),
}
"""The places where a digest is computed, by the block's name ("" for primitives). Each place has the shape of an image
and the arguments after the channels.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleBlock:
    """A module as a block of a net; it is run once for each place to find the shape of its output.

    `name` is the name of a primitive, `STEM`, `HEAD`, or the name of a choice of a space written in Python. A block of
    the last kind is `of_space`: it is created from its number of input channels only, and tried at the shape of its
    actual input. Another process can load `factory` from `origin`.
    """

    name: str
    origin: str
    factory: Factory
    of_space: bool = False

    def __call__(self, x: Symbol, *arguments: int) -> Symbol:
        """Add the block to a net, with these arguments after the channels of its input."""
        shape, macs, params = _tried(self.factory, self.name, x.shape[1:], arguments)
        digest = self.digest_at(x.shape)
        return x.layer(
            "Module", block=self.name, digest=digest, arguments=arguments, shape=shape, macs=macs, params=params
        )

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that identify the block's function, independent of its name."""
        return _digest(self.factory, self.name, _TRIED_AT.get(self.name, _TRIED_AT[""]))

    def digest_at(self, shape: Shape) -> str:
        """The digest of a net's layer whose input has this shape."""
        return _digest(self.factory, self.name, ((shape[1:], ()),)) if self.of_space else self.digest

    @property
    def steady(self) -> bool:
        """Whether the module in evaluation mode gives the same output each time for the same images."""
        return _steady(self.factory, self.name, *_TRIED_AT.get(self.name, _TRIED_AT[""])[0])


def module_for(source: Any, channels: int, name: str) -> Any:
    """A new module in evaluation mode: a copy of the module `source`, or the result of calling the function `source`
    with the number of input channels.

    ProblemError if that fails, or if `source` is anything else.
    """
    hint = "Give a torch.nn.Module, or a function that creates one from the number of input channels."
    with users_errors(f"{name} cannot be created for {channels} input channels", hint, ProblemError), seeded(name):
        return _new_module(_factory(source), name, channels, ()).eval()


def known_blocks(numbering: str = "ssprofile", blocks: Sequence[str | Path] = ()) -> dict[str, Primitive]:
    """All primitives by name, with blocks for those that are modules.

    Raises the errors of `known_primitives`, and RuntimeMissingError if there is a module but no PyTorch.
    """
    return known_primitives(numbering, blocks, bound)


def bound(primitive: Primitive, origin: str) -> Primitive:
    """The primitive, with a block of this origin if it is a module."""
    if primitive.module is None:
        return primitive
    block = ModuleBlock(name=primitive.name, origin=origin, factory=primitive.module)
    return Primitive(family=primitive.family, number=primitive.number, block=block, meaning=primitive.meaning)


def end_block(name: str, origin: str) -> ModuleBlock:
    """A stem or head with this name, created by the function ``file.py:function`` or ``package.module:function``."""
    return ModuleBlock(name=name, origin=origin, factory=load_attribute(origin))


def load_factories(origins: Mapping[str, str], tagged: TaggedNet) -> dict[str, Factory]:
    """The factories of a net's modules, by the name of the block, each loaded from its origin.

    ProblemError if a module has changed since the net was created.
    """
    factories = {}
    for node in tagged.net.nodes:
        layer = node.unit.layers[0]
        if layer.kind != "Module" or (name := str(layer["block"])) in factories or name not in origins:
            continue
        block = _loaded(name, origins[name])
        if block.digest_at(node.unit.inputs[0]) != layer["digest"]:
            raise ProblemError(
                f"{name} of {origins[name]} has changed since the network was made",
                hint="Restore the file, or start again in another folder.",
            )
        factories[name] = block.factory
    return factories


def space_block(space: BlockSpace, name: str, origin: str) -> ModuleBlock | None:
    """The block for the choice with this name in a space; None if the choice consists of layers.

    ProblemError for an ONNX file, which cannot be trained.
    """
    block = space.block(name)
    if not isinstance(block, Source):
        return None
    if block.is_file:
        raise ProblemError(
            f"{name} is an ONNX file, which cannot be trained", hint="Give a torch.nn.Module, or accuracies as a csv."
        )
    return ModuleBlock(name=name, origin=origin, factory=_factory(block.made_of), of_space=True)


@functools.lru_cache(maxsize=256)
def _loaded(name: str, origin: str) -> ModuleBlock:
    if name in (STEM, HEAD):
        return end_block(name, origin)
    if origin.startswith(OF_PYTHON) and (block := space_block(_space(origin), name, origin)) is not None:
        return block
    return ModuleBlock(name=name, origin=origin, factory=module_of(origin, name))


@functools.lru_cache(maxsize=16)
def _space(origin: str) -> Any:
    return load_space(origin.removeprefix(OF_PYTHON))


@functools.lru_cache(maxsize=1024)
def _factory(made_of: Any) -> Factory:
    """The factory of a source's modules: a function itself, or for a module, a function that copies it with its
    weights.
    """
    return (lambda channels: copy.deepcopy(made_of)) if isinstance(made_of, torch_package().nn.Module) else made_of


@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """Use the same operators for attention as in training: PyTorch's fast path cannot be exported to any file
    format.
    """
    mha = torch_package().backends.mha
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)


def _new_module(factory: Factory, name: str, channels: int, arguments: Sequence[int]) -> Any:
    """Create a module with its factory. ProblemError if the factory returns anything else, or a module with
    floating-point parameters other than float32.
    """
    torch = torch_package()
    module = factory(channels, *arguments)
    if not isinstance(module, torch.nn.Module):
        raise ProblemError(
            f"{name} is a {type(module).__name__}, not a torch.nn.Module", hint="Return the module, not its output."
        )
    for own, tensor in module.state_dict().items():
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise ProblemError(
                f"{own} of {name} is {str(tensor.dtype).removeprefix('torch.')}", hint="Use float32 modules."
            )
    return module


@functools.lru_cache(maxsize=1024)
def _tried(factory: Factory, name: str, shape: Shape, arguments: tuple[int, ...]) -> tuple[Shape, int, int]:
    """The output shape of a module for one image, its multiply-adds, and the number of its trained parameters.

    ProblemError if it does not return one float32 tensor for a batch of images.
    """
    torch = torch_package("a block of PyTorch's")
    from torch.utils.flop_counter import FlopCounterMode

    with seeded(name), torch.no_grad(), plain_attention(), FlopCounterMode(display=False) as counted:
        module = _new_module(factory, name, shape[0], arguments).eval()
        output = module(torch.zeros(2, *shape))
    if (
        not isinstance(output, torch.Tensor)
        or output.dim() < 2
        or output.shape[0] != 2
        or output.dtype != torch.float32
    ):
        kind = f"{tuple(output.shape)}" if isinstance(output, torch.Tensor) else f"a {type(output).__name__}"
        raise ProblemError(
            f"{name} returns {kind} for a batch {(2, *shape)}", hint="Return one float32 tensor of shape (N, ..)."
        )
    params = sum(weight.numel() for weight in module.parameters() if weight.requires_grad)
    return tuple(output.shape[1:]), counted.get_total_flops() // 4, params  # two per multiply-add, and two images


@functools.lru_cache(maxsize=256)
def _digest(factory: Factory, name: str, places: Places) -> str:
    return digest_of([_traced(factory, name, *place) for place in places])


@functools.lru_cache(maxsize=256)
def _steady(factory: Factory, name: str, shape: Shape, arguments: tuple[int, ...]) -> bool:
    torch = torch_package("a block of PyTorch's")
    with seeded(name), torch.no_grad(), plain_attention():
        module, images = _new_module(factory, name, shape[0], arguments).eval(), torch.randn(2, *shape)
        return bool(torch.equal(module(images), module(images)))


def _traced(factory: Factory, name: str, shape: Shape, arguments: Sequence[int]) -> Any:
    """A module as JSON values: its printed form, its state, and its calls."""
    torch = torch_package("a block of PyTorch's")
    from torch.overrides import TorchFunctionMode, resolve_name

    calls: list[Any] = []

    class Calls(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            calls.append([str(resolve_name(function)), _plain(args), _plain(kwargs or {}), _plain(result)])
            return result

    with seeded(name), torch.no_grad(), plain_attention():
        module = _new_module(factory, name, shape[0], arguments).eval()
        with Calls():
            module(torch.zeros(2, *shape))
    state = [[own, str(tensor.dtype), list(tensor.shape)] for own, tensor in module.state_dict().items()]
    return [_ADDRESS.sub("", repr(module)), state, calls]


def _plain(value: Any) -> Any:
    """A value of a call as a JSON value; a tensor is represented by its shape."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch_package().Tensor):
        return {"shape": list(value.shape)}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    return _ADDRESS.sub("", str(value))
