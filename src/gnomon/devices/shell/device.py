"""A device that is used only through its shell: the common part of SSH without Python, adb and sdb."""

from __future__ import annotations

import io
import re
import secrets
import tarfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, NoReturn, Self, TypeVar

from gnomon.devices import fingerprint as fingerprint_program
from gnomon.devices.base import DeviceInfo, checked_name, facts_of
from gnomon.devices.lease import wait_for
from gnomon.devices.pushed import Part, contents, manifest_of
from gnomon.devices.shell.facts import FINGERPRINT, MOST_BYTES, described
from gnomon.devices.shell.link import LONG_S, ShellCall, ShellCommand, ShellLink, ShellSettings, last
from gnomon.devices.shell.scripts import (
    ONLY_OWN,
    commit_script,
    has_script,
    kill_script,
    python_script,
    quoted,
    room_script,
    stage_script,
    tidy_script,
)
from gnomon.errors import DeviceError, system_errors
from gnomon.system.files import file_digest, in_place_of
from gnomon.system.process import Completed, Printed, guarded_folder

SUMS = ".gnomon-sums"
_SMALL_BYTES = 1 << 20
_MOST_BYTES = 64 << 20
_FEWEST = 4
_ESCAPED = frozenset("\\\n\r")


def bundled(parts: Sequence[Part]) -> list[list[Part]]:
    """The files that are worth sending together, bundle by bundle; all others are sent one by one.

    Each file that is sent on its own takes a session; thousands of sessions take minutes.
    """
    bundles: list[list[Part]] = [[]]
    size_bytes = 0
    for part in parts:
        plain = part.path.isprintable() and not _ESCAPED & set(part.path)
        if part.kind == "d" or not part.path or not plain or part.size_bytes >= _SMALL_BYTES:
            continue
        if size_bytes + part.size_bytes > _MOST_BYTES:
            bundles.append([])
            size_bytes = 0
        bundles[-1].append(part)
        size_bytes += part.size_bytes
    return [bundle for bundle in bundles if len(bundle) >= _FEWEST]


def packed(parts: Sequence[Part], file: Path) -> Part:
    """Write the files and a list of their digests to a tar archive at `file`; return the archive as one part.

    Paths are those of the parts. The format is GNU's, which busybox and toybox can read too. DeviceError if a file has
    changed since its digest was computed.
    """
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as archive:
        for path, program, content in _members(parts):
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(content), 0o500 if program else 0o400
            archive.addfile(member, io.BytesIO(content))
    return Part(path="", kind="f", size_bytes=file.stat().st_size, digest=file_digest(file), source=file)


def _members(parts: Sequence[Part]) -> Iterator[tuple[str, bool, bytes]]:
    for part in parts:
        yield part.path, part.kind == "x", b"".join(contents(part))
    yield SUMS, False, "".join(f"{part.digest}  {part.path}\n" for part in parts).encode()


def unpack_script(archive: str, folder: str) -> str:
    """A script that unpacks an archive into a folder with existing subfolders; status 0 if all files arrived unchanged.

    With any other status, no file is left in the folder. The archive is removed in either case. The files are flushed
    to disk now, not during a measurement.
    """
    return (
        f"umask 077; cd {quoted(folder)} || exit 1\n"
        f"command -v tar >/dev/null && tar -xomf {quoted(archive)} </dev/null; s=$?; rm -f {quoted(archive)}\n"
        f"if [ $s -eq 0 ] && command -v sha256sum >/dev/null; then sha256sum -c {SUMS} >/dev/null; s=$?; fi\n"
        f"rm -f {SUMS}; [ $s -eq 0 ] || {{ find . -type f -exec rm -f {{}} +; exit $s; }}\n"
        "{ sync -f . || sync; } 2>/dev/null; true"
    )


_FULL = ("No space left", "quota exceeded")
_DENIED = ("Permission denied", "Read-only file system", "Operation not permitted")


def take_lease(settings: ShellSettings, ask: Callable[[], str], on_wait: Callable[[str], None] | None) -> None:
    """Wait until the lease of the device is held; `on_wait` is called once with its owner. DeviceError after the time
    limit.

    `ask` returns the state: "held WARNING", "busy PROCESS", or "fail WHY". PROCESS is text written by other accounts.
    """

    def owner() -> str | None:
        kind, _, rest = last(ask()).partition(" ")
        if kind == "held":
            if rest and on_wait is not None:
                on_wait(f"{rest}: other accounts of {settings.name} may measure at the same time")
            return None
        if kind == "fail":
            raise refusal(settings, rest, "the lease of the device")
        if kind != "busy":
            raise senseless(settings, f"{kind} {rest}".encode())
        return "" if rest == "nobody" else f"{rest} there"

    wait_for(owner, settings.name, on_wait)


def python_there(link: ShellLink, given: str | None) -> tuple[str, list[str]]:
    """The path of a Python 3.10 or newer on the device ("" for none), and the other Pythons, as PATH=VERSION.

    `given` is the same as for `gnomon.devices.shell.scripts.python_script`.
    """
    *seen, last_row = ["", *link.do(python_script(given))[1].splitlines()]
    if last_row.startswith("found "):
        return last_row.removeprefix("found "), seen
    return "", [*seen, last_row]


