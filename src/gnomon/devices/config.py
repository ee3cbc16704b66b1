"""A device's settings, which are known before it is reached, and their validation.

The file of devices has a TOML table for each device. Reading it reports all errors at once, and editing it preserves
comments.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from gnomon.core.codec import Must, ReadBy, decode, matching, whole
from gnomon.core.strict_json import Complaints, repeated, shown, shown_key
from gnomon.devices.address import LOCAL, OWN, Address, parse_address
from gnomon.errors import ProblemError, UsageError, system_errors
from gnomon.system.files import open_regular, user_folder, write_whole
from gnomon.system.locks import changing

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

CONNECT_TIMEOUT_S = 10.0

Record = TypeVar("Record")
Unfit = Callable[[str, Record], Iterator[tuple[str, str]]]
"""Yields the keys of a record that do not fit each other or the record's name, with the reasons."""

_HINT = "See docs/devices/devices.md, which describes every key."
_WORD = r"[a-z0-9][a-z0-9_.-]{0,63}"
_PYTHON = r"/.*|[^-/][^/]*"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]{0,255}"
_OPTION = r"[A-Za-z][A-Za-z0-9]*\s*[= ]\s*\S.*"
_FOLDER = r"(?!.*/\.\.(/|$))/.*[^/].*"
_LONGEST = 1 << 17


def _address(value: object) -> Address:
    if not isinstance(value, str):
        raise ProblemError(f"a text expected, {shown(value)} found")
    try:
        return parse_address(value)
    except UsageError as error:
        raise ProblemError(f"{error.message}. {error.hint}") from error


