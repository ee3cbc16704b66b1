"""Spaces of transformers: HAT's translation models, for a whole sentence and, in a second space, for the next word.

HAT: Wang et al., "HAT: Hardware-Aware Transformers for Efficient Natural Language Processing", ACL 2020. Widths, heads
and depths are those of its WMT'14 En-De space in mit-han-lab/hardware-aware-transformers. As in that space, a layer
normalisation follows each residual.

The first slots choose everything on which all layers depend (widths, lengths, depth); their choices are the state of
the tables. Each further slot belongs to a part of one layer.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from gnomon.core.space import Slot, Space
from gnomon.spaces.features import Assignment, CountTables, Step, dense
from gnomon.spaces.fuse import Chain, FusionRules, fuse
from gnomon.spaces.unit import Net, Symbol, Trace, Unit

Setting = Mapping[str, int]
"""The choices of the first slots, by the names of the slots."""

Values = tuple[Symbol, ...]
"""The values that pass through the net."""

Write = Callable[[Setting, Values, int], Values]
"""A function that writes the layers of a part, from the setting, the values, and the number of the slot's choice."""

_WORDS = 32_000

_ENCODER_WIDTHS = _DECODER_WIDTHS = (512, 640)
_HIDDEN = (1024, 2048, 3072)
_HEADS = (4, 8)
_CROSSINGS = tuple(itertools.product(_HEADS, (1, 2, 3)))
"""The number of heads, and how many of the encoder's last layers the decoder attends to."""

