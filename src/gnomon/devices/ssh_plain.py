"""A machine behind SSH that has no Python, as a device: OpenSSH and the shell there do it all."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gnomon.devices.base import STDERR_TAIL_BYTES, STDOUT_TAIL_BYTES, Completed, DeviceInfo, checked_name
from gnomon.devices.guard import guarded_folder
from gnomon.devices.process import _Lines as Lines
from gnomon.devices.process import _Tail as Tail
from gnomon.devices.pushed import Digests, contents
from gnomon.devices.ssh_errors import refused
from gnomon.devices.ssh_plain_facts import FINGERPRINT, MOST_BYTES, described
from gnomon.devices.ssh_plain_link import PlainLink
from gnomon.devices.ssh_plain_sh import (
    commit_script,
    file_script,
    has_script,
    kill_script,
    quoted,
    run_script,
    stage_script,
    tidy_script,
)
from gnomon.devices.ssh_plain_stream import Session
from gnomon.devices.ssh_program import SshSettings
from gnomon.errors import DeviceError

if TYPE_CHECKING:
    from gnomon.devices.base import Device

_SIGNALS = range(129, 193)
_SHORT_S = 60.0
_LONG_S = 24 * 3600.0
_GRACE_S = 2.0
_STUCK_S = 10.0
_LEASE_WAIT_S = 3600.0
_KEPT_DAYS = 30
_MOST_KIB = 4 << 20
_FULL = ("No space left", "quota exceeded")
_DENIED = ("Permission denied", "Read-only file system", "Operation not permitted")


class PlainSshDevice:
    """A machine behind SSH without Python; see `Device` for what the methods promise.

    A command's status from 129 to 192 is told as the signal that a shell means by it: the two cannot be told apart
    there. What is pushed is checked by its SHA-256 where the device has sha256sum, else by its size. `describe` has no
    Python.
    """

    def __init__(self, config: SshSettings, *, on_wait: Callable[[str], None] | None = None) -> None:
        self._config, self._on_wait = config, on_wait
        self._digests = Digests()
        self._link: PlainLink | None = None
        self._base: str | None = None
        self._last_id = 0
        self._place = ""

    @property
    def folder(self) -> str:
        """The private folder there. DeviceError outside of the `with` block."""
        if self._base is None:
            raise DeviceError(
                "the device is not open", hint="Use it in a with statement: with PlainSshDevice(...) as device:"
            )
        return f"{self._base}/work"

    def __enter__(self) -> Self:
        self._link = PlainLink(self._config)
        try:
            kind, _, rest = self._link.start().partition(" ")
            if kind == "lacks":
                raise DeviceError(
                    f"{self._config.destination} has no Python, and its shell lacks {', '.join(rest.split())}",
                    hint="Install these (coreutils, or busybox) or a Python there, and see that they are on its PATH.",
                )
            if kind != "base":
                raise self._refusal(rest, "the temporary folder")
            self._lease()
            self._base = rest
            self._place = self._pushed_place()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if self._link is not None and self._config.keep and exception[:1] != (DeviceError,):
                self._link.do(tidy_script(self._place, days=_KEPT_DAYS, most_kib=_MOST_KIB), within_s=_SHORT_S)
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
        """Run a command in the private folder; see `Device.run`. A second session ends it at its time limit."""
        work, link = self.folder, self._opened()
        self._last_id += 1
        note = f"{self._base}/run/{self._last_id}"
        token = secrets.token_hex(16)
        environment = {**self._config.environment, **env}
        if not argv or any("\0" in word for word in (*argv, *environment, *environment.values())):
            raise self._no_start("an empty command, or a word with a zero byte")
        run = _Running(on_line)
        script = run_script(argv=argv, env=environment, work=work, note=note, token=token)
        started_s = time.monotonic()
        session = link.session(script, token, data=iter((stdin,)), stdout=run.add_stdout, stderr=run.stderr.add)
        timed_out = False
        last = ""
        try:
            if not session.pump(started_s + timeout_s):
                timed_out = True
                last = self._stop(link, session, note, run)
        except BaseException:
            self._stop(link, session, note, run)
            raise
        finally:
            code = link.end(session)
        if session.status == "start":
            raise self._no_start(f"there is no program {argv[0]!r}")
        if session.status is None and not last:
            error = link.lost(code, session.said)
            self._close_link()
            raise error
        if run.lines:
            run.lines.finish()
        return run.completed(session.status or last, timed_out=timed_out, duration_s=time.monotonic() - started_s)

    def push(self, local: Path, name: str) -> str:
        """Bring a file or folder there, links resolved, unless it is there already; see `Device.push`."""
        link = self._opened()
        checked_name(name)
        manifest = self._digests.manifest(local.absolute())
        path = f"{self._place}/{manifest.digest}/{name}"
        if self._do(has_script(self._place, manifest.digest, name))[0] == "0":
            return path
        stage = f"{self._place}/.new-{secrets.token_hex(8)}"

        def at(below: str) -> str:
            return f"{stage}/{name}/{below}" if below else f"{stage}/{name}"

        self._must(stage_script(stage, [at(part.path) for part in manifest.parts if part.kind == "d"]), stage)
        for part in (part for part in manifest.parts if part.kind != "d"):
            script = file_script(at(part.path), part.size_bytes, part.digest, program=part.kind == "x")
            status, said = link.do(script, within_s=_LONG_S, data=contents(part))
            if status == "3":
                raise DeviceError(
                    f"{part.source} did not arrive on {self._config.destination} as it was sent",
                    hint="Check the device's disk; then start again.",
                    transient=True,
                )
            if status != "0":
                self._do(f"rm -rf {quoted(stage)}")
                raise self._refusal(said, stage)
        self._must(commit_script(stage, self._place, manifest.digest, name), stage)
        return path

    def pull(self, remote: str, local: Path) -> None:
        """Fetch a file; see `Device.pull`."""
        path = remote if remote.startswith("/") else f"{self.folder}/{remote}"
        partial = local.with_name(f".{local.name}.{os.getpid()}.part")
        try:
            with partial.open("wb") as file:
                status, said = self._opened().do(
                    f"[ -f {quoted(path)} ] && cat {quoted(path)}",
                    within_s=_LONG_S,
                    take=lambda chunk: (file.write(chunk), None)[1],
                )
            if status != "0":
                raise self._refusal(said or "there is no such file", path)
            partial.replace(local)
        except OSError as error:
            raise DeviceError(
                f"{remote} cannot be fetched to {local}: {error.strerror or error}",
                hint="Check that the folder exists here and that there is room in it.",
            ) from error
        finally:
            partial.unlink(missing_ok=True)

    def describe(self) -> DeviceInfo:
        """The device's name and its fingerprint; `python` is empty."""
        printed = bytearray()
        self._opened().do(
            FINGERPRINT,
            within_s=_SHORT_S,
            take=lambda chunk: printed.extend(chunk[: max(0, MOST_BYTES - len(printed))]),
        )
        with guarded_folder("gnomon-facts-") as folder:
            return DeviceInfo(name=self._config.name, fingerprint=described(bytes(printed), folder), python="")

    def _lease(self) -> None:
        """Wait for the device's lease, telling once who has it."""
        link = self._opened()
        deadline_s, told = time.monotonic() + _LEASE_WAIT_S, False
        while True:
            kind, _, rest = link.ask("lease").partition(" ")
            if kind == "held":
                return
            if kind == "fail":
                raise self._refusal(rest, "the lease of the device")
            if not told and self._on_wait is not None and rest != "nobody":
                told = True
                self._on_wait(
                    f"another gnomon (process {rest} there) measures on {self._config.name}: waiting for it to end"
                )
            if time.monotonic() > deadline_s:
                raise refused(self._config, {"error": "busy", "reason": rest})
            time.sleep(0.5)

    def _pushed_place(self) -> str:
        """The folder of pushed files there."""
        if not self._config.keep:
            return f"{self._base}/pushed"
        given = self._config.folder
        if given is None:
            root = '"${XDG_CACHE_HOME:-$HOME/.cache}/gnomon"'
        elif given.startswith("~/"):
            root = f'"$HOME"/{quoted(given[2:])}'
        else:
            root = quoted(given)
        printed = bytearray()
        script = f'umask 077; r={root}; mkdir -p "$r/pushed-plain" && cd "$r/pushed-plain" && [ -w . ] && pwd -P'
        status, said = self._opened().do(script, within_s=_SHORT_S, take=printed.extend)
        if status != "0":
            raise self._refusal(said or "Permission denied", given or "the cache folder")
        return printed.decode("utf-8", "surrogateescape").removesuffix("\n")

    def _stop(self, link: PlainLink, session: Session, note: str, run: _Running) -> str:
        """End a command: SIGTERM to its group, SIGKILL after a while. The status if its session cannot tell it."""
        run.lines = None  # nobody listens any more, and a line must not keep the command alive
        last = ""
        for signal, grace_s in (("TERM", _GRACE_S), ("KILL", _STUCK_S)):
            if session.ended:
                break
            deadline_s = time.monotonic() + _STUCK_S
            while link.do(kill_script(note, signal), within_s=_SHORT_S)[0] != "0":
                if session.pump(time.monotonic() + 0.05) or time.monotonic() > deadline_s:
                    break
            session.pump(time.monotonic() + grace_s)
            last = "137" if signal == "KILL" else "143"
        if not session.ended:
            raise refused(self._config, {"error": "stuck", "what": f"of command {note}"})
        return last

    def _do(self, script: str) -> tuple[str, str]:
        return self._opened().do(script, within_s=_SHORT_S)

    def _must(self, script: str, what: str) -> None:
        status, said = self._do(script)
        if status != "0":
            raise self._refusal(said, what)

    def _refusal(self, said: str, what: str) -> DeviceError:
        kind = "full" if any(sign in said for sign in _FULL) else "other"
        kind = "permission" if any(sign in said for sign in _DENIED) else kind
        last = said.strip().splitlines()[-1:] or ["it does not say why"]
        return refused(self._config, {"error": kind, "what": what, "reason": last[0][:300]})

    def _no_start(self, reason: str) -> DeviceError:
        return refused(self._config, {"error": "start", "reason": reason})

    def _opened(self) -> PlainLink:
        if self._link is None:
            raise DeviceError(
                f"the connection to {self._config.destination} was lost before, or the device is not open",
                hint="Open the device anew.",
                transient=True,
            )
        return self._link

    def _close(self) -> None:
        self._base = None
        self._close_link()

    def _close_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


class _Running:
    """What a command printed so far."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self.stdout, self.stderr = Tail(STDOUT_TAIL_BYTES), Tail(STDERR_TAIL_BYTES)
        self.lines = Lines(on_line) if on_line else None

    def add_stdout(self, chunk: bytes) -> None:
        self.stdout.add(chunk)
        if self.lines:
            self.lines.add(chunk)

    def completed(self, status: str, *, timed_out: bool, duration_s: float) -> Completed:
        number = int(status)
        return Completed(
            returncode=None if number in _SIGNALS else number,
            signal=number - 128 if number in _SIGNALS else None,
            stdout=self.stdout.text(),
            stderr=self.stderr.text(),
            timed_out=timed_out,
            duration_s=duration_s,
        )


if TYPE_CHECKING:

    def _conforms(device: PlainSshDevice) -> Device:
        return device
