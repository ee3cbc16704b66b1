"""Options of the commands that are written by hand."""

from __future__ import annotations

from typing import Any

from gnomon.api.compare import CompareOptions
from gnomon.cli.declared import JSON, Declared, Decorator, gone, options_of, parameter_of


def declared_options(*declared: Declared) -> Decorator:
    """Declared options as one decorator."""

    def decorated(command: Any) -> Any:
        command.__click_params__ = getattr(command, "__click_params__", [])
        command.__click_params__ += [parameter_of(part) for part in reversed(declared)]
        return command

    return decorated


json_option = declared_options(JSON)
record_option = declared_options(*(part for part in options_of(CompareOptions) if part.name == "record"))


_FERULES = (
    (("-k", "--rpc_key"), "Give --device tvm://HOST:PORT/KEY; tvm:///KEY uses the tracker of the environment."),
    (
        ("-r", "--rpc_tracker_host", "-p", "--rpc_tracker_port"),
        "Give the tracker in --device tvm://HOST:PORT/KEY, or in TVM_TRACKER_HOST and TVM_TRACKER_PORT.",
    ),
    (("-T",), "Give --target, which also takes TVM's old strings, such as 'llvm -mcpu=cortex-a72'."),
    (("-H", "--target_host"), "Leave it out: --target is enough."),
)


def ferules(**others: str) -> Decorator:
    """The options of Ferule's commands, as errors that name the replacement; `others` are hints by letter."""
    rows = [*_FERULES, *(((f"-{letter}",), hint) for letter, hint in others.items())]

    def decorated(command: Any) -> Any:
        for names, hint in rows:
            command = gone(*names, hint=hint)(command)
        return command

    return decorated
