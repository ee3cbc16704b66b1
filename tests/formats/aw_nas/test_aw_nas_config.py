"""Configs of aw_nas: what is read of them, everything wrong at once, the result filled in with the rest untouched."""

from __future__ import annotations

import pickle
import re
from itertools import pairwise, product
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnomon.errors import ProblemError
from gnomon.formats.aw_nas.config import CalibrationFiles, GnomonConfig, ProfilerConfig, read_aw_nas_config
from gnomon.spaces.cells.primitives import NUMBERINGS as SPACE_NUMBERINGS

GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "aw_nas"
SMALL = """\
search_space_cfg:
  num_cell_groups: 2
  cell_layout: [0, 1]
  reduce_cell_groups: [1]
  shared_primitives: [Resblock_0, VGGblock_1]
  cell_shared_primitives: null
weights_manager_cfg:
  num_classes: 10
  cell_group_kwargs: [{C_in: 3, C_out: 8}, {C_in: 8, C_out: 16}]
"""
CHOSEN = [["VGGblock_1"], ["Resblock_0", "VGGblock_1"]]


def load(text: str) -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML, the oracle, is not installed")
    return yaml.safe_load(text)


def complaints(text: str) -> str:
    with pytest.raises(ProblemError) as refused:
        read_aw_nas_config(text)
    assert "aw_nas" in refused.value.hint
    return str(refused.value)


def replaced(old: str, new: str) -> str:
    assert SMALL.count(old) == 1
    return SMALL.replace(old, new)


def test_the_example_is_read() -> None:
    config, _ = read_aw_nas_config((GOLDEN / "aw-nas-space.yaml").read_bytes())
    manager = config.manager
    assert config.space.num_cell_groups == 4
    assert config.space.cell_layout == (0, 1, 1, 2, 3, 0)
    assert config.space.reduce_cell_groups == (1, 3)
    assert config.space.shared_primitives == (
        "VGGblock_1", "VGGblock_3", "Mobileblock_1", "Mobileblock_4", "Resblock_1", "Resblock_6",
    )  # fmt: skip
    assert (manager.input_channels, manager.widths, manager.num_classes) == (3, (16, 32, 32, 48, 64, 64), 10)
    sgd = {"type": "SGD", "lr": 0.05, "momentum": 0.9}
    assert config.profiler == ProfilerConfig(
        first_train_epochs=20,
        first_train_optimizer_cfg={**sgd, "weight_decay": 5e-4, "nesterov": True},
        first_train_scheduler_cfg={"type": "CosineAnnealingLR", "T_max": 20, "eta_min": 0.001},
        finetune_optimizer_cfg={**sgd, "weight_decay": 1e-4},
        finetune_scheduler_cfg=None,
        latency_cost_coeff=0.25,
        calib_data=CalibrationFiles(source="calibration/names.txt", root_folder="calibration/images"),
    )
    assert config.gnomon == GnomonConfig(
        data="mnist-5k",
        image_size=32,
        numbering="aw_nas",
        dataset_type="cifar10",
        default_primitives={"Res": "Resblock_6"},
        augment="shift",
    )
    assert config.warnings == ()
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - it travels to other processes


def test_the_example_is_filled_in_and_nothing_else_changes() -> None:
    text = (GOLDEN / "aw-nas-space.yaml").read_text()
    _, document = read_aw_nas_config(text)
    chosen = [
        ["VGGblock_1", "Mobileblock_4"],
        ["Resblock_6"],
        ["Mobileblock_1"],
        ["VGGblock_3", "Resblock_1", "Resblock_6"],
    ]
    output = document.output(chosen)
    assert output == (GOLDEN / "aw-nas-space-output.yaml").read_text()
    wanted = load(text)
    wanted["search_space_cfg"] |= {"shared_primitives": None, "cell_shared_primitives": chosen}
    assert load(output) == wanted
    assert list(load(output)) == list(load(text))


def test_defaults_are_the_published_ones() -> None:
    config, _ = read_aw_nas_config(SMALL)
    assert config.profiler == ProfilerConfig()
    found, sgd = config.profiler, {"type": "SGD", "momentum": 0.9, "weight_decay": 1e-4}
    cosine = {"type": "CosineAnnealingLR", "eta_min": 0.001}
    assert found.first_train_optimizer_cfg == {**sgd, "lr": 0.1}
    assert found.first_train_scheduler_cfg == {**cosine, "T_max": 20}
    assert found.finetune_optimizer_cfg == {**sgd, "lr": 0.05}
    assert found.finetune_scheduler_cfg == {**cosine, "T_max": 5}
    published = (0.5, 0.92, 1.0, 5)
    assert published == (
        found.latency_cost_coeff, found.accuracy_threshold, found.accuracy_cost_scale, found.select_ss_threshold,
    )  # fmt: skip
    assert config.gnomon == GnomonConfig()


