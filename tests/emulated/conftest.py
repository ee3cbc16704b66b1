"""The tests under emulation run only where they are asked for: they download some 45 MB once, and take minutes."""

from __future__ import annotations

import subprocess

import pytest
from tests.emulated import armkit


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "emulated: on another architecture by qemu; runs with GNOMON_EMULATED=1 only")


@pytest.fixture(scope="session")
def arm() -> armkit.Emulated:
    """The aarch64 root folder. Who asked for these tests is told when it cannot be made."""
    if lacking := armkit.missing():
        pytest.skip(f"for aarch64 under emulation this machine lacks {lacking}")
    try:
        return armkit.emulated()
    except subprocess.CalledProcessError as error:
        told = error.stderr.decode(errors="replace")[-1000:]
        pytest.fail(f"the aarch64 root folder cannot be made: {error.cmd[:2]} said {told}")
