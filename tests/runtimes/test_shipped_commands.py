"""The declarations that ship, read against what their programs print.

data/commands holds it: of a declaration with `ran` what the real program printed here, shortened; of another a text as
its documents and sources have it, with numbers of our own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.agent.drivers.command.reading import Unreadable
from gnomon.agent.drivers.command.report import Report, report_of
from gnomon.runtimes.declared import declarations

DATA = Path(__file__).parent / "data" / "commands"

CALLS: dict[str, tuple[str, list[int]]] = {
    # declaration: what it printed or wrote, the nanoseconds of its calls
    "benchmark_app": ("benchmark_app.txt", [10_870_000]),
    "benchmark_app, below a millisecond": ("benchmark_app-fast.txt", [642_790]),
    "benchmark_model": ("benchmark_model.txt", [8_961_200]),
    "benchmark_model, seconds": ("benchmark_model-slow.txt", [2_950_340_000]),
    "benchmark_model-gpu": ("benchmark_model-gpu.txt", [112_533_000]),
    "benchncnn": ("benchncnn.txt", [20_930_000]),
    "benchncnn-gpu": ("benchncnn-gpu.txt", [6_210_000]),
    "executor_runner": ("executor_runner.txt", [14_211_375, 8_960_541, 8_951_208]),
    "hailortcli": ("hailortcli.csv", [3_204_110]),
    "iree-benchmark-module": (
        "iree-benchmark-module.txt",
        [32_186_700, 35_789_600, 23_977_800, 26_412_500, 19_666_300],
    ),
    "litert-benchmark": ("litert-benchmark.json", [11_860_000]),
    "llama-bench": ("llama-bench.txt", [14_556_735, 14_324_329, 18_539_770, 14_389_266, 14_290_068]),
    "mnn-benchmark": ("mnn-benchmark.txt", [8_961_000]),
    "mnn-operators": ("mnn-operators.txt", [8_961_000]),
    "onnxruntime_perf_test": ("onnxruntime_perf_test.csv", [8_960_000, 9_120_000, 120_500]),
    "qnn-net-run": ("qnn-net-run.txt", [2_952_000]),
    "rknn_benchmark": ("rknn_benchmark.txt", [2_640_000, 2_700_000, 2_590_000]),
    "trtexec": ("trtexec.json", [1_450_000, 1_439_000]),
    "trtexec-engine": ("trtexec.json", [1_450_000, 1_439_000]),
}
OPERATORS: dict[str, tuple[str, str, dict[str, list[int]]]] = {
    # declaration: what it printed or wrote, its table of operators, each operator's nanoseconds
    "benchmark_app": (
        "benchmark_app.txt",
        "benchmark_app-operators.csv",
        {
            "input": [0],
            "input_abcd_acdb_stem/WithoutBiases": [195_000],
            "stem/WithoutBiases": [436_000],
            "stem/relu6": [0],
            "block0/depthwise/WithoutBiases": [261_000],
        },
    ),
    "benchmark_model": (
        "benchmark_model.txt",
        "",
        {
            "Delegate/Convolution (NHWC, F32) IGEMM:0": [5_950_000, 5_950_000],
            "[probabilities]:1": [3_000_000, 3_000_000],
        },
    ),
    "iree-benchmark-module": (
        "iree-benchmark-module.txt",
        "",
        {
            "main$async_dispatch_58_conv_2x96x200x5x5_f32": [8_485_290],
            "main$async_dispatch_23_conv_3x96x88x5x5_f32": [954_334],
            "main$async_dispatch_25_matvec_like_22x88_f32": [440_810],
            "main$async_dispatch_57_matmul_like_200x2x96x32_f32": [394_379],
            "main$async_dispatch_1_conv_8x24x96x3x3x3_f32": [320_868],
            "main$async_dispatch_51_conv_2x96x104x5x5_f32": [231_388],
        },
    ),
    "mnn-operators": ("mnn-operators.txt", "", {"softmax": [12_100], "conv1 relu": [450_000]}),
    "trtexec": (
        "trtexec.json",
        "trtexec-operators.json",
        {"Reformatting CopyNode for Input Tensor 0 to conv1": [21_000], "conv1 + relu1": [1_280_000]},
    ),
    "trtexec-engine": (
        "trtexec.json",
        "trtexec-operators.json",
        {"Reformatting CopyNode for Input Tensor 0 to conv1": [21_000], "conv1 + relu1": [1_280_000]},
    ),
}


def reported(name: str, sample: str, operators: str = "", *, profiled: bool = False) -> Report:
    """What a declaration reads, of a sample that it prints, or finds in its file where it declares one."""
    declaration = declarations()[name][0]
    text = (DATA / sample).read_text(encoding="utf-8")
    table = (DATA / operators).read_text(encoding="utf-8") if operators else ""
    files = {declaration.file: text, declaration.operators.file if declaration.operators else "": table}
    return report_of(
        declaration.spec({}), "" if declaration.file else text, files.__getitem__, profiled=profiled, wall_ns=1
    )


@pytest.mark.parametrize("case", CALLS)
def test_times_are_read_as_printed(case: str) -> None:
    sample, calls_ns = CALLS[case]
    assert reported(case.split(",")[0], sample).calls_ns == calls_ns


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_read_as_printed(name: str) -> None:
    sample, table, wall_ns = OPERATORS[name]
    rows = reported(name, sample, table, profiled=True).operators
    assert {row["name"]: row["wall_ns"] for row in rows} == wall_ns


@pytest.mark.parametrize(
    ("name", "sample", "printed"),
    [
        ("benchmark_model-gpu", "benchmark_model-gpu-on-cpu.txt", "will not be executed by the delegate"),
        ("benchncnn-gpu", "benchncnn-gpu-on-cpu.txt", "gpu_device = 0"),
        ("benchncnn", "benchncnn-missing.txt", "network graph not ready"),
        ("llama-bench-gpu", "llama-bench.txt", '"backends": "CPU"'),
    ],
)
def test_a_run_that_fell_back_is_refused(name: str, sample: str, printed: str) -> None:
    with pytest.raises(Unreadable, match=f"it printed .*{printed}"):
        reported(name, sample)


def test_a_dla_that_leaves_layers_to_the_gpu_is_refused() -> None:
    declaration = declarations()["trtexec"][0]
    printed = (DATA / "trtexec-on-gpu.txt").read_text(encoding="utf-8")
    with pytest.raises(Unreadable, match="Unsupported on DLA"):
        report_of(declaration.spec({}), printed, lambda name: "[]", profiled=False, wall_ns=1)


def test_every_declaration_that_ships_is_read_here() -> None:
    declared = {name: one for name, (one, _) in declarations().items()}
    assert {case.split(",")[0] for case in CALLS} | {
        "llama-bench-gpu",
        "snpe",
        "dpu-server",
        "vitis",
    } == declared.keys()
    assert OPERATORS.keys() | {"snpe"} == {name for name, one in declared.items() if one.operators is not None}
    assert all(one.format and one.hint and one.formats for one in declared.values())
    assert declared["qnn-net-run"].program == "qnn-net-run"
    assert "sh" not in {one.program for one in declared.values()}
