"""Every reader of outside input, each with valid inputs: the targets of `python -m fuzz`.

A target is one line of `TARGETS`. Its reader takes bytes. It may raise only errors of `gnomon.errors`, and those that
its `refuses` names, which are the documented answers of readers inside gnomon.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import io
import json
import socket
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np
from tests.formats.scans import read_snpe_csv, read_snpe_json

from fuzz import seeds as good
from gnomon import values
from gnomon.agent.arrays import InputError, fill, make_buffers
from gnomon.agent.drivers.command import reading
from gnomon.agent.plan import PlanRefused, checked_plan
from gnomon.api.pareto import bound, tuning
from gnomon.api.solve import objective_weights
from gnomon.core.codec import loads
from gnomon.core.space import Slot, Space, parse_decimal
from gnomon.core.strict_json import file_text
from gnomon.devices.address import parse_address
from gnomon.devices.base import facts_of
from gnomon.devices.config import load_devices
from gnomon.devices.laid_out import lay_out, parse_files
from gnomon.devices.packages.files import Unusable, find_wheel, host_target, read_metadata
from gnomon.devices.packages.target import target_of
from gnomon.devices.shell.facts import _count, _libc, described
from gnomon.devices.shell.link import Marked
from gnomon.errors import DeviceError, GnomonError, UsageError
from gnomon.formats.aw_nas.config import read_aw_nas_config
from gnomon.formats.aw_nas.tables import read_accuracies, read_latencies, write_flat_table
from gnomon.formats.ncnn_param import parse_ncnn_param, write_ncnn_param
from gnomon.formats.nets_csv import read_nets, write_nets, write_profiled
from gnomon.formats.onert.config import ConfigCfg
from gnomon.formats.onert.manifest import parse_manifest
from gnomon.formats.onert.trace import read_chrome_trace, read_trace, write_trace
from gnomon.formats.pareto.dump import read_dump
from gnomon.formats.pareto.oplist import read_oplist
from gnomon.formats.problem import read_problem
from gnomon.formats.snpe.meta import read_snpe_meta, write_snpe_meta
from gnomon.formats.snpe.table import (
    scan_nnabla_csv,
    write_snpe_csv,
    write_snpe_json,
)
from gnomon.formats.tuning.logs import read_target, read_tuner_log, read_tuning_log
from gnomon.formats.tuning.metaschedule import RECORDS, WORKLOADS, read_metaschedule_database
from gnomon.formats.tuning.names import readings
from gnomon.formats.tuning.records import read_tuning_records
from gnomon.formats.yaml import MOST_LETTERS, read_yaml
from gnomon.formats.yaml_nodes import nodes_of, plain
from gnomon.jobs.estimator import job as estimators
from gnomon.jobs.estimator.help_files import import_nets
from gnomon.jobs.runs.job import command_of
from gnomon.jobs.space.profiling.folder import read_accuracy, read_latency, read_question
from gnomon.jobs.space.profiling.look import read_selection, study_of
from gnomon.jobs.table.exchange import read_profiled
from gnomon.jobs.table.folder import read_table, table_space
from gnomon.measure.link import event_of
from gnomon.models.check import findings_of
from gnomon.models.gguf import read_gguf
from gnomon.models.load import load, plausible_feeds
from gnomon.models.model import Limits
from gnomon.models.ncnn.convert import _batch_axes
from gnomon.models.onnx import graph as onnx_graph
from gnomon.models.onnx.graph import load_outline
from gnomon.models.onnx.quantised import read_quantised
from gnomon.models.pytorch.pt2 import read_pt2
from gnomon.runtimes.declared import declarations
from gnomon.runtimes.packaged import PackageRuntime
from gnomon.serving.job import outcome_of
from gnomon.serving.models import sent_model
from gnomon.session.package import read_plan
from gnomon.spaces.cells.primitives import parse_name
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.loading import load_space, text_reader
from gnomon.spaces.uid import unit_of_uid
from gnomon.spaces.unit import unit_of
from gnomon.store.base import CampaignQuery, EventQuery, RunQuery, TallyQuery
from gnomon.store.lines import read_lines, write_lines
from gnomon.store.sqlite import SqliteStore
from gnomon.training.data.pictures import fitted, load_calibration, open_folder, read_folder
from gnomon.training.data.readers import read_npz
from gnomon.training.loop import read_state
from gnomon.training.recipe import Recipe, check
from gnomon.training.saved import load_saved, numbers
from gnomon.tuning import target as processors
from gnomon.tuning.tracker import TrackerWire, read_free, read_summary

T = TypeVar("T")
SPACE = Space(slots=(Slot(name="a", choices=("x", "y")), Slot(name="b", choices=("1x1", "skip"))))
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A reader, and a function that makes valid inputs. `lines` means that it reads texts of any length."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[bytes], object]
    refuses: tuple[type[BaseException], ...] = ()
    lines: bool = False

    def made(self) -> tuple[bytes, ...]:
        """Valid inputs, made only once."""
        return _made(self.name)


@functools.cache
def _made(name: str) -> tuple[bytes, ...]:
    return tuple(TARGETS[name].seeds())


def text(read: Callable[[str], T]) -> Callable[[bytes], T]:
    """A reader of text, called with the bytes decoded as those of a device or a file are."""
    return lambda data: read(data.decode("utf-8", "replace"))


def parsed(read: Callable[[Any], T]) -> Callable[[bytes], T]:
    """A reader of JSON values, called with the parsed input."""
    return lambda data: read(loads(data))


def back(read: Callable[[Any], Any], write: Callable[[Any], str]) -> Callable[[bytes], object]:
    """A reader whose values are written and must be read back unchanged."""

    def both(data: bytes) -> object:
        found = read(data)
        assert read(write(found).encode()) == found, "what is written is read as something else"
        return found

    return both


def file(name: str, read: Callable[[Path], T]) -> Callable[[bytes], T]:
    """A reader of a file, which is written for it."""

    def from_file(data: bytes) -> T:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            return read(path)

    return from_file


def within(write: Callable[[Path], object], name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """A reader of a folder that `write` makes, in which one file is replaced by the input."""
    kept = functools.cache(lambda: _tree(write))

    def from_folder(data: bytes) -> object:
        with tempfile.TemporaryDirectory() as folder:
            for place, content in {**kept(), name: data}.items():
                path = Path(folder) / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            return read(Path(folder))

    return from_folder


def _tree(write: Callable[[Path], object]) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return {str(p.relative_to(folder)): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()}


def _outline(path: Path) -> object:
    """Read an ONNX file without the inference in a child process, which takes a hundred times as long."""
    (path.parent / "weights.bin").write_bytes(bytes(16))
    load_outline(path, Limits(max_bytes=_MOST_BYTES))
    with mock.patch.object(onnx_graph, "_infer", lambda data, limits: None):
        return load(path), read_quantised(path)


def _inferred(path: Path) -> object:
    (path.parent / "weights.bin").write_bytes(bytes(16))
    return load(path, Limits(max_bytes=_MOST_BYTES, max_memory_bytes=1 << 30, max_infer_s=8))


def _checked(path: Path) -> object:
    (path.parent / "weights.bin").write_bytes(bytes(16))
    return findings_of(load(path, inferred=False))


def _with_weights(path: Path) -> object:
    path.with_suffix(".bin").write_bytes(bytes(64))
    return plausible_feeds(load(path))


def _exported(data: bytes) -> object:
    """Read a graph alone: damage would always make its archive unreadable."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("m/models/model.json", data)
    return read_pt2(archive.getvalue(), "m")


