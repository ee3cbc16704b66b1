"""The profile folder: the question, a journal of accuracies and one of latencies, and the published files.

::

    profile.json          the question: config, families and images; other questions need another folder
    accuracy.jsonl        a line for each training (`AccuracyRow`)
    latency.jsonl         a line for each measurement (`LatencyRow`)
    input.yaml            the config as it was given
    checkpoints/          <id>.safetensors, <id>.repr.txt; partial/ holds unfinished trainings
    models/               <id>.onnx, and <toolchain>/<id>.onnx
    log_files/            <toolchain>/<id>.<step>.log

Nothing is ever deleted except the files in `checkpoints/partial`. All latencies of a toolchain have the same context: a
device, its settings and the toolchain's settings.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from gnomon.core.codec import Must, decode
from gnomon.core.strict_json import Complaints, Strict, indented, is_text
from gnomon.errors import RecordError, UsageError, system_errors
from gnomon.spaces.unit import NetSize
from gnomon.system.files import Journal, read_file, read_journal, write_whole

if TYPE_CHECKING:
    from gnomon.session.request import MeasureRequest

MANIFEST, ACCURACY, LATENCY, INPUT = "profile.json", "accuracy.jsonl", "latency.jsonl", "input.yaml"
OUTPUT = "output.yaml"
"""The default file name of the config with a selection."""

FORMAT, VERSION = "gnomon-space-profile", 1
HINT = "Give a folder that gnomon space profile made."
PUBLISHED = "published"
METHODS = ("balanced", "fair", PUBLISHED)
"""The names of all methods."""

IMPORTED = "imported"
"""The method of imported accuracies, unless the user names another."""

PROOF = "validation"
"""The method of trainings that check predictions; they do not count as evidence unless this is requested."""

_STRICT = Strict(what="profile", hint=HINT, most_letters=1 << 28)
_LOCK = ".lock"
_NAME = re.compile(r"[A-Za-z0-9_+-]{1,20000}", re.ASCII)
_LONGEST_NAME = 150  # the longest id of a network in a file's name
_MOST_TOLD = 20
_MOST = 1 << 53  # whole numbers up to here are exact as floats
_MOST_S = 1e12

RowKind = TypeVar("RowKind", "AccuracyRow", "LatencyRow")
Text = Annotated[str, Must(be="a text", fits=is_text)]
Count = Annotated[int, Must(be="a whole number from 0", fits=lambda value: 0 <= value <= _MOST)]
Share = Annotated[float, Must(be="a share from 0 to 1", fits=lambda value: 0 <= value <= 1)]
Seconds = Annotated[float, Must(be="seconds", fits=lambda value: 0 <= value <= _MOST_S)]
Positive = Annotated[float, Must(be="a number above 0", fits=lambda value: 0 < value <= _MOST_S)]


def is_name(text: str) -> bool:
    """Return True if a text may become part of a file's name."""
    return _NAME.fullmatch(text) is not None


Name = Annotated[str, Must(be="a plain name", fits=is_name)]
"""A name that can be part of a file's name."""