Name = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        "a name of at most 64 letters, digits, '.', '_' and '-' that begins with a letter or digit",
    ),
]
Word = Annotated[str, matching(_WORD, "a name of lowercase letters, digits, '.', '_' and '-'")]
Text = Annotated[str, matching(".+", "one line of text")]
Value = Annotated[str, Must(be="a text without NUL", fits=lambda text: "\0" not in text and len(text) <= _LONGEST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig:
    """A device as the user names it: a table in the file of devices, or only an address.

    `python` is the Python on the device (None: the newest one found). `folder` is the cache of pushed files on the
    device (None: the user's own); without `keep`, these are removed at the end of each visit. `environment` applies to
    every command on the device. `ssh_options` are passed to ssh with -o. `threads`, `runtimes`, `pin` (cores) and
    `governor` are the defaults for measurements on the device; `fetch` allows downloads of wheels from the package
    index. `target` and `linker` are used to compile for the device, as in `gnomon tune`.
    """

    name: Name
    address: Annotated[Address, ReadBy(read=_address)]
    python: Annotated[str, matching(_PYTHON, "an absolute path on the device, or a program on its PATH")] | None = None
    folder: Annotated[str, matching(_FOLDER, "an absolute path other than / and without '..'")] | None = None
    keep: bool = True
    environment: Mapping[Annotated[str, matching(_VARIABLE, "a variable's name")], Value] = field(default_factory=dict)
    ssh_options: tuple[Annotated[str, matching(_OPTION, "Keyword=value, as in ssh_config(5)")], ...] = ()
    connect_timeout_s: Annotated[
        float, Must(be="a number of seconds above 0, at most 3600", fits=lambda seconds: 0 < seconds <= 3600)
    ] = CONNECT_TIMEOUT_S
    threads: Annotated[int, whole(1, 1024)] | None = None
    runtimes: tuple[Word, ...] = ()
    pin: tuple[Annotated[int, whole(0, 65535)], ...] = ()
    governor: Word | None = None
    fetch: bool = False
    target: Text | None = None
    linker: Text | None = None
    tags: tuple[Word, ...] = ()


def read_table(
    kind: type[Record], unfit: Unfit[Record], section: str, item: tuple[str, Any], complaints: Complaints
) -> Record | None:
    """The record of a table and its name, or None if the table is invalid; `unfit` yields the keys that do not fit
    together, with the reasons.
    """
    name, table = item
    place = f"{section}.{shown_key(name)}"
    whole = {"name": name, **table} if isinstance(table, dict) else table
    record: Record | None = decode(kind, whole, complaints, place)
    for key, wrong in unfit(name, record) if record is not None else ():
        complaints.tell(f"{place}.{key}", wrong)
    return record


def _unfit(name: str, config: DeviceConfig) -> Iterator[tuple[str, str]]:
    """The keys whose values do not fit each other or the address, with the reasons."""
    kind = config.address.kind
    if name != config.name:
        yield "name", "there is no such key: a device is named by its table"
    if name == LOCAL and kind != LOCAL:
        yield "address", "the name local means this machine; give other devices other names"
    if kind in OWN and kind != "ssh" and config.ssh_options:
        yield "ssh_options", f"a device of the kind {kind!r} is not reached by ssh"
    if kind == LOCAL and config.folder is not None:
        yield "folder", "no files are copied to this machine, so it has no folder for them"
    for key in ("ssh_options", "runtimes", "pin", "tags"):
        items = getattr(config, key)
        for index, _ in repeated(items):
            yield f"{key}[{index}]", f"{items[index]!a} is given twice"


def written_table(config: DeviceConfig) -> dict[str, object]:
    """The table of a device for the file: the values that differ from the defaults, as plain TOML values."""
    plain = DeviceConfig(name=config.name, address=config.address)
    table: dict[str, object] = {"address": str(config.address)}
    for key in (f.name for f in fields(config)):
        value = getattr(config, key)
        if value != getattr(plain, key):
            table[key] = list(value) if isinstance(value, tuple) else value
    return table


_WHAT = "file of devices"
_MOST_BYTES = 1 << 20


def devices_path() -> Path:
    """The user's file of devices; it need not exist."""
    return user_folder() / "devices.toml"


def load_devices(path: Path | None = None) -> dict[str, DeviceConfig]:
    """The devices of a file (None: the user's own), in its order; none if there is no such file.

    UsageError with all errors in the file at once, each with its path in the file.
    """
    path = devices_path() if path is None else path
    text = read_settings(_WHAT, path)
    return {} if text is None else _devices_in(text, path)


def device_from(name: str, table: Mapping[str, object]) -> DeviceConfig:
    """The device that a table of the file would describe; UsageError with all errors at once."""
    complaints = Complaints(what=f"the device {shown_key(name)}", hint=_HINT)
    config = read_table(DeviceConfig, _unfit, "devices", (name, dict(table)), complaints)
    complaints.raise_usage()
    assert config is not None  # noqa: S101 - it exists if there are no errors
    return config


def check_new(name: str, devices: Mapping[str, DeviceConfig]) -> None:
    """Raise UsageError if a device with this name exists already."""
    if name in devices:
        raise UsageError(
            f"a device named {name!r} already exists, at {devices[name].address}",
            hint=f"Choose another name, or remove that device first: gnomon devices remove {name}",
        )


def add_device(config: DeviceConfig, path: Path | None = None) -> Path:
    """Add a device to a file (None: the user's own), which is created if it is missing; return the file's path.

    The rest of the file, including comments, does not change. UsageError if the device already exists or is invalid, or
    if the file is invalid or cannot be written.
    """
    table = written_table(config)
    device_from(config.name, table)

    def change(document: TOMLDocument) -> None:
        import tomlkit

        if "devices" not in document:
            document.add("devices", tomlkit.table(is_super_table=True))
        entry = tomlkit.table()
        for key, value in table.items():
            entry.add(key, _inline(value) if isinstance(value, dict) else value)
        document["devices"].append(config.name, entry)

    def wanted(before: dict[str, DeviceConfig]) -> dict[str, DeviceConfig]:
        check_new(config.name, before)
        return {**before, config.name: config}

    return _edit(devices_path() if path is None else path, change, wanted)


def remove_device(name: str, path: Path | None = None) -> Path:
    """Remove a device from a file (None: the user's own), which does not change otherwise; return the file's path.

    UsageError if there is no such device, or if the file is invalid or cannot be written.
    """

    def change(document: TOMLDocument) -> None:
        document["devices"].remove(name)

    def wanted(before: dict[str, DeviceConfig]) -> dict[str, DeviceConfig]:
        if name not in before:
            raise UsageError(f"there is no device {shown_key(name)}", hint=f"Devices: {', '.join(before) or 'none'}.")
        return {key: value for key, value in before.items() if key != name}

    return _edit(devices_path() if path is None else path, change, wanted)


def _edit(
    path: Path,
    change: Callable[[TOMLDocument], None],
    wanted: Callable[[dict[str, DeviceConfig]], dict[str, DeviceConfig]],
) -> Path:
    """Change the document in a file and check that it then contains the wanted devices."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    with usable(_WHAT, path, "written"), changing(path):
        text = read_settings(_WHAT, path) or ""
        after = wanted(_devices_in(text, path))
        try:
            document = tomlkit.parse(text)
            change(document)
            edited = tomlkit.dumps(document)
            right = _devices_in(edited, path) == after
        except (TOMLKitError, UsageError, ValueError, TypeError, AttributeError, RecursionError):
            right = False
        if not right:
            raise UsageError(f"gnomon cannot edit {path} without losing a part of it", hint="Edit the file by hand.")
        write_whole(edited.encode("utf-8"), path)
    return path


def _inline(table: dict[str, object]) -> Any:
    import tomlkit

    inline = tomlkit.inline_table()
    inline.update(table)
    return inline


def _devices_in(text: str, path: Path) -> dict[str, DeviceConfig]:
    return tables_in(text, path, "devices", DeviceConfig, _unfit, hint=_HINT)


def tables_in(
    text: str, path: Path, section: str, kind: type[Record], unfit: Unfit[Record], *, hint: str
) -> dict[str, Record]:
    """The records of the tables [SECTION.NAME] in a TOML file, by name, each made by `read_table`.

    UsageError with all errors at once; any other section is an error too.
    """
    from gnomon.formats.toml import read_toml

    try:
        document = read_toml(text)
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {str(error)[:200]}", hint=hint) from error
    complaints = Complaints(what=str(path), hint=hint)
    tables = document.pop(section, {})
    for key in document:
        complaints.tell(shown_key(key), f"there is no such key; the only key at the top level is {section}")
    if not isinstance(tables, dict):
        complaints.tell(section, f"a table for each name expected, {shown(tables)} found")
        tables = {}
    records = {name: read_table(kind, unfit, section, (name, table), complaints) for name, table in tables.items()}
    complaints.raise_usage()
    return {name: record for name, record in records.items() if record is not None}


def read_settings(what: str, path: Path) -> str | None:
    """The text of a file that decides which programs are started; None if it does not exist. Raises UsageError."""
    with usable(what, path, "read"):
        try:
            with open_regular(path, _MOST_BYTES) as file:
                data, mode = file.read(_MOST_BYTES), os.fstat(file.fileno()).st_mode
        except FileNotFoundError:
            return None
        if mode & stat.S_IWOTH:
            raise UsageError(
                f"{path} decides which programs gnomon starts, but every user can write to it",
                hint=f"Check its contents, then run: chmod go-w {shlex.quote(str(path))}",
            )
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise OSError(errno.EILSEQ, f"it is not UTF-8 at byte {error.start}") from error


def usable(what: str, path: Path, verb: str) -> AbstractContextManager[None]:
    """A block in which errors in reading or writing a file in the user's folder become UsageError."""
    return system_errors(UsageError, f"the {what} {path} cannot be {verb}", hint="Repair it, or change GNOMON_HOME.")