_LAYERS = 6
_LENGTHS = (16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a space's nets: its slot (None if there is no choice), the function that writes it, and a function that
    says whether nets with a given setting have it.
    """

    slot: Slot | None
    write: Write
    there: Callable[[Setting], bool] = lambda _: True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayeredSpace:
    """Nets that are sequences of parts; each part depends on its own slot and on the setting that all parts share.

    `settings` are the first slots, with the number that each choice stands for; `inputs` returns the shapes of the
    net's inputs. The output of a part must be read by several layers, or come from an operator that begins no chain, so
    that no chain of operators continues from one part into the next.
    """

    name: str
    settings: Mapping[str, tuple[int, ...]]
    inputs: Callable[[Setting], tuple[tuple[int, ...], ...]]
    parts: tuple[Part, ...]
    _tables: dict[frozenset[Chain], CountTables] = field(init=False, repr=False, default_factory=dict)

    @property
    def space(self) -> Space:
        """The slots of the setting, then those of the parts."""
        first = [Slot(name, tuple(map(str, values))) for name, values in self.settings.items()]
        return Space((*first, *(part.slot for part in self.parts if part.slot is not None)))

    def net(self, assignment: Assignment) -> Net:
        """The net of an assignment. ProblemError for an assignment outside the space."""
        chosen = [int(choice) for choice in assignment]
        self.space.encode(chosen)
        setting = {name: values[c] for (name, values), c in zip(self.settings.items(), chosen, strict=False)}
        rest = iter(chosen[len(self.settings) :])
        trace = Trace(self.inputs(setting))
        values = tuple(trace.input(k) for k in range(len(trace.inputs)))
        for part in self.parts:
            choice = next(rest) if part.slot is not None else 0
            if part.there(setting):
                values = part.write(setting, values, choice)
        return trace.net(values[0])

    def tables(self, rules: FusionRules) -> CountTables:
        """All units and how to count them, part by part. The tables for each set of rules are built only once."""
        if rules.chains not in self._tables:
            self._tables[rules.chains] = self._build(rules)
        return self._tables[rules.chains]

    def _build(self, rules: FusionRules) -> CountTables:
        names, numbers = list(self.settings), list(self.settings.values())
        # The first slot is the least significant digit of a joint choice.
        every = [dict(zip(names, reversed(chosen), strict=True)) for chosen in itertools.product(*reversed(numbers))]
        rows: dict[tuple[tuple[Unit, int], ...], int] = {(): 0}
        states = np.arange(len(every), dtype=np.int64)
        steps = [Step(slots=tuple(range(len(names))), row=np.zeros((1, len(every)), np.int64), next_state=states[None])]
        shapes = [self.inputs(setting) for setting in every]
        slot = len(names)
        written: dict[object, tuple[int, tuple[tuple[int, ...], ...]]] = {}
        for number, part in enumerate(self.parts):
            choices = 1 if part.slot is None else len(part.slot.choices)
            chosen_rows = np.zeros((len(every), choices), np.int64)
            for state, setting in enumerate(every):
                if not part.there(setting):
                    continue
                after = shapes[state]
                for choice in range(choices):
                    key = number, choice, tuple(setting.items()), shapes[state]
                    if key not in written:
                        written[key] = self._part(part, setting, shapes[state], choice, (rules, rows))
                    chosen_rows[state, choice], after = written[key]
                shapes[state] = after
            slots = () if part.slot is None else (slot,)
            slot += part.slot is not None
            next_state = np.repeat(states[:, None], choices, axis=1)
            steps.append(Step(slots=slots, row=chosen_rows, next_state=next_state))
        units, table = dense([dict(row) for row in rows])
        return CountTables(space=self.space, units=units, steps=tuple(steps), rows=table)

    def _part(
        self,
        part: Part,
        setting: Setting,
        shapes: tuple[tuple[int, ...], ...],
        choice: int,
        kept: tuple[FusionRules, dict[tuple[tuple[Unit, int], ...], int]],
    ) -> tuple[int, tuple[tuple[int, ...], ...]]:
        """The number of the row of units that a part adds, and the shapes of the values after it."""
        rules, rows = kept
        trace = Trace(shapes)
        values = part.write(setting, tuple(trace.input(k) for k in range(len(shapes))), choice)
        net = trace.net(values[0])
        counts: Counter[Unit] = Counter(fuse(net, rules).counts())
        return rows.setdefault(tuple(counts.items()), len(rows)), tuple(value.shape for value in values)


def hat() -> LayeredSpace:
    """HAT's translation models: they read a sentence and score equally many words of another language at once.

    Slots: `length`, `encoder_width`, `decoder_width`, `decoder_depth`; then the heads and the hidden width of each
    layer and, for each layer of the decoder, the heads of its attention to the encoder together with the number of
    encoder layers that they attend to (these layers all have the same shape, so the last one stands for all).
    """
    settings = {
        "length": _LENGTHS,
        "encoder_width": _ENCODER_WIDTHS,
        "decoder_width": _DECODER_WIDTHS,
        "decoder_depth": tuple(range(1, _LAYERS + 1)),
    }
    encoder: list[Part] = [_embedding("encoder_width", 0)]
    for layer in range(_LAYERS):
        encoder += [
            Part(slot=_numbers(f"encoder{layer}.heads", _HEADS), write=partial(_attend, place=0)),
            Part(slot=_numbers(f"encoder{layer}.hidden", _HIDDEN), write=partial(_widen, place=0)),
        ]
    return LayeredSpace(
        name="hat",
        settings=settings,
        inputs=lambda s: ((1, s["length"]), (1, s["length"])),
        parts=(*encoder, _embedding("decoder_width", 1), *_decoder(1)),
    )


def hat_step() -> LayeredSpace:
    """HAT's decoder for the next word, with a cache of the words read and the words written before (`length` each)."""
    settings = {
        "length": _LENGTHS,
        "decoder_width": _DECODER_WIDTHS,
        "decoder_depth": tuple(range(1, _LAYERS + 1)),
    }
    return LayeredSpace(
        name="hat-step",
        settings=settings,
        inputs=lambda s: ((1, 1),),
        parts=(_embedding("decoder_width", 0), *_decoder(0, cached=True)),
    )


def _decoder(place: int, *, cached: bool = False) -> list[Part]:
    """The layers of a decoder, and the layer that scores words."""
    attend, cross = partial(_attend, place=place, cached=cached), partial(_cross, place=place, cached=cached)
    parts: list[Part] = []
    for layer in range(_LAYERS):

        def there(setting: Setting, layer: int = layer) -> bool:
            return layer < setting["decoder_depth"]

        crossings = Slot(f"decoder{layer}.cross", tuple(f"h{heads}_e{reach}" for heads, reach in _CROSSINGS))
        parts += [
            Part(slot=_numbers(f"decoder{layer}.heads", _HEADS), write=attend, there=there),
            Part(slot=crossings, write=cross, there=there),
            Part(slot=_numbers(f"decoder{layer}.hidden", _HIDDEN), write=partial(_widen, place=place), there=there),
        ]
    return [*parts, Part(slot=None, write=lambda _, values, __: (values[place].linear(_WORDS, bias=False),))]


def _numbers(name: str, values: Sequence[int]) -> Slot:
    return Slot(name, tuple(map(str, values)))


def _at(values: Values, place: int, symbol: Symbol) -> Values:
    return (*values[:place], symbol, *values[place + 1 :])


def _embedding(width: str, place: int) -> Part:
    def write(setting: Setting, values: Values, _: int) -> Values:
        return _at(values, place, values[place].embedding(_WORDS, setting[width]).layer_norm())

    return Part(slot=None, write=write)


def _attend(setting: Setting, values: Values, choice: int, *, place: int, cached: bool = False) -> Values:
    x = values[place]
    parts = [x.linear(x.shape[2]) for _ in range(3)]
    past = setting["length"] if cached else 0
    y = parts[0].attention(parts[1], parts[2], heads=_HEADS[choice], past=past).linear(x.shape[2])
    return _at(values, place, (y + x).layer_norm())


def _cross(setting: Setting, values: Values, choice: int, *, place: int, cached: bool) -> Values:
    """Attention to the encoder's output. With a cache, the keys and values are computed before the first word."""
    (heads, reach), x = _CROSSINGS[choice], values[place]
    query = x.linear(x.shape[2])
    if cached:
        y = query.cached_attention(heads=heads, past=reach * setting["length"])
    else:
        source = values[0]
        for _ in range(reach - 1):
            source = source.layer(
                "onnx.Concat.2",
                values[0],
                shape=(1, source.shape[1] + values[0].shape[1], source.shape[2]),
                attributes='{"axis":1}',
                operands="[null,null]",
            )
        y = query.attention(source.linear(x.shape[2]), source.linear(x.shape[2]), heads=heads)
    return _at(values, place, (y.linear(x.shape[2]) + x).layer_norm())


def _widen(_: Setting, values: Values, choice: int, *, place: int) -> Values:
    x = values[place]
    y = x.linear(_HIDDEN[choice]).relu().linear(x.shape[2])
    return _at(values, place, (y + x).layer_norm())
