"""This machine as a device."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from gnomon.devices import fingerprint as fingerprint_module
from gnomon.devices.base import DeviceInfo, checked_name, facts_of, inherited
from gnomon.devices.fingerprint import fingerprint
from gnomon.errors import DeviceError, system_errors
from gnomon.system.files import in_place_of
from gnomon.system.process import Completed, Conversation, Guard, guarded, run_process

_ASK_S = 60.0


class LocalDevice:
    """The machine that gnomon itself runs on; see `Device` for the contract of the methods.

    `python` is the Python that has the runtimes (None: gnomon's own); `environment` applies to every command.
    """

    def __init__(
        self, name: str = "local", *, python: str | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._name = name
        self._python = python
        self._environment = dict(environment or {})
        self._opened: tuple[Guard, Path] | None = None

    @property
    def folder(self) -> Path:
        """The private folder. DeviceError outside of the `with` block."""
        return self._open()[1]

    def _open(self) -> tuple[Guard, Path]:
        if self._opened is None:
            raise DeviceError("the device is not open", hint="Open it: with LocalDevice() as device:")
        return self._opened

    def __enter__(self) -> Self:
        self._opened = guarded("gnomon-")
        return self

    def __exit__(self, *exception: object) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].close()

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: bytes = b"",
        timeout_s: float,
        on_line: Callable[[str], None] | None = None,
    ) -> Completed:
        """Run a command in the private folder; see `Device.run`."""
        guard, folder = self._open()
        env = {**inherited(os.environ), **self._environment, **env}
        return run_process(argv, env=env, stdin=stdin, timeout_s=timeout_s, on_line=on_line, cwd=folder, guard=guard)

    def converse(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Conversation:
        """Start a command that takes one line at a time; see `Conversing.converse`."""
        guard, folder = self._open()
        return Conversation(argv, env={**inherited(os.environ), **self._environment, **env}, cwd=folder, guard=guard)

    def push(self, local: Path, name: str) -> str:
        """The existing path of the file, or the path of a link to it with the wanted name; nothing is copied."""
        folder = self.folder
        checked_name(name)
        source = local.absolute()
        if not os.access(source, os.R_OK):
            raise DeviceError(f"{local} cannot be read", hint="Check the path and its permissions.")
        if source.name == name:
            return str(source)
        link = Path(tempfile.mkdtemp(prefix="pushed-", dir=folder)) / name
        link.symlink_to(source)
        return str(link)

    def pull(self, remote: str, local: Path) -> None:
        """Copy a file out of the private folder, or from an absolute path; see `Device.pull`."""
        source = self.folder / remote
        with (
            system_errors(
                DeviceError,
                f"{remote} cannot be fetched to {local}",
                hint="Check that the command wrote the file, and that there is room for it here.",
            ),
            in_place_of(local) as partial,
        ):
            shutil.copyfile(source, partial)

    def describe(self) -> DeviceInfo:
        """This machine's name and fingerprint. DeviceError if the chosen Python cannot report them."""
        if self._python is None:
            facts = fingerprint(environment={**os.environ, **self._environment})
            return DeviceInfo(name=self._name, fingerprint=facts, python=sys.executable)
        return DeviceInfo(name=self._name, fingerprint=self._asked(self._python), python=self._python)

    def _asked(self, python: str) -> dict[str, object]:
        """The fingerprint as reported by another Python, which has its own version and C library."""
        program = Path(fingerprint_module.__file__).read_bytes()
        done = self.run([python, "-I", "-"], env={}, stdin=program, timeout_s=_ASK_S)
        facts = facts_of(done.stdout) if done.ok else None
        if facts is None:
            lines = done.stderr.strip().splitlines()
            raise DeviceError(
                f"{python} is not a usable Python: {lines[-1][:200] if lines else 'it did not answer'}",
                hint="Name another Python with `python` in the file of devices, or leave `python` out.",
            )
        return facts
