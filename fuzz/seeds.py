"""Valid inputs, from which damaged ones are made: golden files of the tests, and files that gnomon writes."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from tests.models.ggufkit import gguf

from gnomon.formats.nets_csv import NetRow
from gnomon.jobs.estimator.job import SpaceEstimator, described, fit_estimator
from gnomon.jobs.space.profiling.folder import AccuracyRow, LatencyRow, ProfileFolder
from gnomon.jobs.space.profiling.study import Study, open_study
from gnomon.jobs.table.folder import write_table
from gnomon.spaces.blocks import BlockSpace, Choice, Stage, skip
from gnomon.spaces.latency_table import Manifest, Row, Table
from gnomon.spaces.layers import layer
from gnomon.spaces.unit import Unit, single
from gnomon.store.base import CampaignQuery
from gnomon.store.lines import write_lines
from gnomon.store.sqlite import SqliteStore

GOLDEN = Path(__file__).parents[1] / "tests" / "formats" / "golden"
MODELS = Path(__file__).parents[1] / "tests" / "models" / "golden"


def golden(*names: str) -> Callable[[], list[bytes]]:
    """The golden files with these names."""
    return lambda: [next(GOLDEN.glob(f"**/{name}")).read_bytes() for name in names]


def models(*names: str) -> Callable[[], list[bytes]]:
    """Models from PyTorch's exporters, by their names among the golden files."""
    return lambda: [(MODELS / name).read_bytes() for name in names]


def exported() -> list[bytes]:
    """The graph of an exported program."""
    with zipfile.ZipFile(MODELS / "small.pt2") as archive:
        return [archive.read("small/models/model.json")]


def texts(*parts: str) -> Callable[[], list[bytes]]:
    """These texts."""
    return lambda: [part.encode() for part in parts]


def values(*parts: Any) -> Callable[[], list[bytes]]:
    """These values as JSON."""
    return lambda: [json.dumps(part).encode() for part in parts]


def lines(*parts: Any) -> Callable[[], list[bytes]]:
    """One text with these values as JSON, one on each line."""
    return lambda: ["".join(json.dumps(part) + "\n" for part in parts).encode()]


def written(write: Callable[[Path], object], name: str) -> Callable[[], list[bytes]]:
    """The content of a file with this name, below a folder that is written."""

    def made() -> list[bytes]:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder))
            return [(Path(folder) / name).read_bytes()]

    return made


def units() -> tuple[Unit, ...]:
    """Some units of spaces."""
    shape = (1, 8, 16, 16)
    convolution = layer("Conv", out_channels=8, kernel=3, pad=1)
    return single(convolution, (shape,)), single(layer("Relu"), (shape,)), single(layer("Add"), (shape, shape))


def table(folder: Path) -> None:
    """A latency table."""
    first, second, third = units()
    rows = (
        Row(unit=first, status="ok", at_s=1e9, call_s=1e-4, low_s=9e-5, high_s=1.1e-4, processes=2,
            samples={"0": (1e-4, 1.1e-4)}, reported={"GPU": 2e-4}),
        Row(unit=second, status="unstable", at_s=1e9, call_s=2e-4, drift=1.1),
        Row(unit=third, status="failed", at_s=1e9, reason="it crashed"),
    )  # fmt: skip
    manifest = Manifest(
        space="fbnet", context={"device": {"machine": "x86_64"}, "runtime": "onnxruntime", "options": {}}, clock="cpu",
        overhead_s=1e-6, anchor=first.id, anchor_calls_s=(1e-4,), rules=("Conv+Relu",), notes=("a:b",),
    )  # fmt: skip
    blocks = {"wide": lambda x: x.conv(8, 3).relu(), "skip": skip}
    stage = Stage("s", (0, 1), (Choice("s0", blocks),))
    own = BlockSpace(name="own", inputs=((1, 8, 16, 16),), parts=(lambda x: x.relu(), Choice("a", blocks), stage))
    write_table(Table(manifest=manifest, rows=rows), folder / "table", own)


