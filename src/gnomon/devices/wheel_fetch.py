"""Wheels from the package index, by pip, for a Python on another machine. Only where the user allows it."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from gnomon.devices.process import run_process
from gnomon.devices.wheel_target import Target
from gnomon.errors import DeviceError, RuntimeMissingError

_TIMEOUT_S = 1800.0
_UNREACHABLE = ("Retrying (", "Could not fetch URL", "Connection", "Network is unreachable", "HTTP error", "ProxyError")


def fetch_wheels(requirements: Sequence[str], target: Target, folder: Path, tell: Callable[[str], None]) -> None:
    """Have pip download a wheel for each requirement into a folder, without what they require themselves.

    The user's own configuration of pip (index, proxy, certificates) holds. RuntimeMissingError if there is no wheel
    for the target, or the index cannot be reached.
    """
    folder.mkdir(parents=True, exist_ok=True)
    printed: list[str] = []

    def on_line(line: str) -> None:
        printed.append(line)
        if (match := re.match(r"\s*Downloading (?:\S*/)?(\S+\.whl)( \([^)]*\))?", line)) and ".metadata" not in line:
            tell(f"fetches {match[1]}{match[2] or ''} from the package index")

    # pip copies into its folder file by file: what it was stopped at must not look like a wheel.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as part:
        done = run_process(
            _command(requirements, target, Path(part)),
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=b"",
            timeout_s=_TIMEOUT_S,
            on_line=on_line,
            cwd=folder,
            guard=None,
        )
        if not done.ok:
            raise _failed(requirements, target, "\n".join([*printed, done.stderr]), timed_out=done.timed_out)
        try:
            for wheel in sorted(Path(part).glob("*.whl")):
                wheel.replace(folder / wheel.name)
        except OSError as error:
            raise DeviceError(
                f"wheels cannot be put into {folder}: {error.strerror}", hint="Free space there, or set GNOMON_HOME."
            ) from error


def _command(requirements: Sequence[str], target: Target, folder: Path) -> list[str]:
    minor = f"cp{target.python[0]}{target.python[1]}"
    options = [f"--platform={platform}" for platform in target.platforms]
    options += [f"--abi={abi}" for abi in (minor, "abi3", "none")]
    return [
        *(sys.executable, "-m", "pip", "download", "--only-binary=:all:", "--no-deps", "--no-input"),
        *("--disable-pip-version-check", "--progress-bar=off", "--implementation=cp"),
        *(f"--python-version={target.version}", *options, f"--dest={folder}", "--", *requirements),
    ]


def _failed(requirements: Sequence[str], target: Target, text: str, *, timed_out: bool) -> RuntimeMissingError:
    names = ", ".join(requirements)
    if timed_out:
        return RuntimeMissingError(f"{names} could not be fetched within {_TIMEOUT_S:.0f} s", hint="Start again.")
    if "No module named pip" in text:
        return RuntimeMissingError(
            f"{names} cannot be fetched: this Python has no pip", hint=f"Install it: {sys.executable} -m ensurepip"
        )
    lacking = re.search(r"satisfies the requirement (\S+) \(from versions: ([^)\n]*)\)", text)
    if any(sign in text for sign in _UNREACHABLE) and (lacking is None or lacking[2] == "none"):
        return RuntimeMissingError(
            f"{names} cannot be fetched: the package index cannot be reached",
            hint="Check the network and pip's configuration (pip config list), or put the wheels into the folder.",
        )
    if lacking is not None:
        versions = [v.strip() for v in lacking[2].split(",") if v.strip() not in ("", "none")]
        others = f"There are wheels of {', '.join(versions[-8:])} for it." if versions else "There are none for it."
        return RuntimeMissingError(
            f"{lacking[1]} is not to be had for {target}",
            hint=f"{others} Use another Python on the device, or leave the runtime out.",
        )
    last = [line for line in text.strip().splitlines() if line.startswith("ERROR")] or text.strip().splitlines()[-1:]
    told = last[0][:300] if last else "it said nothing"
    return RuntimeMissingError(f"{names} cannot be fetched; pip says: {told}", hint="Try it by hand: pip download.")