def test_names_that_other_rooms_know_are_theirs() -> None:
    from gnomon.formats.aw_nas import config as sections

    assert get_args(sections.Numbering) == SPACE_NUMBERINGS


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[0, 1]", "[0, 2]", "search_space_cfg.cell_layout[1] (line 3): a whole number from 0 to 1 expected, 2 found"),
        ("[0, 1]", "[0, 0]", "search_space_cfg.cell_layout (line 3): cell groups without a layer: 1"),
        ("[0, 1]", "[0, 1]\n  num_layers: 3", "search_space_cfg.num_layers (line 4): cell_layout has 2 layers"),
        ("[1]", "[1, 1]", "search_space_cfg.reduce_cell_groups[1] (line 4): cell group 1 is already listed"),
        ("[Resblock_0, VGGblock_1]", "[]", "shared_primitives (line 5): 1 to 1000 names of primitives expected"),
        ("VGGblock_1", "Resblock_0", "shared_primitives[1] (line 5): Resblock_0 is already listed"),
        ("VGGblock_1", "conv_3x3", "the name of a primitive such as Mobileblock_3 expected, 'conv_3x3' found"),
        (
            "[Resblock_0, ",
            "&all [Resblock_0, ",
            "search_space_cfg (line 1): anchors (line 5) are not supported in this section",
        ),
        ("null", "{a: 1}", "cell_shared_primitives (line 6): null or a list expected"),
        ("10", "ten", "weights_manager_cfg.num_classes (line 8): a whole number expected, 'ten' found"),
        ("C_in: 8", "C_in: 9", "cell_group_kwargs[1] (line 9): C_in is 9, but the previous layer has C_out 8"),
        (", {C_in: 8, C_out: 16}", "", "cell_group_kwargs (line 9): an entry for each of the 2 layers"),
        (
            "groups: 2",
            "groups: 2\n  <<: {a: 1}",
            "search_space_cfg (line 1): a merge key (<<) is not supported in this section",
        ),
    ],
)
def test_what_is_wrong_is_told_with_path_and_line(old: str, new: str, told: str) -> None:
    assert told in complaints(replaced(old, new))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ss_profiler_cfg: {finetune_epoch: 3}", "(line 10): there is no such field. Did you mean 'finetune_epochs'?"),
        ("ss_profiler_cfg: {accuracy_threshold: 9e-1}", "'9e-1' found, which YAML 1.1 reads as text: write 9.0e-1"),
        ("ss_profiler_cfg: {latency_cost_coeff: .inf}", "cfg.latency_cost_coeff (line 10): a finite number expected"),
        ("ss_profiler_cfg: {finetune_optimizer_cfg: {lr: 5e-4, type: SGD}}", "_cfg.lr (line 10): a number, a text, "),
        ("ss_profiler_cfg: {finetune_optimizer_cfg: {lr: 0.1}}", "(line 10): a type (a text) and its options"),
        ("ss_profiler_cfg: {calib_data: {source: x}}", "calib_data.root_folder (line 10): missing"),
        ("gnomon_cfg: {numbering: awnas}", "gnomon_cfg.numbering (line 10): 'ssprofile' or 'aw_nas' expected, 'awnas'"),
        (
            "gnomon_cfg: {default_primitives: {Res: VGGblock_1}}",
            "one of the space's primitives Resblock_0 expected, 'VGGblock_1'",
        ),
        ("gnomon_cfg: {default_primitives: {Rex: Resblock_0}}", "there is no such family. Did you mean 'Res'?"),
        ("gnomon_cfg: {validation_share: 0.6, test_share: 0.6}", "too little is left for training"),
        (
            "x: &a {batch_size: 3}\ngnomon_cfg: *a",
            "gnomon_cfg (line 11): an object expected, the alias a (write out its value)",
        ),
    ],
)
def test_our_sections_are_strict(text: str, told: str) -> None:
    assert told in complaints(SMALL + text + "\n")


def test_everything_wrong_is_told_at_once() -> None:
    text = replaced("C_in: 8", "C_in: 9").replace("[1]", "[7]").replace("null", "{a: 1}") + "gnomon_cfg: {sede: 1}\n"
    told = complaints(text)
    for place in ("reduce_cell_groups[0] (line 4)", "cell_shared_primitives (line 6)", "[1] (line 9)", "(line 10)"):
        assert place in told
    told = complaints("a: 1\n")
    assert "search_space_cfg (line 1)" in told and "weights_manager_cfg (line 1)" in told


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_key_that_is_only_for_the_result_may_be_missing(end: str) -> None:
    text = replaced("  cell_shared_primitives: null\n", "").replace("\n", end)
    _, document = read_aw_nas_config(text)
    output = document.output(CHOSEN)
    assert load(output)["search_space_cfg"]["cell_shared_primitives"] == CHOSEN
    assert output.count(end) == output.count("\n")


