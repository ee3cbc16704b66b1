"""Declarations of commands: any program that measures a model can become a runtime with a few lines of TOML.

Declarations come from the file that gnomon ships, the user's commands.toml, a named file, or the command line. Other
files in the current folder, packages, plans and the results database declare nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal, cast

from gnomon.agent.drivers.command.reading import UNITS, declared_unit
from gnomon.agent.drivers.command.report import placeholders
from gnomon.core.codec import Words, matching, shell_words, to_json
from gnomon.devices.config import Name, Text, read_settings, tables_in
from gnomon.errors import ProblemError, UsageError, did_you_mean
from gnomon.models.model import FORMATS, UNREAD
from gnomon.system.files import user_folder
from gnomon.wire import CommandSpec

MADE_OF_INPUTS = frozenset({"input_files", "input_list", "inputs_npz", "inputs_npy", "ncnn_shapes"})
"""Placeholders that only the agent, in Python, can fill from the model's inputs."""
PLACEHOLDERS = frozenset({"model", "model_name", "threads", "runs", "warm", "folder", "inputs"}) | MADE_OF_INPUTS
"""Placeholders in the words of a command, besides its choices."""
_HERE = "gnomon.toml"
_HINT = "docs/jobs/commands.md has every key."


FileName = Annotated[str, matching(r"(?!\.)[^/]+(/(?!\.)[^/]+)*", "the path of a file in the command's folder")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """The table of operators that a profiled run writes: how the operators' times and names are read from it."""

    read: Text
    label: Text
    unit: Literal["", "s", "ms", "us", "ns"] = ""
    file: FileName | Literal[""] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A command that measures a model: how it is started, and where its times are found.

    Texts may contain `PLACEHOLDERS` and the names of `choices`. `read` says where the times are, in the notation of
    `gnomon.agent.drivers.command.reading.readings`, or "" for the wall time of the process. `each` is the meaning of
    one number: "call" for one call, "mean" and "median" over all calls, "average" if the mean of all numbers is the
    time of a call, and "part" if each number is the average time of a call's part: the parts add up to the call without
    the overhead around it. `file` is read instead of the printed output; of several files that match it (* and ?), the
    last by name is read. `outputs` is the path of the outputs: with {index} or {name}, or an .npz file; "" if the
    command writes no outputs, which are then not checked. `prepare` has the commands to run before the first run of a
    model, and `files` has texts to write before these commands. A choice without values has no default and must be
    given with the command's name. If printed lines match `refused_if`, the command did not run as declared. `profile`
    has the additional words for a profiled run. `format` is the version of the program for whose output the declaration
    was written; `ran` means that the real program has been run with this declaration.
    """

    name: Name
    run: Words
    read: Text | Literal[""] = ""
    unit: Literal["", "s", "ms", "us", "ns", "fps"] = ""
    file: FileName | Literal[""] = ""
    each: Literal["call", "mean", "median", "average", "part"] = "call"
    outputs: FileName | Literal[""] = ""
    prepare: tuple[Words, ...] = ()
    files: Mapping[FileName, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[
        Annotated[str, matching("[a-z][a-z0-9_]*", "a name of lowercase letters, digits and _")],
        tuple[str, ...],
    ] = field(default_factory=dict)
    formats: tuple[str, ...] = ()
    refused_if: Text | Literal[""] = ""
    profile: Words | tuple[()] = ()
    operators: Operators | None = None
    version: Words | tuple[()] = ()
    format: Text | Literal[""] = ""
    ran: bool = False
    hint: Text | Literal[""] = ""

    @property
    def program(self) -> str:
        """The program to install: the one that prints the version if there is one, because the first word of `run` may
        be a script; otherwise that first word.
        """
        return (self.version or self.run)[0]

    @property
    def texts(self) -> list[str]:
        """All texts that may contain placeholders."""
        words = (word for words in (self.run, self.profile, self.version, *self.prepare) for word in words)
        return [*words, self.file, *self.files.values(), *self.environment.values()]

    def spec(self, choices: Mapping[str, str]) -> CommandSpec:
        """The declaration as sent to the device, with one value for each choice; unset keys are left out."""
        values = {**to_json(self), "choices": dict(choices)}
        spec = {key: values[key] for key in CommandSpec.__annotations__ if values[key]}
        if self.operators is not None:
            spec["operators"] = {key: value for key, value in values["operators"].items() if value}
        return cast(CommandSpec, spec)


def _unfit(name: str, declaration: Declaration) -> Iterator[tuple[str, str]]:
    """The keys whose values are invalid or do not fit together, each with the reason."""
    if name != declaration.name:
        yield "name", "there is no such key: a command has the name of its table"
    used = placeholders(declaration.texts)
    unknown = (used | placeholders([declaration.outputs]) - {"index", "name"}) - PLACEHOLDERS
    unknown -= declaration.choices.keys()
    if "runs" in used and not declaration.read:
        yield (
            "read",
            "a process with {runs} calls takes longer than one call: declare where the times of calls are",
        )
    if unknown:
        listed = ", ".join(f"{{{word}}}" for word in sorted(PLACEHOLDERS | declaration.choices.keys()))
        yield "run", f"there is no placeholder {{{min(unknown)}}}; there are {listed}"
    for key in sorted(PLACEHOLDERS & declaration.choices.keys()):
        yield f"choices.{key}", "a built-in placeholder has this name: choose another name"
    yield from _unread("read", declaration.read, declaration.unit)
    try:
        re.compile(declaration.refused_if, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        yield "refused_if", f"it is not a regular expression ({error})"
    if declaration.operators is not None:
        yield from _unread("operators.read", declaration.operators.read, declaration.operators.unit)
    for known_format in declaration.formats:
        if known_format not in (*FORMATS, UNREAD):
            yield "formats", f"there is no format {known_format!r}; there are {', '.join((*FORMATS, UNREAD))}"


def _unread(key: str, read: str, unit: str) -> Iterator[tuple[str, str]]:
    try:
        named = declared_unit(read)
    except ValueError as error:
        yield key, str(error)
        return
    if read and not named and not unit:
        yield key, f"it names no unit: end it with a unit, or add the key unit (one of {', '.join(UNITS)})"
    elif named and unit and named != unit:
        yield "unit", f"it is {unit}, but {key} names {named}"


def commands_path() -> Path:
    """The path of the user's own file of commands, which need not exist."""
    return user_folder() / "commands.toml"


def declarations(config: Path | None = None) -> dict[str, tuple[Declaration, Path]]:
    """All declared commands with their files, by name: those that gnomon ships, the user's own, and those of a named
    file.

    A later command replaces an earlier one with the same name. UsageError with all errors in a file.
    """
    shipped = Path(str(resources.files("gnomon.runtimes").joinpath("commands.toml")))
    declared: dict[str, tuple[Declaration, Path]] = {}
    for path in (shipped, commands_path(), *((config,) if config else ())):
        text = read_settings("file of commands", path)
        if text is not None:
            tables = tables_in(text, path, "commands", Declaration, _unfit, hint=_HINT)
            declared |= {name: (declaration, path) for name, declaration in tables.items()}
        elif path == config:
            raise UsageError(f"there is no file {path}", hint="Name a TOML file with tables [commands.NAME].")
    return declared


def chosen_commands(
    given: Sequence[str], read: Sequence[str] = (), config: Path | None = None, *, model: bool = True
) -> tuple[Declaration, ...]:
    """The commands that a user gives by name, or as a line: a string with the placeholder {model} or with a space.

    `read` says where the times of these lines are found: one string for all lines, or one for each. UsageError, also
    for a command without a place for the model if `model` is true.
    """
    declared = declarations(config) if any(not _is_line(text) for text in given) or config else {}
    lines = [text for text in given if _is_line(text)]
    if len(read) > 1 and len(read) != len(lines):
        raise UsageError(
            f"--read is given {len(read)} times, but the number of command lines is {len(lines)}",
            hint="Give --read once for all, or once for each command line.",
        )
    ways = iter(read if len(read) == len(lines) else [*read] * len(lines))
    chosen: list[Declaration] = []
    for text in given:
        if _is_line(text):
            chosen.append(_of_line(text, next(ways, ""), {other.name for other in chosen}))
        else:
            chosen.append(_of_name(text, declared))
        if model and "model" not in placeholders(chosen[-1].texts):
            raise UsageError(
                f"--command {text!r} cannot be used: it has no {{model}}, the placeholder for the path of the model",
                hint="Write {model} where the command expects the path.",
            )
    return tuple(chosen)


_NAMED = re.compile(r"[A-Za-z0-9._-]+(:.*)?", re.ASCII)
"""A pattern for the name of a command and its choices."""


def _is_line(text: str) -> bool:
    return "{model}" in text or not _NAMED.fullmatch(text)


def _of_name(text: str, declared: Mapping[str, tuple[Declaration, Path]]) -> Declaration:
    """The declaration that "NAME" or "NAME:KEY=VALUE,KEY=VALUE" names. Raises UsageError."""
    name, _, settings = text.partition(":")
    if name not in declared:
        near = did_you_mean(name, declared) or "`gnomon commands` lists all."
        here = " ./gnomon.toml is read only if it is named: --config gnomon.toml." if Path(_HERE).is_file() else ""
        raise UsageError(f"there is no command {name!r}", hint=f"{near} Or give a line with {{model}}.{here}")
    declaration, _ = declared[name]
    chosen: dict[str, tuple[str, ...]] = {}
    for part in filter(None, settings.split(",")):
        key, _, value = part.partition("=")
        chosen[key] = (*chosen.get(key, ()), *([value] if value else []))
    unknown = chosen.keys() - declaration.choices.keys()
    if unknown:
        raise UsageError(
            f"{name} has no choice {min(unknown)!r}", hint=f"It has: {', '.join(declaration.choices) or 'none'}."
        )
    choices = {**declaration.choices, **chosen}
    open_ones = [key for key, values in choices.items() if not values]
    if open_ones:
        missing = ",".join(f"{key}=VALUE" for key in open_ones)
        raise UsageError(f"{name} needs values for {' and '.join(open_ones)}", hint=f"Give --command {name}:{missing}.")
    return replace(declaration, choices=choices)


def _of_line(text: str, read: str, taken: set[str]) -> Declaration:
    """The declaration of a command given as one line; its name is the program's name."""
    try:
        words = shell_words(text)
    except ProblemError as error:
        raise UsageError(f"--command {text!r}: {error.message}", hint="Quote it as for a shell.") from error
    # The command runs in its own folder, so paths relative to the user's folder become absolute. A program without a
    # slash is looked up on the PATH, even if a file of that name lies here.
    here = [_is_here(word) and (place > 0 or "/" in word) for place, word in enumerate(words)]
    words = tuple(str(Path(word).absolute()) if own else word for word, own in zip(words, here, strict=True))
    base = _program_name(words)
    name = next(n for n in (base, *(f"{base}-{k}" for k in range(2, 100))) if n not in taken)
    declaration = Declaration(name=name, run=words, read=read)
    wrong = "; ".join(sentence for _, sentence in _unfit(name, declaration))
    if wrong:
        raise UsageError(
            f"--command {text!r} cannot be used: {wrong}",
            hint=r'For "took 3.2 ms": --read "took (?P<ms>[0-9.]+)"; for JSON: --read "json:latency[].ms".',
        )
    return declaration


def _is_here(word: str) -> bool:
    """Return True if a word is the path of an existing file."""
    try:
        return Path(word).is_file()
    except OSError:  # the word is too long for a file name
        return False


def _program_name(words: Sequence[str]) -> str:
    """The usual name of a command line: the name of its program, or of the script that an interpreter runs."""
    scripts = [word for word in words[1:] if _is_here(word)]
    interpreted = re.fullmatch(r"(python[0-9.]*|sh|bash|node|perl)", Path(words[0]).name)
    own = Path(scripts[0]).stem if interpreted and scripts else Path(words[0]).name
    return re.sub(r"[^A-Za-z0-9._-]+", "_", own).strip("._-")[:50] or "command"
