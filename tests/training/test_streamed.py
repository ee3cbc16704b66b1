"""Data sets that are read as they are needed: folders of any sizes, and what a user's function returns."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.trainkit import CLASSES, SIZE, Killed, check_same, dataset_of, job, kill_after, shapes

from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.training.data.dataset import Images
from gnomon.training.data.pictures import fitted
from gnomon.training.data.streamed import Origin, Streamed, open_streamed
from gnomon.training.loop import TrainJob, train
from gnomon.training.recipe import Recipe

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install '.[space]'")

ROOT = Path(__file__).resolve().parents[2]
SHARES = (0.2, 0.2)


def opened(origin: Origin, *, classes: int = CLASSES, augment: str = "none") -> Streamed:
    return open_streamed("images", origin, classes=classes, shares=SHARES, seed=3, augment=augment)


def own(folder: Path, text: str, **more: Any) -> Origin:
    """The origin of a file's function `made`."""
    path = folder / "own.py"
    path.write_text("import numpy as np\nimport torch\nfrom torch.utils.data import Dataset, Subset\n\n" + text)
    return Origin(kind="dataset", place=f"{path}:made", **more)


def every() -> Images:
    parts = (shapes().train, shapes().validation, shapes().test)
    return Images(x=np.concatenate([part.x for part in parts]), y=np.concatenate([part.y for part in parts]))


def folder_of_any_sizes(root: Path, images: Images) -> Origin:
    """Each image on a canvas of its own shape, larger by a half or not, as PNG or JPEG."""
    for k, (x, y) in enumerate(zip(images.x[:, 0], images.y, strict=True)):
        (root / f"class{y}").mkdir(parents=True, exist_ok=True)
        picture = image.fromarray(x).resize((SIZE * (2 + k % 3), SIZE * (2 + (k + 1) % 2)))
        picture.save(root / f"class{y}" / f"{k:04}.{('png', 'jpg')[k % 2]}")
    return Origin(kind="folder", place=str(root), resize=SIZE)


def trained(data: Any, *, augment: Any = "none", epochs: int = 2) -> TrainJob:
    made = job("VGGblock_1", epochs)
    return replace(made, data=data, recipe=replace(made.recipe, augment=augment))


ARRAYS = """
class Arrays(Dataset):
    def __init__(self, file):
        with np.load(file) as stored:
            self.x, self.y = stored["x"], stored["y"]
        self.targets = self.y.tolist()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, k):
        return self.x[k, 0], int(self.y[k])


def made():
    return Arrays(FILE)
"""


def test_a_function_of_the_same_images_trains_as_they_do_in_memory(tmp_path: Path) -> None:
    """All 256 or fewer training images are in the sample of which the mean is taken, so that nothing differs."""
    images = every()
    np.savez(tmp_path / "x.npz", x=images.x, y=images.y)
    streamed = opened(own(tmp_path, ARRAYS.replace("FILE", repr(str(tmp_path / "x.npz")))))
    held = dataset_of("images", images, seed=3)
    assert {part: streamed.count(part) for part in ("train", "validation", "test")} == {
        part: held.count(part) for part in ("train", "validation", "test")
    }
    assert (streamed.shape, streamed.mean, streamed.std) == (held.shape, held.mean, held.std)
    np.testing.assert_array_equal(streamed.some("test", np.arange(9)), held.test.x[:9])
    check_same(train(trained(streamed)), train(trained(held)))


def test_a_folder_of_any_sizes_is_trained_on_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = opened(folder_of_any_sizes(tmp_path / "images", every()), augment="resized-crop")
    assert data.shape == (1, SIZE, SIZE) and not data.floats
    whole = trained(data, augment="resized-crop", epochs=4)
    kill_after(monkeypatch, 2)
    with pytest.raises(Killed):
        train(whole, partial=tmp_path / "partial.pt")
    done = train(whole, partial=tmp_path / "partial.pt")
    check_same(done, train(whole))
    assert done.samples == 4 * data.count("train")


@pytest.mark.slow
def test_processes_that_read_change_nothing(tmp_path: Path) -> None:
    origin = folder_of_any_sizes(tmp_path / "images", every())
    alone = train(trained(opened(origin), augment="crop-flip"))
    check_same(train(trained(opened(replace(origin, loaders=1)), augment="crop-flip")), alone)


