"""Reference outputs for a device that has no runtime for the user's own file: this machine computes them."""

from __future__ import annotations

from typing import Any

from gnomon.devices.local import LocalDevice
from gnomon.jobs.lab import Lab
from gnomon.jobs.targets import describe, probe_runtimes
from gnomon.measure.campaign import CampaignRunner
from gnomon.measure.link import AgentLink
from gnomon.measure.outputs import REFERENCE, compute_reference
from gnomon.runtimes.base import PlacedModel, Plain, Runtime, Wish, whole_segment
from gnomon.runtimes.registry import all_runtimes


def plain_ways(runtime: Runtime) -> tuple[Plain, ...]:
    """The plain ways of a runtime, the plainest first; a third party's may have none."""
    found: tuple[Plain, ...] = getattr(runtime, "plain", ())
    return found


def plain_segment(runtime: Runtime, placed: PlacedModel, plain: Plain) -> dict[str, Any]:
    """The segment that computes a model in a runtime's plain way, by one thread."""
    return whole_segment(runtime.name, placed, {"threads": 1, **plain.options})


def plain_label(runtime: Runtime, version: str, plain: Plain) -> str:
    """What computes so, for people."""
    return f"{' '.join(filter(None, (runtime.name, version)))} {plain.label} on the model's file, unmodified"


def reference_here(lab: Lab, runner: CampaignRunner, reasons: list[str]) -> dict[str, Any] | None:
    """Compute the outputs with a runtime of this machine and bring them to the device; their sensitivity.

    None where no runtime here loads the user's own file; why, is added to `reasons`. It is not measured, so that the
    lease of this machine is not wanted for it.
    """
    runtimes = tuple(r for r in all_runtimes()[0] if lab.graph.format in r.formats)
    timeout_s = lab.request.effort.timeout_s
    with LocalDevice() as here, AgentLink(here, timeout_s=timeout_s) as link:
        probes, _ = probe_runtimes(link, runtimes)
        placed = PlacedModel(
            graph=lab.graph, path=str(lab.own.absolute()), inputs=lab.placed.inputs, outputs=lab.placed.outputs
        )
        ways: list[tuple[str, dict[str, Any]]] = []
        for runtime in (r for r in runtimes if r.name in probes):
            version = probes[runtime.name].version
            for plain in plain_ways(runtime):
                ways.append((plain_label(runtime, version, plain), plain_segment(runtime, placed, plain)))
        for runtime in (r for r in runtimes if r.name in probes and not plain_ways(r)):
            configuration = runtime.configurations(probes[runtime.name], Wish())[0]
            label = f"{configuration.name} {probes[runtime.name].version} on the model's file, unmodified"
            ways.append((label, runtime.segment(placed, configuration, {})))
        for label, segment in ways:
            job = lab.job([segment])
            job["feeds"] = {name: {"file": str(path.absolute())} for name, path in lab.request.feeds.items()}
            job["feeds"] |= {name: {} for name in placed.inputs if name not in job["feeds"]}
            found, failure = compute_reference(link, job, runner.seeds, timeout_s=timeout_s)
            if found is not None:
                fetched = lab.folder / REFERENCE
                here.pull(fetched.name, fetched)
                runner.check_against(lab.push(fetched, fetched.name))
                return {**found, "by": f"{label}, on this machine"}
            reasons.append(f"{label}, on this machine: {describe(failure)}")
    return None
