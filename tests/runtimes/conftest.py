"""The agent on this machine, for tests that ask a runtime itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gnomon.devices.local import LocalDevice
from gnomon.measure.link import AgentLink


@pytest.fixture
def link() -> Iterator[AgentLink]:
    with LocalDevice() as device, AgentLink(device) as opened:
        yield opened
