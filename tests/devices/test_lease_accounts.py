"""Accounts that share a machine exclude each other, by the lease of Python and by that of every shell."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gnomon.devices.lease import Waiting, lease
from gnomon.devices.shell.scripts import lease_functions

NOBODY = 65534
LOOK = """
umask 077; folder= held= tmp=%s
%s
while :; do
  lease
  [ "$said" = "$last" ] || echo "$said"
  last=$said
  case $said in held*) break;; esac
  sleep 0.1
done
read -r _
rm -rf "$ticket"
"""
SHELLS = {"dash": "dash", "mksh": "mksh", "busybox": "busybox-static"}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="to be two users needs root")


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A folder of leases in which all may write, as an administrator would make it, on a path that all may go."""
    for path in (tmp_path, *tmp_path.parents[: len(tmp_path.parents) - 2]):
        path.chmod(path.stat().st_mode | 0o011)
    folder = tmp_path / "leases"
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    """A shell's command, with the programs that belong to it."""
    name = str(request.param)
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"not installed: {name} (Debian: {SHELLS[name]})")
    return [found, "sh"] if name == "busybox" else [found]


class Waiter:
    """A shell of another account that takes the lease, or waits for it, until its input ends."""

    def __init__(self, shell: Sequence[str], *, leases: Path | None, tmp: Path, user: int = NOBODY) -> None:
        environment = {"PATH": os.environ["PATH"], **({"GNOMON_LEASES": str(leases)} if leases else {})}
        self.process = subprocess.Popen(
            [*shell, "-c", LOOK % (tmp, lease_functions("gnomon place m.onnx"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            user=user,
            group=user,
            extra_groups=[],
        )

    def says(self) -> str:
        """What it says next of the lease."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        """Let it go."""
        self.process.communicate(timeout=60)


def test_shells_and_python_of_two_accounts_take_turns(shared: Path, shell: list[str]) -> None:
    told: list[str] = []
    first = Waiter(shell, leases=shared, tmp=shared.parent)
    assert first.says() == "held"
    third: list[Waiter] = []

    def then(sentence: str) -> None:
        told.append(sentence)
        third.append(Waiter(shell, leases=shared, tmp=shared.parent, user=0))
        told.append(third[0].says())
        first.end()

    with lease(shared, "local", on_wait=then):
        assert told[0].startswith(f"another gnomon (process {first.process.pid} of nobody, gnomon place m.onnx, since")
        assert isinstance(told[0], Waiting)
        assert told[1].startswith(f"busy {first.process.pid} of nobody, gnomon place m.onnx, since ")
        assert third[0].says().startswith(f"busy {os.getpid()}, ")
    assert third[0].says() == "held"
    third[0].end()
    assert not list(shared.iterdir())


def test_who_died_or_only_left_files_keeps_nobody_out(shared: Path, shell: list[str]) -> None:
    dead = Waiter(shell, leases=shared, tmp=shared.parent)
    assert dead.says() == "held"
    dead.process.kill()
    dead.process.communicate()
    (victim := shared.parent / "victim").mkdir()
    (shared / "lease-local.2.ticket").mkdir()
    (shared / "lease-local.3.ticket").symlink_to(victim)
    (shared / "lease-local.4.ticket").write_text("1\n")
    os.mkfifo(shared / "lease-local.5.ticket")
    (shared / "lease-local.9999999999.ticket").mkdir()
    for made in shared.iterdir():
        os.chown(made, NOBODY, NOBODY, follow_symlinks=False)
    told: list[str] = []
    with lease(shared, "local", on_wait=told.append, wait_s=0):
        assert told == []
    other = Waiter(shell, leases=shared, tmp=shared.parent, user=1)
    assert other.says() == "held"
    other.end()
    assert list(victim.iterdir()) == []


def test_a_shell_makes_the_common_folder_and_says_where_it_cannot(shared: Path, shell: list[str]) -> None:
    shared.parent.chmod(0o1777)
    common = shared.parent / "gnomon-leases"
    maker = Waiter(shell, leases=None, tmp=shared.parent)
    assert maker.says() == "held"
    assert (common.stat().st_mode & 0o7777, common.stat().st_uid) == (0o1777, NOBODY)
    second = Waiter(shell, leases=None, tmp=shared.parent, user=1)
    assert second.says().startswith(f"busy {maker.process.pid} of nobody")
    maker.end()
    assert second.says() == "held"
    second.end()
    common.chmod(0o755)
    alone = Waiter(shell, leases=None, tmp=shared.parent, user=1)
    assert alone.says() == f"held {common} is not a folder in which every account may write"
    assert [path.name for path in shared.parent.glob("gnomon-leases-*/*")] == ["lease-local.1.ticket"]
    alone.end()