def estimator(folder: Path) -> None:
    """An estimator for the nets of a small space."""
    (folder / "estimator.json").write_text(json.dumps(_estimator().document()), encoding="utf-8")


def _estimator() -> SpaceEstimator:
    found = described(None, "nasbench201")
    draw = np.random.default_rng(0)
    nets = draw.integers(0, 5, (40, 6))
    return fit_estimator(
        found, [NetRow(assignment=tuple(map(int, net)), latency_s=1e-3 * (1 + net.sum())) for net in nets]
    )


def study() -> Study:
    """The study of the golden config."""
    return open_study(golden("aw-nas-space.yaml")()[0].decode(), (3, 32, 32))


def profile(folder: Path) -> None:
    """A profile, up to the requested state."""
    one = study()
    data = {"name": "npz:x.npz", "digest": "ab" * 32}
    names = ("Mobileblock_1", "VGGblock_1", "VGGblock_3", "Resblock_1")
    made = ProfileFolder(folder / "profile", {**one.question(), "blocks": [], "data": data}, one.text)
    try:
        made.add(
            AccuracyRow(key="k", network="+".join(names), primitives=names, method="full", stage="s", seed=0,
                        epochs=2, validation=0.5, images=10, curve=(0.25, 0.5))
        )  # fmt: skip
        made.add(
            LatencyRow(key="k", network="+".join(names), primitives=names, toolchain="onnxruntime", call_s=1e-3,
                       low_s=9e-4, high_s=1.1e-3, context={"settings": "{}"})
        )  # fmt: skip
    finally:
        made.close()


def record(folder: Path) -> None:
    """A results database with runs, as one file."""
    from tests.store.contract import failed_run, sample_campaign, sample_run

    from gnomon.core.sample import Event

    path = folder / "record.sqlite"
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign())
        for block in range(3):
            store.append("c1", sample_run(block=block))
        store.append("c1", failed_run())
        store.append("c1", Event(name="noted", at_s=1e9, data={"a": [1, "x"]}))
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")


def lines_of_runs() -> list[bytes]:
    """A results database with runs, as lines."""
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder))
        with SqliteStore.read(Path(folder) / "record.sqlite") as store:
            return ["".join(f"{line}\n" for line in write_lines(store, store.query(CampaignQuery()))).encode()]


def npz(**arrays: Any) -> bytes:
    """Arrays as an archive."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def npy(array: Any) -> bytes:
    """One array as a file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def images() -> list[bytes]:
    """Archives of labelled images."""
    x, y = np.zeros((6, 4, 4), np.uint8), np.arange(6) % 2
    return [
        npz(x=x, y=y, classes=np.array(["a", "b"])),
        npz(x_train=x, y_train=y, x_test=x[:2, ..., None], y_test=y[:2, None]),
    ]


def onnx_models() -> list[bytes]:
    """Small models with a branch, a subgraph, external data, and open shapes."""
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str, shape: Any, kind: int = TensorProto.FLOAT) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    weights = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    plain = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("Add", ["r", "c"], ["y"], "add"),
        ],
        "g", [value("x", ["n", 3, 8, 8])], [value("y", [1, 4, 8, 8])], [weights],
        value_info=[value("c", [1, 4, 8, 8])],
    )  # fmt: skip
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["b"])], "inner", [], [value("b", [2])])
    nested = helper.make_graph(
        [helper.make_node("If", ["t"], ["y"], then_branch=branch, else_branch=branch)],
        "g", [value("x", [2]), value("t", [], TensorProto.BOOL)], [value("y", [2])],
    )  # fmt: skip
    outside = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, told in (("location", "weights.bin"), ("offset", "0"), ("length", "16")):
        entry = outside.external_data.add()
        entry.key, entry.value = key, told
    away = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", [value("x", [4])], [value("y", [4])], [outside]
    )
    imports = [helper.make_opsetid("", 17)]
    return [
        helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
        for graph in (plain, nested, away)
    ]


def decoders() -> list[bytes]:
    """GGUF files of both versions."""
    return [gguf(), gguf(version=2)]


