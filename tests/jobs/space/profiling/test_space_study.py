"""A study: families and their defaults, own blocks, mixed networks, and what does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.jobs.space.kits.space_kit import selection
from tests.jobs.space.kits.spacekit import CONFIG, write_config, write_images
from tests.jobs.space.kits.studykit import study, timed, trained

from gnomon.api import space as api
from gnomon.errors import ProblemError, UsageError
from gnomon.jobs.space.profiling.folder import MANIFEST
from gnomon.jobs.space.profiling.look import look
from gnomon.jobs.space.profiling.study import Network, open_study

pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")

OWN = """\
from gnomon.spaces.cells.primitives import Primitive

def wide(x, channels, stride):
    y = x.conv({factor} * channels, 1).batch_norm().relu()
    return y.conv(channels, 3, stride=stride).batch_norm().relu()

primitives = [Primitive(family="Wide", number=k, block=wide, meaning="1x1, 3x3") for k in range(2)]
"""
WITH_OWN = CONFIG.replace("Mobileblock_0, Mobileblock_1", "Wideblock_0, Wideblock_1").replace(
    "gnomon_cfg: {", "gnomon_cfg: {blocks: [wide.py], "
)


def test_families_stand_in_the_order_of_their_first_primitive_and_those_by_number() -> None:
    one = study(CONFIG.replace("[VGGblock_0, VGGblock_1, VGGblock_2, ", "[Resblock_2, VGGblock_1, VGGblock_0, "))
    assert {name: [p.name for p in f.primitives] for name, f in one.families.items()} == {
        "Res": ["Resblock_2"],
        "VGG": ["VGGblock_0", "VGGblock_1"],
        "Mobile": ["Mobileblock_0", "Mobileblock_1"],
    }
    assert len(one.families["Res"].swaps()) == 1
    assert list(one.primitives) == ["Resblock_2", "VGGblock_0", "VGGblock_1", "Mobileblock_0", "Mobileblock_1"]
    assert list(study(families=["Mobile"]).families) == ["Mobile"]
    with pytest.raises(UsageError, match="Elephant") as told:
        study(families=["Mobile", "Elephant"])
    assert "VGG" in told.value.hint


@pytest.mark.parametrize(
    ("own", "default"),
    [("", "VGGblock_1"), ("default_primitives: {VGG: VGGblock_2}, ", "VGGblock_2")],
)
def test_defaults_are_the_configs_or_the_published_ones(own: str, default: str) -> None:
    family = study(CONFIG.replace("gnomon_cfg: {", f"gnomon_cfg: {{{own}")).families["VGG"]
    first, *others = family.swaps()
    assert first.primitives == (default,) * 2
    assert first.assignment == family.defaults
    assert len(others) == 4
    assert all(sum(a != b for a, b in zip(n.assignment, family.defaults, strict=True)) == 1 for n in others)


def test_a_typo_has_its_line_and_an_image_that_is_too_small_its_group() -> None:
    with pytest.raises(
        ProblemError, match=r"shared_primitives \(line 6\): these primitives are not known: Mobilblock_1"
    ):
        study(CONFIG.replace("Mobileblock_1", "Mobilblock_1"))
    with pytest.raises(ProblemError, match=r"layer 1 of cell group 1 halves an image of 1x1") as told:
        open_study(CONFIG, (1, 2, 2))
    assert "reduce_cell_groups" in told.value.hint


def test_a_network_is_known_by_its_primitives() -> None:
    one = study()
    network = one.mixed(["VGGblock_2", "VGGblock_0"])
    assert network == Network(id="VGG_2_0", family="VGG", assignment=(2, 0), primitives=("VGGblock_2", "VGGblock_0"))
    across = one.mixed(["VGGblock_2", "Mobileblock_0"])
    assert (across.id, across.family, across.assignment) == ("VGGblock_2+Mobileblock_0", "", ())
    tags = {tag.rpartition("/")[0] for tag in one.tagged(across).tags}
    assert tags == {"l0/VGGblock_2", "l1/Mobileblock_0", "head"}
    assert one.at((2, 0)) == network and one.at((2, 3)) == across
    for names in (["VGGblock_2"], ["VGGblock_2"] * 3, ["VGGblock_2", "VGGblock_7"], []):
        with pytest.raises(ProblemError):
            one.mixed(names)


def test_lines_of_other_networks_are_told_all_of_them() -> None:
    one = study()
    good = one.families["VGG"].swaps()[0]
    one.check([trained(good, 0.5), timed(one.mixed(["VGGblock_2", "Mobileblock_0"]), 1e-3)])
    names = [("VGG_1_1", ("VGGblock_1",)), ("VGG_0_0", ("VGGblock_1", "VGGblock_1")), ("a", ("Owl_1", "VGGblock_1"))]
    wrong = [Network(id=name, family="", assignment=(), primitives=primitives) for name, primitives in names]
    with pytest.raises(ProblemError) as told:
        one.check(trained(network, 0.5) for network in (good, *wrong))
    assert all(network.id in told.value.message for network in wrong)
    assert good.id + "'" not in told.value.message.replace("VGG_1_1'", "", 1)


def test_channels_that_do_not_fit_are_told() -> None:
    with pytest.raises(ProblemError, match="takes 1 channel, but an image has 3") as told:
        open_study(CONFIG, (3, 8, 8))
    assert "C_in" in told.value.hint


def own_profile(folder: Path) -> Path:
    """A profile with primitives of a file beside the config, made by the job itself."""
    (folder / "wide.py").write_text(OWN.format(factor=2))
    config = write_config(folder)
    config.write_text(WITH_OWN)
    api.profile_space(
        config,
        folder / "out",
        latency=False,
        data=write_images(folder),
        method="none",
        trust_config=True,
    )
    return folder / "out"


def test_a_file_of_own_blocks_belongs_to_the_question(tmp_path: Path) -> None:
    out, own = own_profile(tmp_path), [tmp_path / "wide.py"]
    assert look(out, blocks=own).families["Wide"].default == "Wideblock_0"
    source = f"npz:{tmp_path / 'images.npz'}"
    (tmp_path / "wide.py").write_text(OWN.format(factor=3))
    for use in (
        lambda: api.select_primitives(out, blocks=own),
        lambda: look(out, blocks=own),
        lambda: api.profile_space(
            tmp_path / "config.yaml", out, latency=False, data=source, method="none", trust_config=True
        ),
    ):
        with pytest.raises(UsageError, match=r"the blocks of .* changed|made with other settings.*Wideblock_0") as told:
            use()
        assert told.value.hint
    (tmp_path / "wide.py").write_text(OWN.format(factor=2))
    look(out, blocks=own)
    (tmp_path / "wide.py").unlink()
    with pytest.raises(UsageError, match=r"wide\.py"):
        look(out, blocks=own)


@pytest.mark.parametrize("said_by", ["manifest", "config"])
def test_looking_at_a_profile_runs_no_file_that_it_names(tmp_path: Path, said_by: str) -> None:
    """A profile may come from anybody: its word alone makes no file a program to run."""
    out = own_profile(tmp_path)
    (tmp_path / "wide.py").write_text(OWN.format(factor=2) + f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    manifest = json.loads((out / MANIFEST).read_text())
    if said_by == "config":
        manifest["question"]["blocks"] = []
    (out / MANIFEST).write_text(json.dumps(manifest))
    (out / "output.selection.json").write_text(json.dumps(selection()))
    for use in (look, api.show_space, api.select_primitives, api.find_front):
        with pytest.raises(UsageError, match="gnomon runs only if you name it") as told:
            use(out)
        assert "--blocks" in told.value.hint and "wide.py" in told.value.hint
    assert not (tmp_path / "ran").exists()
    look(out, blocks=[tmp_path / "wide.py"])
    assert (tmp_path / "ran").exists()


def test_a_block_that_fits_no_small_image_is_told(tmp_path: Path) -> None:
    """What works on the images that blocks are tried with may not on those of the study."""
    head, _, tail = OWN.partition("    y = x")
    block = "    y = x\n    if x.shape[2] < 8:\n        raise ValueError('too small an image')\n"
    block += "    return y.conv(channels, 3, stride=stride)\n\n"
    (tmp_path / "wide.py").write_text(head + block + tail.partition("\n\n")[2])
    text = WITH_OWN.replace("reduce_cell_groups: [0, 1]", "reduce_cell_groups: [0]")
    config = write_config(tmp_path)
    config.write_text(text)
    with pytest.raises((UsageError, ProblemError)) as refused:
        api.profile_space(
            config, tmp_path / "out", latency=False, data=write_images(tmp_path), method="none", trust_config=True
        )
    assert not (tmp_path / "out").exists()
    line = (tmp_path / "wide.py").read_text().splitlines().index("        raise ValueError('too small an image')") + 1
    assert refused.value.message.endswith(f"ValueError: too small an image ({tmp_path}/wide.py, line {line})")


def test_twelve_groups_behind_a_stem_are_built() -> None:
    """A space of the layout of the published ones for ImageNet: 16 channels come from a stem."""
    widths = [16, 24, 24, 40, 40, 80, 80, 96, 96, 192, 192, 320]
    kwargs = ", ".join(f"{{C_in: {a}, C_out: {b}}}" for a, b in zip([16, *widths], widths, strict=False))
    text = (
        CONFIG.replace("num_cell_groups: 2", "num_cell_groups: 12")
        .replace("cell_layout: [0, 1]", f"cell_layout: {list(range(12))}")
        .replace("reduce_cell_groups: [0, 1]", "reduce_cell_groups: [1, 3, 5, 9]")
        .replace("[{C_in: 1, C_out: 4}, {C_in: 4, C_out: 8}]", f"[{kwargs}]\n  use_stem: true\n  stem_stride: 2")
    )
    one = open_study(text, (3, 224, 224))
    tagged = one.tagged(one.families["Mobile"].swaps()[0])
    assert [tag for tag in tagged.tags if tag.startswith("stem")] == ["stem/0", "stem/1"]
    assert tagged.net.shape(tagged.tags.index("stem/1")) == (1, 16, 112, 112)
    assert tagged.net.nodes[-2].unit.inputs[0] == (1, 320, 7, 7)