def pushed_place(settings: ShellSettings, link: ShellLink) -> str:
    """Make the device's folder of pushed files. DeviceError if it is not writable, or if others can write to it too."""
    given = settings.folder
    if not settings.keep:
        root = quoted(f"{link.base}/pushed")
    elif given is None:
        root = f"{link.cache}/gnomon"
    elif given.startswith("~/"):
        root = f'"$HOME"/{quoted(given[2:])}'
    else:
        root = quoted(given)
    writes = 'f=$PWD/.new-$$ && touch "$f" && rm -f "$f"'
    script = f'umask 077; r={root}; mkdir -p "$r/pushed" && cd "$r/pushed" && {writes} || exit; {ONLY_OWN}'
    status, said = link.do(script)
    if status != "0":
        raise refusal(settings, said or "Permission denied", "the cache of pushed files")
    return said


def refusal(settings: ShellSettings, said: str, what: str) -> DeviceError:
    """The error for a step that failed on the device (`what`), with the reason that its shell printed (`said`)."""
    where, reason = f"{what} on {settings.destination}", last(said) or "no reason given"
    if any(sign in said for sign in _FULL):
        return DeviceError(
            f"the disk is full: {where}: {reason}",
            hint="Free up space there, or choose a folder on another disk: `folder` of the device, or TMPDIR on it.",
        )
    if any(sign in said for sign in _DENIED):
        return DeviceError(
            f"no permission to write: {where}: {reason}",
            hint="Choose a folder that its user can write to: `folder` of the device (or keep = false to keep "
            "nothing there), or TMPDIR or GNOMON_LEASES on it.",
        )
    return DeviceError(f"{where}: {reason}", hint="Check this path on the device.")


def senseless(settings: ShellSettings, answer: bytes) -> DeviceError:
    """The error for an answer that gnomon's scripts never give."""
    return DeviceError(
        f"{settings.destination} gave an answer that gnomon does not understand: {answer[:80]!r}",
        hint="Find out what else on the device prints to the connection, then open the device again.",
        transient=True,
    )


def not_arrived(settings: ShellSettings, source: object) -> DeviceError:
    """The error for a file that did not arrive as it was sent."""
    return DeviceError(
        f"{source} did not arrive unchanged on {settings.destination}",
        hint="Check the device's disk and its temporary folder, and that nobody changes the file; then start again.",
        transient=True,
    )


Settings = TypeVar("Settings", bound=ShellSettings)

_GRACE_S = 2.0
_STUCK_S = 10.0
_FACTS_S = 60.0
_KEPT_DAYS = 30
_KILLED = "137"
_SIGNALS = range(129, 193)
"""The exit statuses with which a shell reports signals."""

_MOST_KIB = 4 << 20


