"""Profiles of networks with blocks of PyTorch's: trained, written, measured, and back as modules with their weights."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.jobs.space.kits.spacekit import CONFIG, write_images
from tests.jobs.space.kits.studykit import SHAPE
from tests.jobs.space.kits.trainerkit import trained_alike, trainers  # noqa: F401

import gnomon
from gnomon.api import space as api
from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.jobs.space.profiling.folder import read_accuracy, read_latency
from gnomon.jobs.space.profiling.look import look
from gnomon.jobs.space.profiling.study import given_as, open_study, whole_name

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")

pytestmark = pytest.mark.usefixtures("trained_alike")
EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
OWN = CONFIG.replace("[VGGblock_0, VGGblock_1, VGGblock_2, Mobileblock_0, Mobileblock_1]", "[VGGblock_1, {names}]")
WIDE = OWN.replace("[{C_in: 1, C_out: 4}, {C_in: 4, C_out: 8}]", "[{C_in: 1, C_out: 8}, {C_in: 8, C_out: 16}]")


def write(folder: Path, names: str, own: str) -> Path:
    """A config of the small space with these primitives and keys of `gnomon_cfg`."""
    path = folder / "config.yaml"
    path.write_text(WIDE.replace("{names}", names).replace("gnomon_cfg: {", f"gnomon_cfg: {{{own}, "))
    return path


def profile(folder: Path, config: Path, toolchains: tuple[str, ...] = (), **training: Any) -> Path:
    given: dict[str, Any] = {"data": write_images(folder), "workers": 1, "networks": 2, "epochs": 1, **training}
    record = folder / "record.sqlite"
    api.profile_space(config, folder / "out", toolchains=toolchains, mixed=1, record=record, trust_config=True, **given)
    return folder / "out"


def check_weights(out: Path, blocks: tuple[str, ...]) -> int:
    """Each measured network's file computes what its module does with the weights that come back; and how many."""
    rows = {row.network: row for row in read_latency(out) if row.toolchain == "onnxruntime"}
    trained = {row.network for row in read_accuracy(out) if row.validation is not None} & rows.keys()
    for name in trained:
        module = gnomon.space_network(out, name, blocks=blocks)
        assert not module.training and rows[name].reason == ""
        session = onnxruntime.InferenceSession(str(out / rows[name].artifact), providers=["CPUExecutionProvider"])
        x = np.random.default_rng(0).standard_normal((1, *SHAPE)).astype(np.float32)
        with torch.no_grad():
            made = module(torch.from_numpy(x)).numpy()
        assert np.abs(made - session.run(["y"], {"x0": x})[0]).max() <= 1e-5
    return len(trained)


@pytest.mark.slow
def test_networks_of_modules_are_trained_quantised_measured_and_chosen_from(tmp_path: Path) -> None:
    config = write(tmp_path, "Modernblock_0, Modernblock_1", f"blocks: [{EXAMPLES / 'modules.py'}]")
    out = profile(tmp_path, config, ("onnxruntime", "onnxruntime-int8"))
    blocks = (str(EXAMPLES / "modules.py"),)
    rows = list(read_latency(out))
    assert rows and all(row.call_s and not row.reason for row in rows)
    assert {row.toolchain for row in rows} == {"onnxruntime", "onnxruntime-int8"}
    assert check_weights(out, blocks) >= 3
    told = {one["toolchain"]: one for one in look(out, blocks=blocks).document()["latency"]}
    assert told["onnxruntime-int8"]["compared"]["networks"] >= 3
    chosen = api.select_primitives(out, blocks=blocks, most_share=1)
    assert chosen.groups and chosen.lookup is not None
    before = {path.name: path.read_bytes() for path in out.glob("*.jsonl")}
    profile(tmp_path, config, ("onnxruntime", "onnxruntime-int8"))
    assert {path.name: path.read_bytes() for path in out.glob("*.jsonl")} == before, "nothing is done again"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, trained_alike: None) -> Path:  # noqa: F811
    """A profile without latencies, of modules behind a stem of one's own and before a head of one's own."""
    folder = tmp_path_factory.mktemp("modules")
    text = (EXAMPLES / "modules.py").read_text()
    text += (
        "\nclass Head(nn.Sequential):\n"
        "    def __init__(self, c, classes):\n"
        "        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(c), nn.Linear(c, classes))\n"
    )
    (folder / "own.py").write_text(text)
    config = write(folder, "Modernblock_0", "blocks: [own.py], stem: 'own.py:stem', head: 'own.py:Head'")
    config.write_text(config.read_text().replace("{C_in: 1, C_out: 8}", "{C_in: 8, C_out: 8}"))
    profile(folder, config)
    return folder


