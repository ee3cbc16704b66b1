"""Two devices behind one server: this machine, and a machine behind a real SSH server, which is then ended."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path

import pytest
from tests.devices.shell.sshkit import SshServer, becomes, server, user
from tests.serving.servekit import Reply, served
from tests.serving.test_serve_command import RATE, XDPUTIL

from gnomon.models.units import write_unit
from gnomon.spaces.layers import layer
from gnomon.spaces.unit import single

pytest.importorskip("aiohttp", reason="aiohttp is not installed")
pytestmark = pytest.mark.devices

__all__ = ["server"]


def by_ssh(server: SshServer, folder: Path) -> tuple[str, dict[str, str]]:
    """The board's address, and the environment in which ssh knows it."""
    programs = folder / "bin"
    programs.mkdir()
    ssh = (server.root / "ssh").read_text().replace("exec ssh", f"exec {shutil.which('ssh')}")
    (programs / "ssh").write_text(ssh)
    (programs / "ssh").chmod(0o755)
    address = f"ssh://{user()}@{server.address}:{server.port}"
    return address, {"PATH": f"{programs}:{os.environ['PATH']}"}


def test_a_command_on_a_board_and_nothing_is_left_there(server: SshServer, tmp_path: Path) -> None:
    address, environment = by_ssh(server, tmp_path)
    what = ("--command", f"{XDPUTIL} benchmark {{model}} 1", "--read", RATE, "--device", address, "--runs", "2")
    with served(tmp_path / "board", "--model-name", "model.xmodel", what=what, environment=environment) as made:
        found = made.post(b"leave 300", Accept="application/json").json()
        assert (found["device"], found["processes"]) == (address, 2)
        assert found["latency_s"] == pytest.approx(300e-6, rel=0.02)
        assert becomes(lambda: server.private_folders() == [])
        failed = made.post(b"fail")
        assert (failed.status, "fingerprint of the model" in failed.body) == (422, True), failed.body
        assert made.end() == 143
        assert made.left() == []

    def left() -> list[str]:
        files = [path.name for path in (*server.tmp.rglob("*"), *server.home.rglob("*")) if path.is_file()]
        return [name for name in files if "model" in name or "left" in name]

    assert becomes(lambda: left() == [])  # the board removes a folder itself when its connection has ended


def test_a_pool_deals_models_to_both_and_goes_on_without_the_one_that_is_gone(
    server: SshServer, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    address, environment = by_ssh(server, tmp_path)
    devices = tmp_path / "home" / "devices.toml"
    devices.parent.mkdir()
    devices.write_text(f'[devices.board]\naddress = "{address}"\npython = "{sys.executable}"\n')
    unit = single(layer("Conv", out_channels=8, kernel=3, pad=1), ((1, 8, 16, 16),))
    model = write_unit(unit, tmp_path / "conv.onnx").read_bytes()
    what = ("--runtime", "onnxruntime", "--device", "local", "--device", "board")
    known = {**environment, "GNOMON_HOME": str(devices.parent)}
    with served(tmp_path / "pool", what=what, environment=known) as made:
        replies: list[Reply] = []

        def post() -> None:
            replies.append(made.post(model, Accept="application/json"))

        threads = [threading.Thread(target=post) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [reply.status for reply in replies] == [200] * 6
        assert {reply.json()["device"] for reply in replies} == {"local", "board"}
        here, there = (next(r.json() for r in replies if r.json()["device"] == name) for name in ("local", "board"))
        assert ((here["processes"], here["loads"]), (there["processes"], there["loads"])) == ((1, 3), (3, 3))
        server.stop()
        after = [made.post(model, Accept="application/json").json()["device"] for _ in range(4)]
        assert after == ["local"] * 4
