"""config.cfg: read as onert reads it, changed in place, otherwise kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import PackageError
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
