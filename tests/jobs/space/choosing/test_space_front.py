"""The best networks of the full space: told from a profile alone, measured, and no evidence of any later choice."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.jobs.space.kits.spacekit import CONFIG, write_images
from tests.jobs.space.kits.studykit import LAYERS, accuracy, latency, made, study, synthetic, timed, trained
from tests.jobs.space.kits.trainerkit import trained_alike, trainers  # noqa: F401

from gnomon.api import space as api
from gnomon.core.front.dominance import nondominated
from gnomon.errors import ProblemError, UsageError
from gnomon.jobs.space.choosing.front import FRONT
from gnomon.jobs.space.profiling.estimates import latest, seen_networks
from gnomon.jobs.space.profiling.folder import read_accuracy, read_latency
from gnomon.jobs.space.profiling.images import keep_calibration, kept_calibration
from gnomon.jobs.space.profiling.study import Study

pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("front") / "p"
    synthetic(path, study(LAYERS), accuracy, latency)
    return path


def predicted(path: Path, **options: Any) -> dict[str, Any]:
    return api.find_front(path, measure=False, **options).document()


def test_what_is_predicted_is_told_and_written(profile: Path) -> None:
    found = predicted(profile, networks=12)
    assert json.loads((profile / FRONT).read_text()) == json.loads(json.dumps(found, allow_nan=False))
    assert (found["space"], found["method"], found["toolchain"]) == ("25", "fair", "onnxruntime")
    assert found["measured"] is None and len(found["networks"]) == 12
    assert all(one["measured"] is None and not one["best"] for one in found["networks"])
    assert found["on_front"] == sum(one["on_front"] for one in found["networks"])
    told = [one["predicted"] for one in found["networks"] if one["on_front"]]
    points = np.array([[one["latency_s"][0], -one["accuracy"][0]] for one in told])
    assert len(nondominated(points)) == len(points), "none of the front is worse than another in both"
    one = study(LAYERS)
    for row in found["networks"]:
        network = one.mixed(row["primitives"])
        assert network.id == row["id"]
        assert row["predicted"]["latency_s"][0] == pytest.approx(latency(network), rel=0.02)
        assert row["predicted"]["accuracy"][0] == pytest.approx(accuracy(network), abs=0.03)


def test_a_latency_bounds_it_and_one_that_none_keeps_is_refused(profile: Path) -> None:
    whole = predicted(profile)["networks"]
    bound = whole[2]["predicted"]["latency_s"][0]
    found = predicted(profile, latency_s=bound)
    assert found["latency_bound_s"] == bound
    assert [one["predicted"]["latency_s"][0] <= bound for one in found["networks"]] == [True] * len(found["networks"])
    with pytest.raises(ProblemError, match=r"--latency 1\.00 us: no network is predicted"):
        predicted(profile, latency_s=1e-6)
    for wrong in (0, 1001):
        with pytest.raises(UsageError, match="a front cannot have"):
            predicted(profile, networks=wrong)


def test_of_what_select_kept_it_is_the_front_and_the_share_that_select_promised(tmp_path: Path) -> None:
    path = tmp_path / "p"
    synthetic(path, study(LAYERS), accuracy, latency)
    with pytest.raises(UsageError, match="has no selection next to it"):
        predicted(path, kept=path / "output.yaml")
    kept = api.select_primitives(path, most_share=0.5)
    found = predicted(path, kept=Path(kept.output))
    assert all(
        name in names for one in found["networks"] for name, names in zip(one["primitives"], kept.groups, strict=True)
    )
    assert kept.share_kept is not None
    assert found["share"][0] == pytest.approx(kept.share_kept[0], abs=0.05)
    assert found["share"][0] < predicted(path)["share"][0]


def test_a_choice_of_another_space_or_a_damaged_one_is_refused(profile: Path, tmp_path: Path) -> None:
    kept, output = api.select_primitives(profile, most_share=0.5, output=tmp_path / "o.yaml"), tmp_path / "o.yaml"
    selection = tmp_path / "o.selection.json"
    whole = kept.document()
    for groups in ([["Gone_1"], ["VGGblock_1"]], [["VGGblock_1"]]):
        selection.write_text(json.dumps({**whole, "groups": groups}))
        with pytest.raises(ProblemError, match="belong to another profile"):
            predicted(profile, kept=output)
    selection.write_text(json.dumps(whole)[:-20])
    with pytest.raises(ProblemError, match=r"selection\.json"):
        predicted(profile, kept=output)


def with_proofs(path: Path, one: Study) -> None:
    """A profile with networks that were measured for a proof, whose values are far from what the others tell."""
    synthetic(path, one, accuracy, latency)
    folder = made(path, one)
    names = list(one.primitives)
    for a in range(5):
        network = one.mixed([names[a], names[(a + 2) % 5]])
        folder.add(trained(network, 0.4 + 0.1 * a, method="validation", seed=1000))
        folder.add(timed(network, 3 * latency(network), key=f"onnxruntime/1/{network.id}", proof=True))
    folder.close()


def choice(path: Path, out: Path, *, proofs: bool = False) -> tuple[dict[str, Any], str, list[Any]]:
    chosen = api.select_primitives(path, most_share=0.5, proofs=proofs, output=out)
    document = chosen.document()
    told = [one["predicted"] for one in predicted(path, proofs=proofs)["networks"]]
    assert chosen.lookup is not None
    return {k: document[k] for k in ("groups", "share_kept", "lookup_model")}, Path(chosen.lookup).read_text(), told


def test_what_was_measured_for_a_proof_changes_nothing_unless_that_is_asked_for(profile: Path, tmp_path: Path) -> None:
    with_proofs(tmp_path / "p", study(LAYERS))
    before, after = choice(profile, tmp_path / "a.yaml"), choice(tmp_path / "p", tmp_path / "b.yaml")
    assert after == before
    assert json.loads((tmp_path / "b.selection.json").read_text())["proofs"] == []
    asked = choice(tmp_path / "p", tmp_path / "c.yaml", proofs=True)
    assert len(json.loads((tmp_path / "c.selection.json").read_text())["proofs"]) == 5
    assert asked[1] != before[1] and asked[2] != before[2]
    shown = api.show_space(tmp_path / "p")
    assert len(shown.latency[0].networks) == len(api.show_space(profile).latency[0].networks)


def test_proofs_do_not_stand_beside_networks_that_were_tuned() -> None:
    one = study()
    network = one.families["VGG"].swaps()[0]
    rows = [trained(network, 0.9, method="published"), trained(network, 0.8, method="validation")]
    assert seen_networks(one, rows, "published")[network.id].accuracy == 0.9
    with pytest.raises(UsageError, match="cannot be compared with the method published"):
        seen_networks(one, rows, "published", proofs=True)


def test_the_noise_of_a_proof_is_that_of_the_profile() -> None:
    one = study()
    first, second = one.families["VGG"].swaps()[:2]
    rows = [trained(first, value, seed=k) for k, value in enumerate((0.8, 0.9, 0.85))]
    rows += [trained(second, 0.8, method="validation", seed=1000)]
    alone = seen_networks(one, rows[3:], "validation")[second.id].error
    assert seen_networks(one, rows, "validation")[second.id].error > max(0.05, alone)


def test_images_for_calibration_are_kept_and_others_refused(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (4, 1, 8, 8)).astype(np.uint8)
    keep_calibration(None, tmp_path)
    assert kept_calibration(tmp_path) is None
    for _ in range(2):
        keep_calibration(images, tmp_path)
    assert np.array_equal(kept_calibration(tmp_path), images)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"the calibration images of .* changed"):
        keep_calibration(images[:3], tmp_path)


# From here on networks are trained and measured.

CALIBRATED = CONFIG.replace(
    "  select_ss_threshold: 2\n", "  calib_data: {source: calib.txt, root_folder: c}\n  select_ss_threshold: 2\n"
)
INT8 = "onnxruntime-int8"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, trained_alike: None) -> Path:  # noqa: F811
    """The profile of a config that names images for calibration, whose folder is gone since."""
    for name in ("torch", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install '.[space]'")
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install '.[space]'")
    folder = tmp_path_factory.mktemp("measured")
    (folder / "beside" / "c").mkdir(parents=True)
    for k in range(3):
        pixels = np.random.default_rng(k).integers(0, 255, (8, 8)).astype(np.uint8)
        image.fromarray(pixels).save(folder / "beside" / "c" / f"{k}.png")
    (folder / "beside" / "calib.txt").write_text("0.png\n1.png\n2.png\n")
    (folder / "beside" / "config.yaml").write_text(CALIBRATED)
    ask(folder)
    (folder / "beside" / "calib.txt").unlink()
    api.select_primitives(folder / "p", most_share=1)
    return folder


def ask(folder: Path) -> None:
    api.profile_space(
        folder / "beside" / "config.yaml",
        folder / "p",
        toolchains=(INT8,),
        mixed=2,
        data=write_images(folder),
        networks=4,
        epochs=1,
        workers=1,
        record=folder / "record.sqlite",
    )


def front(folder: Path) -> dict[str, Any]:
    record = folder / "record.sqlite"
    return api.find_front(folder / "p", networks=3, epochs=1, workers=1, record=record).document()


def chosen(folder: Path, out: Path) -> tuple[Any, ...]:
    found = api.select_primitives(folder / "p", most_share=1, output=out)
    assert found.lookup is not None
    return found.groups, Path(found.lookup).read_text(), found.document()["share_kept"]


@pytest.mark.slow
def test_the_front_is_measured_once_as_the_profile_measures_and_changes_no_choice(
    measured: Path, tmp_path: Path
) -> None:
    where = measured / "p"
    before, seen = chosen(measured, tmp_path / "a.yaml"), (where / "models" / INT8 / "calibration.npz").read_bytes()
    rows = {row.key for row in read_latency(where)}
    found = front(measured)
    assert len(found["networks"]) == 3 == found["measured"]["networks"]
    fresh = [row for row in read_latency(where) if row.key not in rows]
    assert {row.network for row in fresh} == {one["id"] for one in found["networks"]}
    assert all(row.proof and row.toolchain == INT8 for row in fresh)
    assert {r.network for r in read_accuracy(where) if r.method == "validation"} == {row.network for row in fresh}
    with np.load(where / "models" / INT8 / "calibration.npz") as now:
        assert len(now["x"]) == 3, "the images that the config names"
    assert (where / "models" / INT8 / "calibration.npz").read_bytes() == seen
    for one in found["networks"]:
        told = one["measured"]
        assert told["accuracy"][1] <= told["accuracy"][0] <= told["accuracy"][2]
        assert told["latency_s"][0] > 0 and told["reason"] == ""
    best = [one["measured"] for one in found["networks"] if one["best"]]
    points = np.array([[one["latency_s"][0], -one["accuracy"][0]] for one in best])
    assert len(nondominated(points)) == len(points) == found["measured"]["best"]
    assert chosen(measured, tmp_path / "b.yaml") == before
    lines = {path.name: path.read_bytes() for path in where.glob("*.jsonl")}
    assert front(measured) == found, "the same command finds the same networks"
    assert {path.name: path.read_bytes() for path in where.glob("*.jsonl")} == lines


@pytest.mark.slow
def test_a_profile_without_its_calibration_images_says_what_to_do(measured: Path) -> None:
    kept = measured / "p" / "calibration.npz"
    moved = kept.rename(measured / "calibration.npz")
    try:
        with pytest.raises(UsageError, match="lacks the calibration images") as refused:
            front(measured)
        assert "Repeat the command" in refused.value.hint
    finally:
        moved.rename(kept)


@pytest.mark.slow
def test_what_was_measured_for_a_proof_is_evidence_once_the_profile_asks_for_it(measured: Path) -> None:
    """As where a network could not be trained, and was measured with the weights that the profile would take."""
    where = measured / "p"
    before = {row.key: row for row in read_latency(where)}
    one = next(row for row in before.values() if not row.proof)
    with (where / "latency.jsonl").open("a") as journal:
        journal.write(json.dumps(asdict(replace(one, proof=True))) + "\n")
    assert one.network not in latest({row.key: row for row in read_latency(where)}.values(), INT8)
    (measured / "beside" / "calib.txt").write_text("0.png\n1.png\n2.png\n")
    ask(measured)
    after = {row.key: row for row in read_latency(where)}
    assert after == before and one.network in latest(after.values(), INT8)
