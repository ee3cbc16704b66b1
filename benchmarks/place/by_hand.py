"""Hand-written timing loops for each runtime alone, in alternating fresh processes: gnomon measures nothing here.

`python -m benchmarks.place.by_hand JSON` is one such process. It loads a file with one runtime, calls it for some
seconds, and prints the medians of a call's wall and CPU time. In "set", a model is prepared as well as users can: a
given number of threads, shapes fixed by the runtime's own means, and bound tensors. "default" is the runtime as in its
first example: the file, a dictionary of arrays, no options. "package" is a package of gnomon, run by its agent; "run"
is the package run by its own command, which reports only wall time; "nnpackage" is the nnpackage inside, run by onert
without the agent.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.core.stats import student_quantile

ROOT = Path(__file__).resolve().parents[2]
Call = Callable[[], object]
_SAMPLE_S, _FEWEST = 2e-4, 9
_KEPT: list[object] = []
"""Objects that the process must not release: runtimes read bound arrays without keeping them alive."""
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one process runs. `how` is described in the module; `feeds` are the .npy files of the inputs, in order.

    `settings` are threads, precision (OpenVINO), kernels (LiteRT) and backends (onert). With several `sessions`, the
    model is loaded this many times in one process, and the last session counts.
    """

    runtime: str
    how: str
    model: str
    feeds: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 1.0
    sessions: int = 1


