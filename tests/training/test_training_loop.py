"""Training: what it learns, that it goes on to the last bit, and that failures are data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.training.trainkit import CLASSES, FAMILIES, SIZE, Killed, check_same, job, kill_after, net, shapes

from gnomon.errors import ProblemError, UsageError
from gnomon.spaces.cells.space import TaggedNet
from gnomon.spaces.unit import Trace
from gnomon.spaces.work import size_of
from gnomon.training.data.dataset import Dataset, Images
from gnomon.training.loop import TrainJob, read_state, train, write_state
from gnomon.training.network import build
from gnomon.training.recipe import Recipe, check

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def test_a_network_learns_and_its_numbers_hold_together() -> None:
    made = train(job(epochs=8))
    assert made.failure is None and made.notes == ()
    assert made.correct is not None and made.test_accuracy is not None and made.state is not None
    assert made.test_accuracy > 0.6
    assert made.accuracies[-1] == pytest.approx(made.correct.mean())
    assert made.losses[-1] < made.losses[0]
    assert (made.epochs, made.samples) == (8, 8 * len(shapes().train))
    assert made.macs == size_of(net("VGGblock_1").net).macs
    module = build(net("VGGblock_1"), made.state, seed=0).eval()
    mean, std = shapes().mean[0], shapes().std[0]
    with torch.no_grad():
        found = module(torch.from_numpy((shapes().test.x.astype(np.float32) - mean) / std)).argmax(1).numpy()
    assert (found == shapes().test.y).mean() == pytest.approx(made.test_accuracy, abs=0.02)


SGD, ADAM = {"type": "SGD", "lr": 0.05, "momentum": 0.9}, {"type": "AdamW", "lr": 0.01}


@pytest.mark.parametrize(
    ("name", "optimizer", "scheduler"),
    [
        (FAMILIES[0], SGD, None),
        (FAMILIES[1], ADAM, {"type": "CosineAnnealingLR", "T_max": 4}),
        (FAMILIES[2], SGD, {"type": "MultiStepLR", "milestones": [2, 3]}),
        (FAMILIES[0], ADAM, {"type": "OneCycleLR", "max_lr": 0.1, "total_steps": 5}),
    ],
)
def test_a_training_in_parts_equals_one_in_a_single_go(
    name: str,
    optimizer: dict[str, Any],
    scheduler: dict[str, Any] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = Recipe(epochs=4, optimizer=optimizer, scheduler=scheduler, batch_size=32, augment="crop-flip")
    whole, path = dataclasses.replace(job(name), recipe=recipe), tmp_path / "partial.pt"
    kill_after(monkeypatch, 1, 3)
    for epochs in (1, 3):
        with pytest.raises(Killed):
            train(whole, partial=path)
        assert len(torch.load(path, weights_only=True)["history"]) == epochs
    again = train(whole, partial=path)
    assert again.notes == ()
    check_same(again, train(whole))
    check_same(train(whole, partial=path), again)  # nothing is left to train
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_of_another_training_or_a_broken_one_is_in_the_notes(tmp_path: Path) -> None:
    path = tmp_path / "partial.pt"
    train(job(epochs=1), partial=path)
    other = train(job("VGGblock_3", epochs=1), partial=path)
    assert "to another training" in other.notes[0]
    content = path.read_bytes()
    clean = train(job("VGGblock_3", epochs=1))
    for broken in (
        content[: len(content) // 2],
        b"\x80\x04cos\nsystem\n.",
        content[:200] + content[300:],
    ):
        path.write_bytes(broken)
        made = train(job("VGGblock_3", epochs=1), partial=path)
        assert "was not used" in made.notes[0]
        check_same(made, clean)


def test_a_file_whose_contents_do_not_fit_is_in_the_notes(tmp_path: Path) -> None:
    path = tmp_path / "partial.pt"
    train(job(epochs=1), partial=path)
    document = torch.load(path, weights_only=True)
    changes: tuple[dict[str, Any], ...] = (
        {"state": {}},
        {"optimizer": {"state": {}, "param_groups": []}},
    )
    for change in changes:
        torch.save({**document, **change}, path)
        assert "was not used" in train(job(epochs=1), partial=path).notes[0]


def test_what_it_is_given_to_begin_with_is_used() -> None:
    first = train(job(epochs=2))
    tuned = dataclasses.replace(job(epochs=1, lr=1e-9), init=first.state)
    made = train(tuned)
    assert made.state is not None and first.state is not None
    for name, array in first.state.items():
        if name.endswith((".weight", ".bias")):
            assert made.state[name] == pytest.approx(array, abs=1e-6)
    assert tuned.digest() != job(epochs=1, lr=1e-9).digest()


def test_the_seed_decides() -> None:
    one = job(epochs=1)
    check_same(train(one), train(one))
    assert train(dataclasses.replace(one, seed=2)).losses != train(one).losses


def test_divergence_is_data() -> None:
    made = train(job(epochs=3, lr=1e30))
    assert made.failure is not None and made.failure.kind == "wrong-output" and "diverged" in made.failure.message
    assert made.state is None and made.correct is None and made.test_accuracy is None


def test_too_little_memory_is_data() -> None:
    trace = Trace(((1, 1, SIZE, SIZE),))
    wide = trace.input().layer("Conv", out_channels=1, kernel=1, pad=1 << 20)  # more than 64 bits of address reach
    x = wide.global_average_pool().linear(CLASSES)
    tagged = TaggedNet(net=trace.net(x), tags=("a/0", "a/1", "a/2"))
    made = train(dataclasses.replace(job(), tagged=tagged))
    assert made.failure is not None and made.failure.kind == "memory" and made.failure.transient


def test_a_device_that_is_not_there_is_data() -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    made = train(dataclasses.replace(job(), device="cuda"))
    assert made.failure is not None and "CUDA" in made.failure.message


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UsageError, match="no device 'tpu'"):
        train(dataclasses.replace(job(), device="tpu"))


def test_a_job_that_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"optimizer\.type"):
        train(dataclasses.replace(job(), recipe=Recipe(epochs=1, optimizer={"type": "x"})))
    with pytest.raises(UsageError, match="cannot be written"):
        train(job(), partial=tmp_path / "none" / "p.pt")


def _numbered(count: int) -> Dataset:
    """Images whose pixels are 1 + their number."""
    x = np.broadcast_to(np.arange(1, count + 1, dtype=np.uint8)[:, None, None, None], (count, 1, 8, 8)).copy()
    part = Images(x=x, y=np.arange(count, dtype=np.int64))
    return Dataset(name="n", classes=count, train=part, validation=part, test=part)


@pytest.mark.parametrize("augment", ["none", "shift", "crop-flip"])
def test_an_epoch_has_every_image_once_in_an_order_of_seed_and_epoch(augment: Any) -> None:
    made, recipe = _numbered(50), Recipe(epochs=1, batch_size=16, augment=augment)
    seen: dict[tuple[int, int], Any] = {}
    for seed, epoch in ((0, 0), (0, 1), (1, 0), (0, 0)):
        batches = list(made.supply("cpu", recipe, seed=seed).training(epoch))
        y = torch.cat([one for _, one in batches])
        x = torch.cat([one for one, _ in batches]) * made.std[0] + made.mean[0]
        assert sorted(y.tolist()) == list(range(50))
        assert torch.equal(x.amax((1, 2, 3)).round().long(), y + 1)
        if augment == "none":
            assert torch.equal(x.amin((1, 2, 3)).round().long(), y + 1)
        else:
            least = x.amin((1, 2, 3)).round().long()
            assert 0 < (least == 0).sum() < 50  # some have a black edge, others were not moved
        before = seen.setdefault((seed, epoch), y)
        assert torch.equal(before, y)
    assert not torch.equal(seen[0, 0], seen[0, 1]) and not torch.equal(seen[0, 0], seen[1, 0])


def test_images_are_mirrored_half_of_the_time() -> None:
    x = np.zeros((400, 1, 8, 8), np.uint8)
    x[:, :, :, 5:] = 255
    part = Images(x=x, y=np.zeros(400, np.int64))
    made = Dataset(name="m", classes=1, train=part, validation=part, test=part)
    for augment, least, most in (("shift", 0, 0), ("crop-flip", 150, 250)):
        recipe = Recipe(epochs=1, augment=augment)  # type: ignore[arg-type]
        batches = torch.cat([one for one, _ in made.supply("cpu", recipe, seed=0).training(0)])
        left = int((batches[..., :4].sum((1, 2, 3)) > batches[..., 4:].sum((1, 2, 3))).sum())
        assert least <= left <= most


def test_a_last_batch_of_one_image_is_left_out() -> None:
    made, recipe = _numbered(33), Recipe(epochs=1, batch_size=16)
    assert [len(y) for _, y in made.supply("cpu", recipe, seed=0).training(0)] == [16, 16]


def test_threads_are_what_they_were() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    train(job(epochs=1))
    assert torch.get_num_threads() == before + 1
    torch.set_num_threads(before)


def test_the_loss_of_the_first_epoch_is_the_mean_over_its_images() -> None:
    """Against a plain loop of PyTorch."""
    one: TrainJob = job(epochs=1)
    check(one.recipe)
    module = build(one.tagged, None, seed=one.seed).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    total = 0.0
    for x, y in shapes().supply("cpu", one.recipe, seed=one.seed).training(0):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
    assert train(one).losses[0] == pytest.approx(total / len(shapes().train), rel=1e-5)


def test_weights_of_pytorchs_own_files_are_not_unpickled(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "w.safetensors")
    with pytest.raises(ProblemError, match="holds no weights"):
        read_state(tmp_path / "w.safetensors")


def test_weights_come_back_as_they_were_and_as_safetensors_reads_them(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    state: dict[str, NDArray[Any]] = {
        "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "a.count": np.array(3, np.int64),
    }
    write_state(tmp_path / "w.safetensors", state)
    for found in (read_state(tmp_path / "w.safetensors"), load_file(tmp_path / "w.safetensors")):
        assert {name: np.asarray(one).tolist() for name, one in found.items()} == {
            name: one.tolist() for name, one in state.items()
        }
