"""MNN: an ONNX model is converted on the device and runs whole on the processor."""

from __future__ import annotations

from gnomon.runtimes.base import Configuration, PlacedModel, Probe, RunSettings
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import WholeModelRuntime, environment_configurations, usual_configuration


class Mnn(WholeModelRuntime):
    """The adapter of MNN. It computes in float32."""

    name = "mnn"
    wheels: tuple[str, ...] = ("MNN>=3.6",)
    float64 = False
    tunings: tuple[Tuning, ...] = (THREADS,)

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """One configuration for each environment, with the only backend."""
        backends = probe.requested(self.name, settings)
        reported = {backend: backend for backend in backends}
        return tuple(environment_configurations(self.name, settings, backends, reported=reported))

    def usual(self, probe: Probe) -> Configuration:
        """A session that sets nothing."""
        return usual_configuration(self.name, *probe.backends)

    def program(self, model: PlacedModel, configuration: Configuration) -> list[str]:
        """Lines that convert the model into a file next to it, and run it in a session."""
        words = "'-f', 'ONNX', '--modelFile', file, '--MNNModel', file + '.mnn', '--bizCode', 'gnomon'"
        settings = {"backend": "CPU", "precision": "high", "numThread": configuration.options.get("threads")}
        return [
            "import _tools, MNN  # before the converter runs, as it needs the library",
            f"_tools.mnnconvert(['mnnconvert', {words}, '--useGeluApproximation', '0', '--useOriginRNNImpl', '1'])",
            "interpreter = MNN.Interpreter(file + '.mnn')",
            f"session = interpreter.createSession({'' if configuration.usual else settings})",
            "tensors = interpreter.getSessionInputAll(session)",
            "[interpreter.resizeTensor(tensors[name], array.shape) for name, array in inputs.items()]",
            "interpreter.resizeSession(session)",
            "outputs = [tensor.getNumpyData() for tensor in interpreter.getSessionOutputAll(session).values()]",
            "def call():",
            "    [numpy.copyto(tensors[name].getNumpyData(), array, 'unsafe') for name, array in inputs.items()]",
            "    interpreter.runSession(session)  # then `outputs` hold what it computed",
        ]
