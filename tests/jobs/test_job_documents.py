"""Documents and their schemas: made from one description, held against real documents, read again as they were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.placement_kit import TARGET, contender, graph, measured, placement, profiled, proved
from tests.jobs.space.kits import space_kit
from tests.report import tuning_kit

import gnomon
from gnomon.core import codec
from gnomon.core.graph import Graph
from gnomon.core.sample import OperatorSamples, Run, Samples
from gnomon.errors import ProblemError, RecordError, UsageError
from gnomon.jobs.documents import DOCUMENTS, document_record
from gnomon.jobs.place.decide import contender_part
from gnomon.measure.campaign import Measured
from gnomon.report.plain import json_text
from gnomon.session.contender import Part
from gnomon.session.document import graph_part
from gnomon.session.kernels import divided

GOLDEN = Path(__file__).resolve().parents[1] / "cli" / "golden"
KITS = {
    "space": space_kit.profile(),
    "selection": space_kit.selection(),
    "published selection": space_kit.published(),
    "front": space_kit.front(),
    "predicted front": space_kit.front(measured=False),
    "tune": tuning_kit.tune(),
    "exec": tuning_kit.ran(),
    "tune list": tuning_kit.view(),
    "collect": tuning_kit.collect(),
    "analyze": tuning_kit.analyze(),
}
"""Documents of jobs that take long, as the tests of their reports have them."""


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Documents that commands printed, and some made by hand."""
    yield "place by hand", placement().document()
    yield "profile by hand", profiled().document()
    for name, made in KITS.items():
        yield f"{name} by hand", json.loads(json_text(made))
    for file in sorted(GOLDEN.glob("*.json")):
        for command, answer in json.loads(file.read_text(encoding="utf-8")).items():
            found = answer.get("out") if isinstance(answer, dict) else None
            if isinstance(found, dict) and str(found.get("format", "")).startswith("gnomon-"):
                yield command, unfree(found)


