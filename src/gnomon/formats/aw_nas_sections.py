"""The two sections of a search-space config that say how a space is profiled: the published one and our own.

``ss_profiler_cfg`` is that of the published profiler, with its defaults; here each key has its default by itself.
``gnomon_cfg`` is what that profiler has no key for: it passes aw_nas by, which reads no section that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gnomon.core.strict_json import shown
from gnomon.formats.yaml_place import YamlPlace
from gnomon.formats.yaml_plain import Plain

NUMBERINGS = ("ssprofile", "aw_nas")
AUGMENTS = ("none", "shift", "crop-flip")
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
    "batch_size",
    "validation_share",
    "test_share",
    "numbering",
    "blocks",
    "default_primitives",
    "seed",
    "augment",
)
_PRIMITIVE = re.compile(r"(?P<family>[A-Za-z][A-Za-z0-9_]*?)block_[0-9]{1,6}", re.ASCII)

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

    `data` is a source of images, `image_size` the height and width that they are padded to, `blocks` are Python files
    of primitives, and `default_primitives` says which primitive of a family is its default.
    """

    data: str | None = None
    image_size: int | None = None
    batch_size: int = 64
    validation_share: float = 0.2
    test_share: float = 0.2
    numbering: str = "ssprofile"
    blocks: tuple[str, ...] = ()
    default_primitives: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    augment: str = "none"


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
    validation = place.entry("validation_share").number(0.001, 0.9, usual.validation_share)
    test = place.entry("test_share").number(0.001, 0.9, usual.test_share)
    if validation + test >= 0.99:
        place.tell(f"validation_share and test_share are {validation + test:g} together: nothing is left to train on")
    return GnomonConfig(
        data=None if data.missing else data.word(),
        image_size=None if size.missing else size.whole(1, 4096),
        batch_size=place.entry("batch_size").whole(2, _MOST, usual.batch_size),
        validation_share=validation,
        test_share=test,
        numbering=place.entry("numbering").one_of(NUMBERINGS, usual.numbering),
        blocks=() if blocks.missing else tuple(one.word() for one in blocks.items()),
        default_primitives=_defaults(place.entry("default_primitives"), primitives),
        seed=place.entry("seed").whole(0, 2**32 - 1, usual.seed),
        augment=place.entry("augment").one_of(AUGMENTS, usual.augment),
    )


def family_of(name: str) -> str | None:
    """The family of a primitive's published name, such as Mobile of Mobileblock_3; None for what is no such name."""
    match = _PRIMITIVE.fullmatch(name)
    return None if match is None else match["family"]


def _training(place: YamlPlace, kind: str, usual: TrainingConfig) -> TrainingConfig:
    optimizer, scheduler = place.entry(f"{kind}_optimizer_cfg"), place.entry(f"{kind}_scheduler_cfg")
    made: Options | None = usual.scheduler
    if scheduler.node is not None:  # null is no schedule, as aw_nas has it
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
