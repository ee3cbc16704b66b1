"""What is known of a device before it is reached, and the check of what a file says about it.

The file of devices: a TOML table for each, read with all errors at once and edited so that comments stay.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.devices.address import LABGRID, LOCAL, Address, parse_address
from gnomon.errors import UsageError
from gnomon.system.files import write_whole
from gnomon.system.locks import changing

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

Problem = tuple[str, str]
"""Where in the file something is wrong ("devices.board.pin[2]"), and what."""

CONNECT_TIMEOUT_S = 10.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}", re.ASCII)
_SSH_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9]*\s*[= ]\s*\S.*", re.ASCII)
_WORD = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.ASCII)
_LONGEST_TEXT = 4096
_MOST_ITEMS = 1024
_MOST_CORE = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig:
    """A device as the user names it: a table of the file of devices, or an address alone.

    `python` is the Python there (None: the newest that is found); `folder` the cache of pushed files there (None:
    the user's own), of which nothing stays between commands without `keep`. `environment` holds for every command
    there. `ssh_options` are passed to ssh by -o. `threads`, `runtimes`, `pin` (cores) and `governor` are what
    measuring on the device uses unless it is told otherwise; `fetch` allows to bring wheels from the package index.
    `target` and `linker` are what tuning compiles for it, as `gnomon tune` takes them.
    """

    name: str
    address: Address
    python: str | None = None
    folder: str | None = None
    keep: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    ssh_options: tuple[str, ...] = ()
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    threads: int | None = None
    runtimes: tuple[str, ...] = ()
    pin: tuple[int, ...] = ()
    governor: str | None = None
    fetch: bool = False
    target: str | None = None
    linker: str | None = None
    tags: tuple[str, ...] = ()


def is_name(text: str) -> bool:
    """Whether a text can be the name of a device."""
    return bool(_NAME.fullmatch(text))


def read_table(name: str, table: object) -> tuple[DeviceConfig | None, list[Problem]]:
    """The device that a table of the file describes, or everything that is wrong with the table."""
    where = f"devices.{shown(name)}"
    problems: list[Problem] = []
    if not is_name(name):
        wanted = "letters, digits, '.', '_' and '-', at most 64, of which the first is a letter or digit"
        problems.append((where, f"a name is wanted that has {wanted}"))
    if not isinstance(table, dict):
        return None, [*problems, (where, f"a table is wanted, not {kind_of(table)}")]
    values: dict[str, Any] = {}
    for key, value in table.items():
        reader = _READERS.get(key)
        if reader is None:
            near = difflib.get_close_matches(key[:64], _READERS, n=1)
            told = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_READERS)}"
            problems.append((f"{where}.{shown(key)}", f"there is no such key; {told}"))
            continue
        try:
            values[key] = reader(value)
        except _Wrong as wrong:
            problems.extend((f"{where}.{key}{place}", message) for place, message in wrong.problems)
    if "address" not in table:
        problems.append((f"{where}.address", "it is missing: give local or ssh://[user@]host[:port]"))
    if "address" in values:
        problems.extend(_unfit(where, name, values))
    if problems:
        return None, problems
    return DeviceConfig(name=name, **values), []


def written_table(config: DeviceConfig) -> dict[str, Any]:
    """The table of a device as it goes into the file: what differs from the defaults, plain TOML values."""
    plain = DeviceConfig(name=config.name, address=config.address)
    table: dict[str, Any] = {"address": str(config.address)}
    for key in _READERS:
        value = getattr(config, key)
        if key != "address" and value != getattr(plain, key):
            table[key] = list(value) if isinstance(value, tuple) else value
    return table


def shown(text: str) -> str:
    """A key of a foreign file, short and without anything that steers a terminal."""
    return text if is_name(text) else ascii(text[:60])


def kind_of(value: object) -> str:
    """What a TOML value is, for a message."""
    names = {bool: "a boolean", int: "a number", float: "a fraction", str: "a text", list: "an array", dict: "a table"}
    return names.get(type(value), "a date or time")


def _unfit(where: str, name: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    """What does not go with the address."""
    kind = values["address"].kind
    if name == LOCAL and kind != LOCAL:
        yield f"{where}.address", "the device named local is this machine; give another name to another one"
    if kind not in ("ssh", LABGRID) and values.get("ssh_options"):
        yield f"{where}.ssh_options", f"a device of the kind {kind!r} is not reached by ssh"
    if kind == LOCAL and values.get("folder") is not None:
        yield f"{where}.folder", "nothing is pushed to this machine, so it has no cache of pushed files"


class _Wrong(Exception):
    """What is wrong with one value; each problem with its place below the key."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__()
        self.problems = problems


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Wrong(("", f"a text is wanted, not {kind_of(value)}"))
    if not value or len(value) > _LONGEST_TEXT:
        raise _Wrong(("", "it is empty" if not value else f"it has more than {_LONGEST_TEXT} characters"))
    if not value.isprintable():
        raise _Wrong(("", "it holds control characters"))
    return value


def _address(value: object) -> Address:
    try:
        return parse_address(_text(value))
    except UsageError as error:
        raise _Wrong(("", f"{error.message}. {error.hint}")) from error


def _python(value: object) -> str:
    text = _text(value)
    if text.startswith("-") or ("/" in text and not text.startswith("/")):
        raise _Wrong(("", "give an absolute path on the device, or the name of a program on its PATH"))
    return text


def _folder(value: object) -> str:
    text = _text(value)
    if not text.startswith("/") or ".." in text.split("/") or not text.strip("/"):
        raise _Wrong(("", "give an absolute path on the device, below / and without '..'"))
    return text


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Wrong(("", f"true or false is wanted, not {kind_of(value)}"))
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Wrong(("", f"a number is wanted, not {kind_of(value)}"))
    if not 0 < value <= 3600 or not math.isfinite(value):
        raise _Wrong(("", "a number of seconds above 0, at most 3600, is wanted"))
    return float(value)


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _Wrong(("", f"a whole number is wanted, not {kind_of(value)}"))
        if not least <= value <= most:
            raise _Wrong(("", f"a whole number from {least} to {most} is wanted"))
        return value

    return read


def _matching(pattern: re.Pattern[str], wanted: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        text = _text(value)
        if not pattern.fullmatch(text):
            raise _Wrong(("", f"{text[:60]!a} is not {wanted}"))
        return text

    return read


def _array(read: Callable[[object], Any]) -> Callable[[object], tuple[Any, ...]]:
    def read_all(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _Wrong(("", f"an array is wanted, not {kind_of(value)}"))
        if len(value) > _MOST_ITEMS:
            raise _Wrong(("", f"it has more than {_MOST_ITEMS} items"))
        made: list[Any] = []
        problems: list[Problem] = []
        for index, item in enumerate(value):
            try:
                found = read(item)
                if found in made:
                    problems.append((f"[{index}]", f"{found!a} is given twice"))
                made.append(found)
            except _Wrong as wrong:
                problems.extend((f"[{index}]{place}", message) for place, message in wrong.problems)
        if problems:
            raise _Wrong(*problems)
        return tuple(made)

    return read_all


def _environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _Wrong(("", f"a table of texts is wanted, not {kind_of(value)}"))
    problems: list[Problem] = []
    if len(value) > _MOST_ITEMS:
        raise _Wrong(("", f"it has more than {_MOST_ITEMS} items"))
    for key, text in value.items():
        if not _VARIABLE.fullmatch(key):
            problems.append((f".{shown(key)}", "this is not the name of an environment variable"))
        elif not isinstance(text, str):
            problems.append((f".{key}", f"a text is wanted, not {kind_of(text)}"))
        elif "\0" in text or len(text) > 32 * _LONGEST_TEXT:
            problems.append((f".{key}", "it holds a NUL character, or is too long for an environment"))
    if problems:
        raise _Wrong(*problems)
    return dict(value)


_READERS: Mapping[str, Callable[[object], Any]] = {
    "address": _address,
    "python": _python,
    "folder": _folder,
    "keep": _boolean,
    "environment": _environment,
    "ssh_options": _array(_matching(_SSH_OPTION, "an option of ssh: give Keyword=value, as in ssh_config(5)")),
    "connect_timeout_s": _seconds,
    "threads": _whole(1, 1024),
    "runtimes": _array(_matching(_WORD, "the name of a runtime")),
    "pin": _array(_whole(0, _MOST_CORE)),
    "governor": _matching(_WORD, "the name of a governor"),
    "fetch": _boolean,
    "target": _text,
    "linker": _text,
    "tags": _array(_matching(_WORD, "a tag of letters, digits, '.', '_' and '-'")),
}


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
    _raise_for(problems, f"the device {shown(name)} is invalid")
    assert config is not None  # noqa: S101 - there is one wherever nothing is wrong
    return config


def add_device(config: DeviceConfig, path: Path | None = None) -> Path:
    """Add a device to a file (None: the user's own), which is made if there is none; returns its path.

    What else is in the file stays as it is, comments too. UsageError if the device is there already or is
    invalid, or the file is wrong or cannot be written.
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
        raise UsageError(
            f"{path} is not TOML: {what}", hint="Correct the file; docs/devices/devices.md shows one."
        ) from error
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
    _raise_for(problems, f"{path} is invalid")
    return found


def _raise_for(problems: list[Problem], what: str) -> None:
    if not problems:
        return
    told = [f"{where}: {message}" for where, message in problems[:_MOST_TOLD]]
    if len(problems) > _MOST_TOLD:
        told.append(f"and {len(problems) - _MOST_TOLD} more")
    lines = "".join(f"\n  {line}" for line in told)
    raise UsageError(f"{what}:{lines}", hint="Correct that; docs/devices/devices.md describes every key.")


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
            raise _unusable(path, "read", "it is not a regular file")
        if status.st_mode & stat.S_IWOTH:
            raise UsageError(
                f"{path} can be written by every user, and it decides which programs gnomon starts",
                hint=f"Check what it says, then: chmod go-w {path}",
            )
        try:
            data = file.read(_MOST_BYTES + 1)
            if len(data) > _MOST_BYTES:
                raise _unusable(path, "read", "it is larger than 1 MiB")
            return data.decode("utf-8-sig")
        except OSError as error:
            raise _unusable(path, "read", error.strerror or str(error)) from error
        except UnicodeDecodeError as error:
            raise _unusable(path, "read", f"it is not UTF-8 at byte {error.start}") from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Keep other gnomons from editing the file at the same time."""
    with ExitStack() as stack:
        try:
            stack.enter_context(changing(path))
        except OSError as error:
            raise _unusable(path, "written", error.strerror or str(error)) from error
        yield


def _replace(path: Path, text: str) -> None:
    """Put a new text in the file's place, whole or not at all."""
    try:
        write_whole(text.encode("utf-8"), path)
    except OSError as error:
        raise _unusable(path, "written", error.strerror or str(error)) from error


def _unusable(path: Path, verb: str, why: str) -> UsageError:
    return UsageError(
        f"the file of devices {path} cannot be {verb}: {why}",
        hint="Mend the file or its folder, or set GNOMON_HOME to another folder.",
    )
