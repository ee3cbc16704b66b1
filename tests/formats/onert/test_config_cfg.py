"""config.cfg: read as onert reads it, changed in place, otherwise kept; and the settings that place operators."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.pricing.stab import StabDecision
from gnomon.errors import PackageError
from gnomon.formats.onert import config as stab_config
from gnomon.formats.onert.config import ConfigCfg

GOLDEN = """# made by hand
BACKENDS=cpu;ruy
 OP_BACKEND_MAP = 0=ruy;5=ruy;\t# two of them

EMPTY=
NUM_THREADS=1
not a setting
NUM_THREADS=2
"""


def test_golden_file_is_read_as_onert_reads_it() -> None:
    assert ConfigCfg(text=GOLDEN).settings == {
        "BACKENDS": "cpu;ruy",
        "OP_BACKEND_MAP": "0=ruy;5=ruy;",
        "NUM_THREADS": "2",
    }


def test_settings_are_changed_in_place_and_the_rest_is_kept() -> None:
    changed = ConfigCfg(text=GOLDEN).with_settings(
        {"OP_BACKEND_MAP": "1=cpu;", "NUM_THREADS": "4", "EXECUTOR": "Linear", "BACKENDS": "cpu;ruy"}
    )
    assert changed.text == (
        "# made by hand\nBACKENDS=cpu;ruy\nOP_BACKEND_MAP=1=cpu;\t# two of them\n\nEMPTY=\nNUM_THREADS=1\n"
        "not a setting\nNUM_THREADS=4\nEXECUTOR=Linear\n"
    )
    assert ConfigCfg(text="A=1").with_settings({"B": "2"}).text == "A=1\nB=2\n"
    assert ConfigCfg().with_settings({"A": "1"}).text == "A=1\n"


@pytest.mark.parametrize(
    "bad", [{"": "1"}, {"A=B": "1"}, {"#A": "1"}, {"A\n": "1"}, {"A": ""}, {"A": "1\nB=2"}, {"A": "1 #"}, {" A": "1"}]
)
def test_what_the_format_cannot_hold_is_refused(bad: dict[str, str]) -> None:
    with pytest.raises(PackageError) as caught:
        ConfigCfg(text=GOLDEN).with_settings(bad)
    assert caught.value.hint


words = st.text(st.characters(codec="utf-8", exclude_characters="\n\r#=\0 \t"), min_size=1, max_size=8)


@given(st.text(st.sampled_from("AB=# \t\n1;"), max_size=60), st.dictionaries(words | st.just("A"), words))
def test_settings_hold_and_nothing_else_changes(text: str, settings: dict[str, str]) -> None:
    config = ConfigCfg(text=text)
    changed = config.with_settings(settings)
    assert changed.settings == {**config.settings, **settings}
    assert changed.with_settings(settings) == changed
    assert config.with_settings({}) == config
    kept = [line for line in text.split("\n") if "=" not in line]
    assert [line for line in changed.text.split("\n") if "=" not in line and line] == [k for k in kept if k]


DECISION = StabDecision(
    default="ruy",
    mapped={2: "cpu", 1: "cpu"},
    typed={"Conv2D": "ruy", "FullyConnected": "ruy"},
    backends=("cpu", "ruy", "xnnpack"),
    told_us={},
    scheduled_us=None,
    ended_by="",
)
HELD = """# tuned by hand
BACKENDS=acl_cl;cpu
OP_BACKEND_Conv2D=acl_cl # for the GPU
OP_BACKEND_ALLOPS=cpu
EXECUTOR=Linear
RUY_THREADS=3
#OP_BACKEND_Pad=cpu
"""


def test_the_published_config_is_written_line_by_line() -> None:
    """The example that the published tool's documents show."""
    assert stab_config.settings_text(stab_config.published_settings(DECISION, 1)) == (
        "OP_BACKEND_MAP=1=cpu;2=cpu;\nOP_BACKEND_Conv2D=ruy\nOP_BACKEND_FullyConnected=ruy\n"
        "BACKENDS=cpu;ruy;xnnpack\nRUY_THREADS=1\nXNNPACK_THREADS=1"
    )


def test_a_placement_is_written_beside_what_is_there() -> None:
    settings = stab_config.placement_settings({0: "ruy", 1: "cpu"}, 4)
    assert settings == {"BACKENDS": "cpu;ruy", "OP_BACKEND_MAP": "0=ruy;1=cpu;", "NUM_THREADS": "4"}
    assert stab_config.with_placement(ConfigCfg(text=HELD), settings).text == (
        "# tuned by hand\nBACKENDS=cpu;ruy\n# for the GPU\nRUY_THREADS=3\n#OP_BACKEND_Pad=cpu\n"
        "OP_BACKEND_MAP=0=ruy;1=cpu;\nNUM_THREADS=4\n"
    )


def test_what_steers_and_was_not_measured_is_named() -> None:
    settings = stab_config.placement_settings({0: "ruy", 1: "cpu"}, 4)
    held = ConfigCfg(text=HELD)
    left = {"OP_BACKEND_Conv2D": "acl_cl", "OP_BACKEND_ALLOPS": "cpu", "EXECUTOR": "Linear"}
    assert stab_config.steering(held, settings) == left
    assert stab_config.steering(held, {**settings, "EXECUTOR": "Parallel"}).keys() == left.keys() - {"EXECUTOR"}


def test_an_empty_map_takes_an_earlier_one_out() -> None:
    changed = stab_config.with_placement(ConfigCfg(text="OP_BACKEND_MAP=0=ruy;\nA=1\n"), {"OP_BACKEND_MAP": ""})
    assert changed.settings == {"A": "1"}


def test_a_type_that_onert_would_pass_over_is_refused() -> None:
    with pytest.raises(PackageError, match="OP_BACKEND_Add does not name an IR opcode") as caught:
        stab_config.type_settings({"Add": "ruy"})
    assert "BinaryArithmetic" in caught.value.hint


backends = st.sampled_from(["cpu", "ruy", "xnnpack"])
keys = st.sampled_from(["A", "EXECUTOR", "BACKENDS", "OP_BACKEND_MAP", "OP_BACKEND_Pad", "NUM_THREADS"])
lines = st.lists(st.tuples(keys, st.sampled_from(["", "1", "cpu", "0=ruy;"])), max_size=8)


@given(lines, st.dictionaries(st.integers(0, 40), backends, min_size=1), st.integers(1, 16))
def test_only_this_placement_holds_and_all_else_stays(
    held: list[tuple[str, str]], placement: dict[int, str], threads: int
) -> None:
    config = ConfigCfg(text="".join(f"{key}={value}\n" for key, value in held))
    settings = stab_config.placement_settings(placement, threads)
    changed = stab_config.with_placement(config, settings)
    kept = {k: v for k, v in config.settings.items() if k in ("A", "NUM_THREADS")}
    assert changed.settings == {**kept, **settings}
    assert stab_config.with_placement(changed, settings) == changed
    entries = [entry.split("=") for entry in settings["OP_BACKEND_MAP"].split(";") if entry]
    assert {int(index): backend for index, backend in entries} == placement