def feeds_of(path: Path, given: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """An .npy file for each input of a model, in order; `given` has its shape, and its values or their range.

    Facts that the file itself contains are missing in `given`. ValueError for an input without a known shape.
    """
    from gnomon.models.load import load

    graph = load(path).graph
    files = {}
    for number, tensor in enumerate(graph.tensors[index] for index in graph.inputs):
        told = given.get(tensor.name, {})
        shape = told.get("shape", tensor.shape)
        if shape is None or any(size < 0 for size in shape):
            raise ValueError(f"the shape of the input {tensor.name} is open: {tensor.shape}")
        rng = np.random.default_rng(number)
        least, most = told.get("least", 0), told.get("most", 1)
        if "values" in told:
            array = np.asarray(told["values"]).reshape(shape)
        elif tensor.dtype.startswith(("float", "bfloat")):
            array = rng.uniform(least, most, shape)
        else:
            array = rng.integers(least, most + 1, shape)
        files[tensor.name] = str(folder / f"input-{number}.npy")
        np.save(files[tensor.name], array.astype(tensor.dtype))
    return files


def converted(runtime: str, path: Path, folder: Path, feeds: Mapping[str, str]) -> Path:
    """The file that the runtime loads: the user's own, or what MNN's or ncnn's own converter makes of an ONNX file."""
    if path.suffix != ".onnx" or runtime not in ("mnn", "ncnn"):
        return path
    work = folder / runtime
    work.mkdir(exist_ok=True)
    if runtime == "mnn":
        program = "import sys, _tools; _tools.mnnconvert(['mnnconvert', *sys.argv[1:]])"
        words = ["-f", "ONNX", "--modelFile", str(path), "--MNNModel", "model.mnn", "--bizCode", "benchmark"]
        command = [sys.executable, "-c", program, *words]
    else:
        from gnomon.models.ncnn.convert import find_pnnx

        arrays = [np.load(file) for file in feeds.values()]
        shapes = ",".join(f"{list(a.shape)}{a.dtype.kind}{8 * a.itemsize}".replace(" ", "") for a in arrays)
        (work / "model.onnx").write_bytes(path.read_bytes())
        command = [str(find_pnnx()), "model.onnx", f"inputshape={shapes}"]
    made = work / ("model.mnn" if runtime == "mnn" else "model.ncnn.param")
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if not made.is_file():
        raise ValueError(f"{runtime} does not convert {path.name}: {(done.stdout + done.stderr)[-300:]}")
    return made


def by_turns(sides: Mapping[str, Side], turns: int) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """The results of each side, whose fresh processes alternate, each side first in half of the turns; and why sides
    failed.
    """
    told: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    failed: dict[str, str] = {}
    for turn in range(turns):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            if name in failed:
                continue
            try:
                told[name].append(in_fresh_process(sides[name]))
            except (ValueError, subprocess.TimeoutExpired) as error:
                failed[name] = str(error)
    return told, failed


def in_fresh_process(side: Side) -> dict[str, Any]:
    """The output of one process of the side. ValueError if it fails."""
    command = [sys.executable, "-m", "benchmarks.place.by_hand", json.dumps(asdict(side))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    if side.how == "run":
        return _run(side)
    if side.how == "package":
        plan = json.loads((Path(side.model) / "plan.json").read_text(encoding="utf-8"))
        environment |= plan["job"]["environment"]
    elif side.runtime == "onert" and side.how == "set":
        environment["NUM_THREADS"] = str(side.settings.get("threads", 1))
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise ValueError(f"{side.runtime} ended with {done.returncode}: {done.stderr[-300:].strip()}")
    made: dict[str, Any] = json.loads(lines[-1])
    return made


def _run(side: Side) -> dict[str, Any]:
    """The time that a package's own command reports."""
    plan = json.loads((Path(side.model) / "plan.json").read_text(encoding="utf-8"))
    words = [word for name in plan["job"]["environment"] for word in ("--allow", name)]
    words += [word for name, file in side.feeds.items() for word in ("--input", f"{name}={file}")]
    command = [sys.executable, "gnomon-agent.pyz", "run", "plan.json", "--seconds", str(side.seconds), *words]
    done = subprocess.run(command, cwd=side.model, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise ValueError(f"the package ended with {done.returncode}: {done.stderr[-300:].strip()}")
    told = json.loads(done.stdout.strip().splitlines()[-1])
    return {"wall_s": told["median_ms"] * 1e-3, "samples": told["samples"], "precision": ""}


def levels(told: Iterable[Mapping[str, Any]], clock: str) -> list[float]:
    """The seconds per call of each process, by the clock "cpu" or "wall"."""
    return [float(one[f"{clock}_s"]) for one in told]


def ratio_by_turns(of: Sequence[float], over: Sequence[float]) -> dict[str, Any]:
    """The ratio of two sides that alternated, with its 95 % interval over processes (Student, on logarithms)."""
    logs = [math.log(a / b) for a, b in zip(of, over, strict=False)]
    return _bounded(statistics.mean(logs), statistics.stdev(logs) / math.sqrt(len(logs)), len(logs) - 1, len(logs))


def ratio_apart(of: Sequence[float], over: Sequence[float]) -> dict[str, Any]:
    """The ratio of two sides that were measured one after the other, with its 95 % interval (Welch, on logarithms)."""
    a, b = ([math.log(value) for value in side] for side in (of, over))
    parts = [statistics.variance(side) / len(side) for side in (a, b)]
    freedom = sum(parts) ** 2 / max(sum(p * p / (len(s) - 1) for p, s in zip(parts, (a, b), strict=True)), 1e-300)
    return _bounded(statistics.mean(a) - statistics.mean(b), math.sqrt(sum(parts)), int(freedom), min(len(a), len(b)))


def _bounded(centre: float, error: float, freedom: int, processes: int) -> dict[str, Any]:
    half = error * student_quantile(0.975, max(1, freedom))
    bounds = {"ratio": centre, "low": centre - half, "high": centre + half}
    return {**{name: math.exp(value) for name, value in bounds.items()}, "processes": processes}


def _onnxruntime(side: Side, feeds: dict[str, Any]) -> tuple[Call, str]:
    import onnxruntime

    if side.how == "default":
        session = onnxruntime.InferenceSession(side.model)
        return lambda: session.run(None, feeds), ""
    import onnx

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = int(side.settings["threads"]), 1
    for value in onnx.load(side.model, load_external_data=False).graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, feeds[value.name].shape if value.name in feeds else (), strict=False):
            if dim.dim_param:
                options.add_free_dimension_override_by_name(dim.dim_param, size)
    session = onnxruntime.InferenceSession(side.model, options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, feeds)
    if not all(isinstance(value, np.ndarray) and value.dtype != object for value in outputs):
        return lambda: session.run(None, feeds), ""
    binding = session.io_binding()
    kept = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in (*feeds.values(), *outputs)]
    _KEPT.extend(kept)
    for name, value in zip(feeds, kept, strict=False):
        binding.bind_ortvalue_input(name, value)
    for output, value in zip(session.get_outputs(), kept[len(feeds) :], strict=True):
        binding.bind_ortvalue_output(output.name, value)
    return lambda: session.run_with_iobinding(binding), ""


def _openvino(side: Side, feeds: dict[str, Any]) -> tuple[Call, str]:
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    core = openvino.Core()
    if side.how == "default":
        # A lower precision is the default if the processor has it: setting float32 allows a comparison of everything
        # else.
        hint = {"INFERENCE_PRECISION_HINT": side.settings["precision"]} if side.settings else {}
        compiled = core.compile_model(side.model, "CPU", hint) if hint else core.compile_model(side.model)
        request = compiled.create_infer_request()
        given = {_port(compiled, name, number): array for number, (name, array) in enumerate(feeds.items())}
        # The chosen device does not show in which precision the processor computes.
        precision = core.compile_model(side.model, "CPU", hint).get_property("INFERENCE_PRECISION_HINT")
        return lambda: request.infer(given), str(precision.get_type_name())
    model = core.read_model(side.model)
    model.reshape({_port(model, name, number): array.shape for number, (name, array) in enumerate(feeds.items())})
    config = {
        "INFERENCE_NUM_THREADS": int(side.settings["threads"]),
        "INFERENCE_PRECISION_HINT": side.settings.get("precision", "f32"),
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
    }
    compiled = core.compile_model(model, "CPU", config)
    request = compiled.create_infer_request()
    kept = [openvino.Tensor(array, shared_memory=True) for array in feeds.values()]
    _KEPT.extend(kept)
    for number, (name, tensor) in enumerate(zip(feeds, kept, strict=True)):
        request.set_tensor(_port(compiled, name, number), tensor)
    stateful = bool(request.query_state())

    def call() -> None:
        if stateful:
            request.reset_state()
        request.infer(None, share_outputs=True)

    return call, config["INFERENCE_PRECISION_HINT"]


def _port(model: Any, name: str, number: int) -> Any:
    """An input by its name, or by its position in formats that lack such names."""
    return next((port for port in model.inputs if name in port.names), model.inputs[number])


def _litert(side: Side, feeds: dict[str, Any]) -> tuple[Call, str]:
    from ai_edge_litert import interpreter as package

    kinds = package.OpResolverType
    named = {"builtin": kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES, "reference": kinds.BUILTIN_REF}
    how: dict[str, Any] = {}
    if side.how == "set":
        kernels = named.get(side.settings.get("kernels", ""), kinds.BUILTIN)
        how = {"num_threads": int(side.settings["threads"]), "experimental_op_resolver_type": kernels}
    interpreter = package.Interpreter(model_path=side.model, **how)
    inputs, arrays = interpreter.get_input_details(), list(feeds.values())
    for detail, array in zip(inputs, arrays, strict=True):
        if tuple(detail["shape"]) != array.shape:
            interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    outputs = [detail["index"] for detail in interpreter.get_output_details()]

    def call() -> list[Any]:
        for detail, array in zip(inputs, arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs]

    return call, ""


def _mnn(side: Side, feeds: dict[str, Any]) -> tuple[Call, str]:
    import MNN

    interpreter = MNN.Interpreter(side.model)
    wanted = {"backend": "CPU", "precision": "high", "numThread": int(side.settings.get("threads", 1))}
    session = interpreter.createSession(wanted) if side.how == "set" else interpreter.createSession()
    tensors = interpreter.getSessionInputAll(session)
    for name, array in feeds.items():
        interpreter.resizeTensor(tensors[name], array.shape)
    interpreter.resizeSession(session)
    outputs = list(interpreter.getSessionOutputAll(session).values())

    def call() -> list[Any]:
        for name, array in feeds.items():
            np.copyto(tensors[name].getNumpyData(), array, casting="unsafe")
        if status := interpreter.runSession(session):
            raise ValueError(f"MNN ended with status {status}")
        return [np.array(output.getNumpyData()) for output in outputs]

    return call, ""


def _ncnn(side: Side, feeds: dict[str, Any]) -> tuple[Call, str]:
    import ncnn

    net = ncnn.Net()
    net.opt.use_vulkan_compute = False
    if side.how == "set":
        net.opt.num_threads = int(side.settings["threads"])
        for name in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic"):
            setattr(net.opt, name, False)
    if net.load_param(side.model) or net.load_model(str(Path(side.model).with_suffix(".bin"))):
        raise ValueError("ncnn does not load the model")
    native = set(feeds) <= set(net.input_names())
    arrays = []
    for array in feeds.values():
        # ncnn has no batch dimension: the converted model has lost a leading 1.
        shaped = array if native or array.ndim < 2 or array.shape[0] != 1 else array[0]
        arrays.append(np.ascontiguousarray(shaped.astype(np.int32) if shaped.dtype.kind in "iub" else shaped))
    names = list(feeds) if native else net.input_names()

    def call() -> list[Any]:
        extractor = net.create_extractor()
        for name, array in zip(names, arrays, strict=True):
            extractor.input(name, ncnn.Mat(array).clone())
        return [np.array(extractor.extract(name)[1]) for name in net.output_names()]

    return call, ""


def _onert(side: Side, feeds: dict[str, Any]) -> tuple[Call, str]:
    from onert import infer

    arrays = list(feeds.values())
    if side.how == "default":
        session = infer.session(side.model)
        return lambda: session.infer(arrays), ""  # its default is the backend cpu
    backends = side.settings.get("backends", "cpu")
    if side.how == "nnpackage":
        config = next(Path(side.model).glob("metadata/*.cfg")).read_text(encoding="utf-8")
        backends = next(line.split("=", 1)[1] for line in config.splitlines() if line.startswith("BACKENDS="))
    session = infer.session(side.model, backends)
    session.infer(arrays)
    return session.session.run, ""


_RUNTIMES: Mapping[str, Callable[[Side, dict[str, Any]], tuple[Call, str]]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "litert": _litert,
    "mnn": _mnn,
    "ncnn": _ncnn,
    "onert": _onert,
}
RUNTIMES = tuple(_RUNTIMES)
"""The runtimes with a hand-written loop."""


def _package(side: Side) -> tuple[Call, str]:
    """A package run by the agent that it contains; inputs are drawn as in its plan, except for those in `feeds`."""
    sys.path.insert(0, str(Path(side.model) / "gnomon-agent.pyz"))
    os.chdir(side.model)
    from gnomon_agent.job import Job  # type: ignore[import-not-found]

    plan = json.loads(Path("plan.json").read_text(encoding="utf-8"))["job"]
    plan["feeds"] |= {name: {"file": file} for name, file in side.feeds.items()}
    job = Job(plan)  # it owns the arrays that the runtime reads, and lives as long as the call
    return lambda: job.call(), ""


def timed(call: Call, seconds: float) -> dict[str, Any]:
    """The medians of a call's wall and CPU time in seconds; for short calls, a sample is the mean of several."""
    began = time.perf_counter()
    for _ in range(3):
        call()
    # A cold model gets faster for a while.
    while time.perf_counter() - began < seconds / 4:
        call()
    first = time.perf_counter()
    call()
    inner = max(1, math.ceil(_SAMPLE_S / max(time.perf_counter() - first, 1e-9)))
    wall: list[float] = []
    cpu: list[float] = []
    end = time.perf_counter() + seconds
    while len(wall) < _FEWEST or time.perf_counter() < end:
        wall_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        for _ in itertools.repeat(None, inner):
            call()
        cpu.append((time.process_time_ns() - cpu_ns) / inner * 1e-9)
        wall.append((time.perf_counter_ns() - wall_ns) / inner * 1e-9)
    return {"wall_s": statistics.median(wall), "cpu_s": statistics.median(cpu), "samples": len(wall)}


def _means(outputs: Any) -> list[float]:
    """The mean magnitude of each output, in order of size: equal for two runtimes that compute the same."""
    values = outputs.values() if hasattr(outputs, "values") else outputs
    arrays = [np.asarray(value) for value in values or ()]
    return sorted(float(np.abs(array.astype(np.float64)).mean()) for array in arrays if array.dtype.kind in "fiub")


def main() -> None:
    """Run one process of a side."""
    side = Side(**json.loads(sys.argv[1]))
    feeds: dict[str, Any] = {name: np.load(file, allow_pickle=False) for name, file in side.feeds.items()}
    for number in range(side.sessions):
        began = time.perf_counter()
        call, precision = _package(side) if side.how == "package" else _RUNTIMES[side.runtime](side, feeds)
        outputs = call()
        first_s = time.perf_counter() - began
        if number < side.sessions - 1:
            del call
    about = {"load_and_first_call_s": first_s, "precision": precision}
    if side.how == "default":
        about["means"] = _means(outputs)
    print(json.dumps({**timed(call, side.seconds), **about}))


if __name__ == "__main__":
    main()
