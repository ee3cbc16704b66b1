"""Configs of aw_nas that describe a search space of cell groups, and what is asked for about it.

The layout is that of aw_nas (github.com/walkerning/aw_nas, configs of ``examples/research/bbssp``) as the published
profiler of search spaces reads it. Read are ``search_space_cfg``, ``weights_manager_cfg`` and the two sections of
`gnomon.formats.aw_nas.config`; all others are aw_nas's own and pass through. Scalars are read as PyYAML reads them,
since both of those programs do; see `gnomon.formats.yaml`.

The two sections of a search-space config that say how a space is profiled: the published one and our own.

``ss_profiler_cfg`` is that of the published profiler, with its defaults; here each key has its default by itself.
``gnomon_cfg`` is what that profiler has no key for: it passes aw_nas by, which reads no section that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gnomon.core.strict_json import Complaints, shown
from gnomon.errors import ProblemError
from gnomon.formats.aw_nas.output import Keys, filled, has_text, renamed
from gnomon.formats.yaml import Plain, YamlPlace, read_yaml, yaml_text

NUMBERINGS = ("ssprofile", "aw_nas")
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
"""Of aw_nas's operations those that widen images; the first is what its ``use_stem`` is where nothing is said."""

AUGMENTS = ("none", "shift", "crop-flip", "resized-crop")
_MOST = 1_000_000
_HUGE = 1e9
_TINY = 1e-9
_PROFILER_KEYS = (
    "first_train_epochs",
    "first_train_optimizer_cfg",
    "first_train_scheduler_cfg",
    "finetune_epochs",
    "finetune_optimizer_cfg",
    "finetune_scheduler_cfg",
    "latency_cost_coeff",
    "accuracy_threshold",
    "accuracy_cost_scale",
    "select_ss_threshold",
    "calib_data",
)
_OWN_KEYS = (
    "data",
    "image_size",
    "resize",
    "image_column",
    "label_column",
    "loaders",
    "batch_size",
    "validation_share",
    "test_share",
    "numbering",
    "blocks",
    "stem",
    "head",
    "default_primitives",
    "seed",
    "augment",
)
_PRIMITIVE = re.compile(r"(?P<family>[A-Za-z][A-Za-z0-9_]*?)block_[0-9]{1,6}", re.ASCII)

_FUNCTION = re.compile(r".+:[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

Options = Mapping[str, Plain | tuple[Plain, ...]]
"""A `type` and its arguments, as PyTorch names them."""


def _sgd(lr: float) -> Options:
    return {"type": "SGD", "lr": lr, "momentum": 0.9, "weight_decay": 1e-4}


def _cosine(epochs: int) -> Options:
    return {"type": "CosineAnnealingLR", "T_max": epochs, "eta_min": 0.001}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """Epochs, an optimiser (a class of torch.optim) and a schedule of its rate (of torch.optim.lr_scheduler)."""

    epochs: int
    optimizer: Options
    scheduler: Options | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFiles:
    """Images to calibrate a quantiser with: a text file of names, one a line, and the folder that they are in."""

    source: str
    root_folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerConfig:
    """``ss_profiler_cfg``: training from nothing, fine-tuning, and the constants of the published rule.

    `calib_data` is None where the config names none: the published default is a folder of that profiler's repository.
    """

    first_train: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(epochs=1, optimizer=_sgd(0.1), scheduler=_cosine(20))
    )
    finetune: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(epochs=1, optimizer=_sgd(0.05), scheduler=_cosine(5))
    )
    latency_cost_coeff: float = 0.5
    accuracy_threshold: float = 0.92
    accuracy_cost_scale: float = 1.0
    select_ss_threshold: int = 5
    calib_data: CalibrationFiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GnomonConfig:
    """``gnomon_cfg``: where images come from and how they are split, what primitives are, and the seed.

    `data` is a source of images, `image_size` the height and width that they are padded to, `resize` those that
    pictures of any size are made, `image_column` and `label_column` are of a data set of Hugging Face, and `loaders`
    are the processes that read images beside one that trains. `blocks` are Python files of primitives and functions
    that make one, `stem` and `head` are functions that make what stands before the layers and behind them, and
    `default_primitives` says which primitive of a family is its default. `dataset_type` is aw_nas's own word for the
    images, which stands outside of this section.
    """

    data: str | None = None
    image_size: int | None = None
    resize: int | None = None
    image_column: str | None = None
    label_column: str | None = None
    loaders: int = 0
    batch_size: int = 64
    validation_share: float = 0.2
    test_share: float = 0.2
    numbering: str = "ssprofile"
    blocks: tuple[str, ...] = ()
    stem: str | None = None
    head: str | None = None
    default_primitives: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    augment: str = "none"
    dataset_type: str = ""


