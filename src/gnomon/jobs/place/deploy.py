"""Deploys a package: copies it to a device together with its requirements, runs it there once, and leaves it there."""

from __future__ import annotations

import shlex
from pathlib import Path

from gnomon.core.codec import loads
from gnomon.devices.address import LOCAL
from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import opened
from gnomon.errors import DeviceError, MeasurementError, RuntimeMissingError
from gnomon.jobs.place.document import DeployDocument
from gnomon.measure.progress import Tell
from gnomon.report.plain import clean
from gnomon.session.package import read_plan, run_line
from gnomon.system.files import user_folder

_TIMEOUT_S = 600.0
_NO_ROOM, _MISSING = 1, RuntimeMissingError.exit_code
# Arguments: package, its folder on the device, whether it may be replaced, folder of requirements ("": none), name.
_DEPLOY = r"""
case $2 in /*) to=$2;; *) to=$HOME/$2;; esac
if [ -e "$to" ] && ! { [ "$3" ] && [ -f "$to/plan.json" ] && [ -f "$to/run.sh" ]; }; then
  echo "$to exists already: name another folder with --to, or replace it with --overwrite" >&2; exit 1
fi
new=$to.new-$$
trap 'rm -rf "$new"' EXIT; trap 'exit 143' HUP INT TERM
mkdir -p "${to%/*}/" && mkdir "$new" && cp -R "$1/." "$new" && cat >"$new/run.sh" || exit 1
[ -z "$4" ] || { mkdir "$new/site" && cp -R "$4/." "$new/site"; } || exit 1
sh "$new/run.sh" || exit
word() { printf %s "$1" | sed 's/[\\"]/\\&/g; s/%/%%/g; s/\$/$$/g'; }
cat >"$new/$5.service" <<END || exit 1
# Written by gnomon, not enabled. Add your inputs to the command: --input NAME=FILE.npy
[Service]
Type=oneshot
ExecStart=/bin/sh "$(word "$to/run.sh")" --output "$(word "$to/out.npz")"
[Install]
WantedBy=default.target
END
rm -rf "$to" && mv "$new" "$to" && echo "$to" || exit 1
"""
_START = """#!/bin/sh
# --input NAME=FILE.npy, --output FILE.npz and --seconds N may follow.
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) || exit
{variables}export PYTHONPATH="$here/site${{PYTHONPATH:+:$PYTHONPATH}}"
exec {python} {line} "$@"
"""


def deploy(
    package: Path, config: DeviceConfig, *, to: str | None = None, overwrite: bool = False, tell: Tell | None = None
) -> DeployDocument:
    """Copy a package to a folder on a device (relative to the user's home; None: deployed/NAME) and run it there.

    Requirements that the device's Python lacks are installed in the same folder, like those for measurements (see
    `gnomon.session.targets.equip`). The folder is written completely or not at all. PackageError for an invalid
    package, DeviceError if it cannot be copied, RuntimeMissingError if its requirements are not available, and
    MeasurementError if it does not run.
    """
    package = package.resolve()
    plan, home = read_plan(package, at=""), user_folder()
    with opened(config, on_wait=tell) as device:
        info = device.describe()
        if not info.python:
            raise DeviceError(
                f"the device {config.name} has no Python, which packages need", hint="Install Python 3.10 on it."
            )
        start = _START.format(
            variables="".join(f"export {key}={shlex.quote(value)}\n" for key, value in config.environment.items()),
            python=shlex.quote(info.python),
            line=run_line(plan["job"], '"$here"/').removeprefix("python "),
        ).encode()
        where = (to or f"deployed/{package.name}").removeprefix("~/").rstrip("/")
        argv = ["sh", "-c", _DEPLOY, "sh", device.push(package, package.name), where, "yes" * overwrite]
        done = device.run([*argv, "", package.name], env={}, stdin=start, timeout_s=_TIMEOUT_S)
        own_python = config.address.kind == LOCAL and config.python is None  # its owner installs the packages
        if done.returncode == _MISSING and not own_python:
            from gnomon.devices.packages.provide import provide

            site = provide(plan["requirements"], info.fingerprint, home=home, fetch=config.fetch, tell=tell)
            argv += [device.push(site, "site"), package.name]
            done = device.run(argv, env={}, stdin=start, timeout_s=_TIMEOUT_S)
    said = done.stderr.strip().splitlines() or ["the device did not answer in time"]
    if not done.ok:
        kind = {_NO_ROOM: DeviceError, _MISSING: RuntimeMissingError}.get(done.returncode or 0, MeasurementError)
        raise kind(
            f"{clean(package.name)} was not deployed to {config.name}: {said[-1]}", hint="The device is unchanged."
        )
    *_, answer, folder = done.stdout.splitlines()
    timing = loads(answer)
    return DeployDocument(
        package=str(package),
        device=config.name,
        folder=folder,
        run=f"sh {shlex.quote(f'{folder}/run.sh')} --output out.npz",
        unit=f"{folder}/{package.name}.service",
        median_s=timing["median_ms"] * 1e-3,
        calls=timing["samples"],
        unlike=next((line for line in said if line.startswith("proved with ")), ""),
    )