class ShellDevice(ABC, Generic[Settings]):
    """A device with a shell; see `Device` for the contract of the methods. Subclasses define how it is reached.

    A command's status from 129 to 192 is reported as the corresponding signal, because a shell does not distinguish the
    two. Pushed files are checked by their SHA-256 if the device has sha256sum, otherwise by their size.
    """

    def __init__(self, config: Settings, *, on_wait: Callable[[str], None] | None = None) -> None:
        self._config = config
        self._on_wait = on_wait
        self._open: ShellLink | None = None
        self._number = 0
        self._place = ""
        self._python: str | None = None

    @abstractmethod
    def _reach(self) -> ShellLink:
        """Connect to the device, make the private folder and take the lease; leave nothing behind on failure."""

    def _found_python(self, link: ShellLink) -> str:
        """The path of a Python 3.10 or newer on the device; "" if it is missing or not searched for."""
        return ""

    @property
    def folder(self) -> str:
        """The private folder on the device. DeviceError outside of the `with` block."""
        return f"{self._opened().base}/work"

    def __enter__(self) -> Self:
        self._place, self._python = "", None
        self._open = self._reach()
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if self._open is not None and self._place and self._config.keep and exception[:1] != (DeviceError,):
                self._open.do(tidy_script(self._place, days=_KEPT_DAYS, most_kib=_MOST_KIB))
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
        """Run a command in the private folder; see `Device.run`. A second session ends the command at its time
        limit.
        """
        link = self._opened()
        environment = {**self._config.environment, **env}
        if not argv or any("\0" in word for word in (*argv, *environment, *environment.values())):
            self._no_start("the command is empty, or one of its words has a zero byte")
        self._number += 1
        run = Printed(on_line)
        started_s = time.monotonic()
        call = link.command(ShellCommand(argv=tuple(argv), env=environment, stdin=stdin, number=self._number), run)
        timed_out, killed = False, ""
        try:
            if not call.pump(started_s + timeout_s):
                timed_out, killed = True, self._stop(link, call, run)
        except BaseException:
            self._stop(link, call, run)
            raise
        finally:
            call.close()
        status = call.status or killed
        if not status:
            error = call.lost()
            self._close()
            raise error
        if status == _KILLED and not timed_out:  # possibly killed by the device's guard, after a lost connection
            try:
                link.check()
            except DeviceError:
                self._close()
                raise
        call.fill(run)
        if status not in ("start", "gone") and not re.fullmatch("[0-9]{1,3}", status, re.ASCII):
            self._close()
            raise senseless(self._config, status.encode())
        if status == "gone":
            self._close()
            raise DeviceError(
                f"the private folder on {self._config.destination} was removed: {link.base}",
                hint="Find out what clears its temporary folder, then start again: what was measured is kept.",
                transient=True,
            )
        if status == "start":
            self._no_start(f"there is no program {argv[0]!r}, or it cannot be executed")
        number = int(status)
        code, by = (None, number - 128) if number in _SIGNALS else (number, None)
        return run.completed(code, by, timed_out=timed_out, duration_s=time.monotonic() - started_s)

    def push(self, local: Path, name: str) -> str:
        """Bring a file or folder to the device, with links resolved, unless it is already there; see `Device.push`."""
        link = self._opened()
        checked_name(name)
        self._place = self._place or pushed_place(self._config, link)
        manifest = manifest_of(local.absolute())
        path = f"{self._place}/{manifest.digest}/{name}"
        size_bytes = None if manifest.parts[0].kind == "d" else manifest.size_bytes
        files = sum(part.kind != "d" and "__pycache__" not in part.path.split("/") for part in manifest.parts)
        has = has_script(self._place, manifest.digest, name, files=files, size_bytes=size_bytes)
        if link.do(has)[0] == "0":
            return path
        status, said = link.do(room_script(self._place, manifest.size_bytes))
        if status != "0":
            raise refusal(self._config, said if status != "3" else _FULL[0], self._place)
        stage = f"{self._place}/.new-{secrets.token_hex(8)}"

        def at(part: Part) -> str:
            return f"{stage}/{name}/{part.path}" if part.path else f"{stage}/{name}"

        self._must(stage_script(link.base, stage, [at(part) for part in manifest.parts if part.kind == "d"]), stage)
        try:
            came: set[str] = set()
            for bundle in bundled(manifest.parts):
                # Without tar, or without room for the archive too, the files are sent one by one.
                if not self._unpacked(bundle, stage, name):
                    came.clear()
                    break
                came.update(part.path for part in bundle)
            link.arrive([(part, at(part)) for part in manifest.parts if part.kind != "d" and part.path not in came])
        except DeviceError:
            link.do(f"rm -rf {quoted(stage)}")
            raise
        self._must(commit_script(stage, self._place, manifest.digest, name), stage)
        return path

    def _unpacked(self, parts: Sequence[Part], stage: str, name: str) -> bool:
        """Send files as one archive; return True if the device could unpack it."""
        link = self._opened()
        to = f"{stage}/.bundle"
        with guarded_folder("gnomon-push-") as folder:
            link.arrive([(packed(parts, folder / "files.tar"), to)])
        return link.do(unpack_script(to, f"{stage}/{name}"), within_s=LONG_S)[0] == "0"

    def pull(self, remote: str, local: Path) -> None:
        """Fetch a file; see `Device.pull`."""
        path = remote if remote.startswith("/") else f"{self.folder}/{remote}"
        with (
            system_errors(
                DeviceError,
                f"{remote} cannot be fetched to {local}",
                hint="Check that the folder exists here and that there is room in it.",
            ),
            in_place_of(local) as partial,
        ):
            self._opened().fetch(path, partial)

    def describe(self) -> DeviceInfo:
        """The device's name, fingerprint and Python; the latter is empty if none is usable."""
        link = self._opened()
        if self._python is None:
            self._python = self._found_python(link)
        if self._python:
            program = Path(fingerprint_program.__file__).read_bytes()
            done = self.run([self._python, "-I", "-"], env={}, stdin=program, timeout_s=_FACTS_S)
            facts = facts_of(done.stdout) if done.ok else None
            if facts is not None:
                return DeviceInfo(name=self._config.name, fingerprint=facts, python=self._python)
        given = self.run(["env"], env={}, timeout_s=_FACTS_S).stdout
        with guarded_folder("gnomon-facts-") as folder:
            fingerprint = described(link.printed(FINGERPRINT, MOST_BYTES), folder, given)
        return DeviceInfo(name=self._config.name, fingerprint=fingerprint, python=self._python)

    def _stop(self, link: ShellLink, call: ShellCall, run: Printed) -> str:
        """End a command: SIGTERM to its group, SIGKILL after a while. Return a status in case its session has none."""
        run.lines = None  # nobody listens any longer, and a line must not keep the command alive
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
                f"a command on {self._config.destination} is still running after it was killed: it hangs in a driver",
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

    def _opened(self) -> ShellLink:
        if self._open is None:
            raise DeviceError(
                f"the connection to {self._config.destination} was lost earlier, or the device is not open",
                hint="Use the device in a with statement, and open it again if the connection was lost.",
                transient=True,
            )
        return self._open

    def _close(self) -> None:
        link, self._open = self._open, None
        if link is not None:
            link.close()
