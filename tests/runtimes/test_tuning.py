"""The options of runtimes that a search may choose: values, and what they change in a configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnomon.errors import UsageError
from gnomon.runtimes.base import Configuration, Probe, RunSettings
from gnomon.runtimes.litert import LiteRt
from gnomon.runtimes.ncnn import Ncnn
from gnomon.runtimes.onert import Onert, settings
from gnomon.runtimes.onnxruntime import OnnxRuntime
from gnomon.runtimes.openvino import OpenVino
from gnomon.runtimes.registry import check_options
from gnomon.runtimes.tunings import Tuning, configurations, tuned, tunings
from gnomon.runtimes.tvm import Tvm

ONERT = Configuration(runtime="onert", name="onert", backends=("cpu", "ruy"), options={"threads": 1})


class Theirs(OpenVino):
    """A runtime of somebody else's."""

    name = "theirs"
    tunings: tuple[Tuning, ...] = ()


def test_each_runtime_has_threads_and_an_unknown_one_nothing() -> None:
    for runtime in (Onert(), OnnxRuntime(), OpenVino(), LiteRt(), Ncnn(), Tvm()):
        assert "threads" in tunings(runtime)
    assert tunings(Theirs()) == {}


def test_somebodys_runtime_tells_its_own_tunings() -> None:
    level = Tuning(name="level", values=("1", "2"), usual=("1",), change=lambda o, value: {**o, "level": value})
    theirs = Theirs()
    theirs.tunings = (level,)
    configuration = Configuration(runtime="theirs", name="theirs", backends=("cpu",), options={})
    made = tuned(theirs, configuration, {"level": "2"})
    assert (made.name, made.options) == ("theirs[level=2]", {"level": "2"})


def test_usual_values_stand_where_none_are_named() -> None:
    for runtime in (Onert(), OnnxRuntime()):
        for tuning in tunings(runtime).values():
            assert tuning.checked(()) == tuning.usual
            assert tuning.checked(tuning.usual) == tuning.usual
            assert tuning.checked(tuning.usual[:1]) == tuning.usual[:1]


def test_options_of_sessions_are_tried_beside_each_clean_configuration_and_libraries_are_in_all() -> None:
    probe = Probe(version="1.32.0", backends=("cpu",))
    named = {"onnxruntime": {"/x.so": "1"}, "openvino": {"/y.so": "2"}}
    settings = RunSettings(
        environments=({"A": "1"},), options=(("onnxruntime", {"k": "1"}), ("openvino", {"k": "2"})), libraries=named
    )
    made = {c.name: c for c in configurations(OnnxRuntime(), probe, replace(settings, usual=True, more_threads=(2,)))}
    labels = ["threads=1", "A=1,threads=1", "k=1,threads=1", "threads=2", "A=1,threads=2", "k=1,threads=2", "default"]
    assert list(made) == [f"onnxruntime[{label}]" for label in labels]
    assert {name for name, c in made.items() if "session" in c.options} == {
        "onnxruntime[k=1,threads=1]",
        "onnxruntime[k=1,threads=2]",
    }
    assert made["onnxruntime[k=1,threads=2]"].options["session"] == {"k": "1"}
    assert all(c.options["libraries"] == {"/x.so": "1"} for c in made.values())
    assert [c.name for c in made.values() if c.clean] == [
        f"onnxruntime[{one}]" for one in ("threads=1", "threads=2", "default")
    ]


def test_runtimes_say_whether_they_take_options() -> None:
    theirs = Theirs()
    settings = RunSettings(options=(("onnxruntime", {"k": "1"}),), libraries={"openvino": {"/x.so": "1"}})
    check_options(settings, (OnnxRuntime(), OpenVino()))
    for wrong in ((OnnxRuntime(),), (OpenVino(), theirs)):
        with pytest.raises(UsageError, match="takes none or is not measured") as told:
            check_options(settings, wrong)
        assert "onnxruntime, openvino" in told.value.hint


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "two", "", "1025", "99999", "²"])
def test_threads_are_whole_numbers(value: str) -> None:
    with pytest.raises(UsageError, match="threads") as told:
        tunings(Onert())["threads"].checked((value,))
    assert told.value.hint


def test_what_is_no_value_or_named_twice_is_refused() -> None:
    planner = tunings(Onert())["planner"]
    with pytest.raises(UsageError, match="best") as told:
        planner.checked(("WIC", "best"))
    assert "FirstFit" in told.value.hint
    with pytest.raises(UsageError, match="twice"):
        planner.checked(("WIC", "WIC"))
    with pytest.raises(UsageError, match="no setting 'planner'"):
        tuned(Ncnn(), Configuration(runtime="ncnn", name="ncnn", backends=("cpu",), options={}), {"planner": "WIC"})


def test_onerts_own_settings_stand_beside_the_assignment() -> None:
    made = tuned(Onert(), ONERT, {"planner": "Bump", "executor": "Dataflow", "threads": "2"})
    assert made.options["threads"] == 2
    assert settings(made, {0: "ruy"}) == {
        "CPU_MEMORY_PLANNER": "Bump",
        "EXECUTOR": "Dataflow",
        "BACKENDS": "cpu;ruy",
        "OP_BACKEND_MAP": "0=ruy;",
    }
    assert settings(ONERT, {0: "ruy"}) == {"BACKENDS": "cpu;ruy", "OP_BACKEND_MAP": "0=ruy;"}
    assert "settings" not in ONERT.options


def test_names_tell_the_values_and_stay_unique() -> None:
    assert tuned(Onert(), ONERT, {}) is ONERT
    assert tuned(Onert(), ONERT, {"threads": "2"}).name == "onert[threads=2]"
    variant = Configuration(runtime="onert", name="onert[RUY_PATHS=16]", backends=("cpu",), options={})
    assert tuned(Onert(), variant, {"planner": "WIC"}).name == "onert[RUY_PATHS=16,planner=WIC]"


def test_graph_optimisation() -> None:
    plain = Configuration(runtime="onnxruntime", name="onnxruntime", backends=("onnxruntime",), options={})
    assert tuned(OnnxRuntime(), plain, {"optimise": "off"}).options == {"optimise": False}
    assert tuned(OnnxRuntime(), plain, {"optimise": "on"}).options == {"optimise": True}