def test_a_list_that_is_filled_already_is_a_warning() -> None:
    text = replaced("cell_shared_primitives: null", "cell_shared_primitives: [[VGGblock_1], [a, b]]")
    config, document = read_aw_nas_config(text)
    assert config.warnings == (
        "search_space_cfg.cell_shared_primitives (line 6) is already filled in; the output replaces its value",
    )
    assert load(document.output(CHOSEN))["search_space_cfg"]["cell_shared_primitives"] == CHOSEN


HEAD = "search_space_cfg:\n  num_cell_groups: 2\n  cell_layout: [0, 1]\n  reduce_cell_groups: [1]\n"
TAIL = "weights_manager_cfg: {num_classes: 10, cell_group_kwargs: [{C_in: 3, C_out: 8}, {C_in: 8, C_out: 16}]}\n"
LISTS = [
    "  shared_primitives: [Resblock_0, VGGblock_1]\n",
    "  shared_primitives:   [ Resblock_0 ,\n     VGGblock_1 ]   # both\n",
    "  shared_primitives:\n  - Resblock_0\n  - VGGblock_1\n",
    "  shared_primitives: # all\n      -   Resblock_0 # one\n\n      # other\n      - 'VGGblock_1'\n  # behind\n",
    "  'shared_primitives' :\n    - Resblock_0\n    - VGGblock_1\n",
]
NULLS = [
    "  cell_shared_primitives: null\n",
    "  cell_shared_primitives:\n",
    "  cell_shared_primitives: ~ # to come\n",
    '  "cell_shared_primitives":    # to come\n',
    "  cell_shared_primitives: [[a],\n    [b]]  # was\n",
    "  cell_shared_primitives: []\n",
    "  cell_shared_primitives:\n    # old\n    - - a\n      - b # c\n    - [c]\n  # behind\n",
    "  cell_shared_primitives:\n    null\n",
]


