"""Names of the files of tuning are parsed, or refused with a reason."""

from __future__ import annotations

import pytest

from gnomon.errors import UsageError
from gnomon.formats.tuning.names import TuningName, parse_tuning_name, readings


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("phone.mobile.float32.json", TuningName(key="phone", model="mobile", dtype="float32")),
        ("/a.b/c_d/phone.mobile.float32.so", TuningName(key="phone", model="mobile", dtype="float32")),
        (
            "sd888.mace_mobilenet_v1.float16.atvm.json",
            TuningName(key="sd888", model="mace_mobilenet_v1", dtype="float16"),
        ),
        ("pi.4.m.float32.ansor.json", TuningName(key="pi.4", model="m", dtype="float32")),
        ("a_b.m.float32.json", TuningName(key="a_b", model="m", dtype="float32")),
        ("x.cfgs.float32.json", TuningName(key="x", model="cfgs", dtype="float32")),
        ("k.ansor.float32.json", TuningName(key="k", model="ansor", dtype="float32")),
        ("k.m.float32.atvm.json.gz", TuningName(key="k", model="m", dtype="float32")),
        ("k.float32.float32.json", TuningName(key="k", model="float32", dtype="float32")),
    ],
)
def test_names_are_parsed(path: str, name: TuningName) -> None:
    assert parse_tuning_name(path) == name


def meant(path: str, *told: str) -> list[tuple[str, str, str]]:
    return [(one.key, one.found_on, one.model) for one in readings(f"/logs_of.x/{path}", told)]


def test_all_that_a_name_may_mean() -> None:
    assert meant("phone.m.float32.json") == [("phone", "", "m")]
    assert meant("a_b.m.float32.json") == [("a_b", "", "m"), ("a", "b", "m")]
    assert meant("a_b_c.m.float32.json") == [("a_b_c", "", "m"), ("a", "b_c", "m"), ("a_b", "c", "m")]
    assert meant("pi.4_pi.3.m.float32.json")[1] == ("pi.4", "pi.3", "m")
    assert meant("_a_.m.float32.json") == [("_a_", "", "m")]


def test_another_dot_parts_key_and_model_where_the_keys_are_told() -> None:
    assert meant("pi.m.v1.float32.json") == [("pi.m", "", "v1")]
    assert meant("pi.m.v1.float32.json", "pi") == [("pi.m", "", "v1"), ("pi", "", "m.v1")]
    assert ("pi", "x", "m.v1") in meant("pi_x.m.v1.float32.json", "pi", "x")
    assert ("pi", "x", "m.v1") not in meant("pi_x.m.v1.float32.json", "pi")


NOT_NAMES = ["", "/", "x", "m.float32.json", ".m.float32.json", "k..float32.json", "k.m.double.json", "k.m.json"]
NOT_NAMES += ["k.m.float32.txt", "k.m.float32.json.bz2", "k.m.float32.other.json"]


@pytest.mark.parametrize("path", [*NOT_NAMES, "k\0.m.float32.json", "k" * 300 + ".m.float32.json"])
def test_other_names_are_refused(path: str) -> None:
    with pytest.raises(UsageError, match="does not show the device, model and data type") as caught:
        parse_tuning_name(path)
    assert "phone.mobilenet.float32.json" in caught.value.hint
