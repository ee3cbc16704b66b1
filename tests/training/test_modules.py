"""Blocks that are modules of PyTorch's: shapes, digests, training, export, and what is wrong with one."""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.trainkit import LAYOUT, PRIMITIVES, Killed, by_onnx, check_same, kill_after, shapes

from gnomon.errors import ProblemError, UsageError
from gnomon.formats.aw_nas.config import STEMS
from gnomon.models.units import OPSET, write_net
from gnomon.spaces.cells.primitives import HEAD, STEM, Primitive, stem
from gnomon.spaces.cells.space import TaggedNet, known_primitives, model_weights, tagged_net
from gnomon.spaces.unit import Trace
from gnomon.training.export import ExportJob, export
from gnomon.training.loop import TrainJob, train
from gnomon.training.modules import ModuleBlock, end_block, known_blocks, load_factories
from gnomon.training.network import build, state_of
from gnomon.training.recipe import Recipe

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "modules.py"
OWN = """\
from torch import nn
from gnomon.spaces.cells.primitives import Primitive
class Block(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1)
        self.drop = nn.Dropout(0.3)
    def forward(self, x):
        return self.drop(nn.functional.gelu(self.conv(x)))
primitives = [Primitive(family="Own", number=0, module=Block)]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def net(file: Path, names: tuple[str, str, str], **layout: Any) -> tuple[TaggedNet, dict[str, str]]:
    """A network of a file's primitives and published ones, and where its modules are found."""
    known = known_blocks(blocks=[file])
    found = tagged_net(dataclasses.replace(LAYOUT, **layout), [known[name] for name in names])
    return found, {name: str(file) for name in found.modules}


def job(file: Path, epochs: int = 3) -> TrainJob:
    tagged, origins = net(file, ("Ownblock_0", "VGGblock_1", "Ownblock_0"))
    recipe = Recipe(epochs=epochs, optimizer={"type": "AdamW", "lr": 0.01}, batch_size=32)
    return TrainJob(tagged=tagged, recipe=recipe, data=shapes(), seed=1, modules=origins)


def exported(tagged: TaggedNet, origins: dict[str, str], state: Any, path: Path) -> bytes:
    assert export(ExportJob(tagged=tagged, state=state, modules=origins, seed=0, opset=OPSET), path) is None
    return path.read_bytes()


@pytest.mark.parametrize(
    ("forward", "steady"),
    [
        ("self.drop(self.conv(x))", True),
        ("self.conv(x) + 0 * self.conv(x).mean()", True),
        ("self.conv(x) + torch.rand(1)", False),
        ("nn.functional.dropout(self.conv(x))", False),
        ("self.conv(x) * len(self.calls.append(0) or self.calls)", False),
    ],
)
def test_a_block_that_draws_where_it_is_not_trained_is_known(tmp_path: Path, forward: str, steady: bool) -> None:
    text = OWN.replace("self.drop(nn.functional.gelu(self.conv(x)))", forward).replace("0.3)", "0.3); self.calls = []")
    (tmp_path / "own.py").write_text(f"import torch\n{text}")
    block = known_blocks(blocks=[tmp_path / "own.py"])["Ownblock_0"].block
    assert isinstance(block, ModuleBlock) and block.steady is steady


def test_a_primitive_is_a_block_or_a_module() -> None:
    for given in ({}, {"block": lambda x, c, s: x, "module": torch.nn.Conv2d}):
        with pytest.raises(ProblemError, match="Wideblock_0 has"):
            Primitive(family="Wide", number=0, **given)


def test_modules_stand_in_networks_beside_blocks_with_what_they_cost() -> None:
    known = known_blocks(blocks=[EXAMPLE])
    assert list(known)[-2:] == ["Modernblock_0", "Modernblock_1"]
    layout = dataclasses.replace(LAYOUT, widths=(8, 8, 16))
    tagged = tagged_net(layout, [known[name] for name in ("VGGblock_1", "Modernblock_0", "Modernblock_1")])
    assert tagged.modules == ("Modernblock_0", "Modernblock_1")
    assert [tag for tag in tagged.tags if "Modern" in tag] == ["l1/Modernblock_0/0", "l2/Modernblock_1/0"]
    (block,) = (
        node.unit
        for node in tagged.net.nodes
        if node.unit.kinds == ("Module",) and node.unit.inputs[0][1] == 8 and node.unit.output[1] == 8
    )
    # 2x2 to half the height and width, 7x7 for each channel, and two linear layers of four times the width.
    assert block.layers[0]["macs"] == 6 * 6 * (8 * 8 * 4 + 8 * 49 + 2 * 8 * 32)


