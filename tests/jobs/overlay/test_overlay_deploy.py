"""The proof of an overlay: the ratios of networks that were measured side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.jobs.tune.tunekit import hand_made

from gnomon.core import codec
from gnomon.core.sample import Failure, Run, Samples
from gnomon.jobs.overlay import deploy
from gnomon.jobs.overlay.deploy import DeployRequest, _network_row
from gnomon.jobs.overlay.job import analyze
from gnomon.jobs.tune.records import write_records
from gnomon.measure.campaign import Measured
from gnomon.tuning.networks import Source


def blocks(*times_s: float) -> Measured:
    samples = [Samples(wall_ns=(round(t * 1e9),), cpu_ns=()) for t in times_s]
    runs = [Run(candidate="a", process=p, block=0, started_at_s=0.0, samples=s) for p, s in enumerate(samples)]
    return Measured(key="a", runs=tuple(runs), failure=None)


def test_ratios_are_paired_by_process() -> None:
    """Processes that differ fourfold, in each of which the choice takes 10 % longer."""
    own = (1.0, 4.0, 2.0)
    found = {
        "overlay": blocks(*(1.1 * t for t in own)),
        "own:phone": blocks(*own),
        "own:tablet": replace(blocks(), failure=Failure(stage="run", kind="hang", transient=False, message="")),
        "untuned": blocks(*(3.3 * t for t in own)),
    }
    rows = {name: codec.document(_network_row("phone", name, found)) for name in found}
    same = {"ratio": pytest.approx(1.1), "low": pytest.approx(1.1), "high": pytest.approx(1.1)}
    assert rows["overlay"]["to_own"] == same
    assert rows["overlay"]["to_overlay"] is None
    assert rows["own:phone"]["to_own"] is None
    assert rows["own:phone"]["to_overlay"]["high"] == pytest.approx(1 / 1.1)
    assert rows["untuned"]["to_overlay"]["low"] == pytest.approx(3.0)
    assert rows["own:tablet"]["to_own"] is rows["own:tablet"]["to_overlay"] is rows["own:tablet"]["time"] is None
    time = rows["overlay"]["time"]
    assert time["high_s"] is None or time["high_s"] > 2 * time["low_s"]  # by themselves they prove nothing


def test_one_process_gives_no_interval() -> None:
    row = codec.document(_network_row("a", "overlay", {"overlay": blocks(2.0), "own:a": blocks(1.0)}))
    assert row["to_own"] == {"ratio": pytest.approx(2.0), "low": None, "high": None}


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_only_proved_is_compiled_for_the_proof_alone(
    compiled: bool, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof and the compiler are played."""
    libraries: list[Path] = []

    @contextlib.contextmanager
    def opened(*asked: object) -> Iterator[Any]:
        yield None, SimpleNamespace(environments=[])

    def built(network: object, device: object, choice: object, library: Path, **how: object) -> Failure:
        libraries.append(library)
        return Failure(stage="compile", kind="crash", transient=False, message="no compiler")

    for name, played in {
        "TvmPool": contextlib.nullcontext,
        "Network": lambda *asked: SimpleNamespace(save_module=lambda path: None),
        "check_device": lambda *asked: None,
        "open_device": opened,
        "compile_network": built,
        "_proved": lambda *asked: [_network_row("local", "overlay", {"overlay": blocks(1.0, 2.0)})],
        "_source": lambda *asked: Source(path=tmp_path / "net.onnx"),
    }.items():
        monkeypatch.setattr(deploy, name, played)
    write_records(tmp_path / "local.json", hand_made("local", {"conv": {None: (2.0,), 1: (1.0,)}}))
    asked = DeployRequest(compile=compiled, prove=True, out=tmp_path / "out")
    found = deploy.deploy(analyze([tmp_path / "local.json"]), asked)
    assert [row.choice for row in found.network] == ["overlay"]
    assert [path.name for path in libraries] == (["local_overlay.net.float32.so"] if compiled else [])
