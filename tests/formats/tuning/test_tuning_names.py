"""Names of the files of tuning: what is made is parsed, and nothing in a name can leave its folder."""

from __future__ import annotations

import string
from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.overlay.records import Tuner
from gnomon.errors import GnomonError, UsageError
from gnomon.formats.tuning.names import TuningName, make_tuning_name, parse_tuning_name, safe_key, safe_model

TUNERS: list[Tuner | None] = [None, "autotvm", "ansor", "metaschedule"]
DTYPES = ["float32", "float16", "int8", "bfloat16", "float8_e4m3fn"]


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
    assert make_tuning_name(name) == PurePath(path).name


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


SAFE = st.text(string.ascii_letters + string.digits + "_+-", min_size=1, max_size=20).filter(lambda t: t[0] != "-")


@given(
    SAFE, SAFE, st.just("") | SAFE, st.sampled_from(DTYPES), st.sampled_from(TUNERS), st.sampled_from(["json", "so"])
)
def test_what_is_made_is_parsed(
    key: str, model: str, found_on: str, dtype: str, tuner: Tuner | None, suffix: str
) -> None:
    name = TuningName(
        key=key, model=model, dtype=dtype, found_on=found_on, tuner=tuner, suffix="so" if suffix == "so" else "json"
    )
    made = make_tuning_name(name)
    try:
        found = parse_tuning_name(made, (key, found_on) if found_on else ())
    except UsageError as error:
        assert "several ways" in error.message and "_" in key + found_on
    else:
        assert found == name


@given(st.text(), st.text(), st.text(), st.sampled_from(DTYPES))
def test_whatever_is_in_a_name_it_is_one_of_a_file(key: str, model: str, found_on: str, dtype: str) -> None:
    made = make_tuning_name(TuningName(key=key, model=model, dtype=dtype, found_on=found_on, tuner="autotvm"))
    assert PurePath(made).name == made and len(made) < 255
    assert made.isascii() and made.isprintable() and ".." not in made and made[0] not in ".-"
    assert parse_tuning_name(made).dtype == dtype


@given(st.text(max_size=100), st.text(max_size=100))
def test_different_keys_stay_different_and_safe_ones_as_they_are(one: str, other: str) -> None:
    assert (safe_key(one) == safe_key(other)) == (one == other)
    assert safe_key(safe_key(one)) == safe_key(one) and safe_model(safe_model(one)) == safe_model(one)
    assert "." not in safe_model(one)


@pytest.mark.parametrize(
    ("key", "begin"),
    [("a/b", "a-b-"), ("../x", "x-"), ("--help", "help-"), ("", "x-"), ("..", "x-"), ("a" * 99, "a" * 51 + "-")],
)
def test_unsafe_keys_are_told_by_a_digest(key: str, begin: str) -> None:
    made = safe_key(key)
    assert made.startswith(begin) and len(made) == len(begin) + 8


def test_no_data_type_no_name() -> None:
    for dtype in ("", "x", "float", "float32/..", "float32.json"):
        with pytest.raises(UsageError, match="is no data type"):
            make_tuning_name(TuningName(key="k", model="m", dtype=dtype))


@given(st.text(), st.lists(st.text(max_size=4), max_size=3))
def test_any_name_is_parsed_or_refused(path: str, known: list[str]) -> None:
    for name in (path, f"{path}.m.float32.json"):
        try:
            found = parse_tuning_name(name, known)
        except GnomonError as error:
            assert error.hint
        else:
            assert found.key and found.model
