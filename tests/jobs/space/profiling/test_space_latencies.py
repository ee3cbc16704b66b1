"""What is believed of latencies: rows, a toolchain against its float32 twin, the published tables."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.space.kits.studykit import made, study, timed, trained

from gnomon.core.stats import student_quantile
from gnomon.errors import UsageError
from gnomon.formats.aw_nas.tables import read_accuracies, read_latencies
from gnomon.jobs.space.job import write_tables
from gnomon.jobs.space.profiling.estimates import (
    compare_with_twin,
    family_latencies,
    latest,
    standard_error,
    toolchain_of,
    toolchains_of,
)
from gnomon.jobs.space.profiling.folder import LatencyRow
from gnomon.jobs.space.profiling.study import Study

pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")


@pytest.fixture(scope="module")
def one() -> Study:
    return study()


def both(
    one: Study, mine: list[float | None], twin: list[float | None], name: str = "onnxruntime-int8"
) -> list[LatencyRow]:
    swaps = one.families["VGG"].swaps()
    rows = [timed(n, value) for n, value in zip(swaps, twin, strict=False)]
    return rows + [timed(n, value, name) for n, value in zip(swaps, mine, strict=False)]


def test_a_quantised_toolchain_against_its_twin(one: Study) -> None:
    rows = both(one, [1e-3, 2e-3, 3e-3, None, 8e-3], [2e-3, 2e-3, 4e-3, 5e-3, None])
    rows = [replace(row, correct=0.9 if k < 5 else 0.8 + k / 1000) for k, row in enumerate(rows)]
    found = compare_with_twin(rows, "onnxruntime-int8")
    assert found is not None
    assert (found.twin, found.networks, found.faster) == ("onnxruntime", 3, 2)
    assert found.ratio == pytest.approx(0.75)
    assert 0.5 <= found.low <= found.ratio <= found.high <= 1.0
    drops = [0.9 - (0.8 + i / 1000) for i in range(5, 10)]
    assert found.drop == pytest.approx(np.mean(drops)), "a loss is above 0"
    assert found.worst_drop == pytest.approx(max(drops))
    assert found == compare_with_twin(rows, "onnxruntime-int8")


def test_without_a_twin_or_common_networks_nothing_is_compared(one: Study) -> None:
    rows = both(one, [1e-3, None], [None, 1e-3])
    assert compare_with_twin(rows, "onnxruntime-int8") is None
    assert compare_with_twin(rows, "onnxruntime") is None
    assert compare_with_twin(both(one, [1e-3], [1e-3], "foreign"), "foreign") is None
    quark = compare_with_twin(both(one, [1e-3], [1e-3], "quark-xint8"), "quark-xint8")
    assert quark is not None and quark.twin == "onnxruntime" and quark.drop is None


def test_the_last_row_of_a_network_counts(one: Study) -> None:
    a, b = one.families["VGG"].swaps()[:2]
    rows = [
        timed(a, 1e-3),
        timed(b, 2e-3),
        timed(a, 3e-3),
        timed(b, None, reason="crash"),
        timed(a, 9.0, "quark-xint8"),
    ]
    assert {name: row.call_s for name, row in latest(rows, "onnxruntime").items()} == {a.id: 3e-3, b.id: None}
    assert toolchains_of(rows) == ("onnxruntime", "quark-xint8")
    assert {name: own.values.tolist() for name, own in family_latencies(one, latest(rows, "onnxruntime")).items()} == {
        "VGG": [3e-3]
    }
    assert toolchain_of(rows, None) == "onnxruntime" and toolchain_of(rows, "quark-xint8") == "quark-xint8"
    for known, wanted in ((rows, "openvino"), ([timed(a, None)], None), ([timed(a, None)], "onnxruntime")):
        with pytest.raises(UsageError, match="nothing was measured") as told:
            toolchain_of(known, wanted)
        assert "Toolchains with measurements" in told.value.hint


@given(st.floats(1e-6, 10), st.floats(0.001, 0.5), st.integers(2, 40))
def test_an_interval_is_one_of_students(call_s: float, share: float, processes: int) -> None:
    half = call_s * share
    row = LatencyRow(
        key="k",
        network="n",
        primitives=("p",),
        toolchain="t",
        call_s=call_s,
        low_s=call_s - half,
        high_s=call_s + half,
        processes=processes,
    )
    assert standard_error(row) * student_quantile(0.975, processes - 1) == pytest.approx(half)


def test_the_published_tables_have_milliseconds_and_shares(one: Study, tmp_path: Path) -> None:
    folder = made(tmp_path / "p", one)
    swaps = [n for family in one.families.values() for n in family.swaps()]
    values = [0.3, 1e-6, 1.0, 2e-3, 0.1, 0.1, 7e-5, 0.9]
    for network, value in zip(swaps, values, strict=True):
        folder.add(timed(network, value, "quark-xint8"))
        folder.add(timed(network, value * 2 if network.id != "VGG_0_1" else None, "openvino"))
    for network in swaps[:-2]:
        folder.add(trained(network, 0.25 + 0.5 * values[0], images=1000))
    notes = write_tables(folder, one)
    folder.close()
    assert [note for note in notes if "openvino: 1 of 8" in note and "VGG_0_1" in note]
    tables = {path.name: path.read_text() for path in (tmp_path / "p").glob("*_table*.yaml")}
    assert tables.keys() == {"accuracy_table.yaml", "latency_table.yaml", "latency_table.openvino.yaml"}
    first = read_latencies(tables["latency_table.yaml"])
    assert first == pytest.approx({n.id: value * 1e3 for n, value in zip(swaps, values, strict=True)})
    assert "VGG_0_1" not in read_latencies(tables["latency_table.openvino.yaml"])
    accuracies = read_accuracies(tables["accuracy_table.yaml"])
    assert accuracies.keys() == {n.id for n in swaps}, "what was not trained is believed"
    assert all(accuracies[n.id] == pytest.approx(0.25 + 0.5 * values[0], abs=0.02) for n in swaps)
    assert all(math.isfinite(value) and 0 < value < 1 for value in accuracies.values())


def test_nothing_trained_and_nothing_measured_is_told(one: Study, tmp_path: Path) -> None:
    folder = made(tmp_path / "p", one)
    network = one.families["VGG"].swaps()[0]
    folder.add(timed(network, None, reason="crash: it ended"))
    notes = write_tables(folder, one)
    folder.close()
    assert any("no network was trained" in note for note in notes)
    assert any("8 of 8 one-change variants have no latency" in note for note in notes)
    assert not list((tmp_path / "p").glob("*_table*"))
