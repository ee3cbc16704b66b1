"""What a package says that it was proved with, and the pip line for it."""

from __future__ import annotations

import pytest

from gnomon.core.installing import pip_line
from gnomon.runtimes.litert import LiteRt
from gnomon.runtimes.tvm import Tvm
from gnomon.session.package import requirements_of
from gnomon.session.targets import pip_names


def test_requirements_are_of_pip_names_in_the_versions_that_were_measured() -> None:
    assert pip_names(LiteRt.wheels) == ["numpy", "ai-edge-litert"]
    assert requirements_of(LiteRt.wheels, {"numpy": "2.4.6", "ai-edge-litert": "2.3.0"}) == [
        "numpy==2.4.6",
        "ai-edge-litert==2.3.0",
    ]
    assert pip_names(Tvm.wheels) == ["numpy", "apache-tvm", "apache-tvm-ffi", "onnx"]


@pytest.mark.parametrize("versions", [{}, {"numpy": "2.4.6"}])
def test_a_version_that_is_not_known_is_the_one_required(versions: dict[str, str]) -> None:
    found = requirements_of(LiteRt.wheels, versions)
    assert found[1] == LiteRt.wheels[0]
    assert pip_line(found).endswith(f" '{LiteRt.wheels[0]}'")  # a shell takes > for a file
