"""A Tizen device that the program `sdb` reaches, as a device: calls of `sdb`, and the shell there."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

from gnomon.devices import fingerprint as fingerprint_program
from gnomon.devices.base import STDERR_TAIL_BYTES, STDOUT_TAIL_BYTES, Completed, DeviceInfo, checked_name
from gnomon.devices.guard import guarded_folder
from gnomon.devices.process import _Lines as Lines
from gnomon.devices.process import _Tail as Tail
from gnomon.devices.pushed import Digests, Part
from gnomon.devices.sdb_files import arrive, fetch, refusal
from gnomon.devices.sdb_link import Call, SdbLink
from gnomon.devices.sdb_program import SdbSettings, lost
from gnomon.devices.sdb_sh import command_script, errors_script, whole
from gnomon.devices.sdb_visit import found_python, pushed_place, take_lease
from gnomon.devices.settings import DeviceConfig
from gnomon.devices.ssh_plain_facts import FINGERPRINT, described
from gnomon.devices.ssh_plain_sh import commit_script, has_script, kill_script, marks, quoted, stage_script, tidy_script
from gnomon.errors import DeviceError

if TYPE_CHECKING:
    from gnomon.devices.base import Device

__all__ = ["SdbDevice", "SdbSettings", "sdb_device"]

_SIGNALS = range(129, 193)
_GRACE_S = 2.0
_STUCK_S = 10.0
_FACTS_S = 60.0
_KEPT_DAYS = 30
_MOST_KIB = 4 << 20


class SdbDevice:
    """A Tizen device; see `Device` for what the methods promise.

    Entering waits for the device's lease, telling `on_wait` once who has it. A command's standard error comes at its
    end; a status above 128 is told as the signal that a shell means by it. `describe` tells its Python, if any.
    """

    def __init__(self, config: SdbSettings, *, on_wait: Callable[[str], None] | None = None) -> None:
        self._config, self._on_wait = config, on_wait
        self._digests = Digests()
        self._link: SdbLink | None = None
        self._open = False
        self._number = 0
        self._place = ""
        self._python: str | None = None

    @property
    def folder(self) -> str:
        """The private folder there. DeviceError outside of the `with` block."""
        return f"{self._opened().base}/work"

    def __enter__(self) -> Self:
        self._link = link = SdbLink(self._config)
        try:
            link.start()
            self._config = link.settings
            take_lease(link, self._on_wait)
            self._place, self._python = "", None
            if self._config.python is not None:
                self._python = found_python(link)
        except BaseException:
            self._close()
            raise
        self._open = True
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if self._link is not None and self._config.keep and self._place:
                self._link.do(tidy_script(self._place, days=_KEPT_DAYS, most_kib=_MOST_KIB))
        except DeviceError:
            pass  # the next visit tidies up
        finally:
            self._close()

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: bytes = b"",
        timeout_s: float,
        on_line: Callable[[str], None] | None = None,
    ) -> Completed:
        """Run a command in the private folder; see `Device.run`. A second call of sdb ends it at its time limit."""
        link = self._opened()
        environment = {**self._config.environment, **env}
        if not argv or any("\0" in word for word in (*argv, *environment, *environment.values())):
            self._no_start("an empty command, or a word with a zero byte")
        self._number += 1
        number, tokens = self._number, (secrets.token_hex(16), secrets.token_hex(16))
        if stdin:
            link.send(stdin, f"{link.base}/in/{number}.in")
        script = command_script(
            argv=argv, env=environment, base=link.base, number=number, tokens=tokens, stdin_bytes=len(stdin)
        ).encode("utf-8", "surrogateescape")
        path = f"{link.base}/in/{number}.sh"
        link.send(script, path)
        run = _Running(on_line)
        started_s = time.monotonic()
        call = Call(link, whole(path, len(script)), (tokens[0], run.add_stdout), (tokens[1], run.errors.extend))
        timed_out, killed = False, ""
        try:
            if not call.pump(started_s + timeout_s):
                timed_out, killed = True, self._stop(link, call, run)
        except BaseException:
            self._stop(link, call, run)
            raise
        finally:
            call.close()
        return self._completed(run, call, tokens, killed, timed_out, time.monotonic() - started_s)

    def push(self, local: Path, name: str) -> str:
        """Bring a file or folder there, links resolved, unless it is there already; see `Device.push`."""
        link = self._opened()
        checked_name(name)
        manifest = self._digests.manifest(local.absolute())
        self._place = self._place or pushed_place(link)
        path = f"{self._place}/{manifest.digest}/{name}"
        if link.do(has_script(self._place, manifest.digest, name))[0] == "0":
            return path
        stage = f"{self._place}/.new-{secrets.token_hex(8)}"

        def at(part: Part) -> str:
            return f"{stage}/{name}/{part.path}" if part.path else f"{stage}/{name}"

        self._must(stage_script(stage, [at(part) for part in manifest.parts if part.kind == "d"]), stage)
        try:
            arrive(link, [(part, at(part)) for part in manifest.parts if part.kind != "d"])
        except DeviceError:
            link.do(f"rm -rf {quoted(stage)}")
            raise
        self._must(commit_script(stage, self._place, manifest.digest, name), stage)
        return path

    def pull(self, remote: str, local: Path) -> None:
        """Fetch a file; see `Device.pull`."""
        path = remote if remote.startswith("/") else f"{self.folder}/{remote}"
        partial = local.with_name(f".{local.name}.{os.getpid()}.part")
        try:
            fetch(self._opened(), path, partial)
            partial.replace(local)
        except OSError as error:
            raise DeviceError(
                f"{remote} cannot be fetched to {local}: {error.strerror or error}",
                hint="Check that the folder exists here and that there is room in it.",
            ) from error
        finally:
            partial.unlink(missing_ok=True)

    def describe(self) -> DeviceInfo:
        """The device's name, its fingerprint, and its Python, which is empty where there is none of 3.10 or newer."""
        link = self._opened()
        if self._python is None:
            self._python = found_python(link)
        if self._python:
            program = Path(fingerprint_program.__file__).read_bytes()
            done = self.run([self._python, "-I", "-"], env={}, stdin=program, timeout_s=_FACTS_S)
            try:
                found = json.loads(done.stdout) if done.ok else None
            except ValueError:
                found = None
            if isinstance(found, dict):
                return DeviceInfo(name=self._config.name, fingerprint=found, python=self._python)
        facts = f"{link.base}/in/facts"
        self._must(f"{{ {FINGERPRINT}; }} >{quoted(facts)} 2>/dev/null", facts)
        with guarded_folder("gnomon-facts-") as folder:
            printed = folder / "printed"
            fetch(link, facts, printed)
            (folder / "root").mkdir()
            found = described(printed.read_bytes(), folder / "root")
        return DeviceInfo(name=self._config.name, fingerprint=found, python=self._python)

    def _completed(
        self, run: _Running, call: Call, tokens: tuple[str, str], killed: str, timed_out: bool, duration_s: float
    ) -> Completed:
        link = self._opened()
        status = call.parts[0].status or killed
        if not status:
            error = lost(self._config, call.said)
            self._close()
            raise error
        if call.parts[1].status is None:  # the session was killed with the command's group
            run.errors.clear()
            late = Call(link, errors_script(link.base, self._number, tokens[1]), (tokens[1], run.errors.extend))
            try:
                late.pump(time.monotonic() + _FACTS_S)
            finally:
                late.close()
        if status == "start":
            self._no_start("there is no such program, or it cannot be executed")
        if run.lines:
            run.lines.finish()
        number = int(status)
        return Completed(
            returncode=None if number in _SIGNALS else number,
            signal=number - 128 if number in _SIGNALS else None,
            stdout=run.stdout.text(),
            stderr=run.stderr(tokens[0]),
            timed_out=timed_out,
            duration_s=duration_s,
        )

    def _stop(self, link: SdbLink, call: Call, run: _Running) -> str:
        """End a command: SIGTERM to its group, SIGKILL after a while. The status if its session cannot tell it."""
        run.lines = None  # nobody listens any more, and a line must not keep the command alive
        note = f"{link.base}/run/{self._number}"
        status = ""
        for signal, grace_s in (("TERM", _GRACE_S), ("KILL", _STUCK_S)):
            if call.ended:
                break
            deadline_s = time.monotonic() + _STUCK_S
            while link.do(kill_script(note, signal))[0] != "0":
                if call.pump(time.monotonic() + 0.05) or time.monotonic() > deadline_s:
                    break
            call.pump(time.monotonic() + grace_s)
            status = "137" if signal == "KILL" else "143"
        if not call.ended:
            raise DeviceError(
                f"a command on {self._config.destination} does not end though it was killed: it hangs in a driver",
                hint="Restart the device, and leave out the backend that hung.",
            )
        return status

    def _must(self, script: str, what: str) -> None:
        status, said = self._opened().do(script)
        if status != "0":
            raise refusal(self._config, said, what)

    def _no_start(self, reason: str) -> NoReturn:
        raise DeviceError(
            f"the program cannot be started on {self._config.destination}: {reason}",
            hint="Check that the program is installed on the device, executable, and on its PATH.",
        )

    def _opened(self) -> SdbLink:
        if self._link is None or not self._open:
            raise DeviceError(
                f"the connection to {self._config.destination} was lost before, or the device is not open",
                hint="Use it in a with statement, and open it anew once it is lost.",
                transient=True,
            )
        return self._link

    def _close(self) -> None:
        self._open = False
        link, self._link = self._link, None
        if link is not None:
            link.close()


