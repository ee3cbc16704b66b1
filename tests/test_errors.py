"""Errors as one may print them anywhere."""

from __future__ import annotations

import pytest

from gnomon.errors import DeviceError, GnomonError, ProblemError


@pytest.mark.parametrize("kind", [GnomonError, ProblemError, DeviceError])
def test_control_letters_of_strangers_are_escaped(kind: type[GnomonError]) -> None:
    error = kind("the operator 'a\x1b[2J\u202eb\ud800'\nis unknown", hint="rename \x07it")
    assert str(error) == error.message == "the operator 'a\\x1b[2J\\u202eb\\ud800'\nis unknown"
    assert error.hint == "rename \\x07it"


def test_plain_text_stays_as_it_is() -> None:
    error = GnomonError("the model 'é 模型' has 3 operators")
    assert str(error) == "the model 'é 模型' has 3 operators"