def test_a_digest_knows_what_a_block_does_and_not_what_it_is_called(file: Path, tmp_path: Path) -> None:
    before = known_blocks(blocks=[file])["Ownblock_0"].digest
    other = tmp_path / "other.py"
    for change, same in (
        (("Own", "Other"), True),
        (("import nn", "import nn  # what"), True),
        (("gelu", "relu"), False),
        (("0.3", "0.4"), False),
        (("padding=1)", "padding=1, bias=False)"), False),
        ((", 3, stride=stride, padding=1", ", 5, stride=stride, padding=2"), False),
    ):
        other.write_text(OWN.replace(*change))
        (found,) = (one for name, one in known_blocks(blocks=[other]).items() if name.startswith("O"))
        assert (found.digest == before) is same, change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("nn.functional.gelu(self.conv(x))", "self.conv(x), x"), r"AttributeError|TypeError"),
        (("return self.drop", "return [x]; self.drop"), "returns a list for a batch"),
        (
            ("stride=stride, ", ""),
            r"turns \(1, 64, 32, 32\) into \(1, 64, 32, 32\), but should make 64 channels of about 16x16",
        ),
        (("self.conv(x)", "self.konv(x)"), r"AttributeError: .*konv.*line 9."),
        (("(0.3)", "(0.3).half()\n        self.half()"), "is float16"),
        (("module=Block", "module=lambda *given: 3"), "is a int, not a torch.nn.Module"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_block_is_told_with_its_line(file: Path, change: tuple[str, str], told: str) -> None:
    file.write_text(OWN.replace(*change))
    with pytest.raises(UsageError, match=rf"own\.py has blocks that do not work: Ownblock_0: .*({told})") as error:
        known_blocks(blocks=[file])
    assert "torch.nn.Module" in error.value.hint or "module" in error.value.hint


def test_a_block_may_be_named_by_itself(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(file.parent)
    file.write_text(OWN.replace("primitives =", "Namedblock_7 = Block\nunused ="))
    by_file, by_module = f"{file}:Namedblock_7", "own:Block"
    known = known_blocks(blocks=[by_file, by_module, by_file])
    assert list(known)[-2:] == ["Namedblock_7", "Blockblock_0"]
    assert known["Namedblock_7"].digest == known["Blockblock_0"].digest
    assert known["Blockblock_0"].meaning == "own:Block"
    for wrong, told in (("own:nothing", "has no 'nothing'"), ("nowhere.at.all:x", "cannot be imported"),
                        (f"{file}:unused", "is not a function")):  # fmt: skip
        with pytest.raises(UsageError, match=told):
            known_blocks(blocks=[wrong])


def test_without_pytorch_a_module_is_not_known_but_others_are(file: Path) -> None:
    with pytest.raises(UsageError, match="Ownblock_0 is a PyTorch module"):
        known_primitives(blocks=[file])


def test_training_depends_on_the_job_alone_and_goes_on_where_it_was(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.random.get_rng_state()
    whole = train(job(file))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert whole.failure is None and whole.state is not None
    assert {"l0.Ownblock_0.0.conv.weight", "l1.VGGblock_1.0.weight", "head.1.weight"} <= whole.state.keys()
    torch.rand(7)
    check_same(train(job(file)), whole)
    kill_after(monkeypatch, 2)
    with pytest.raises(Killed):
        train(job(file), partial=tmp_path / "partial.pt")
    check_same(train(job(file), partial=tmp_path / "partial.pt"), whole)


def test_a_block_that_fails_in_training_is_a_failure(file: Path) -> None:
    file.write_text(OWN.replace("return", "assert not self.training, 'only looked at'\n        return"))
    made = train(job(file))
    assert made.failure is not None and made.failure.message == "only looked at"


def test_a_block_that_changed_meanwhile_is_refused(file: Path) -> None:
    from gnomon.training import modules

    one = job(file)
    modules._loaded.cache_clear()
    file.write_text(OWN.replace("gelu", "relu"))
    with pytest.raises(ProblemError, match=r"Ownblock_0 of .*own\.py has changed since"):
        train(one)


def test_weights_are_a_state_dict_of_the_network_and_of_each_block(file: Path) -> None:
    one = job(file, epochs=1)
    state = train(one).state
    assert state is not None
    factories = load_factories(one.modules, one.tagged)
    module = build(one.tagged, None, seed=5, factories=factories)
    tensors = {name: torch.from_numpy(array) for name, array in state.items()}
    assert module.load_state_dict(tensors).missing_keys == []
    assert all(np.array_equal(array, state[name]) for name, array in state_of(module).items())
    prefix = "l2.Ownblock_0.0."
    block = factories["Ownblock_0"](8, 8, 2)
    block.load_state_dict({name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)})


def test_an_exported_network_computes_what_its_module_does_and_is_the_same_each_time(tmp_path: Path) -> None:
    names = ("Modernblock_0", "VGGblock_2", "Modernblock_1")
    tagged, origins = net(EXAMPLE, names, widths=(8, 8, 16))
    factories = load_factories(origins, tagged)
    module = build(tagged, None, seed=3, factories=factories)
    x = np.random.default_rng(0).standard_normal((4, *tagged.net.inputs[0][1:])).astype(np.float32)
    with torch.no_grad():
        module(torch.from_numpy(x))  # statistics of batch normalisations move
    state = state_of(module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        content = exported(tagged, origins, state, tmp_path / "one.onnx")
    assert exported(tagged, origins, state, tmp_path / "two.onnx") == content
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(x[:1])).numpy()
    made = by_onnx(content, x[:1])
    assert made.shape == (1, LAYOUT.classes) and np.abs(made - wanted).max() <= 1e-5


def test_a_block_that_pytorch_cannot_write_is_a_failure(file: Path, tmp_path: Path) -> None:
    file.write_text(OWN.replace("nn.functional.gelu(self.conv(x))", "self.conv(x).logcumsumexp(1)"))
    tagged, origins = net(file, ("VGGblock_1", "Ownblock_0", "VGGblock_1"))
    failure = export(ExportJob(tagged=tagged, state={}, modules=origins, seed=0, opset=OPSET), tmp_path / "m.onnx")
    assert failure is not None and "logcumsumexp" in failure.message


def test_stems_and_heads_may_be_modules(file: Path, tmp_path: Path) -> None:
    file.write_text(OWN + "def stem(c_in, c_out): return nn.Conv2d(c_in, c_out, 3, padding=1)\n"
                    "class Head(nn.Module):\n"
                    "    def __init__(self, c, classes):\n"
                    "        super().__init__()\n"
                    "        self.norm, self.last = nn.LayerNorm(c), nn.Linear(c, classes)\n"
                    "    def forward(self, x):\n"
                    "        return self.last(self.norm(x.mean((2, 3))))\n")  # fmt: skip
    stem, head = end_block(STEM, f"{file}:stem"), end_block(HEAD, f"{file}:Head")
    layout = dataclasses.replace(LAYOUT, stem=lambda x: stem(x, 4), head=lambda x: head(x, LAYOUT.classes))
    tagged = tagged_net(layout, [PRIMITIVES["VGGblock_1"]] * 3)
    assert tagged.modules == (STEM, HEAD) and tagged.tags[0] == "stem/0" and tagged.tags[-1] == "head/0"
    origins = {STEM: f"{file}:stem", HEAD: f"{file}:Head"}
    module = build(tagged, None, seed=0, factories=load_factories(origins, tagged)).eval()
    x = np.ones(tagged.net.inputs[0], np.float32)
    content = exported(tagged, origins, state_of(module), tmp_path / "m.onnx")
    with torch.no_grad():
        assert np.abs(by_onnx(content, x) - module(torch.from_numpy(x)).numpy()).max() <= 1e-5


@pytest.mark.parametrize("operation", STEMS)
def test_a_stem_of_aw_nas_is_trained_as_it_is_written(operation: str, tmp_path: Path) -> None:
    begin = partial(stem, operation=operation, channels=6, stride=2)
    layout = dataclasses.replace(LAYOUT, input_shape=(1, 3, 32, 32), stem=begin)
    tagged = tagged_net(layout, [PRIMITIVES["VGGblock_1"]] * 3)
    halved = {"imagenet_stem0": 2, "imagenet_stem1": 3}.get(operation, 1)
    assert begin(Trace((layout.input_shape,)).input()).shape == (1, 6, 32 >> halved, 32 >> halved)
    module = build(tagged, None, seed=0).eval()
    state = state_of(module)
    assert any(name.startswith("stem.0.") for name in state)
    content = write_net(tagged.net, tmp_path / "m.onnx", weights=model_weights(tagged, state)).read_bytes()
    x = np.random.default_rng(1).standard_normal(layout.input_shape).astype(np.float32)
    with torch.no_grad():
        assert np.abs(by_onnx(content, x) - module(torch.from_numpy(x)).numpy()).max() <= 1e-5
