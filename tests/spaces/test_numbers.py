"""Nets that numbers describe: a csv as a space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gnomon
from gnomon.errors import ProblemError, UsageError
from gnomon.jobs.estimator.document import PredictionsDocument
from gnomon.spaces import UNFUSED, load_space


def csv_of(path: Path, count: int) -> Path:
    """Nets whose time is a product of two numbers, beside columns that do not describe them."""
    rng = np.random.default_rng(0)
    lines = ["id,kind,enc_width,enc_layers,dec_heads,fixed,latency_std_decoder,latency_ms"]
    for number in range(count):
        width, layers, heads = rng.choice([256.0, 320.5, 512.0]), rng.integers(1, 7), rng.integers(2, 9)
        lines.append(f"{number},net{number},{width},{layers},{heads},7,9.9,{0.5 + width * layers / 100 + heads / 50}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_csv_of_numbers_is_a_space_that_an_estimator_remembers(tmp_path: Path) -> None:
    nets = csv_of(tmp_path / "nets.csv", 60)
    fitted = gnomon.fit_estimator(space=str(nets), samples=nets, out=tmp_path / "estimator.json")
    assert fitted.evaluation is not None and fitted.evaluation.scores.mean_error < 0.02
    nets.rename(tmp_path / "others.csv")  # the space is in the estimator's file
    predicted = gnomon.predict(tmp_path / "estimator.json", tmp_path / "others.csv")
    assert isinstance(predicted, PredictionsDocument) and predicted.space == "nets"
    chosen = gnomon.suggest_nets(
        space=str(tmp_path / "others.csv"), pool=tmp_path / "others.csv", count=5, out=tmp_path / "chosen.csv"
    )
    assert len(chosen.nets) == 5


def test_only_columns_that_describe_nets_and_vary_count(tmp_path: Path) -> None:
    space = load_space(str(csv_of(tmp_path / "nets.csv", 60)))
    assert [slot.name for slot in space.space.slots] == ["enc_width", "enc_layers", "dec_heads", "fixed"]
    tables = space.tables(UNFUSED)
    assert "enc_width*enc_layers" in tables.extras and "fixed" not in tables.extras
    net = space.space.indices(["320.5", "3", "4", "7"])
    counts = dict(zip(tables.extras, tables.counts([net])[0], strict=True))
    other = dict(zip(tables.extras, tables.counts([space.space.indices(["512.0", "6", "4", "7"])])[0], strict=True))
    assert other["enc_width*enc_layers"] / counts["enc_width*enc_layers"] == pytest.approx(512 * 6 / (320.5 * 3))


def test_what_needs_units_says_so(tmp_path: Path) -> None:
    nets = csv_of(tmp_path / "nets.csv", 20)
    gnomon.fit_estimator(space=str(nets), samples=nets, out=tmp_path / "estimator.json")
    with pytest.raises(UsageError, match="numbers describe"):
        gnomon.export_estimator(tmp_path / "estimator.json", out=tmp_path / "estimator.py")
    with pytest.raises(UsageError, match="chosen only from a csv") as caught:
        gnomon.suggest_nets(space=str(nets), out=tmp_path / "chosen.csv")
    assert "--pool" in caught.value.hint
    with pytest.raises(UsageError, match="has no units to measure"):
        gnomon.build_table(str(nets), runtimes=("onnxruntime",), out=tmp_path / "nets.table")
    (tmp_path / "texts.csv").write_text("name,arch,latency_ms\na,b,1\n")
    with pytest.raises(ProblemError, match="no column"):
        load_space(str(tmp_path / "texts.csv"))
