"""OpenVINO on the device: shared tensors, its performance counters, and its runtime model."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...arrays import BFLOAT16, Array, Buffers, output_array
from ...driver import Loaded, Refused, libraries, refusing
from . import hetero

if TYPE_CHECKING:
    from gnomon.wire import Answer, KernelTimes, Options, Place, ProbeAnswer, RuntimeModel, Segment

_TWINS = {"f32": "FP32", "bf16": "BF16", "f16": "FP16"}
"""The precision for which the CPU is registered again -> the capability that the processor must have."""

_ROUNDED_NS = 1000
"""The resolution of a counter: whole microseconds."""


def _openvino() -> Any:
    """The package without its telemetry, so that a measured process uses no network and writes nothing to the user's
    home.

    Importing openvino imports its telemetry, which creates an identity file in the user's home; without that package,
    openvino uses a stub. The model converter is left out too: nothing is converted here, and loading it took as long as
    loading the rest of the package.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    sys.modules.setdefault("openvino.tools.ovc", None)  # type: ignore[arg-type]
    import openvino

    return openvino


class OpenVinoModel(Loaded):
    """A model compiled by OpenVINO, bound to the caller's arrays."""

    def __init__(self, segment: Segment, buffers: Buffers, *, profiled: bool, compiled: Any = None) -> None:
        ov = _openvino()

        options = segment.get("options", {})
        streams = int(options.get("streams", 1))
        self._placed: Placed | None = None
        self._queried: dict[str, str] = {}
        self._counted: list[list[Any]] = []
        config = {
            "INFERENCE_NUM_THREADS": int(options.get("threads", 1)) * streams,
            "NUM_STREAMS": streams,
            # OpenVINO binds even a single thread to one core. Bound calls took 1.2 to 7 times as long as unbound ones
            # if another process used that core; on an idle machine, short bound calls took 7 to 10 % longer. Limits on
            # the cores of the process apply in both cases.
            "ENABLE_CPU_PINNING": False,
            # OpenVINO uses bf16 by default if the processor supports it; here a lower precision must be requested.
            "INFERENCE_PRECISION_HINT": options.get("precision", "f32"),
            **options.get("session", {}),
            "PERF_COUNT": profiled,
        }
        if options.get("usual"):
            self._run_as_most_do(ov, segment, buffers, profiled=profiled)
            return
        shapes = {name: buffers[buffer].shape for name, buffer in segment["inputs"]}
        with refusing():
            if compiled is not None:
                self._compiled = compiled
            elif "order" in options:
                self._compiled, self._queried = _by_itself(ov, segment["model"], options, shapes, profiled=profiled)
            elif "backends" in options:
                self._placed = Placed(ov, segment["model"], options, shapes)
                self._compiled = self._placed.compiled(profiled=profiled)
            else:
                core = _extended(ov.Core(), options)
                self._compiled = core.compile_model(_read(core, segment["model"], shapes), "CPU", config)
        self._request = self._compiled.create_infer_request()
        # A tensor over shared memory does not keep its array alive, and the request does not keep the tensor alive.
        self._keep: list[object] = [buffers]
        bound = [(self._compiled.input(name), buffer) for name, buffer in segment["inputs"]]
        unshaped = []
        for name, buffer in segment["outputs"]:
            port = self._compiled.output(name)
            if buffer not in buffers and port.partial_shape.is_dynamic:
                unshaped.append((port, buffer))
                continue
            if buffer not in buffers:
                dtype = "bfloat16" if port.element_type == ov.Type.bf16 else port.element_type.to_dtype().name
                output_array(buffers, buffer, tuple(port.shape), dtype)
            bound.append((port, buffer))
        for port, buffer in bound:
            tensor = _tensor(ov, buffers[buffer])
            self._keep.append(tensor)
            self._request.set_tensor(port, tensor)
        # Sharing the outputs avoids copies: they are already in the bound arrays.
        infer: Callable[[], object] = functools.partial(self._request.infer, None, share_outputs=True)
        reset = options.get("device") != "AUTO" and bool(self._request.query_state())
        self.call: Callable[[], object] = self._around(infer, buffers, unshaped, reset=reset, profiled=profiled)

    def _run_as_most_do(self, ov: Any, segment: Segment, buffers: Buffers, *, profiled: bool) -> None:
        """Compile the file without settings and with its own shapes; a map of arrays goes in, new arrays come out."""
        with refusing():
            core = _extended(ov.Core(), segment["options"])
            model = _read(core, segment["model"], {})
            self._compiled = core.compile_model(model, "CPU", {"PERF_COUNT": True} if profiled else {})
        self._keep = [buffers]
        self._request = request = self._compiled.create_infer_request()
        feeds = {
            name: _tensor(ov, buffers[b]) if buffers[b].dtype == BFLOAT16 else buffers[b]
            for name, b in segment["inputs"]
        }
        ports = [(self._compiled.output(name), buffer) for name, buffer in segment["outputs"]]

        def infer() -> None:
            results = request.infer(feeds)
            for port, buffer in ports:
                buffers[buffer] = results[port]

        self.call = self._around(infer, buffers, [], reset=bool(request.query_state()), profiled=profiled)

    def _around(
        self,
        infer: Callable[[], object],
        buffers: Buffers,
        unshaped: list[tuple[Any, str]],
        *,
        reset: bool,
        profiled: bool,
    ) -> Callable[[], object]:
        """The call with the steps before and after it.

        With `reset`, each call begins with the model's initial state: a call that continued from the previous state
        would be a different computation, and would take longer if the state grows. `unshaped` outputs get their shapes
        in the call, so they are fetched after it. A profiled call keeps its performance counters.
        """
        request, counted = self._request, self._counted
        if not (reset or unshaped or profiled):
            return infer

        def call() -> None:
            if reset:
                request.reset_state()
            infer()
            for port, buffer in unshaped:
                buffers[buffer] = _array(request.get_tensor(port))
            if profiled:
                counted.append(request.profiling_info)

        return call

    def beside(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> OpenVinoModel:
        """Another request for the same model, for another of its streams."""
        return OpenVinoModel(segment, buffers, profiled=profiled, compiled=self._compiled)

    def where(self) -> list[Place]:
        """The device of each kernel, with the source layers that it computes and its run-time precision.

        For a model on several devices, it is instead the device of each operator, by index; Refused if that is not the
        planned device. For a model that HETERO divided itself, it is the device that HETERO chose for each operation of
        the file.
        """
        if self._placed is not None:
            return self._placed.where(self._compiled)
        if self._queried:
            return [{"operators": [name], "backend": device} for name, device in self._queried.items()]
        devices = ",".join(self._compiled.get_property("EXECUTION_DEVICES"))
        report: list[Place] = []
        for node in self._compiled.get_runtime_model().get_ordered_ops():
            info = node.get_rt_info()
            if "layerType" in info and info["layerType"].astype(str) in {"Input", "Output", "Const"}:
                continue
            precision = info["runtimePrecision"].astype(str) if "runtimePrecision" in info else ""
            report.append({"operators": _layers(info), "backend": devices, "precision": precision})
        return report

    def operators(self, skip: int) -> list[KernelTimes]:
        """Kernel times from the performance counters of each call."""
        if self._placed is not None:
            rows = self._placed.rows(self._compiled, self._counted[skip:])
            self.close()
            return rows
        sources = _sources(self._compiled)
        # A counter is the mean of all calls so far in whole microseconds, and says "not run" if the mean is 0, as it is
        # for a short kernel once its slow first call is averaged away.
        ran = {entry.node_name for call in self._counted[:1] for entry in call if _executed(entry)}

        def described(entry: Any) -> tuple[list[Any], str]:
            return sources.get(hetero.submodel_of(entry.node_name)[1], []), str(entry.exec_type)

        rows = _timed(self._counted, described, ran)
        for row in rows:
            row["wall_ns"] = undisturbed(row["wall_ns"], skip)
        self.close()
        return rows


def _by_itself(
    ov: Any, path: str, options: Options, shapes: Mapping[str, tuple[int, ...]], *, profiled: bool = False
) -> tuple[Any, dict[str, str]]:
    """The model compiled for AUTO or HETERO (the option `device`), which choose among the backends in `order`.

    For HETERO, the devices that it chose for the operations are returned too.
    """
    core = _extended(hetero.opened(ov, options["order"], int(options.get("threads", 1))), options)
    model = _read(core, path, shapes)
    if options["device"] == "AUTO" and model.get_variables():
        raise Refused("OpenVINO's AUTO does not reset the state that a model keeps between calls")
    device = f"{options['device']}:{','.join(map(hetero.device_name, options['order']))}"
    queried = dict(core.query_model(model, device)) if options["device"] == "HETERO" else {}
    return core.compile_model(model, device, {**options.get("session", {}), "PERF_COUNT": profiled}), queried


class Placed:
    """A model with a device for each operator, as given by the options `backends`, `names`, `places` and `leaders`.

    For each operator, `places` has the index of its backend, `names` has its names, and `leaders` has the operator that
    it is computed with (usually itself): an operator that OpenVINO folded away has no separate place.
    """

    def __init__(self, ov: Any, path: str, options: Options, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._backends, self._names = list(options["backends"]), options["names"]
        self._places = list(options["places"])
        self._leaders = list(options.get("leaders", range(len(self._places))))
        self._session = options.get("session", {})
        self._core = _extended(hetero.opened(ov, self._backends, int(options.get("threads", 1))), options)
        self._model = hetero.fold(_read(self._core, path, shapes))
        home = hetero.owners(self._model, self._names)
        self._operators = {op.get_friendly_name(): home[op.get_name()] for op in hetero.computing(self._model)}
        self._edges = hetero.edges(self._model, home)
        hetero.place(ov, self._model, self._names, self._backends, self._places)

    def compiled(self, *, profiled: bool) -> Any:
        """The model on its devices. Refused if it uses devices other than the assigned ones."""
        config = {**self._session, "PERF_COUNT": profiled}
        result = self._core.compile_model(self._model, hetero.hetero(self._backends), config)
        wanted = {hetero.device_name(self._backends[self._places[index]]) for index in self._operators.values()}
        devices = set(result.get_property("EXECUTION_DEVICES"))
        if devices != wanted:
            names = ", ".join(sorted(devices)) or "nothing"
            raise Refused(f"OpenVINO runs the model on {names} instead of {', '.join(sorted(wanted))}")
        return result

    def where(self, compiled: Any) -> list[Place]:
        """The backend of each operator; Refused, naming the operators that are not on their planned backends.

        Only the counters show which submodel computes an operator, so a model compiled without counters is compiled
        again with them. The counters also name operators that were fused or never run.
        """
        devices = hetero.submodels(compiled)
        located = {index: set(devices) for index in range(len(self._places))} if len(devices) == 1 else {}
        if len(devices) > 1:
            counted = self.compiled(profiled=True)
            if hetero.submodels(counted) != devices:
                raise Refused("OpenVINO divides the model differently with counters on, so the places are unknown")
            for number, named in _named(counted, self._operators):
                for index in named:
                    located.setdefault(index, set()).add(devices[number])
        # An operator that no counter names was fused into its group or folded away, so it has no other place.
        group: dict[int, set[str]] = {}
        for index, there in located.items():
            group.setdefault(self._leaders[index], set()).update(there)
        located = {index: located.get(index) or group.get(leader, set()) for index, leader in enumerate(self._leaders)}
        back = {hetero.device_name(backend): backend for backend in self._backends}
        backends = {i: ",".join(sorted(back.get(d, d) for d in there)) or "unknown" for i, there in located.items()}
        moved = [i for i, place in enumerate(self._places) if backends[i] != self._backends[place]]
        if moved:
            shown = ", ".join(
                f"{self._names[i][0]} on {backends[i]} instead of {self._backends[self._places[i]]}" for i in moved[:5]
            )
            raise Refused(f"OpenVINO placed {len(moved)} of {len(self._places)} operators elsewhere: {shown}")
        return [{"operators": [i], "backend": backend} for i, backend in sorted(backends.items())]

    def rows(self, compiled: Any, counted: list[list[Any]]) -> list[KernelTimes]:
        """The times (kernels and conversions) of each group of operators that are computed together, under its leader.

        When a tensor moves between devices, its layout and precision are converted in both submodels. Both conversions
        are counted towards the operator that is not on the first backend. A kernel whose name OpenVINO invented is
        counted with the next kernel.
        """
        kernels = {
            name: {self._operators[source] for source in (name, *sources) if source in self._operators}
            for name, sources in _sources(compiled).items()
        }
        firsts = {**{name: min(own) for name, own in kernels.items() if own}, **self._operators}

        def described(entry: Any) -> tuple[list[Any], str]:
            _, name = hetero.submodel_of(entry.node_name)
            own = kernels.get(name) or {self._operators[n] for n in (name,) if n in self._operators}
            index = min(own) if own else self._answering(*hetero.between(name, firsts))
            return ([] if index is None else [self._leaders[index]]), ""

        # A kernel that does not run in every call only converts a constant in the first call.
        rows = [row for row in _timed(counted, described) if len(row["wall_ns"]) == len(counted)]
        following: Sequence[str | int] = []
        for row in reversed(rows):
            row["sources"] = following = row["sources"] or following
        merged: dict[int, KernelTimes] = {}
        for row in (row for row in rows if row["sources"]):
            leader = int(row["sources"][0])
            if leader not in merged:
                merged[leader] = {**row, "backend": self._backends[self._places[leader]]}
            else:
                pairs = zip(merged[leader]["wall_ns"], row["wall_ns"], strict=True)
                merged[leader]["wall_ns"] = [before + more for before, more in pairs]
        return list(merged.values())

    def _answering(self, writer: int | None, reader: int | None) -> int | None:
        """The operator towards which a conversion between two operators is counted: within a submodel, the reader;
        between submodels, see `rows`.
        """
        if reader is not None and writer is not None:
            return reader
        if reader is not None and self._places[reader] == 0:
            return next((w for w, r in self._edges if r == reader and self._places[w]), reader)
        if writer is not None and self._places[writer] == 0:
            return next((r for w, r in self._edges if w == writer and self._places[r]), writer)
        return writer if reader is None else reader


def _sources(compiled: Any) -> dict[str, list[str]]:
    """Kernel name -> names of the source model's layers that the kernel computes."""
    nodes = compiled.get_runtime_model().get_ordered_ops()
    return {node.get_friendly_name(): _layers(node.get_rt_info()) for node in nodes}


def _layers(info: Any) -> list[str]:
    """Names of the source model's layers that a kernel computes, according to its run-time information."""
    names = info["originalLayersNames"].astype(str) if "originalLayersNames" in info else ""
    return [name for name in names.split(",") if name]


def _named(compiled: Any, operators: Mapping[str, int]) -> Iterator[tuple[int, set[int]]]:
    """For each counter of a model compiled with counters: its submodel, and the operators that it names."""
    sources = _sources(compiled)
    for entry in compiled.create_infer_request().profiling_info:
        number, name = hetero.submodel_of(entry.node_name)
        yield number, {operators[source] for source in (name, *sources.get(name, ())) if source in operators}


def _executed(entry: Any) -> bool:
    """Return True if a counter says that its kernel ran."""
    return "EXECUTED" in str(entry.status)


def _timed(
    counted: list[list[Any]], described: Callable[[Any], tuple[list[Any], str]], ran: Collection[str] = ()
) -> list[KernelTimes]:
    """A row for each kernel that ran in counted calls; `described` returns the sources and backend for its counter.

    Kernels named in `ran` count as run in each call, whatever the counters say.
    """
    rows: dict[str, KernelTimes] = {}
    for call in counted:
        for entry in call:
            if entry.node_name not in ran and not _executed(entry):
                continue
            row = rows.get(entry.node_name)
            if row is None:
                sources, backend = described(entry)
                name = f"{entry.node_type} {entry.node_name}"
                row = rows[entry.node_name] = {"name": name, "sources": sources, "backend": backend, "wall_ns": []}
            row["wall_ns"].append(round(entry.real_time.total_seconds() * 1e9))
    return list(rows.values())


def undisturbed(means_ns: Sequence[int], skip: int) -> list[int]:
    """The times of a kernel in the calls after the first `skip`, derived from the running means of the counters.

    All returned times are the mean of these calls, because means in whole microseconds do not reveal single calls.
    Interrupted calls and the skipped ones are left out of the mean.
    """
    own = [
        max(0, number * mean - (number - 1) * before)
        for number, (before, mean) in enumerate(pairwise([0, *means_ns]), start=1)
    ][skip:]
    usual = sorted(own)[len(own) // 2] if own else 0
    kept = [time for number, time in enumerate(own, start=skip + 1) if time <= 2 * usual + number * _ROUNDED_NS]
    return [round(sum(kept) / len(kept))] * len(own) if kept else own


def _read(core: Any, path: str, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """The model in a file, with its operations named as in the file, and its inputs set to the shapes that they will
    get.
    """
    model = core.read_model(path)
    if path.endswith(".tflite"):
        _name_by_tensors(model)
    _name_open_ends(model)
    opened = {name: list(shape) for name, shape in shapes.items() if model.input(name).partial_shape.is_dynamic}
    if opened:
        model.reshape(opened)
    return model


def _extended(core: Any, options: Options) -> Any:
    """The core with the extensions that the option `libraries` names."""
    for path in libraries(options):
        core.add_extension(path)
    return core


def _told_shapes(options: Options) -> dict[str, tuple[int, ...]]:
    """The option `shapes`: the shapes of the inputs, by name."""
    shapes = options.get("shapes", {})
    return {name: tuple(shape) for name, shape in shapes.items()}


def _name_open_ends(model: Any) -> None:
    """Name the unnamed inputs and outputs of an OpenVINO file after the operations that they come from."""
    for port in (*model.inputs, *(result.input_value(0) for result in model.get_results())):
        writer = port.get_node()
        if not port.get_names():
            several = f".{port.get_index()}" if writer.get_output_size() > 1 else ""
            port.get_tensor().set_names({writer.get_friendly_name() + several})


def _name_by_tensors(model: Any) -> None:
    """Name the operations of a TFLite model after the file's tensors, because OpenVINO's reader only numbers them.

    An operator of the file may become several operations (a convolution between two transposes, with its bias and
    activation). The last one writes the file's tensor; those before it that only lead to it are named after it too.
    """
    named: dict[str, str] = {}
    for operation in reversed(model.get_ordered_ops()):
        number = operation.get_friendly_name()
        names = sorted(name for output in operation.outputs() for name in output.get_names())
        if operation.get_type_name() in {"Constant", "Parameter", "Result"}:
            continue
        after = [
            target.get_node().get_friendly_name() for out in operation.outputs() for target in out.get_target_inputs()
        ]
        name = names[0] if names else next((named[reader] for reader in after if reader in named), "")
        if name:
            operation.set_friendly_name(name if names else f"{name}/{number}")
            named[operation.get_friendly_name()] = name


def _tensor(ov: Any, array: Array) -> Any:
    """A tensor over an array's memory."""
    if array.dtype == BFLOAT16:
        return ov.Tensor(array["bfloat16"], array.shape, ov.Type.bf16)
    return ov.Tensor(array, shared_memory=True)


def _array(tensor: Any) -> Array:
    """An array over a tensor's memory. OpenVINO presents bfloat16 as float16."""
    data: Array = tensor.data
    return data.view(BFLOAT16) if tensor.element_type.get_type_name() == "bf16" else data


class OpenVinoDriver:
    """OpenVINO's part of the agent."""

    bfloat16 = True

    def probe(self) -> ProbeAnswer:
        """The version, the devices, and the precisions that the processor supports natively.

        The CPU's plugin may be registered again for each of these precisions, for example as `cpu-bf16`. `devices` are
        the devices other than the CPU, with their full names; `processor` is the CPU's name.
        """
        ov = _openvino()

        core = ov.Core()
        precisions = list(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
        own = [hint for hint, capability in _TWINS.items() if capability in precisions]
        names = {d.lower(): str(core.get_property(d, "FULL_DEVICE_NAME")) for d in core.available_devices}
        return {
            "version": ov.__version__.partition("-")[0],
            "backends": [*(d.lower() for d in core.available_devices), *(f"cpu-{hint}" for hint in own)],
            "precisions": precisions,
            "usual_precision": core.get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name(),
            "processor": names.pop("cpu", ""),
            "devices": [{"backend": backend, "name": name, "software": False} for backend, name in names.items()],
        }

    def load(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> OpenVinoModel:
        """Compile a segment; options are threads and precision, or threads and the options of `Placed` or `_by_itself`,
        or only `usual`.

        All accept libraries, and all except `usual` accept session, which contains OpenVINO's own properties.
        """
        return OpenVinoModel(segment, buffers, profiled=profiled)

    def supports(self, segment: RuntimeModel) -> Answer:
        """Check that the whole model compiles: ``{"whole": true}``, or Refused with the reason.

        The option `shapes` has the shapes of the inputs. With the options `backends` (the CPU and the backend in
        question) and `names`, the answer has the operators that the backend takes: see `_taken`.
        """
        ov = _openvino()

        options = segment.get("options", {})
        with refusing():
            if "backends" in options:
                return _taken(ov, segment["model"], options)
            if "order" in options:
                _by_itself(ov, segment["model"], options, _told_shapes(options))
                return {"whole": True}
            core = _extended(ov.Core(), options)
            model = _read(core, segment["model"], _told_shapes(options))
            core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return {"whole": True}


def _taken(ov: Any, path: str, options: Options) -> Answer:
    """The `operators` that the last backend takes, and the `kernels`, each a list of operators that are computed
    together.

    `unnamed` are the operators that no counter names: fused under another name, folded away, or computed in advance.
    """
    backends, names = list(dict.fromkeys(options["backends"])), options["names"]
    core = _extended(hetero.opened(ov, backends, int(options.get("threads", 1))), options)
    model = hetero.fold(_read(core, path, _told_shapes(options)))
    home = hetero.owners(model, names)
    operators = {op.get_friendly_name(): home[op.get_name()] for op in hetero.computing(model)}
    asked = hetero.device_name(backends[-1])
    there = core.query_model(model, asked)
    left = {index for name, index in operators.items() if there.get(name) != asked}
    hetero.place(ov, model, names, backends, [0 if index in left else len(backends) - 1 for index in range(len(names))])
    compiled = core.compile_model(model, hetero.hetero(backends), {"PERF_COUNT": True})
    kernels = {tuple(sorted(named)) for _, named in _named(compiled, operators)}
    return {
        "operators": sorted(set(range(len(names))) - left),
        "kernels": sorted(list(kernel) for kernel in kernels if len(kernel) > 1),
        "unnamed": sorted(set(range(len(names))) - {index for kernel in kernels for index in kernel}),
    }