Names = Annotated[tuple[Name, ...], Must(be="at least one plain name", fits=bool)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRow:
    """A line of a journal: a network that was trained or measured, or the `reason` why it was not.

    `primitives` are the network's primitives, one for each cell group. Imported rows have an `origin`, the file that
    they came from.
    """

    key: Text
    network: Name
    primitives: Names
    images: Count = 0
    at_s: Seconds = 0.0
    reason: Text = ""
    notes: tuple[Text, ...] = ()
    origin: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyRow(JournalRow):
    """One training of one network, or the reason why it failed.

    `key` names the training: the same network trained differently has a different key. `method` and `stage` say what
    the training is for. `validation` and `test` are shares of correctly classified images; `curve` is the
    validation accuracy after each epoch. An imported training has a standard `error` if the file has one.
    """

    method: Name
    stage: Name
    seed: Count
    epochs: Count = 0
    validation: Share | None = None
    test: Share | None = None
    curve: tuple[Share, ...] = ()
    samples: Count = 0
    macs: Count = 0
    seconds: Seconds = 0.0
    cpu_seconds: Seconds = 0.0
    error: Share | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRow(JournalRow):
    """The measurement of one network as made by one toolchain, or the reason why there is no time.

    `call_s` is the time of a call with its 95 % interval `low_s` to `high_s` (None: unknown). `correct` is the share of
    validation images that the measured model classifies correctly, `quantised` the share of its convolutions that read
    and return 8-bit values (None: not a quantised model). `artifact` is the file that was measured, relative to the
    folder, and `context` has the device and the settings. `proof` is True if the network was measured to check a
    prediction. `size` has the network's parameters, operations and memory in float32.
    """

    toolchain: Name
    call_s: Positive | None = None
    low_s: Seconds | None = None
    high_s: Seconds | None = None
    processes: Count = 0
    drift: Positive = 1.0
    clock: Text = ""
    artifact: Text = ""
    correct: Share | None = None
    quantised: Share | None = None
    context: Mapping[str, Text] = field(default_factory=dict)
    proof: bool = False
    size: NetSize = field(default_factory=NetSize)


class ProfileFolder:
    """A profile folder, open for adding by one process at a time.

    `id` identifies the profile, whatever its folder is called.
    """

    def __init__(self, path: Path, question: Mapping[str, object], config: str) -> None:
        """Make the folder, or open a profile of the same question, and read the lines of both journals.

        UsageError for a folder that is not a profile, and, naming the differences, for a profile of another question;
        ProblemError for damaged journals.
        """
        self.path = path
        if path.exists() and not (path.is_dir() and (is_profile(path) or not any(map(_foreign, path.iterdir())))):
            raise UsageError(f"{path} exists and is not a profile", hint="Give --profile-dir another path.")
        with ExitStack() as stack:
            with writing(path):
                path.mkdir(parents=True, exist_ok=True)
                stack.callback(os.close, _locked(path))
                # The manifest comes first, so that after any interruption the folder is recognised as a profile.
                if is_profile(path):
                    check_question(path, question)
                else:
                    header = {"format": FORMAT, "version": VERSION, "id": uuid.uuid4().hex, "question": dict(question)}
                    write_whole(indented(header).encode(), path / MANIFEST)
                if not (path / INPUT).is_file():
                    write_whole(config.encode(), path / INPUT)
                for name in ("checkpoints/partial", "models", "log_files"):
                    (path / name).mkdir(parents=True, exist_ok=True)
                # Images and half-written files of a killed process; the lock ensures that no other process uses them.
                partial = path / "checkpoints" / "partial"
                for left in (*partial.glob("*.images"), *partial.glob(".*.part")):
                    left.unlink(missing_ok=True)
                self._accuracy = stack.enter_context(closing(Journal(path / ACCURACY)))
                self._latency = stack.enter_context(closing(Journal(path / LATENCY)))
            self.id = str(_manifest_of(path).get("id", ""))
            self.accuracy = {row.key: row for row in read_accuracy(path)}
            self.latency = {row.key: row for row in read_latency(path)}
            self._open = stack.pop_all()

    def add(self, *rows: AccuracyRow | LatencyRow) -> None:
        """Add lines that survive even a crash right afterwards. RecordError if they cannot be written."""
        accuracies = [row for row in rows if isinstance(row, AccuracyRow)]
        latencies = [row for row in rows if isinstance(row, LatencyRow)]
        with writing(self.path):
            if accuracies:
                self._accuracy.append(*map(asdict, accuracies))
            if latencies:
                self._latency.append(*map(asdict, latencies))
        self.accuracy |= {row.key: row for row in accuracies}
        self.latency |= {row.key: row for row in latencies}

    def close(self) -> None:
        """Close both journals; another process may then add to them."""
        self._open.close()


def _foreign(path: Path) -> bool:
    """Return True if a file cannot be a remnant of a profile that was interrupted at its beginning."""
    return path.name != _LOCK and not (path.name.startswith(f".{MANIFEST}.") and path.name.endswith(".part"))


def _locked(path: Path) -> int:
    """The lock of a folder. UsageError if another process holds it."""
    from gnomon.system.locks import lock_file

    try:
        return lock_file(path / _LOCK)
    except BlockingIOError as error:
        hint = "Wait for the other process to end, or give --profile-dir another path."
        raise UsageError(f"another gnomon process is adding to the profile {path}", hint=hint) from error


def is_profile(path: Path) -> bool:
    """Return True if a folder looks like a profile."""
    return (path / MANIFEST).is_file()


def read_question(path: Path) -> dict[str, Any]:
    """The question that a profile was made from. UsageError if there is no profile, ProblemError if it is malformed."""
    return dict(_STRICT.object(_manifest_of(path).get("question"), "$.question"))


def _manifest_of(path: Path) -> dict[str, object]:
    if not is_profile(path):
        raise UsageError(f"{path} is not a profile", hint=HINT)
    document = _STRICT.object(_STRICT.parse(read_file(path / MANIFEST, hint="Give a readable profile.")), "$")
    if (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        _STRICT.fail("$.format", f"{FORMAT}, version {VERSION} expected")
    return dict(document)


def check_question(path: Path, question: Mapping[str, object]) -> None:
    """Raise UsageError, with the differences, for a profile that was made from a different question."""
    from gnomon.spaces.latency_table import differing, in_short

    before, asked = read_question(path), json.loads(json.dumps(question, allow_nan=False))
    unlike = [
        f"{name}: {in_short(json.dumps(a))} in the profile, {in_short(json.dumps(b))} now"
        for name, a, b in differing(before, asked)
    ]
    if unlike:
        more = f"; and {len(unlike) - _MOST_TOLD} more" if len(unlike) > _MOST_TOLD else ""
        raise UsageError(
            f"the profile {path} was made with other settings ({'; '.join(unlike[:_MOST_TOLD])}{more})",
            hint="Give --profile-dir another path, or use the settings of the profile. Nothing in it was changed.",
        )


def read_accuracy(path: Path) -> Iterator[AccuracyRow]:
    """The lines of a profile's journal of accuracies. ProblemError for a malformed line."""
    return _rows(path / ACCURACY, AccuracyRow)


def read_latency(path: Path) -> Iterator[LatencyRow]:
    """The lines of a profile's journal of latencies. ProblemError for a malformed line."""
    return _rows(path / LATENCY, LatencyRow)


def _rows(path: Path, kind: type[RowKind]) -> Iterator[RowKind]:
    """The lines of a journal, which is not trusted. ProblemError lists all errors of a line."""
    with system_errors(UsageError, f"{path} cannot be read", hint="Give a readable profile."):
        for number, document in read_journal(path, _STRICT):
            complaints = Complaints(what="profile", hint=HINT)
            row = decode(kind, document, complaints, f"{path.name}, line {number}: $")
            complaints.raise_any()
            yield row


def writing(path: Path) -> AbstractContextManager[None]:
    """Turn a failure to write to a profile within this block into a RecordError with the reason."""
    hint = "Free some disk space, or give --profile-dir another path."
    return system_errors(RecordError, f"the profile {path} cannot be written", hint=hint)


def file_stem(network: str) -> str:
    """A network's id for use in a file's name; an id that is too long is cut off and followed by a digest."""
    if len(network) <= _LONGEST_NAME:
        return network
    return f"{network[:_LONGEST_NAME]}-{hashlib.sha256(network.encode()).hexdigest()[:12]}"


def measuring_context(request: MeasureRequest, settings: Mapping[str, object]) -> dict[str, str]:
    """Everything that affects a toolchain's times, as text by name: the device, its options, and all settings.

    Default values are left out, so that older profiles can be continued.
    """
    from gnomon.session import replay as recall

    run = request.settings
    said: dict[str, object] = {
        "device": " by ".join((request.device.name, *(command.name for command in run.commands))),
        "threads": run.threads,
        "backends": list(run.backends),
        "precisions": list(run.precisions),
        "environments": [dict(environment) for environment in run.environments],
        "commands": [[list(call.run), dict(call.choices), *map(list, call.prepare)] for call in run.commands],
        "options": [[name, dict(own)] for name, own in run.options],
        "settings": {name: str(value) for name, value in settings.items()},
        "of the device": recall.settings_of(request.device),
    }
    return {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in said.items()
        if value
    }


def settings_in(context: Mapping[str, str]) -> dict[str, str]:
    """The toolchain's settings from a context; empty if they cannot be read."""
    try:
        settings = json.loads(context.get("settings", "{}"))
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in settings.items()} if isinstance(settings, dict) else {}


def check_context(
    rows: Iterable[LatencyRow],
    toolchain: str,
    context: Mapping[str, str],
    *,
    hint: str = "Give --profile-dir another path",
) -> None:
    """Raise UsageError, with all differences, if a toolchain's networks were measured in a different context."""
    before = next((row.context for row in rows if row.toolchain == toolchain and row.call_s is not None), None)
    if before is None or dict(before) == dict(context):
        return
    unlike = [name for name in sorted({*before, *context}) if before.get(name) != context.get(name)]
    text = "; ".join(f"{n}: {before.get(n, 'default')} before, {context.get(n, 'default')} now" for n in unlike)
    raise UsageError(
        f"{toolchain} measured the networks of this profile under other conditions ({text})",
        hint=f"{hint}: times measured under different conditions cannot be compared.",
    )
