"""Blocks that are modules of PyTorch's: made, tried and told apart.

A net has such a block as one layer of the kind `Module`, by its name, its digest and the shape that it makes. What
makes it stays a function, which other processes find by the origin that `gnomon.spaces.cells.space` knows it by.

The digest is of what the modules call of PyTorch with which numbers, of the names and shapes of their parameters, and
of how they print, for a few channels and strides: another activation, width or rate of dropout is another block,
another name of a variable is not.
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
"""The places of a digest: shapes of an image, and arguments behind its channels; "" are primitives'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleBlock:
    """A module as a block that can be written down; what it makes is found by running it once for each place.

    `name` is the primitive's, `STEM` or `HEAD`, or that of a choice of a space in Python, which is `of_space`: that is
    made of its input's channels alone, and tried at its very place. `origin` is where another process finds `factory`.
    """

    name: str
    origin: str
    factory: Factory
    of_space: bool = False

    def __call__(self, x: Symbol, *arguments: int) -> Symbol:
        """Writes it down, for these arguments behind the channels of its input."""
        shape, macs, params = _tried(self.factory, self.name, x.shape[1:], arguments)
        digest = self.digest_at(x.shape)
        return x.layer(
            "Module", block=self.name, digest=digest, arguments=arguments, shape=shape, macs=macs, params=params
        )

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that stand for what it makes, whatever it is called."""
        return _digest(self.factory, self.name, _TRIED_AT.get(self.name, _TRIED_AT[""]))

    def digest_at(self, shape: Shape) -> str:
        """The digest of a net's layer whose input has this shape."""
        return _digest(self.factory, self.name, ((shape[1:], ()),)) if self.of_space else self.digest

    @property
    def steady(self) -> bool:
        """Whether it makes the same of the same images each time, where it is not trained."""
        return _steady(self.factory, self.name, *_TRIED_AT.get(self.name, _TRIED_AT[""])[0])


def module_for(source: Any, channels: int, name: str) -> Any:
    """A module in evaluation mode, a copy of its own, of one or of what makes it of its input's channels.

    ProblemError where that fails, and for anything else.
    """
    hint = "Give a torch.nn.Module, or a function that makes one of the channels of its input."
    with users_errors(f"{name} cannot be made of {channels} channels", hint, ProblemError), seeded(name):
        return _new_module(_factory(source), name, channels, ()).eval()


def known_blocks(numbering: str = "ssprofile", blocks: Sequence[str | Path] = ()) -> dict[str, Primitive]:
    """All primitives by name, modules with their blocks; see `known_primitives`, whose errors it raises.

    RuntimeMissingError where there is a module and no PyTorch.
    """
    return known_primitives(numbering, blocks, bound)


def bound(primitive: Primitive, origin: str) -> Primitive:
    """A primitive with its block, where it is a module, of this origin."""
    if primitive.module is None:
        return primitive
    block = ModuleBlock(name=primitive.name, origin=origin, factory=primitive.module)
    return Primitive(family=primitive.family, number=primitive.number, block=block, meaning=primitive.meaning)


def end_block(name: str, origin: str) -> ModuleBlock:
    """A stem or a head by its name, of the function that ``file.py:function`` or ``package.module:function`` names."""
    return ModuleBlock(name=name, origin=origin, factory=load_attribute(origin))


def load_factories(origins: Mapping[str, str], tagged: TaggedNet) -> dict[str, Factory]:
    """The factories of a net's modules in this process, by the name of the block, each from its origin.

    ProblemError where one is not what it was when the net was made.
    """
    factories = {}
    for node in tagged.net.nodes:
        layer = node.unit.layers[0]
        if layer.kind != "Module" or (name := str(layer["block"])) in factories or name not in origins:
            continue
        block = _loaded(name, origins[name])
        if block.digest_at(node.unit.inputs[0]) != layer["digest"]:
            raise ProblemError(
                f"{name} of {origins[name]} is not what it was when this began",
                hint="Restore the file as it was, or begin again in another folder.",
            )
        factories[name] = block.factory
    return factories


def space_block(space: BlockSpace, name: str, origin: str) -> ModuleBlock | None:
    """The choice of a space by its name, where it is a module; None where it is of layers.

    ProblemError for an ONNX file, which nothing trains.
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
    """The factory of a source's modules, of a module copies with its weights; one object for each."""
    return (lambda channels: copy.deepcopy(made_of)) if isinstance(made_of, torch_package().nn.Module) else made_of


@contextlib.contextmanager
def plain_attention() -> Iterator[None]:
    """Attention by the operators that training has meanwhile: PyTorch's own shorter way is one that no file knows."""
    mha = torch_package().backends.mha
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)


def _new_module(factory: Factory, name: str, channels: int, arguments: Sequence[int]) -> Any:
    """A module. ProblemError for anything else, and for one of other numbers than float32."""
    torch = torch_package()
    module = factory(channels, *arguments)
    if not isinstance(module, torch.nn.Module):
        raise ProblemError(
            f"{name} is a {type(module).__name__}, not a torch.nn.Module", hint="Return the module, not what it makes."
        )
    for own, tensor in module.state_dict().items():
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise ProblemError(
                f"{own} of {name} is {str(tensor.dtype).removeprefix('torch.')}", hint="Make modules of float32."
            )
    return module


@functools.lru_cache(maxsize=1024)
def _tried(factory: Factory, name: str, shape: Shape, arguments: tuple[int, ...]) -> tuple[Shape, int, int]:
    """The shape that a module makes of one image, its multiply-adds, and its trained numbers.

    ProblemError where it makes something else than a tensor a batch of images.
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
            f"{name} makes {kind} of a batch {(2, *shape)}", hint="A module returns one tensor of float32, of (N, ..)."
        )
    params = sum(weight.numel() for weight in module.parameters() if weight.requires_grad)
    return tuple(output.shape[1:]), counted.get_total_flops() // 4, params  # two a multiply-add, and two images


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
    """A value of a call as JSON has it: of a tensor its shape."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch_package().Tensor):
        return {"shape": list(value.shape)}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    return _ADDRESS.sub("", str(value))