def flat_models() -> list[bytes]:
    """A small TFLite model and a small Circle model."""
    from zoo.flat import ACTIVATION, OPERATOR, OPTIONS, FlatWriter, convolution, pool, reshape

    made = []
    for identifier in (b"TFL3", b"CIR0"):
        writer = FlatWriter()
        source, y = writer.value("x", (1, 4, 4, 1)), writer.value("c", (1, 4, 4, 2))
        w, b = writer.constant("w", np.ones((2, 1, 1, 1), np.float32)), writer.constant("b", np.zeros(2, np.float32))
        code, kind, options = convolution(1, ACTIVATION.RELU, depthwise=False)
        writer.operator(code, [source, w, b], [y], kind, options)
        pooled, flat = writer.value("p", (1, 2, 2, 2)), writer.value("f", (1, 8))
        writer.operator(OPERATOR.MAX_POOL_2D, [y], [pooled], OPTIONS.Pool2DOptions, pool(2, 2))
        shape = writer.constant("s", np.array([1, 8], np.int32))
        writer.operator(OPERATOR.RESHAPE, [pooled, shape], [flat], OPTIONS.ReshapeOptions, reshape([1, 8]))
        made.append(writer.pack([source], [flat], identifier))
    return made


def weights(folder: Path) -> None:
    """Weights."""
    from gnomon.training.loop import write_state

    write_state(folder / "state.safetensors", {"a": np.ones((2, 2), np.float32), "b": np.zeros(1, np.float32)})


HELP_SPACES = {"strings": "nasbench201", "blocks": "fbnet", "values": "ofa-mobilenetv3"}
"""The spaces of HELP's architectures, by the way in which these are written."""


def help_files(kind: str) -> Callable[[], list[bytes]]:
    """Latencies of two nets as PyTorch writes them, or the architectures of each space; as old and as new files."""

    def made() -> list[bytes]:
        from gnomon.training.network import torch_package

        torch = torch_package()
        ofa = {"ks": [3] * 20, "e": [np.int64(4)] * 20, "d": [2] * 5, "r": [np.int64(224)]}
        archs = (
            {
                "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|": 1,
                "|none~0|+|none~0|none~1|+|none~0|none~1|skip_connect~2|": 0,
            },
            {"arch": [{"op_idx_list": [8] * 22}, {"op_idx_list": np.arange(22) % 9}]},
            {"arch": [ofa, {**ofa, "r": 128}]},
        )
        times = ([1.5, 2.5], torch.tensor([1.5, 2.5]), np.array([1.5, 2.5]), [np.float64(1.5), np.float32(2.5)])
        found = []
        for value in times if kind == "latencies" else archs:
            for zipped in (True, False):
                stream = io.BytesIO()
                torch.save(value, stream, _use_new_zipfile_serialization=zipped)
                found.append(stream.getvalue())
        return found

    return made


def table_of_units() -> list[bytes]:
    """Units as tables contain them."""
    return [json.dumps(unit.document()).encode() for unit in units()]


def printed_files(*files: tuple[str, str]) -> bytes:
    """The files that a device without Python prints."""
    return b"".join(b"\x1e" + name.encode() + b"\x1f" + content.encode() for name, content in files)


