"""The keys of config.cfg that place operators and set threads, beside whatever else a config holds.

Sources: ``Config.lst`` and ``ManualScheduler.cc`` of onert for the keys; ``backend_scheduler.py`` in ``tools/stab`` of
Samsung ONE for what the published scheduler writes. An operator lies on the first usable of BACKENDS, unless
OP_BACKEND_ALLOPS, a key of its type, or OP_BACKEND_MAP says otherwise, the later of these before the earlier.
"""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.core.stab import StabDecision
from gnomon.errors import PackageError
from gnomon.formats.config_cfg import ConfigCfg
from gnomon.formats.onert_ops import IR_OPCODES

_PLACING = ("BACKENDS", "OP_BACKEND_")


def placement_settings(placement: Mapping[int, str], threads: int, *, first: str = "cpu") -> dict[str, str]:
    """Settings that name the backend of every operator; `first` leads BACKENDS, the others follow by the alphabet."""
    used = (first, *sorted(set(placement.values()) - {first}))
    return {"BACKENDS": ";".join(used), "OP_BACKEND_MAP": backend_map(placement), "NUM_THREADS": str(threads)}


def published_settings(decision: StabDecision, threads: int) -> dict[str, str]:
    """The published scheduler's settings in its order; OP_BACKEND_MAP may be empty, which onert takes for nothing.

    Its thread keys are those that onert read until 2024; NUM_THREADS, which replaced them, is not among them.
    """
    return {
        "OP_BACKEND_MAP": backend_map(decision.mapped),
        **type_settings(decision.typed),
        "BACKENDS": ";".join(decision.backends),
        "RUY_THREADS": str(threads),
        "XNNPACK_THREADS": str(threads),
    }


def type_settings(typed: Mapping[str, str]) -> dict[str, str]:
    """OP_BACKEND_<IrOpcode> keys. PackageError for what is no IR opcode, since onert would pass it over in silence."""
    known = set(IR_OPCODES.values())
    for opcode in typed:
        if opcode not in known:
            raise PackageError(
                f"OP_BACKEND_{opcode} names no IR opcode of onert, which would pass it over in silence",
                hint=f"use one of: {', '.join(sorted(known))}",
            )
    return {f"OP_BACKEND_{opcode}": backend for opcode, backend in typed.items()}


def backend_map(placement: Mapping[int, str]) -> str:
    """The value of OP_BACKEND_MAP: "0=ruy;5=cpu;", in order of the operators."""
    return "".join(f"{index}={backend};" for index, backend in sorted(placement.items()))


def settings_text(settings: Mapping[str, str]) -> str:
    """The settings as the published scheduler writes them: a line each, without an end behind the last."""
    return "\n".join(f"{key}={value}" for key, value in settings.items())


def with_placement(config: ConfigCfg, settings: Mapping[str, str]) -> ConfigCfg:
    """The config with these settings as its only placement; all else in it stays, comments too.

    A key that places operators and is not among `settings` would go on placing them, so it is taken out; an empty
    value takes its key out too.
    """
    wanted = {key: value for key, value in settings.items() if value}
    lines = []
    for line in config.text.split("\n"):
        code, mark, comment = line.partition("#")
        key = code.partition("=")[0].strip(" \t")
        stale = "=" in code and (key.startswith(_PLACING) or key in settings) and key not in wanted
        if not stale:
            lines.append(line)
        elif mark:
            lines.append(mark + comment)
    return ConfigCfg(text="\n".join(lines)).with_settings(wanted)
