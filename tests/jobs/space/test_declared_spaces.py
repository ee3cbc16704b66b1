"""One declaration in Python: its networks are trained, measured and chosen from, its units priced."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.jobs.space.kits.spacekit import write_images
from tests.jobs.space.kits.trainerkit import trained_alike, trainers  # noqa: F401
from tests.jobs.table.table_kit import asked
from tests.report.tuning_kit import text_of

import gnomon
from gnomon.errors import ProblemError, UsageError
from gnomon.jobs.space.profiling.declared import declared_study, is_declared, study_of_text
from gnomon.jobs.space.profiling.folder import read_accuracy, read_latency
from gnomon.jobs.space.report import selection_report
from gnomon.jobs.table.job import build_table
from gnomon.spaces import BlockSpace, Choice, Stage, load_space, skip

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")
pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "torch_space.py"
INPUT = (1, 1, 8, 8)


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory, trained_alike: None) -> Path:  # noqa: F811
    """A folder with the example and a profile of it."""
    folder = tmp_path_factory.mktemp("declared")
    space = f"{shutil.copy(EXAMPLE, folder / 'net.py')}:space"
    gnomon.profile_space(
        space,
        folder / "out",
        data=write_images(folder),
        epochs=1,
        networks=2,
        mixed=2,
        workers=1,
        record=folder / "record.sqlite",
        toolchains=("onnxruntime",),
    )
    return folder


def test_networks_of_a_space_in_python_are_trained_measured_and_chosen_from(profiled: Path) -> None:
    out = profiled / "out"
    assert all(row.validation is not None for row in read_accuracy(out))
    rows = list(read_latency(out))
    assert len(rows) == 10 and all(row.call_s and not row.reason for row in rows)
    assert rows[0].primitives == ("8", "k3", "skip", "k1")
    # What a network gets right as it was trained it gets right as ONNX, on images that are averaged by NumPy.
    trained = {row.network: row.validation for row in sorted(read_accuracy(out), key=lambda row: row.validation or 0)}
    assert {row.primitives[0] for row in rows if row.network in trained} == {"8", "4"}
    assert all(row.correct == trained[row.network] for row in rows if row.network in trained)
    chosen = gnomon.select_primitives(out, most_share=1)
    assert chosen.slots == ("resolution", "first", "depth", "last")
    assert "\ndepth\n" in text_of(selection_report, chosen.document())
    assert Path(chosen.output).read_text().splitlines()[2].startswith('"first": ["k')
    blocks = (f"{profiled / 'net.py'}:space",)
    front = gnomon.find_front(out, kept=chosen.output, networks=2, measure=False, blocks=blocks)
    assert all(one.size.parameters and one.size.macs and one.size.peak_bytes for one in front.networks)
    assert all(name in own for one in front.networks for name, own in zip(one.primitives, chosen.groups, strict=True))
    assert gnomon.show_space(out).families["digits"].defaults == ("8", "k3", "skip", "k1")
    optuna = pytest.importorskip("optuna", reason="Optuna is not installed: pip install optuna")
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(gnomon.open_profile(out).to_optuna, n_trials=3)
    assert all(0 < accuracy < 1 and seconds for accuracy, seconds in (trial.values for trial in study.trials))
    first = next(read_accuracy(out))
    module = gnomon.space_network(out, first.network, blocks=blocks)
    assert tuple(module(torch.zeros(2, 1, 8, 8)).shape) == (2, 10)
    # The stem makes 8 channels of 8x8, and the first convolution as many of them.
    assert (rows[0].size.macs, rows[0].size.peak_bytes) == (64 * (9 * 8 + 9 * 64) + 16 * 8 * 16 + 160, 4 * 2 * 8 * 64)
    assert gnomon.open_profile(out).size(rows[0].primitives) == rows[0].size, "without its Python"
    told = gnomon.open_profile(out, blocks=blocks)
    study.optimize(told.to_optuna, n_trials=1)
    assert study.trials[-1].user_attrs["parameters"] > 0
    assert told.size(first.primitives).parameters == sum(one.numel() for one in module.parameters())
    pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    assert {"resolution", "accuracy", "latency_s", "parameters", "macs", "peak_bytes"} <= set(told.to_pandas().columns)


def test_the_same_file_is_priced_by_table_and_what_was_profiled_fits_its_estimator(profiled: Path) -> None:
    space = f"{profiled / 'net.py'}:space"
    table = build_table(replace(asked(profiled, profiled / "t.table"), space=load_space(space)))
    assert len(table.units) == 46
    gnomon.export_networks(profiled / "out", profiled / "nets.csv")
    fitted = gnomon.fit_estimator(
        table=profiled / "t.table", space=space, samples=profiled / "nets.csv", out=profiled / "e.json"
    )
    assert fitted.samples == 10
    estimator = gnomon.load_estimator(profiled / "e.json", space)
    assert estimator({"resolution": "4", "first": "wide", "depth": "twice", "last": "wide"}) > 0


def test_a_profile_runs_no_space_and_knows_a_changed_one(profiled: Path) -> None:
    with pytest.raises(UsageError, match="gnomon runs only if you name it") as told:
        gnomon.space_network(profiled / "out", next(read_accuracy(profiled / "out")).network)
    assert f"--blocks {profiled / 'net.py'}:space" in told.value.hint
    changed = profiled / "other.py"
    changed.write_text(EXAMPLE.read_text().replace('"k1": conv(1, 16, 2)', '"k1": conv(1, 24, 2)'))
    with pytest.raises(UsageError, match=r"the blocks of .* changed after"):
        gnomon.show_space(profiled / "out", blocks=(f"{changed}:space",))


def head(x):  # type: ignore[no-untyped-def]
    return x.global_average_pool().linear(3)


def conv(x):  # type: ignore[no-untyped-def]
    return x.conv(4, 3).relu()


staged = BlockSpace(
    name="staged",
    inputs=(INPUT,),
    parts=(conv, Stage("deep", (0, 1), (Choice("deep.0", {"conv": conv, "skip": skip}),)), head),
)
several = BlockSpace(name="several", inputs=(INPUT, (1, 3, 8, 8)), parts=(Choice("a", {"conv": conv}), head))
headless = BlockSpace(name="headless", inputs=(INPUT,), parts=(Choice("a", {"conv": conv}),))
named = BlockSpace(name="named", inputs=(INPUT,), parts=(Choice("a", {"a b": conv}), head))
filed = BlockSpace(name="filed", inputs=(INPUT,), parts=(Choice("a", {"file": "block.onnx"}), head))


def test_slots_of_layers_and_depths_are_cell_groups() -> None:
    study = declared_study(staged)
    family = study.families["staged"]
    assert [slot.choices for slot in family.space.slots] == [("0", "1"), ("conv", "skip")]
    deep = study.tagged(study.mixed(("1", "conv")))
    assert len(deep.net.nodes) == 6 and len(set(deep.tags)) == 6
    assert study.tagged(study.mixed(("0", "skip"))).net.nodes == staged.net([0, 1]).nodes
    with pytest.raises(ProblemError, match="no choice 'conv'"):
        study.mixed(("conv", "conv"))


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (several, "are trained on images, but the space several takes"),
        (headless, r"return the shape \(1, 4, 8, 8\), which is not"),
        (named, "the choice 'a b' is not a valid name"),
        (filed, "a=file is an ONNX file, which cannot be trained"),
    ],
    ids=["channels", "headless", "names", "files"],
)
def test_what_cannot_be_trained_is_told(space: BlockSpace, said: str) -> None:
    with pytest.raises((UsageError, ProblemError), match=said):
        declared_study(space)


def test_a_file_without_the_name_of_its_space_is_no_config() -> None:
    assert is_declared(EXAMPLE) and not is_declared("space.yaml")
    with pytest.raises(UsageError, match=r"torch_space.py does not name a space in the file"):
        declared_study(EXAMPLE)


def test_a_profile_of_very_many_slots_is_refused() -> None:
    text = json.loads(declared_study(staged).text)
    text["slots"] = {f"s{k}": ["a", "b"] for k in range(3000)}
    with pytest.raises(ProblemError, match=r"slots: 1 to 4000 choices by slot expected"):
        study_of_text(json.dumps(text))


def test_workers_must_find_a_space() -> None:
    local = BlockSpace(name="local", inputs=(INPUT,), parts=(Choice("a", {"conv": conv}), head))
    with pytest.raises(UsageError, match="cannot find the space"):
        declared_study(local)


def test_accuracies_of_any_space_come_by_csv_and_are_chosen_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = load_space("nasbench201")
    operations = space.space.slots[0].choices
    arch = "|{}~0|+|{}~0|{}~1|+|{}~0|{}~1|{}~2|"
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(operations), (40, 6))
    rows = [
        f"{arch.format(*(operations[k] for k in row))},{0.5 + 0.06 * row.mean():.4f},{2 + 0.3 * row.sum():.3f}"
        for row in drawn
    ]
    (tmp_path / "nets.csv").write_text("\n".join(["arch,accuracy,latency_ms", *rows]))
    for _ in range(2):
        found = gnomon.import_networks([tmp_path / "nets.csv"], tmp_path / "out", config="nasbench201")
    assert found.accuracy is not None and len(found.accuracy.trained) == len({tuple(row) for row in drawn.tolist()})
    chosen = gnomon.select_primitives(tmp_path / "out", most_share=0.5)
    assert chosen.lookup is not None
    lines = [line.split() for line in Path(chosen.lookup).read_text().splitlines()]
    assert [len(line) for line in lines] == [len(names) for names in chosen.groups] and len(lines) == 6
    with pytest.raises(UsageError, match="another config"):
        gnomon.import_networks([tmp_path / "nets.csv"], tmp_path / "out", config="fbnet")
    for place in ("exchange", "profiling.estimates"):
        monkeypatch.setattr(f"gnomon.jobs.space.{place}.MOST_LEARNED", 20)
    many = gnomon.import_networks([tmp_path / "nets.csv"], tmp_path / "other", config="nasbench201")
    assert "of the networks, drawn at random." in many.notes[0]
    fewer = gnomon.select_primitives(tmp_path / "other", most_share=0.5)
    assert fewer.share_kept != chosen.share_kept and len(fewer.groups) == 6
