"""Models that nobody put in a space: what their units cost by tables, what is a guess, and what is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not installed")

from tests.models.test_net import model, node
from tests.store.contract import sample_campaign

from gnomon.api.estimator import predict_model
from gnomon.cli.main import run
from gnomon.core.sample import Event
from gnomon.errors import ModelError, ProblemError, UsageError
from gnomon.jobs.estimator.models import APART, _guessed, shapes_by_model, space_of_models, tables_of, verify_net
from gnomon.jobs.table.folder import MANIFEST, ROWS, read_table, write_table
from gnomon.models.units import write_net
from gnomon.session.nets import read_net
from gnomon.spaces import BlockSpace, Choice, skip
from gnomon.spaces.fuse import fuse, rules
from gnomon.spaces.latency_table import Manifest, Row, Table
from gnomon.spaces.loading import load_space
from gnomon.spaces.unit import Trace
from gnomon.spaces.work import work
from gnomon.store.base import FILES, note_files
from gnomon.store.sqlite import SqliteStore

CONTEXT = {"device": {"machine": "made-up"}, "runtime": "onnxruntime", "dtype": "float32"}
CHAINS = ("Conv+Relu",)
OVERHEAD = 1e-5


def price(unit: Any) -> float:
    """A made-up device: so much a multiply-add, a byte and a unit."""
    done = work((unit,))[0]
    return float(2e-11 * done[:3].sum() + 1e-10 * done[3] + 2e-6)


def table(path: Path, units: Any, **changes: Any) -> Path:
    known = Manifest(space="operators", context=CONTEXT, clock="cpu", overhead_s=OVERHEAD, rules=CHAINS)
    rows = [
        Row(unit=u, status="ok", at_s=1.0, call_s=t, low_s=0.99 * t, high_s=1.01 * t)
        for u in units
        for t in [price(u) + OVERHEAD]
    ]
    write_table(Table(manifest=replace(known, **changes), rows=tuple(rows)), path)
    return path


def net_file(folder: Path, width: int = 24) -> Path:
    folder.mkdir(exist_ok=True)
    constants = {
        "w": np.ones((width, 3, 3, 3), np.float32),
        "v": np.ones((2 * width, width, 1, 1), np.float32),
        "c": np.ones((1, 2 * width, 1, 1), np.float32),
    }
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", "a", "b"),
        node("Conv", "b v", "d"),
        node("Mul", "d c", "e"),
        node("Relu", "e", "y"),
    ]
    return model(folder, nodes, {"x": (1, 3, 64, 64)}, ("y", (1, 2 * width, 32, 32)), constants)


@pytest.fixture(scope="module")
def operators() -> tuple[Any, ...]:
    return load_space("operators").tables(rules(CHAINS)).units


def test_units_that_were_measured_cost_what_they_took(tmp_path: Path) -> None:
    file = net_file(tmp_path)
    net = read_net(file, {}).net
    units = fuse(net, rules(CHAINS)).counts()
    told = predict_model(file, tables=[table(tmp_path / "t", units)])
    expected = OVERHEAD + sum(n * price(unit) for unit, n in units.items())
    assert told.mean_s == pytest.approx(expected)
    assert {one.source for one in told.units} == {"measured"}
    assert sum("+Relu @" in one.label for one in told.units) == 1
    # Nothing but what runs between units is in doubt.
    assert told.high_s / told.mean_s == pytest.approx(np.exp(1.645 * APART), rel=0.02)
    assert told.low_s < told.mean_s < told.high_s


def test_units_that_were_not_are_priced_by_those_like_them(tmp_path: Path, operators: tuple[Any, ...]) -> None:
    file = net_file(tmp_path, width=20)
    told = predict_model(file, tables=[table(tmp_path / "t", operators)])
    truth = OVERHEAD + sum(n * price(u) for u, n in fuse(read_net(file, {}).net, rules(CHAINS)).counts().items())
    assert told.mean_s == pytest.approx(truth, rel=0.25)
    assert told.low_s < truth < told.high_s
    assert {one.source for one in told.units} == {"like measured ones"}
    narrow = predict_model(file, tables=[tmp_path / "t"], coverage=0.5)
    assert narrow.low_s > told.low_s and narrow.high_s < told.high_s
    assert told.shares["like measured ones"] == pytest.approx(1 - OVERHEAD / told.mean_s)


def test_a_second_table_adds_what_it_knows(tmp_path: Path, operators: tuple[Any, ...]) -> None:
    file = net_file(tmp_path)
    first = table(tmp_path / "t", operators)
    own = table(tmp_path / "own", space_of_models([file], {}).tables(rules(CHAINS)).units, space="models")
    both = predict_model(file, tables=[first, own])
    assert {one.source for one in both.units} == {"measured"}
    assert predict_model(file, tables=[own, first]).mean_s == pytest.approx(both.mean_s)
    other = table(tmp_path / "other", operators, context={**CONTEXT, "runtime": "openvino"})
    with pytest.raises(UsageError, match="runtime: onnxruntime and openvino"):
        predict_model(file, tables=[first, other])


def test_what_nothing_is_known_of_is_told(tmp_path: Path, operators: tuple[Any, ...], capsys: Any) -> None:
    constants = {"w": np.ones((8, 3, 3, 3), np.float32)}
    nodes = [
        node("Conv", "x w", "a"),
        node("Mish", "a", "b"),
        node("NonZero", "b", "c"),
        node("Relu", "b", "d"),
        node("Cast", "c", "e", to=1),
        node("ReduceSum", "e", "f", keepdims=0),
        node("Add", "d f", "y"),
    ]
    file = model(tmp_path, nodes, {"x": (1, 3, 16, 16)}, ("y", (1, 8, 14, 14)), constants, opset=18)
    path = table(tmp_path / "t", operators)
    told = predict_model(file, tables=[path])
    strange = next(one for one in told.units if one.label.startswith("onnx.Mish"))
    assert strange.source == "unlike any measured one"
    assert {one.type for one in told.left_out} >= {"NonZero", "Cast"}
    assert strange.deviation > 3 * min(one.deviation for one in told.units)
    assert run(["estimator", "predict", str(file), "--table", str(path)]) == 0
    text = capsys.readouterr().out
    assert "1 unit has no similar measured unit, such as onnx.Mish" in text
    assert "No price for NonZero (1 operator): its result is not floating-point" in text
    assert run(["estimator", "predict", str(file), "--table", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["mean_s"] == told.mean_s
    units = sum(one["count"] * one["time_s"] for one in document["units"])
    assert units + OVERHEAD + told.guessed_s == pytest.approx(told.mean_s)
    assert 0 < told.guessed_s < 0.1 * told.mean_s
    guessed_s, deviation_s = _guessed(read_table(path), read_net(file, {}))
    assert guessed_s == told.guessed_s and deviation_s > 3 * guessed_s, "the shapes that NonZero leaves open count"
    assert told.shares["unlike any measured one"] > told.guessed_s / told.mean_s


def test_the_tables_of_a_device_are_found_by_the_record(tmp_path: Path, operators: tuple[Any, ...]) -> None:
    record = tmp_path / "record.sqlite"
    made = {
        "old": table(tmp_path / "old", operators[:20]),
        "new": table(tmp_path / "new", operators[20:], space="models"),
        "unlike": table(tmp_path / "unlike", operators, context={**CONTEXT, "runtime": "openvino"}),
        "elsewhere": table(tmp_path / "elsewhere", operators),
        "gone": tmp_path / "gone",
    }
    with SqliteStore.open(record) as store:
        for number, (name, path) in enumerate(made.items()):
            if name == "new":
                continue
            store.open_campaign(sample_campaign(f"c{number}", kind="table"))
            where = {"device": "board" if name == "elsewhere" else "local", "address": "local"}
            if name == "elsewhere":
                where["address"] = "ssh://board"
            store.append(f"c{number}", Event(name="lab", at_s=1.0, data=where))
            note_files(store, f"c{number}", [path / MANIFEST, path / ROWS])
        store.open_campaign(sample_campaign("cx", kind="table"))
        store.append("cx", Event(name="lab", at_s=1.0, data={"device": "local", "address": "local"}))
        note_files(store, "cx", [made["new"] / MANIFEST, made["new"] / ROWS])
    assert FILES and set(tables_of("local", record)) == {made["new"], made["old"]}
    assert tables_of("board", record) == tables_of("ssh://board", record) == (made["elsewhere"],)
    with pytest.raises(UsageError, match="has no table from the device phone") as none:
        tables_of("phone", record)
    assert "gnomon table build operators --device phone" in none.value.hint
    file = net_file(tmp_path / "m")
    told = predict_model(file, device="board", record=record)
    assert told.tables == (str(made["elsewhere"]),)
    assert read_table(made["elsewhere"]).manifest.context == told.context


def test_models_are_a_space_whose_slot_says_which(tmp_path: Path) -> None:
    files = [net_file(tmp_path / "a"), net_file(tmp_path / "b", width=12)]
    space = space_of_models(files, {})
    assert space.space.slots[0].choices == ("m", "m_")
    tables = space.tables(rules(CHAINS))
    for choice, name in enumerate(space.nets):
        assert space.net((choice,)) == space.nets[name]
        counts = dict(zip(tables.units, tables.counts([[choice]])[0].astype(int).tolist(), strict=True))
        assert {u: n for u, n in counts.items() if n} == fuse(space.nets[name], rules(CHAINS)).counts()


def test_each_model_gets_its_own_shapes(tmp_path: Path) -> None:
    def opened(name: str, given: str) -> Path:
        (tmp_path / name).mkdir()
        shape: Any = (1, "h")
        path = model(tmp_path / name, [node("Relu", given, "y")], {given: shape}, ("y", shape))
        return path.rename(tmp_path / f"{name}.onnx")

    files = [opened("a", "x"), opened("b", "image"), opened("c", "x")]
    given = {"a@x": (1, 7), "b.onnx@image": (1, 8), "x": (1, 9)}
    assert shapes_by_model(files, given) == ({"x": (1, 7)}, {"image": (1, 8)}, {"x": (1, 9)})
    assert [net.inputs for net in space_of_models(files, given).nets.values()] == [((1, 7),), ((1, 8),), ((1, 9),)]
    with pytest.raises(UsageError, match="no model has an input 'a@image'") as told:
        shapes_by_model(files, {"a@image": (1, 3)})
    assert "a.onnx: x; b.onnx: image" in str(told.value.hint)


def test_a_refused_model_is_named_by_the_users_path(tmp_path: Path) -> None:
    shape: Any = (1, "h")
    path = model(tmp_path, [node("NonZero", "x", "y")], {"x": shape}, ("y", shape))
    with pytest.raises(ModelError, match=f"any operator of {path}: NonZero"):
        space_of_models([path], {"x": (1, 8)})


def test_an_estimator_needs_its_nets(tmp_path: Path, capsys: Any) -> None:
    assert run(["estimator", "predict", str(tmp_path / "e.json")]) == 2
    assert "an estimator needs a csv of nets" in capsys.readouterr().err


def test_a_model_of_views_alone_has_no_time_by_a_table_without_overhead(
    tmp_path: Path, operators: tuple[Any, ...]
) -> None:
    path = model(tmp_path, [node("Reshape", "x s", "y")], {"x": (1, 8)}, ("y", (8, 1)), {"s": np.array([8, 1])})
    given = table(tmp_path / "t", operators[:20], overhead_s=0.0)
    with pytest.raises(ModelError, match="no operator") as refused:
        predict_model(path, tables=[given])
    assert "profile" in refused.value.hint


def test_a_model_is_the_network_of_its_choices_and_of_no_others(tmp_path: Path) -> None:
    def block(width: int) -> Any:
        return lambda x: x.conv(width, 3).batch_norm().relu()

    def last(x: Any) -> Any:
        return x.global_average_pool().linear(3)

    parts = (block(4), Choice("a", {"wide": block(8), "narrow": block(4), "skip": skip}), last)
    space = BlockSpace(name="own", inputs=((1, 3, 8, 8),), parts=parts)
    path = write_net(space.net([0]), tmp_path / "wide.onnx", seed=0)
    assert verify_net(space, {"a": "wide"}, path).exit_code == 0
    other = verify_net(space, {"a": "skip"}, path)
    assert other.exit_code == 1
    found = {one.label: (one.space, one.model) for one in other.differences}
    assert found["Conv 3x3 8 @ 1x4x8x8"] == found["Relu @ 1x8x8x8"] == (0, 1)
    assert found["Linear 3 @ 1x4x1x1"] == (1, 0)
    assert "Conv 3x3 4 @ 1x3x8x8" not in found
    with pytest.raises(UsageError, match="own has no slot 'b'"):
        verify_net(space, {"b": "wide"}, path)
    with pytest.raises(ProblemError, match="slot 'a' has no choice ''"):
        verify_net(space, {}, path)


def test_a_folded_normalisation_is_the_same_network(tmp_path: Path, capsys: Any) -> None:
    trace = Trace(((1, 3, 8, 8),))
    path = write_net(trace.net(trace.input().conv(4, 3, bias=True).relu()), tmp_path / "m.onnx", seed=0)
    choices = {"plain": lambda x: x.conv(4, 3).batch_norm().relu(), "none": skip}
    space = BlockSpace(name="own", inputs=((1, 3, 8, 8),), parts=(Choice("a", choices),))
    write_table(
        Table(manifest=Manifest(space="own", context=CONTEXT, clock="cpu", overhead_s=0.0), rows=tuple(
            Row(unit=u, status="ok", at_s=1.0, call_s=1e-5) for u in space.tables().units
        )),
        tmp_path / "t",
        space,
    )  # fmt: skip
    words = ["estimator", "verify", str(tmp_path / "t"), str(path), "--net"]
    assert run([*words, "a=plain"]) == 0
    assert "matches this network of own." in " ".join(capsys.readouterr().out.split())
    assert run([*words, "a=none"]) == 1
    assert "does not match this network of own." in " ".join(capsys.readouterr().out.split())
