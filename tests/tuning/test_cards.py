"""Targets that are cards: what is missing is told in words, and all of tuning on a program that plays one."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.agent.drivers.tvm_models import small_net
from tests.jobs.tune.tunekit import QUICK, tiny_net, trials_of
from tests.tuning.cudakit import NAME, PlayedCard, played, played_card, real_card  # noqa: F401
from tests.tuning.tvmkit import needs_tvm

from gnomon.agent.drivers.tvm import kinds
from gnomon.api import tune as api
from gnomon.core.overlay.records import TunedDevice
from gnomon.core.sample import Failure
from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.formats.tuning.records import read_tuning_records
from gnomon.jobs.tune.request import DeviceWish, check_wish, open_device
from gnomon.tuning.bench import LayerCall, Loop, NetworkCall, Timed
from gnomon.tuning.cards import Card, find_card, fitted
from gnomon.tuning.networks import Network, Source
from gnomon.tuning.tvm import DoorSettings, Workshop

pytestmark = needs_tvm

CARD = {
    "kind": "cuda",
    "arch": "sm_86",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "registers_per_block": 65536,
    "thread_warp_size": 32,
}
LOOP = Loop(number=1, repeat=2, min_repeat_ms=0, timeout_s=60.0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    path.write_bytes(small_net())
    return path


# What is missing


@pytest.mark.parametrize(
    ("environment", "lacking"),
    [
        ({"LD_LIBRARY_PATH": "/nowhere"}, "no driver of NVIDIA's"),
        ({"PLAYED_CUDA_CARDS": "0"}, "shows no card"),
        ({"PATH": "/nowhere"}, "nvcc, which TVM_CUDA_COMPILE_MODE asks for"),
        ({"PATH": "/nowhere", "TVM_CUDA_COMPILE_MODE": "", "CUDA_PATH": "/nowhere"}, "there is no NVRTC"),
    ],
)
@pytest.mark.usefixtures("played_card")
def test_what_is_missing_for_a_card_is_named(environment: dict[str, str], lacking: str) -> None:
    with pytest.raises(RuntimeMissingError, match=lacking) as refused:
        find_card(environment)
    assert "nvcc" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("error", "lacking"),
    [
        ("libcudart.so.13: cannot open shared object file", "the runtime of CUDA is missing"),
        ("undefined symbol: cuLaunchKernelEx", "TVM's runtime for CUDA cannot be loaded"),
    ],
)
def test_what_a_loader_says_of_cudas_runtime_is_told(
    error: str, lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "has no runtime for CUDA" in kinds.load_cuda(str(tmp_path))
    (tmp_path / "libtvm_runtime_cuda.so").touch()

    def refuse(*given: object) -> NoReturn:
        raise OSError(error)

    monkeypatch.setattr("ctypes.CDLL", refuse)
    told = kinds.load_cuda(str(tmp_path))
    assert lacking in told and error in told


@pytest.mark.usefixtures("played_card")
def test_its_attributes_are_those_of_the_card_where_none_are_given() -> None:
    card = find_card({})
    assert card == Card(name=NAME, target=CARD)
    assert fitted({"kind": "cuda"}, card) == CARD
    assert fitted({"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 512}, card) == CARD | {
        "arch": "sm_80",
        "max_threads_per_block": 512,
    }


@pytest.mark.parametrize("arch", ["sm_75", "sm_89", "sm_90a", "sm_80a", "sm_120"])
def test_code_that_does_not_run_on_the_card_is_refused(arch: str) -> None:
    with pytest.raises(UsageError, match=f"code for {arch} does not run"):
        fitted({"kind": "cuda", "arch": arch}, Card(name="c", target=CARD))
    with pytest.raises(UsageError, match="not a version of a card"):
        fitted({"kind": "cuda", "arch": "compute_86"}, Card(name="c", target=CARD))


@pytest.mark.parametrize("device", ["ssh://nobody@nowhere", "tvm://127.0.0.1:1/a"])
def test_a_card_of_another_machine_is_refused_before_it_is_reached(device: str, model: Path) -> None:
    with pytest.raises(UsageError, match="on the machine that gnomon runs on"):
        api.tune(model, target="cuda", device=device)


@pytest.mark.usefixtures("played_card")
def test_half_precision_is_refused_for_a_card(model: Path) -> None:
    with pytest.raises(UsageError, match="in float32"):
        api.tune(model, target="cuda", dtype="float16")


# What TVM does without a card


def layers_of(shop: Workshop, model: Path, target: dict[str, Any] = CARD) -> tuple[Network, Any]:
    network = Network(shop, Source(path=model))
    return network, network.layers(target)


def test_configurations_of_a_card_are_made_without_one(model: Path) -> None:
    with Workshop() as shop:
        _, layers = layers_of(shop, model)
        door = shop.door(DoorSettings(job_timeout_s=120.0))
        for name, strategy in (("conv2d", "evolutionary"), ("matmul", "replay-trace")):
            layer = next(one for one in layers if name in one.name)
            asked = {"layer": layer.layer, "workload": layer.workload, "target": CARD}
            job = {"strategy": strategy, "start": True, "trials": 8, "per_round": 4, "seed": 1, "told": []}
            begun = door.ask("test", {"do": "search", **asked, **job})
            assert not isinstance(begun, Failure) and begun["spaces"] >= 1, begun
            said = door.ask("test", {"do": "ask", "layer": layer.layer, "most": 4})
            assert not isinstance(said, Failure) and said["traces"], said
            text = json.dumps(said["traces"])
            assert "threadIdx.x" in text and "blockIdx.x" in text
            assert "Tensorize" not in text, "tensor cores are not used"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc, which compiles kernels")
def test_nvidias_compiler_takes_default_schedules_and_searched_ones(
    model: Path,
    played: PlayedCard,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The program's libraries make TVM compile kernels here; the compiler is NVIDIA's own.
    monkeypatch.setenv("LD_LIBRARY_PATH", str(played.folder))
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvcc")
    with Workshop() as shop:
        network, layers = layers_of(shop, model)
        device, library = TunedDevice(key="card", target=CARD), shop.folder / "net.so"
        made = network.compile(device, (), library)
        assert not isinstance(made, Failure), made
        assert (made.scheduled, made.functions) == (0, len(layers))
        door = shop.door(DoorSettings(job_timeout_s=120.0))
        libraries = [library]
        layer = next(one for one in layers if "matmul" in one.name)
        asked = {"layer": layer.layer, "workload": layer.workload, "target": CARD}
        job = {"strategy": "random", "start": False, "trials": 8, "per_round": 2, "seed": 1, "told": []}
        assert not isinstance(door.ask("test", {"do": "search", **asked, **job}), Failure)
        said = door.ask("test", {"do": "ask", "layer": layer.layer, "most": 2})
        assert not isinstance(said, Failure) and said["traces"]
        # A processor's configuration binds nothing to threads, and is none of a card.
        for number, trace in enumerate([*said["traces"], [[], []]]):
            library = shop.folder / f"{number}.so"
            build = {"do": "build", **asked, "linker": "", "library": str(library), "trace": trace}
            done = door.ask("test", build)
            if trace == [[], []]:
                assert isinstance(done, Failure) and "binds nothing to a card's threads" in done.message, done
            else:
                assert not isinstance(done, Failure), done
                libraries.append(library)
        for one in libraries:
            content = one.read_bytes()
            assert b"\x50\xed\x55\xba" in content, "a fat binary of CUDA begins so"
            assert b"__global__" not in content, "kernels are compiled here, and not where they are loaded"


# All of it on a program that plays a card


def test_a_network_runs_with_no_trial_and_every_function_is_a_kernel(
    model: Path,
    played_card: PlayedCard,  # noqa: F811
) -> None:
    with Workshop() as shop, open_device(shop, DeviceWish(target="cuda -max_threads_per_block=512")) as (device, bench):
        assert device.target == CARD | {"max_threads_per_block": 512}
        network, layers = layers_of(shop, model, dict(device.target))
        library, inputs, outputs = (shop.folder / name for name in ("net.so", "in.npz", "out.npz"))
        made = network.compile(device, (), library, inputs=inputs)
        assert not isinstance(made, Failure), made
        assert isinstance(network.reference(inputs, outputs), str)
        said = bench.call(NetworkCall(library=library, inputs=inputs, reference=outputs), LOOP)
        assert isinstance(said, Timed) and said.error is not None and said.error < 1e-5, said
        kernels = played_card.kernels()
        names = {layer.name for layer in layers if not layer.name.startswith("reshape")}  # which is a view
        assert {name for name in names if any(kernel.startswith(name) for kernel in kernels)} == names
        # CUDA reserves more addresses than a child may have else.
        limits = Path(f"/proc/{bench._door.start()._process.pid}/limits").read_text()
        assert re.search(r"Max address space +unlimited", limits)
        # What failed on a card may have broken it for the process: the next call has another.
        starts = bench._door.starts
        nothing = LayerCall(library=library, function="nothing", arguments=(), outputs=())
        assert isinstance(bench.call(nothing, LOOP), Failure)
        assert isinstance(bench.call(NetworkCall(library=library, inputs=inputs), LOOP), Timed)
        assert bench._door.starts == starts + 1


def test_tuning_writes_down_the_card_and_the_network_is_right(
    tmp_path: Path,
    played_card: PlayedCard,  # noqa: F811
) -> None:
    model = tmp_path / "tiny.onnx"
    model.write_bytes(tiny_net(4, 4))
    out = tmp_path / "out"
    search = {"strategy": "replay-trace", "per_round": 2}
    document = api.tune(model, target="cuda", trials=4, search=search, out=out, compare=False, **QUICK).document()
    records = read_tuning_records(Path(document["records"]).read_bytes())
    assert records.device.target == CARD
    trials = trials_of(Path(document["records"]))
    assert len(trials) == 4 and any(trial["times_s"] for trial in trials), document["failures"]
    assert all(trial["error"] <= 1e-3 for trial in trials if trial["times_s"])
    assert document["network"]["failure"] is None
    assert document["network"]["max_error"] <= 1e-3
    assert document["network"]["compared_with"].startswith("ONNX Runtime")
    assert played_card.kernels()
    assert [row["trials"] for row in api.tuned_files(out)["records"]] == [6]
    again = api.execute(Path(document["library"]), out=out, **QUICK)
    assert again["failure"] is None and again["max_error"] <= 1e-3
    assert all(layer["failure"] is None for layer in again["layers"])
    ask_others(Path(document["records"]), Path(document["library"]), model, tmp_path)


def ask_others(records: Path, library: Path, model: Path, folder: Path) -> None:
    """What is of a card goes with nothing of a processor."""
    own = folder / "other.tiny.float32.json"
    header, *rest = records.read_text().splitlines()
    told = json.loads(header)
    told["device"] |= {"key": "other", "target": {"kind": "llvm"}}
    own.write_text("\n".join([json.dumps(told), *rest]) + "\n")
    for call in (
        lambda: api.overlay_analyze([records, own]),
        lambda: api.overlay_collect([own], target="cuda", out=folder / "b"),
        lambda: api.overlay_collect([records], target="generic", out=folder / "b"),
        lambda: api.tune(model, target="cuda", logs=[own], out=folder / "b"),
        lambda: api.tune(model, logs=[records], out=folder / "b"),
        lambda: api.execute(library, target="native"),
        lambda: api.execute(own, model=model, target="cuda", out=folder / "b"),
    ):
        with pytest.raises(UsageError, match="cards and of processors do not go together"):
            call()
    with pytest.raises(UsageError, match="holds records for the target"):
        api.tune(model, target="native", trials=1, out=records.parents[1])


def test_a_refusal_comes_soon_and_before_anything_is_written(model: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", "/nowhere")
        with pytest.raises(RuntimeMissingError):
            check_wish(DeviceWish(target="cuda"))


def test_on_the_card_of_this_machine(tmp_path: Path) -> None:
    card = real_card()
    model, out = tmp_path / "tiny.onnx", tmp_path / "out"
    model.write_bytes(tiny_net(16, 16))
    document = api.tune(model, target="cuda", trials=16, out=out, compare=True, **QUICK).document()
    assert read_tuning_records(Path(document["records"]).read_bytes()).device.target == dict(card.target)
    assert document["network"]["failure"] is None
    assert document["network"]["max_error"] <= 1e-3
    assert document["trials"]["measured"] > document["trials"]["failed"]
    labels = [row["label"] for row in document["beside"]["columns"]]
    assert any(label.startswith("tvm[cuda,records=") for label in labels), document["beside"]