class _Running:
    """What a command printed so far."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._tail = Tail(STDERR_TAIL_BYTES)
        self.stdout, self.errors = Tail(STDOUT_TAIL_BYTES), bytearray()
        self.lines = Lines(on_line) if on_line else None

    def add_stdout(self, chunk: bytes) -> None:
        self.stdout.add(chunk)
        if self.lines:
            self.lines.add(chunk)

    def stderr(self, token: str) -> str:
        """What is between the marks in its file, whose begin may have been cut away."""
        first, last = marks(token)
        said = bytes(self.errors)
        if first in said:
            said = said.partition(first)[2]
        self._tail.add(said.rpartition(last)[0] if last in said else said)
        return self._tail.text()


def sdb_device(config: DeviceConfig, on_wait: Callable[[str], None] | None) -> Device:
    """A Tizen device as a configuration describes it: the host of its address is the serial number."""
    address = config.address
    port = f":{address.port}" if address.port else ""
    settings = SdbSettings(
        name=config.name,
        serial=f"{address.host}{port}",
        python=config.python,
        folder=config.folder,
        keep=config.keep,
        environment=config.environment,
        connect_timeout_s=config.connect_timeout_s,
    )
    return SdbDevice(settings, on_wait=on_wait)


if TYPE_CHECKING:

    def _conforms(device: SdbDevice) -> Device:
        return device