@pytest.mark.parametrize(("number", "shared", "null"), [(k, *pair) for k, pair in enumerate(product(LISTS, NULLS))])
def test_every_way_of_writing_it_can_be_filled_in(number: int, shared: str, null: str) -> None:
    first, end = (number + number // len(NULLS)) % 2, "\r\n" if number % 3 == 0 else "\n"
    for text in (HEAD + (null + shared if first else shared + null) + TAIL, TAIL + HEAD + shared + null.rstrip("\n")):
        text = text.replace("\n", end)
        _, document = read_aw_nas_config("\ufeff" + text)
        output = document.output(CHOSEN)
        wanted = load(text)
        wanted["search_space_cfg"] |= {"shared_primitives": None, "cell_shared_primitives": CHOSEN}
        assert load(output) == wanted
        assert output.startswith("\ufeff") and (end == "\n") == ("\r" not in output)
        assert TAIL.strip() in output
        assert ("# behind" in output) == ("# behind" in text)
        if "to come" in text:
            assert "# to come" in output


def test_what_cannot_be_edited_in_place_is_refused() -> None:
    text = replaced(
        "  shared_primitives: [Resblock_0, VGGblock_1]\n", "  ? shared_primitives\n  : [Resblock_0, VGGblock_1]\n"
    )
    _, document = read_aw_nas_config(text)
    with pytest.raises(ProblemError, match=r"the layout of the config prevents filling in shared_primitives .line 5"):
        document.output(CHOSEN)


NAMES = st.builds("{}block_{}".format, st.sampled_from(["Mobile", "Res", "VGG", "My_own"]), st.integers(0, 99))
SCALARS = st.none() | st.booleans() | st.integers(-9, 9999) | st.floats(-1e6, 1e6) | st.text("ab #:'\"é-", max_size=6)
SECTIONS = st.dictionaries(
    st.from_regex(r"[a-f]{1,6}_cfg", fullmatch=True),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    groups = draw(st.integers(1, 5))
    layout = draw(st.permutations([*range(groups), *draw(st.lists(st.integers(0, groups - 1), max_size=4))]))
    widths = draw(st.lists(st.integers(1, 512), min_size=len(layout) + 1, max_size=len(layout) + 1))
    space = {
        "num_cell_groups": groups,
        "cell_layout": list(layout),
        "num_layers": len(layout),
        "reduce_cell_groups": sorted(draw(st.sets(st.integers(0, groups - 1)))),
        "shared_primitives": draw(st.lists(NAMES, min_size=1, max_size=6, unique=True)),
        "cell_shared_primitives": None,
        "other": draw(SCALARS),
    }
    manager = {
        "num_classes": draw(st.integers(1, 1000)),
        "cell_group_kwargs": [{"C_in": i, "C_out": o} for i, o in pairwise(widths)],
    }
    profiler = {"accuracy_threshold": draw(st.floats(0, 1)), "finetune_epochs": draw(st.integers(1, 99))}
    own = {"seed": draw(st.integers(0, 99)), "data": draw(st.sampled_from(["digits", "npz:a b.npz", None]))}
    whole = {**draw(SECTIONS), "search_space_cfg": {k: space[k] for k in draw(st.permutations(list(space)))}}
    return {**whole, "weights_manager_cfg": manager, "ss_profiler_cfg": profiler, "gnomon_cfg": own}


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(configs(), st.sampled_from([None, False, True]), st.integers(2, 6), st.data())
def test_any_config_is_read_as_it_was_meant_and_filled_in(
    config: Any, flow: bool, indent: int, data: st.DataObject
) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML, which writes the configs, is not installed")
    text = yaml.safe_dump(config, default_flow_style=flow, indent=indent, sort_keys=False, allow_unicode=True)
    read, document = read_aw_nas_config(text)
    space, kwargs = config["search_space_cfg"], config["weights_manager_cfg"]["cell_group_kwargs"]
    groups, primitives = space["num_cell_groups"], space["shared_primitives"]
    assert (read.space.cell_layout, read.space.num_cell_groups) == (tuple(space["cell_layout"]), groups)
    assert read.space.reduce_cell_groups == tuple(space["reduce_cell_groups"])
    assert read.space.shared_primitives == tuple(primitives)
    widths = [kwargs[0]["C_in"], *(one["C_out"] for one in kwargs)]
    assert [read.manager.input_channels, *read.manager.widths] == widths
    assert read.manager.num_classes == config["weights_manager_cfg"]["num_classes"]
    assert read.profiler.accuracy_threshold == config["ss_profiler_cfg"]["accuracy_threshold"]
    assert read.profiler.finetune_epochs == config["ss_profiler_cfg"]["finetune_epochs"]
    assert (read.gnomon.seed, read.gnomon.data) == (config["gnomon_cfg"]["seed"], config["gnomon_cfg"]["data"])
    some = st.lists(st.sampled_from(primitives), min_size=1, max_size=3, unique=True)
    chosen = data.draw(st.lists(some, min_size=groups, max_size=groups))
    filled = yaml.safe_load(document.output(chosen))
    space |= {"shared_primitives": None, "cell_shared_primitives": chosen}
    assert filled == config and list(filled) == list(config)


@pytest.mark.parametrize(
    ("keys", "stem"),
    [
        ("", None),
        ("use_stem: false", None),
        ("use_stem: null", None),
        ("use_stem: true", ("conv_bn_3x3", 1)),
        ("use_stem: 1", ("conv_bn_3x3", 1)),
        ("use_stem: conv_bn_relu_5x5, stem_stride: 2", ("conv_bn_relu_5x5", 2)),
        ("use_stem: imagenet_stem0", ("imagenet_stem0", 1)),
    ],
)
def test_a_stem_is_read_as_aw_nas_names_it(keys: str, stem: tuple[str, int] | None) -> None:
    lines = "".join(f"  {key}\n" for key in keys.split(", ") if key)
    config, _ = read_aw_nas_config(SMALL.replace("  num_classes", f"{lines}  num_classes"))
    assert (config.manager.stem and (config.manager.stem, config.manager.stem_stride)) == stem
    assert config.manager.input_channels == 3 and config.warnings == ()


def test_what_a_stem_does_otherwise_than_aw_nas_is_told() -> None:
    keys = "  use_stem: true\n  stem_affine: false\n  init_channels: 8\n  stem_multiplier: 3\n  num_classes"
    config, _ = read_aw_nas_config(SMALL.replace("  num_classes", keys))
    assert "layer (3)" in config.warnings[0] and "24" in config.warnings[0] and "stem_affine" in config.warnings[1]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("use_stem: Conv", "use_stem .line 8.: true, false or one of conv_bn_3x3, .* expected, 'Conv' found"),
        ("use_stem: [conv_1x1]", "use_stem .*true, false or one of .* expected"),
        ("use_stem: true\n  stem_stride: 0", "stem_stride .*a whole number from 1"),
    ],
)
def test_a_stem_that_is_not_known_is_told(keys: str, told: str) -> None:
    assert re.search(told, complaints(SMALL.replace("  num_classes", f"  {keys}\n  num_classes")))


def test_ends_of_ones_own_are_functions() -> None:
    config, _ = read_aw_nas_config(SMALL + "gnomon_cfg: {stem: 'net.py:stem', head: 'package.module:Head'}\n")
    assert (config.gnomon.stem, config.gnomon.head) == ("net.py:stem", "package.module:Head")
    assert "gnomon_cfg.head" in complaints(SMALL + "gnomon_cfg: {head: net.py}\n")
