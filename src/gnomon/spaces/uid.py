"""Module UIDs of nnabla-nas: the names of units in the tables of its SNPE profiler.

A UID is `str(module) + str(input shapes)` without blanks, and with square brackets in place of round ones. The spelling
of Conv also occurs in a published table; those of BatchNormalization, ReLU6, ReLU, GlobalAvgPool, AvgPool, MaxPool and
Linear follow the modules' `extra_repr` in nnabla-nas's sources of April 2020. `Add2` is spelled like a module without
arguments: nnabla-nas's own MobileNet adds with Python's `+`, which is not a module and has no UID.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from gnomon.errors import ProblemError
from gnomon.spaces.layers import Layer, Shape, layer
from gnomon.spaces.unit import Unit, single

_PLAIN = {"Relu6": "ReLU6", "Add": "Add2", "GlobalAveragePool": "GlobalAvgPool", "Identity": "Identity"}
_UNPARAMETERISED = {**_PLAIN, "Relu": "ReLU", "BatchNormalization": "BatchNormalization"}
_POOLS = {"AveragePool": "AvgPool", "MaxPool": "MaxPool"}
_MODULE = re.compile(r"(?P<name>[A-Za-z0-9]+)\[(?P<fields>.*)\](?P<shapes>\[\[[0-9,\[\]]*\]\])", re.DOTALL)
_FIELD = re.compile(r"(?P<name>[a-z_]+)=(?P<value>\[[^\]]*\]|[^,\[\]]*)(?:,|$)")
_MOST_CHARACTERS = 4096


def uid(unit: Unit, *, bare_pad: bool = False) -> str:
    """The UID of a unit of one layer. With `bare_pad`, a padding of 0 is spelled `None`, as for a module made without a
    padding.

    ProblemError for a chain, and for a kind of layer that nnabla-nas does not have as a module.
    """
    if len(unit.layers) != 1:
        raise ProblemError(f"the chain {unit.chain} is not a module of nnabla-nas", hint="Use single operators.")
    op = unit.layers[0]
    shapes = "[" + ",".join("[" + ",".join(map(str, shape)) + "]" for shape in unit.inputs) + "]"
    return _module(op, unit.inputs[0], bare_pad) + shapes


def unit_of_uid(text: str) -> Unit:
    """The unit of a UID in any of its spellings. ProblemError for a text that is not a UID, or that has an unknown
    module.
    """
    match = _MODULE.fullmatch(text) if len(text) <= _MOST_CHARACTERS else None
    if match is None:
        raise ProblemError(
            f"{text[:80]!r} is not a module UID",
            hint="Give a module and its input shapes, such as ReLU6[][[1,32,16,16]]",
        )
    name, fields = match["name"], _fields(match["fields"], text)
    if name not in _READERS:
        raise ProblemError(
            f"the module {name!r} of a UID is not known", hint=f"Known modules: {', '.join(sorted(_READERS))}."
        )
    shapes = tuple(_numbers(part, text) for part in match["shapes"][2:-2].split("],["))
    try:
        return single(_READERS[name](fields), shapes)
    except KeyError as error:
        raise ProblemError(
            f"the UID {text[:80]!r} lacks the argument {error}", hint="Use the UID as nnabla-nas wrote it."
        ) from None


def _module(op: Layer, shape: Shape, bare_pad: bool) -> str:
    if op.kind in _PLAIN:
        return f"{_PLAIN[op.kind]}[]"
    if op.kind == "Relu":
        return "ReLU[inplace=False]"
    if op.kind == "BatchNormalization":
        return f"BatchNormalization[n_features={shape[1]},fix_parameters=False,eps=1e-05,decay_rate=0.9]"
    if op.kind == "Linear":
        return f"Linear[in_features={shape[1]},out_features={op['out_features']},base_axis=1,bias={op['bias']}]"
    if op.kind == "Conv":
        dilation = "None" if op.pair("dilation") == (1, 1) else _pair(op, "dilation")
        return (
            f"Conv[in_channels={shape[1]},out_channels={op['out_channels']},kernel={_pair(op, 'kernel')},"
            f"stride={_pair(op, 'stride')},pad={_pad(op, bare_pad)},dilation={dilation},base_axis=1,"
            f"group={op['group']},with_bias={op['bias']},fix_parameters=False,channel_last=False]"
        )
    if op.kind in _POOLS:
        sizes = f"kernel={_pair(op, 'kernel')},stride={_pair(op, 'stride')},pad={_pad(op, bare_pad)}"
        return f"{_POOLS[op.kind]}[{sizes},channel_last=False]"
    raise ProblemError(f"the layer {op.kind} is not a module of nnabla-nas", hint="Export only tables of its spaces.")


def _pair(op: Layer, name: str) -> str:
    return "[" + ",".join(map(str, op.pair(name))) + "]"


def _pad(op: Layer, bare: bool) -> str:
    return "None" if bare and op.pair("pad") == (0, 0) else _pair(op, "pad")


def _fields(text: str, whole: str) -> dict[str, str]:
    fields, position = {}, 0
    while position < len(text):
        match = _FIELD.match(text, position)
        if match is None:
            raise ProblemError(
                f"the arguments in {whole[:80]!r} cannot be read", hint="Use the UID as nnabla-nas wrote it."
            )
        fields[match["name"]] = match["value"]
        position = match.end()
    if fields.get("channel_last", "False") != "False":
        raise ProblemError(f"{whole[:80]!r} has channels last", hint="Export the table with channels first.")
    return fields


def _numbers(text: str, whole: str) -> tuple[int, ...]:
    parts = text.strip("[]").split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise ProblemError(
            f"{text!r} in {whole[:80]!r} is not a list of numbers", hint="Use the UID as nnabla-nas wrote it."
        )
    return tuple(int(part) for part in parts)


def _two(fields: dict[str, str], name: str, default: int) -> tuple[int, int]:
    value = fields.get(name, "None")
    if value == "None":
        return (default, default)
    numbers = _numbers(value, value)
    if len(numbers) != 2:
        raise ProblemError(f"{name}={value} must have two numbers", hint="Use only modules for images.")
    return (numbers[0], numbers[1])


def _number(fields: dict[str, str], name: str) -> int:
    return _numbers(fields[name], fields[name])[0]


def _read_conv(fields: dict[str, str]) -> Layer:
    return layer(
        "Conv",
        out_channels=_number(fields, "out_channels"),
        kernel=_two({"kernel": fields["kernel"]}, "kernel", 1),
        stride=_two(fields, "stride", 1),
        pad=_two(fields, "pad", 0),
        dilation=_two(fields, "dilation", 1),
        group=_number(fields, "group"),
        bias=fields["with_bias"] == "True",
    )


def _read_linear(fields: dict[str, str]) -> Layer:
    return layer("Linear", out_features=_number(fields, "out_features"), bias=fields.get("bias", "True") == "True")


def _read_pool(kind: str, fields: dict[str, str]) -> Layer:
    kernel = _two({"kernel": fields["kernel"]}, "kernel", 1)
    # A pool without a stride has a stride equal to its kernel.
    stride = kernel if fields.get("stride") == "None" else _two(fields, "stride", 1)
    return layer(kind, kernel=kernel, pad=_two(fields, "pad", 0), stride=stride)


def _read_plain(kind: str, _: dict[str, str]) -> Layer:
    return layer(kind)


_READERS: dict[str, Callable[[dict[str, str]], Layer]] = {
    "Conv": _read_conv,
    "Linear": _read_linear,
    **{name: partial(_read_pool, kind) for kind, name in _POOLS.items()},
    **{name: partial(_read_plain, kind) for kind, name in _UNPARAMETERISED.items()},
}
