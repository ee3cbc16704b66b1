"""Names of the files of tuning are parsed, or refused with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import GnomonError, UsageError
from gnomon.formats.tuning.names import TuningName, parse_tuning_name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("phone.mobile.float32.json", TuningName(key="phone", model="mobile", dtype="float32")),
        ("/a.b/c_d/phone.mobile.float32.so", TuningName(key="phone", model="mobile", dtype="float32", suffix="so")),
        (
            "sd888.mace_mobilenet_v1.float16.atvm.json",
            TuningName(key="sd888", model="mace_mobilenet_v1", dtype="float16", tuner="autotvm"),
        ),
        ("pi.4.m.float32.ansor.json", TuningName(key="pi.4", model="m", dtype="float32", tuner="ansor")),
        ("a_b.m.float32.json", TuningName(key="a_b", model="m", dtype="float32")),
        ("x.cfgs.float32.json", TuningName(key="x", model="cfgs", dtype="float32")),
        ("k.ansor.float32.json", TuningName(key="k", model="ansor", dtype="float32")),
        ("k.float32.float32.json", TuningName(key="k", model="float32", dtype="float32")),
    ],
)
def test_names_are_parsed(path: str, name: TuningName) -> None:
    assert parse_tuning_name(path) == name


@pytest.mark.parametrize(
    ("path", "known", "key", "found_on", "model"),
    [
        ("a_b.m.float32.json", ["a", "b"], "a", "b", "m"),
        ("a_b.m.float32.json", ["a_b", "b"], "a_b", "", "m"),
        ("my_phone_x86.m.float32.json", ["my_phone", "x86"], "my_phone", "x86", "m"),
        ("a_b_c_d.m.float32.json", ["a_b", "c_d", "d"], "a_b", "c_d", "m"),
        ("pi.4_pi.3.m.float32.json", ["pi.4", "pi.3"], "pi.4", "pi.3", "m"),
        ("pi.m.v1.float32.json", ["pi"], "pi", "", "m.v1"),
        ("new_one.m.float32.json", ["a", "b"], "new_one", "", "m"),
    ],
)
def test_known_keys_say_where_to_cut(path: str, known: list[str], key: str, found_on: str, model: str) -> None:
    found = parse_tuning_name(f"/logs_of.x/{path}", known)
    assert (found.key, found.found_on, found.model) == (key, found_on, model)


@pytest.mark.parametrize(
    ("path", "known", "told"),
    [
        ("a_b_c.m.float32.json", ["a", "b_c", "a_b", "c"], "m on a of what was found on b_c or m on a_b of"),
        ("a_b.m.float32.json", ["a", "b", "a_b"], "m on a of what was found on b or m on a_b"),
        ("pi.4.m.float32.json", ["pi", "pi.4"], "4.m on pi or m on pi.4"),
    ],
)
def test_what_fits_several_ways_is_an_error_with_all_of_them(path: str, known: list[str], told: str) -> None:
    with pytest.raises(UsageError, match="fits several ways") as caught:
        parse_tuning_name(path, known)
    assert told in caught.value.message


NOT_NAMES = ["", "/", "x", "m.float32.json", ".m.float32.json", "k..float32.json", "k.m.double.json", "k.m.json"]
NOT_NAMES += ["k.m.float32.txt", "k.m.float32.json.gz", "k.m.float32.other.json"]


@pytest.mark.parametrize("path", [*NOT_NAMES, "k\0.m.float32.json", "k" * 300 + ".m.float32.json"])
def test_other_names_are_refused(path: str) -> None:
    with pytest.raises(UsageError, match="does not say device, model and data type") as caught:
        parse_tuning_name(path)
    assert "phone.mobilenet.float32.json" in caught.value.hint


@given(st.text(), st.lists(st.text(max_size=4), max_size=3))
def test_any_name_is_parsed_or_refused(path: str, known: list[str]) -> None:
    for name in (path, f"{path}.m.float32.json"):
        try:
            found = parse_tuning_name(name, known)
        except GnomonError as error:
            assert error.hint
        else:
            assert found.key and found.model
