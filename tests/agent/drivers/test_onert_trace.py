"""onert's own trace: a golden piece of one, cut where a process that still runs leaves it."""

from __future__ import annotations

from pathlib import Path

from gnomon.agent.drivers.onert import OnertModel, _trace_events


def event(phase: str, operator: str, at_us: int, *, subgraph: int = 0, backend: str = "", shapes: str = "") -> str:
    """A line as onert 0.1.0 writes it."""
    place = f"$0 sess, ${subgraph} subg" + (f", {backend}" if backend else "")
    return (
        f'    {{ "name" : "{operator}", "pid" : "0", "tid" : "{place}", "ph" : "{phase}", "ts" : "{at_us}", '
        f'"args" : {{ {shapes}"session" : "0", "subgraph" : "{subgraph}"}} }}'
    )


SHAPES = '"input_shape_0" : "shape(1 4 4 8)", "input_shape_1" : "shape(8 1 1 8)", '


def call(start_us: int, conv_us: int, add_us: int) -> list[str]:
    """One call of a subgraph of two operators; the second starts another subgraph in between."""
    middle = start_us + conv_us
    end = middle + add_us
    return [
        event("B", "$0 subg", start_us),
        event("B", "@0 Conv2D", start_us, backend="ruy", shapes=SHAPES),
        event("E", "@0 Conv2D", middle, backend="ruy"),
        event("B", "@1 Add", middle, backend="cpu", shapes=SHAPES),
        event("B", "@0 Reshape", middle, subgraph=1, backend="cpu"),
        event("E", "@0 Reshape", middle + 900, subgraph=1, backend="cpu"),
        event("E", "@1 Add", end, backend="cpu"),
        event("E", "$0 subg", end),
    ]


EVENTS = [*call(4369316189, 7, 3), *call(4369317000, 5, 4)]
HEAD = '{\n  "traceEvents": [\n'
LAST = len(EVENTS[-1])
WHOLE = HEAD + ",\n".join(EVENTS)


def read(folder: Path, text: str, skip: int = 0) -> list[dict[str, object]]:
    """What the model's `operators` makes of a trace, without a session."""
    folder.mkdir(exist_ok=True)
    (folder / "trace.chrome.json").write_text(text)
    model = OnertModel.__new__(OnertModel)
    model._workspace = str(folder)
    return model.operators(skip)


def test_the_whole_trace(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE + "\n  ]\n}\n") == [
        {"name": "Conv2D", "sources": [0], "backend": "ruy", "wall_ns": [7000, 5000]},
        {"name": "Add", "sources": [1], "backend": "cpu", "wall_ns": [3000, 4000]},
    ]
    assert [row["wall_ns"] for row in read(tmp_path, WHOLE, skip=1)] == [[5000], [4000]], "first calls are left out"


def test_a_cut_last_line_costs_one_event_at_most(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text("")
    assert len(_trace_events(str(file))) == 0
    for cut in range(1, LAST + len(EVENTS[-2]) + 2):
        file.write_text(WHOLE[:-cut])
        assert len(_trace_events(str(file))) == len(EVENTS) - (1 if cut <= LAST + 2 else 2)
        found = read(tmp_path / "workspace", WHOLE[:-cut])
        assert found[0]["wall_ns"] == [7000, 5000]
        assert found[1]["wall_ns"] == ([3000, 4000] if cut <= LAST + 2 else [3000])