def unfree(value: Any) -> Any:
    """A golden document with a number where it leaves out a duration."""
    if isinstance(value, dict):
        return {key: unfree(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unfree(item) for item in value]
    return 1.5 if value == "FREE" else value


FOUND = dict(documents())
EACH = sorted({document["format"]: name for name, document in FOUND.items()}.values()) + [
    f"{name} by hand" for name in ("published selection", "predicted front")
]
"""The names of one document of each format, and of two that are told otherwise."""


@pytest.mark.parametrize("name", FOUND)
def test_a_document_fits_its_schema_and_its_record(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    document = FOUND[name]
    schema = gnomon.document_schema(document["format"].removeprefix("gnomon-"))
    jsonschema.Draft202012Validator.check_schema(schema)
    errors = [e.message for e in jsonschema.Draft202012Validator(schema).iter_errors(document)]
    assert errors == []


@pytest.mark.parametrize("name", FOUND)
def test_a_document_is_read_as_it_was_written(name: str) -> None:
    document = FOUND[name]
    assert codec.document(gnomon.read_document(document)) == document


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_schema_is_json_and_describes_its_records(name: str) -> None:
    schema = json.loads(json.dumps(gnomon.document_schema(name)))
    assert schema["title"] == f"gnomon-{name}"
    assert {"format", "version"} <= set(schema["required"])
    assert schema["properties"]["format"]["const"] == f"gnomon-{name}"
    assert [d for d in (schema, *schema.get("$defs", {}).values()) if not d["description"]] == []


def test_every_field_has_a_schema() -> None:
    for name in DOCUMENTS:
        text = json.dumps(codec.schema_of(document_record(name), title=name))
        assert "{}" not in text.replace('"additionalProperties": {}', "")


def test_what_is_no_document_is_refused() -> None:
    with pytest.raises(UsageError, match="no document 'nothing'"):
        gnomon.document_schema("nothing")
    with pytest.raises(ProblemError, match="its format is 'other'"):
        gnomon.read_document({"format": "other"})
    with pytest.raises(RecordError, match=r"\$\.version"):
        gnomon.read_document(placement().document() | {"version": 1})


def test_samples_are_those_that_were_taken() -> None:
    known = measured("cpu", 220)
    shown = gnomon.read_document(placement().document()).contenders[0]
    columns = shown.runs.samples
    samples = [
        Samples(
            wall_ns=tuple(round(1000 * inner * us) for us in wall_us),
            cpu_ns=tuple(round(1000 * inner * us) for us in cpu_us),
            inner=inner,
        )
        for inner, wall_us, cpu_us in zip(columns.inner, columns.wall_us, columns.cpu_us, strict=True)
    ]
    again = zip(columns.process, columns.block, samples, strict=True)
    assert list(again) == [(run.process, run.block, run.samples) for run in known.runs]


def test_a_document_has_the_graph_and_what_else_was_measured() -> None:
    document = placement().document()
    assert document["graph"]["edges"] == {"producer": [0, 1, 2], "consumer": [1, 2, 3], "tensor": [1, 2, 3]}
    assert document["graph"]["tensors"]["name"] == ["t0", "t1", "t2", "t3", "t4"]
    runs = document["contenders"][0]["runs"]
    assert runs["load_s"] == 0.01 and runs["first_call_s"] == 0.001
    assert runs["throughput_per_s"] == pytest.approx(1 / 220.67e-6, rel=1e-3)
    assert runs["processes"]["process"] == [0, 1, 2]
    assert runs["profile"]["operators"] == [[0, 1, 2], [3]]
    assert runs["profile"]["wall_us"][1] == [pytest.approx(5.03), pytest.approx(5.03)]
    assert document["contenders"][3]["runs"]["samples"]["process"] == []
    (around,) = document["environments"]
    assert around["labels"] == ["onert:cpu", "onert:ruy (+cpu for 1 of 4)", "onert: plan"]
    assert around["before"]["frequencies_khz"] == [1_800_000, 1_700_000]
    assert (around["seconds"], around["others_share"]) == (2.5, pytest.approx(0.2))


OPERATORS = 2012


def large() -> dict[str, Any]:
    """A placement of a model of so many operators in four configurations, of six processes of five blocks each."""
    names = tuple((f"/model/layers.{k}/block/Conv_{k}", "Conv") for k in range(OPERATORS))
    model = graph(names)
    assignment = ("cpu",) * OPERATORS
    many = [wide(f"onert:cpu {number}", 40_000 + 977 * number) for number in range(4)]
    found = placement()
    times = divided({op.index: 1.2345678e-5 for op in model.operators}, (), 5e-2)
    rows = tuple(
        replace(
            found.operators[0], index=op.index, name=op.name, times_s=dict.fromkeys((m.key for m in many), 1.2345678e-5)
        )
        for op in model.operators
    )
    parts = (part(model, assignment),)
    contenders = [
        contender_part(
            proved(replace(contender("single", one.key, assignment, 1e-3), parts=parts), one, one, "cpu"),
            "cpu",
            rows,
            times,
            profile_of(names, one.key),
        )
        for one in many
    ]
    decision = replace(found.decision, chosen=many[1].key, best_single=many[0].key)
    return replace(
        found, graph=graph_part(model), decision=decision, operators=rows, contenders=tuple(contenders)
    ).document()


def part(model: Graph, assignment: tuple[str, ...]) -> Part:
    placed = replace(TARGET.placed, graph=model)
    backends = dict(enumerate(assignment))
    return Part(target=replace(TARGET, placed=placed), operators=tuple(backends), backends=backends)


def wide(key: str, time_us: int) -> Measured:
    """Sixty samples a block: as many as fit into one, with digits as real ones have them."""
    runs = []
    for process in range(6):
        for block in range(5):
            wall = tuple(time_us * 1000 + (7919 * (process * 300 + block * 60 + k)) % 99_991 for k in range(60))
            samples = Samples(wall_ns=wall, cpu_ns=tuple(t - 1234 for t in wall))
            runs.append(Run(candidate=key, process=process, block=block, started_at_s=1.7e9, samples=samples))
    return Measured(key=key, runs=tuple(runs), failure=None)


def profile_of(names: tuple[tuple[str, str], ...], key: str) -> Measured:
    rows = tuple(
        OperatorSamples(name=name, sources=(k,), backend="cpu", wall_ns=(12_345 + k, 12_399 + k))
        for k, (name, _) in enumerate(names)
    )
    samples = Samples(wall_ns=(40_000_000,), cpu_ns=(39_000_000,))
    made = Run(candidate=key, process=0, block=0, started_at_s=0.0, samples=samples, profiled=True, operators=rows)
    return Measured(key=key, runs=tuple(replace(made, process=process) for process in range(3)), failure=None)


def test_a_document_of_a_large_model_stays_small() -> None:
    assert len(json_text(large())) < 4 << 20


COMMANDS: dict[str, tuple[str, ...]] = {
    "check": ("check",),
    "where": ("where",),
    "deploy": ("deployed",),
    "commands": ("commands",),
    "place": ("place", "fleet", "sweep"),
    "profile": ("profile", "sweep"),
    "pareto": ("pareto",),
    "stab": ("stab",),
    "oplist": ("oplist",),
    "solve": ("solve",),
    "front": ("front",),
    "table build": ("table",),
    "table check": ("table",),
    "table diff": ("table-diff",),
    "table export": ("table-export",),
    "table import": ("table", "tables"),
    "table merge": ("table",),
    "table spaces": ("table-spaces",),
    "estimator count": ("estimator-count",),
    "estimator eval": ("estimator-evaluation",),
    "estimator explain": ("estimator-explanation",),
    "estimator export": ("estimator-export",),
    "estimator fit": ("estimator-fit",),
    "estimator import": ("estimator-import",),
    "estimator measure": ("nets",),
    "estimator predict": ("estimator-predictions", "model-prediction"),
    "estimator suggest": ("estimator-suggest",),
    "estimator verify": ("estimator-verification",),
    "space export": ("space-export",),
    "space front": ("space-front",),
    "space import": ("space",),
    "space primitives": ("space-primitives",),
    "space profile": ("space",),
    "space select": ("space-select",),
    "space show": ("space",),
    "space toolchains": ("space-toolchains",),
    "tune": ("tune", "tuned"),
    "tune list": ("tuned-files",),
    "exec": ("exec",),
    "overlay analyze": ("overlay-analyze",),
    "overlay collect": ("overlay-collected",),
    "runs": ("runs",),
    "runs import": ("brought",),
    "runs list": ("runs",),
    "runs merge": ("brought",),
    "runs show": ("run",),
    "compare": ("compare",),
    "suite compare": ("suite-compare",),
    "suite run": ("suite",),
    "suite status": ("suite",),
    "runtimes": ("runtimes",),
    "devices": ("devices",),
    "devices add": ("device-added",),
    "devices check": ("devices",),
    "devices clean": ("device-cleaned",),
    "devices list": ("devices",),
    "devices noise": ("compare",),
    "devices probe": ("device-health",),
    "devices release": ("device-health",),
    "devices remove": ("device-removed",),
    "serve": ("serve",),
    "new": ("new",),
}
"""What each command prints with --json."""


def test_what_every_command_prints_has_a_schema() -> None:
    options = json.loads((GOLDEN / "options.json").read_text(encoding="utf-8"))
    assert {name.removeprefix("gnomon ") for name, known in options.items() if "--json" in known} == set(COMMANDS)
    printed = {name for names in COMMANDS.values() for name in names}
    assert printed | {"overlay-collect"} == set(DOCUMENTS)


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.json")), ids=lambda file: file.stem)
def test_a_command_prints_what_it_is_said_to(file: Path) -> None:
    for command, answer in json.loads(file.read_text(encoding="utf-8")).items():
        found = answer.get("out") if isinstance(answer, dict) else None
        if isinstance(found, dict) and "error" not in found:
            words = command.split()
            name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
            assert found["format"].removeprefix("gnomon-") in COMMANDS[name], command
