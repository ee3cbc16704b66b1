"""`gnomon space` on a tiny profile: each command, its documents, its errors, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.space.kits.spacekit import CONFIG, write_images
from tests.jobs.space.kits.trainerkit import trained_alike, trainers  # noqa: F401

from gnomon.api import space as api
from gnomon.cli.main import run
from gnomon.jobs.space.profiling.folder import ACCURACY, LATENCY, read_accuracy
from gnomon.jobs.space.profiling.look import look

pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
TINY = CONFIG.replace("VGGblock_1, VGGblock_2, Mobileblock_0, Mobileblock_1", "VGGblock_1, VGGblock_2, VGGblock_3")
MEASURING = ("--quiet",)


def call(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = run(["space", *map(str, args)])
    told = capsys.readouterr()
    return code, told.out, told.err


def document(capsys: pytest.CaptureFixture[str], *args: object) -> dict[str, Any]:
    code, out, _ = call(capsys, *args, "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def config(folder: Path) -> Path:
    path = folder / "config.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, trained_alike: None) -> Path:  # noqa: F811
    """A folder with a config, images, and a profile that the command made."""
    folder = tmp_path_factory.mktemp("command")
    where = ["space", "profile", str(config(folder)), "--profile-dir", str(folder / "p")]
    train = ["--data", write_images(folder), "--epochs", "1", "--networks", "4", "--workers", "1"]
    measure = ["--mixed", "0", "--record", str(folder / "record.sqlite"), *MEASURING]
    assert run([*where, *train, *measure]) == 0
    return folder


def test_profile_goes_on_and_its_document_is_that_of_python(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {name: (made / "p" / name).read_bytes() for name in (ACCURACY, LATENCY)}
    source = f"npz:{made / 'images.npz'}"
    where = ("profile", made / "config.yaml", "--profile-dir", made / "p", "--data", source)
    found = document(capsys, *where, "--epochs", "1", "--networks", "4", "--workers", "1", "--mixed", "0", *MEASURING)
    assert {name: (made / "p" / name).read_bytes() for name in before} == before
    done = api.profile_space(
        made / "config.yaml",
        made / "p",
        mixed=0,
        data=source,
        epochs=1,
        networks=4,
        workers=1,
    ).document()
    assert found.keys() == done.keys()
    assert {k: v for k, v in found.items() if k != "seconds"} == json.loads(
        json.dumps({k: v for k, v in done.items() if k != "seconds"})
    )
    assert found["latency"][0]["toolchain"] == "onnxruntime" and found["accuracy"]["method"] == "balanced"


def test_show_tells_the_same_and_draws(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "show", made / "p")
    assert found == look(made / "p").document()
    code, out, err = call(capsys, "show", made / "p", "-v", "--pictures", tmp_path / "pictures")
    assert (code, err) == (0, "")
    assert "VGG" in out and "balanced" in out
    drawn = document(capsys, "show", made / "p", "--pictures", tmp_path / "pictures")
    assert drawn["pictures"] and all((tmp_path / "pictures" / Path(p).name).is_file() for p in drawn["pictures"])


def test_networks_go_out_and_come_in_again(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, again = tmp_path / "nets.csv", tmp_path / "again.csv"
    told = document(capsys, "export", made / "p", "-o", first)
    assert told["file"] == str(first) and told["rows"] == len(first.read_text().splitlines()) - 1
    assert told["accuracies"] == 4 and told["latencies"] == 7 <= told["rows"]
    found = document(capsys, "import", first, "--config", made / "config.yaml", "--profile-dir", tmp_path / "q")
    assert found["latency"][0]["imported"] == {"nets.csv": told["latencies"]}
    code, out, err = call(capsys, "import", first, "-v", "--profile-dir", tmp_path / "q")
    assert (code, err) == (0, "") and "Imported from nets.csv" in out
    code, out, err = call(capsys, "export", tmp_path / "q", "-o", again)
    assert (code, err) == (0, "") and "with an accuracy" in out
    # Without images nothing tells what a network needs that only its accuracy came in of.
    for before, after in zip(first.read_text().splitlines(), again.read_text().splitlines(), strict=True):
        assert after in (before, f"{before.rsplit(',', 3)[0]},,,")
    assert sum(line.endswith(",,,") for line in again.read_text().splitlines()) == told["rows"] - told["latencies"]
    known = api.open_profile(tmp_path / "q")
    assert all(known.latency_s(names).known for names in known.networks)


def test_front_is_told_drawn_and_measured_once(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = ("--record", made / "record.sqlite")
    args = ("front", made / "p", "--networks", "2", "--epochs", "1", "--workers", "1", *record, *MEASURING)
    found = document(capsys, *args)
    assert len(found["networks"]) == 2 == found["measured"]["networks"]
    before = {name: (made / "p" / name).read_bytes() for name in (ACCURACY, LATENCY)}
    code, out, err = call(capsys, *args, "--picture", tmp_path / "front.svg")
    assert (code, err) == (0, "") and "2 networks measured" in out and len(out.splitlines()) <= 15
    assert {name: (made / "p" / name).read_bytes() for name in before} == before
    assert (tmp_path / "front.svg").read_text().lstrip().startswith("<")
    slow = 1e3 * found["networks"][0]["predicted"]["latency_s"][0]
    code, out, _ = call(capsys, "front", made / "p", "--no-measure", "--quiet", "--latency", f"{1.01 * slow:.9f}ms")
    assert code == 0 and "are expected to reach" in out
    assert call(capsys, "front", made / "p", "--no-measure", "--quiet", "--latency", "1ns")[0] == 3


def test_errors_are_a_line_and_a_hint_with_their_code(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.yaml").write_text("search_space_cfg: 3\n")
    cases: list[tuple[int, str, tuple[object, ...]]] = [
        (2, "cannot be read", ("profile", tmp_path / "absent.yaml", "--profile-dir", tmp_path / "x")),
        (3, "weights_manager_cfg", ("profile", tmp_path / "bad.yaml", "--profile-dir", tmp_path / "x")),
        (2, "images to train on", ("profile", made / "config.yaml", "--profile-dir", tmp_path / "x")),
        (2, "does not show what the file contains", ("import", tmp_path / "bad.yaml", "--profile-dir", tmp_path / "x")),
        (2, "openvino", ("select", made / "p", "--toolchain", "openvino")),
        (2, "not a profile", ("front", tmp_path / "x")),
        (2, "is not a picture", ("front", made / "p", "--picture", "front.gif")),
        (2, "not a profile", ("show", tmp_path)),
    ]
    for code, told, args in cases:
        found, out, err = call(capsys, *args, *(() if args[0] in ("select", "show", "import") else ("--quiet",)))
        assert (found, out) == (code, ""), (args, err)
        assert told in err
        lines = err.strip().splitlines()
        assert len(lines) == 2 and lines[1].startswith("hint: "), err
        in_json = call(capsys, *args, "--json")
        assert in_json[0] == code and told in json.loads(in_json[1])["error"]["message"]
        assert json.loads(in_json[1])["error"]["hint"]
    assert not (tmp_path / "x").exists()


def test_a_data_set_of_aw_nas_has_its_source_and_its_option_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text(TINY + "dataset_type: cifar10\n")
    profile = ("profile", tmp_path / "c.yaml", "--profile-dir", tmp_path / "x", "--quiet")
    assert "cifar10, give --data torchvision:CIFAR10 --download DIR" in call(capsys, *profile)[2]
    assert "hint: Give --download DIR" in call(capsys, *profile, "--data", "torchvision:CIFAR10")[2]


def alive(folder: Path) -> list[int]:
    """The processes that work for a command with this TMPDIR."""
    mark, found = f"TMPDIR={folder}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_an_interrupt_in_training_leaves_no_worker_and_the_folder_goes_on(tmp_path: Path) -> None:
    """As a terminal does it: the signal goes to every process of the group."""
    (tmp_path / "tmp").mkdir()
    command = ["space", "profile", str(config(tmp_path)), "--profile-dir", str(tmp_path / "p")]
    command += ["--data", write_images(tmp_path), "--no-latency", "--workers", "1", "--networks", "1", "--quiet"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    journal = tmp_path / "p" / ACCURACY
    started = subprocess.Popen(
        [sys.executable, "-c", "from gnomon.cli.main import main; main()", *command, "--epochs", "200"],
        cwd=ROOT,
        env=environment,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    partial = tmp_path / "p" / "checkpoints" / "partial"
    while not list(partial.glob("*.pt")):
        assert started.poll() is None
        time.sleep(0.02)
    os.killpg(started.pid, signal.SIGINT)
    _, err = started.communicate()
    assert started.returncode == 130
    assert err.strip().splitlines() == ["interrupted: the measurements are kept, and the same command resumes"]
    while alive(tmp_path / "tmp"):  # or the limit that all tests have is met
        time.sleep(0.05)
    rows = len(list(read_accuracy(tmp_path / "p"))) if journal.exists() else 0
    assert run([*command, "--epochs", "1"]) == 0  # in this process, which has PyTorch already
    assert len(list(read_accuracy(tmp_path / "p"))) == rows + 3
