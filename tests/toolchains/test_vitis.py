"""The way to a DPU, with a stand-in for AMD's compiler and real quantisers of others."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.toolchains.toolkit import job, small_jobs, small_net

from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.testing.toolchain import ToolchainContract
from gnomon.toolchains.base import Toolchain, ToolJob
from gnomon.toolchains.vitis import vitis

STANDINS = Path(__file__).parents[1] / "standins"
QUARK = Path(__file__).parents[2] / ".venv" / "quark"
MARK = b"stand-in for an xmodel\nDPUCZDX8G_ISA1_B4096\n"


@pytest.fixture
def arch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An architecture's file, and the stand-in on the PATH."""
    path = tmp_path / "arch.json"
    path.write_text(json.dumps({"target": "DPUCZDX8G_ISA1_B4096"}))
    monkeypatch.setenv("PATH", os.pathsep.join((str(STANDINS), str(Path(sys.executable).parent), os.environ["PATH"])))
    return str(path)


class TestVitis(ToolchainContract):
    @pytest.fixture
    def toolchain(self, arch: str) -> Toolchain:
        return vitis({"arch": arch, "quantize": "none"})

    @pytest.fixture
    def jobs(self, tmp_path: Path) -> list[ToolJob]:
        return small_jobs(tmp_path)

    @pytest.fixture
    def broken(self, tmp_path: Path) -> ToolJob:
        return job(tmp_path, "absent", tmp_path / "absent.onnx")

    def test_the_kernel_is_named_as_published(self, toolchain: Toolchain, jobs: list[ToolJob]) -> None:
        made = {one.key: one for one in toolchain.make(jobs)}
        one = made["VGGblock_2"]
        assert one.path == jobs[1].folder.absolute() / "VGGblock_2SSPROFILE.xmodel"
        assert one.path.read_bytes() == MARK + jobs[1].model.read_bytes()
        (step,) = one.steps
        assert step.name == "compile" and step.argv[0] == "vai_c_xir" and step.argv[-1] == "VGGblock_2SSPROFILE"
        assert "STAND-IN" in step.log.read_text() and step.log.name == "VGGblock_2.compile.log"


@pytest.mark.parametrize(
    ("habit", "kind", "words"),
    [
        ("Resblock", "refused", "status 1"),
        ("nothing", "refused", "xmodel"),
        ("hang", "hang", "took longer"),
    ],
)
def test_what_the_compiler_does_wrong_is_data(
    habit: str, kind: str, words: str, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAI_C_STANDIN", habit)
    made = {
        one.key: one for one in vitis({"arch": arch, "quantize": "none", "timeout_s": 2}).make(small_jobs(tmp_path))
    }
    failure = made["Resblock_1"].failure
    assert failure is not None and (failure.stage, failure.kind) == ("compile", kind)
    assert words in failure.message and "STAND-IN" in failure.log_tail
    assert (made["VGGblock_2"].failure is None) == (habit == "Resblock")


def test_a_result_of_an_earlier_run_is_none_of_this(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = small_jobs(tmp_path)[:1]
    toolchain = vitis({"arch": arch, "quantize": "none"})
    assert next(iter(toolchain.make(jobs))).failure is None
    monkeypatch.setenv("VAI_C_STANDIN", "nothing")
    assert next(iter(toolchain.make(jobs))).failure is not None


def test_three_steps_hand_their_files_on(arch: str, tmp_path: Path) -> None:
    copy = (
        "import pathlib as p, sys; _, model, out, name, mark = sys.argv; "
        "p.Path(out, name).write_bytes(mark.encode() + p.Path(model).read_bytes())"
    )
    step = [sys.executable, "-c", copy, "{model}", "{out}"]
    made = vitis(
        {
            "arch": arch,
            "convert": [*step, "{name}.caffemodel", "converted "],
            "convert_result": "{name}.caffemodel",
            "quantize": [*step, "{name}.q", "quantised {calibration} {'mode':'debug'} "],
            "quantize_result": "{name}.q",
            "kernel": "k_{key}",
        }
    ).make(jobs := small_jobs(tmp_path)[:1])
    (one,) = made
    assert one.failure is None and one.path is not None and one.path.name == "k_Resblock_1.xmodel"
    assert [step.name for step in one.steps] == ["convert", "quantize", "compile"]
    calibration = str(jobs[0].calibration.absolute()).encode()
    start = b"quantised " + calibration + b" {'mode':'debug'} converted "
    assert one.path.read_bytes() == MARK + start + jobs[0].model.read_bytes()
    assert [step.digest_in for step in one.steps[1:]] == [step.digest_out for step in one.steps[:-1]]


@pytest.mark.skipif(not QUARK.is_dir(), reason=f"AMD Quark is not installed in {QUARK} (make quark)")
def test_quark_then_the_compiler(arch: str, tmp_path: Path) -> None:
    made = list(vitis({"arch": arch, "packages": str(QUARK), "images": 8}).make(small_jobs(tmp_path)))
    assert all(one.failure is None for one in made)
    assert all([step.name for step in one.steps] == ["quantize", "compile"] for one in made)


def test_no_shell_runs_a_command(arch: str, tmp_path: Path) -> None:
    folder = tmp_path / "a $(touch hurt); b"
    folder.mkdir()
    one = job(folder, "k", small_net(folder / "m.onnx", "VGGblock_0"))
    (made,) = vitis({"arch": arch, "quantize": "none"}).make([one])
    assert made.failure is None
    assert not list(tmp_path.rglob("hurt"))


def test_it_says_which_of_amds_programs_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    toolchain = vitis({"quantize": "vai_q_caffe quantize -model {model} -output_dir {out}"})
    said = {one.what for one in toolchain.check()}
    assert "there is no program vai_q_caffe (quantize)" in said and "there is no program vai_c_xir (compile)" in said
    assert any("ZCU102.json" in what for what in said)
    assert all("Vitis AI docker" in one.hint for one in toolchain.check())
    with pytest.raises(RuntimeMissingError, match="vai_c_xir"):
        toolchain.make([])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"compile": "vai_c_xir {modle} {out}"}, ["{modle}"]),
        ({"compile": [], "arch": ""}, ["compile", "arch"]),
        ({"compile": "none"}, ["compile is not a command"]),
        ({"result": "../{name}"}, ["no plain name"]),
        ({"quantize": "q 'open", "kernel": "same"}, ["quantize"]),
        ({"kernel": "same", "result": "{key}.x"}, ["kernel", "{key}"]),
        ({"quantize": "none {x}", "nothing": 1}, ["'nothing'"]),
    ],
)
def test_settings_that_cannot_be_meant_are_told(given: dict[str, object], told: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        vitis(given)
    assert all(part in caught.value.message for part in told)