def _package(folder: Path) -> None:
    (folder / "metadata").mkdir()
    (folder / "metadata" / "MANIFEST").write_text(_MANIFEST, encoding="utf-8")
    (folder / "metadata" / "config.cfg").write_text(_CONFIG, encoding="utf-8")
    (folder / "m.circle").write_bytes(good.flat_models()[1])


def _record(path: Path) -> object:
    with SqliteStore.open(path) as store:
        campaigns = list(store.query(CampaignQuery()))
        for campaign in campaigns:
            for query in (
                RunQuery(campaign=campaign.id),
                EventQuery(campaign=campaign.id),
                TallyQuery(campaign=campaign.id),
            ):
                list(store.query(query))
            with contextlib.suppress(GnomonError):
                command_of(store, campaign)
        return campaigns


def _runs(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder, SqliteStore.open(Path(folder) / "record.sqlite") as store:
        read_lines(data, store)
        return list(write_lines(store, store.query(CampaignQuery())))


def _described(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as folder:
        return described(data, Path(folder))


def _session(data: bytes) -> object:
    taken = bytearray()
    session = Marked("0123", taken.extend)
    for start in range(0, len(data), 7):
        session.add(data[start : start + 7])
    return session.status, bytes(taken)


def _snapshot(data: bytes) -> object:
    from gnomon.agent.snapshot import snapshot
    from gnomon.measure.environment import judge

    with tempfile.TemporaryDirectory() as folder:
        lay_out(parse_files(data), Path(folder))
        found = json.loads(json.dumps(snapshot(folder)))
        return judge(found, found)


def _deployed(path: Path) -> object:
    (path.parent / "m.onnx").write_bytes(good.MODEL)
    return checked_plan(str(path))


def _measured_package(path: Path) -> object:
    path.with_name("m.onnx").write_bytes(good.MODEL)
    return PackageRuntime(path.parent).model


def _plan(folder: Path) -> object:
    return read_plan(folder, at="/there")


def _fed(path: Path) -> None:
    """Read a .npy file as the values of an input."""
    for dtype in ("float32", "int8"):
        buffers = make_buffers({"x": {"shape": [2, 3], "dtype": dtype}})
        with contextlib.suppress(InputError):
            fill(buffers, {"x": {"file": str(path)}}, 0)
    strings = {"x": np.zeros((2,), object)}
    with contextlib.suppress(InputError):
        fill(strings, {"x": {"file": str(path)}}, 0)


def _packed_npy(data: bytes) -> bytes:
    """An archive around a damaged array, with correct checksums."""
    import io
    import zipfile

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("x.npy", data)
        archive.writestr("y.npy", good.npy(np.arange(6) % 2))
    return stream.getvalue()


def _wheel(folder: Path) -> object:
    from packaging.specifiers import SpecifierSet

    target = host_target()
    (folder / "site").mkdir()
    found = find_wheel(folder, "thing", SpecifierSet(), target)
    if found is not None:
        found.lay(folder / "site")
    return found


def _wheels() -> list[bytes]:
    import io
    import zipfile

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("thing/__init__.py", "x = 1\n")
        archive.writestr("thing-1.0.dist-info/METADATA", _METADATA)
        archive.writestr("thing-1.0.dist-info/RECORD", "thing/__init__.py,,\n")
        archive.writestr("thing-1.0.data/purelib/more.py", "y = 1\n")
    return [stream.getvalue()]


def _archives() -> list[bytes]:
    import io
    import zipfile

    found = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as archive:
            archive.writestr("net/metadata/MANIFEST", _MANIFEST)
            archive.writestr("net/m.circle", bytes(2000))
        found.append(stream.getvalue())
    return found


def _estimator(path: Path) -> object:
    """Read an estimator of a space whose units are counted only once, because that takes a second."""
    with mock.patch.object(estimators, "described_space", lambda space, chains: _known(space.name, tuple(chains))):
        return estimators.load_estimator(path)


_made_of = estimators.described_space


@functools.cache
def _known(name: str, chains: tuple[str, ...]) -> Any:
    return _made_of(load_space(name), chains=chains)


def _options(data: str) -> object:
    """Read the values of options on a command line."""
    readers = (
        values.shape,
        values.environment,
        values.toolchain_setting,
        objective_weights,
        values.seconds,
        values.latency,
    )
    for read in (*readers, values.cores, values.thread_counts, tuning, bound):
        with contextlib.suppress(ValueError):
            read(data)
    return None


def _listed(path: Path) -> object:
    from PIL import Image

    Image.new("RGB", (4, 4)).save(path.parent / "a.png")
    return load_calibration(path, path.parent, channels=3)


def _one_by_one(folder: Path) -> object:
    parts = open_folder(folder).parts.values()
    return [fitted(part[k][0], 8, None) for part in parts for k in range(len(part))]


def _recipe(given: Any) -> None:
    if isinstance(given, dict):
        check(Recipe(epochs=1, optimizer=given))


def _profile_rows(folder: Path) -> object:
    return [*read_accuracy(folder / "profile"), *read_latency(folder / "profile")]


def _studied(folder: Path) -> object:
    read_question(folder / "profile")
    return study_of(folder / "profile")


def _looked(folder: Path) -> object:
    return read_selection(folder / "profile")


def _selected(folder: Path) -> None:
    good.profile(folder)
    (folder / "profile" / "selection.json").write_text(json.dumps(_SELECTION), encoding="utf-8")


def _pictures(folder: Path) -> None:
    from PIL import Image

    for name, end in (("a", "png"), ("b", "jpg")):
        (folder / name).mkdir()
        Image.new("RGB", (4, 4), (10, 20, 30)).save(folder / name / f"x.{end}")


def _tracker(data: bytes) -> object:
    """Read what a tracker sends, from its magic number on."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            theirs.send(data)
        theirs.shutdown(socket.SHUT_WR)
        wire = TrackerWire(ours, "here:1")
        import time

        until_s = time.monotonic() + 5
        wire.greet(until_s)
        wire.send([0], until_s)
        reply = wire.receive(until_s)
        with contextlib.suppress(DeviceError):
            return read_free(reply, "here:1")
        return read_summary(reply, "here:1")


def _tracked() -> list[bytes]:
    import struct

    from gnomon.tuning.tracker import MAGIC

    magic = struct.pack("<i", MAGIC)
    summary = [
        0,
        {"server_info": [{"key": "server:a", "addr": ["::1", 9190]}], "queue_info": {"a": {"free": 1, "pending": 0}}},
    ]
    replies = [json.dumps(one).encode() for one in (summary, [0, ["127.0.0.1", 9190, "a:0.5"]])]
    return [magic + struct.pack("<i", len(reply)) + reply for reply in replies]


def _printed(data: str) -> object:
    """Read the output of a program in each of the ways that a declaration can name."""
    ways = (
        ("FPS= (?P<fps>[^ ]*)|took ([0-9.]+)", "fps"),
        (r"^[ \t]*All\S*[ \t]+\S+[ \t]+\S+[ \t]+(?P<ms>\S+)", ""),
        ("json:latency[].*", "ms"),
        ('json:"a b"[0].us', "*"),
        ("csv:averageMs", "name"),
        ("csv:2", ""),
    )
    for read, label in ways:
        with contextlib.suppress(reading.Unreadable):
            reading.readings(read, data, unit="ms", label=label)
    return None


def _declared(path: Path) -> object:
    """Read the commands of a file, and make what a device gets of each."""
    return [one.spec({}) for one, _ in declarations(path).values()]


def _served(data: bytes) -> object:
    """Get the server's reply to what a client sends. A reply that reports an internal error is a finding."""
    reply = asyncio.run(_replied(data))
    assert not reply.startswith(b"HTTP/1.1 500"), reply[:300]
    return reply


async def _replied(data: bytes) -> bytes:
    from gnomon.serving.handlers import RequestHandler
    from gnomon.serving.job import Job, Outcome
    from gnomon.serving.queue import Queue, ServedDevice
    from gnomon.serving.settings import Limits as ServingLimits
    from gnomon.serving.settings import Measuring, ServeSettings

    async def refuse(job: Job) -> Outcome:
        return Outcome(kind="refused", message="no", hint="none")

    settings = ServeSettings(measuring=Measuring(runtime="r"), limits=ServingLimits(most_bytes=1 << 20))
    device = ServedDevice(name="d", run=refuse, job=Job(measuring=settings.measuring, limits=settings.limits))
    facts = {"runtime": "r", "version": "1", "configuration": "c", "device": "d"}
    with tempfile.TemporaryDirectory() as folder:
        queue = Queue(settings.limits, [device], lambda line: None)
        runner = RequestHandler(settings, queue, Path(folder), facts, lambda line: None).runner()
        await runner.setup()
        assert runner.server is not None
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(runner.server, theirs)
            try:
                async with asyncio.timeout(60):
                    return await _exchanged(ours, data)
            finally:
                await runner.cleanup()


async def _exchanged(ours: socket.socket, data: bytes) -> bytes:
    loop = asyncio.get_running_loop()

    async def send() -> None:
        with contextlib.suppress(OSError):
            await loop.sock_sendall(ours, data)
            ours.shutdown(socket.SHUT_WR)

    sending = asyncio.create_task(send())
    reply = bytearray()
    with contextlib.suppress(OSError):
        while piece := await loop.sock_recv(ours, 1 << 16):
            reply += piece
    sending.cancel()
    return bytes(reply)


_MANIFEST = json.dumps(
    {
        "major-version": "1", "minor-version": "3", "patch-version": "0", "configs": ["config.cfg"],
        "models": ["m.circle"], "model-types": ["circle"], "pkg-inputs": ["0:0:0"], "pkg-outputs": ["0:0:0"],
        "model-connect": [{"from": "0:0:0", "to": ["1:0:0", "1:0:1"]}], "of-later": {"kept": True},
    }
)  # fmt: skip
_CONFIG = "# of mine\nBACKENDS=\"cpu;ruy\"\nOP_BACKEND_MAP='0=cpu;1=ruy'\nNUM_THREADS=2\n"
_NCNN = """7767517
6 7
Input                    in0                      0 1 in0 0=8 1=8 2=3
Convolution              conv_0                   1 1 in0 1 0=4 1=3 -23310=2,0.0,6.0 6=108 9=3
Split                    splitncnn_0              1 2 1 2 3
ReLU                     relu_0                   1 1 2 4 31=4
BinaryOp                 add_0                    2 1 4 3 5 0=0
Reshape                  shape_0                  1 1 5 out0 0=64 1=-1
"""
_OTHER_NCNN = """7767517
6 7
Input                    in0                      0 1 in0 0=8 1=8 2=3
Pooling                  pool_0                   1 1 in0 1 0=1 1=2 2=2
Permute                  perm_0                   1 1 1 2 0=3
Slice                    cut_0                    1 2 2 3 4 -23300=2,2,-233 1=0
Interp                   big_0                    1 1 3 5 0=2 1=2.0 2=2.0
InnerProduct             fc_0                     1 1 4 6 0=10 1=1 2=80
"""
_PROBLEM = {
    "format": "gnomon-problem",
    "version": 2,
    "objectives": [{"name": "latency", "unit": "s"}, {"name": "memory", "unit": "byte"}],
    "slots": [
        {"name": "conv1", "choices": ["cpu", "gpu"], "cost": [[1.0, 4], [0.5, 8]]},
        {"name": "conv2", "choices": ["cpu", "gpu"], "cost": [[1.0, None], None]},
    ],
    "pairs": [{"slots": [0, 1], "cost": [[[0, 0], None], [[0.1, 1], [0, 0]]]}],
    "charges": [{"choice": "gpu", "cost": [0.0, 3e8]}],
    "limits": [
        {"objective": "memory", "choices": ["gpu"], "at_most": 4e9},
        {"name": "x", "unit": "B", "at_most": 7, "use": {"slots": [[0, 3], None], "charges": [5]}},
    ],
}
_DEVICES = """
# my devices
[devices.board]
address = "ssh://odroid@board:2222"    # in the cellar
python = "/opt/py/bin/python3"
keep = false
environment = { LD_LIBRARY_PATH = "/opt/one/lib" }
ssh_options = ["IdentityFile=/home/me/.ssh/board"]
connect_timeout_s = 3
threads = 4
runtimes = ["onert"]
pin = [4, 5]
governor = "performance"
fetch = true
"""
_METADATA = (
    "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\nRequires-Python: >=3.8\n"
    "Requires-Dist: a>=1; python_version>'3'\n\nText\n"
)
_FINGERPRINT = {"machine": "aarch64", "python": "3.11.2", "kernel": "6.1", "libc": "glibc 2.36"}
_UIDS = (
    "Conv[in_channels=192,out_channels=192,kernel=[5,5],stride=[1,1],pad=[2,2],dilation=None,base_axis=1,group=192,"
    "with_bias=False,fix_parameters=False,channel_last=False][[1,192,16,16]]",
    "ReLU6[][[1,32,16,16]]",
    "Add2[][[1,8,4,4],[1,8,4,4]]",
)
_SELECTION = {
    "format": "gnomon-space-select", "version": 1, "profile": "p", "rule": "pareto", "method": "full",
    "toolchain": "onnxruntime", "imported": {"accuracies": {"nets.csv": 2}}, "images_known": True, "proofs": ["VGG_1"],
    "numbering": "ssprofile", "family": None, "groups": [["VGGblock_1"], ["Mobileblock_1", "Mobileblock_4"]],
    "meanings": {"VGGblock_1": "3x3"}, "unlike_aw_nas": [], "networks_before": "81", "networks_after": "16",
    "output": "p/output.yaml", "lookup": None, "latency_file": False,
    "lookup_model": {"model": "m", "why": "", "held_out": {"m": {"networks": 1, "mean": 0.1, "worst": 1.0}}},
    "primitives": [[{"name": "VGGblock_1", "frequency": 0.5, "low": 0.4, "high": 0.6, "stays": True, "again": 1.0}]],
    "share_kept": [0.1, 0.2, 0.3],
}  # fmt: skip
_EVENTS = (
    {"event": "block", "candidate": "c", "block": 0, "started_at_s": 1.0, "wall_ns": [1, 0], "cpu_ns": [0, 0],
     "inner": 1, "peak_rss_bytes": None, "waits": 3,
     "operators": [{"name": "Conv", "sources": [0, "conv"], "backend": "cpu", "wall_ns": [5]}]},
    {"event": "failure", "candidate": "c", "stage": "run", "kind": "crash", "transient": False, "message": "crashed",
     "log_tail": "", "block": 1},
    {"event": "opened", "candidate": "c", "where": [[]], "difference": {"relative": 0.0}},
    {"event": "environment", "data": {
        "before": {"cores": 2, "monotonic_s": 1.0, "governors": {"cpu0": "powersave"}},
        "after": {"load_average_1m": 0.5, "monotonic_s": 2.0, "frequencies_khz": {"cpu0": [100, 50, 200, 200]},
                  "temperatures_c": {"a": 50.0}}}},
    {"event": "answer", "key": "k", "answer": {}},
)  # fmt: skip
_CHROME = {
    "traceEvents": [
        {"name": "$0 subg", "pid": "0", "tid": "$0 sess, $0 subg", "ph": "B", "ts": "5", "args": {}},
        {"name": "@1 Conv2D", "pid": "0", "tid": "$0 sess, $0 subg, cpu", "ph": "B", "ts": "10", "args": {}},
        {"name": "@1 Conv2D", "pid": "0", "tid": "$0 sess, $0 subg, cpu", "ph": "E", "ts": "15", "args": {}},
    ]
}
_ADDRESSES = ("ssh://me@board:22", "local", "adb://SERIAL", "sdb:", "ssh://[fe80::1%eth0]:22", "tvm://a:9190/key")
_MEASURED = {"latency_s": 1e-3, "low_s": None, "high_s": None, "processes": 1, "loads": 1, "samples": 9, "runtime": "r",
             "configuration": "c", "device": "d", "reference_s": [1e-3]}  # fmt: skip
_REPLIES = ({"kind": "measured", "result": _MEASURED},
            {"kind": "refused", "message": "x", "hint": "y"},
            {"kind": "failed", "error": "DeviceError", "message": "x", "hint": ""})  # fmt: skip
_NUMBERS = ("1.5", "0x1F", "1:30:00", "1_000", "yes", "~", ".inf", "1e-3", "012", "2001-01-01", "-1.5e+3")
_DUMPS = good.golden(
    "pareto-brute-force.json", "pareto-brute-force-index.json", "pareto-sampler.json", "pareto-sampler-index.json",
    "pareto-published-brute-force.json", "pareto-published-sampler.json",
)  # fmt: skip
_TRACES = good.golden("stab-trace-1.json", "stab-trace-2.json", "stab-trace-sessions.json")


def _database(kind: int) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        both = [(good.GOLDEN / "tuning" / "metaschedule" / name).read_bytes() for name in (WORKLOADS, RECORDS)]
        both[kind] = data
        return read_metaschedule_database(*both)

    return read


def _config(data: bytes) -> object:
    """Read a config, and the same config with a result in it."""
    config, document = read_aw_nas_config(data)
    document.output([["skip_connect"]])
    return config


def _all(*targets: Target) -> dict[str, Target]:
    return {target.name: target for target in targets}


def _text_of_csv(data: bytes) -> object:
    found = read_nets(data, SPACE)
    again = read_nets(write_nets(found, SPACE, measured=True).encode(), SPACE)
    assert [row.assignment for row in again] == [row.assignment for row in found]
    return found


def _nets_of_a_profile(data: bytes) -> object:
    found = read_nets(data, SPACE, profiled=True)
    assert read_nets(write_profiled(found, SPACE).encode(), SPACE, profiled=True) == found
    return found


def _nets_as_one_text(data: bytes) -> object:
    cell = load_space("nasbench201")
    return read_nets(data, cell.space, text_reader(cell))


def _help_latencies(path: Path) -> object:
    return numbers(load_saved(path, hint="none"), 1 << 10)


def _help_architectures(path: Path) -> object:
    """Read the same file as the architectures of each space: two of three are refused."""
    found = None
    for kind, space in good.HELP_SPACES.items():
        times = path.with_name(f"{kind}.pt")
        times.write_bytes(_made("help latencies")[0])
        with contextlib.suppress(UsageError):
            found = import_nets(times, path, load_space(space))
    return found


_READ_TARGET = functools.partial(processors.read_target, here={"mcpu": "znver3", "mtriple": "x86_64-linux-gnu"})

TARGETS: dict[str, Target] = _all(
    # Models
    Target(name="onnx", seeds=good.onnx_models, read=file("m.onnx", _outline)),
    Target(name="onnx checked", seeds=good.onnx_models, read=file("m.onnx", _checked)),
    Target(name="onnx inferred", seeds=good.onnx_models, read=file("m.onnx", _inferred)),
    Target(
        name="ExecuTorch program",
        seeds=good.models("small-portable.pte", "small-xnnpack.pte"),
        read=file("m.pte", load),
    ),
    Target(name="exported program", seeds=good.models("small.pt2"), read=file("m.pt2", load)),
    Target(name="ONNX Runtime's own", seeds=good.models("small.ort"), read=file("m.ort", load)),
    Target(name="exported program's graph", seeds=good.exported, read=_exported),
    Target(name="GGUF", seeds=good.decoders, read=file("m.gguf", read_gguf)),
    Target(name="flatbuffers", seeds=good.flat_models, read=file("m.tflite", load)),
    Target(name="flatbuffers checked", seeds=good.flat_models, read=file("m.tflite", _checked)),
    Target(
        name="ncnn param",
        seeds=good.texts(_NCNN, _OTHER_NCNN),
        read=back(text(parse_ncnn_param), write_ncnn_param),
        lines=True,
    ),
    Target(name="ncnn model", seeds=good.texts(_NCNN, _OTHER_NCNN), read=file("m.param", _with_weights)),
    Target(name="OpenVINO model", seeds=good.models("small.xml", "look-up.xml"), read=file("m.xml", _with_weights)),
    Target(name="manifest", seeds=good.texts(_MANIFEST), read=text(parse_manifest), lines=True),
    Target(name="nnpackage", seeds=good.texts(_MANIFEST), read=within(_package, "metadata/MANIFEST", load)),
    Target(name="nnpackage config", seeds=good.texts(_CONFIG), read=within(_package, "metadata/config.cfg", load)),
    Target(
        name="config.cfg",
        seeds=good.texts(_CONFIG),
        read=text(lambda t: ConfigCfg(text=t).with_settings({"A": "b"}).settings),
        lines=True,
    ),
    # Tables of other tools, and of gnomon
    Target(
        name="accuracies",
        seeds=good.texts("VGG_1_1: 0.5\nMobile_1_0: 1.0e-05\n'A_1': .5\n"),
        read=back(read_accuracies, write_flat_table),
        lines=True,
    ),
    Target(
        name="latencies",
        seeds=good.texts("VGG_1_1: 0.5\nMobile_1_0: 1.0e-05\n"),
        read=back(read_latencies, write_flat_table),
        lines=True,
    ),
    Target(name="snpe csv", seeds=good.golden("snpe-table.csv"), read=back(read_snpe_csv, write_snpe_csv), lines=True),
    Target(
        name="snpe json",
        seeds=lambda: [write_snpe_json(read_snpe_csv(good.golden("snpe-table.csv")()[0])).encode()],
        read=back(read_snpe_json, write_snpe_json),
        lines=True,
    ),
    Target(
        name="snpe meta", seeds=good.golden("snpe-table.meta"), read=back(read_snpe_meta, write_snpe_meta), lines=True
    ),
    Target(
        name="nnabla csv",
        seeds=good.texts("u,CPU,1.5\r\nu,GPU,2.0\r\nv,CPU,3.0\r\nv,GPU,1.0\r\n"),
        read=scan_nnabla_csv,
        lines=True,
    ),
    Target(name="any table", seeds=good.golden("snpe-table.csv"), read=file("t.csv", read_profiled)),
    Target(name="uid", seeds=good.texts(*_UIDS), read=text(unit_of_uid), lines=True),
    Target(name="unit", seeds=good.table_of_units, read=parsed(unit_of)),
    Target(
        name="table manifest",
        seeds=good.written(good.table, "table/manifest.json"),
        read=within(good.table, "table/manifest.json", lambda p: read_table(p / "table")),
    ),
    Target(
        name="table rows",
        seeds=good.written(good.table, "table/rows.jsonl"),
        read=within(good.table, "table/rows.jsonl", lambda p: read_table(p / "table")),
    ),
    Target(
        name="table space",
        seeds=good.written(good.table, "table/space.json"),
        read=within(good.table, "table/space.json", lambda p: table_space(p / "table", "own", None).tables(UNFUSED)),
    ),
    Target(
        name="nets",
        seeds=good.texts("accuracy,b, a ,latency_ms\n0.9,skip,x,2.5\n\n0.8,1x1,y,\n"),
        read=_text_of_csv,
        lines=True,
    ),
    Target(
        name="nets of a profile",
        seeds=good.texts(
            "a,b,accuracy,accuracy_error,method,latency_ms,low_ms,high_ms,processes,toolchain,device\n"
            "x,skip,0.9,0.01,fair,2.5,2.25,2.75,6,onnxruntime,local\ny,1x1,,,,1e-3,,,,,\n"
        ),
        read=_nets_of_a_profile,
        lines=True,
    ),
    Target(
        name="nets as one text",
        seeds=good.texts(
            "arch,latency_ms\n|none~0|+|skip_connect~0|nor_conv_3x3~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|,2.5\n"
        ),
        read=_nets_as_one_text,
        lines=True,
    ),
    Target(name="help latencies", seeds=good.help_files("latencies"), read=file("l.pt", _help_latencies)),
    Target(name="help architectures", seeds=good.help_files("archs"), read=file("a.pt", _help_architectures)),
    # Estimators
    Target(name="estimator", seeds=good.written(good.estimator, "estimator.json"), read=file("e.json", _estimator)),
    # Placements
    Target(name="problem", seeds=good.values(_PROBLEM), read=read_problem, lines=True),
    Target(name="code", seeds=good.texts("0", "123456789" * 500), read=text(parse_decimal), lines=True),
    Target(name="dump", seeds=_DUMPS, read=read_dump, lines=True),
    Target(name="oplist", seeds=good.golden("oplist-index.json", "oplist-name.json"), read=read_oplist, lines=True),
    Target(name="chrome trace", seeds=good.values(_CHROME), read=read_chrome_trace, lines=True),
    Target(name="stab trace", seeds=_TRACES, read=back(read_trace, write_trace), lines=True),
    Target(name="plan", seeds=good.values(good.plan()), read=file("p/plan.json", lambda p: _plan(p.parent))),
    Target(name="package", seeds=good.values(good.plan()), read=file("plan.json", _measured_package)),
    Target(
        name="deployed plan",
        seeds=good.values(good.plan()),
        read=file("plan.json", _deployed),
        refuses=(PlanRefused,),
    ),
    # Spaces and profiles
    Target(name="aw_nas config", seeds=good.golden("aw-nas-space.yaml"), read=_config, lines=True),
    Target(
        name="yaml",
        seeds=good.golden("aw-nas-space.yaml"),
        read=lambda data: list(nodes_of(read_yaml(file_text(data, "w", "h", MOST_LETTERS), "w", "h"))),
        lines=True,
    ),
    Target(name="yaml scalar", seeds=good.texts(*_NUMBERS), read=text(plain), lines=True),
    Target(name="primitive name", seeds=good.texts("Mobileblock_1"), read=text(parse_name), lines=True),
    Target(name="space name", seeds=good.texts("fbnet", "nasbench201"), read=text(load_space)),
    Target(
        name="profile",
        seeds=good.written(good.profile, "profile/profile.json"),
        read=within(good.profile, "profile/profile.json", _studied),
    ),
    Target(
        name="profile accuracy",
        seeds=good.written(good.profile, "profile/accuracy.jsonl"),
        read=within(good.profile, "profile/accuracy.jsonl", _profile_rows),
    ),
    Target(
        name="profile latency",
        seeds=good.written(good.profile, "profile/latency.jsonl"),
        read=within(good.profile, "profile/latency.jsonl", _profile_rows),
    ),
    Target(name="selection", seeds=good.values(_SELECTION), read=within(_selected, "profile/selection.json", _looked)),
    # Tuning
    Target(
        name="ansor log",
        seeds=good.golden("ansor-log.json"),
        read=lambda data: read_tuner_log(data, "ansor"),
        lines=True,
    ),
    Target(
        name="autotvm log",
        seeds=good.golden("autotvm-log.json"),
        read=lambda data: read_tuner_log(data, "autotvm"),
        lines=True,
    ),
    Target(
        name="tuning log",
        seeds=lambda: [
            *good.golden("tuning-records.json", "autotvm-log.json", "ansor-log.json")(),
            gzip.compress((good.GOLDEN / "tuning" / "autotvm-log.json").read_bytes()),
        ],
        read=lambda data: read_tuning_log("x", data),
    ),
    Target(
        name="tuning records",
        seeds=good.golden("tuning-records.json", "tuning-records-1.json"),
        read=read_tuning_records,
        lines=True,
    ),
    Target(name="metaschedule workloads", seeds=good.golden(f"metaschedule/{WORKLOADS}"), read=_database(0)),
    Target(name="metaschedule records", seeds=good.golden(f"metaschedule/{RECORDS}"), read=_database(1)),
    Target(
        name="tuning name",
        seeds=good.texts("phone_server.mobilenet.float32.atvm.json", "phone.m.int8.so"),
        read=text(lambda t: readings(t, ("phone", "server"))),
        lines=True,
    ),
    Target(
        name="target of a log",
        seeds=good.texts("llvm -mcpu=core-avx2 -keys=cpu", '{"kind": "llvm"}'),
        read=text(read_target),
        lines=True,
    ),
    Target(
        name="target",
        seeds=good.texts("native", "x86-64-v3", "aarch64-cortex-a72", '{"kind": "llvm", "mcpu": "x"}'),
        read=text(_READ_TARGET),
    ),
    Target(name="tracker", seeds=_tracked, read=_tracker),
    # Devices
    Target(name="devices", seeds=good.texts(_DEVICES), read=file("devices.toml", load_devices)),
    Target(name="address", seeds=good.texts(*_ADDRESSES), read=text(parse_address), lines=True),
    Target(name="event", seeds=good.values(*_EVENTS), read=text(event_of)),
    Target(name="session", seeds=good.texts("noise\x1e0123<\x1esaid\x1e0123>0\x1e"), read=_session),
    Target(name="facts", seeds=good.device_files, read=_described),
    Target(name="files of a device", seeds=good.device_files, read=parse_files, lines=True),
    Target(name="state of a device", seeds=good.snapshot_files, read=_snapshot),
    Target(name="list of cores", seeds=good.texts("0-3,6"), read=text(_count), lines=True),
    Target(
        name="libc of a device",
        seeds=good.texts("ldd (Debian GLIBC 2.36-9) 2.36\n", "musl libc\nVersion 1.2.3"),
        read=text(lambda t: _libc("/lib/libc.so.6", t)),
        lines=True,
    ),
    Target(
        name="fingerprint",
        seeds=good.values(_FINGERPRINT),
        read=text(lambda t: target_of(facts_of(t) or {})),
    ),
    Target(
        name="metadata",
        seeds=good.texts(_METADATA),
        read=text(lambda t: read_metadata(t, host_target())),
        refuses=(Unusable,),
    ),
    Target(name="wheel", seeds=_wheels, read=file("thing-1.0-py3-none-any.whl", lambda p: _wheel(p.parent))),
    # Serving
    Target(name="http", seeds=good.requests, read=_served),
    Target(name="sent model", seeds=_archives, read=file("in/model", lambda path: sent_model(path, 1 << 16))),
    Target(
        name="printed times",
        seeds=good.texts(
            "FPS= 628.476 number_of_frames= 37710\nFPS= 1e3",
            "took 3.5 ms",
            "Total Nodes In Avg:\n  All 2262.336 59.15 13.937 162.3\n",
            'x\n{"latency": [{"ms": 1.5}, {"ms": "2"}], "a b": [{"us": 3}]}',
            "name;averageMs\nconv;0.5\n",
        ),
        read=text(_printed),
        lines=True,
    ),
    Target(
        name="declared commands",
        seeds=good.texts(
            "[commands.x]\nrun = 'x {model} {p}'\nread = 'json:a[].ms'\nfiles = {a = 'b'}\nchoices = {p = ['a', 'b']}",
            "[commands.y]\nrun = ['y', '{model}']\nunit = 'us'\n[commands.y.operators]\nread = 'csv:t_ms'\nlabel = 'n'",
        ),
        read=file("commands.toml", _declared),
    ),
    Target(name="outcome", seeds=good.values(*_REPLIES), read=text(outcome_of)),
    # The command line, and the output of other programs
    Target(
        name="options",
        seeds=good.texts(
            "x=1,3,8,8", "A=b,C=d", "tool.key=v", "a=1,b=2.5", "90s", "5ms", "0-3,5", "1,2", "n=1,2", "latency=5ms"
        ),
        read=text(_options),
        lines=True,
    ),
    Target(
        name="script of pnnx",
        seeds=good.texts('ex.input("in0", ncnn.Mat(in0.numpy(), batch_index=0).clone())'),
        read=text(_batch_axes),
        lines=True,
    ),
    Target(
        name="recipe",
        seeds=good.values(
            {"type": "SGD", "lr": 0.1, "momentum": 0.9}, {"type": "Adam", "lr": 1e-3, "betas": [0.9, 0.99]}
        ),
        read=parsed(_recipe),
    ),
    Target(name="list of images", seeds=good.texts("a.png 1\na.png\n"), read=file("list.txt", _listed)),
    # Records and arrays
    Target(name="record", seeds=good.written(good.record, "record.sqlite"), read=file("record.sqlite", _record)),
    Target(name="lines of runs", seeds=good.lines_of_runs, read=_runs, lines=True),
    Target(name="npz", seeds=good.images, read=file("x.npz", read_npz)),
    Target(
        name="npz member",
        seeds=lambda: [good.npy(np.zeros((6, 4, 4), np.uint8))],
        read=lambda data: file("x.npz", read_npz)(_packed_npy(data)),
    ),
    Target(
        name="npy input",
        seeds=lambda: [
            good.npy(np.zeros((2, 3), np.float32)),
            good.npy(np.zeros((2, 3), np.int64)),
            good.npy(np.array(["a", "b"])),
        ],
        read=file("x.npy", _fed),
    ),
    Target(
        name="pictures",
        seeds=good.written(_pictures, "a/x.png"),
        read=within(_pictures, "a/x.png", read_folder),
    ),
    Target(
        name="jpeg",
        seeds=good.written(_pictures, "b/x.jpg"),
        read=within(_pictures, "b/x.jpg", read_folder),
    ),
    Target(
        name="pictures one by one",
        seeds=good.written(_pictures, "b/x.jpg"),
        read=within(_pictures, "b/x.jpg", _one_by_one),
    ),
    Target(
        name="weights", seeds=good.written(good.weights, "state.safetensors"), read=file("w.safetensors", read_state)
    ),
)
