"""`gnomon exec`: a compiled network, or records compiled again, on any device; descriptions may be anything."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.jobs.tune.tunekit import QUICK, children, pooled, pooling, tiny_net  # noqa: F401
from tests.tuning.tvmkit import Tracked, needs_tvm, rpc_devices  # noqa: F401

from gnomon.api import tune as api
from gnomon.errors import DeviceError, GnomonError, MeasurementError, ProblemError, UsageError
from gnomon.jobs.documents import read_document
from gnomon.jobs.runs.answers import answer_of
from gnomon.jobs.tune import execute as job
from gnomon.jobs.tune.folder import companions
from gnomon.jobs.tune.report import exec_report
from gnomon.report.page import Page
from gnomon.store.base import CampaignQuery, RunQuery
from gnomon.store.sqlite import SqliteStore

pytestmark = needs_tvm

VISITS = 15


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, children: None) -> Iterator[dict[str, Any]]:  # noqa: F811
    """A network tuned here for the plainest code of x86-64; the folder is `out`."""
    out = tmp_path_factory.mktemp("tuned")
    model = out / "tiny.onnx"
    model.write_bytes(tiny_net(4, 4))
    with pooling() as patch:
        patch.setenv("GNOMON_LEASES", str(tmp_path_factory.mktemp("leases")))
        how: dict[str, Any] = {"strategy": "replay-trace", "per_round": 2, "plateau": 0, "compare": False, **QUICK}
        document = api.tune(model, trials=4, out=out, target="x86-64", **how).document()
    yield document | {"out": out}


def execute(source: str | Path, **options: Any) -> dict[str, Any]:
    """The JSON values of what was executed."""
    return api.execute(source, **options).document()


def copied(library: str | Path, folder: Path) -> Path:
    """A library with all that is beside it, elsewhere."""
    folder.mkdir(exist_ok=True)
    for path in (Path(library), *companions(Path(library)).values()):
        if path.exists():
            shutil.copyfile(path, folder / path.name)
    return folder / Path(library).name


def report(document: dict[str, Any]) -> str:
    file = io.StringIO()
    exec_report(read_document(document), Page(file))
    return " ".join(file.getvalue().split())


@pytest.mark.usefixtures("pooled")
def test_a_library_runs_here_layer_by_layer(tuned: dict[str, Any], tmp_path: Path, own_home: Path) -> None:
    found = execute(copied(tuned["library"], tmp_path / "other"), **QUICK | {"processes": 2})
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["failure"], found["device"]["key"]) == (None, "local")
    assert found["max_error"] <= 1e-3
    assert found["compared_with"].startswith("ONNX Runtime")
    assert found["built_for"]["mcpu"] == "x86-64"
    assert 2 <= found["network"]["processes"] <= 4
    assert {row["name"] for row in found["layers"]} == {layer["name"] for layer in tuned["layers"]}
    assert all(row["time"]["processes"] >= 2 and row["failure"] is None for row in found["layers"])
    assert found["layers_sum_s"] == pytest.approx(sum(r["time"]["median_s"] for r in found["layers"]))
    assert "outputs equal" in report(found)
    with SqliteStore.open(own_home / "record.sqlite") as store:
        (campaign,) = store.query(CampaignQuery(kind="exec", finished=True))
        visits = Counter(run.candidate for run in store.query(RunQuery(campaign=campaign.id)))
        assert answer_of(store, campaign).document() == found
    # The network is visited several times in each process, a layer once in those that were asked for.
    assert visits.pop("the network") == VISITS * found["network"]["processes"]
    assert set(visits.values()) == {2} and len(visits) == len(found["layers"])
    bare = execute(tuned["library"], layers=False, **QUICK)
    assert (bare["layers"], bare["layers_sum_s"], bare["unaccounted_s"]) == ([], None, None)


@pytest.mark.usefixtures("pooled")
def test_a_busy_machine_is_told(tuned: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"pid": 1, "cores": 2, "cpu_busy_s": 10.0, "cpu_total_s": 100.0, "own_cpu_s": 5.0}
    states = iter([base, base | {"cpu_busy_s": 19.0, "cpu_total_s": 110.0, "own_cpu_s": 7.0}])
    monkeypatch.setattr("gnomon.tuning.bench.snapshot", lambda: next(states))
    found = execute(tuned["library"], layers=False, **QUICK)
    assert [row["kind"] for row in found["doubts"]] == ["busy"]
    assert "Other processes used 70% of the machine. -> Stop other processes" in report(found)
    assert "Other processes" not in report(found | {"doubts": []})


@pytest.mark.usefixtures("pooled")
def test_a_relative_path_is_of_this_folder(tuned: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(tuned["library"]).parent.parent
    monkeypatch.chdir(folder)
    found = execute(Path(tuned["library"]).relative_to(folder), layers=False, **QUICK)
    assert found["failure"] is None and found["network"]["median_s"] > 0


def test_a_library_runs_on_another_device(tuned: dict[str, Any], rpc_devices: Tracked) -> None:  # noqa: F811
    found = execute(tuned["library"], device=rpc_devices.address("narrow"), **QUICK)
    assert (found["failure"], found["device"]["key"]) == (None, "narrow")
    assert found["max_error"] <= 1e-3
    assert all(row["time"] for row in found["layers"])
    with pytest.raises(DeviceError, match="narow"):
        execute(tuned["library"], device=rpc_devices.address("narow"), wait_s=0.2)


@pytest.mark.usefixtures("pooled")
def test_records_are_compiled_again_for_another_target(tuned: dict[str, Any]) -> None:
    found = execute(tuned["records"], out=tuned["out"], target="native", layers=False, **QUICK)
    assert found["failure"] is None
    assert found["max_error"] <= 1e-3
    assert found["built_for"]["mcpu"] != "x86-64"
    assert found["source"] == tuned["records"]
    assert Path(found["library"]).is_file()
    # The network itself may be given where no copy was kept.
    with pytest.raises(UsageError, match="records contain only its layers"):
        execute(tuned["records"], out=tuned["out"] / "none")
    given_ = execute(
        tuned["records"], model=tuned["out"] / "tiny.onnx", out=tuned["out"] / "none", layers=False, **QUICK
    )
    assert given_["failure"] is None


@pytest.mark.usefixtures("pooled")
def test_only_configurations_faster_than_none_are_compiled(tuned: dict[str, Any], tmp_path: Path) -> None:
    lines = [json.loads(line) for line in Path(tuned["records"]).read_text().splitlines()]
    for line in lines:
        if line.get("trial") == "untuned":
            line["times_s"] = [1e-12]
    path = tmp_path / "slow.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = execute(path, model=tuned["out"] / "tiny.onnx", out=tmp_path, layers=False, **QUICK)
    assert json.loads((companions(Path(found["library"]))["description"]).read_text())["scheduled"] == 0


@pytest.mark.usefixtures("pooled")
def test_records_of_another_network_do_not_fit(tuned: dict[str, Any], tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(tiny_net(2))
    path = tmp_path / "fast.json"
    lines = [json.loads(line) for line in Path(tuned["records"]).read_text().splitlines()]
    for line in lines:
        if line.get("trial", "untuned") != "untuned" and line["times_s"]:
            line["times_s"] = [1e-9]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UsageError, match="is not the network of these records"):
        execute(path, model=other, out=tmp_path, **QUICK)
    lines[0]["model"]["sha256"] = ""  # records that do not say of which file they are
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(MeasurementError, match="cannot be compiled for local") as raised:
        execute(path, model=other, out=tmp_path, **QUICK)
    assert "another model" in raised.value.hint


@pytest.mark.usefixtures("pooled")
def test_code_that_is_none_and_code_of_another_processor_are_failures(tuned: dict[str, Any], tmp_path: Path) -> None:
    library = copied(tuned["library"], tmp_path)
    code = bytearray(library.read_bytes())
    code[18:20] = (183).to_bytes(2, "little")  # the ELF header says: AArch64
    for content in (bytes(code), b"", b"no library at all"):
        library.write_bytes(content)
        found = execute(library, layers=False, **QUICK)
        assert found["network"] is None
        assert found["failure"]["stage"] in ("run", "load")
        assert found["failure"]["message"]
        assert "failed" in report(found)


@pytest.mark.usefixtures("pooled")
def test_outputs_that_are_wrong_are_told(tuned: dict[str, Any], tmp_path: Path) -> None:
    library = copied(tuned["library"], tmp_path)
    beside = companions(library)
    shutil.copyfile(beside["inputs"], beside["outputs"])  # of another name, and other values
    found = execute(library, layers=False, **QUICK)
    assert found["failure"] is not None
    beside["outputs"].unlink()
    found = execute(library, layers=False, **QUICK)
    assert (found["failure"], found["max_error"], found["compared_with"]) == (None, None, None)
    assert "were not checked" in found["notes"][0]


def test_what_is_missing_is_told_before_anything_is_run(tuned: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no") as none:
        execute(tmp_path / "none.so")
    assert "gnomon tune list" in none.value.hint
    library = copied(tuned["library"], tmp_path)
    beside = companions(library)
    beside["inputs"].unlink()
    with pytest.raises(UsageError, match="inputs") as inputs:
        execute(library)
    assert beside["inputs"].name in inputs.value.hint
    beside["description"].unlink()
    with pytest.raises(UsageError, match="the description of") as nothing:
        execute(library)
    assert beside["description"].name in nothing.value.message
    with pytest.raises(UsageError, match=r"none\.json"):
        execute(tmp_path / "none.json")
    (tmp_path / "image.json").write_text("{}")
    with pytest.raises(ProblemError, match="no tuning records"):
        execute(tmp_path / "image.json")
    with pytest.raises(UsageError, match="processes"):
        execute(library, processes=0)
    with pytest.raises(UsageError, match="is compiled for fixed shapes"):
        execute(tuned["library"], shapes={"nosuch": [3]})


LAYER = {"name": "conv", "layer": "7", "weight": 1, "arguments": [["float32", [1, 2]]]}
GOOD = {
    "device": {"key": "phone", "target": {"kind": "llvm"}, "linker": ""},
    "model": {"name": "net", "sha256": "", "dtype": "float32"},
    "reference_by": None,
    "layers": [LAYER],
}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"device": None}, "device"),
        ({"device": {**GOOD["device"], "target": "ab"}}, "device.target"),  # type: ignore[dict-item]
        ({"device": {**GOOD["device"], "target": {"kind": "cuda"}}}, "kind 'cuda'"),  # type: ignore[dict-item]
        ({"device": {**GOOD["device"], "key": "a\nb"}}, "device.key"),  # type: ignore[dict-item]
        ({"model": {**GOOD["model"], "name": 5}}, "model.name"),  # type: ignore[dict-item]
        ({"model": {**GOOD["model"], "dtype": "int8"}}, "int8"),  # type: ignore[dict-item]
        ({"layers": None}, "layers"),
        ({"layers": [None, 3]}, r"layers\[1\]"),
        ({"layers": [{**LAYER, "name": ""}]}, "name"),
        ({"layers": [LAYER, LAYER]}, "the same name"),
        ({"layers": [{**LAYER, "weight": 10**30}]}, "weight"),
        ({"layers": [{**LAYER, "weight": "3"}]}, "weight"),
        ({"layers": [{**LAYER, "arguments": []}]}, "arguments"),
        ({"layers": [{**LAYER, "arguments": [["float32", [-1]]]}]}, "arguments"),
        ({"reference_by": {"a": 1}}, "reference_by"),
    ],
)
def test_a_description_from_anywhere_is_refused_in_words(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    library = tmp_path / "a.so"
    beside = companions(library)
    beside["inputs"].write_bytes(b"")
    beside["description"].write_text(json.dumps(GOOD))
    assert job._described(library).model.name == "net"
    beside["description"].write_text(json.dumps(GOOD | change))
    with pytest.raises(ProblemError, match=told):
        job._described(library)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, *LAYER, "key"]), inner),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(list(GOOD)), JSON, min_size=1))
def test_any_description_is_read_or_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    library = tmp_path / "a.so"
    companions(library)["inputs"].write_bytes(b"")
    companions(library)["description"].write_text(json.dumps(GOOD | change))
    try:
        described = job._described(library)
    except GnomonError as error:
        assert error.hint
        return
    assert all(layer.name and layer.arguments for layer in described.layers)