def test_images_learn_in_a_folder_of_parts_and_its_digest_is_of_what_it_holds(tmp_path: Path) -> None:
    images, root = every(), tmp_path / "images"
    for name, rows in (("train", slice(0, 90)), ("val", slice(90, 120)), ("test", slice(120, 150))):
        folder_of_any_sizes(root / name, images.take(np.arange(len(images))[rows]))
    origin = Origin(kind="folder", place=str(root), resize=SIZE)
    data = opened(origin)
    assert [data.count(part) for part in ("train", "validation", "test")] == [90, 30, 30]
    assert opened(origin).digest == data.digest and data.open() is data
    image.new("RGB", (40, 30), (255, 0, 0)).save(next((root / "train" / "class0").iterdir()))
    other = opened(origin)
    assert other.digest != data.digest and other.shape == (3, SIZE, SIZE), "one picture in colour makes all of them so"
    assert opened(replace(origin, resize=8)).digest != other.digest


def test_other_images_than_those_of_the_profile_are_refused_where_they_are_opened(tmp_path: Path) -> None:
    origin = folder_of_any_sizes(tmp_path / "images", every().take(np.arange(60)))
    data = opened(origin)
    stale = replace(data, digest="other", items={"train": "0" * 128})
    with pytest.raises(ProblemError, match=r"the images of .* have changed") as refused:
        train(trained(stale))
    assert "Restore the images" in refused.value.hint


def test_pictures_are_cut_and_scaled() -> None:
    wide = image.new("L", (60, 30))
    wide.paste(255, (15, 0, 45, 30))  # the middle square
    made = np.asarray(fitted(wide, 10, None))
    assert made[:, 1:-1].min() == 255 and made.min() > 200, "a pixel at the edge sees a little beyond it"
    tall = image.new("L", (30, 50), 7)
    assert fitted(tall, 24, None).size == (24, 24)
    noise = image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 48), dtype=np.uint8))
    cuts = [np.asarray(fitted(noise, 16, np.random.default_rng(seed))) for seed in (1, 1, 2)]
    assert np.array_equal(cuts[0], cuts[1]) and not np.array_equal(cuts[0], cuts[2])
    assert fitted(image.new("L", (500, 2)), 8, np.random.default_rng(0)).size == (8, 8), "no window lies within"


def test_a_picture_that_breaks_off_ends_all_with_its_name(tmp_path: Path) -> None:
    origin = folder_of_any_sizes(tmp_path / "images", every().take(np.arange(200)))
    data = opened(origin)
    for path in (tmp_path / "images").rglob("*.jpg"):
        path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ProblemError, match=r"item \d+ of train: .*\.jpg: the image cannot be read"):
        train(trained(data))


DRAWS = """
import random


class Drawn(Dataset):
    def __init__(self, count):
        self.count, self.labels = count, [k % 4 for k in range(count)]

    def __len__(self):
        return self.count

    def __getitem__(self, k):
        noise = torch.rand(1, 12, 12) + float(np.random.rand()) + random.random()
        return noise + k % 4, torch.tensor(k % 4)


def made():
    return {"train": Drawn(40), "validation": Drawn(8), "test": Drawn(8)}
"""


def test_own_transforms_draw_from_the_seed_and_the_epoch_and_leave_nothing_behind(tmp_path: Path) -> None:
    data = opened(own(tmp_path, DRAWS))
    assert data.floats and (data.mean, data.std, data.notes) == ((0.0,), (1.0,), ())
    supply = data.supply("cpu", Recipe(epochs=1, batch_size=16), seed=1)

    def sums(batches: Any) -> list[float]:
        return [float(x.sum()) for x, _ in batches]

    random.seed(5)
    before = random.getstate(), torch.get_rng_state()
    first = sums(supply.training(0))
    assert len(first) == 3 and sums(supply.training(0)) == first and sums(supply.training(1)) != first
    assert sums(supply.evaluation("test")) == sums(supply.evaluation("test"))
    other = data.supply("cpu", Recipe(epochs=1, batch_size=16), seed=2)
    assert sums(other.training(0)) != first and sums(other.evaluation("test")) == sums(supply.evaluation("test"))
    assert random.getstate() == before[0] and torch.equal(torch.get_rng_state(), before[1])
    check_same(train(trained(data)), train(trained(data)))


def test_items_that_nobody_can_repeat_are_told_of(tmp_path: Path) -> None:
    text = DRAWS.replace("torch.rand(1, 12, 12)", "torch.from_numpy(RNG.random((1, 12, 12), np.float32))")
    data = opened(own(tmp_path, "RNG = np.random.default_rng()\n" + text))
    assert data.open() is data and "32 of 32 items of train differ each time" in data.notes[0]
    assert opened(own(tmp_path, "RNG = np.random.default_rng()\n" + text)).digest == data.digest


