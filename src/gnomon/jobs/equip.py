"""What a device has of the runtimes that a job wants, and bringing it what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gnomon.devices.address import LOCAL
from gnomon.devices.config import DeviceConfig, user_folder
from gnomon.errors import GnomonError, RuntimeMissingError
from gnomon.jobs.targets import BROKEN, NOT_INSTALLED, Missing, probe_runtimes
from gnomon.measure.link import AgentLink
from gnomon.runtimes.base import Probe, Runtime


def equip(
    link: AgentLink,
    runtimes: tuple[Runtime, ...],
    config: DeviceConfig,
    tell: Callable[[str], None] | None,
    more: tuple[str, ...] = (),
) -> tuple[dict[str, Probe], list[Missing]]:
    """Ask the device for the runtimes; bring those that it lacks, as packages for its own Python and processor.

    This machine's own Python is taken as it is: what is installed there is its owner's affair. What cannot be brought
    is missing, with the reason. So is what was brought if a runtime of the device's own does not start beside it: the
    device's own has precedence. `more` are requirements that are brought in any case, in the same folder: GnomonError
    where they cannot be.
    """
    probes, missing = probe_runtimes(link, runtimes)
    # What is broken there may be whole here, and is then found first.
    absent = {m.name for m in missing if m.reason.startswith((NOT_INSTALLED, BROKEN))}
    lacking = tuple(r for r in runtimes if r.name in absent)
    if not (lacking or more) or (config.address.kind == LOCAL and config.python is None):
        return probes, missing
    failed: dict[str, GnomonError] = {}
    wanted = _Wanted(link=link, more=more, config=config, tell=tell)
    folder = _provided(wanted, lacking, failed)
    if folder is not None:
        # What the device's own PYTHONPATH names stays in effect behind it.
        own = [path for path in config.environment.get("PYTHONPATH", "").split(":") if path]
        link.paths[:] = [link.device.push(folder, "site"), *own]
        together, missing_then = probe_runtimes(link, runtimes)
        lost = [name for name in probes if name not in together]
        if not lost:
            probes, missing = together, missing_then
        else:
            link.paths.clear()
            failed |= {r.name: _apart(r.name, lost) for r in lacking if r.name not in failed}
    return probes, [_told(m, failed.get(m.name)) for m in missing]


def _apart(name: str, lost: list[str]) -> GnomonError:
    """The error for a runtime whose packages stop others that are on the device already."""
    return RuntimeMissingError(
        f"with what it needs, the device's own {' and '.join(lost)} would not start",
        hint=f"Measure it apart from them: --runtime {name}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is brought beside runtimes, and whereto."""

    link: AgentLink
    more: tuple[str, ...]
    config: DeviceConfig
    tell: Callable[[str], None] | None

    def provide(self, runtimes: tuple[Runtime, ...]) -> Path:
        """One folder with all of it, and with these runtimes."""
        from gnomon.devices.wheels import provide

        wanted = ["numpy", *self.more, *(requirement for runtime in runtimes for requirement in runtime.wheels)]
        found = self.link.info.fingerprint
        return provide(wanted, found, home=user_folder(), fetch=self.config.fetch, tell=self.tell or (lambda _: None))


def _provided(wanted: _Wanted, lacking: tuple[Runtime, ...], failed: dict[str, GnomonError]) -> Path | None:
    """One folder with all that can be had; what cannot goes into `failed`."""
    try:
        return wanted.provide(lacking)
    except GnomonError as error:
        if not lacking:
            raise
        if len(lacking) == 1:
            failed[lacking[0].name] = error
            return wanted.provide(()) if wanted.more else None
    had: list[Runtime] = []
    for runtime in lacking:
        try:
            wanted.provide((runtime,))
            had.append(runtime)
        except GnomonError as error:
            failed[runtime.name] = error
    while had:  # each can be had alone, but what they need may contradict each other
        try:
            return wanted.provide(tuple(had))
        except GnomonError as error:
            failed[had.pop().name] = error
    return wanted.provide(()) if wanted.more else None


def _told(missing: Missing, error: GnomonError | None) -> Missing:
    """A missing runtime with why it could not be brought."""
    if error is None:
        return missing
    return replace(missing, reason=f"{missing.reason}, and cannot be brought: {error.message}", hint=error.hint)
