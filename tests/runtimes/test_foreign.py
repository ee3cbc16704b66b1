"""A runtime of a third party, played by MNN's driver and adapter under other names."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from gnomon import plugins
from gnomon.api import place as api
from gnomon.errors import UsageError
from gnomon.runtimes.base import Configuration, Probe, RunSettings, chained_options
from gnomon.runtimes.mnn import Mnn
from gnomon.runtimes.onnxruntime import OnnxRuntime
from gnomon.runtimes.openvino import OpenVino
from gnomon.runtimes.registry import all_runtimes, chosen_runtimes

DRIVER = "gnomon.agent.drivers.mnn:MnnDriver"
MODEL = Path(__file__).parents[2] / "docs" / "examples" / "digits.onnx"


class Short(Mnn):
    """As a third party's is now: a name, and the driver's import path."""

    name = "short"
    driver = DRIVER

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """With options that have names of other runtimes' and mean something else."""
        own = {"settings": "fast", "accelerators": 2}
        return tuple(replace(c, options={**c.options, **own}) for c in super().configurations(probe, settings))


class Long(Mnn):
    """As a third party's was: its name is the driver's import path."""

    name = DRIVER


class Thief(Mnn):
    """One with the name of a runtime of gnomon's."""

    name = "onnxruntime"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are found as installed packages are."""
    found = plugins.entry_points
    added = [
        EntryPoint(name=name, value=f"{__name__}:{one.__name__}", group="gnomon.runtimes")
        for name, one in ((Short.name, Short), (Long.name, Long), ("thief", Thief), ("openvino", Thief))
    ]
    monkeypatch.setattr(
        plugins, "entry_points", lambda *, group: [*found(group=group), *(added if "runt" in group else ())]
    )


@pytest.mark.usefixtures("short_visits")
@pytest.mark.parametrize("name", [Short.name, Long.name])
def test_it_is_placed_and_placed_again_without_measuring(name: str, tmp_path: Path) -> None:
    for measure in (True, False):
        found = api.place(
            MODEL,
            out=tmp_path / f"out-{measure}",
            runtimes=[name],
            backends=[name],
            threads=1,
            processes=1,
            record=tmp_path / "r.sqlite",
            measure=measure,
        )
        assert found.decision.chosen == name
        package = tmp_path / f"out-{measure}"
        assert not (package / "environment.sh").exists()
        assert not any(word in (package / "README.txt").read_text() for word in ("nnpackage", "session.py"))
    with pytest.raises(UsageError, match="no runtime on this device has a backend 'vulkan'"):
        api.place(MODEL, out=tmp_path / "no", runtimes=[name], backends=["vulkan"], record=tmp_path / "r.sqlite")


def test_nobody_takes_the_place_of_a_runtime_of_gnomons() -> None:
    good, broken = all_runtimes()
    assert all(isinstance(one, (OnnxRuntime, OpenVino)) for one in good if one.name in ("onnxruntime", "openvino"))
    taken = "the name of another runtime: give the entry point and its adapter an unused name"
    assert {one.name: one.reason for one in broken} == {
        "thief": f"{__name__}:Thief calls itself 'onnxruntime', {taken}",
        f"openvino ({__name__}:Thief)": f"{__name__}:Thief has the name 'openvino', {taken}",
    }
    assert [one.name for one in chosen_runtimes(("openvino",), "onnx")] == ["openvino"]


def test_a_chain_gives_a_runtime_no_option_of_another() -> None:
    assert chained_options(OnnxRuntime()) == {"shared_arena": True}
    assert not chained_options(Short())
