"""The runtimes on this machine, probed by the agent in fresh processes."""

from __future__ import annotations

from gnomon import __version__
from gnomon.core.sample import Failure
from gnomon.devices.local import LocalDevice
from gnomon.installing import pip_line
from gnomon.jobs.devices.document import HerePart, KnownRuntime, RuntimesDocument
from gnomon.measure.link import AgentLink
from gnomon.runtimes.base import Runtime
from gnomon.runtimes.registry import all_runtimes
from gnomon.session.targets import probe_commands, reason_of
from gnomon.wire import Answer


def known_runtimes() -> RuntimesDocument:
    """The runtimes that gnomon knows, installed ones first; docs/formats/profile-json.md describes each key."""
    good, broken = all_runtimes()
    with LocalDevice() as device, AgentLink(device) as link:
        answers = link.ask(probe_commands(good))
        fingerprint, name, python = link.info.fingerprint, link.info.name, link.info.python
    rows = [_row(runtime, answers[runtime.name], python or "python") for runtime in good]
    return RuntimesDocument(
        gnomon=__version__,
        device=HerePart(name=name, interpreter=python, fingerprint=dict(fingerprint)),
        runtimes=tuple(sorted(rows, key=lambda row: (not row.installed, row.name))),
        broken=broken,
    )


def _row(runtime: Runtime, answer: Failure | Answer, python: str) -> KnownRuntime:
    reported: Answer = {} if isinstance(answer, Failure) else answer
    missing = answer if isinstance(answer, Failure) else None
    return KnownRuntime(
        name=runtime.name,
        installed=missing is None,
        version=reported.get("version"),
        backends=tuple(reported.get("backends", ())),
        formats=tuple(sorted(runtime.formats)),
        details={key: value for key, value in reported.items() if key not in {"version", "backends"}},
        reason=None if missing is None else reason_of(missing, runtime),
        install=None if missing is None else pip_line(["numpy", *runtime.wheels], python),
    )
