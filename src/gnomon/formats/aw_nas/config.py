"""Configs of aw_nas: a search space of cell groups, and the settings for profiling it.

The layout is that of aw_nas (github.com/walkerning/aw_nas, configs of ``examples/research/bbssp``) as the published
profiler of search spaces reads it. Four sections are read; all others belong to aw_nas and are passed through.
``search_space_cfg`` and ``weights_manager_cfg`` describe the space. ``ss_profiler_cfg`` is the profiler's section; a
missing key takes the profiler's default. ``gnomon_cfg`` holds settings for which the profiler has no key; aw_nas
ignores it, like every section that it does not know. Scalars are read with PyYAML, as both programs do.

`with_value` writes a new value into a config's text. Everything else stays letter for letter, including comments,
quotes, indentation and line ends: the text is edited at the positions that PyYAML reports, because a YAML library would
keep neither indentation nor spacing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from gnomon.core.codec import OTHERS_TOO, Must, matching, whole, within
from gnomon.core.strict_json import Complaints, file_text, repeated, shown
from gnomon.errors import ProblemError, did_you_mean
from gnomon.formats.yaml import MOST_LETTERS, Node, YamlReader, almost, read_yaml

Numbering = Literal["ssprofile", "aw_nas"]
STEMS = (
    "conv_bn_3x3",
    "conv_bn_relu_1x1",
    "conv_bn_relu_3x3",
    "conv_bn_relu_5x5",
    "conv_1x1",
    "conv_3x3",
    "imagenet_stem0",
    "imagenet_stem0_7x7",
    "imagenet_stem1",
)
"""The operations of aw_nas that may come before the first layer; ``use_stem: true`` means the first of them."""

Lists = Sequence[Sequence[str]]
Augment = Literal["none", "shift", "crop-flip", "resized-crop"]
_WHAT = "config"
_HINT = "Correct the config. Its layout is that of aw_nas's configs: search_space_cfg, weights_manager_cfg and others."
_PLAIN = "Write search_space_cfg as a plain block: each key on a separate line, followed by a colon."
_READ = ("search_space_cfg", "weights_manager_cfg", "ss_profiler_cfg", "gnomon_cfg")
_SPACE, _CHOICES, _FILLED = "search_space_cfg", "shared_primitives", "cell_shared_primitives"
_LATENCY_FILE = ("objective_cfg", "latency_file")
_MOST = 1_000_000
_HUGE = 1e9
_TINY = 1e-9
_PRIMITIVE = re.compile(r"(?P<family>[A-Za-z][A-Za-z0-9_]*?)block_[0-9]{1,6}", re.ASCII)
_MOST_LAYERS = 1000
_MOST_WIDTH = 1 << 16
_MOST_PRIMITIVES = 1000


def _is_option(value: Any) -> bool:
    if isinstance(value, list):
        return all(not isinstance(part, list) and _is_option(part) for part in value)
    if isinstance(value, str):
        return not almost(value)
    return value is None or (isinstance(value, int | float) and math.isfinite(value))


Options = Annotated[
    Mapping[str, Annotated[Any, Must(be="a number, a text, true, false, null or a list of these", fits=_is_option)]],
    Must(be="a type (a text) and its options", fits=lambda options: isinstance(options.get("type"), str)),
]
"""A `type` and its arguments, as PyTorch names them."""


def _number(least: float, most: float) -> Must:
    return within(least, most, f"a number from {least:g} to {most:g}")


Text = Annotated[str, matching(".+", "a text")]
Function = Annotated[str, matching(r".+:[A-Za-z_][A-Za-z0-9_]*", "file.py:function or package.module:function")]
Share = Annotated[float, _number(0.001, 0.9)]
Coefficient = Annotated[float, _number(-_HUGE, _HUGE)]
Count = Annotated[int, whole(1, _MOST)]
Pixels = Annotated[int, whole(1, 4096)]
Width = Annotated[int, whole(1, _MOST_WIDTH)]


def _sgd(lr: float) -> Options:
    return {"type": "SGD", "lr": lr, "momentum": 0.9, "weight_decay": 1e-4}


def _cosine(epochs: int) -> Options:
    return {"type": "CosineAnnealingLR", "T_max": epochs, "eta_min": 0.001}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFiles:
    """Images for calibrating a quantiser: a text file with one name on each line, and the folder of the images."""

    source: Text
    root_folder: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerConfig:
    """``ss_profiler_cfg``: training from scratch, fine-tuning, and the constants of the published rule.

    An optimiser is a class of torch.optim, a learning-rate schedule a class of torch.optim.lr_scheduler. `calib_data`
    is None if the config names none: the published default is a folder in the profiler's repository.
    """

    first_train_epochs: Count = 1
    first_train_optimizer_cfg: Options = field(default_factory=lambda: _sgd(0.1))
    first_train_scheduler_cfg: Options | None = field(default_factory=lambda: _cosine(20))
    finetune_epochs: Count = 1
    finetune_optimizer_cfg: Options = field(default_factory=lambda: _sgd(0.05))
    finetune_scheduler_cfg: Options | None = field(default_factory=lambda: _cosine(5))
    latency_cost_coeff: Coefficient = 0.5
    accuracy_threshold: Coefficient = 0.92
    accuracy_cost_scale: Annotated[float, _number(_TINY, _HUGE)] = 1.0
    select_ss_threshold: Count = 5
    calib_data: CalibrationFiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GnomonConfig:
    """``gnomon_cfg``: the source of the images and their split, the primitives, and the seed.

    `data` is a source of images, `image_size` the height and width to which they are padded, `resize` the height and
    width to which pictures of any size are scaled, and `loaders` the number of processes that read images alongside the
    training process. `blocks` names Python files of primitives, and functions that make a primitive. `stem` and `head`
    are functions that make the parts before and after the layers, and `default_primitives` names the default primitive
    of a family. `dataset_type` is aw_nas's own name for the images, from a key outside this section.
    """

    data: Text | None = None
    image_size: Pixels | None = None
    resize: Pixels | None = None
    loaders: Annotated[int, whole(0, 256)] = 0
    batch_size: Annotated[int, whole(2, _MOST)] = 64
    validation_share: Share = 0.2
    test_share: Share = 0.2
    numbering: Numbering = "ssprofile"
    blocks: tuple[Text, ...] = ()
    stem: Function | None = None
    head: Function | None = None
    default_primitives: Mapping[str, Text] = field(default_factory=dict)
    seed: Annotated[int, whole(0, 2**32 - 1)] = 0
    augment: Augment = "none"
    dataset_type: str = ""


def family_of(name: str) -> str | None:
    """The family in a primitive's published name, such as Mobile in Mobileblock_3; None for any other name."""
    match = _PRIMITIVE.fullmatch(name)
    return None if match is None else match["family"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceSection:
    """The parts of ``search_space_cfg`` that are used.

    Layer l belongs to cell group `cell_layout[l]`. Groups in `reduce_cell_groups` halve height and width. Each group
    chooses from the names in `shared_primitives`, in the config's order.
    """

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    num_cell_groups: Annotated[int, whole(1, _MOST_LAYERS)]
    cell_layout: Annotated[
        tuple[int, ...], Must(be=f"1 to {_MOST_LAYERS} layers", fits=lambda layout: 1 <= len(layout) <= _MOST_LAYERS)
    ]
    num_layers: int | None = None
    reduce_cell_groups: tuple[int, ...]
    shared_primitives: Annotated[
        tuple[
            Annotated[str, Must(be="the name of a primitive such as Mobileblock_3", fits=lambda name: family_of(name))],
            ...,
        ],
        Must(be=f"1 to {_MOST_PRIMITIVES} names of primitives", fits=lambda names: 1 <= len(names) <= _MOST_PRIMITIVES),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Channels:
    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    C_in: Width
    C_out: Width


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSection:
    """The parts of ``weights_manager_cfg`` that are used."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    num_classes: Width
    cell_group_kwargs: Annotated[tuple[_Channels, ...], Must(be="at least one layer", fits=bool)]
    use_stem: Annotated[
        Any, Must(be=f"true, false or one of {', '.join(STEMS)}", fits=lambda stem: stem in (True, False, *STEMS))
    ] = False
    stem_stride: Annotated[int, whole(1, 64)] = 1
    stem_affine: bool = True
    init_channels: Width | None = None
    stem_multiplier: Width | None = None

    @property
    def input_channels(self) -> int:
        """The input channels of the first layer: those of an image, or of the stem's output."""
        return self.cell_group_kwargs[0].C_in

    @property
    def widths(self) -> tuple[int, ...]:
        """The output channels of each layer."""
        return tuple(layer.C_out for layer in self.cell_group_kwargs)

    @property
    def stem(self) -> str | None:
        """The operation before the first layer: one of `STEMS`, or None."""
        return self.use_stem if isinstance(self.use_stem, str) else STEMS[0] if self.use_stem else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceConfig:
    """The search space of a config. `warnings` are sentences about keys that have no effect."""

    space: SpaceSection
    manager: ManagerSection
    profiler: ProfilerConfig
    gnomon: GnomonConfig
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConfigDocument:
    """The text of a config, which can be written again with the result filled in."""

    _text: str
    _mark: str
    _dash_column: int | None
    names_latency_file: bool

    def output(self, cell_shared_primitives: Sequence[Sequence[str]], *, latency_file: str | None = None) -> str:
        """The text with each cell group's primitives filled in and ``shared_primitives: null``; the rest is unchanged.

        If the config names an ``objective_cfg.latency_file`` (`names_latency_file`), it is replaced by `latency_file`,
        unless `latency_file` is None.
        """
        text = with_value(self._text, _SPACE, _FILLED, cell_shared_primitives, self._dash_column)
        text = with_value(text, _SPACE, _CHOICES, None)
        if latency_file is not None and self.names_latency_file:
            text = with_value(text, *_LATENCY_FILE, latency_file)
        return self._mark + text


def read_aw_nas_config(text: str | bytes) -> tuple[SpaceConfig, ConfigDocument]:
    """The space that a config describes, and the document to fill in.

    ProblemError with all faults, each with its path and line; RuntimeMissingError without PyYAML.
    """
    whole = file_text(text, _WHAT, _HINT, MOST_LETTERS)
    mark = whole[: whole.startswith("\ufeff")]
    whole = whole[len(mark) :]
    reader = YamlReader(root=read_yaml(whole, _WHAT, _HINT), complaints=Complaints(what=_WHAT, hint=_HINT))
    config = _space(reader)
    reader.complaints.raise_any()
    choices, latency_file = reader.find(_SPACE, _CHOICES), reader.find(*_LATENCY_FILE)
    assert config is not None and choices is not None  # noqa: S101 - any fault has raised above
    if reader.find(_SPACE, _FILLED) is None:
        at = choices[0].start_mark
        end = "\r\n" if "\r\n" in whole else "\n"
        whole = f"{whole[: at.index]}{_FILLED}: null{end}{' ' * at.column}{whole[at.index :]}"
    document = ConfigDocument(
        _text=whole,
        _mark=mark,
        _dash_column=None if choices[1].flow_style else choices[1].start_mark.column,
        names_latency_file=latency_file is not None and latency_file[1].id == "scalar",
    )
    return config, document


def config_of_tables(primitives: Sequence[str], groups: int, *, numbering: str, defaults: Mapping[str, str]) -> str:
    """A config for tables of networks, with one layer in each cell group.

    Tables determine the primitives, the cell groups and the defaults; all other content is made up.
    """
    cells = "\n".join("  - {C_in: 8, C_out: 8}" for _ in range(groups))
    named = ", ".join(f"{family}: {name}" for family, name in defaults.items())
    return f"""\
# Made from tables, by gnomon space import. Tables do not hold layers, strides, channels and classes: these are made up.
search_space_cfg:
  num_cell_groups: {groups}
  cell_layout: [{", ".join(map(str, range(groups)))}]
  reduce_cell_groups: []
  shared_primitives: [{", ".join(primitives)}]
  cell_shared_primitives: null
weights_manager_cfg:
  num_classes: 10
  cell_group_kwargs:
{cells}
gnomon_cfg:
  numbering: {numbering}
  default_primitives: {{{named}}}
"""


def _space(reader: YamlReader) -> SpaceConfig | None:
    """The space; None if the config has faults, which are reported."""
    if reader.root.id != "mapping":
        reader.tell((), "a mapping of sections expected")
        return None
    _in_place(reader)
    space = reader.read(SpaceSection, "search_space_cfg", reader.section("search_space_cfg"))
    manager = reader.read(ManagerSection, "weights_manager_cfg", reader.section("weights_manager_cfg"))
    nulls = ("first_train_scheduler_cfg", "finetune_scheduler_cfg")  # null in these means no schedule, as in aw_nas
    profiler = reader.read(ProfilerConfig, "ss_profiler_cfg", reader.section("ss_profiler_cfg", {}, nulls))
    own = reader.read(GnomonConfig, "gnomon_cfg", _own_section(reader))
    warnings = _filled_already(reader)
    if space is not None:
        _check_space(space, reader)
    if manager is not None:
        _check_widths(manager, None if space is None else len(space.cell_layout), reader)
    if own is not None:
        _check_own(own, () if space is None else space.shared_primitives, reader)
    if space is None or manager is None or profiler is None or own is None:
        return None
    warnings += _stem_warnings(manager) if manager.stem else ()
    return SpaceConfig(space=space, manager=manager, profiler=profiler, gnomon=own, warnings=warnings)


def _in_place(reader: YamlReader) -> None:
    """Report anchors in the sections that are read, because an edit would also change their aliases elsewhere."""
    for name in _READ:
        lines = ", ".join(map(str, dict.fromkeys(reader.anchors(name))))
        if lines:
            reader.tell((name,), f"anchors (line {lines}) are not supported in this section: move them to another")


def _own_section(reader: YamlReader) -> Any:
    """gnomon's section, with aw_nas's own name for the images if that is a string."""
    section, word = reader.section("gnomon_cfg", {}), reader.value("dataset_type")
    if not isinstance(section, dict):
        return section
    if "dataset_type" in section:
        reader.tell(("gnomon_cfg", "dataset_type"), "there is no such field: dataset_type belongs at the top level")
    return {**section, "dataset_type": word if isinstance(word, str) else ""}


def _filled_already(reader: YamlReader) -> tuple[str, ...]:
    place = (_SPACE, _FILLED)
    pair = reader.find(*place)
    if pair is None:
        section = reader.find(_SPACE)
        if section is not None and section[1].id == "mapping" and section[1].flow_style:
            reader.tell(place, "missing: add cell_shared_primitives: null, which the output replaces")
        return ()
    key, value = pair
    if value.id not in ("sequence", "scalar"):
        reader.tell(place, "null or a list expected")
    if reader.value(*place) is None:
        return ()
    return (f"{'.'.join(place)} (line {key.start_mark.line + 1}) is already filled in; the output replaces its value",)


def _check_space(space: SpaceSection, reader: YamlReader) -> None:
    """Report values in ``search_space_cfg`` that do not fit together."""
    groups, layout = space.num_cell_groups, space.cell_layout
    for name, listed in (("cell_layout", layout), ("reduce_cell_groups", space.reduce_cell_groups)):
        for k, group in enumerate(listed):
            if not 0 <= group < groups:
                message = f"a whole number from 0 to {groups - 1} expected, {shown(group)} found"
                reader.tell(("search_space_cfg", name, k), message)
    unused = sorted(set(range(groups)) - set(layout))
    if unused and max(layout) < groups:
        message = f"cell groups without a layer: {', '.join(map(str, unused[:20]))}"
        reader.tell(("search_space_cfg", "cell_layout"), message)
    if space.num_layers not in (None, len(layout)):
        message = f"cell_layout has {len(layout)} layers, but num_layers is {shown(space.num_layers)}"
        reader.tell(("search_space_cfg", "num_layers"), message)
    for name, what, items in (
        ("reduce_cell_groups", "cell group ", space.reduce_cell_groups),
        ("shared_primitives", "", space.shared_primitives),
    ):
        for k, _ in repeated(items):
            reader.tell(("search_space_cfg", name, k), f"{what}{items[k]} is already listed")


def _check_widths(manager: ManagerSection, layers: int | None, reader: YamlReader) -> None:
    """Report layers whose input does not match the previous layer's output, and a wrong number of layers."""
    place = ("weights_manager_cfg", "cell_group_kwargs")
    for k, (before, layer) in enumerate(pairwise(manager.cell_group_kwargs), 1):
        if layer.C_in != before.C_out:
            reader.tell((*place, k), f"C_in is {layer.C_in}, but the previous layer has C_out {before.C_out}")
    count = len(manager.cell_group_kwargs)
    if layers not in (None, count):
        reader.tell(place, f"an entry for each of the {layers} layers of cell_layout expected, {count} found")


def _check_own(own: GnomonConfig, primitives: Sequence[str], reader: YamlReader) -> None:
    """Report values in ``gnomon_cfg`` that do not fit together, or do not fit the primitives of the space."""
    if own.image_size is not None and own.resize is not None:
        reader.tell(("gnomon_cfg",), "image_size pads and resize scales: give only one of them")
    both = own.validation_share + own.test_share
    if both >= 0.99:
        message = f"validation_share and test_share add up to {both:g}: too little is left for training"
        reader.tell(("gnomon_cfg",), message)
    families = list(dict.fromkeys(filter(None, map(family_of, primitives))))
    for family, name in own.default_primitives.items() if primitives else ():
        place = ("gnomon_cfg", "default_primitives", family)
        names = [each for each in primitives if family_of(each) == family]
        if not names:
            advice = did_you_mean(family, families) or f"The space's families are {', '.join(families)}"
            reader.tell(place, f"there is no such family. {advice}")
        elif name not in names:
            reader.tell(place, f"one of the space's primitives {', '.join(names)} expected, {shown(name)} found")


def _stem_warnings(manager: ManagerSection) -> tuple[str, ...]:
    """Warnings about stems that aw_nas would build differently."""
    warnings, inputs = [], manager.input_channels
    if manager.init_channels is not None and manager.stem_multiplier is not None:
        width = manager.init_channels * manager.stem_multiplier
        if width != inputs:
            warnings.append(
                f"the stem's output width is the input width of the first layer ({inputs}); aw_nas would use "
                f"{width}, init_channels times stem_multiplier"
            )
    if not manager.stem_affine:
        warnings.append("stem_affine is ignored: the stem's batch normalisations learn a scale and a shift")
    return tuple(warnings)


def with_value(text: str, section: str, key: str, value: str | Lists | None, column: int | None = None) -> str:
    """The text with a new value for a section's key.

    Lists contain only plain words. With a `column`, they are written below the key as PyYAML writes them, with their
    dashes in that column; any other value follows the key on its line.

    ProblemError if the layout of the text makes this impossible without changing something else.
    """
    root = read_yaml(text, _WHAT, _PLAIN)
    pairs = next(node.value for name, node in root.value if name.value == section)
    place = next(k for k, (name, _) in enumerate(pairs) if name.value == key)
    name, old = pairs[place]
    refused = ProblemError(
        f"the layout of the config prevents filling in {key} (line {name.start_mark.line + 1})", hint=_PLAIN
    )
    colon = re.compile(r"[ \t]*:").match(text, name.end_mark.index)
    if colon is None:
        raise refused
    flow = json.dumps(value, ensure_ascii=False)
    pairs[place] = (name, read_yaml(flow, _WHAT, _PLAIN))
    if value is None or isinstance(value, str):
        after = _edited(text, colon.end(), old, f" {flow}", "")
    elif column is None:
        after = _edited(text, colon.end(), old, " " + flow.replace('"', ""), "")
    else:
        after = _edited(text, colon.end(), old, "", _block(value, column))
    try:
        good = _shape(read_yaml(after, _WHAT, _PLAIN)) == _shape(root)
    except ProblemError as error:
        raise refused from error
    if not good:
        raise refused
    return after


def _edited(text: str, behind: int, old: Node, words: str, lines: str) -> str:
    """The text with `words` after a key's colon and `lines` below the key, in place of the old value."""
    if old.id == "sequence" and not old.flow_style:
        last = old
        while last.id == "sequence" and last.value:
            last = last.value[-1]
        end = behind
        lines_from = text.rfind("\n", 0, old.start_mark.index) + 1
        lines_to = _line_end(text, last.end_mark.index)
    else:
        empty = old.id == "scalar" and not old.value and not old.style
        end = behind if empty else old.end_mark.index
        lines_from = lines_to = _line_end(text, end)
    if lines and not text[:lines_from].endswith("\n"):
        lines = "\n" + lines
    if "\r\n" in text:
        lines = lines.replace("\n", "\r\n")
    return text[:behind] + words + text[end:lines_from] + lines + text[lines_to:]


def _line_end(text: str, at: int) -> int:
    """The place after the line break that ends a line, or the end of the text."""
    return text.find("\n", at) + 1 or len(text)


def _block(lists: Lists, column: int) -> str:
    """A list of lists as PyYAML writes it."""
    rows = [f"{'  ' if k else '- '}- {name}" for names in lists for k, name in enumerate(names)]
    return "".join(f"{' ' * column}{row}\n" for row in rows)


def _shape(node: Node) -> Any:
    """The content of a node without its place and style; equal for equal content."""
    if isinstance(node.value, str):
        return node.tag, node.value
    return [node.tag, *(tuple(map(_shape, part)) if isinstance(part, tuple) else _shape(part) for part in node.value)]