def test_classes_are_those_of_the_items_where_a_data_set_tells_others(tmp_path: Path) -> None:
    subset = "\n\nplain = made\ndef made():\n    parts = plain()\n"
    subset += "    return {**parts, 'train': Subset(parts['train'], [3, 2, 1] * 9)}\n"
    for others in ("[0] * count", "[0] * (count - 1)", "[0.5] * count", "None"):
        text = DRAWS.replace("[k % 4 for k in range(count)]", others) + subset
        assert opened(own(tmp_path, text)).labels["train"].tolist() == [3, 2, 1] * 9


MAKES = "class D(Dataset):\n    def __len__(self):\n        return 40\n    def __getitem__(self, k):\n        {}\n"
MAKES += "def made():\n    return D()\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("made = 3", "cannot be called: TypeError"),
        ("def made(): return 1 / 0", r"cannot be called: ZeroDivisionError.*own.py, line 5"),
        ("def made(): return []", "returns a list as train, which has no items or no length"),
        ("def made(): return {'train': [1], 'more': [1]}", "returns the wrong parts: train, more"),
        (MAKES.format("return torch.zeros(1, 8, 8), k"), "classes from 0 to 39"),
        (MAKES.format("return torch.zeros(8), 1"), r"a torch.float32 tensor of shape \[8\] is not an image"),
        (MAKES.format("return np.zeros((8, 8)), 1"), r"float64\[8, 8\] is not an image"),
        (MAKES.format("return torch.zeros(1, 8, 8)"), "item 0 of train cannot be read: ValueError"),
        (MAKES.format("raise OSError('no disk')"), r"item 0 of train cannot be read: OSError: no disk.*own.py, line"),
    ],
)
def test_what_is_no_data_set_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(GnomonError, match=told) as refused:
        opened(own(tmp_path, text))
    assert refused.value.hint


def test_pictures_alone_are_made_another_size_or_augmented(tmp_path: Path) -> None:
    tensors = MAKES.format("return torch.zeros(1, 12, 12), k % 4")
    for more, augment in (({"resize": 8}, "none"), ({}, "crop-flip")):
        with pytest.raises(ProblemError, match="are for pictures"):
            opened(own(tmp_path, tensors, **more), augment=augment)
    pictures = "from PIL import Image\n" + MAKES.format("return Image.new('RGB', (20 + k, 30)), k % 4")
    assert opened(own(tmp_path, pictures, resize=8), augment="resized-crop").shape == (3, 8, 8)
    with pytest.raises(ProblemError, match="has no size"):
        opened(own(tmp_path, pictures), augment="resized-crop")


def test_a_module_of_a_package_gives_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gnomon_test_images").mkdir()
    (tmp_path / "gnomon_test_images" / "__init__.py").write_text("")
    own(tmp_path / "gnomon_test_images", DRAWS)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert opened(Origin(kind="dataset", place="gnomon_test_images.own:made")).count("train") == 40
    with pytest.raises(UsageError, match=r"the module gnomon_test_images\.none cannot be imported"):
        opened(Origin(kind="dataset", place="gnomon_test_images.none:made"))


LIMITED = """
import resource, sys
from pathlib import Path
from tests.training.test_streamed import opened, trained
from gnomon.errors import GnomonError
from gnomon.training.data.sources import load_images
from gnomon.training.data.streamed import Origin
from gnomon.training.loop import train

train(trained(opened(Origin(kind="folder", place=sys.argv[1], resize=12)), epochs=1))  # all that is loaded is
held = int(next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmData")).split()[1])
limit = (held << 10) + (32 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
done = train(trained(opened(Origin(kind="folder", place=sys.argv[1], resize=12)), epochs=1))
print(done.failure, done.epochs)
try:
    load_images(f"folder:{sys.argv[1]}")
except (MemoryError, GnomonError) as error:
    print("not all at once", "MemoryError" in f"{type(error)}{error}")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of a process's memory is Linux's")
def test_memory_is_that_of_a_batch_and_not_of_the_images(tmp_path: Path) -> None:
    """Pictures that take 80 MiB are trained on with 32 MiB above what the libraries take."""
    for k in range(80):
        (tmp_path / f"class{k % 4}").mkdir(exist_ok=True)
        image.new("L", (1024, 1024), k).save(tmp_path / f"class{k % 4}" / f"{k}.png", compress_level=1)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["None 1", "not all at once True"], done.stderr