def test_weights_come_back_as_a_module_and_as_a_state_dict(trained: Path) -> None:
    from safetensors.torch import load_file

    out, blocks = trained / "out", (str(trained / "own.py"),)
    rows = [row for row in read_accuracy(out) if row.validation is not None]
    module = gnomon.space_network(out, rows[0].network, blocks=blocks)
    (path,) = (out / "checkpoints").rglob(f"whole-{rows[0].seed}/{rows[0].network}.safetensors")
    state = load_file(path)
    assert any(name.startswith("stem.0.0.") for name in state) and any(name.startswith("head.0.3.") for name in state)
    assert not any(module.load_state_dict(state))
    with pytest.raises(UsageError, match="no trained weights for 'Nobody'") as told:
        gnomon.space_network(out, "Nobody", blocks=blocks)
    assert rows[0].network in told.value.hint


def test_blocks_that_are_not_given_are_not_run_and_changed_ones_are_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gnomon runs only if you name it") as told:
        look(trained / "out")
    assert "own.py" in told.value.hint
    with pytest.raises(
        UsageError, match=r"gnomon_cfg.stem is own.py:stem, Python code that gnomon runs only if you name it"
    ):
        look(trained / "out", blocks=[EXAMPLES / "modules.py"])
    text = (trained / "own.py").read_text()
    for change in (
        ("nn.GELU())\n\n\nprim", "nn.ReLU())\n\n\nprim"),
        ("LayerNorm(c)", "Identity()"),
        ("4 * c_out", "2 * c_out"),
    ):
        assert change[0] in text
        (tmp_path / "own.py").write_text(text.replace(*change))
        with pytest.raises(UsageError, match=r"the blocks of .* changed"):
            look(trained / "out", blocks=[tmp_path / "own.py"])


def test_a_stem_of_aw_nas_stands_before_the_first_layer() -> None:
    without = CONFIG.replace("{C_in: 1, C_out: 4}", "{C_in: 16, C_out: 4}")
    with pytest.raises(ProblemError, match="takes 16 channels, but an image has 1") as told:
        open_study(without, SHAPE)
    assert "use_stem: true" in told.value.hint and "gnomon_cfg.stem" in told.value.hint
    one = open_study(without.replace("  num_classes: 3", "  num_classes: 3\n  use_stem: true\n  stem_stride: 2"), SHAPE)
    tagged = one.tagged(one.families["VGG"].swaps()[0])
    assert tagged.tags[:2] == ("stem/0", "stem/1")
    assert tagged.net.nodes[1].unit.output == (1, 16, 4, 4) and tagged.net.nodes[0].unit.kinds == ("Conv",)


def test_a_stem_that_does_not_fit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "s.py"
    path.write_text(
        "from torch import nn\ndef stem(c_in, c_out): return nn.Conv2d(c_in, 3, 1)\ndef broken(a, b): 1 / 0\n"
    )
    for name, told in (("stem", "the stem turns"), ("broken", "ZeroDivisionError")):
        text = CONFIG.replace("gnomon_cfg: {", f"gnomon_cfg: {{stem: '{path}:{name}', ")
        with pytest.raises(GnomonError, match=told):
            open_study(text, SHAPE, blocks=[f"{path}:{name}"])


def test_names_of_functions() -> None:
    assert whole_name("a/b.py", Path("/x")) == "/x/a/b.py" and whole_name("b.py:f", Path("/x")) == "/x/b.py:f"
    assert whole_name("p.m:f", Path("/x")) == "p.m:f"
    assert given_as("b.py:f", ["p.m:f", "/x/b.py:g", "/x/b.py:f"]) == "/x/b.py:f"
    assert given_as("b.py:f", ["/x/b.py"]) == "/x/b.py:f" and given_as("p.m:f", ["p.m:f"]) == "p.m:f"
    assert given_as("b.py:f", ["/x/c.py", "/x/b.py:g"]) is None and given_as("p.m:f", ["/x/m.py"]) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "file", "name"),
    [("timm", "timm_blocks.py", "Timmblock_0"), ("transformers", "hugging_face_blocks.py", "ViTblock_0")],
)
def test_blocks_of_others_are_profiled_from_a_file_of_a_few_lines(
    package: str, file: str, name: str, tmp_path: Path
) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(package)
    except (ImportError, RuntimeError, OSError) as error:  # timm's torchvision may be that of another PyTorch
        pytest.skip(f"{package} cannot be loaded: {error}: pip install {package}")
    out = profile(tmp_path, write(tmp_path, name, f"blocks: [{EXAMPLES / file}]"), ("onnxruntime", "onnxruntime-int8"))
    rows = list(read_latency(out))
    assert rows and all(row.call_s and not row.reason for row in rows)
    assert {row.toolchain for row in rows if name in row.primitives} == {"onnxruntime", "onnxruntime-int8"}
    assert check_weights(out, (str(EXAMPLES / file),)) >= 3
