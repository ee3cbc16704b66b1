"""The file of devices: a TOML table for each, read with all errors at once and edited so that comments stay."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.devices.settings import DeviceConfig, Problem, kind_of, read_table, shown, written_table
from gnomon.errors import UsageError

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

__all__ = [
    "DeviceConfig",
    "add_device",
    "device_from",
    "devices_path",
    "load_devices",
    "remove_device",
    "user_folder",
]

_MOST_BYTES = 1 << 20
_MOST_DEVICES = 1000
_MOST_TOLD = 20


def user_folder() -> Path:
    """$GNOMON_HOME, else $XDG_DATA_HOME/gnomon, else ~/.local/share/gnomon: where the record of runs is too."""
    if home := os.environ.get("GNOMON_HOME"):
        return Path(home)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "gnomon"


def devices_path() -> Path:
    """The user's file of devices; it need not exist."""
    return user_folder() / "devices.toml"


def load_devices(path: Path | None = None) -> dict[str, DeviceConfig]:
    """The devices of a file (None: the user's own), in its order; none if there is no such file.

    UsageError that tells everything that is wrong with the file at once, each with its path in it.
    """
    path = devices_path() if path is None else path
    text = _read(path)
    return {} if text is None else _devices_in(text, path)


def device_from(name: str, table: Mapping[str, Any]) -> DeviceConfig:
    """The device that a table of the file would describe; UsageError that tells everything that is wrong at once."""
    config, problems = read_table(name, dict(table))
    _raise_for(problems, f"the device {shown(name)} cannot be meant")
    assert config is not None  # noqa: S101 - there is one wherever nothing is wrong
    return config


def add_device(config: DeviceConfig, path: Path | None = None) -> Path:
    """Add a device to a file (None: the user's own), which is made if there is none; returns its path.

    What else is in the file stays as it is, comments too. UsageError if the device is there already, cannot be
    meant, or the file is wrong or cannot be written.
    """
    table = written_table(config)
    device_from(config.name, table)

    def change(document: TOMLDocument) -> None:
        import tomlkit

        if "devices" not in document:
            document.add("devices", tomlkit.table(is_super_table=True))
        made = tomlkit.table()
        for key, value in table.items():
            made.add(key, _inline(value) if isinstance(value, dict) else value)
        document["devices"].append(config.name, made)

    def wanted(before: dict[str, DeviceConfig]) -> dict[str, DeviceConfig]:
        if config.name in before:
            raise UsageError(
                f"there is a device {config.name!r} already, at {before[config.name].address}",
                hint=f"Choose another name, or first: gnomon devices remove {config.name}",
            )
        return {**before, config.name: config}

    return _edit(devices_path() if path is None else path, change, wanted)


def remove_device(name: str, path: Path | None = None) -> Path:
    """Take a device out of a file (None: the user's own), which stays otherwise as it is; returns its path.

    UsageError if there is no such device, or the file is wrong or cannot be written.
    """

    def change(document: TOMLDocument) -> None:
        document["devices"].remove(name)

    def wanted(before: dict[str, DeviceConfig]) -> dict[str, DeviceConfig]:
        if name not in before:
            raise UsageError(
                f"there is no device {shown(name)} in the file of devices",
                hint=f"Devices: {', '.join(before) or 'none'}.",
            )
        return {key: value for key, value in before.items() if key != name}

    return _edit(devices_path() if path is None else path, change, wanted)


def _edit(
    path: Path,
    change: Callable[[TOMLDocument], None],
    wanted: Callable[[dict[str, DeviceConfig]], dict[str, DeviceConfig]],
) -> Path:
    """Change the document in a file and see that it then says what it should."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    with _writing(path):
        text = _read(path) or ""
        after = wanted(_devices_in(text, path))
        try:
            document = tomlkit.parse(text)
            change(document)
            made = tomlkit.dumps(document)
            right = _devices_in(made, path) == after
        except (TOMLKitError, UsageError, ValueError, TypeError, AttributeError, RecursionError):
            right = False
        if not right:
            raise UsageError(
                f"{path} is written in a way that gnomon cannot edit without loss", hint="Change it by hand."
            )
        _replace(path, made)
    return path


def _inline(table: dict[str, Any]) -> Any:
    import tomlkit

    made = tomlkit.inline_table()
    made.update(table)
    return made


def _devices_in(text: str, path: Path) -> dict[str, DeviceConfig]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise UsageError(f"{path} is no TOML: {what}", hint="Correct the file; docs/devices.md shows one.") from error
    problems: list[Problem] = [(shown(k), "there is no such key; known is devices") for k in document if k != "devices"]
    tables = document.get("devices", {})
    found: dict[str, DeviceConfig] = {}
    if not isinstance(tables, dict):
        problems.append(("devices", f"a table for each device is wanted, not {kind_of(tables)}"))
    elif len(tables) > _MOST_DEVICES:
        problems.append(("devices", f"there are more than {_MOST_DEVICES}"))
    else:
        for name, table in tables.items():
            config, wrong = read_table(name, table)
            problems.extend(wrong)
            if config is not None:
                found[name] = config
    _raise_for(problems, f"{path} cannot be meant")
    return found


def _raise_for(problems: list[Problem], what: str) -> None:
    if not problems:
        return
    told = [f"{where}: {message}" for where, message in problems[:_MOST_TOLD]]
    if len(problems) > _MOST_TOLD:
        told.append(f"and {len(problems) - _MOST_TOLD} more")
    lines = "".join(f"\n  {line}" for line in told)
    raise UsageError(f"{what}:{lines}", hint="Correct that; docs/devices.md describes every key.")


def _read(path: Path) -> str | None:
    """The text of the file; None if there is none."""
    try:
        # Not blocking: a pipe in the file's place must not hold gnomon.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, "read", error.strerror or str(error)) from error
    status = os.fstat(handle)
    if stat.S_ISDIR(status.st_mode):
        os.close(handle)
        raise _unusable(path, "read", "it is a folder")
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(status.st_mode):
            raise _unusable(path, "read", "it is no regular file")
        if status.st_mode & stat.S_IWOTH:
            raise UsageError(
                f"{path} can be written by every user, and it decides which programs gnomon starts",
                hint=f"Check what it says, then: chmod go-w {path}",
            )
        try:
            data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise _unusable(path, "read", "it is larger than 1 MiB")
            return data.decode("utf-8")
        except OSError as error:
            raise _unusable(path, "read", error.strerror or str(error)) from error
        except UnicodeDecodeError as error:
            raise _unusable(path, "read", f"it is not UTF-8 at byte {error.start}") from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Keep other gnomons from editing the file at the same time."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(path, "written", error.strerror or str(error)) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace(path: Path, text: str) -> None:
    """Put a new text in the file's place, whole or not at all. A link stays one: what it points to is replaced."""
    target = path.resolve()
    partial: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=".devices-", suffix=".toml", dir=target.parent)
        partial = Path(name)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            if target.exists():
                os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))
            file.write(text)
            file.flush()
            os.fsync(handle)
        partial.replace(target)
    except OSError as error:
        if partial is not None:
            partial.unlink(missing_ok=True)
        raise _unusable(path, "written", error.strerror or str(error)) from error


def _unusable(path: Path, verb: str, why: str) -> UsageError:
    return UsageError(
        f"the file of devices {path} cannot be {verb}: {why}",
        hint="Mend the file or its folder, or set GNOMON_HOME to another folder.",
    )
