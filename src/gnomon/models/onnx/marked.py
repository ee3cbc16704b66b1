"""An ONNX file whose nodes are marked, so that any program can place them with three session options.

Next to the model are `session.json` (providers and options, in order), `session.py` (which creates a session from
`session.json`, as a program in any language could) and `genai_config.json` (an entry for onnxruntime-genai with the
same settings).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.core.strict_json import indented
from gnomon.errors import PackageError, system_errors
from gnomon.models.model import Limits
from gnomon.models.onnx.file import onnx_package, parse_onnx

if TYPE_CHECKING:
    import onnx

_CPU = "CPUExecutionProvider"
_MARK, _OPERATOR = "layer_ann", "gnomon.operator"
_RULES = "session.layer_assignment_settings"
_SCRIPT = '''"""Runs {model} as gnomon placed it: {line}."""
import importlib, json, os, sys
import numpy as np, onnxruntime as ort

if tuple(map(int, ort.__version__.split(".")[:2])) < (1, 25):
    sys.exit(f"ONNX Runtime {{ort.__version__}} ignores where nodes are to run: 1.25 or later is needed")
here, options = os.path.dirname(os.path.abspath(__file__)), ort.SessionOptions()
told = json.load(open(os.path.join(here, "session.json")))
for name, module in told["plugins"].items():
    ort.register_execution_provider_library(name, importlib.import_module(module).get_library_path())
for name, value in told["options"].items():
    options.add_session_config_entry(name, value)
providers = [(p["provider"], p["options"]) for p in told["providers"]]
if told["plugins"]:
    devices = {{device.ep_name: device for device in ort.get_ep_devices()}}
    for provider, own in providers:
        options.add_provider_for_devices([devices[provider]], own)
options.intra_op_num_threads = told["threads"]
listed = {{}} if told["plugins"] else {{"providers": providers}}
session = ort.InferenceSession(os.path.join(here, told["model"]), options, **listed)
session.disable_fallback()

if __name__ == "__main__":
    for part in session.get_provider_graph_assignment_info():
        print(part.ep_name, *(node.name for node in part.get_nodes()))
    feeds = {{name: np.load(file) for name, _, file in (word.partition("=") for word in sys.argv[1:])}}
    if feeds:
        for value, made in zip(session.get_outputs(), session.run(None, feeds)):
            print(value.name, made.shape, made.ravel()[:4])
'''


def mark_onnx(path: Path, options: Mapping[str, Any], folder: Path) -> None:
    """Mark the nodes of the file in place, and write into the folder the files that create a session from it.

    `options` are those of gnomon's driver: accelerators, and the nodes that run on each. The new mark of a node ends
    with its previous mark, if it had one. A HardSwish on the CPU is written as two operators, because an accelerator of
    the session would otherwise take it. PackageError if the file cannot be written.
    """
    proto = parse_onnx(path, Limits()).model
    backend_of = {int(index): backend for backend, own in options["places"].items() for index in own}
    nodes: list[onnx.NodeProto] = []
    names: dict[int, list[str]] = {}
    for index, node in enumerate(proto.graph.node):
        backend = backend_of.get(index)
        written = _written_out(node) if backend is None and node.op_type == "HardSwish" and not node.domain else [node]
        for part in written:
            _set(part, _OPERATOR, str(index))
            if backend is not None:
                before = next((entry.value for entry in part.metadata_props if entry.key == _MARK), "")
                _set(part, _MARK, f"gnomon.{backend}/{before}")
        names[index] = [part.name for part in written]
        nodes += written
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    session = session_told(path.name, options, names, backend_of)
    line = ", ".join(f"{p['provider']}" for p in session["providers"])
    providers = [{p["provider"].removesuffix("ExecutionProvider"): p["options"]} for p in session["providers"]]
    genai = {"session_options": {**session["options"], "provider_options": providers}}
    with system_errors(PackageError, f"{folder} cannot be written", hint="Check its permissions and space."):
        path.write_bytes(proto.SerializeToString())
        (folder / "session.json").write_text(indented(session), encoding="utf-8")
        (folder / "session.py").write_text(_SCRIPT.format(model=path.name, line=line), encoding="utf-8")
        entry = {"model": {"decoder": {"filename": path.name, **genai}}}
        (folder / "genai_config.json").write_text(indented(entry), encoding="utf-8")


def session_told(
    model: str, options: Mapping[str, Any], names: Mapping[int, list[str]], backend_of: Mapping[int, str]
) -> dict[str, Any]:
    """The document of a session: plugins, providers in order with their options, and the session's own options."""
    accelerators: Mapping[str, Mapping[str, Any]] = options["accelerators"]
    used = [backend for backend in accelerators if backend in backend_of.values()]
    first, behind, rules = [], [], []
    for backend in used:
        own = accelerators[backend]
        given = {name: str(value) for name, value in own.get("options", {}).items()}
        entry = {"provider": own["provider"], "options": given}
        if len(used) > 1 and own.get("excludes"):
            given[own["excludes"]] = "\n".join(
                n for k, all_ in names.items() if backend_of.get(k) != backend for n in all_
            )
            first.append(entry)
        else:
            rules.append(f"{own['provider']}(gnomon.{backend}/)")
            behind.append(entry)
    return {
        "model": model,
        "threads": options.get("threads", 1),
        "plugins": {b: accelerators[b]["module"] for b in used if accelerators[b].get("module")},
        "providers": [*first, {"provider": _CPU, "options": {}}, *behind],
        "options": {
            **options.get("session", {}),
            **({_RULES: "; ".join(rules)} if rules else {}),
            "session.record_ep_graph_assignment_info": "1",
        },
    }


def _written_out(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """HardSwish as ONNX defines it: x * max(0, min(1, x / 6 + 0.5))."""
    helper = onnx_package().helper
    inner = f"{node.output[0]}/gnomon"
    gate = helper.make_node("HardSigmoid", [node.input[0]], [inner], name=node.name, alpha=1 / 6, beta=0.5)
    product = helper.make_node("Mul", [node.input[0], inner], [node.output[0]], name=f"{node.name}/Mul")
    return [gate, product]


def _set(node: onnx.NodeProto, key: str, value: str) -> None:
    entry = next((entry for entry in node.metadata_props if entry.key == key), None) or node.metadata_props.add()
    entry.key, entry.value = key, value
