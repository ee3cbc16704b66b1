"""The ``config.cfg`` of an nnpackage: ``key=value`` lines that onert reads when it loads the package.

Text after ``#`` is a comment. A line is split at its first ``=``, and spaces and tabs around the key and the value are
removed. A line with nothing after ``=`` is ignored, and of two lines with the same key the later one counts.

A config holds, among other things, the keys that place operators and set threads. An operator is placed on the first
usable backend of BACKENDS, unless OP_BACKEND_ALLOPS, a key for its type, or OP_BACKEND_MAP says otherwise, in rising
order of priority.

Sources: ``loadConfigure`` in ``runtime/onert/api/nnfw/src`` of Samsung ONE for the lines; ``Config.lst`` and
``ManualScheduler.cc`` of onert for the keys; ``backend_scheduler.py`` in ``tools/stab`` for the output of the published
scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnomon.errors import PackageError
from gnomon.formats.onert.operators import IR_OPCODES

if TYPE_CHECKING:
    from gnomon.core.pricing.stab import StabDecision

_BLANKS = " \t"
_STEERING = (
    *("BACKENDS", "OP_BACKEND_", "EXECUTOR", "CPU_MEMORY_PLANNER", "USE_MMAPED_DATA", "FP16_ENABLE", "USE_SCHEDULER"),
    *("OP_SEQ_MAX_NODE", "TRACING_MODE", "PROFILING_MODE", "MINMAX_DUMP"),
)
"""The prefixes of keys that control where or how fast operators run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigCfg:
    """The text of a config.cfg, from which settings are read. Changing a setting keeps everything else."""

    text: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """The effective settings: the value of each key, with the keys in the order of their first lines."""
        return dict(filter(None, map(_setting, self.text.split("\n"))))

    def with_settings(self, settings: Mapping[str, str]) -> ConfigCfg:
        """A copy with these settings; everything else, including comments and order, is unchanged.

        The last line with a key, which is the effective one, is changed in place; new keys are added at the end. Raises
        PackageError for a key or value that the format cannot hold.
        """
        for key, value in settings.items():
            _check(key, value)
        lines = self.text.split("\n")
        last = {entry[0]: index for index, entry in enumerate(map(_setting, lines)) if entry is not None}
        for key, index in last.items():
            if key in settings and _setting(lines[index]) != (key, settings[key]):
                lines[index] = _replaced(lines[index], key, settings[key])
        added = [f"{key}={value}" for key, value in settings.items() if key not in last]
        if added:
            if lines[-1] == "":
                lines.pop()
            lines += [*added, ""]
        return ConfigCfg(text="\n".join(lines))


def _setting(line: str) -> tuple[str, str] | None:
    code = line.partition("#")[0]
    key, _, value = code.partition("=")
    return (key.strip(_BLANKS), value.strip(_BLANKS)) if value else None


def _replaced(line: str, key: str, value: str) -> str:
    """The line with a new value; a comment after the setting stays."""
    code, mark, comment = line.partition("#")
    blanks = code[len(code.rstrip(_BLANKS)) :] if mark else ""
    return f"{key}={value}{blanks}{mark}{comment}"


def _check(key: str, value: str) -> None:
    broken = set("\n\r#\0")
    if not key or key != key.strip(_BLANKS) or broken & set(key) or "=" in key:
        raise PackageError(
            f"config.cfg cannot hold the key {key!r}",
            hint="Give a key without '=', '#', line breaks, leading or trailing blanks.",
        )
    if not value or value != value.strip(_BLANKS) or broken & set(value):
        raise PackageError(
            f"config.cfg cannot hold the value {value!r} of {key}",
            hint="Give a value that is not empty, without '#', line breaks, leading or trailing blanks.",
        )


def placement_settings(placement: Mapping[int, str], threads: int) -> dict[str, str]:
    """Settings that name the backend of every operator. In BACKENDS, cpu is first and the others follow by name."""
    used = ("cpu", *sorted(set(placement.values()) - {"cpu"}))
    return {"BACKENDS": ";".join(used), "OP_BACKEND_MAP": backend_map(placement), "NUM_THREADS": str(threads)}


def published_settings(decision: StabDecision, threads: int) -> dict[str, str]:
    """The published scheduler's settings, in its order. OP_BACKEND_MAP may be empty, and onert then ignores it.

    The keys for threads are those that onert read until 2024; NUM_THREADS, which replaced them, is not among them.
    """
    return {
        "OP_BACKEND_MAP": backend_map(decision.mapped),
        **type_settings(decision.typed),
        "BACKENDS": ";".join(decision.backends),
        "RUY_THREADS": str(threads),
        "XNNPACK_THREADS": str(threads),
    }


def type_settings(typed: Mapping[str, str]) -> dict[str, str]:
    """The OP_BACKEND_<IrOpcode> settings.

    PackageError for a name that is not an IR opcode, because onert would silently skip the setting.
    """
    opcodes = set(IR_OPCODES.values())
    for opcode in typed:
        if opcode not in opcodes:
            raise PackageError(
                f"OP_BACKEND_{opcode} does not name an IR opcode of onert, so onert would ignore it",
                hint=f"Use one of: {', '.join(sorted(opcodes))}",
            )
    return {f"OP_BACKEND_{opcode}": backend for opcode, backend in typed.items()}


def backend_map(placement: Mapping[int, str]) -> str:
    """The value of OP_BACKEND_MAP: "0=ruy;5=cpu;", in the order of the operators."""
    return "".join(f"{index}={backend};" for index, backend in sorted(placement.items()))


def settings_text(settings: Mapping[str, str]) -> str:
    """The settings as the published scheduler writes them: one on each line, without a line end after the last."""
    return "\n".join(f"{key}={value}" for key, value in settings.items())


def steering(config: ConfigCfg, settings: Mapping[str, str]) -> dict[str, str]:
    """The config's settings that control where or how fast operators run, except those in `settings`."""
    return {k: v for k, v in config.settings.items() if k.startswith(_STEERING) and k not in settings}


def with_placement(config: ConfigCfg, settings: Mapping[str, str]) -> ConfigCfg:
    """The config in which only these settings control where and how fast operators run; all else stays, even comments.

    Other keys with such an effect are removed, because they would remain in force although nobody measured them. So are
    keys that have an empty value in `settings`.
    """
    wanted = {key: value for key, value in settings.items() if value}
    lines = []
    for line in config.text.split("\n"):
        code, mark, comment = line.partition("#")
        key = code.partition("=")[0].strip(" \t")
        stale = "=" in code and (key.startswith(_STEERING) or key in settings) and key not in wanted
        if not stale:
            lines.append(line)
        elif mark:
            lines.append(mark + comment)
    return ConfigCfg(text="\n".join(lines)).with_settings(wanted)
