from __future__ import annotations

import bz2
import gzip
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.jobs.tune.tunekit import hand_made
from tests.tuning.tvmkit import needs_tvm

from gnomon.core.overlay.records import UNTUNED, configuration_id
from gnomon.core.overlay.trials import by_layer
from gnomon.core.sample import Failure
from gnomon.errors import ProblemError, UsageError
from gnomon.formats.tuning.logs import FOLDER_FILES
from gnomon.jobs.tune.folder import (
    best_choice,
    chosen_layers,
    model_file,
    one_model,
    only_layers,
    read_logs,
    replayable,
    tune_folder,
    tuner_versions,
)
from gnomon.jobs.tune.records import best_of, write_records

BROKEN = Failure(stage="run", kind="crash", transient=False, message="signal 11")
GOLDEN = Path(__file__).parents[2] / "formats" / "golden" / "tuning"
RECORDS = hand_made(
    "phone",
    {
        "conv2d": {None: (9.0,), 1: (4.0,), 2: (2.0, 3.0, 8.0), 3: BROKEN, 4: (5.0,)},
        "conv2d_1": {None: (1.0,), 1: (2.0,)},
        "dense": {1: (7.0,)},
        "pool": {None: (1.0,), 1: BROKEN},
    },
)


def names(layer: int, numbers: list[int]) -> list[str]:
    return [configuration_id(f"7{layer}", [[number], []]) for number in numbers]


def test_files_and_folders_are_read(tmp_path: Path) -> None:
    path, folder = tmp_path / "a.json", tmp_path / "phone.net.float32"
    write_records(path, RECORDS)
    assert read_logs([path]) == [RECORDS]
    folder.mkdir()
    with pytest.raises(ProblemError, match=FOLDER_FILES[0]):
        read_logs([folder])


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    good, bad = tmp_path / "a.net.float32.json", tmp_path / "b.net.float32.json"
    write_records(good, RECORDS)
    bad.write_bytes(good.read_bytes() + b"{]\n")
    with pytest.raises(ProblemError, match=r"b\.net\.float32\.json: .*line \d+: not JSON"):
        read_logs([good, bad])
    bad.write_bytes(bz2.compress(good.read_bytes()))
    with pytest.raises(
        ProblemError, match=r"(?m)b\.net\.float32\.json.*it is compressed with bzip2: decompress it first$"
    ):
        read_logs([good, bad])


def test_packed_files_and_databases_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "phone.net.float32"
    folder.mkdir()
    for name in FOLDER_FILES:
        (folder / f"{name}.gz").write_bytes(gzip.compress((GOLDEN / "metaschedule" / name).read_bytes()))
    (log := tmp_path / "a.net.float32.json.gz").write_bytes(gzip.compress((GOLDEN / "autotvm-log.json").read_bytes()))
    database, old = read_logs([folder])[0], read_logs([log])[0]
    assert (database.device.key, len(database.trials)) == ("phone", 8)
    assert (old.device.key, old.tuner, len(old.trials)) == ("a", "autotvm", 6)


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json") as raised:
        read_logs([tmp_path / "none.json"])
    assert "gnomon tune list" in raised.value.hint


def test_what_cannot_be_replayed_is_told_with_its_path() -> None:
    replayable([Path("a")], [RECORDS])
    for tuner in ("autotvm", "ansor"):
        with pytest.raises(ProblemError, match=r"^b\.json cannot be replayed: .*today's TVM has no"):
            replayable([Path("a"), Path("b.json")], [RECORDS, replace(RECORDS, tuner=tuner)])
    bare = replace(RECORDS, layers=tuple(replace(layer, workload="") for layer in RECORDS.layers))
    with pytest.raises(ProblemError, match="does not contain the function"):
        replayable([Path("a")], [bare])
    for kind in ("cuda", "vulkan"):
        other = replace(RECORDS, device=replace(RECORDS.device, target={"kind": kind}))
        with pytest.raises(ProblemError, match=rf"its target has the kind '{kind}', .* processors \(kind llvm\)"):
            replayable([Path("a"), Path("b")], [RECORDS, other])


def test_one_model() -> None:
    other = replace(RECORDS, model=replace(RECORDS.model, name="renamed"))
    assert one_model([RECORDS, other]).sha256 == RECORDS.model.sha256
    for change in ({"sha256": "cd" * 32}, {"dtype": "float16"}):
        with pytest.raises(UsageError, match="several models"):
            one_model([RECORDS, replace(RECORDS, model=replace(RECORDS.model, **change))])


def test_layers_by_text_and_number() -> None:
    layers = RECORDS.layers
    assert chosen_layers(layers, ()) == layers
    assert chosen_layers(layers, ["conv"]) == layers[:2]
    assert chosen_layers(layers, ["2", "dense", "1"]) == (layers[2], layers[1])
    assert chosen_layers(layers, ["2d_1"]) == layers[1:2]
    for wrong in ("99", "softmax", ""):
        with pytest.raises(UsageError, match="no layer") as raised:
            chosen_layers(layers, [wrong])
        assert "0 conv2d" in raised.value.hint
    with pytest.raises(UsageError, match="no layer '8'"):  # a number, which no part of a name answers
        chosen_layers([replace(layers[0], name="conv2d.x86")], ["8"])


def test_a_number_means_one_layer_in_whatever_order_logs_have_theirs() -> None:
    turned = replace(RECORDS, layers=RECORDS.layers[::-1])
    assert only_layers([RECORDS, turned], ()) == [RECORDS, turned]
    for one in only_layers([RECORDS, turned], ["0", "pool"]):
        assert {layer.name for layer in one.layers} == {"conv2d", "pool"}
    bare = replace(RECORDS, layers=RECORDS.layers[:1])
    assert [len(one.layers) for one in only_layers([bare, RECORDS], ["dense"])] == [0, 1]
    with pytest.raises(UsageError, match="no layer 'softmax'"):
        only_layers([RECORDS], ["softmax"])


def test_the_best_come_fastest_first() -> None:
    trials = by_layer(RECORDS.trials)
    assert [t.configuration for t in best_of(trials[RECORDS.layers[0].layer])] == names(0, [2, 1, 4])
    assert [t.configuration for t in best_of(trials[RECORDS.layers[0].layer], 2)] == names(0, [2, 1])
    assert best_of(trials.get(RECORDS.layers[3].layer, ())) == []


def test_only_what_is_faster_than_untuned_is_compiled() -> None:
    chosen = {layer.name: trace for layer, trace in best_choice(RECORDS)}
    assert chosen == {"conv2d": [[2], []], "dense": [[1], []]}
    assert UNTUNED not in chosen


def test_the_network_itself(tmp_path: Path) -> None:
    folder = tune_folder(tmp_path)
    assert model_file(folder, RECORDS.model, tmp_path / "given") == tmp_path / "given"
    with pytest.raises(UsageError, match="records contain only its layers") as raised:
        model_file(folder, RECORDS.model, None)
    assert "--model" in raised.value.hint


@needs_tvm
def test_versions_are_those_of_the_packages() -> None:
    assert tuner_versions()["apache-tvm"] == version("apache-tvm")