def device_files() -> list[bytes]:
    """The files of a board with two kinds of cores, and an empty output."""
    clock = "/sys/devices/system/cpu/cpu{}/cpufreq/{}"
    cores = [
        (clock.format(core, name), told)
        for core in (0, 1)
        for name, told in (
            ("cpuinfo_max_freq", "1800000\n"),
            ("cpuinfo_min_freq", "600000\n"),
            ("scaling_governor", "performance\n"),
        )
    ]
    cpuinfo = "".join(
        f"processor\t: {core}\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0{core}\n\n"
        for core in (3, 8)
    )
    return [
        printed_files(
            ("/proc/cpuinfo", cpuinfo), ("/proc/meminfo", "MemTotal:        3882508 kB\n"),
            ("/proc/device-tree/compatible", "hardkernel,n2\0amlogic,g12b\0"),
            ("/proc/self/status", "Cpus_allowed_list:\t0-5\n"),
            ("/etc/os-release", 'PRETTY_NAME="Debian"\n'), ("/sys/devices/system/cpu/online", "0-5\n"),
            ("/sys/devices/system/cpu/cpu0/cpu_capacity", "430\n"), *cores,
            ("/sys/class/thermal/thermal_zone0/type", "cpu-thermal\n"), ("uname-m", "aarch64"), ("uname-r", "6.1"),
            ("uname-s", "Linux"), ("libc", "/lib/ld-musl-aarch64.so.1"),
            ("ldd", "musl libc (aarch64)\nVersion 1.2.3\n"),
        ),
        b"",
    ]  # fmt: skip


def snapshot_files() -> list[bytes]:
    """The same for the facts about possible disturbances of a measurement."""
    return [
        printed_files(
            ("/proc/loadavg", "0.10 0.20 0.30 1/234 5678\n"),
            ("/proc/stat", "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5\n"),
            ("/proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 50 kB\nSwapTotal: 1 kB\nSwapFree: 1 kB\n"),
            ("/proc/vmstat", "pswpin 1\npswpout 2\n"),
            ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1800000\n"),
            ("/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "1\n"),
            ("/sys/class/thermal/thermal_zone0/type", "cpu\n"), ("/sys/class/thermal/thermal_zone0/temp", "45000\n"),
            ("/sys/class/thermal/thermal_zone0/trip_point_0_type", "passive\n"),
            ("/sys/class/thermal/thermal_zone0/trip_point_0_temp", "90000\n"),
            ("/sys/class/power_supply/BAT/type", "Battery\n"),
            ("/sys/class/power_supply/BAT/status", "Discharging\n"), ("/proc/self/cgroup", "0::/a\n"),
        )
    ]  # fmt: skip


def request(body: bytes, *, path: str = "/test_latency/test_latency/", more: str = "") -> bytes:
    """An HTTP request."""
    kind = "multipart/form-data; boundary=b"
    return (
        f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def requests() -> list[bytes]:
    """Requests to the server of `gnomon serve`."""
    name = b'--b\r\nContent-Disposition: form-data; name="kernel_name"\r\n\r\nnet\r\n'
    file = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\x08\x08\x12\x04\r\n'
    chunked = request(b"", more="Transfer-Encoding: chunked\r\n").replace(b"Content-Length: 0\r\n", b"")
    body = name + file + b"--b--\r\n"
    return [
        request(body),
        request(file + name + b"--b--\r\n", more="Accept: application/json;q=0.5, text/plain;q=0.4\r\n"),
        request(body, more="Authorization: Bearer x\r\nExpect: 100-continue\r\n"),
        chunked + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nAccept: application/json\r\n\r\n",
    ]


MODEL = b"the model of a plan"


def plan() -> dict[str, Any]:
    """A deployed plan, next to whose file `MODEL` lies as m.onnx."""
    tensor = {"shape": [2, 2], "dtype": "float32"}
    segment = {
        "runtime": "onnxruntime",
        "model": "m.onnx",
        "options": {"threads": 1},
        "inputs": [["x", "x"]],
        "outputs": [["y", "y"]],
    }
    return {
        "format": "gnomon-plan", "version": 1, "gnomon": "0", "model": {"name": "m.onnx", "sha256": "ab"},
        "proved_with": {"python": "3.11.7", "processor": None, "runtimes": {}, "packages": {"numpy": "2.0"}},
        "requirements": ["numpy"],
        "operators": [{"index": 0, "name": "a", "type": "Add", "backend": "cpu"}],
        "files": {"m.onnx": hashlib.sha256(MODEL).hexdigest()},
        "job": {"tensors": {"x": tensor, "y": tensor}, "feeds": {"x": {}}, "outputs": ["y"], "seed": 0,
                "segments": [segment], "environment": {}},
    }  # fmt: skip
