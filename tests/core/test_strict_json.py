from __future__ import annotations

import pytest

from gnomon.core.strict_json import file_text
from gnomon.errors import ProblemError


def test_the_text_of_a_file_is_utf8_and_short() -> None:
    assert file_text("é".encode(), "config", "", 9) == "é"
    with pytest.raises(ProblemError, match=r"not UTF-8 text .byte 1"):
        file_text(b"a\xff", "config", "", 9)
    with pytest.raises(ProblemError, match="UTF-16: save it as UTF-8"):
        file_text("a: 1".encode("utf-16"), "config", "", 99)
    with pytest.raises(ProblemError, match="10 characters"):
        file_text("a" * 10, "config", "", 9)
