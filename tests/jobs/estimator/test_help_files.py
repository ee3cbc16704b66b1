"""HELP's files, made as its loader expects them: nets of three spaces, and what is told of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.spaces.catalogue.nasbenchkit import architecture

import gnomon
from gnomon.cli.main import cli
from gnomon.errors import ProblemError, UsageError
from gnomon.formats.nets_csv import NetRow, read_nets
from gnomon.jobs.estimator.help_files import import_nets
from gnomon.spaces import UNFUSED, draw
from gnomon.spaces.catalogue.fbnet import KINDS
from gnomon.spaces.catalogue.ofa_mobilenetv3 import assignments_of
from gnomon.spaces.loading import load_space

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

COUNT = 7
TIMES = [1.0 + number / 8 for number in range(COUNT)]


def saved(value: Any, path: Path) -> Path:
    torch.save(value, path)
    return path


@pytest.fixture
def times(tmp_path: Path) -> Path:
    return saved(TIMES, tmp_path / "device.pt")


def nets(space: str, count: int = COUNT) -> list[tuple[int, ...]]:
    return [tuple(net) for net in draw(load_space(space).tables(UNFUSED), count, seed=1).tolist()]


def imported(times: Path, archs: Path, space: str) -> tuple[tuple[NetRow, ...], tuple[str, ...]]:
    return import_nets(times, archs, load_space(space))


def of_ofa(count: int = COUNT, *, scalar: Any = int, height: Any = None) -> dict[str, list[dict[str, Any]]]:
    """Architectures of OFA, whose numbers are of a type."""
    rng = np.random.default_rng(3)
    return {
        "arch": [
            {
                "wid": None,
                "ks": [scalar(k) for k in rng.choice([3, 5, 7], 20)],
                "e": [scalar(e) for e in rng.choice([3, 4, 6], 20)],
                "d": [scalar(d) for d in rng.choice([2, 3, 4], 5)],
                "r": (height or scalar)(4 * int(rng.integers(32, 57))),
            }
            for _ in range(count)
        ]
    }


@pytest.mark.parametrize(
    ("space", "number"), [("nasbench201", int), ("nasbench201", np.int64), ("nasbench201", torch.tensor)]
)
def test_architecture_strings_have_their_numbers(tmp_path: Path, times: Path, space: str, number: Any) -> None:
    chosen = nets("nasbench201")
    order = np.random.default_rng(0).permutation(COUNT).tolist()
    archs = saved({architecture(chosen[at]): number(at) for at in order}, tmp_path / "str_arch2idx.pt")
    found = imported(times, archs, space)
    assert [row.assignment for row in found[0]] == chosen
    assert [row.latency_s for row in found[0]] == pytest.approx([time / 1e3 for time in TIMES])
    assert found[1] == ()


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_blocks_of_fbnet_are_numbered_as_its_choices(tmp_path: Path, times: Path, kind: Any) -> None:
    chosen = nets("fbnet")
    archs = saved({"arch": [{"op_idx_list": kind(list(net))} for net in chosen]}, tmp_path / "metainfo.pt")
    assert [row.assignment for row in imported(times, archs, "fbnet")[0]] == chosen
    # HELP's own encoding: up to 3 a kernel of 3, up to 7 one of 5, and 8 nothing; the rest of 4 is the expansion.
    names = [*KINDS, "skip"]
    assert [name[:2] for name in names] == ["k3"] * 4 + ["k5"] * 4 + ["sk"]
    assert [name[3:] for name in names[:4]] == [name[3:] for name in names[4:8]] == ["e1", "e1_g2", "e3", "e6"]
    assert {slot.choices for slot in load_space("fbnet").space.slots} == {tuple(names)}


@pytest.mark.parametrize(
    ("scalar", "height"),
    [(int, None), (np.int64, lambda r: [np.int64(r)]), (int, np.float64)],
)
def test_architectures_of_ofa_are_values(tmp_path: Path, times: Path, scalar: Any, height: Any) -> None:
    archs = of_ofa(scalar=scalar, height=height)
    found = imported(times, saved(archs, tmp_path / "ofa_archs.pt"), "ofa-mobilenetv3")
    plain = of_ofa()["arch"]
    kernels, expansions, depths, heights = ([arch[key] for arch in plain] for key in ("ks", "e", "d", "r"))
    told = assignments_of(kernels, expansions, depths, heights)
    assert [row.assignment for row in found[0]] == [tuple(row) for row in told.tolist()]


@pytest.mark.parametrize("value", [torch.tensor(TIMES), np.array(TIMES), tuple(np.float64(time) for time in TIMES)])
def test_latencies_are_any_sequence_of_numbers(tmp_path: Path, value: Any) -> None:
    archs = saved(of_ofa(), tmp_path / "ofa_archs.pt")
    found = imported(saved(value, tmp_path / "device.pt"), archs, "ofa-mobilenetv3")
    assert [row.latency_s for row in found[0]] == pytest.approx([time / 1e3 for time in TIMES])


def test_what_failed_has_no_latency(tmp_path: Path) -> None:
    values = [0.0, float("nan"), -1.0, float("inf"), 0, 2.5, 3.0]
    found = imported(saved(values, tmp_path / "d.pt"), saved(of_ofa(), tmp_path / "ofa_archs.pt"), "ofa-mobilenetv3")
    assert [row.latency_s for row in found[0]] == [None] * 5 + [2.5e-3, 3e-3]
    (told,) = found[1]
    assert told.startswith(
        "5 of 7 nets have no latency, because their times are invalid (net, counted from 0, and time): "
        "0 (0.0), 1 (nan), 2 (-1.0)"
    )
    with pytest.raises(ProblemError, match="no latency above 0"):
        imported(saved([0.0] * 7, tmp_path / "d.pt"), tmp_path / "ofa_archs.pt", "ofa-mobilenetv3")


def test_files_of_two_folders_do_not_fit(tmp_path: Path, times: Path) -> None:
    with pytest.raises(ProblemError, match=r"has 7 latencies, and .* has 6 architectures") as refused:
        imported(times, saved(of_ofa(6), tmp_path / "ofa_archs.pt"), "ofa-mobilenetv3")
    assert "the same folder" in refused.value.hint


@pytest.mark.parametrize("value", [{}, torch.ones(2, 2)])
def test_what_holds_no_latencies_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ProblemError, match="does not contain a list of latencies") as refused:
        imported(saved(value, tmp_path / "d.pt"), tmp_path / "none.pt", "fbnet")
    assert "latency_ms" in refused.value.hint


@pytest.mark.parametrize(
    "value",
    [{}, [], {"arch": [{"op": 1}]}, {"arch": []}],
)
def test_what_holds_no_architectures_is_refused(tmp_path: Path, times: Path, value: Any) -> None:
    with pytest.raises((ProblemError, UsageError)) as refused:
        imported(times, saved(value, tmp_path / "a.pt"), "fbnet")
    assert refused.value.hint


def test_all_that_is_wrong_with_architectures_is_told_at_once(tmp_path: Path, times: Path) -> None:
    blocks = [0] * 22
    values: list[Any] = [blocks, blocks[:-1], [9, *blocks[1:]], [0.5, *blocks[1:]], ["a", *blocks[1:]], [None], blocks]
    archs = saved({"arch": [*({"op_idx_list": value} for value in values[:-1]), "other"]}, tmp_path / "metainfo.pt")
    with pytest.raises(ProblemError) as refused:
        imported(times, archs, "fbnet")
    for told in (
        "architecture 1: 22 whole numbers expected as 'op_idx_list'",
        "architecture 2: choice 9 of slot 'layer0' is out of range",
        "architecture 3: 22",
        "architecture 4: 22",
        "architecture 5: 22",
        "architecture 6: 22",
    ):
        assert told in refused.value.message
    assert "architecture 0" not in refused.value.message
    made = of_ofa(3)
    made["arch"][1]["ks"] = [4] * 20
    made["arch"][2]["r"] = [130, 224]
    with pytest.raises(ProblemError) as refused:
        imported(times, saved(made, tmp_path / "ofa_archs.pt"), "ofa-mobilenetv3")
    assert "architecture 1: kernel 4 is not in this space" in refused.value.message
    assert "architecture 2: a whole number expected as 'r'" in refused.value.message
    first, second, *_ = map(architecture, nets("nasbench201"))
    bad = {first: 0, second: 0, "x": 2, "|y|": 7, "|z|": "1"}
    with pytest.raises(ProblemError) as refused:
        imported(times, saved(bad, tmp_path / "s.pt"), "nasbench201")
    for told in (
        "its number 0 is also the number of another",
        "from 0 to 4 expected, 7 found",
        "expected, '1' found",
        "'x'",
    ):
        assert told in refused.value.message


def test_architectures_of_another_space_name_their_own(tmp_path: Path, times: Path) -> None:
    strings = saved({architecture(net): at for at, net in enumerate(nets("nasbench201"))}, tmp_path / "s.pt")
    with pytest.raises(UsageError) as refused:
        imported(times, strings, "fbnet")
    assert "--space nasbench201" in refused.value.hint
    ofa = saved(of_ofa(), tmp_path / "ofa_archs.pt")
    with pytest.raises(UsageError, match="of the space ofa-mobilenetv3, not of fbnet") as refused:
        imported(times, ofa, "fbnet")
    assert "--space ofa-mobilenetv3" in refused.value.hint


def test_files_of_the_benchmarks_themselves_are_refused(tmp_path: Path, times: Path) -> None:
    (tmp_path / "HW-NAS-Bench-v1_0.pickle").write_bytes(b"\x80\x04}.")
    whole = saved({"meta_archs": ["a"], "arch2infos": {}, "evaluated_indexes": [0]}, tmp_path / "NAS-Bench-201.pth")
    for path in (tmp_path / "HW-NAS-Bench-v1_0.pickle", whole):
        with pytest.raises(ProblemError) as refused:
            imported(times, path, "nasbench201")
        assert "the columns latency_ms and arch" in refused.value.hint
        assert "latency_ms" in refused.value.hint


def test_the_command_writes_a_csv_that_fit_reads(tmp_path: Path, times: Path) -> None:
    chosen = nets("nasbench201")
    archs = saved({architecture(net): at for at, net in enumerate(chosen)}, tmp_path / "str_arch2idx.pt")
    out = tmp_path / "nets.csv"

    def call(*more: str) -> Any:
        words = ["import", str(times), "--archs", str(archs), "--space", "nasbench201", "--out", str(out), *more]
        return CliRunner().invoke(cli, ["estimator", *words], catch_exceptions=False)

    result = call()
    assert result.exit_code == 0
    assert "7 nets of nasbench201, 7 of them measured." in result.stdout
    rows = read_nets(out.read_bytes(), load_space("nasbench201").space)
    assert [row.assignment for row in rows] == chosen
    with pytest.raises(UsageError, match="exists already"):
        call("--json")
    saved([0.0, *TIMES[1:]], times)
    result = call("--json", "--overwrite")
    assert "skipped: 1 of 7 nets have no latency" in result.stderr
    document = json.loads(result.stdout)
    assert {key: document[key] for key in ("file", "space", "nets", "measured")} == {
        "file": str(out), "space": "nasbench201", "nets": 7, "measured": 6,
    }  # fmt: skip
    fitted = gnomon.fit_estimator(space="nasbench201", samples=out, out=tmp_path / "e.json")
    assert fitted.samples == 6 and fitted.evaluation is not None
    assert gnomon.import_nets(times, archs=archs, space="nasbench201", out=tmp_path / "n.csv").measured == 6
