"""Options of the commands that are written by hand."""

from __future__ import annotations

from typing import Any

from gnomon.api.compare import CompareOptions
from gnomon.cli.declared import JSON, Declared, Decorator, options_of, parameter_of


def declared_options(*declared: Declared) -> Decorator:
    """Declared options as one decorator."""

    def decorated(command: Any) -> Any:
        command.__click_params__ = getattr(command, "__click_params__", [])
        command.__click_params__ += [parameter_of(part) for part in reversed(declared)]
        return command

    return decorated


json_option = declared_options(JSON)
record_option = declared_options(*(part for part in options_of(CompareOptions) if part.name == "record"))

_KEY = "Give --device tvm://HOST:PORT/KEY; tvm:///KEY uses the tracker of the environment."
_TRACKER = "Give the tracker in --device tvm://HOST:PORT/KEY, or in TVM_TRACKER_HOST and TVM_TRACKER_PORT."
_TARGET_HOST = "Leave it out: --target is enough."
FERULES = {
    **dict.fromkeys(("-k", "--rpc_key"), _KEY),
    **dict.fromkeys(("-r", "--rpc_tracker_host", "-p", "--rpc_tracker_port"), _TRACKER),
    "-T": "Give --target, which also accepts TVM's old target strings, such as 'llvm -mcpu=cortex-a72'.",
    **dict.fromkeys(("-H", "--target_host"), _TARGET_HOST),
}
"""The options of Ferule's commands, with their replacements."""