def read_profiler(place: YamlPlace) -> ProfilerConfig:
    """The published section, each key that is missing with its default. What is wrong is told."""
    usual = ProfilerConfig()
    if not place.is_mapping():
        return usual
    place.only(_PROFILER_KEYS)
    return ProfilerConfig(
        first_train=_training(place, "first_train", usual.first_train),
        finetune=_training(place, "finetune", usual.finetune),
        latency_cost_coeff=place.entry("latency_cost_coeff").number(-_HUGE, _HUGE, usual.latency_cost_coeff),
        accuracy_threshold=place.entry("accuracy_threshold").number(-_HUGE, _HUGE, usual.accuracy_threshold),
        accuracy_cost_scale=place.entry("accuracy_cost_scale").number(_TINY, _HUGE, usual.accuracy_cost_scale),
        select_ss_threshold=place.entry("select_ss_threshold").whole(1, _MOST, usual.select_ss_threshold),
        calib_data=_calibration(place.entry("calib_data")),
    )


def read_own(place: YamlPlace, primitives: Sequence[str]) -> GnomonConfig:
    """Our section; `primitives` are those of the space. What is wrong is told."""
    usual = GnomonConfig()
    if not place.is_mapping():
        return usual
    place.only(_OWN_KEYS)
    data, size, blocks = place.entry("data"), place.entry("image_size"), place.entry("blocks")
    stem, head = place.entry("stem"), place.entry("head")
    resize, image, label = place.entry("resize"), place.entry("image_column"), place.entry("label_column")
    if not size.missing and not resize.missing:
        place.tell("image_size pads and resize scales: give one of them")
    validation = place.entry("validation_share").number(0.001, 0.9, usual.validation_share)
    test = place.entry("test_share").number(0.001, 0.9, usual.test_share)
    if validation + test >= 0.99:
        place.tell(f"validation_share and test_share are {validation + test:g} together: nothing is left to train on")
    return GnomonConfig(
        data=None if data.missing else data.word(),
        image_size=None if size.missing else size.whole(1, 4096),
        resize=None if resize.missing else resize.whole(1, 4096),
        image_column=None if image.missing else image.word(),
        label_column=None if label.missing else label.word(),
        loaders=place.entry("loaders").whole(0, 256, usual.loaders),
        batch_size=place.entry("batch_size").whole(2, _MOST, usual.batch_size),
        validation_share=validation,
        test_share=test,
        numbering=place.entry("numbering").one_of(NUMBERINGS, usual.numbering),
        blocks=() if blocks.missing else tuple(one.word() for one in blocks.items()),
        stem=None if stem.missing else _function(stem),
        head=None if head.missing else _function(head),
        default_primitives=_defaults(place.entry("default_primitives"), primitives),
        seed=place.entry("seed").whole(0, 2**32 - 1, usual.seed),
        augment=place.entry("augment").one_of(AUGMENTS, usual.augment),
    )


def _function(place: YamlPlace) -> str:
    """A function by its file or module and its name."""
    text = place.word()
    if text and _FUNCTION.fullmatch(text) is None:
        place.tell(f"file.py:function or package.module:function expected, {shown(text)} found")
    return text


def family_of(name: str) -> str | None:
    """The family of a primitive's published name, such as Mobile of Mobileblock_3; None for what is not such a name."""
    match = _PRIMITIVE.fullmatch(name)
    return None if match is None else match["family"]


