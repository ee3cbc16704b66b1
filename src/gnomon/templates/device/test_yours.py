"""The contract of devices. PROGRAM is a stand-in that uses this machine as the board: replace it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.devices.base import Device
from gnomon.devices.opening import opened, resolve
from gnomon.testing.device import DeviceContract

PROGRAM = """#!/bin/sh
[ "$1" = -s ] && shift 2
case "$1" in
devices) printf 'List of devices attached\\nhere\\tdevice\\n' ;;
shell) exec sh -c "$2" ;;
push | pull) cp "$2" "$3" ;;
esac
"""


class TestYours(DeviceContract):
    """The contract for the device with the address `yours:`."""

    @pytest.fixture
    def device(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
        """The device, open."""
        program = tmp_path / "bin" / "yours"
        program.parent.mkdir()
        program.write_text(PROGRAM)
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        with opened(resolve("yours:")) as device:
            yield device