def _training(place: YamlPlace, kind: str, usual: TrainingConfig) -> TrainingConfig:
    optimizer, scheduler = place.entry(f"{kind}_optimizer_cfg"), place.entry(f"{kind}_scheduler_cfg")
    made: Options | None = usual.scheduler
    if scheduler.node is not None:  # null is not a schedule, as aw_nas has it
        made = None if scheduler.missing else _options(scheduler)
    return TrainingConfig(
        epochs=place.entry(f"{kind}_epochs").whole(1, _MOST, usual.epochs),
        optimizer=usual.optimizer if optimizer.missing else _options(optimizer),
        scheduler=made,
    )


def _options(place: YamlPlace) -> Options:
    """A type and its arguments: scalars and lists of scalars."""
    if not place.is_mapping() or place.node is None:
        return {}
    place.entry("type").word()
    found: dict[str, Plain | tuple[Plain, ...]] = {}
    for key in place.node.entries:
        if not isinstance(key, str) or key == "<<":
            continue
        one = place.entry(key)
        if one.node is not None and one.node.kind == "list":
            found[key] = tuple(item.option() for item in one.items())
        else:
            found[key] = one.option()
    return found


def _calibration(place: YamlPlace) -> CalibrationFiles | None:
    if not place.is_mapping():
        return None
    place.only(("source", "root_folder"))
    return CalibrationFiles(source=place.entry("source").word(), root_folder=place.entry("root_folder").word())


def _defaults(place: YamlPlace, primitives: Sequence[str]) -> Mapping[str, str]:
    """The default of families by name; each a primitive of the space, and of that family."""
    if not place.is_mapping() or place.node is None:
        return {}
    families = list(dict.fromkeys(family for name in primitives if (family := family_of(name))))
    place.only(families)
    found = {}
    for family in families:
        one = place.entry(family)
        if one.node is None:
            continue
        found[family] = name = one.word()
        if name and (name not in primitives or family_of(name) != family):
            known = ", ".join(each for each in primitives if family_of(each) == family)
            one.tell(f"one of the space's {known} expected, {shown(name)} found")
    return found


_WHAT = "config"
_HINT = "Correct the config. Its layout is that of aw_nas's configs: search_space_cfg, weights_manager_cfg and others."
_MOST_LAYERS = 1000
_MOST_WIDTH = 1 << 16
_MOST_PRIMITIVES = 1000
_READ = ("search_space_cfg", "weights_manager_cfg", "ss_profiler_cfg", "gnomon_cfg")
_FILLED = "cell_shared_primitives"
_LATENCY_FILE = ("objective_cfg", "latency_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class StemConfig:
    """What stands before the first layer: one of `STEMS`, and its stride, where that is its own to choose."""

    operation: str
    stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceConfig:
    """What a config says of its space.

    Layer l is of cell group `cell_layout[l]` and makes `widths[l]` channels; the first takes `input_channels`, an
    image's or what the stem makes. Groups of `reduce_cell_groups` halve height and width. `primitives` are the names
    that each group chooses from, in the config's order. `warnings` are sentences about what is there and is not heeded.
    """

    num_cell_groups: int
    cell_layout: tuple[int, ...]
    reduce_cell_groups: frozenset[int]
    primitives: tuple[str, ...]
    input_channels: int
    widths: tuple[int, ...]
    classes: int
    profiler: ProfilerConfig
    gnomon: GnomonConfig
    stem: StemConfig | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConfigDocument:
    """The config as it was written, to be handed on with the result in it."""

    _text: str
    _mark: str
    _keys: Keys
    _primitives: frozenset[str]
    _groups: int
    names_latency_file: bool

    def output(self, cell_shared_primitives: Sequence[Sequence[str]], *, latency_file: str | None = None) -> str:
        """The text with each cell group's primitives filled in and ``shared_primitives: null``; all else as it was.

        Where it has an ``objective_cfg.latency_file`` (`names_latency_file`) that becomes `latency_file`, unless None.

        ProblemError where they are not at least one of the config's primitives for each of its cell groups, each once.
        """
        if len(cell_shared_primitives) != self._groups:
            raise ProblemError(
                f"primitives of {len(cell_shared_primitives)} cell groups, and the config has {self._groups}",
                hint="Give each cell group a list of primitives.",
            )
        for group, names in enumerate(cell_shared_primitives):
            wrong = [name for name in names if name not in self._primitives]
            if wrong or not names or len(set(names)) != len(names):
                told = (
                    f"{', '.join(map(shown, wrong))}, which the config does not have" if wrong else "none, or one twice"
                )
                raise ProblemError(
                    f"cell group {group} has {told}", hint="Give at least one of the config's primitives, each once."
                )
        text = filled(self._text, self._keys, cell_shared_primitives)
        if latency_file is not None and self.names_latency_file:
            text = renamed(text, *_LATENCY_FILE, latency_file)
        return self._mark + text


def read_aw_nas_config(text: str | bytes) -> tuple[SpaceConfig, ConfigDocument]:
    """The space that a config describes, and the document to fill in.

    ProblemError with everything that is wrong, each with its path and line; RuntimeMissingError without PyYAML.
    """
    whole = yaml_text(text, _WHAT, _HINT)
    mark = whole[: whole.startswith("\ufeff")]
    whole = whole[len(mark) :]
    root = read_yaml(whole, _WHAT, _HINT)
    complaints = Complaints(what=_WHAT, hint=_HINT)
    top = YamlPlace(node=root, path="$", line=root.line, complaints=complaints)
    if not top.is_mapping():
        if top.missing:
            top.tell("a mapping of sections expected, nothing found")
        complaints.raise_any()
    _in_place(top)
    config = _space(top)
    complaints.raise_any()
    keys = Keys.of(root.entries["search_space_cfg"][1], "shared_primitives", _FILLED)
    document = ConfigDocument(
        _text=whole,
        _mark=mark,
        _keys=keys,
        _primitives=frozenset(config.primitives),
        _groups=config.num_cell_groups,
        names_latency_file=has_text(root, *_LATENCY_FILE),
    )
    return config, document


def config_of_tables(primitives: Sequence[str], groups: int, *, numbering: str, defaults: Mapping[str, str]) -> str:
    """A config of what tables of networks tell of a space, with a layer a cell group. All else in it is made up."""
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


def _in_place(top: YamlPlace) -> None:
    """What is read is written out where it stands: so it can be edited, and nothing else hangs on it."""
    for name in _READ:
        section = top.entry(name)
        anchors = [node for node in section.node.nodes() if node.anchored] if section.node is not None else []
        if anchors:
            lines = ", ".join(str(line) for line in dict.fromkeys(node.line for node in anchors))
            section.tell(f"anchors are not read here (line {lines}): put them into a section of their own")


def _space(top: YamlPlace) -> SpaceConfig:
    space, manager = _section(top, "search_space_cfg"), _section(top, "weights_manager_cfg")
    groups = space.entry("num_cell_groups").whole(1, _MOST_LAYERS)
    layout = _layout(space.entry("cell_layout"), groups)
    layers = space.entry("num_layers")
    if not layers.missing and layout and layers.whole(1, _MOST_LAYERS) != len(layout):
        layers.tell(f"cell_layout has {len(layout)} layers, and num_layers says another number")
    reduces = _reduces(space.entry("reduce_cell_groups"), groups)
    primitives = _primitives(space.entry("shared_primitives"))
    inputs, widths = _widths(manager.entry("cell_group_kwargs"), len(layout))
    stem = _stem(manager)
    return SpaceConfig(
        num_cell_groups=groups,
        cell_layout=layout,
        reduce_cell_groups=reduces,
        primitives=primitives,
        input_channels=inputs,
        widths=widths,
        classes=manager.entry("num_classes").whole(1, _MOST_WIDTH),
        profiler=read_profiler(top.entry("ss_profiler_cfg")),
        gnomon=replace(read_own(top.entry("gnomon_cfg"), primitives), dataset_type=_dataset(top.entry("dataset_type"))),
        stem=stem,
        warnings=(*_warnings(space.entry(_FILLED)), *_stem_warnings(manager, stem, inputs)),
    )


def _stem(manager: YamlPlace) -> StemConfig | None:
    """What ``use_stem`` and ``stem_stride`` say; true stands for aw_nas's usual operation."""
    place = manager.entry("use_stem")
    value = None if place.node is None or place.node.kind != "scalar" else place.node.value
    if place.missing or value is False:
        return None
    operation = STEMS[0] if value is True else place.one_of(STEMS, STEMS[0])
    return StemConfig(operation=operation, stride=manager.entry("stem_stride").whole(1, 64, 1))


def _stem_warnings(manager: YamlPlace, stem: StemConfig | None, inputs: int) -> tuple[str, ...]:
    """What aw_nas would make of a stem and is made otherwise here."""
    if stem is None:
        return ()
    found = []
    width, times = manager.entry("init_channels"), manager.entry("stem_multiplier")
    if not width.missing and not times.missing:
        made = width.whole(1, _MOST_WIDTH) * times.whole(1, _MOST_WIDTH)
        if made != inputs:
            found.append(
                f"the stem makes the {_channels(inputs)} that the first layer takes; in aw_nas it would make {made}, "
                "by init_channels and stem_multiplier"
            )
    if not manager.entry("stem_affine").flag(True):
        found.append("the stem's batch normalisations learn a scale and a shift here, whatever stem_affine says")
    return tuple(found)


def _channels(count: int) -> str:
    return f"{count} channel{'' if count == 1 else 's'}"


def _dataset(place: YamlPlace) -> str:
    """A key that is aw_nas's own business: whatever else stands there is none of ours."""
    value = place.node.value if place.node is not None and place.node.kind == "scalar" else None
    return value if isinstance(value, str) else ""


def _section(top: YamlPlace, name: str) -> YamlPlace:
    section = top.entry(name)
    if not section.is_mapping() and section.missing:
        section.tell("a mapping expected, the section is missing")
    return section


def _layout(place: YamlPlace, groups: int) -> tuple[int, ...]:
    before = len(place.complaints.told)
    layout = tuple(one.whole(0, groups - 1) for one in place.items(least=1))
    if len(layout) > _MOST_LAYERS:
        place.tell(f"{len(layout)} layers, and no more than {_MOST_LAYERS} are read")
    unused = sorted(set(range(groups)) - set(layout))
    if layout and unused and len(place.complaints.told) == before:
        place.tell(f"no layer is of the cell groups {', '.join(map(str, unused[:20]))}")
    return layout


def _reduces(place: YamlPlace, groups: int) -> frozenset[int]:
    found: set[int] = set()
    for one in place.items():
        group = one.whole(0, groups - 1)
        if group in found and one.node is not None and one.node.value == group:
            one.tell(f"the cell group {group} is there already")
        found.add(group)
    return frozenset(found)


def _primitives(place: YamlPlace) -> tuple[str, ...]:
    if place.missing and place.node is not None:
        place.tell("the names of primitives expected, null found: they are what the profiler chooses from")
        return ()
    found: dict[str, int] = {}
    for one in place.items(least=1):
        name = one.word()
        if name and family_of(name) is None:
            one.tell(f"the name of a primitive such as Mobileblock_3 expected, {shown(name)} found")
        elif name in found:
            one.tell(f"{name} is there already, in line {found[name]}")
        elif name:
            found[name] = one.line
    if len(found) > _MOST_PRIMITIVES:
        place.tell(f"{len(found)} primitives, and no more than {_MOST_PRIMITIVES} are read")
    return tuple(found)


def _widths(place: YamlPlace, layers: int) -> tuple[int, tuple[int, ...]]:
    """The channels that the first layer takes, and those that each makes."""
    inputs, widths = 0, list[int]()
    for one in place.items(least=1):
        if not one.is_mapping():
            one.tell("a mapping with C_in and C_out expected")
            continue
        taken, made = (one.entry(key).whole(1, _MOST_WIDTH) for key in ("C_in", "C_out"))
        if not widths:
            inputs = taken
        elif taken != widths[-1]:
            one.tell(f"C_in is {taken}, and the layer before makes {_channels(widths[-1])}")
        widths.append(made)
    if layers and widths and len(widths) != layers:
        place.tell(f"{len(widths)} layers, and cell_layout has {layers}")
    return inputs, tuple(widths)


def _warnings(place: YamlPlace) -> tuple[str, ...]:
    if place.node is None:
        place.tell("the key is missing: write cell_shared_primitives: null, which the result replaces")
        return ()
    if place.missing:
        return ()
    if place.node.kind not in ("list", "scalar"):
        place.tell("null or a list expected")
    return (f"{place.path} (line {place.line}) is filled already; the result replaces it",)
